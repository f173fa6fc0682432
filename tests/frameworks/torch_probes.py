"""Modules that cut or change gradients, as people write them: rows of docs/own_models.md, idioms of repositories."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

F = nn.functional


class Probe(nn.Module):
    """Two layers, with a step between them that ``function(module, x, h)`` makes."""

    def __init__(self, function: Any = None) -> None:
        super().__init__()
        self.first, self.second, self.function = nn.Linear(4, 4), nn.Linear(4, 3), function

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.second(self.function(self, x, h))


def probe(function: Any) -> Any:
    return lambda: Probe(function)


# -- cuts --------------------------------------------------------------------------------------------------------------
def no_grad(self, x, h):
    with torch.no_grad():
        scale = self.first(x).abs().mean(1, keepdim=True)
    return h * scale


@torch.no_grad()
def frozen_norm(x):
    return x.norm(dim=1, keepdim=True)


def switched(self, x, h):
    torch.set_grad_enabled(False)
    scale = h.exp()
    torch.set_grad_enabled(True)
    return h * scale


def inference(self, x, h):
    with torch.inference_mode():
        scale = h.exp()
    return h + scale.clone()


def views_without(self, x, h):
    with torch.no_grad():
        a, b = h.chunk(2, 1)
        whole = torch.zeros_like(h)
        whole[:, :2] = b
        both = torch.cat([b, a], 1)
    return h * both + whole + F.pad(a, (1, 1))


def detached_in_place(self, x, h):
    scale = h * 2
    scale.detach_()
    return h * scale


def in_place_without(self, x, h):
    g = h * 1
    with torch.no_grad():
        g.mul_(0.5)
    return g


def item_without(self, x, h):
    g = h * 1
    with torch.no_grad():
        g[:, 0] = 0
    return g


def straight_through(self, x, h):
    return h + (torch.round(h * 2) / 2 - h).detach()


# -- functions ---------------------------------------------------------------------------------------------------------
class Reverse(torch.autograd.Function):
    """Gradient reversal, as domain-adversarial training has it (Ganin et al. 2016)."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.neg() * ctx.alpha, None


class Surrogate(torch.autograd.Function):
    """A spike whose gradient is that of a fast sigmoid (SuperSpike)."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / (10 * x.abs() + 1) ** 2


class Scaled(torch.autograd.Function):
    """Two results, two arguments, one of which is given no gradient, and setup_context."""

    @staticmethod
    def forward(x, y, factor):
        return x * y * factor, x + y, x > y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.factor = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx, product, total, _):
        x, _ = ctx.saved_tensors
        return (product * ctx.factor + 3 * total) * x.shape[1], None, None


class Nothing(torch.autograd.Function):
    """No gradient at all."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return None


class Swish(torch.autograd.Function):
    """The memory-saving swish of EfficientNet-PyTorch."""

    @staticmethod
    def forward(ctx, i):
        ctx.save_for_backward(i)
        return i * torch.sigmoid(i)

    @staticmethod
    def backward(ctx, gradient):
        (i,) = ctx.saved_tensors
        s = torch.sigmoid(i)
        return gradient * (s * (1 + i * (1 - s)))


class LeftToNumPy(Swish):
    """A backward that leaves PyTorch."""

    @staticmethod
    def backward(ctx, gradient):
        (i,) = ctx.saved_tensors
        return torch.from_numpy(np.cos(i.numpy())) * gradient


class ReadsValues(Swish):
    """A backward that branches on values."""

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 if gradient.sum() > 0 else gradient


