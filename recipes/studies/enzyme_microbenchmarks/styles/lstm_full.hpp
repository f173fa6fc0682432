// LSTM, another style: gates see all units, through matrices, and symbols are predicted.
#pragma once
#include "../lstm.hpp"

namespace micro {

// One step of one layer of `h` units on `h` inputs. Weights: of input (4h x h), of hidden state (4h x h), bias (4h);
// gates in the order input, forget, candidate, output.
inline void cell(const double *weights, const double *input, double *hidden, double *memory, std::int64_t h) {
  const double *of_hidden = weights + 4 * h * h, *bias = of_hidden + 4 * h * h;
  std::vector<double> gates(bias, bias + 4 * h);
  for (std::int64_t i = 0; i < 4 * h; ++i)
    for (std::int64_t j = 0; j < h; ++j) gates[i] += weights[i * h + j] * input[j] + of_hidden[i * h + j] * hidden[j];
  for (std::int64_t i = 0; i < h; ++i) {
    memory[i] = logistic(gates[h + i]) * memory[i] + logistic(gates[i]) * std::tanh(gates[2 * h + i]);
    hidden[i] = logistic(gates[3 * h + i]) * std::tanh(memory[i]);
  }
}

// -log softmax(W state + b)[symbol]
inline double surprise(const double *weights, const double *state, std::int64_t symbol, std::int64_t h) {
  double sum = 0, chosen = 0;
  for (std::int64_t i = 0; i < h; ++i) {
    double logit = weights[h * h + i];
    for (std::int64_t j = 0; j < h; ++j) logit += weights[i * h + j] * state[j];
    sum += std::exp(logit);
    if (i == symbol) chosen = logit;
  }
  return std::log(sum) - chosen;
}

// x: weights of every layer, then W (h x h) and b of the prediction; c: inputs, h numbers for every step;
// n: layers, h, steps, then the symbol to predict after every step.
// The input is copied in front of the hidden states: a pointer that is at times to constants (c), at times to what
// depends on x, has no shadow that is right for both, and Enzyme would then write gradients into c.
inline double lstm_full(const double *x, const double *c, const std::int64_t *n) {
  const std::int64_t layers = n[0], h = n[1], steps = n[2], size = 8 * h * h + 4 * h;
  std::vector<double> hidden((layers + 1) * h), memory(layers * h);
  double sum = 0;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::int64_t i = 0; i < h; ++i) hidden[i] = c[t * h + i];
    for (std::int64_t layer = 0; layer < layers; ++layer)
      cell(x + layer * size, &hidden[layer * h], &hidden[(layer + 1) * h], &memory[layer * h], h);
    sum += surprise(x + layers * size, &hidden[layers * h], n[3 + t], h);
  }
  return sum / static_cast<double>(steps);
}

}  // namespace micro
