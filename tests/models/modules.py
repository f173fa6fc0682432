"""Small modules of torch's own layers, for the part of the comparison that needs no further package."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tests.models.architectures.architecture import Architecture, Inputs, noise


def convolutions() -> nn.Module:
    """Convolutions with groups, strides and dilations, pooling with ceilings, several activations, nearest resizing."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
        nn.BatchNorm2d(8),
        nn.Hardswish(),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.Conv2d(8, 12, 1),
        nn.GroupNorm(3, 12),
        nn.SiLU(),
        nn.ConvTranspose2d(12, 6, 3, 2, 1, 1),
        nn.Upsample(scale_factor=2),
        nn.PReLU(6),
        nn.AvgPool2d(2, 2, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(6, 10),
    )


class Squeeze(nn.Module):
    """Splits, views of computed sizes, a pixel shuffle and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        left, right = x.chunk(2, 1)
        n, c, h, w = left.shape
        left = left.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, -1, h, w)  # shuffles channels
        gate = right.mean((2, 3), keepdim=True).sigmoid()
        both = torch.cat([left * gate, nn.functional.pad(right[:, :, 1:], (0, 0, 0, 1))], 1)
        return nn.functional.pixel_shuffle(both, 2)


def encoder() -> nn.Module:
    """Two layers of torch's own Transformer."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Recurrent(nn.Module):
    """Words, a bidirectional LSTM, a GRU, a linear layer on the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(50, 8), nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.gru, self.head = nn.GRU(12, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.lstm(self.words(x))[0])[0][:, -1])


def words(rng: np.random.Generator) -> Inputs:
    """Two texts of seven words."""
    return {"words": rng.integers(0, 50, (2, 7))}


MODULES = {
    row.name: row
    for row in (
        Architecture("convolutions", "torch", "layers", convolutions, noise(images=(2, 3, 17, 19)), symbolic=True),
        Architecture("views", "torch", "views", Squeeze, noise(images=(2, 3, 8, 6)), symbolic=True),
        Architecture("encoder", "torch", "encoder", encoder, noise(sequence=(2, 5, 16)), symbolic=True),
        Architecture("recurrent", "torch", "recurrent", Recurrent, words, symbolic=True),
    )
}
