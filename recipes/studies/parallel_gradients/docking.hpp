// Energy of a ligand at a protein, one pose at a time: rigid rotation and translation of the ligand, then over all pairs
// of atoms repulsion where spheres overlap, screened electrostatics, and hydrophobic contact. Smooth at each cut-off.
#pragma once
#include <cmath>

namespace docking {

constexpr double HARDNESS = 30, SCREENING = 0.4, CUTOFF = 8, CONTACT = 3;

struct Atom {
  double x, y, z, radius, charge, hydrophobic;
};

inline double pair(double dx, double dy, double dz, const Atom &a, const Atom &b) {
  const double distance = std::sqrt(dx * dx + dy * dy + dz * dz + 1e-12);
  const double gap = distance - a.radius - b.radius;
  double energy = 0;
  if (gap < 0) energy += HARDNESS * gap * gap;
  if (distance < CUTOFF) {
    const double fade = 1 - distance / CUTOFF;
    energy += a.charge * b.charge * std::exp(-SCREENING * distance) * fade * fade / (distance + 0.5);
  }
  if (gap < CONTACT) {
    const double near = gap < 0 ? 1 : 1 - gap / CONTACT;
    energy -= a.hydrophobic * b.hydrophobic * near * near * (3 - 2 * near);
  }
  return energy;
}

// pose: three angles (about x, then y, then z) and a translation.
inline double energy(const double *pose, const Atom *ligand, long ligands, const Atom *protein, long proteins) {
  const double sx = std::sin(pose[0]), cx = std::cos(pose[0]), sy = std::sin(pose[1]), cy = std::cos(pose[1]);
  const double sz = std::sin(pose[2]), cz = std::cos(pose[2]);
  double sum = 0;
  for (long l = 0; l < ligands; ++l) {
    const Atom a = ligand[l];
    const double x = cz * cy * a.x + (cz * sy * sx - sz * cx) * a.y + (cz * sy * cx + sz * sx) * a.z + pose[3];
    const double y = sz * cy * a.x + (sz * sy * sx + cz * cx) * a.y + (sz * sy * cx - cz * sx) * a.z + pose[4];
    const double z = -sy * a.x + cy * sx * a.y + cy * cx * a.z + pose[5];
    for (long p = 0; p < proteins; ++p)
      sum += pair(protein[p].x - x, protein[p].y - y, protein[p].z - z, a, protein[p]);
  }
  return sum;
}

}  // namespace docking
