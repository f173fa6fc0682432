"""Modules as public repositories write them: further probes for the rows of docs/own_models.md.

What each row says was written down before any of them was tried.
"""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.frameworks.torch_probes import CARRIED, IDS, ONE, RULELESS, TWO, Reverse, probe, random_in_training

F = nn.functional


class Module(nn.Module):
    """Layers by name, and a forward function of them."""

    def __init__(self, function: Any, **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def module(function: Any, **parts: Any) -> Any:
    """Makes a module: each part is a function that makes it."""
    return lambda: Module(function, **{name: make() for name, make in parts.items()})


def linear(*sizes: int, **options: Any) -> Any:
    return lambda: nn.Linear(*sizes, **options)


def parameter(*shape: int) -> Any:
    return lambda: nn.Parameter(torch.randn(shape))


# -- losses between views and classes ----------------------------------------------------------------------------------
def off_diagonal(c):
    n = c.shape[0]
    return c.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


def barlow_twins(self, a, b):
    c = self.norm(self.head(a)).T @ self.norm(self.head(b))
    c = c / a.shape[0]
    return (torch.diagonal(c) - 1).pow(2).sum() + 0.005 * off_diagonal(c).pow(2).sum()


def vicreg(self, a, b):
    x, y = self.head(a), self.head(b)
    x, y = x - x.mean(0), y - y.mean(0)
    spread = F.relu(1 - torch.sqrt(x.var(0) + 1e-4)).mean() + F.relu(1 - torch.sqrt(y.var(0) + 1e-4)).mean()
    covariance = x.T @ x / (a.shape[0] - 1)
    return 25 * F.mse_loss(x, y) + 25 * spread + off_diagonal(covariance).pow(2).sum() / 3


@torch.no_grad()
def sinkhorn(scores):
    q = torch.exp(scores / 0.5).t()
    q = q / q.sum()
    for _ in range(3):
        q = q / q.sum(1, keepdim=True) / q.shape[0]
        q = q / q.sum(0, keepdim=True) / q.shape[1]
    return (q * q.shape[1]).t()


def swav(self, a, b):
    x, y = (self.prototypes(F.normalize(self.head(v), dim=1)) for v in (a, b))
    return -(sinkhorn(x) * F.log_softmax(y / 0.1, 1)).sum(1) - (sinkhorn(y) * F.log_softmax(x / 0.1, 1)).sum(1)


def dino(self, a, b):
    teacher = F.softmax((self.teacher(a) - self.centre) / 0.4, -1).detach()
    return torch.sum(-teacher * F.log_softmax(self.student(b) / 0.9, -1), -1)


def clip(self, a, b):
    x, y = (v / v.norm(dim=1, keepdim=True) for v in (self.image(a), self.text(b)))
    logits = self.scale.exp() * x @ y.t()
    labels = torch.arange(logits.shape[0])
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def nt_xent(self, a, b):
    z = F.normalize(torch.cat([self.head(a), self.head(b)]), dim=1)
    similar = z @ z.t() / 0.5
    similar = similar.masked_fill(torch.eye(z.shape[0], dtype=torch.bool), float("-inf"))
    n = a.shape[0]
    return F.cross_entropy(similar, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


def arcface(self, x, labels):
    cosine = F.linear(F.normalize(self.head(x)), F.normalize(self.weight))
    sine = torch.sqrt((1.0 - cosine**2).clamp(0, 1))
    phi = cosine * math.cos(0.5) - sine * math.sin(0.5)
    phi = torch.where(cosine > math.cos(math.pi - 0.5), phi, cosine - math.sin(math.pi - 0.5) * 0.5)
    hot = torch.zeros_like(cosine).scatter_(1, labels[:, :1] % 3, 1)
    return 4.0 * (hot * phi + (1.0 - hot) * cosine)


def hardest_triplets(self, x, labels):
    z = self.head(x)
    distances = torch.cdist(z, z)
    same = labels[:, 0].unsqueeze(0) % 2 == labels[:, 0].unsqueeze(1) % 2
    farthest = (distances * same).max(1)[0]
    nearest = (distances + 1e3 * same).min(1)[0]
    return F.relu(farthest - nearest + 5.0)


def prototypes(self, x, labels):
    hot = F.one_hot(labels[:, 0] % 2, 2).to(x.dtype)
    z = self.head(x)
    centres = hot.t() @ z / (hot.sum(0).unsqueeze(1) + 1)
    return F.log_softmax(-(torch.cdist(z, centres) ** 2), 1)


def focal(self, x, labels):
    wanted = F.one_hot(labels[:, 0] % 3, 3).to(x.dtype)
    scores = self.head(x)
    entropy = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
    p = torch.exp(-entropy)
    return (0.25 * (1 - p) ** 2 * entropy).mean(1)


LABELLED = (*ONE, np.random.default_rng(5).integers(0, 7, (4, 5)))


# -- straight-through, and functions with a backward pass --------------------------------------------------------------
def lsq(self, x):
    """Learned step sizes (Esser et al. 2020)."""
    step = self.step.abs()
    factor = 1.0 / math.sqrt(7 * x.shape[1])
    step = (step - step * factor).detach() + step * factor
    scaled = torch.clamp(self.head(x) / step, -8, 7)
    return ((scaled.round() - scaled).detach() + scaled) * step


def finite_scalars(self, x):
    """FSQ (Mentzer et al. 2023)."""
    z = torch.tanh(self.encoder(x)) * 2.5
    return self.decoder(z + (z.round() - z).detach())


def bitlinear(self, x):
    """Weights of three values, activations of eight bits (BitNet b1.58)."""
    scale = 127.0 / x.abs().max(dim=-1, keepdim=True).values.clamp(min=1e-5)
    quantized = x + ((x * scale).round().clamp(-128, 127) / scale - x).detach()
    w = self.head.weight
    size = w.abs().mean().clamp(min=1e-5)
    return F.linear(quantized, w + ((w / size).round().clamp(-1, 1) * size - w).detach(), self.head.bias)


def residual_quantizers(self, x):
    """SoundStream's: each quantizer takes what those before have left."""
    z = self.encoder(x)
    left, total = z, 0.0
    for codes in self.books:
        index = torch.cdist(left.detach(), codes.weight).argmin(-1)
        q = codes(index)
        q = left + (q - left).detach()
        left, total = left - q.detach(), total + q
    return self.decoder(total)


class Mish(torch.autograd.Function):
    """As its memory-saving repositories have it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.tanh(F.softplus(x))

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s, t = torch.sigmoid(x), torch.tanh(F.softplus(x))
        return gradient * (t + x * s * (1 - t * t))


class Uniform(torch.autograd.Function):
    """DoReFa's rounding to k bits."""

    @staticmethod
    def forward(ctx, x, bits):
        n = float(2**bits - 1)
        return torch.round(x * n) / n

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone(), None


class Sign(torch.autograd.Function):
    """XNOR-Net's, whose gradient ends at 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        gradient = gradient.clone()
        gradient[x.ge(1)] = 0
        gradient[x.le(-1)] = 0
        return gradient


def dorefa(self, x):
    w = torch.tanh(self.head.weight)
    w = w / torch.max(torch.abs(w)) * 0.5 + 0.5
    return F.linear(x, 2 * Uniform.apply(w, 3) - 1, self.head.bias)


# -- detached parts ----------------------------------------------------------------------------------------------------
def dora(self, x):
    """Low-rank updates of directions, magnitudes by themselves (Liu et al. 2024)."""
    w = self.base + self.b @ self.a
    return F.linear(x, self.magnitude * (w / w.norm(dim=1, keepdim=True).detach()))


def performer(self, x):
    """Random features of softmax attention, stabilized by a detached largest value."""
    q, k, v = self.qkv(x).chunk(3, -1)

    def features(y):
        dash = y @ self.projection
        size = (y**2).sum(-1, keepdim=True) / 2
        return torch.exp(dash - size - torch.amax(dash, dim=(-1, -2), keepdim=True).detach()) + 1e-4

    q, k = features(q), features(k)
    return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2).unsqueeze(-1))


def ppo(self, x, y):
    log_p = F.log_softmax(self.policy(x), -1)
    ratio = torch.exp(log_p - (log_p + 0.3 * y[:, :3]).detach())
    advantage = y[:, :1]
    return -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage)


def phantom(self, x):
    """A fixed point without gradients, and one step with them."""
    with torch.no_grad():
        z = torch.zeros_like(x)
        for _ in range(8):
            z = torch.tanh(0.3 * self.cell(z) + x)
    return torch.tanh(0.3 * self.cell(z) + x)


# -- parameters in other places ----------------------------------------------------------------------------------------
def hypernetwork(self, x):
    w = self.make(self.code).view(3, 4)
    gates = self.gates(x).view(-1, 3, 4)
    return torch.bmm(gates * w, x.unsqueeze(-1)).squeeze(-1)


def prompts(self, tokens):
    words = self.embed(tokens)
    prompt = self.prompt.unsqueeze(0).expand(words.shape[0], -1, -1)
    return self.head(torch.tanh(torch.cat([prompt, words], 1)).mean(1))


def averaged() -> nn.Module:
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    return torch.optim.swa_utils.AveragedModel(inner)


def rezero(self, x):
    for layer, alpha in zip(self.layers, self.alphas, strict=True):
        x = x + alpha * torch.relu(layer(x))
    return x


# -- draws -------------------------------------------------------------------------------------------------------------
class NoisyLinear(nn.Module):
    """Factorized noise on weights in training (Fortunato et al. 2017), drawn in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.mu, self.sigma = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.full((3, 4), 0.1))

    def forward(self, x):
        if not self.training:
            return F.linear(x, self.mu)
        a, b = torch.randn(4, dtype=x.dtype), torch.randn(3, dtype=x.dtype)
        noise = torch.outer(b.sign() * b.abs().sqrt(), a.sign() * a.abs().sqrt())
        return F.linear(x, self.mu + self.sigma * noise)


class VAE(nn.Module):
    """The reparametrization of examples/vae, which samples in training alone; or always."""

    def __init__(self, always: bool = False) -> None:
        super().__init__()
        self.encoder, self.decoder, self.always = nn.Linear(4, 4), nn.Linear(2, 4), always

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, 1)
        z = mu
        if self.training or self.always:
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), 1)
        return self.decoder(z), kl


