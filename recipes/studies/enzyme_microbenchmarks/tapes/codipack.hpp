// CoDiPack: expression templates record a tape of linear statements, in memory that is used again.
#pragma once
#include <codi.hpp>
#include <vector>

using Real = codi::RealReverse;

// f(x, y) computes `outputs` numbers; y gets them, rows[i * inputs + j] += the derivative of y[i] for x[j].
template <class Function>
void differentiate(const Function &f, const double *x, long inputs, int outputs, double *y, double *rows) {
  Real::Tape &tape = Real::getTape();
  std::vector<Real> in(x, x + inputs), out(outputs);
  tape.setActive();
  for (Real &value : in) tape.registerInput(value);
  f(in.data(), out.data());
  for (Real &value : out) tape.registerOutput(value);
  tape.setPassive();
  for (int row = 0; row < outputs; ++row) {
    out[row].setGradient(1.0);
    tape.evaluate();
    for (long i = 0; i < inputs; ++i) rows[row * inputs + i] += in[i].getGradient();
    y[row] = out[row].getValue();
    tape.clearAdjoints();
  }
  tape.reset();
}
