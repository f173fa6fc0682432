// The names of the seven benchmarks; each is a function double micro::NAME(x, c, n), see problems.py.
#pragma once
#include "ba.hpp"
#include "brusselator.hpp"
#include "fft.hpp"
#include "gmm.hpp"
#include "lstm.hpp"
#include "oscillator.hpp"

#define FOR_ALL_BENCHMARKS(DO) DO(lstm) DO(ba) DO(gmm) DO(euler) DO(rk4) DO(fft) DO(brusselator)