def drop_block(h):
    gamma = 0.2
    mask = (torch.rand(h.shape[0], h.shape[1], dtype=h.dtype) < gamma).to(h.dtype)
    blocks = 1 - F.max_pool1d(mask.unsqueeze(1), 3, 1, 1).squeeze(1)
    return h * blocks * blocks.numel() / blocks.sum()


def mixup(h):
    share = torch.distributions.Beta(0.4, 0.4).sample()
    return share * h + (1 - share) * h.flip(0)


def squashed(h):
    sample = torch.distributions.Normal(h, torch.ones_like(h)).rsample()
    return torch.tanh(sample)


def layer_drop(h):
    return h if random.random() < 0.5 else torch.tanh(h)


def numpy_noise(h):
    return h * float(np.random.uniform(0.5, 2.0))  # noqa: NPY002 - as it is written there


def cutmix(h):
    return h[torch.randperm(h.shape[0])] * 0.3 + h * 0.7


# -- state and values --------------------------------------------------------------------------------------------------
class MaskedConvolution(nn.Conv1d):
    """PixelCNN's, which masks its weights in forward."""

    def __init__(self) -> None:
        super().__init__(1, 2, 3, padding=1)
        self.register_buffer("mask", torch.tensor([1.0, 1.0, 0.0]))

    def forward(self, x):
        self.weight.data *= self.mask
        return super().forward(x.unsqueeze(1)).flatten(1)


