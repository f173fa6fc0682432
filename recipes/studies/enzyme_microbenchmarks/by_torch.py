"""LSTM's and BA's gradient by PyTorch in float64: another implementation of the same functions, and its time."""

from __future__ import annotations

import numpy as np
import torch

torch.set_num_threads(1)


def lstm(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> np.ndarray:
    """``torch.nn.LSTM``, its second bias held at zero, a linear layer and ``cross_entropy``."""
    layers, units, steps = (int(size) for size in n[:3])
    shapes = [shape for _ in range(layers) for shape in [(4 * units, units)] * 2 + [(4 * units,)]]
    weights, left = [], torch.from_numpy(x.copy())
    for shape in [*shapes, (units, units), (units,)]:
        count = int(np.prod(shape))
        weights.append(left[:count].view(shape).requires_grad_())
        left = left[count:]
    zero = torch.zeros(4 * units, dtype=torch.float64)
    flat = [w for i in range(layers) for w in (*weights[3 * i : 3 * i + 3], zero)]
    start = torch.zeros(layers, 1, units, dtype=torch.float64)
    inputs = torch.from_numpy(c).view(steps, 1, units)
    hidden, _, _ = torch.lstm(inputs, [start, start], flat, True, layers, 0.0, True, False, False)
    logits = torch.nn.functional.linear(hidden[:, 0], weights[-2], weights[-1])
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(n[3:]))
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, weights)]).numpy()


def ba(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> np.ndarray:
    """All observations at once; Rodrigues' rotation through ``torch.linalg.cross``."""
    cameras, points, observations = (int(size) for size in n[:3])
    pairs = torch.from_numpy(n[3:]).view(observations, 2)
    flat = torch.from_numpy(x.copy()).requires_grad_()
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
    errors = weight[:, None] * (stretch[:, None] * image + camera[:, 7:9] - torch.from_numpy(c).view(observations, 2))
    loss = errors.pow(2).sum() + (1 - weight**2).pow(2).sum()
    (gradient,) = torch.autograd.grad(loss, [flat])
    return gradient.numpy()