class InPlace(torch.autograd.Function):
    """A forward that writes into its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def scaled(self, x, h):
    a, b, mask = Scaled.apply(h, torch.sigmoid(self.first(x)), 2.0)
    return a + b + mask.to(a.dtype)


def rounded_symbolic(self, x, h):
    return h + FakeQuantize.apply(h, 0.1, -8, 7)


class FakeQuantize(torch.autograd.Function):
    """Quantization-aware training by hand: rounding, and the gradient where nothing was clipped."""

    @staticmethod
    def forward(ctx, x, scale, low, high):
        q = torch.round(x / scale)
        ctx.save_for_backward((q >= low) & (q <= high))
        return q.clamp(low, high) * scale

    @staticmethod
    def backward(ctx, gradient):
        (inside,) = ctx.saved_tensors
        return gradient * inside, None, None, None


# -- hooks -------------------------------------------------------------------------------------------------------------
def hooked(self, x, h):
    h.register_hook(lambda gradient: gradient * 10)
    return h


def hooked_parameter() -> nn.Module:
    module = Probe(lambda self, x, h: h)
    module.first.weight.register_hook(lambda gradient: gradient * 10)
    return module


def hooked_accumulation() -> nn.Module:
    module = Probe(lambda self, x, h: h)
    module.first.weight.register_post_accumulate_grad_hook(lambda p: None)
    return module


def hooked_module() -> nn.Module:
    module = Probe(lambda self, x, h: h)
    module.first.register_full_backward_hook(lambda m, before, after: None)
    return module


def forward_hook() -> nn.Module:
    module = Probe(lambda self, x, h: h)
    module.first.register_forward_hook(lambda m, args, result: result.detach() + result)
    return module


def closed_forward() -> nn.Module:
    """A forward in the module's place that holds the module, as wrappers write it."""
    module = Probe(lambda self, x, h: h)
    plain = module.forward
    module.forward = lambda x: 2 * plain(x)  # type: ignore[method-assign]
    return module


def closed_hook() -> nn.Module:
    module = Probe(lambda self, x, h: h)
    module.first.register_forward_hook(lambda m, args, result: result + module.second.bias.sum())
    return module


def gradient_inside(self, x, h):
    return torch.autograd.grad(h.sum(), self.first.weight, create_graph=True)[0].sum() * h


# -- embeddings --------------------------------------------------------------------------------------------------------
class Tokens(nn.Module):
    """An embedding with options, and its mean."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4, **options), nn.Linear(4, 3)

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens)).mean(1))


# -- state -------------------------------------------------------------------------------------------------------------
class UnseenWrites(nn.Module):
    """An average that the example leaves at zero: in a buffer, in one that is not stored, in an attribute."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.head, self.where = nn.Linear(4, 3), where
        if where == "attribute":
            self.mean = torch.zeros(3, dtype=torch.float64)  # which `double()` does not reach
        else:
            self.register_buffer("mean", torch.zeros(3), persistent=where == "buffer")

    def forward(self, x):
        y = self.head(x)
        if self.training:
            with torch.no_grad():
                self.mean.lerp_((y - y).mean(0), 0.1)
        return y - self.mean


class Cached(nn.Module):
    """A table in a buffer that is not stored, made anew for another length."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("table", torch.zeros(0), persistent=False)

    def forward(self, x):
        y = self.head(x)
        if self.table.numel() != y.shape[1]:
            self.table = torch.arange(y.shape[1], dtype=y.dtype)
        return y * self.table


class Centre(nn.Module):
    """The centre of DINO's teacher, moved in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("centre", torch.zeros(3))

    def forward(self, x):
        y = self.head(x)
        if self.training:
            self.centre = self.centre * 0.9 + y.detach().mean(0) * 0.1
        return y - self.centre


class EqualScale(nn.Module):
    """A largest value that this example does not move."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.head, self.in_place = nn.Linear(4, 3), in_place
        self.register_buffer("largest", torch.full((), 1e6))

    def forward(self, x):
        if self.training and self.in_place:
            self.largest.copy_(torch.maximum(self.largest, x.detach().abs().max()))
        elif self.training:
            self.largest = torch.maximum(self.largest, x.detach().abs().max())
        return self.head(x / self.largest)


class Counter(nn.Module):
    """Steps counted in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.steps += 1
        return self.head(x)


