// Activation functions written through exp, so that a compiler with a vector math library turns a loop of them into
// vector code (no library has a vector tanh). All, and their gradients, hold for any finite argument.
#pragma once

#include <cmath>
#include <type_traits>

namespace d5 {

/// The type to compute with: float for the 16-bit storage types.
template <class T>
using compute_t = typename std::conditional<std::is_same<T, double>::value, double, float>::type;

/// 1 / (1 + exp(-x)), through exp(-|x|), which is at most 1. Where an exponential overflows, a derived gradient is infinity
/// times zero; holding the argument within limits does not help, since compilers move the limit behind the exponential.
template <class T>
inline compute_t<T> sigmoid(T x) {
  using C = compute_t<T>;
  const C v = C(x), e = std::exp(-std::fabs(v));
  return (v > C(0) ? C(1) : e) / (C(1) + e);
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
  return (v > C(0) ? v : C(0)) + std::log(C(1) + std::exp(v > C(0) ? -v : v));
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
  const C v = C(x), u = C(0.7978845608028654) * (v + C(0.044715) * v * v * v);
  return v * sigmoid(C(2) * u);
}

/// Derivative of gelu, s + 2 x s (1 - s) du/dx with s = sigmoid(2u). s (1 - s) = e / (1 + e)^2 with e = exp(-|2u|) cancels
/// nothing: 1 - s would, multiplied by what grows as x^3.
template <class T>
inline compute_t<T> gelu_gradient(T x) {
  using C = compute_t<T>;
  const C v = C(x), u = C(0.7978845608028654) * (v + C(0.044715) * v * v * v);
  const C du = C(0.7978845608028654) * (C(1) + C(0.134145) * v * v);
  const C e = std::exp(C(-2) * std::abs(u)), r = C(1) / (C(1) + e);
  return (u > C(0) ? r : e * r) + C(2) * v * (e * r * r) * du;
}

}  // namespace d5
