// Drives the LULESH 2.0 that a user has checked out; nothing of it is here. sources.py writes `lulesh_checkout.inc`, its
// files one after the other, because its header has no guard. Build with -I<checkout> -DUSE_MPI=0.
#define main lulesh_main
#include "lulesh_checkout.inc"
#undef main

#include <random>

template <class R, class... A> R __enzyme_autodiff(void *, A...);
extern int enzyme_dup, enzyme_const;

using Field = Real_t &(Domain::*)(Index_t);
static const Field NODAL[] = {&Domain::x, &Domain::y, &Domain::z, &Domain::xd, &Domain::yd, &Domain::zd};
static const Field ELEMENTAL[] = {&Domain::e, &Domain::p, &Domain::q, &Domain::v};

// Calls do(value, index of the field) for all state variables, in one order.
template <class Do> static void each(Domain &domain, Do what) {
  int number = 0;
  for (Field field : NODAL) {
    for (Index_t i = 0; i < domain.numNode(); ++i) what((domain.*field)(i), number);
    ++number;
  }
  for (Field field : ELEMENTAL) {
    for (Index_t i = 0; i < domain.numElem(); ++i) what((domain.*field)(i), number);
    ++number;
  }
}

static void advance(Domain *domain, long steps) {
  for (long i = 0; i < steps; ++i) {
    TimeIncrement(*domain);
    LagrangeLeapFrog(*domain);
  }
}

static Domain *made(long n) { return new Domain(1, 0, 0, 0, (Index_t)n, 1, 11, 1, 1); }

// A state some steps after the start, every number of it moved, so that none lies at a cut-off.
extern "C" void *source_new(long n) {
  Domain *domain = made(n);
  advance(domain, 10);
  std::mt19937_64 random(0);
  std::uniform_real_distribution<double> noise(0, 1);
  const double size[] = {1e-3, 1e-3, 1e-3, 100, 100, 100, 1e4, 1e3, 1e2, 1e-3};
  each(*domain, [&](Real_t &value, int field) { value += size[field] / (field < 3 ? n : 1) * noise(random); });
  return domain;
}
extern "C" void source_free(void *domain) { delete (Domain *)domain; }

// Relative to each field's size; weights of the result and directions of the start are numbers of their own streams.
static double scaled(std::mt19937_64 &random, int field) {
  const double size[] = {1e-2, 1e-2, 1e-2, 1e2, 1e2, 1e2, 1e4, 1e4, 1e2, 1e-2};
  return std::uniform_real_distribution<double>(-1, 1)(random) * size[field];
}
extern "C" void source_move(void *domain, double by) {
  std::mt19937_64 random(1);
  each(*(Domain *)domain, [&](Real_t &value, int field) { value += by * scaled(random, field); });
}
extern "C" double source_along(void *shadow) {
  std::mt19937_64 random(1);
  double sum = 0;
  each(*(Domain *)shadow, [&](Real_t &value, int field) { sum += value * scaled(random, field); });
  return sum;
}
static double weight(std::mt19937_64 &random, int field) {
  const double size[] = {1, 1, 1, 1e-4, 1e-4, 1e-4, 1e-6, 1e-6, 1e-4, 1};
  return std::uniform_real_distribution<double>(-1, 1)(random) * size[field];
}
extern "C" double source_value(void *domain) {
  std::mt19937_64 random(2);
  double sum = 0;
  each(*(Domain *)domain, [&](Real_t &value, int field) { sum += value * weight(random, field); });
  return sum;
}

// A shadow: all numbers zero but the weights of the result.
extern "C" void *source_shadow(long n) {
  Domain *shadow = made(n);
  const Field others[] = {&Domain::xdd, &Domain::ydd, &Domain::zdd, &Domain::fx, &Domain::fy, &Domain::fz,
                          &Domain::nodalMass};
  for (Field field : others)
    for (Index_t i = 0; i < shadow->numNode(); ++i) (shadow->*field)(i) = 0;
  const Field more[] = {&Domain::ql, &Domain::qq, &Domain::volo, &Domain::vnew, &Domain::delv, &Domain::vdov,
                        &Domain::arealg, &Domain::ss, &Domain::elemMass};
  for (Field field : more)
    for (Index_t i = 0; i < shadow->numElem(); ++i) (shadow->*field)(i) = 0;
  shadow->time() = shadow->deltatime() = shadow->dtcourant() = shadow->dthydro() = 0;
  shadow->dtfixed() = shadow->dtmax() = shadow->stoptime() = 0;
  shadow->deltatimemultlb() = shadow->deltatimemultub() = 0;
  std::mt19937_64 random(2);
  each(*shadow, [&](Real_t &value, int field) { value = weight(random, field); });
  return shadow;
}

// All state variables of a domain or a shadow, one after the other; their number. Only that where there is no place.
extern "C" long source_numbers(void *domain, double *to) {
  long count = 0;
  each(*(Domain *)domain, [&](Real_t &value, int) {
    if (to) to[count] = value;
    ++count;
  });
  return count;
}

extern "C" void source_primal(void *domain, long steps) { advance((Domain *)domain, steps); }
extern "C" void source_gradient(void *domain, void *shadow, long steps) {
  __enzyme_autodiff<void>((void *)advance, enzyme_dup, (Domain *)domain, (Domain *)shadow, enzyme_const, steps);
}
