// The loop of a form: plain, OpenMP's, or a template with an execution policy. The body of iteration i is the same in
// all of them and touches memory of its own only, so that no two iterations meet in a gradient either.
#pragma once
#include <cstdlib>

#define D5_WORDS(...) #__VA_ARGS__
#define D5_PRAGMA(...) _Pragma(D5_WORDS(__VA_ARGS__))

namespace d5 {
struct sequential {};
struct threaded {};

// RAJA's way: what is to be done is a function object, how it is done a type.
template <class Policy> struct Loop;
template <> struct Loop<sequential> {
  template <class Body> static void run(long n, Body body) {
    for (long i = 0; i < n; ++i) body(i);
  }
};
#ifdef _OPENMP
template <> struct Loop<threaded> {
  template <class Body> static void run(long n, Body body) {
#pragma omp parallel for firstprivate(body, n)
    for (long i = 0; i < n; ++i) body(i);
  }
};
#endif
template <class Policy, class Body> void forall(long n, Body body) { Loop<Policy>::run(n, body); }

constexpr long APART = 8;  // places of iterations lie in cache lines of their own

struct Minimum {
  static constexpr double START = 1e300;
  static double join(double a, double b) { return b < a ? b : a; }
};
struct Sum {
  static constexpr double START = 0;
  static double join(double a, double b) { return a + b; }
};
// A reducer: iteration i joins values to a place of its own, `combine(places, i, value)`; then places are joined in
// order, so the result does not depend on the number of threads.
template <class Kind> struct Reducer {
  double *places;
  long n;
  explicit Reducer(long iterations) : places((double *)std::malloc(sizeof(double) * APART * iterations)), n(iterations) {
    reset();
  }
  Reducer(const Reducer &) = delete;
  ~Reducer() { std::free(places); }
  void reset() {
    for (long i = 0; i < n; ++i) places[APART * i] = Kind::START;
  }
  static void combine(double *places, long i, double value) {
    places[APART * i] = Kind::join(places[APART * i], value);
  }
  double result() const {
    double all = Kind::START;
    for (long i = 0; i < n; ++i) all = Kind::join(all, places[APART * i]);
    return all;
  }
};
// One number for all iterations, copied: what every iteration reads would be what every iteration adds to, backwards.
inline void broadcast(double value, double *places, long n) {
  for (long i = 0; i < n; ++i) places[APART * i] = value;
}
inline long begin(long n, long block, long blocks) { return n * block / blocks; }
}  // namespace d5

// D5_LOOP(i, n, (captured pointers and sizes), { body })
#define D5_LIST(...) __VA_ARGS__
#if defined(D5_RAJA) && defined(_OPENMP)
#define D5_LOOP(i, n, captured, ...) d5::forall<d5::threaded>(n, [=](long i) __VA_ARGS__);
#elif defined(D5_RAJA)
#define D5_LOOP(i, n, captured, ...) d5::forall<d5::sequential>(n, [=](long i) __VA_ARGS__);
#elif defined(_OPENMP)
#define D5_LOOP(i, n, captured, ...) \
  D5_PRAGMA(omp parallel for firstprivate(D5_LIST captured)) \
  for (long i = 0; i < n; ++i) __VA_ARGS__
#else
#define D5_LOOP(i, n, captured, ...) for (long i = 0; i < n; ++i) __VA_ARGS__
#endif
