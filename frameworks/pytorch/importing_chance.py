"""Random draws of a module in training alone (stochastic depth, noise), carried into the trace or refused by name.

ONNX has one operator that follows the mode, Dropout. Of ones it makes, in training, 1 / (1 - rate) or 0: with another
scale that is a Bernoulli draw, of one number per sample that of stochastic depth. In evaluation it makes ones, so its
distance from 1 at a rate of a half tells the mode: noise times that distance is noise in training alone. What is drawn
in evaluation too is left as it is.
"""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from deep500.errors import NetworkError
from deep500.registry import load_importer

_branches = load_importer("pytorch", "importing_branches")
_FUNCTIONS = torch.nn.functional
_DROPOUTS = frozenset(
    getattr(place, name)
    for place in (_FUNCTIONS, torch)
    for name in ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d")
    if hasattr(place, name)
)
_RATES = (
    (torch.nn.modules.dropout._DropoutNd, "p"),
    (torch.nn.RNNBase, "dropout"),
    (torch.nn.MultiheadAttention, "dropout"),
)


# -- draws -------------------------------------------------------------------------------------------------------------
def _bernoulli(x: torch.Tensor, rate: Any) -> torch.Tensor | None:
    """Ones with this probability, else zeros, of the shape of x; in evaluation the probability. None: rates differ."""
    rates = _branches.sample(rate).flatten() if isinstance(rate, torch.Tensor) else torch.tensor([float(rate)])
    if not len(rates) or not (rates == rates[0]).all():
        return None
    keep = float(rates[0])
    ones = torch.ones_like(x)
    return torch.zeros_like(x) if keep == 0 else _FUNCTIONS.dropout(ones, 1 - keep, True) * keep


def training_flag(like: torch.Tensor) -> torch.Tensor:
    """1 in training and 0 in evaluation, of the shape of a tensor."""
    return (_FUNCTIONS.dropout(torch.ones_like(like), 0.5, True) - 1).abs()


def _draw_bernoulli(_: Any, p: torch.Tensor, **kwargs: Any) -> Any:
    return _bernoulli(p, p)


def _fill_bernoulli(_: Any, x: torch.Tensor, p: Any = 0.5, **kwargs: Any) -> Any:
    drawn = _bernoulli(x, p)
    return None if drawn is None else x.copy_(drawn)


def _fill_normal(_: Any, x: torch.Tensor, mean: float = 0, std: float = 1, **kwargs: Any) -> Any:
    noise = torch.randn_like(x) * std + mean
    return x.copy_(noise * training_flag(noise))


def _noise(function: Any, *args: Any, **kwargs: Any) -> Any:
    noise = function(*args, **kwargs)
    return noise * training_flag(noise)


CARRIED: dict[Any, Callable[..., Any]] = {
    torch.bernoulli: _draw_bernoulli,
    torch.Tensor.bernoulli: _draw_bernoulli,
    torch.Tensor.bernoulli_: _fill_bernoulli,
    torch.Tensor.normal_: _fill_normal,
    torch.randn: _noise,
    torch.randn_like: _noise,
}
"""Draws that are carried where they are made in training alone."""
REFUSED = frozenset(
    getattr(place, name)
    for place in (torch, torch.Tensor)
    for name in (
        *("rand", "rand_like", "randint", "randint_like", "randperm", "normal", "poisson", "multinomial", "binomial"),
        *("uniform_", "exponential_", "geometric_", "cauchy_", "log_normal_", "random_", "_standard_gamma"),
        *("_sample_dirichlet", "dirichlet"),
    )
    if hasattr(place, name)
)
"""Other draws: a trace that holds one draws in evaluation too."""


OWN_SCALES = (_FUNCTIONS.alpha_dropout, _FUNCTIONS.feature_alpha_dropout, _FUNCTIONS.rrelu)
"""Functions whose draws of training alone are no factors."""
OWN_SCALE_PARTS = (torch.nn.AlphaDropout, torch.nn.FeatureAlphaDropout, torch.nn.RReLU)
"""The modules that call them."""


def refuse_own_scale(function: Any, *args: Any, **kwargs: Any) -> Any:
    """One of :data:`OWN_SCALES` in evaluation; raises NetworkError for one that draws."""
    if inspect.signature(function).bind(*args, **kwargs).arguments.get("training"):
        refuse_draw(_branches.where(), function.__name__)
    return function(*args, **kwargs)


def refuse_draw(where: str, what: str) -> NoReturn:
    """Raise NetworkError for draws of training alone that are no factors."""
    raise NetworkError(
        f"{where}: got {what} in training; expected dropout, for what a network draws there are factors alone: write "
        "it with dropout, or set its rate to 0"
    )


