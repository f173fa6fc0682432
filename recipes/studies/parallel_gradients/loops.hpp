// The loop of a form: plain, OpenMP's, or a template with an execution policy. The body of iteration i is the same in
// all of them and touches memory of its own only, so that no two iterations meet in a gradient either.
#pragma once

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

// A reducer: every iteration combines into a place of its own, the places are combined in order.
template <class T> struct Minimum {
  T *places;
  void combine(long i, T value) const { places[i] = value < places[i] ? value : places[i]; }
};
template <class T> struct Sum {
  T *places;
  void combine(long i, T value) const { places[i] += value; }
};
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