class Clipped(nn.Module):
    """A critic that clips its weights in forward (WGAN)."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        if self.training:
            self.head.weight.data.clamp_(-0.1, 0.1)
        return self.head(x)


# -- branches ----------------------------------------------------------------------------------------------------------
def branch(self, x, h):
    return h * 2 if x.sum() > 0 else h


def number(self, x, h):
    return h / float(h.abs().max())


def item(self, x, h):
    return h * h.max().item()


def loop(self, x, h):
    for _ in range(int(x.abs().max()) + 1):
        h = torch.tanh(h)
    return h


def through_numpy(self, x, h):
    return h * torch.from_numpy(np.sign(x.numpy()))


def on_sizes(self, x, h):
    if x.shape[1] > 3 and x.shape[0] > 0 and h.numel():
        h = h * x.size(1)
    assert x.abs().sum() >= 0, "a check"
    if (h.abs() > 1e9).any():
        raise ValueError("too large")
    return torch.where(x.sum() > 0, h * 2, h)


# -- idioms of public repositories -------------------------------------------------------------------------------------
class BYOL(nn.Module):
    """Online and target network; the target's parameters are moved outside (Grill et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.online = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=2**-10), nn.ReLU(), nn.Linear(6, 3))
        self.target, self.predictor = copy.deepcopy(self.online), nn.Linear(3, 3)
        for parameter in self.target.parameters():
            parameter.requires_grad = False

    def forward(self, a, b):
        p = F.normalize(self.predictor(self.online(a)), dim=-1)
        with torch.no_grad():
            z = F.normalize(self.target(b), dim=-1)
        return 2 - 2 * (p * z.detach()).sum(-1, keepdim=True)


class SimSiam(nn.Module):
    """Both views, each with a stopped side (Chen and He 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=2**-10), nn.ReLU(), nn.Linear(6, 3))
        self.predictor = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 3))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        pa, pb = self.predictor(za), self.predictor(zb)
        loss = F.cosine_similarity(pa, zb.detach(), dim=-1) + F.cosine_similarity(pb, za.detach(), dim=-1)
        return -loss / 2


class MeanTeacher(nn.Module):
    """Student and averaged teacher, both in one module (Tarvainen and Valpola 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher(x).softmax(-1)
        return ((self.student(x).softmax(-1) - wanted) ** 2).sum(-1)


class VectorQuantizer(nn.Module):
    """A codebook with straight-through and both losses (van den Oord et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.codes, self.decoder = nn.Linear(4, 3), nn.Embedding(5, 3), nn.Linear(3, 4)

    def forward(self, x):
        z = self.encoder(x)
        distances = (z**2).sum(1, keepdim=True) + (self.codes.weight**2).sum(1) - 2 * z @ self.codes.weight.t()
        q = self.codes(distances.argmin(1))
        loss = F.mse_loss(q.detach(), z, reduction="none") * 0.25 + F.mse_loss(q, z.detach(), reduction="none")
        q = z + (q - z).detach()
        return self.decoder(q), loss.mean(1)


class MovingCodebook(VectorQuantizer):
    """The codebook as averages that forward moves."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sizes", torch.zeros(5))

    def forward(self, x):
        z = self.encoder(x)
        index = torch.cdist(z, self.codes.weight).argmin(1)
        one_hot = F.one_hot(index, 5).to(z.dtype)
        if self.training:
            with torch.no_grad():
                self.sizes.mul_(0.99).add_(one_hot.sum(0), alpha=0.01)
        return self.decoder(z + (one_hot @ self.codes.weight - z).detach())


class GumbelQuantizer(nn.Module):
    """wav2vec 2's: Gumbel-softmax in training, the largest in evaluation."""

    def __init__(self, hard: bool = True) -> None:
        super().__init__()
        self.scores, self.codes, self.hard = nn.Linear(4, 6), nn.Parameter(torch.randn(1, 6, 3)), hard

    def forward(self, x):
        scores = self.scores(x).view(-1, 3)
        if self.training:
            chosen = F.gumbel_softmax(scores, tau=2.0, hard=self.hard)
        else:
            chosen = torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
        return (chosen.view(x.shape[0], 6, 1) * self.codes).sum(1)


