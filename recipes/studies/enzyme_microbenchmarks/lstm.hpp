// LSTM with diagonal gates: layers of long short-term memory whose units see their own input and their own hidden
// state only, and the cross entropy of predicting the sequence's next element.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace micro {

// By value: where `v` is a reference to a temporary, the engine's gradient is silently wrong if it differentiates before it
// optimises.
template <class T>
T logistic(T v) {
  using std::exp;
  return 1.0 / (1.0 + exp(-v));
}

// One step of one layer of `h` units. Weights and biases (4h each): forget and output gates of the input, input gate and
// candidate of the hidden state.
template <class T>
void diagonal_cell(const T *weights, const T *input, T *hidden, T *memory, std::int64_t h) {
  using std::tanh;
  const T *bias = weights + 4 * h;
  for (std::int64_t i = 0; i < h; ++i) {
    const T forget = logistic<T>(input[i] * weights[i] + bias[i]);
    const T admit = logistic<T>(hidden[i] * weights[h + i] + bias[h + i]);
    const T emit = logistic<T>(input[i] * weights[2 * h + i] + bias[2 * h + i]);
    const T candidate = tanh(hidden[i] * weights[3 * h + i] + bias[3 * h + i]);
    const T cell = memory[i] * forget + admit * candidate;
    memory[i] = cell;
    hidden[i] = emit * tanh(cell);
  }
}

// x: main parameters (weights and biases of every layer), then extra ones: scales of the input, scales and biases of the
// prediction (h each); c: the sequence, h numbers for each of steps + 1 elements; n: layers, h, steps.
// The input stands in front of the hidden states, in one array.
template <class T>
T lstm(const T *x, const double *c, const std::int64_t *n) {
  using std::exp, std::log;
  const std::int64_t layers = n[0], h = n[1], steps = n[2];
  const T *extra = x + layers * 8 * h;
  std::vector<T> hidden((layers + 1) * h), memory(layers * h), logits(h);
  for (std::int64_t i = 0; i < layers * h; ++i) hidden[h + i] = 0, memory[i] = 0;
  T loss = 0;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::int64_t i = 0; i < h; ++i) hidden[i] = c[t * h + i] * extra[i];
    for (std::int64_t layer = 0; layer < layers; ++layer)
      diagonal_cell(x + layer * 8 * h, &hidden[layer * h], &hidden[(layer + 1) * h], &memory[layer * h], h);
    const T *top = &hidden[layers * h];
    T sum = 0;
    for (std::int64_t i = 0; i < h; ++i) {
      logits[i] = top[i] * extra[h + i] + extra[2 * h + i];
      sum += exp(logits[i]);
    }
    const T total = log(sum);
    for (std::int64_t i = 0; i < h; ++i) loss -= c[(t + 1) * h + i] * (logits[i] - total);
  }
  return loss * (1.0 / static_cast<double>(steps));
}

}  // namespace micro
