// Gradient of the LSTM benchmark by hand: gates and memories of all steps are kept, then run through backwards.
#pragma once
#include "../lstm.hpp"

namespace micro {

struct Kept {
  double input, hidden, memory, forget, admit, emit, candidate, squashed;
};

// One step of one layer, with everything kept.
inline void cell_forward(const double *weights, const double *input, double *hidden, double *memory, Kept *kept,
                         std::int64_t h) {
  const double *bias = weights + 4 * h;
  for (std::int64_t i = 0; i < h; ++i) {
    Kept &k = kept[i];
    k.input = input[i], k.hidden = hidden[i], k.memory = memory[i];
    k.forget = logistic(k.input * weights[i] + bias[i]);
    k.admit = logistic(k.hidden * weights[h + i] + bias[h + i]);
    k.emit = logistic(k.input * weights[2 * h + i] + bias[2 * h + i]);
    k.candidate = std::tanh(k.hidden * weights[3 * h + i] + bias[3 * h + i]);
    memory[i] = k.memory * k.forget + k.admit * k.candidate;
    k.squashed = std::tanh(memory[i]);
    hidden[i] = k.emit * k.squashed;
  }
}

// Gradients of hidden state and memory after the step become those before it; that of the input is returned in `d_in`.
inline void cell_back(const double *weights, double *d_weights, double *d_in, double *d_hidden, double *d_memory,
                      const Kept *kept, std::int64_t h) {
  double *d_bias = d_weights + 4 * h;
  for (std::int64_t i = 0; i < h; ++i) {
    const Kept &k = kept[i];
    const double gm = d_memory[i] + d_hidden[i] * k.emit * (1 - k.squashed * k.squashed);
    const double ge = d_hidden[i] * k.squashed * k.emit * (1 - k.emit);
    const double gf = gm * k.memory * k.forget * (1 - k.forget), ga = gm * k.candidate * k.admit * (1 - k.admit);
    const double gc = gm * k.admit * (1 - k.candidate * k.candidate);
    d_weights[i] += gf * k.input, d_bias[i] += gf;
    d_weights[h + i] += ga * k.hidden, d_bias[h + i] += ga;
    d_weights[2 * h + i] += ge * k.input, d_bias[2 * h + i] += ge;
    d_weights[3 * h + i] += gc * k.hidden, d_bias[3 * h + i] += gc;
    d_in[i] = gf * weights[i] + ge * weights[2 * h + i];
    d_hidden[i] = ga * weights[h + i] + gc * weights[3 * h + i];
    d_memory[i] = gm * k.forget;
  }
}

inline void lstm_by_hand(const double *x, double *dx, const double *c, const std::int64_t *n) {
  const std::int64_t layers = n[0], h = n[1], steps = n[2], main = layers * 8 * h;
  const double *extra = x + main, scale = 1 / static_cast<double>(steps);
  double *d_extra = dx + main;
  std::vector<double> input(h), hidden(layers * h), memory(layers * h), d_hidden(layers * h), d_memory(layers * h);
  std::vector<double> slopes(steps * h), d_in(h);
  std::vector<Kept> kept(steps * layers * h);
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::int64_t i = 0; i < h; ++i) input[i] = c[t * h + i] * extra[i];
    const double *from = input.data();
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      cell_forward(x + layer * 8 * h, from, &hidden[layer * h], &memory[layer * h], &kept[(t * layers + layer) * h], h);
      from = &hidden[layer * h];
    }
    double *slope = &slopes[t * h], sum = 0, targets = 0;
    for (std::int64_t i = 0; i < h; ++i) sum += slope[i] = std::exp(from[i] * extra[h + i] + extra[2 * h + i]);
    for (std::int64_t i = 0; i < h; ++i) targets += c[(t + 1) * h + i];
    for (std::int64_t i = 0; i < h; ++i) {
      slope[i] = scale * (targets * slope[i] / sum - c[(t + 1) * h + i]);
      d_extra[h + i] += slope[i] * from[i], d_extra[2 * h + i] += slope[i];
    }
  }
  for (std::int64_t t = steps; t-- > 0;) {
    for (std::int64_t i = 0; i < h; ++i) d_in[i] = slopes[t * h + i] * extra[h + i];
    for (std::int64_t layer = layers; layer-- > 0;) {
      for (std::int64_t i = 0; i < h; ++i) d_hidden[layer * h + i] += d_in[i];
      cell_back(x + layer * 8 * h, dx + layer * 8 * h, d_in.data(), &d_hidden[layer * h], &d_memory[layer * h],
                &kept[(t * layers + layer) * h], h);
    }
    for (std::int64_t i = 0; i < h; ++i) d_extra[i] += d_in[i] * c[t * h + i];
  }
}

}  // namespace micro
