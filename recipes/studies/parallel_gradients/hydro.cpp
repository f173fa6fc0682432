// The shock-hydrodynamics proxy: steps over this rank's part of the mesh, and their derivatives by Enzyme.
#include "hydro.hpp"
#include <cstdlib>
#include <initializer_list>
#include "deep500/communication.h"
#include "movement.hpp"

template <class R, class... A> R __enzyme_autodiff(void *, A...);
template <class R, class... A> R __enzyme_fwddiff(void *, A...);
extern int enzyme_dup, enzyme_const;

using namespace hydro;
using d5::APART;
using d5::begin;
using Least = d5::Reducer<d5::Minimum>;

// What does not change: this rank's part of the mesh.
struct Mesh {
  long nodes, elements, ghosts, blocks, steps, regions;
  double first_step;
  const double *mass, *nodal_mass, *free;   // per element; per node; 3 per node: 0 where a plane holds it
  const long *region_start, *region_elements;
  const Gas *gases;
};
// Where data goes: nodes to corners, gradients of velocity to neighbours, nodes and elements at borders to other ranks.
// Apart from the mesh, and its own shadow in forward mode: rules are not applied there to calls with a constant argument.
struct Ways {
  d5::Links corners, beside;
  d5::Exchange shared, borders;
};

static double *numbers(long n) { return (double *)std::malloc(sizeof(double) * n); }

static void all_rates(const Mesh *mesh, long region, const double *x, const double *u, const double *energy,
                      double *thermo, double *jumps, double *gradients, double *limits) {
  const long first = mesh->region_start[region], n = mesh->region_start[region + 1] - first, blocks = mesh->blocks;
  const long *elements = mesh->region_elements + first;
  const double *mass = mesh->mass, gamma = mesh->gases[region].gamma, stiffness = mesh->gases[region].stiffness;
  D5_LOOP(b, blocks, (x, u, energy, thermo, jumps, gradients, limits, n, blocks, elements, mass, gamma, stiffness), {
    const Gas gas{gamma, stiffness};
    double limit = d5::Minimum::START;
    for (long i = begin(n, b, blocks); i < begin(n, b + 1, blocks); ++i) {
      const long e = elements[i];
      limit = smaller(limit, rates(x + 24 * e, u + 24 * e, energy[e], mass[e], gas, thermo + THERMO * e, jumps + 3 * e,
                                   gradients + 3 * e));
    }
    Least::combine(limits, b, limit);
  })
}

static void all_forces(const Mesh *mesh, const double *x, const double *u, const double *thermo, const double *jumps,
                       const double *gradients, const double *beside, double *force) {
  const long n = mesh->elements, blocks = mesh->blocks;
  D5_LOOP(b, blocks, (x, u, thermo, jumps, gradients, beside, force, n, blocks), {
    for (long e = begin(n, b, blocks); e < begin(n, b + 1, blocks); ++e) {
      const double *state = thermo + THERMO * e;
      const double q = viscosity(state, jumps + 3 * e, gradients + 3 * e, beside + 6 * e);
      forces(x + 24 * e, u + 24 * e, state, q, force + 24 * e);
    }
  })
}

static void all_moves(const Mesh *mesh, const double *force, const double *steps, double *position, double *velocity) {
  const long n = mesh->nodes, blocks = mesh->blocks;
  const double *nodal_mass = mesh->nodal_mass, *free = mesh->free;
  D5_LOOP(b, blocks, (force, steps, position, velocity, n, blocks, nodal_mass, free), {
    const double dt = steps[APART * b];
    for (long i = begin(n, b, blocks); i < begin(n, b + 1, blocks); ++i)
      for (long k = 3 * i; k < 3 * i + 3; ++k) {
        velocity[k] += dt * free[k] * force[k] / nodal_mass[i];
        position[k] += dt * velocity[k];
      }
  })
}

