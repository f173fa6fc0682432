"""Architectures written with PyTorch's own layers, as users write them: what the benchmark exports and imports."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Tensor = torch.Tensor
Example = tuple[nn.Module, tuple[Tensor, ...]]


# -- diffusion UNet ----------------------------------------------------------------------------------------------------
class Residual(nn.Module):
    """Two group-normalised convolutions; the time embedding is added between them."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class SpatialAttention(nn.Module):
    """Attention among the places of an image."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        y = self.norm(x).reshape(n, c, h * w).transpose(1, 2)
        q, k, v = self.qkv(y).reshape(n, h * w, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, h * w, c)
        return x + self.out(y).transpose(1, 2).reshape(n, c, h, w)


class DiffusionUNet(nn.Module):
    """Noise and time to noise: two levels down, attention in the middle, two levels up with skips."""

    def __init__(self, base: int = 32) -> None:
        super().__init__()
        time = 4 * base
        self.embed = nn.Sequential(nn.Linear(base, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, base, 3, padding=1)
        self.down1, self.half1 = Residual(base, base, time), nn.Conv2d(base, base, 3, 2, 1)
        self.down2, self.half2 = Residual(base, 2 * base, time), nn.Conv2d(2 * base, 2 * base, 3, 2, 1)
        self.mid1, self.attend, self.mid2 = (
            Residual(2 * base, 2 * base, time),
            SpatialAttention(2 * base),
            Residual(2 * base, 2 * base, time),
        )
        self.twice2, self.up2 = nn.Conv2d(2 * base, 2 * base, 3, padding=1), Residual(4 * base, base, time)
        self.twice1, self.up1 = nn.Conv2d(base, base, 3, padding=1), Residual(2 * base, base, time)
        self.norm, self.last = nn.GroupNorm(8, base), nn.Conv2d(base, 4, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        t = self.embed(t)
        x = self.first(x)
        a = self.down1(x, t)
        b = self.down2(self.half1(a), t)
        m = self.mid2(self.attend(self.mid1(self.half2(b), t)), t)
        u = self.up2(torch.cat([self.twice2(F.interpolate(m, scale_factor=2.0, mode="nearest")), b], 1), t)
        u = self.up1(torch.cat([self.twice1(F.interpolate(u, scale_factor=2.0, mode="nearest")), a], 1), t)
        return self.last(F.silu(self.norm(u)))


def diffusion_unet() -> Example:
    """GroupNorm, SiLU, attention, nearest up-sampling."""
    return DiffusionUNet(), (torch.randn(2, 4, 32, 32), torch.randn(2, 32))


# -- recurrent ---------------------------------------------------------------------------------------------------------
class Recurrent(nn.Module):
    """Words, recurrent layers, a score for every word."""

    def __init__(self, kind: type[nn.RNNBase], bidirectional: bool, states: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, 64)
        self.rnn = kind(64, 96, 2, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(192 if bidirectional else 96, 20)

    def forward(self, words: Tensor, *states: Tensor) -> Tensor:
        given = () if not states else (states if len(states) > 1 else states[0],)
        return self.head(self.rnn(self.embed(words), *given)[0])


def bilstm() -> Example:
    """Two bidirectional LSTM layers."""
    return Recurrent(nn.LSTM, True), (torch.randint(0, 500, (8, 40)),)


def gru() -> Example:
    """Two GRU layers with a given initial state."""
    return Recurrent(nn.GRU, False), (torch.randint(0, 500, (8, 40)), torch.randn(2, 8, 96))


# -- transformers ------------------------------------------------------------------------------------------------------
class Gpt2Block(nn.Module):
    """Causal attention and the tanh form of GELU, the mask as GPT-2's authors write it."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.c_attn, self.c_proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.c_fc, self.c_out = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.register_buffer("mask", torch.ones(64, 64).tril().bool())

    def forward(self, x: Tensor) -> Tensor:
        n, length, size = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(size, 2)
        q, k, v = (t.view(n, length, self.heads, size // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-1, -2) / (size // self.heads) ** 0.5
        scores = scores.masked_fill(~self.mask[:length, :length], torch.finfo(scores.dtype).min)
        x = x + self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, length, size))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """A GPT-2 of two layers."""

    def __init__(self, size: int = 128) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(500, size), nn.Embedding(64, size)
        self.blocks = nn.ModuleList([Gpt2Block(size, 4) for _ in range(2)])
        self.ln_f, self.head = nn.LayerNorm(size), nn.Linear(size, 500, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.wte(words) + self.wpe(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def gpt2() -> Example:
    """Written-out causal attention, GELU by tanh."""
    return Gpt2(), (torch.randint(0, 500, (4, 48)),)


class Block(nn.Module):
    """A transformer's layer with ``scaled_dot_product_attention``; RMS norm and SwiGLU, or layer norm and GELU."""

    def __init__(self, size: int, heads: int, rms: bool = False, cross: bool = False) -> None:
        super().__init__()
        norm = RmsNorm if rms else nn.LayerNorm
        self.heads, self.rms = heads, rms
        self.norm1, self.norm2 = norm(size), norm(size)
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.gate = nn.Linear(size, 4 * size) if rms else None
        if cross:
            self.norm3 = norm(size)
            self.cq, self.ck, self.cv, self.co = (nn.Linear(size, size) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, causal: bool = False, memory: Tensor | None = None
    ) -> Tensor:
        y = self.norm1(x)
        q, k, v = self.split(self.q(y)), self.split(self.k(y)), self.split(self.v(y))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        if memory is not None:
            q, k, v = self.split(self.cq(self.norm3(x))), self.split(self.ck(memory)), self.split(self.cv(memory))
            x = x + self.co(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        y = F.gelu(self.fc1(y)) if self.gate is None else F.silu(self.gate(y)) * self.fc1(y)
        return x + self.fc2(y)


class RmsNorm(nn.Module):
    """As Llama's authors write it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Bert(nn.Module):
    """An encoder with a mask of the words that are there."""

    def __init__(self, size: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(500, size), nn.Embedding(64, size)
        self.norm = nn.LayerNorm(size)
        self.blocks = nn.ModuleList([Block(size, 4) for _ in range(2)])
        self.head = nn.Linear(size, 10)

    def forward(self, words: Tensor, seen: Tensor) -> Tensor:
        x = self.norm(self.words(words) + self.places(torch.arange(words.shape[1])))
        mask = (1.0 - seen[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x[:, 0])


def bert() -> Example:
    """Attention with an added mask, GELU by erf."""
    seen = torch.ones(4, 48, dtype=torch.int64)
    seen[-1, 30:] = 0
    return Bert(), (torch.randint(0, 500, (4, 48)), seen)


class Vit(nn.Module):
    """Patches, a class token, two of PyTorch's own encoder layers."""

    def __init__(self, size: int = 128) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, size, 8, 8), nn.Parameter(torch.randn(1, 1, size))
        self.places = nn.Parameter(torch.randn(1, 65, size) * 0.1)
        layer = nn.TransformerEncoderLayer(size, 4, 4 * size, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.ModuleList(
            [layer, nn.TransformerEncoderLayer(size, 4, 4 * size, 0.0, "gelu", batch_first=True)]
        )
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def vit() -> Example:
    """``nn.TransformerEncoderLayer``."""
    return Vit(), (torch.randn(2, 3, 64, 64),)


class WindowAttention(nn.Module):
    """Swin's attention inside windows of 4 by 4, shifted or not, with a bias per relative place."""

    def __init__(self, size: int, heads: int, shift: int) -> None:
        super().__init__()
        self.heads, self.shift = heads, shift
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.bias = nn.Parameter(torch.randn(49, heads) * 0.02)
        y, x = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
        y, x = y.flatten(), x.flatten()
        self.register_buffer("index", ((y[:, None] - y + 3) * 7 + x[:, None] - x + 3).flatten())
        self.fc1, self.fc2 = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        y = self.norm1(x)
        y = torch.roll(y, (-self.shift, -self.shift), (1, 2)) if self.shift else y
        y = y.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(y).reshape(-1, 16, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.index].view(16, 16, self.heads).permute(2, 0, 1)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + bias.unsqueeze(0)
        y = self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c))
        y = y.view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Swin(nn.Module):
    """Two blocks of windows, patches merged, two more."""

    def __init__(self, size: int = 48) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, size, 4, 4)
        self.stage1 = nn.Sequential(WindowAttention(size, 3, 0), WindowAttention(size, 3, 2))
        self.merge_norm, self.merge = nn.LayerNorm(4 * size), nn.Linear(4 * size, 2 * size, bias=False)
        self.stage2 = nn.Sequential(WindowAttention(2 * size, 6, 0), WindowAttention(2 * size, 6, 2))
        self.norm, self.head = nn.LayerNorm(2 * size), nn.Linear(2 * size, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage1(self.patch(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        x = self.stage2(self.merge(self.merge_norm(x)))
        return self.head(self.norm(x).mean((1, 2)))


def swin() -> Example:
    """Shifted windows, relative bias."""
    return Swin(), (torch.randn(2, 3, 64, 64),)


class EncoderDecoder(nn.Module):
    """Reads words with one stack, writes others with a second that looks at the first."""

    def __init__(self, size: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, size)
        self.encoder = nn.ModuleList([Block(size, 4) for _ in range(2)])
        self.decoder = nn.ModuleList([Block(size, 4, cross=True) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, 500)

    def forward(self, read: Tensor, written: Tensor) -> Tensor:
        memory, x = self.embed(read), self.embed(written)
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, causal=True, memory=memory)
        return self.head(self.norm(x))


def encoder_decoder() -> Example:
    """Causal and cross attention."""
    return EncoderDecoder(), (torch.randint(0, 500, (4, 32)), torch.randint(0, 500, (4, 24)))


class Experts(nn.Module):
    """Every expert sees all words; the two best count, by their share."""

    def __init__(self, size: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(size, count, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(size, 2 * size), nn.SiLU(), nn.Linear(2 * size, size)) for _ in range(count)]
        )

    def forward(self, x: Tensor) -> Tensor:
        share = self.router(x).softmax(-1)
        best, index = share.topk(2, -1)
        weight = torch.zeros_like(share).scatter(-1, index, best / best.sum(-1, keepdim=True))
        return sum(weight[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))  # type: ignore[return-value]


class MixtureOfExperts(nn.Module):
    """Llama's layers (RMS norm, SwiGLU, grouped causal attention), each followed by a mixture of experts."""

    def __init__(self, size: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, size)
        self.blocks = nn.ModuleList([Block(size, 4, rms=True) for _ in range(2)])
        self.norms = nn.ModuleList([RmsNorm(size) for _ in range(3)])
        self.experts = nn.ModuleList([Experts(size, 4) for _ in range(2)])
        self.head = nn.Linear(size, 500, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for block, norm, experts in zip(self.blocks, self.norms, self.experts, strict=False):
            x = block(x, causal=True)
            x = x + experts(norm(x))
        return self.head(self.norms[2](x))


def mixture_of_experts() -> Example:
    """RMS norm, SwiGLU, routing."""
    return MixtureOfExperts(), (torch.randint(0, 500, (4, 32)),)


class Mamba(nn.Module):
    """A selective state space, its recurrence written out over time, between a convolution and a gate."""

    def __init__(self, size: int = 64, state: int = 8) -> None:
        super().__init__()
        self.state, self.embed, self.norm = state, nn.Embedding(500, size), RmsNorm(size)
        self.inside, self.out = nn.Linear(size, 4 * size, bias=False), nn.Linear(2 * size, size, bias=False)
        self.conv = nn.Conv1d(2 * size, 2 * size, 4, padding=3, groups=2 * size)
        self.select, self.rate = nn.Linear(2 * size, 2 * state + 4, bias=False), nn.Linear(4, 2 * size)
        self.log_a = nn.Parameter(torch.arange(1, state + 1).float().log().repeat(2 * size, 1))
        self.direct, self.head = nn.Parameter(torch.ones(2 * size)), nn.Linear(size, 500, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        u, gate = self.inside(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : words.shape[1]].transpose(1, 2))
        b, c, rate = self.select(u).split([self.state, self.state, 4], -1)
        step = F.softplus(self.rate(rate))
        decay = torch.exp(step.unsqueeze(-1) * -self.log_a.exp())
        drive = (step * u).unsqueeze(-1) * b.unsqueeze(2)
        h, ys = torch.zeros_like(drive[:, 0]), []
        for t in range(words.shape[1]):
            h = decay[:, t] * h + drive[:, t]
            ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
        y = (torch.stack(ys, 1) + u * self.direct) * F.silu(gate)
        return self.head(x + self.out(y))


def mamba() -> Example:
    """A scan over 16 steps, written out."""
    return Mamba(), (torch.randint(0, 500, (4, 16)),)


# -- convolutional -----------------------------------------------------------------------------------------------------
class NextBlock(nn.Module):
    """ConvNeXt's: a wide depthwise convolution, layer norm over channels, GELU, a scale per channel."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(size, size, 7, padding=3, groups=size)
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(size, 1e-6), nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.gamma = nn.Parameter(0.1 * torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.fc2(F.gelu(self.fc1(y)))).permute(0, 3, 1, 2)


class ChannelNorm(nn.Module):
    """Layer norm over the channels of images, as ConvNeXt's authors write it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


def convnext() -> Example:
    """Depthwise 7x7, layer norms."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 4),
        ChannelNorm(32),
        NextBlock(32),
        NextBlock(32),
        ChannelNorm(32),
        nn.Conv2d(32, 64, 2, 2),
        NextBlock(64),
        NextBlock(64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(64),
        nn.Linear(64, 10),
    ), (torch.randn(2, 3, 64, 64),)


class Inverted(nn.Module):
    """MobileNetV3's block with squeeze and excitation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish())
        self.depth = nn.Sequential(
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, inputs, 1), nn.ReLU(), nn.Conv2d(inputs, wide, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.depth(self.expand(x))
        y = self.project(y * self.squeeze(y))
        return x + y if self.same else y


def mobilenet() -> Example:
    """Depthwise, batch norm, hard swish, squeeze and excitation."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.Hardswish(),
        Inverted(16, 16, 1),
        Inverted(16, 24, 2),
        Inverted(24, 24, 1),
        Inverted(24, 40, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(40, 10),
    ), (torch.randn(4, 3, 64, 64),)


class Basic(nn.Module):
    """ResNet's block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


def resnet() -> Example:
    """Six basic blocks."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *[Basic(16, 16, 1), Basic(16, 16, 1), Basic(16, 32, 2), Basic(32, 32, 1), Basic(32, 64, 2), Basic(64, 64, 1)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ), (torch.randn(4, 3, 32, 32),)


class DeepLab(nn.Module):
    """Dilated convolutions of several rates and the image's mean, put together and enlarged."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, size, 3, 2, 1, bias=False), nn.BatchNorm2d(size), nn.ReLU(), Basic(size, size, 2)
        )
        self.rates = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv2d(size, size, 3, padding=r, dilation=r, bias=False), nn.BatchNorm2d(size), nn.ReLU()
                )
                for r in (1, 2, 4)
            ]
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(size, size, 1), nn.ReLU())
        self.last = nn.Conv2d(4 * size, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        whole = F.interpolate(self.pool(y), size=y.shape[-2:], mode="bilinear", align_corners=False)
        y = self.last(torch.cat([*[rate(y) for rate in self.rates], whole], 1))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


def deeplab() -> Example:
    """Dilation, bilinear resizing."""
    return DeepLab(), (torch.randn(2, 3, 64, 64),)


class UNet(nn.Module):
    """Down by pooling, up by transposed convolutions, instance norms and leaky ReLU."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.down1, self.down2, self.mid = (
            self.double(1, size),
            self.double(size, 2 * size),
            self.double(2 * size, 4 * size),
        )
        self.up2, self.join2 = nn.ConvTranspose2d(4 * size, 2 * size, 2, 2), self.double(4 * size, 2 * size)
        self.up1, self.join1 = nn.ConvTranspose2d(2 * size, size, 2, 2), self.double(2 * size, size)
        self.last = nn.Conv2d(size, 2, 1)

    @staticmethod
    def double(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.InstanceNorm2d(outputs, affine=True),
            nn.LeakyReLU(0.01),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.InstanceNorm2d(outputs, affine=True),
            nn.LeakyReLU(0.01),
        )

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.join2(torch.cat([self.up2(m), b], 1))
        return self.last(self.join1(torch.cat([self.up1(y), a], 1)))


def unet() -> Example:
    """Transposed convolutions, instance norms."""
    return UNet(), (torch.randn(2, 1, 48, 48),)


class Detector(nn.Module):
    """A feature pyramid; boxes, decoded on a grid, and scores of every place."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        block = lambda i, o, s: nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU())  # noqa: E731
        self.c3 = nn.Sequential(block(3, 16, 2), block(16, size, 2), block(size, size, 2))
        self.c4, self.c5 = block(size, size, 2), block(size, size, 2)
        self.side = nn.ModuleList([nn.Conv2d(size, size, 1) for _ in range(3)])
        self.tower = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.GroupNorm(8, size), nn.ReLU())
        self.scores, self.boxes = nn.Conv2d(size, 5, 3, padding=1), nn.Conv2d(size, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        c3 = self.c3(x)
        c4 = self.c4(c3)
        p5 = self.side[2](self.c5(c4))
        p4 = self.side[1](c4) + F.interpolate(p5, scale_factor=2.0)
        p3 = self.side[0](c3) + F.interpolate(p4, scale_factor=2.0)
        found = []
        for level, p in zip((8, 16, 32), (p3, p4, p5), strict=True):
            h, w = p.shape[2:]
            y, x = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            place = torch.stack([x, y], -1).reshape(1, -1, 2) * level
            t = self.tower(p)
            sides = self.boxes(t).flatten(2).transpose(1, 2).exp() * level
            boxes = torch.cat([place - sides[..., :2], place + sides[..., 2:]], -1)
            found.append(torch.cat([boxes, self.scores(t).flatten(2).transpose(1, 2).sigmoid()], -1))
        return torch.cat(found, 1)


def detector() -> Example:
    """SiLU, a pyramid, boxes on grids."""
    return Detector(), (torch.randn(2, 3, 96, 96),)


MODELS: dict[str, Callable[[], Example]] = {
    make.__name__: make
    for make in (
        diffusion_unet, bilstm, gru, gpt2, bert, vit, swin, encoder_decoder, mixture_of_experts, mamba, convnext,
        mobilenet, resnet, deeplab, unet, detector,
    )
}  # fmt: skip
"""What is exported, by name."""
