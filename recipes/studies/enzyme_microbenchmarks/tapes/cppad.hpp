// CppAD: operators record a function object, which sweeps forward and backward.
#pragma once
#define NDEBUG
#include <cppad/cppad.hpp>
#include <vector>

using Real = CppAD::AD<double>;

// f(x, y) computes `outputs` numbers; y gets them, rows[i * inputs + j] += the derivative of y[i] for x[j].
template <class Function>
void differentiate(const Function &f, const double *x, long inputs, int outputs, double *y, double *rows) {
  std::vector<Real> in(x, x + inputs), out(outputs);
  CppAD::Independent(in, 0, false);  // no comparisons on the tape
  f(in.data(), out.data());
  CppAD::ADFun<double> tape;
  tape.Dependent(in, out);
  tape.Forward(0, std::vector<double>(x, x + inputs));
  for (int row = 0; row < outputs; ++row) {
    std::vector<double> seeds(outputs, 0.0);
    seeds[row] = 1;
    const std::vector<double> slopes = tape.Reverse(1, seeds);
    for (long i = 0; i < inputs; ++i) rows[row * inputs + i] += slopes[i];
    y[row] = CppAD::Value(CppAD::Var2Par(out[row]));
  }
}