def drop_channels(_: Any, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout of whole channels: a factor for each, which follows the mode."""
    if not training or p == 0:
        return input
    return input * _FUNCTIONS.dropout(input.new_ones((*input.shape[:2], *[1] * (input.dim() - 2))), p, True)


class Draws(TorchFunctionMode):
    """Notes the lines that draw at random.

    Attributes:
        places: file and line of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in CARRIED or function in REFUSED or (function in _DROPOUTS and _drops(*args, **kwargs)):
            self.places.add(_branches.where())
        return function(*args, **kwargs)


def _drops(_: Any, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True) -> bool:
    return p > 0 and training and train


def instead_of(function: Any, evaluated: Collection[str]) -> Callable[..., Any] | None:
    """Return a function that carries a draw of training alone; None for other functions, and for draws of both modes.

    Args:
        function: that is called.
        evaluated: the lines that draw in evaluation.

    Raises:
        NetworkError: a draw that cannot be carried.
    """
    if function not in CARRIED and function not in REFUSED:
        return None
    where = _branches.where()
    if where in evaluated:
        return None
    if function in CARRIED:
        return carry
    raise NetworkError(
        f"{where}: got {function.__name__} in training and not in evaluation; expected dropout, noise of randn_like or "
        "draws of bernoulli_, which a network leaves out of evaluation: write it with one of these, or draw outside of "
        "the module and give it as an input"
    )


def carry(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The stand-in for a draw of :data:`CARRIED`."""
    result = CARRIED[function](function, *args, **kwargs)
    if result is None:
        raise NetworkError(
            f"{_branches.where()}: got {function.__name__} of probabilities that differ, in training and not in "
            "evaluation; expected one number for all: draw outside of the module and give it as an input"
        )
    return result


def doubt(evaluated: Collection[str], carried: Collection[str], moves: Callable[[], bool]) -> str:
    """Why outputs may differ, with its line; empty where nothing is drawn.

    Args:
        evaluated: the lines that draw in evaluation.
        carried: the lines of draws that were carried.
        moves: whether a second evaluation gives other outputs.
    """
    if evaluated and moves():
        return (
            f"{min(evaluated)}: got a draw in evaluation, too; expected the same outputs of the same inputs, for "
            "nothing may be random in evaluation: give dropout training=self.training, or draw outside of the module "
            "and give it as an input"
        )
    if carried:
        return (
            f"{min(carried)}: got a draw in training alone, in whose place a network has its mean in evaluation; "
            "expected a module that computes with the mean there, too: divide by it, as in x * bernoulli(p) / p, or "
            "write it with dropout"
        )
    return ""


@contextlib.contextmanager
def drawn_by_host(module: torch.nn.Module) -> Iterator[None]:
    """Raise NetworkError where a module's forward draws by Python's or NumPy's generator: a trace holds one draw."""
    states: dict[str, Callable[[], Any]] = {"Python's": random.getstate, "NumPy's": np.random.get_state}
    before = {name: repr(state()) for name, state in states.items()}
    yield
    for name, state in states.items():
        if repr(state()) != before[name]:
            raise NetworkError(
                f"{type(module).__name__}: got a forward function that draws from {name} random; expected dropout, "
                "noise of randn_like or draws of bernoulli_, which a network makes anew in every run: write it with "
                "one of these, or draw outside of the module and give it as an input"
            )


# -- stochastic depth --------------------------------------------------------------------------------------------------
def depth_rate(part: torch.nn.Module) -> str | None:
    """The attribute that holds the rate of a module for stochastic depth; None for other modules."""
    kind = type(part).__name__
    names = ("drop_prob", "p") if kind.endswith("DropPath") or kind == "StochasticDepth" else ()
    return next((name for name in names if isinstance(getattr(part, name, None), float)), None)


def leave_out_samples(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Stochastic depth (Huang et al. 2016): whole samples are 0 in training, the others larger by 1 / (1 - rate)."""
    rate = getattr(self, str(depth_rate(self)))
    if rate == 0:
        return x
    samples = 1 if getattr(self, "mode", "row") == "batch" else x.shape[0]
    mask = _FUNCTIONS.dropout(x.new_ones((samples,) + (1,) * (x.dim() - 1)), rate, True)
    return x * mask if getattr(self, "scale_by_keep", True) else x * (mask > 0).to(x.dtype)


# -- without chance ----------------------------------------------------------------------------------------------------
class _Still(TorchFunctionMode):
    """Leaves out what functions draw in training alone."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if function is _FUNCTIONS.gumbel_softmax:
            return gumbel_softmax(*args, **{name: value for name, value in kwargs.items() if name != "eps"})
        if function is _FUNCTIONS.scaled_dot_product_attention:
            args, kwargs = args[:4] + ((0.0, *args[5:]) if len(args) > 4 else ()), {**kwargs}
            kwargs.pop("dropout_p", None)
        if function in (torch.bernoulli, torch.Tensor.bernoulli):
            return args[0].clone()
        if function is torch.Tensor.bernoulli_:
            return args[0].copy_(torch.as_tensor(args[1] if len(args) > 1 else kwargs.get("p", 0.5)))
        result = function(*args, **kwargs)
        return result.zero_() if function in CARRIED else result


def gumbel_softmax(logits: torch.Tensor, tau: float = 1, hard: bool = False, dim: int = -1) -> torch.Tensor:
    """That of PyTorch without its noise: with ``hard`` the largest alone, and the gradient of the soft one."""
    soft = (logits / tau).softmax(dim)
    if not hard:
        return soft
    largest = torch.zeros_like(soft).scatter(dim, soft.max(dim, keepdim=True)[1], 1.0)
    return largest - soft.detach() + soft


def noisy_gumbel_softmax(
    _: Any, logits: torch.Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> torch.Tensor:
    """Gumbel noise in training, none in evaluation, for which modules that use it choose the largest."""
    tiny = torch.finfo(logits.dtype).eps
    noise = -torch.log(-torch.log(torch.rand_like(logits) * (1 - 2 * tiny) + tiny))
    return gumbel_softmax(logits + training_flag(logits) * noise, tau, hard, dim)


@contextlib.contextmanager
def still(module: torch.nn.Module) -> Iterator[None]:
    """Let a module drop nothing and add no noise, whatever its mode."""
    parts: list[torch.nn.Module] = list(module.modules())
    places: list[tuple[torch.nn.Module, str]] = [
        (p, name) for p in parts for kind, name in _RATES if isinstance(p, kind)
    ]
    places += [(part, name) for part in parts if (name := depth_rate(part)) is not None]
    rates = [(part, name, getattr(part, name)) for part, name in places]
    try:
        for part, name, _ in rates:
            setattr(part, name, 0.0)
        with _Still():
            yield
    finally:
        for part, name, rate in rates:
            setattr(part, name, rate)
