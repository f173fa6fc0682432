// Lagrangian shock hydrodynamics on hexahedra, one element at a time: forces by faces' areas, energy by their work
// (Caramana, Burton, Shashkov and Whalen 1998), hourglass control after Flanagan and Belytschko (1981), artificial
// viscosity with a limiter by direction (Christensen 1990), gases of several kinds.
//
// Corners of an element are numbered by bits: corner c lies at (c & 1, c >> 1 & 1, c >> 2). Vectors of corners are
// 24 numbers, three per corner. Every function reads and writes what it is given, which is one element's own.
#pragma once
#include <cmath>

namespace hydro {

constexpr double COURANT = 0.25, GROWTH = 1.1, VOLUME_CHANGE = 0.1;
constexpr double LINEAR = 0.5, QUADRATIC = 4.0 / 3, HOURGLASS = 0.06, TINY = 1e-20;

struct Gas {
  double gamma, stiffness;  // p = (gamma - 1) rho e - gamma * stiffness
};

inline double smaller(double a, double b) { return b < a ? b : a; }
inline double larger(double a, double b) { return a < b ? b : a; }

inline void cross(const double *a, const double *b, double *out) {
  out[0] = a[1] * b[2] - a[2] * b[1];
  out[1] = a[2] * b[0] - a[0] * b[2];
  out[2] = a[0] * b[1] - a[1] * b[0];
}
inline double dot(const double *a, const double *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// One face, whose corners a, b, c, d are seen anticlockwise from outside: its part of the volume, and an eighth of twice
// its area for each corner. Scalars: with local arrays, filled in one loop and read in a loop nest, inside a loop over the
// faces, Enzyme's reverse mode is wrong without a message.
template <int a, int b, int c, int d> inline double face(const double *x, double *areas) {
  const double p0 = x[3 * c] - x[3 * a], p1 = x[3 * c + 1] - x[3 * a + 1], p2 = x[3 * c + 2] - x[3 * a + 2];
  const double q0 = x[3 * d] - x[3 * b], q1 = x[3 * d + 1] - x[3 * b + 1], q2 = x[3 * d + 2] - x[3 * b + 2];
  const double s0 = (p1 * q2 - p2 * q1) / 8, s1 = (p2 * q0 - p0 * q2) / 8, s2 = (p0 * q1 - p1 * q0) / 8;
  areas[3 * a] += s0, areas[3 * a + 1] += s1, areas[3 * a + 2] += s2;
  areas[3 * b] += s0, areas[3 * b + 1] += s1, areas[3 * b + 2] += s2;
  areas[3 * c] += s0, areas[3 * c + 1] += s1, areas[3 * c + 2] += s2;
  areas[3 * d] += s0, areas[3 * d + 1] += s1, areas[3 * d + 2] += s2;
  return (s0 * (x[3 * a] + x[3 * b] + x[3 * c] + x[3 * d]) +
          s1 * (x[3 * a + 1] + x[3 * b + 1] + x[3 * c + 1] + x[3 * d + 1]) +
          s2 * (x[3 * a + 2] + x[3 * b + 2] + x[3 * c + 2] + x[3 * d + 2])) / 3;
}

// Volume, and for every corner the area vector that its quarter of three faces shows outside.
inline double areas_of(const double *x, double *areas) {
  for (int k = 0; k < 24; ++k) areas[k] = 0;
  return face<0, 4, 6, 2>(x, areas) + face<1, 3, 7, 5>(x, areas) + face<0, 1, 5, 4>(x, areas) +
         face<2, 6, 7, 3>(x, areas) + face<0, 2, 3, 1>(x, areas) + face<4, 5, 7, 6>(x, areas);
}

// By how much a vector field differs between the two faces of a direction.
inline void between_faces(const double *v, int direction, double *out) {
  const double *high = v;
  for (int k = 0; k < 3; ++k) out[k] = 0;
  for (int c = 0; c < 8; ++c, high += 3)
    for (int k = 0; k < 3; ++k) out[k] += (c >> direction & 1 ? 0.25 : -0.25) * high[k];
}

// Pressure and speed of sound.
inline void state_of(double density, double energy, const Gas &gas, double *pressure, double *sound) {
  *pressure = larger(0.0, (gas.gamma - 1) * density * energy - gas.gamma * gas.stiffness);
  *sound = std::sqrt(gas.gamma * (*pressure + gas.stiffness) / density + TINY);
}

constexpr int THERMO = 4;  // volume, density, pressure, sound

// Thermodynamics, how fast the element is compressed by direction (jumps and gradients), and its time step.
inline double rates(const double *x, const double *u, double energy, double mass, const Gas &gas, double *thermo,
                    double *jumps, double *gradients) {
  double areas[24], across[9], longest = 0, shortest = 1e300, divergence = 0;
  const double volume = areas_of(x, areas);
  thermo[0] = volume;
  thermo[1] = mass / volume;
  state_of(thermo[1], energy, gas, thermo + 2, thermo + 3);
  for (int d = 0; d < 3; ++d) between_faces(x, d, across + 3 * d);
  for (int d = 0; d < 3; ++d) {
    double plane[3], jump[3];
    cross(across + 3 * ((d + 1) % 3), across + 3 * ((d + 2) % 3), plane);
    between_faces(u, d, jump);
    const double size = std::sqrt(dot(plane, plane)), length = volume / size;
    jumps[d] = dot(jump, plane) / size;
    gradients[d] = jumps[d] / length;
    shortest = smaller(shortest, length);
    longest = larger(longest, -jumps[d]);
  }
  for (int k = 0; k < 24; ++k) divergence += areas[k] * u[k];
  divergence = std::fabs(divergence) / volume;
  const double by_sound = COURANT * shortest / (thermo[3] + 2 * QUADRATIC * longest);
  return smaller(by_sound, VOLUME_CHANGE / (divergence + TINY));
}

// Artificial viscosity: none in expansion, and none where the velocity is linear; beside: gradients of six neighbours.
inline double viscosity(const double *thermo, const double *jumps, const double *gradients, const double *beside) {
  double q = 0;
  for (int d = 0; d < 3; ++d) {
    const double here = gradients[d];
    if (here >= 0) continue;
    const double scale = here / (here * here + TINY);
    const double low = beside[2 * d] * scale, high = beside[2 * d + 1] * scale;
    const double smooth = larger(0.0, smaller(smaller(0.5 * (low + high), 1.0), smaller(2 * low, 2 * high)));
    const double jump = -jumps[d];
    q += LINEAR * thermo[3] * jump * (1 - smooth) + QUADRATIC * jump * jump * (1 - smooth * smooth);
  }
  return q * thermo[1];
}

// Forces on corners: pressure and viscosity on areas, and against the four patterns that no pressure feels.
inline void forces(const double *x, const double *u, const double *thermo, double q, double *force) {
  double areas[24];
  areas_of(x, areas);
  for (int k = 0; k < 24; ++k) force[k] = (thermo[2] + q) * areas[k];
  const double root = std::cbrt(thermo[0]);
  const double strength = HOURGLASS * thermo[1] * thermo[3] * root * root;
  for (int pattern = 0; pattern < 4; ++pattern) {
    double shape[8], moment[3] = {0, 0, 0}, amplitude[3] = {0, 0, 0};
    for (int c = 0; c < 8; ++c) {
      const double i = 2 * (c & 1) - 1, j = 2 * (c >> 1 & 1) - 1, l = 2 * (c >> 2) - 1;
      shape[c] = pattern == 0 ? i * j : pattern == 1 ? j * l : pattern == 2 ? l * i : i * j * l;
      for (int k = 0; k < 3; ++k) moment[k] += shape[c] * x[3 * c + k];
    }
    for (int c = 0; c < 8; ++c) shape[c] -= dot(areas + 3 * c, moment) / thermo[0];
    for (int c = 0; c < 8; ++c)
      for (int k = 0; k < 3; ++k) amplitude[k] += shape[c] * u[3 * c + k];
    for (int c = 0; c < 8; ++c)
      for (int k = 0; k < 3; ++k) force[3 * c + k] -= strength * amplitude[k] * shape[c];
  }
}

// Energy per mass that the forces take from the element.
inline double work(const double *force, const double *before, const double *after, double mass) {
  double sum = 0;
  for (int k = 0; k < 24; ++k) sum += force[k] * 0.5 * (before[k] + after[k]);
  return sum / mass;
}

}  // namespace hydro
