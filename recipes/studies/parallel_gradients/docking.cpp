// The docking proxy: energies of this rank's poses and the free energy of all ranks' together, and their derivatives.
#include "docking.hpp"
#include "deep500/communication.h"
#include "movement.hpp"

template <class R, class... A> R __enzyme_autodiff(void *, A...);
template <class R, class... A> R __enzyme_fwddiff(void *, A...);
extern int enzyme_dup, enzyme_const;

using docking::Atom;
using d5::APART;
using d5::begin;

struct Deck {
  long poses, ligands, proteins, blocks;
  double temperature;
  const Atom *ligand, *protein;
};

static void all_energies(const double *poses, double *energies, double *least, const Deck *deck) {
  const long n = deck->poses, blocks = deck->blocks, ligands = deck->ligands, proteins = deck->proteins;
  const Atom *ligand = deck->ligand, *protein = deck->protein;
  D5_LOOP(b, blocks, (poses, energies, least, n, blocks, ligands, proteins, ligand, protein), {
    double mine = d5::Minimum::START;
    for (long i = begin(n, b, blocks); i < begin(n, b + 1, blocks); ++i) {
      const double here = docking::energy(poses + 6 * i, ligand, ligands, protein, proteins);
      energies[i] = here;
      mine = d5::Minimum::join(mine, here);
    }
    d5::Reducer<d5::Minimum>::combine(least, b, mine);
  })
}

static void all_weights(const double *energies, const double *origins, double *sums, const Deck *deck) {
  const long n = deck->poses, blocks = deck->blocks;
  const double temperature = deck->temperature;
  D5_LOOP(b, blocks, (energies, origins, sums, n, blocks, temperature), {
    const double origin = origins[APART * b];
    double mine = 0;
    for (long i = begin(n, b, blocks); i < begin(n, b + 1, blocks); ++i)
      mine += std::exp((origin - energies[i]) / temperature);
    d5::Reducer<d5::Sum>::combine(sums, b, mine);
  })
}

// Energies of the poses, and -T log(sum of exp(-energy / T)) over the poses of all ranks.
static void run(const double *poses, double *energies, double *free_energy, const Deck *deck) {
  const long blocks = deck->blocks;
  d5::Reducer<d5::Minimum> least(blocks);
  d5::Reducer<d5::Sum> sums(blocks);
  double *origins = (double *)std::malloc(sizeof(double) * APART * blocks);
  all_energies(poses, energies, least.places, deck);
  double mine = least.result(), origin, sum;
  d5::allreduce_min(&mine, &origin);
  d5::broadcast(origin, origins, blocks);
  all_weights(energies, origins, sums.places, deck);
  mine = sums.result();
  d5::allreduce_sum(&mine, &sum);
  *free_energy = origin - deck->temperature * std::log(sum);
  std::free(origins);
}

extern "C" void docking_primal(const double *poses, double *energies, double *free_energy, const Deck *deck) {
  run(poses, energies, free_energy, deck);
}

#ifndef D5_PRIMAL
extern "C" void docking_gradient(const double *poses, double *dposes, double *energies, double *denergies, double *free,
                                 double *dfree, const Deck *deck, Deck *ddeck) {
#ifdef D5_RAJA  // see hydro.cpp
  __enzyme_autodiff<void>((void *)run, enzyme_dup, poses, dposes, enzyme_dup, energies, denergies, enzyme_dup, free,
                          dfree, enzyme_dup, deck, ddeck);
#else
  (void)ddeck;
  __enzyme_autodiff<void>((void *)run, enzyme_dup, poses, dposes, enzyme_dup, energies, denergies, enzyme_dup, free,
                          dfree, enzyme_const, deck);
#endif
}
#ifndef _OPENMP
extern "C" void docking_tangent(const double *poses, double *dposes, double *energies, double *denergies, double *free,
                                double *dfree, const Deck *deck) {
  __enzyme_fwddiff<void>((void *)run, enzyme_dup, poses, dposes, enzyme_dup, energies, denergies, enzyme_dup, free,
                         dfree, enzyme_const, deck);
}
#endif
#endif