class ActNorm(nn.Module):
    """Glow's, initialized by its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale, self.shift = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if self.initialized.item() == 0:
            self.shift.data.copy_(-x.detach().mean(0))
            self.log_scale.data.copy_(-torch.log(x.detach().std(0) + 1e-6))
            self.initialized.fill_(1)
        return (x + self.shift) * self.log_scale.exp()


class MovingTarget(nn.Module):
    """BYOL whose target is moved in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.online = nn.Linear(4, 3)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                for p, q in zip(self.online.parameters(), self.target.parameters(), strict=True):
                    q.mul_(0.9).add_(p, alpha=0.1)
        return F.cosine_similarity(self.online(x), self.target(x).detach(), -1)


class BatchRenorm(nn.Module):
    """Statistics of its own, with corrections that no gradient passes (Ioffe 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("std", torch.ones(3))

    def forward(self, x):
        y = self.head(x)
        if not self.training:
            return (y - self.mean) / self.std
        mean, std = y.mean(0), y.std(0) + 1e-3
        r, d = (std.detach() / self.std).clamp(0.5, 2), ((mean.detach() - self.mean) / self.std).clamp(-1, 1)
        self.mean += 0.1 * (mean.detach() - self.mean)
        self.std += 0.1 * (std.detach() - self.std)
        return (y - mean) / std * r + d


class QueueOfKeys(nn.Module):
    """MoCo's queue, written in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 3)
        self.register_buffer("queue", F.normalize(torch.randn(3, 8), dim=0))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        q = F.normalize(self.query(x), dim=1)
        scores = q @ self.queue.clone().detach()
        if self.training:
            place = int(self.place)
            self.queue[:, place : place + 1] = q.detach()[:1].t()
            self.place[0] = (place + 1) % 8
        return scores