class InTraining(nn.Module):
    """A layer, and behind it what ``function`` makes in training alone."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x):
        h = self.layer(x)
        return self.function(h) if self.training else h


def random_in_training(function: Any) -> Any:
    return lambda: InTraining(function)


def whole_samples(h):
    return h * h.new_empty((h.shape[0], 1)).bernoulli_(0.75).div_(0.75)


def mask_in_place(h):
    mask = torch.zeros(h.shape[0], 1, dtype=h.dtype)
    mask.bernoulli_(0.75)
    return h * mask / 0.75


def noise_in_place(h):
    noise = torch.empty_like(h)
    noise.normal_(0, 0.1)
    return h + noise


class OwnDropPath(nn.Module):
    """As transformers has it."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_prob
        mask = keep + torch.rand((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype)
        mask.floor_()
        return x.div(keep) * mask


class StochasticDepth(nn.Module):
    """As torchvision has it, with or without the larger scale of what stays."""

    def __init__(self, p: float, mode: str = "row", scale_by_keep: bool = True) -> None:
        super().__init__()
        self.p, self.mode, self.scale_by_keep = p, mode, scale_by_keep

    def forward(self, x):
        if not self.training:
            return x
        noise = torch.empty([x.shape[0] if self.mode == "row" else 1] + [1] * (x.ndim - 1), dtype=x.dtype)
        noise = noise.bernoulli_(1 - self.p)
        return x * (noise.div_(1 - self.p) if self.scale_by_keep else noise)


RANDOM = {
    "samples": random_in_training(whole_samples),
    "mask in place": random_in_training(mask_in_place),
    "drawn by bernoulli": random_in_training(lambda h: h * torch.bernoulli(torch.full_like(h, 0.75)) / 0.75),
    "drop path": lambda: nn.Sequential(nn.Linear(4, 4), OwnDropPath(0.25)),
    "stochastic depth": lambda: nn.Sequential(nn.Linear(4, 4), StochasticDepth(0.25)),
    "unscaled depth": lambda: nn.Sequential(nn.Linear(4, 4), StochasticDepth(0.25, scale_by_keep=False)),
    "noise": random_in_training(lambda h: h + 0.1 * torch.randn_like(h)),
    "noise of a shape": random_in_training(lambda h: h + 0.1 * torch.randn(h.shape, dtype=h.dtype)),
    "noise in place": random_in_training(noise_in_place),
}
"""What draws in training and not in evaluation."""


class DANN(nn.Module):
    """Features, classifier, and a domain classifier behind a reversed gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.classes, self.domain = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 2)

    def forward(self, x):
        f = torch.relu(self.features(x))
        return self.classes(f), self.domain(Reverse.apply(f, 0.3))


class LoRA(nn.Module):
    """A frozen layer with a trained product of low rank (Hu et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.base.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.b(F.dropout(self.a(x), 0.1, self.training)) * 2


class Tied(nn.Module):
    """Embedding and head share weights, the padding row's gradient comes from the head alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4, padding_idx=1), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens)).sum(1))


class Checkpointed(nn.Module):
    """Gradient checkpointing, both kinds and of sequences."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.reentrant = nn.Linear(4, 4), reentrant
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))

    def forward(self, x):
        h = checkpoint(lambda v: torch.tanh(v) * v, self.first(x), use_reentrant=self.reentrant)
        return checkpoint_sequential(self.block, 2, h, use_reentrant=self.reentrant)


