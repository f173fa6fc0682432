// All other styles.
#pragma once
#include "ba_whole.hpp"
#include "brusselator_integrated.hpp"
#include "decay_plain.hpp"
#include "decay_vectors.hpp"
#include "fft_forward.hpp"
#include "gmm_allocating.hpp"
#include "lstm_full.hpp"