def early_exit(self, x, h):
    if torch.sigmoid(h).max() > 0.9:
        return h
    return torch.tanh(h)


def adaptive_steps(self, x, h):
    for _ in range(5):
        h = h - 0.1 * self.first(h)
        if h.norm() < 1e-3:
            break
    return h


# -- loops and sums ----------------------------------------------------------------------------------------------------
def runge_kutta(self, x):
    def slope(t, y):
        return torch.tanh(self.head(torch.cat([y, torch.full_like(y[:, :1], t)], 1)))

    for step in range(2):
        t, h = 0.5 * step, 0.5
        a = slope(t, x)
        b = slope(t + h / 2, x + h / 2 * a)
        c = slope(t + h / 2, x + h / 2 * b)
        x = x + h / 6 * (a + 2 * b + 2 * c + slope(t + h, x + h * c))
    return x


def crf(self, x):
    """The forward algorithm of a linear chain."""
    emissions = self.scores(x).view(x.shape[0], 4, 3)
    alpha = self.start + emissions[:, 0]
    for step in range(1, emissions.shape[1]):
        alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions + emissions[:, step].unsqueeze(1), 1)
    return torch.logsumexp(alpha, 1)


def superglue(self, a, b):
    """Optimal transport in logarithms with a dustbin."""
    scores = torch.einsum("nd,md->nm", self.head(a), self.head(b))
    n, m = scores.shape
    bins = self.bin.expand(n, 1)
    z = torch.cat([torch.cat([scores, bins], 1), self.bin.expand(1, m + 1)], 0)
    u, v = z.new_zeros(n + 1), z.new_zeros(m + 1)
    for _ in range(3):
        u = -torch.logsumexp(z + v.unsqueeze(0), 1)
        v = -torch.logsumexp(z + u.unsqueeze(1), 0)
    return z + u.unsqueeze(1) + v.unsqueeze(0)


def linear_attention(self, tokens):
    q, k, v = self.qkv(self.embed(tokens)).chunk(3, -1)
    q, k = F.elu(q) + 1, F.elu(k) + 1
    state = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), 1)
    return torch.einsum("ntd,ntde->nte", q, state) / (q * k.cumsum(1)).sum(-1, keepdim=True)


def volume_rendering(self, x):
    """NeRF: densities along a ray to weights."""
    angles = x.unsqueeze(-1) * 2.0 ** torch.arange(3, dtype=x.dtype)
    features = torch.cat([torch.sin(angles), torch.cos(angles)], -1)
    density = F.relu(self.density(features).squeeze(-1))
    alpha = 1 - torch.exp(-density * 0.5)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    return alpha * through


