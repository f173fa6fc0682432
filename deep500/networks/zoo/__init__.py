"""Model zoo: builders that emit a `Network` directly, each with its shape and initialisation documented.

To add a model is to write ``def model(build, classes, *, option=default)`` and to add its row to :data:`MODELS`.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from deep500.errors import NetworkError, nearest
from deep500.networks.drawing import Call, Take, draws_later
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder

MODELS: dict[str, tuple[str, tuple[int, ...]]] = {  # name: (file of the builder, sample shape by default)
    "mlp": ("perceptron", (3, 32, 32)),
    "lenet": ("convolutional", (3, 32, 32)),
    "simple_cnn": ("convolutional", (1, 28, 28)),
    "resnet": ("residual", (3, 32, 32)),
    "resnet50": ("residual", (3, 224, 224)),
    "resnext50": ("residual", (3, 224, 224)),
    "mixed_resnet": ("residual", (3, 64, 64)),
    "nested_resnet": ("nested", (3, 32, 32)),
    "wide_resnet": ("residual", (3, 32, 32)),
    "vgg16": ("convolutional", (3, 32, 32)),
    "unet": ("unet", (3, 32, 32)),
    "ssd": ("detection", (1, 64, 64)),
    "actor_critic": ("policy", (4,)),
    "q_network": ("policy", (4,)),
    "repvgg": ("branching", (3, 224, 224)),
    "squeezenet": ("branching", (3, 224, 224)),
    "inception_v3": ("branching", (3, 299, 299)),
    "nasnet_a": ("separable", (3, 224, 224)),
    "transformer": ("sequence", (32,)),
    "bert": ("bert", (64,)),
    "attention_block": ("bert", (64, 768)),
    "lstm": ("sequence", (28, 28)),
    "nasrnn": ("nasrnn", (5, 512)),
    "conv1d": ("speech", (40, 13)),
    "conv1d_ctc": ("speech", (128, 13)),
    "bigru": ("speech", (40, 13)),
    "gru_language_model": ("language", (64,)),
    "lstm_language_model": ("language", (64,)),
    "causal_transformer": ("language", (64,)),
    "encoder_decoder": ("transduction", (12,)),
}

OF_TOKENS = (
    "transformer",
    "bert",
    "gru_language_model",
    "lstm_language_model",
    "causal_transformer",
    "encoder_decoder",
)
"""Models whose samples of shape (length,) are int64 tokens."""


def model_names() -> list[str]:
    """Names that :func:`create` takes."""
    return list(MODELS)


def model_summary(name: str) -> str:
    """Return a line on what a model is.

    Example:
        >>> model_summary("resnet50")
        'ResNet-50 for ImageNet (He et al. 2015), version 1.5: the stride is in the 3x3 convolution, as in torchvision.'
    """
    words = (inspect.getdoc(_model(name)[0]) or "").partition("\n")[0]
    return re.sub(r":\w+:`~?([^`]*)`|``", r"\1", words)


def model_options(name: str) -> dict[str, Any]:
    """Keywords of a model with their defaults, for instance ``{"depth": 20, "shortcut": "B"}`` for ``"resnet"``."""
    parameters = inspect.signature(_model(name)[0]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}


def create(
    name: str,
    batch: int | None = None,
    classes: int = 10,
    shape: Sequence[int] | None = None,
    seed: int = 0,
    **kwargs: Any,
) -> Network:
    """Build a model: float32, input ``input``, logits ``output`` [batch, classes], no loss (see :func:`add_loss`).

    Args:
        name: one of :func:`model_names`.
        batch: a fixed batch size; None leaves it free (symbolic ``"N"``).
        classes: width of the output.
        shape: of one sample, without batch; the model's own default if None: (3, 32, 32) for images, (1, 28, 28) for
            ``simple_cnn``, (3, 224, 224) for ``resnet50``, (32,) tokens for ``transformer``, (28, 28) for ``lstm``.
        seed: of the initial weights: equal arguments give equal weights, bit for bit.
        kwargs: the model's own options, see :func:`model_options` and the builder's docstring.

    Raises:
        NetworkError: unknown name or option (the nearest is offered), or sizes that the model cannot have.

    Example:
        >>> import deep500.networks as d5nt
        >>> d5nt.create("resnet", depth=44)
        <Network 'resnet': 157 nodes, 227 parameters>
    """
    model, usual = _model(name)
    options = model_options(name)
    written = inspect.signature(model).parameters
    for key, value in kwargs.items():
        if key not in options:
            raise NetworkError(f"model {name!r}: got option {key!r}; expected one of its own: {nearest(key, options)}")
        if expected := _refused(written[key].annotation, value):
            raise NetworkError(f"model {name!r}: got {key}={value!r}; expected {expected}: such as {options[key]!r}")
    sample = usual if shape is None else tuple(shape)
    for what, value in [
        ("batch", 1 if batch is None else batch),
        ("classes", classes),
        *(("shape", s) for s in sample),
    ]:
        if not _is_size(value):
            raise NetworkError(f"model {name!r}: got {what} {value!r}; expected whole numbers >= 1: choose such a size")
    dtype = "int64" if name in OF_TOKENS and len(sample) == 1 else "float32"
    sizes = name, "N" if batch is None else int(batch), tuple(int(s) for s in sample), seed, dtype

    def build(drawing: Call | None = None, take: Take | None = None) -> Network:
        return model(Builder(*sizes, drawing, take), int(classes), **kwargs)

    if not draws_later():
        return build()
    about = ", ".join([f"{name!r}", f"{classes} classes", f"{sample}", f"seed {seed}", *map(str, kwargs.items())])
    drawing: Call = (about, lambda take: build(drawing, take))
    return build(drawing)


def _refused(annotation: str, value: Any) -> str:
    """Say what an option is to be, by its annotation, where a value is something else; empty where it fits."""
    kind, _, none = annotation.partition(" | ")
    if none and value is None:
        return ""
    if kind == "bool":
        return "" if isinstance(value, bool) else "True or False"
    if kind == "str":
        return "" if isinstance(value, str) else "text"
    if kind == "float":
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return "" if fits else "a finite number"
    if kind == "int":
        return "" if _is_size(value) else "a whole number >= 1"
    length = None if "..." in kind or kind.startswith("Sequence") else kind.count(",") + 1
    least = 0 if "Count" in kind else 1
    fits = isinstance(value, (tuple, list)) and all(_is_size(v, least) for v in value) and length in (None, len(value))
    return "" if fits else f"{length or 'a list of'} whole numbers >= {least}"


def _is_size(value: Any, least: int = 1) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and least <= value < 2**31


def _model(name: str) -> tuple[Callable[..., Network], tuple[int, ...]]:
    if name not in MODELS:
        raise NetworkError(f"got model {name!r}; expected one of the zoo's: {nearest(name, MODELS)}")
    file, usual = MODELS[name]
    return getattr(importlib.import_module(f"{__name__}.{file}"), name), usual
