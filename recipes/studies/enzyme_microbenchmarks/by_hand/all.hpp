// All gradients by hand.
#pragma once
#include "ba.hpp"
#include "brusselator.hpp"
#include "decay.hpp"
#include "fft.hpp"
#include "gmm.hpp"
#include "lstm.hpp"
