// Adept: expression templates record statements and operations on a stack that is kept.
#pragma once
#include <adept.h>
#include <vector>

using Real = adept::adouble;

// There can only be one at a time.
inline adept::Stack &the_stack() {
  static adept::Stack stack;
  return stack;
}

// f(x, y) computes `outputs` numbers; y gets them, rows[i * inputs + j] += the derivative of y[i] for x[j].
template <class Function>
void differentiate(const Function &f, const double *x, long inputs, int outputs, double *y, double *rows) {
  adept::Stack &stack = the_stack();
  std::vector<Real> in(inputs), out(outputs);
  for (long i = 0; i < inputs; ++i) in[i].set_value(x[i]);
  stack.new_recording();
  f(in.data(), out.data());
  for (int row = 0; row < outputs; ++row) {
    stack.clear_gradients();
    out[row].set_gradient(1.0);
    stack.compute_adjoint();
    for (long i = 0; i < inputs; ++i) {
      double slope;
      in[i].get_gradient(slope);
      rows[row * inputs + i] += slope;
    }
    y[row] = adept::value(out[row]);
  }
}