static void all_work(const Mesh *mesh, const double *force, const double *before, const double *after,
                     const double *steps, double *energy) {
  const long n = mesh->elements, blocks = mesh->blocks;
  const double *mass = mesh->mass;
  D5_LOOP(b, blocks, (force, before, after, steps, energy, n, blocks, mass), {
    const double dt = steps[APART * b];
    for (long e = begin(n, b, blocks); e < begin(n, b + 1, blocks); ++e)
      energy[e] -= dt * work(force + 24 * e, before + 24 * e, after + 24 * e, mass[e]);
  })
}

// All steps; position, velocity (3 per node), energy (per element) and the time are updated in place.
static void run(double *position, double *velocity, double *energy, double *clock, const Mesh *mesh, const Ways *ways) {
  const long e = mesh->elements, blocks = mesh->blocks;
  double *x = numbers(24 * e), *before = numbers(24 * e), *after = numbers(24 * e), *force = numbers(24 * e);
  double *thermo = numbers(THERMO * e), *jumps = numbers(3 * e), *gradients = numbers(3 * (e + mesh->ghosts));
  double *beside = numbers(6 * e), *nodal = numbers(3 * mesh->nodes);
  double *steps = numbers(APART * blocks);
  Least limits(blocks);
  double step = mesh->first_step;
  for (long t = 0; t < mesh->steps; ++t) {
    d5::gather(position, x, &ways->corners);
    d5::gather(velocity, before, &ways->corners);
    limits.reset();
    for (long r = 0; r < mesh->regions; ++r)
      all_rates(mesh, r, x, before, energy, thermo, jumps, gradients, limits.places);
    double least = smaller(limits.result(), GROWTH * step), agreed;
    d5::allreduce_min(&least, &agreed);
    step = t ? agreed : smaller(agreed, mesh->first_step);
    d5::broadcast(step, steps, blocks);
    *clock += step;
    d5::exchange(gradients, &ways->borders);
    d5::gather(gradients, beside, &ways->beside);
    all_forces(mesh, x, before, thermo, jumps, gradients, beside, force);
    d5::collect(force, nodal, &ways->corners);
    d5::sum_shared(nodal, &ways->shared);
    all_moves(mesh, nodal, steps, position, velocity);
    d5::gather(velocity, after, &ways->corners);
    all_work(mesh, force, before, after, steps, energy);
  }
  for (double *work_space : {x, before, after, force, thermo, jumps, gradients, beside, nodal, steps})
    std::free(work_space);
}

extern "C" void hydro_primal(double *x, double *u, double *e, double *t, const Mesh *mesh, const Ways *ways) {
  run(x, u, e, t, mesh, ways);
}

#ifndef D5_PRIMAL
// Shadows hold derivatives of what they belong to: of the result before, of the start after. `dmesh` is work space: where
// loops are function objects, Enzyme adds to the shadow of every array that one of them holds, constant or not, and
// without a shadow to the array itself.
extern "C" void hydro_gradient(double *x, double *dx, double *u, double *du, double *e, double *de, double *t,
                               double *dt, const Mesh *mesh, Mesh *dmesh, const Ways *ways) {
#ifdef D5_RAJA
  __enzyme_autodiff<void>((void *)run, enzyme_dup, x, dx, enzyme_dup, u, du, enzyme_dup, e, de, enzyme_dup, t, dt,
                          enzyme_dup, mesh, dmesh, enzyme_const, ways);
#else
  (void)dmesh;
  __enzyme_autodiff<void>((void *)run, enzyme_dup, x, dx, enzyme_dup, u, du, enzyme_dup, e, de, enzyme_dup, t, dt,
                          enzyme_const, mesh, enzyme_const, ways);
#endif
}
#ifndef _OPENMP  // Enzyme's forward mode stops at OpenMP's parallel regions
// Shadows hold a direction: of the start before, of the result after.
extern "C" void hydro_tangent(double *x, double *dx, double *u, double *du, double *e, double *de, double *t, double *dt,
                              const Mesh *mesh, const Ways *ways) {
  __enzyme_fwddiff<void>((void *)run, enzyme_dup, x, dx, enzyme_dup, u, du, enzyme_dup, e, de, enzyme_dup, t, dt,
                         enzyme_const, mesh, enzyme_dup, ways, ways);
}
#endif
#endif