def top_two_experts(self, x):
    """Gates of the two best experts, all of them computed."""
    scores = self.gate(x)
    best, places = scores.topk(2, -1)
    gates = torch.zeros_like(scores).scatter(-1, places, best.softmax(-1))
    results = torch.stack([expert(x) for expert in self.experts], 1)
    return (gates.unsqueeze(-1) * results).sum(1)


def sparse_experts(self, x):
    """Switch's: each expert computes its own samples."""
    scores = self.gate(x).softmax(-1)
    best, places = scores.max(-1)
    y = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        (rows,) = torch.where(places == number)
        y = y.index_add(0, rows, expert(x[rows]) * best[rows].unsqueeze(-1))
    return y


def relative_buckets(self, tokens):
    """T5's biases by distance."""
    places = torch.arange(tokens.shape[1])
    distance = places[None, :] - places[:, None]
    size = distance.abs()
    large = 2 + (torch.log(size.float().clamp(min=1) / 2) / math.log(4) * 2).long()
    bucket = (distance > 0).long() * 4 + torch.where(size < 2, size, large.clamp(max=3))
    h = self.embed(tokens)
    scores = h @ h.transpose(1, 2) + self.bias(bucket).permute(2, 0, 1)
    return scores.softmax(-1) @ h


def glow(self, x):
    return x @ self.weight.t(), torch.slogdet(self.weight)[1] * x.new_ones(x.shape[0])


def ctc(self, tokens):
    scores = F.log_softmax(self.head(self.embed(tokens)), -1).transpose(0, 1)
    n = tokens.shape[0]
    lengths = torch.full((n,), 5), torch.full((n,), 2)
    return F.ctc_loss(scores, tokens[:, :2] % 6 + 1, *lengths, reduction="none")


def wavelets(self, x):
    """A long convolution by Fourier transforms, as state space models have it."""
    n = x.shape[1]
    kernel = torch.fft.rfft(self.kernel, 2 * n)
    return torch.fft.irfft(torch.fft.rfft(x, 2 * n) * kernel, 2 * n)[:, :n]


def outlooker(self, x):
    """Windows of a sequence, changed and put together again."""
    windows = F.unfold(self.values(x).view(-1, 1, 2, 2), 2, padding=1)
    return self.head(F.fold(torch.tanh(windows), (2, 2), 2, padding=1).flatten(1))


def global_filter(self, x):
    """GFNet's product of spectra, the filter a parameter of pairs."""
    spectrum = torch.fft.rfft2(x.view(-1, 2, 2, 1), dim=(1, 2), norm="ortho")
    filtered = spectrum * torch.view_as_complex(self.filter)
    return self.head(torch.fft.irfft2(filtered, s=(2, 2), dim=(1, 2), norm="ortho").flatten(1))


def graph_attention(self, x):
    """Messages along fixed edges between samples, weighed by a softmax over those that arrive."""
    h, source, target = self.head(x), torch.tensor([0, 1, 1, 0, 1]), torch.tensor([1, 0, 1, 0, 0])
    size = torch.exp(h[source].sum(1) * 0.3)
    total = torch.zeros(h.shape[0], dtype=h.dtype).scatter_add(0, target, size)
    return torch.zeros_like(h).index_add(0, target, h[source] * (size / total[target]).unsqueeze(1))


def scattered(self, x):
    places = torch.tensor([0, 1, 1]).expand(x.shape[0], 3)
    h = self.head(x)
    kept, new = (torch.ones_like(h).scatter_reduce(1, places, h, "mean", include_self=own) for own in (True, False))
    return kept, new


def bags(self, tokens):
    return self.head(
        self.mean(tokens) + self.sum(tokens, per_sample_weights=self.w.expand(tokens.shape[0], 5))
    ), self.max(tokens)


