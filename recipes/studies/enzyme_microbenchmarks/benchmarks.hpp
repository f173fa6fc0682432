// The seven benchmarks, each a function T micro::NAME<T>(x, c, n), and other styles of them, double micro::NAME(x, c, n);
// see problems.py for the arrays. building.py defines FOR_BENCHMARKS(DO) and FOR_STYLES(DO), lists of DO(NAME).
#pragma once
#include "ba.hpp"
#include "brusselator.hpp"
#include "decay.hpp"
#include "fft.hpp"
#include "gmm.hpp"
#include "lstm.hpp"
