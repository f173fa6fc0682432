"""Small PyTorch modules of many kinds, as users write them: what is exported and optimized."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Any = nn.ReLU) -> Any:
    """Convolution, batch normalization, activation."""
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(outputs), *([act()] if act else []))


class Head(nn.Module):
    """A body, global average pooling, and a classifier."""

    def __init__(self, body: nn.Module, channels: int, classes: int = 10) -> None:
        super().__init__()
        self.body, self.fc = body, nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class Sum(nn.Module):
    """The sum of parallel branches; ``None`` is the input itself."""

    def __init__(self, *branches: nn.Module | None, act: nn.Module | None = None) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branch or nn.Identity() for branch in branches)
        self.act = act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        first, *others = (branch(x) for branch in self.branches)
        for other in others:
            first = first + other
        return self.act(first)


class Join(nn.Module):
    """Parallel branches, side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class SqueezeExcite(nn.Module):
    """Channels weighed by what their means say."""

    def __init__(self, channels: int, act: Any = nn.Hardsigmoid) -> None:
        super().__init__()
        self.down, self.up, self.act = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1), act()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.act(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


class Shuffle(nn.Module):
    """ShuffleNet's unit: half of the channels pass, then channels change places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            conv(half, half, 1), conv(half, half, 3, groups=half, act=None), conv(half, half, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        joined = torch.cat([left, self.branch(right)], 1)
        n, c, h, w = joined.shape
        return joined.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ConvNeXtBlock(nn.Module):
    """Depthwise 7 by 7, layer norm over channels, two dense layers, a learned scale."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.dense = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.gamma = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.dense(self.norm(self.depth(x).permute(0, 2, 3, 1))) * self.gamma
        return x + inner.permute(0, 3, 1, 2)


class UNet(nn.Module):
    """Down, up, and side by side with what was there."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.middle = conv(3, 8), conv(8, 16), conv(16, 16)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        deep = self.middle(self.second(F.max_pool2d(first, 2)))
        return self.last(torch.cat([first, self.up(deep)], 1))


class Attention(nn.Module):
    """Attention with separate projections, as transformers write it; ``mask`` is added to scores."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        n, t, width = x.shape
        split = [p(x).view(n, t, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v)]
        scores = split[0] @ split[1].transpose(-1, -2) / (width // self.heads) ** 0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -1e4)
        if mask is not None:
            scores = scores + mask
        return self.o((scores.softmax(-1) @ split[2]).transpose(1, 2).reshape(n, t, width))


class Block(nn.Module):
    """A transformer's block, normalized before or after."""

    def __init__(self, width: int, heads: int, causal: bool = False, before: bool = True) -> None:
        super().__init__()
        self.attention, self.before = Attention(width, heads, causal), before
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dense = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.before:
            x = x + self.attention(self.norms[0](x), mask)
            return x + self.dense(self.norms[1](x))
        x = self.norms[0](x + self.attention(x, mask))
        return self.norms[1](x + self.dense(x))


class ViT(nn.Module):
    """Patches, a class token, blocks."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width) / 4)
        self.place = nn.Parameter(torch.randn(1, 17, width) / 4)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(2)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], 1) + self.place
        return self.head(self.blocks(tokens)[:, 0])


class Encoder(nn.Module):
    """BERT's form: token, place and attention mask in, last state and pooled state out."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(64, width), nn.Embedding(32, width)
        self.norm, self.pool = nn.LayerNorm(width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width, 4, before=False) for _ in range(layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(input_ids.shape[1])
        x = self.norm(self.words(input_ids) + self.places(places))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e4
        for block in self.blocks:
            x = block(x, mask)
        return x, torch.tanh(self.pool(x[:, 0]))


class Decoder(nn.Module):
    """GPT's form, with its table of words as the last layer too: one weight, two readers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(64, width), nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(Block(width, 4, causal=True) for _ in range(2)))

    def forward(self, input_ids: Tensor) -> Tensor:
        return F.linear(self.norm(self.blocks(self.words(input_ids))), self.words.weight)


class Recurrent(nn.Module):
    """A recurrent cell written out over four steps, its gates as separate products (NasRNN's habit)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.outer = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        for step in range(4):
            gates = [a(x[:, step]) + b(state) for a, b in zip(self.inner, self.outer, strict=True)]
            state = torch.tanh(gates[0] * torch.sigmoid(gates[1])) + torch.relu(gates[2]) * torch.sigmoid(gates[3])
        return state


class Sequence(nn.Module):
    """A recurrent layer of PyTorch's and a classifier of its last state."""

    def __init__(self, kind: str, width: int = 16) -> None:
        super().__init__()
        self.layer, self.fc = getattr(nn, kind)(width, width, batch_first=True), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer(x)[0][:, -1])


class TwoHeads(nn.Module):
    """One body, a classifier and a regression of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.first, self.second = nn.Linear(32, 5), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = self.body(x)
        return self.first(inner).log_softmax(-1), self.second(inner)


class Conditional(nn.Module):
    """A branch that the values decide, which reads what the rewriter may merge."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x), self.second(x)
        if bool(x.sum() > 0):
            return a * 2 + b
        return a - b