class Bounds(torch.autograd.Function):
    """PACT's learned bounds; its arguments are called like parameters of the module that calls it."""

    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward(x, low, high)
        return torch.minimum(torch.maximum(x, low), high)

    @staticmethod
    def backward(ctx, gradient):
        x, low, high = ctx.saved_tensors
        inside = gradient * ((x >= low) & (x <= high))
        return inside, (gradient * (x < low)).sum().reshape(1), (gradient * (x > high)).sum().reshape(1)


class Best(torch.autograd.Function):
    """Edge-popup's mask of the best half."""

    @staticmethod
    def forward(ctx, scores):
        out = scores.clone()
        _, places = scores.flatten().sort()
        half = scores.numel() // 2
        flat = out.flatten()
        flat[places[:half]] = 0
        flat[places[half:]] = 1
        return flat.view_as(scores)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Scaling(torch.autograd.Function):
    """A gradient that is scaled by an attribute of the module."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.module.factor, None


def experts() -> Any:
    return nn.ModuleList(nn.Linear(4, 4) for _ in range(3))


HEAD = {"head": linear(4, 3)}
ROW = dict[str, tuple[Any, tuple[np.ndarray, ...], str]]
IDIOMS: dict[str, ROW] = {
    "`.detach()`, `.detach_()`, `.data`": {
        "DoRA": (
            module(
                dora, base=lambda: torch.randn(3, 4), a=parameter(2, 4), b=parameter(3, 2), magnitude=parameter(3, 1)
            ),
            ONE,
            CARRIED,
        ),
        "Performer": (
            module(
                lambda self, tokens: performer(self, self.embed(tokens)),
                embed=lambda: nn.Embedding(7, 4),
                qkv=linear(4, 12),
                projection=lambda: torch.randn(4, 6),
            ),
            IDS,
            CARRIED,
        ),
        "PPO": (module(ppo, policy=linear(4, 3)), TWO, CARRIED),
        "phantom gradient": (module(phantom, cell=linear(4, 4)), ONE, CARRIED),
    },
    "straight-through `h + (q - h).detach()`": {
        "LSQ": (module(lsq, head=linear(4, 3), step=lambda: nn.Parameter(torch.tensor(0.1))), ONE, CARRIED),
        "FSQ": (module(finite_scalars, encoder=linear(4, 3), decoder=linear(3, 4)), ONE, CARRIED),
        "BitNet": (module(bitlinear, **HEAD), ONE, CARRIED),
        "SoundStream": (
            module(
                residual_quantizers,
                encoder=linear(4, 3),
                decoder=linear(3, 4),
                books=lambda: nn.ModuleList(nn.Embedding(5, 3) for _ in range(2)),
            ),
            ONE,
            CARRIED,
        ),
    },
    "`autograd.Function` with its own backward": {
        "Mish": (probe(lambda self, x, h: Mish.apply(h)), ONE, CARRIED),
        "DoReFa": (module(dorefa, **HEAD), ONE, CARRIED),
        "XNOR": (
            module(lambda self, x: self.head(Sign.apply(self.first(x))), first=linear(4, 4), **HEAD),
            ONE,
            CARRIED,
        ),
        "reversal in a loop": (
            module(
                lambda self, x: sum(head(Reverse.apply(x * self.w, 0.1 * n)) for n, head in enumerate(self.heads)),
                w=parameter(4),
                heads=experts,
            ),
            ONE,
            CARRIED,
        ),
        "PACT": (
            module(
                lambda self, x: self.head(Bounds.apply(x, self.low, self.high)),
                low=lambda: nn.Parameter(torch.tensor([-0.3])),
                high=lambda: nn.Parameter(torch.tensor([0.4])),
                **HEAD,
            ),
            ONE,
            CARRIED,
        ),
        "edge-popup": (
            module(
                lambda self, x: F.linear(x, self.head.weight * Best.apply(self.scores.abs())),
                scores=parameter(3, 4),
                head=linear(4, 3, bias=False),
            ),
            ONE,
            CARRIED,
        ),
        "attribute": (
            module(lambda self, x: Scaling.apply(self.head(x), self), factor=lambda: 0.25, **HEAD),
            ONE,
            CARRIED,
        ),
    },
    "hooks on forward, tied weights, frozen parameters": {
        "tied autoencoder": (
            module(lambda self, x: F.linear(torch.tanh(F.linear(x, self.w)), self.w.t()), w=parameter(3, 4)),
            ONE,
            CARRIED,
        ),
        "MADE": (
            module(
                lambda self, x: F.linear(x, self.mask * self.head.weight, self.head.bias),
                mask=lambda: torch.tril(torch.ones(3, 4)),
                **HEAD,
            ),
            ONE,
            CARRIED,
        ),
        "hypernetwork": (
            module(hypernetwork, make=linear(2, 12), code=parameter(2), gates=linear(4, 12)),
            ONE,
            CARRIED,
        ),
        "prompt tuning": (
            module(prompts, embed=lambda: nn.Embedding(7, 4), prompt=parameter(2, 4), **HEAD),
            IDS,
            CARRIED,
        ),
        "called like inputs": (
            module(lambda self, x, w: self.head(x * self.x + w * self.w), x=parameter(4), w=parameter(4), **HEAD),
            TWO,
            CARRIED,
        ),
        "called input": (module(lambda self, x: self.head(x * self.input), input=parameter(4), **HEAD), ONE, CARRIED),
        "averaged model": (averaged, ONE, CARRIED),
        "ReZero": (
            module(
                rezero,
                layers=experts,
                alphas=lambda: nn.ParameterList(nn.Parameter(torch.full((1,), 0.3)) for _ in range(3)),
            ),
            ONE,
            CARRIED,
        ),
    },
    "losses between views and classes, of the whole batch": {
        "Barlow Twins": (
            module(barlow_twins, norm=lambda: nn.BatchNorm1d(3, eps=2**-10, affine=False), **HEAD),
            TWO,
            CARRIED,
        ),
        "VICReg": (module(vicreg, **HEAD), TWO, CARRIED),
        "SwAV": (module(swav, prototypes=linear(3, 5, bias=False), **HEAD), TWO, CARRIED),
        "DINO": (module(dino, student=linear(4, 3), teacher=linear(4, 3), centre=lambda: torch.randn(3)), TWO, CARRIED),
        "CLIP": (
            module(clip, image=linear(4, 3), text=linear(4, 3), scale=lambda: nn.Parameter(torch.tensor(1.0))),
            TWO,
            CARRIED,
        ),
        "SimCLR": (module(nt_xent, **HEAD), TWO, CARRIED),
        "ArcFace": (module(arcface, head=linear(4, 4), weight=parameter(3, 4)), LABELLED, CARRIED),
        "hardest triplets": (module(hardest_triplets, **HEAD), LABELLED, CARRIED),
        "prototypes": (module(prototypes, **HEAD), LABELLED, CARRIED),
        "focal": (module(focal, **HEAD), LABELLED, CARRIED),
    },
    "loops of a fixed length, cumulative sums, Fourier transforms, experts (also of `histc` and `grouped_mm`)": {
        "S4": (module(wavelets, kernel=parameter(4)), ONE, CARRIED),
        "GFNet": (module(global_filter, filter=parameter(2, 2, 1, 2), **HEAD), ONE, CARRIED),
        "graph attention": (module(graph_attention, **HEAD), ONE, CARRIED),
        "scattered means": (module(scattered, **HEAD), ONE, CARRIED),
        "bags": (
            module(
                bags,
                mean=lambda: nn.EmbeddingBag(7, 4, padding_idx=0),
                sum=lambda: nn.EmbeddingBag(7, 4, mode="sum"),
                max=lambda: nn.EmbeddingBag(7, 4, mode="max"),
                w=parameter(5),
                **HEAD,
            ),
            IDS,
            CARRIED,
        ),
        "VOLO": (module(outlooker, values=linear(4, 4), **HEAD), ONE, CARRIED),
        "Neural ODE": (module(runge_kutta, head=linear(5, 4)), ONE, CARRIED),
        "CRF": (module(crf, scores=linear(4, 12), start=parameter(3), transitions=parameter(3, 3)), ONE, CARRIED),
        "SuperGlue": (module(superglue, bin=lambda: nn.Parameter(torch.ones(1, 1)), **HEAD), TWO, CARRIED),
        "linear attention": (
            module(linear_attention, embed=lambda: nn.Embedding(7, 4), qkv=linear(4, 12)),
            IDS,
            CARRIED,
        ),
        "NeRF": (module(volume_rendering, density=linear(6, 1)), ONE, CARRIED),
        "top two experts": (module(top_two_experts, gate=linear(4, 3), experts=experts), ONE, CARRIED),
        "Switch": (module(sparse_experts, gate=linear(4, 3), experts=experts), ONE, CARRIED),
        "T5's biases": (
            module(relative_buckets, embed=lambda: nn.Embedding(7, 4), bias=lambda: nn.Embedding(8, 1)),
            IDS,
            CARRIED,
        ),
    },
    "stochastic depth, `bernoulli`, `randn` and `normal_` in training alone": {
        "Gaussian dropout": (random_in_training(lambda h: h * (1 + 0.3 * torch.randn_like(h))), ONE, CARRIED),
        "NoisyNet": (NoisyLinear, ONE, CARRIED),
        "VAE": (VAE, ONE, CARRIED),
    },
    "other draws in training alone (`rand`, `poisson`, ...)": {
        "DropBlock": (random_in_training(drop_block), ONE, "got rand in training and not in evaluation"),
        "mixup": (random_in_training(mixup), ONE, "got _sample_dirichlet in training and not in evaluation"),
        "soft actor-critic": (random_in_training(squashed), ONE, "got normal in training and not in evaluation"),
        "cutmix": (random_in_training(cutmix), ONE, "got randperm in training and not in evaluation"),
        "LayerDrop": (random_in_training(layer_drop), ONE, "draws from Python's random"),
        "NumPy's": (random_in_training(numpy_noise), ONE, "draws from NumPy's random"),
    },
    "draws in evaluation, too": {
        "Monte Carlo dropout": (
            module(lambda self, x: F.dropout(self.head(x), 0.5, training=True), **HEAD),
            ONE,
            r"torch_idioms\.py:\d+: got a draw in evaluation, too.*training=self\.training",
        ),
        "VAE, always": (
            lambda: VAE(always=True),
            ONE,
            r"torch_\w+\.py:\d+: got a draw in evaluation, too.*nothing may be random in evaluation",
        ),
    },
    "draws of `bernoulli` in training that evaluation leaves out, instead of their mean": {
        "DropConnect, not divided": (
            random_in_training(lambda h: h * torch.bernoulli(torch.full_like(h, 0.5))),
            ONE,
            r"torch_idioms\.py:\d+: got a draw in training alone.*divide by it, as in x \* bernoulli\(p\) / p",
        )
    },
    "buffers, parameters and tensors in attributes that forward writes, other than BatchNorm's": {
        "PixelCNN": (MaskedConvolution, ONE, "writes parameter 'weight' in training"),
        "moving target": (MovingTarget, ONE, "writes parameter 'target.* in training"),
        "batch renormalization": (BatchRenorm, ONE, "writes buffer 'mean' in training"),
        "queue": (QueueOfKeys, ONE, "writes buffer '(place|queue)' in training"),
        "ActNorm": (ActNorm, ONE, "writes (buffer|parameter) .* in training"),
    },
    "a branch on values": {
        "early exit": (probe(early_exit), ONE, "torch_idioms.py:.*got a Python number of a tensor's values"),
        "adaptive steps": (probe(adaptive_steps), ONE, "torch_idioms.py:.*got a Python number of a tensor's values"),
    },
    "`slogdet`, which has no rule for emitted gradients": {
        "Glow": (module(glow, weight=parameter(4, 4)), ONE, RULELESS)
    },
    "operators that neither exporter has": {
        "CTC": (module(ctc, embed=lambda: nn.Embedding(7, 4), head=linear(4, 7)), IDS, "ctc")
    },
}
"""By row of the page; a new row is one of the page, too."""