class RealNVP(nn.Module):
    """Coupling layers with a determinant (Dinh et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 8)) for _ in range(2))
        self.register_buffer("masks", torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1]]))

    def forward(self, x):
        total = x.new_zeros(x.shape[0])
        for mask, net in zip(self.masks, self.nets, strict=True):
            s, t = net(x * mask).chunk(2, 1)
            s = torch.tanh(s) * (1 - mask)
            x = x * mask + (1 - mask) * (x * s.exp() + t)
            total = total + s.sum(1)
        return x, total


class Contrastive(nn.Module):
    """MoCo without the queue: keys are stopped, the temperature trains."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.scale = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.5))

    def forward(self, a, b):
        q, k = F.normalize(self.query(a), dim=1), F.normalize(self.query(b), dim=1).detach()
        return (q * k).sum(1, keepdim=True) * self.scale.exp()


class ReinMax(nn.Module):
    """Several straight-through estimates at once, as discrete variational models write them."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(4, 3)

    def forward(self, x):
        p = self.scores(x).softmax(-1)
        hard = F.one_hot(p.argmax(-1), 3).to(p.dtype)
        return hard + p - p.detach(), (p * (hard - p).detach()).sum(-1)


class ActorCritic(nn.Module):
    """An advantage that the policy does not train."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, x):
        log_p, v = self.policy(x).log_softmax(-1), self.value(x)
        return -(log_p * (1 - v.detach())), (v - 1) ** 2


class Truncated(nn.Module):
    """Backpropagation through time, truncated by detaching the state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(2, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h.detach() if step == 2 else h)
        return self.head(h)


class FakeQuantized(nn.Module):
    """PyTorch's own fake quantization with a fixed scale."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return torch.fake_quantize_per_tensor_affine(torch.tanh(self.head(x)), 0.05, 0, -128, 127)


class Observed(nn.Module):
    """PyTorch's own fake quantization with an observer."""

    def __init__(self) -> None:
        super().__init__()
        from torch.ao.quantization import FakeQuantize as Observing

        self.head, self.quantize = nn.Linear(4, 3), Observing()

    def forward(self, x):
        return self.quantize(self.head(x))


class NormalizedWeights(nn.Module):
    """weight_norm, as a parametrization."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))

    def forward(self, x):
        return self.head(x)


class OldNormalizedWeights(nn.Module):
    """weight_norm, as a hook before forward."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.utils.weight_norm(nn.Linear(4, 3))

    def forward(self, x):
        return self.head(x)


