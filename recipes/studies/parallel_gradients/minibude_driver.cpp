// Drives the miniBUDE that a user has checked out; nothing of it is here. Build with -I<checkout>/src. Its kernel is
// written in float, where differences say little: here it computes in double. With OpenMP the kernel is that of its OpenMP
// form, and the loop over groups is this driver's: that of the program stands in a function that also allocates and takes
// times, and shares every pointer.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#define KERNEL OmpBude
#define KERNEL_FILE "omp/fasten.hpp"
#else
#define KERNEL SerialBude
#define KERNEL_FILE "serial/fasten.hpp"
#endif
#define float double
#define private public  // the kernel is a private function
#define class struct
#include KERNEL_FILE
#undef class
#undef private
#undef float

template <class R, class... A> R __enzyme_autodiff(void *, A...);
extern int enzyme_dup, enzyme_const;

constexpr long WIDTH = 16, LIGAND = 26, PROTEIN = 64, TYPES = 12;

// Poses of a ligand at a protein, made up: atoms, kinds of atoms, angles and places, and the energies.
struct Problem {
  long poses;
  std::vector<Atom> protein, ligand;
  std::vector<FFParams> kinds;
  std::vector<double> at[6], energies;
};

extern "C" void *source_new(long size) {
  std::mt19937_64 random(0);
  std::uniform_real_distribution<double> any(-1, 1);
  Problem *made = new Problem{WIDTH * size, {}, {}, {}, {}, {}};
  const int32_t bonds[] = {HBTYPE_F, HBTYPE_E, 0};
  for (long i = 0; i < TYPES; ++i) made->kinds.push_back({bonds[i % 3], 1.5 + 0.5 * any(random), any(random), any(random)});
  for (long i = 0; i < PROTEIN; ++i)
    made->protein.push_back({10 * any(random), 10 * any(random), 10 * any(random), (int32_t)(i % TYPES)});
  for (long i = 0; i < LIGAND; ++i)
    made->ligand.push_back({4 * any(random), 4 * any(random), 4 * any(random), (int32_t)((i + 5) % TYPES)});
  for (auto &values : made->at)
    for (long i = 0; i < made->poses; ++i) values.push_back(3 * any(random));
  made->energies.assign(made->poses, 0);
  return made;
}
extern "C" void source_free(void *problem) { delete (Problem *)problem; }

// Weights of the energies and directions of the poses are numbers of their own streams.
template <class Do> static void drawn(long seed, std::vector<double> &values, Do what) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> any(-1, 1);
  for (double &value : values) what(value, any(random));
}
extern "C" void source_move(void *problem, double by) {
  for (int k = 0; k < 6; ++k)
    drawn(10 + k, ((Problem *)problem)->at[k], [&](double &value, double along) { value += by * along; });
}
extern "C" double source_along(void *shadow) {
  double sum = 0;
  for (int k = 0; k < 6; ++k)
    drawn(10 + k, ((Problem *)shadow)->at[k], [&](double &value, double along) { sum += value * along; });
  return sum;
}
extern "C" double source_value(void *problem) {
  double sum = 0;
  drawn(1, ((Problem *)problem)->energies, [&](double &value, double weight) { sum += value * weight; });
  return sum;
}
extern "C" void *source_shadow(long size) {
  Problem *made = (Problem *)source_new(size);
  for (auto &values : made->at) values.assign(made->poses, 0);
  drawn(1, made->energies, [](double &value, double weight) { value = weight; });
  return made;
}

// All angles and places of a problem or a shadow, one after the other; their number. Only that where there is no place.
extern "C" long source_numbers(void *problem, double *to) {
  long count = 0;
  for (auto &values : ((Problem *)problem)->at)
    for (double value : values) {
      if (to) to[count] = value;
      ++count;
    }
  return count;
}

static void energies_of(const double *a, const double *b, const double *c, const double *x, const double *y,
                        const double *z, const Atom *protein, const Atom *ligand, const FFParams *kinds,
                        double *energies, long groups, long repeats) {
  for (long again = 0; again < repeats; ++again) {
#pragma omp parallel for firstprivate(a, b, c, x, y, z, protein, ligand, kinds, energies, groups)
    for (long group = 0; group < groups; ++group)
      KERNEL<WIDTH>::fasten_main(group, TYPES, groups * WIDTH, LIGAND, PROTEIN, protein, ligand, a, b, c, x, y, z, kinds,
                                 energies);
  }
}
extern "C" void source_primal(void *problem, long repeats) {
  Problem &p = *(Problem *)problem;
  energies_of(p.at[0].data(), p.at[1].data(), p.at[2].data(), p.at[3].data(), p.at[4].data(), p.at[5].data(),
              p.protein.data(), p.ligand.data(), p.kinds.data(), p.energies.data(), p.poses / WIDTH, repeats);
}
extern "C" void source_gradient(void *problem, void *shadow, long repeats) {
  Problem &p = *(Problem *)problem, &d = *(Problem *)shadow;
  __enzyme_autodiff<void>((void *)energies_of, enzyme_dup, p.at[0].data(), d.at[0].data(), enzyme_dup, p.at[1].data(),
                          d.at[1].data(), enzyme_dup, p.at[2].data(), d.at[2].data(), enzyme_dup, p.at[3].data(),
                          d.at[3].data(), enzyme_dup, p.at[4].data(), d.at[4].data(), enzyme_dup, p.at[5].data(),
                          d.at[5].data(), enzyme_const, p.protein.data(), enzyme_const, p.ligand.data(), enzyme_const,
                          p.kinds.data(), enzyme_dup, p.energies.data(), d.energies.data(), enzyme_const,
                          p.poses / WIDTH, enzyme_const, repeats);
}
