"""Model zoo: builders that emit a `Network` directly, each with its shape and initialisation documented.

To add a model is to write ``def model(build, classes, *, option=default)`` and to add its row to :data:`MODELS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from deep500.errors import NetworkError, nearest
from deep500.networks.network import Network
from deep500.networks.zoo.bert import attention_block, bert
from deep500.networks.zoo.branching import inception_v3, repvgg, squeezenet
from deep500.networks.zoo.builder import Builder
from deep500.networks.zoo.convolutional import lenet, simple_cnn, vgg16
from deep500.networks.zoo.detection import ssd
from deep500.networks.zoo.language import causal_transformer, gru_language_model, lstm_language_model
from deep500.networks.zoo.nasrnn import nasrnn
from deep500.networks.zoo.nested import nested_resnet
from deep500.networks.zoo.perceptron import mlp
from deep500.networks.zoo.policy import actor_critic, q_network
from deep500.networks.zoo.residual import mixed_resnet, resnet, resnet50, resnext50, wide_resnet
from deep500.networks.zoo.separable import nasnet_a
from deep500.networks.zoo.sequence import lstm, transformer
from deep500.networks.zoo.speech import bigru, conv1d, conv1d_ctc
from deep500.networks.zoo.transduction import encoder_decoder
from deep500.networks.zoo.unet import unet

MODELS: dict[str, tuple[Callable[..., Network], tuple[int, ...]]] = {  # name: (builder, sample shape by default)
    "mlp": (mlp, (3, 32, 32)),
    "lenet": (lenet, (3, 32, 32)),
    "simple_cnn": (simple_cnn, (1, 28, 28)),
    "resnet": (resnet, (3, 32, 32)),
    "resnet50": (resnet50, (3, 224, 224)),
    "resnext50": (resnext50, (3, 224, 224)),
    "mixed_resnet": (mixed_resnet, (3, 64, 64)),
    "nested_resnet": (nested_resnet, (3, 32, 32)),
    "wide_resnet": (wide_resnet, (3, 32, 32)),
    "vgg16": (vgg16, (3, 32, 32)),
    "unet": (unet, (3, 32, 32)),
    "ssd": (ssd, (1, 64, 64)),
    "actor_critic": (actor_critic, (4,)),
    "q_network": (q_network, (4,)),
    "repvgg": (repvgg, (3, 224, 224)),
    "squeezenet": (squeezenet, (3, 224, 224)),
    "inception_v3": (inception_v3, (3, 299, 299)),
    "nasnet_a": (nasnet_a, (3, 224, 224)),
    "transformer": (transformer, (32,)),
    "bert": (bert, (64,)),
    "attention_block": (attention_block, (64, 768)),
    "lstm": (lstm, (28, 28)),
    "nasrnn": (nasrnn, (5, 512)),
    "conv1d": (conv1d, (40, 13)),
    "conv1d_ctc": (conv1d_ctc, (128, 13)),
    "bigru": (bigru, (40, 13)),
    "gru_language_model": (gru_language_model, (64,)),
    "lstm_language_model": (lstm_language_model, (64,)),
    "causal_transformer": (causal_transformer, (64,)),
    "encoder_decoder": (encoder_decoder, (12,)),
}

OF_TOKENS = (transformer, bert, gru_language_model, lstm_language_model, causal_transformer, encoder_decoder)
"""Builders whose samples of shape (length,) are int64 tokens."""


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
    for key in kwargs:
        if key not in options:
            raise NetworkError(f"model {name!r}: got option {key!r}; expected one of its own: {nearest(key, options)}")
    sample = usual if shape is None else tuple(shape)
    for what, value in [
        ("batch", 1 if batch is None else batch),
        ("classes", classes),
        *(("shape", s) for s in sample),
    ]:
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
            raise NetworkError(f"model {name!r}: got {what} {value!r}; expected whole numbers >= 1: choose such a size")
    dtype = "int64" if model in OF_TOKENS and len(sample) == 1 else "float32"
    build = Builder(name, "N" if batch is None else int(batch), tuple(int(s) for s in sample), seed, dtype)
    return model(build, int(classes), **kwargs)


def _model(name: str) -> tuple[Callable[..., Network], tuple[int, ...]]:
    if name not in MODELS:
        raise NetworkError(f"got model {name!r}; expected one of the zoo's: {nearest(name, MODELS)}")
    return MODELS[name]