class Spectral(nn.Module):
    """spectral_norm, which moves its vectors in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))

    def forward(self, x):
        return self.head(x)


REAL = np.random.default_rng(0).standard_normal((4, 4))
OTHER = np.random.default_rng(1).standard_normal((4, 4))
STEPS = np.random.default_rng(2).standard_normal((4, 4, 2))
TOKENS = np.random.default_rng(3).integers(0, 7, (4, 5))
ONE, TWO, IDS = (REAL,), (REAL, OTHER), (TOKENS,)

CARRIED = ""
"""What the probes of this row compute is right; else a probe names part of its error."""
RULELESS = "no rule"
"""It is right in backends that differentiate by themselves, and one error where a gradient is emitted."""
PROBES: dict[str, dict[str, tuple[Any, tuple[np.ndarray, ...], str]]] = {
    "`.detach()`, `.detach_()`, `.data`": {
        "detach": (probe(lambda self, x, h: h * h.detach()), ONE, CARRIED),
        "detach in place": (probe(detached_in_place), ONE, CARRIED),
        "data": (probe(lambda self, x, h: h * h.data + self.first.bias.data), ONE, CARRIED),
        "truncated time": (Truncated, (STEPS,), CARRIED),
        "SimSiam": (SimSiam, TWO, CARRIED),
        "MoCo": (Contrastive, TWO, CARRIED),
        "actor-critic": (ActorCritic, ONE, CARRIED),
    },
    "`no_grad`, `inference_mode`, `set_grad_enabled(False)`": {
        "no_grad": (probe(no_grad), ONE, CARRIED),
        "decorated": (probe(lambda self, x, h: h / frozen_norm(h)), ONE, CARRIED),
        "switched off": (probe(switched), ONE, CARRIED),
        "inference": (probe(inference), ONE, CARRIED),
        "views": (probe(views_without), ONE, CARRIED),
        "BYOL": (BYOL, TWO, CARRIED),
        "Mean Teacher": (MeanTeacher, ONE, CARRIED),
    },
    "straight-through `h + (q - h).detach()`": {
        "rounding": (probe(straight_through), ONE, CARRIED),
        "VQ-VAE": (VectorQuantizer, ONE, CARRIED),
        "one-hot": (ReinMax, ONE, CARRIED),
    },
    "stochastic depth, `bernoulli`, `randn` and `normal_` in training alone": {
        name: (make, ONE, CARRIED) for name, make in RANDOM.items()
    },
    "other draws in training alone (`rand`, `poisson`, ...)": {
        "token masking": (
            random_in_training(lambda h: h * (torch.rand_like(h) > 0.3)),
            ONE,
            "torch_probes.py:.*got rand_like in training and not in evaluation; expected dropout",
        ),
        "probabilities": (
            random_in_training(lambda h: h * torch.bernoulli(h.sigmoid())),
            ONE,
            "torch_probes.py:.*got bernoulli of probabilities that differ",
        ),
    },
    "`F.gumbel_softmax` in training": {"wav2vec 2": (GumbelQuantizer, ONE, CARRIED)},
    "`autograd.Function` with its own backward": {
        "reversal": (probe(lambda self, x, h: Reverse.apply(h, 0.5)), ONE, CARRIED),
        "DANN": (DANN, ONE, CARRIED),
        "surrogate": (probe(lambda self, x, h: Surrogate.apply(h)), ONE, CARRIED),
        "several": (probe(scaled), ONE, CARRIED),
        "swish": (probe(lambda self, x, h: Swish.apply(Swish.apply(h))), ONE, CARRIED),
        "none": (probe(lambda self, x, h: h + Nothing.apply(h)), ONE, CARRIED),
        "without gradients": (probe(lambda self, x, h: h + Reverse.apply(x, 2.0)), ONE, CARRIED),
        "quantization by hand": (probe(rounded_symbolic), ONE, CARRIED),
    },
    "`autograd.Function` whose backward cannot be traced": {
        "NumPy": (probe(lambda self, x, h: LeftToNumPy.apply(h)), ONE, "LeftToNumPy: got .* from its backward"),
        "branch": (probe(lambda self, x, h: ReadsValues.apply(h)), ONE, "ReadsValues: got .* from its backward"),
        "in place": (probe(lambda self, x, h: InPlace.apply(h * 1)), ONE, "torch_probes.py:.*InPlace: got mark_dirty"),
    },
    "`torch.utils.checkpoint`": {
        "reentrant": (lambda: Checkpointed(True), ONE, CARRIED),
        "not reentrant": (lambda: Checkpointed(False), ONE, CARRIED),
    },
    "hooks on gradients of tensors, parameters and modules": {
        "tensor": (probe(hooked), ONE, "torch_probes.py:.*got register_hook in forward"),
        "parameter": (hooked_parameter, ONE, "got parameter 'first.weight' with a hook on its gradient"),
        "accumulation": (hooked_accumulation, ONE, "got parameter 'first.weight' with a hook on its gradient"),
        "module": (hooked_module, ONE, "got Linear 'first' with a backward hook"),
    },
    "writing in place under `no_grad` into what has a gradient": {
        "product": (probe(in_place_without), ONE, r"torch_probes.py:\d+: got mul_ under no_grad"),
        "item": (probe(item_without), ONE, r"torch_probes.py:\d+: got __setitem__ under no_grad"),
    },
    "a function in the place of forward, or a hook, that holds the module itself": {
        "forward": (closed_forward, ONE, "got a forward function or a hook that holds parameter"),
        "hook": (closed_hook, ONE, "got a forward function or a hook that holds parameter 'second.bias' itself"),
    },
    "`Dropout1d`, `Dropout2d`, `Dropout3d`": {
        "channels": (
            lambda: nn.Sequential(
                nn.Unflatten(1, (2, 2)),
                nn.Conv1d(2, 3, 2),
                nn.Dropout1d(0.5),
                nn.Unflatten(2, (1, 1)),
                nn.Dropout2d(0.5),
            ),
            ONE,
            CARRIED,
        )
    },
    "`AlphaDropout`, `RReLU`, whose draws are no factors": {
        "alpha": (
            lambda: nn.Sequential(nn.Linear(4, 3), nn.AlphaDropout(0.5)),
            ONE,
            "got AlphaDropout '1' in training",
        ),
        "function": (probe(lambda self, x, h: F.rrelu(h, training=self.training)), ONE, "got rrelu in training"),
    },
    "`autograd.grad` in forward": {"penalty": (probe(gradient_inside), ONE, "torch_probes.py:.*got grad in forward")},
    "hooks on forward, tied weights, frozen parameters": {
        "forward hook": (forward_hook, ONE, CARRIED),
        "tied": (Tied, IDS, CARRIED),
        "LoRA": (LoRA, ONE, CARRIED),
        "RealNVP": (RealNVP, ONE, CARRIED),
        "weight norm": (NormalizedWeights, ONE, CARRIED),
    },
    "`nn.utils.weight_norm`, the old form": {
        "weight norm, old": (OldNormalizedWeights, ONE, "expected a module that copy.deepcopy takes")
    },
    "`Embedding(padding_idx=...)`": {
        "padding": (lambda: Tokens(padding_idx=0), IDS, CARRIED),
        "padding, negative": (lambda: Tokens(padding_idx=-1), IDS, CARRIED),
    },
    "`Embedding` with `max_norm`, `scale_grad_by_freq`, `sparse`": {
        "max_norm": (lambda: Tokens(max_norm=0.5), IDS, "torch_probes.py:.*got an embedding with max_norm"),
        "by frequency": (lambda: Tokens(scale_grad_by_freq=True), IDS, "got an embedding with scale_grad_by_freq"),
        "sparse": (lambda: Tokens(sparse=True), IDS, "got an embedding with sparse"),
    },
    "buffers, parameters and tensors in attributes that forward writes, other than BatchNorm's": {
        "centre": (Centre, ONE, "writes buffer 'centre' in training"),
        **{
            f"unseen, {where}": (lambda where=where: UnseenWrites(where), ONE, f"writes {kind} 'mean' in training")
            for where, kind in (("buffer", "buffer"), ("not stored", "buffer"), ("attribute", "attribute"))
        },
        "equal, in place": (lambda: EqualScale(True), ONE, "writes buffer 'largest' in training"),
        "equal, replaced": (lambda: EqualScale(False), ONE, "writes buffer 'largest' in training"),
        "counter": (Counter, ONE, "writes buffer 'steps' in training"),
        "codebook": (MovingCodebook, ONE, "writes buffer 'sizes' in training"),
        "clipped": (Clipped, ONE, "writes parameter 'head.weight' in training"),
        "spectral norm": (Spectral, ONE, "writes buffer 'head.parametrizations.weight.0._u' in training"),
        "observer": (Observed, ONE, "writes buffer 'quantize.* in training"),
    },
    "tables that forward keeps for their length": {"cached": (Cached, ONE, CARRIED)},
    "a branch on values": {
        "sum": (probe(branch), ONE, "torch_probes.py:.*got a Python number of a tensor's values"),
        "float": (probe(number), ONE, "torch_probes.py:.*got a Python number of a tensor's values"),
        "item": (probe(item), ONE, "torch_probes.py:.*got a Python number of a tensor's values"),
        "loop": (probe(loop), ONE, "torch_probes.py:.*got a Python number of a tensor's values"),
        "NumPy": (probe(through_numpy), ONE, "torch_probes.py:.*got a Python number of a tensor's values"),
    },
    "a branch on sizes, `torch.where`, checks that raise": {"sizes": (probe(on_sizes), ONE, CARRIED)},
    "`fake_quantize_per_tensor_affine`": {"quantized": (FakeQuantized, ONE, CARRIED)},
}
