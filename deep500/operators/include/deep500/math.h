// Functions that a compiler turns into vector code, strict or not, written in plain arithmetic: exp, log1p_unit, and
// activations through them. All, and their gradients, hold for any finite argument.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Enzyme takes these for the functions of the C library that they stand for, and so writes their derivatives in terms of
// their results; for that they must still be calls when it comes. Behind it they are inlined (enzyme/ir.py).
#ifdef D500_DERIVED
#define D500_FUNCTION extern "C" __attribute__((noinline, used, visibility("hidden"))) inline
#define D500_LIKE(OURS, C) \
  __attribute__((used)) inline void *__enzyme_function_like_##OURS[2] = {(void *)OURS, (void *)#C};
#else
#define D500_FUNCTION extern "C" __attribute__((visibility("hidden"))) inline
#define D500_LIKE(OURS, C)
#endif

namespace d500_detail {

/// 2^n (1 + r + r^2 / 2! + ...) with n = round(x / log 2), |r| <= log(2) / 2, in two factors, as 2^n itself may not fit.
/// Within 2 ulp; the arguments beyond which results are 0 or infinity are those of the C library.
template <class T, class Bits, int degree>
inline T exponential(T x, T lowest, T highest, T high, T low, int bias, int mantissa) {
#ifdef __clang__
#pragma clang fp reassociate(off)
#endif
  const T held = x < highest ? x : highest, v = held > lowest ? held : lowest;  // a NaN becomes a number here
  const T n = std::floor(v * T(1.4426950408889634) + T(0.5)), r = (v - n * high) - n * low;
  T sum = T(1);
#pragma GCC unroll 16
  for (int i = degree; i > 0; --i) sum = sum * r * (T(1) / T(i)) + T(1);
  const std::int32_t whole = static_cast<std::int32_t>(n), half = whole >> 1;
  const Bits one = Bits(half + bias) << mantissa, two = Bits(whole - half + bias) << mantissa;
  T first, second;
  std::memcpy(&first, &one, sizeof first);
  std::memcpy(&second, &two, sizeof second);
  const T made = sum * first * second;
  return x != x ? x : made;
}

/// log(1 + x) for 0 <= x <= 1 within 3 ulp, as 2 artanh(s) with |s| <= 0.1716: of 1 + x, or of its half.
template <class T, int terms>
inline T log1p_unit(T x) {
  const bool upper = x > T(0.41421356237309503);
  const T s = (upper ? x - T(1) : x) / (upper ? x + T(3) : x + T(2)), square = s * s;
  T sum = T(0);
#pragma GCC unroll 16
  for (int i = terms; i >= 0; --i) sum = sum * square + T(2) / T(2 * i + 1);
  return s * sum + (upper ? T(0.6931471805599453) : T(0));
}

D500_FUNCTION float d5_expf(float x) {
  return exponential<float, std::int32_t, 7>(x, -104.f, 89.f, 0.693359375f, -2.12194440e-4f, 127, 23);
}
D500_FUNCTION double d5_exp(double x) {
  return exponential<double, std::int64_t, 13>(x, -746., 710., 6.93145751953125e-1, 1.42860682030941723212e-6, 1023, 52);
}
D500_FUNCTION float d5_log1pf(float x) { return log1p_unit<float, 5>(x); }
D500_FUNCTION double d5_log1p(double x) { return log1p_unit<double, 11>(x); }
D500_LIKE(d5_expf, expf)
D500_LIKE(d5_exp, exp)
D500_LIKE(d5_log1pf, log1pf)
D500_LIKE(d5_log1p, log1p)

}  // namespace d500_detail

namespace d5 {

/// The type to compute with: float for the 16-bit storage types.
template <class T>
using compute_t = typename std::conditional<std::is_same<T, double>::value || (sizeof(T) > 8), T, float>::type;

/// e^x within 2 units in the last place.
inline float exp(float x) { return d500_detail::d5_expf(x); }
inline double exp(double x) { return d500_detail::d5_exp(x); }

/// log(1 + x) for 0 <= x <= 1.
inline float log1p_unit(float x) { return d500_detail::d5_log1pf(x); }
inline double log1p_unit(double x) { return d500_detail::d5_log1p(x); }

/// 1 / (1 + exp(-x)), through exp(-|x|), which is at most 1. Where an exponential overflows, a derived gradient is infinity
/// times zero; holding the argument within limits does not help, since compilers move the limit behind the exponential.
/// At 0 the slope of |x| is taken for 1 by Enzyme, so 0 must belong to the branch of positive numbers, here and below.
template <class T>
inline compute_t<T> sigmoid(T x) {
  using C = compute_t<T>;
  const C v = C(x), e = exp(-std::fabs(v)), r = C(1) / (C(1) + e);
  return (v < C(0) ? e : C(1)) * r;
}

/// tanh(x) = 2 sigmoid(2x) - 1; absolute error about one rounding of 1, so of little relative accuracy near 0.
template <class T>
inline compute_t<T> tanh(T x) {
  using C = compute_t<T>;
  return C(2) * sigmoid(C(2) * C(x)) - C(1);
}

/// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))
template <class T>
inline compute_t<T> softplus(T x) {
  using C = compute_t<T>;
  const C v = C(x);
  return (v < C(0) ? C(0) : v) + log1p_unit(exp(-std::fabs(v)));
}

/// x sigmoid(x), also called swish
template <class T>
inline compute_t<T> silu(T x) {
  return compute_t<T>(x) * sigmoid(compute_t<T>(x));
}

/// GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415), x (1 + tanh(u)) / 2 = x sigmoid(2u) with
/// u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
inline compute_t<T> gelu(T x) {
  using C = compute_t<T>;
  const C v = C(x);
  return v * sigmoid(v * (C(1.5957691216057308) + C(0.07135481627159961) * (v * v)));
}

/// Derivative of gelu, s + x s (1 - s) dw/dx with s = sigmoid(w), w = 2u. s (1 - s) = e / (1 + e)^2 with e = exp(-|w|)
/// cancels nothing: 1 - s would, multiplied by what grows as x^3.
template <class T>
inline compute_t<T> gelu_gradient(T x) {
  using C = compute_t<T>;
  const C v = C(x), square = v * v, w = v * (C(1.5957691216057308) + C(0.07135481627159961) * square);
  const C dw = C(1.5957691216057308) + C(0.21406444881479883) * square;
  const C e = exp(-std::fabs(w)), r = C(1) / (C(1) + e);
  return (w < C(0) ? e * r : r) + v * (e * r * r) * dw;
}

}  // namespace d5
