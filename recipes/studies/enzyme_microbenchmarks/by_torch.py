"""Gradients by PyTorch in float64, eager: another implementation of the same functions, and its time.

Euler and RK4 are left out: a step is a handful of scalars, so eager mode would measure Python.
"""

from __future__ import annotations

import numpy as np
import torch

torch.set_num_threads(1)


def _inputs(x: np.ndarray, c: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(x.copy()).requires_grad_(), torch.from_numpy(c)


def _gradient(loss: torch.Tensor, x: torch.Tensor) -> np.ndarray:
    (gradient,) = torch.autograd.grad(loss, [x])
    return gradient.numpy()


def lstm(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Step by step: PyTorch's own LSTM has no diagonal gates."""
    layers, units, steps = (int(size) for size in n)
    flat, constants = _inputs(x, c)
    sequence = constants.view(steps + 1, units)
    main, extra = flat[: layers * 8 * units].view(layers, 2, 4, units), flat[layers * 8 * units :].view(3, units)
    hidden, memory = (
        [torch.zeros(units, dtype=torch.float64)] * layers,
        [torch.zeros(units, dtype=torch.float64)] * layers,
    )
    inputs, tops = sequence[:-1] * extra[0], []
    weights = [[list(half) for half in layer] for layer in main]
    for step in inputs:
        here = step
        for layer, ((of_forget, of_admit, of_emit, of_new), bias) in enumerate(weights):
            forget, emit = torch.sigmoid(here * of_forget + bias[0]), torch.sigmoid(here * of_emit + bias[2])
            admit = torch.sigmoid(hidden[layer] * of_admit + bias[1])
            memory[layer] = memory[layer] * forget + admit * torch.tanh(hidden[layer] * of_new + bias[3])
            here = hidden[layer] = emit * torch.tanh(memory[layer])
        tops.append(here)
    logits = torch.stack(tops) * extra[1] + extra[2]
    return _gradient(-(sequence[1:] * torch.log_softmax(logits, 1)).sum() / steps, flat)


def ba(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> np.ndarray:
    """All observations at once; Rodrigues' rotation through ``torch.linalg.cross``."""
    cameras, points, observations = (int(size) for size in n[:3])
    pairs = torch.from_numpy(n[3:]).view(observations, 2)
    flat, seen_at = _inputs(x, c)
    camera = flat[: 11 * cameras].view(cameras, 11)[pairs[:, 0]]
    point = flat[11 * cameras : 11 * cameras + 3 * points].view(points, 3)[pairs[:, 1]]
    weight = flat[11 * cameras + 3 * points :]
    vector, shifted = camera[:, :3], point - camera[:, 3:6]
    angle = vector.norm(dim=1, keepdim=True)
    axis = vector / angle
    along = (axis * shifted).sum(1, keepdim=True) * (1 - angle.cos())
    seen = shifted * angle.cos() + torch.linalg.cross(axis, shifted) * angle.sin() + axis * along
    image = seen[:, :2] / seen[:, 2:]
    square = image.pow(2).sum(1)
    stretch = camera[:, 6] * (1 + camera[:, 9] * square + camera[:, 10] * square**2)
    errors = weight[:, None] * (stretch[:, None] * image + camera[:, 7:9] - seen_at.view(observations, 2))
    return _gradient(errors.pow(2).sum() + (1 - weight**2).pow(2).sum(), flat)


def gmm(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> np.ndarray:
    """All points and parts at once, by batched triangular products."""
    d, parts, points = (int(size) for size in n)
    flat, constants = _inputs(x, c)
    weights, means = flat[:parts], flat[parts : parts * (d + 1)].view(parts, d)
    factors = flat[parts * (d + 1) :].view(parts, -1)
    logs, below = factors[:, :d], factors[:, d:]
    row, column = torch.tril_indices(d, d, -1)
    lower = torch.diag_embed(logs.exp()).index_put((torch.arange(parts)[:, None], row[None, :], column[None, :]), below)
    centred = constants[2:].view(1, points, d) - means[:, None]
    squares = (centred @ lower.transpose(1, 2)).pow(2).sum(2)
    terms = weights[:, None] + logs.sum(1)[:, None] - squares / 2
    prior = c[0] ** 2 / 2 * (logs.exp().pow(2).sum() + below.pow(2).sum()) - c[1] * logs.sum()
    return _gradient(points * weights.logsumexp(0) - terms.logsumexp(0).sum() + prior, flat)


def fft(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> np.ndarray:
    """``torch.fft`` there and back."""
    flat, weights = _inputs(x, c)
    back = torch.fft.ifft(torch.fft.fft(torch.view_as_complex(flat.view(-1, 2))))
    return _gradient((weights * back.abs().pow(2)).sum(), flat)


def brusselator(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Neighbours by slices of a padded field."""
    side = int(n[0])
    flat, weights = _inputs(x, c)
    state = flat[3:].view(2, side, side)
    padded = torch.nn.functional.pad(state[None], (1, 1, 1, 1), mode="replicate")[0]
    around = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
    spread = flat[2] * (side - 1) ** 2 * (around - 4 * state)
    u, v = state
    reaction = u * u * v
    slopes = spread + torch.stack([flat[1] + reaction - (flat[0] + 1) * u, flat[0] * u - reaction])
    return _gradient((weights * slopes.reshape(-1)).sum(), flat)
