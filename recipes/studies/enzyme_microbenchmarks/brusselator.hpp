// Brusselator: two reacting and diffusing substances on a square; one right-hand side, on arrays whose size the compiler
// knows, is what is differentiated.
#pragma once
#include <array>
#include <cstdint>

namespace micro {

// u' = b + u^2 v - (a + 1) u + spread Laplace(u), v' = a u - u^2 v + spread Laplace(v); nothing flows over the border.
template <int N, class T>
void brusselator_slope(const T *__restrict__ u, const T *__restrict__ v, const T *p, T *__restrict__ du,
                       T *__restrict__ dv) {
  const T a = p[0], b = p[1], spread = p[2] * static_cast<double>((N - 1) * (N - 1));
  for (int i = 0; i < N; ++i) {
    const int up = (i ? i - 1 : 0) * N, here = i * N, down = (i < N - 1 ? i + 1 : i) * N;
    for (int j = 0; j < N; ++j) {
      const int left = j ? j - 1 : 0, right = j < N - 1 ? j + 1 : j, at = here + j;
      const T reaction = u[at] * u[at] * v[at];
      du[at] = b + reaction - (a + 1.0) * u[at] +
               spread * (u[up + j] + u[down + j] + u[here + left] + u[here + right] - 4.0 * u[at]);
      dv[at] = a * u[at] - reaction +
               spread * (v[up + j] + v[down + j] + v[here + left] + v[here + right] - 4.0 * v[at]);
    }
  }
}

template <int N, class T>
T brusselator_sized(const T *x, const double *c) {
  std::array<T, N * N> du, dv;
  brusselator_slope<N>(x + 3, x + 3 + N * N, x, du.data(), dv.data());
  T sum = 0;
  for (int i = 0; i < N * N; ++i) sum += c[i] * du[i];
  for (int i = 0; i < N * N; ++i) sum += c[N * N + i] * dv[i];
  return sum;
}

// Calls DO<side>(...) for a side that there are arrays for.
#define FOR_SIDE(SIDE, DO, ...)         \
  switch (SIDE) {                       \
    case 8: return DO<8>(__VA_ARGS__);     \
    case 16: return DO<16>(__VA_ARGS__);   \
    case 32: return DO<32>(__VA_ARGS__);   \
    case 64: return DO<64>(__VA_ARGS__);   \
    case 128: return DO<128>(__VA_ARGS__); \
    default: return decltype(DO<8>(__VA_ARGS__))(); \
  }

// x: a, b, the diffusion constant, all u, all v; c: weights of all slopes; n: side.
template <class T>
T brusselator(const T *x, const double *c, const std::int64_t *n) {
  FOR_SIDE(n[0], brusselator_sized, x, c)
}

}  // namespace micro
