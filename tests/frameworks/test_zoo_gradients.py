"""Every network of the zoo in float64, from the same weights and the same batch: all backends give one answer.

The reference's gradients are emitted as ONNX nodes; PyTorch, TensorFlow and JAX differentiate by themselves. Networks
follow one another, backends within a network, so that the reference's answer is computed once for all of them.
"""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

import numpy as np
import pytest

from deep500.networks import Network, add_loss, create, to_dtype
from tests.conftest import load_backend
from tests.tolerances import as_numpy, assert_close

ZOO: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {}),
    "lenet": ("lenet", {}),
    "simple_cnn": ("simple_cnn", {}),
    "resnet20": ("resnet", {"shape": (3, 16, 16)}),
    "resnet8-A": ("resnet", {"depth": 8, "shortcut": "A", "shape": (3, 16, 16)}),
    "resnet50": ("resnet50", {"shape": (3, 32, 32)}),
    "wide_resnet": ("wide_resnet", {"depth": 10, "widen_factor": 2, "shape": (3, 16, 16)}),
    "unet": ("unet", {"width": 4, "levels": 2, "shape": (3, 8, 12)}),
    "vgg16": ("vgg16", {"shape": (3, 32, 32)}),
    "transformer": ("transformer", {}),
    "lstm": ("lstm", {}),
    "resnext50": ("resnext50", {"shape": (3, 32, 32), "blocks": (1, 1), "groups": 8}),
    "squeezenet": ("squeezenet", {"shape": (3, 33, 33)}),
    "inception_v3": ("inception_v3", {"shape": (3, 75, 75), "modules": (1, 1, 1)}),
    "nasnet_a": ("nasnet_a", {"shape": (3, 33, 36), "cells": 1, "filters": 8, "groups": 1}),
    "repvgg": ("repvgg", {"shape": (3, 16, 16), "blocks": (2, 1), "widths": (8, 16), "branches": 2}),
    "bert": ("bert", {"shape": (9,), "vocabulary": 20, "width": 16, "heads": 4, "layers": 2}),
    "attention_block": ("attention_block", {"shape": (9, 16), "heads": 4}),
    "nasrnn": ("nasrnn", {"shape": (3, 12)}),
}
RELATIVE = {"pytorch": 1e-10, "tensorflow": 1e-9, "jax": 1e-9, "onnxruntime": 1e-9}
"""How far values may be from the reference's, of their norm."""
LONG = {  # what takes a backend half a minute, without an operator that smaller networks lack
    ("resnet50", "tensorflow"): "tracing",
    ("resnet50", "onnxruntime"): "building the gradient",
    ("vgg16", "onnxruntime"): "building the gradient",
    ("vgg16", "tensorflow"): "tracing",
    ("inception_v3", "jax"): "tracing",
    ("inception_v3", "onnxruntime"): "building the gradient",
    ("inception_v3", "tensorflow"): "tracing",
    ("nasnet_a", "jax"): "tracing",
    ("nasnet_a", "onnxruntime"): "building the gradient",
}
CASES = [(name, backend) for name in ZOO for backend in RELATIVE]


class Answer(NamedTuple):
    """What a backend makes of a network and a batch."""

    inference: dict[str, np.ndarray] | None
    training: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]
    state: dict[str, np.ndarray]


@functools.lru_cache(maxsize=1)
def case(name: str) -> tuple[Network, dict[str, np.ndarray], Answer]:
    """A network with a loss and without Dropout, whose masks no two frameworks draw alike; a batch; the answer."""
    model, options = ZOO[name]
    network = to_dtype(add_loss(create(model, seed=1, **options)), "float64")
    for node in network.nodes:
        if node.op_type == "Dropout":
            network.remove_node(node.name, reconnect=True)
    rng, feeds = np.random.default_rng(7), {}
    for key, described in network.inputs.items():
        shape = [n if isinstance(n, int) else 4 for n in described.shape or ()]
        feeds[key] = rng.integers(0, 10, shape) if "int" in str(described.dtype) else rng.normal(size=shape)
    return network, feeds, answer(network, feeds, "reference")


def answer(network: Network, feeds: dict[str, np.ndarray], backend: str) -> Answer:
    """Inference (not where it is compiled apart, for time), then one run with gradients."""
    executor = load_backend(backend).from_model(network)
    modes = [executor.inference] * (backend in ("reference", "pytorch")) + [executor.inference_and_backprop]
    *inference, training = [{n: as_numpy(v).copy() for n, v in run(feeds).items()} for run in modes]
    names = [gradient for _, gradient in network.gradient()]
    gradients = dict(zip(names, map(as_numpy, executor.network.fetch_tensors(names)), strict=True))
    return Answer(inference[0] if inference else None, training, gradients, executor.network.state())


@pytest.mark.parametrize(("name", "backend"), CASES, ids=[f"{name}-{backend}" for name, backend in CASES])
@pytest.mark.slow
def test_gradients_of_the_zoo_agree(name: str, backend: str) -> None:
    load_backend(backend)
    if (name, backend) in LONG and not os.environ.get("DEEP500_TEST_LONG"):
        pytest.skip(f"{LONG[name, backend]} takes half a minute: set DEEP500_TEST_LONG=1 to have it")
    network, feeds, want = case(name)
    got = answer(network, feeds, backend)
    for ours, theirs in zip(got[:2], want[:2], strict=True):
        if ours is None:
            continue
        assert np.abs(theirs["output"]).max() > 1e-3
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            assert np.linalg.norm(ours[key] - value) <= RELATIVE[backend] * np.linalg.norm(value), key
    scale = max(map(np.linalg.norm, want.gradients.values()))
    assert len(want.gradients) == len(network.trainable()) and scale > 1e-3
    for key, value in want.gradients.items():
        allowed = RELATIVE[backend] * max(np.linalg.norm(value), 1e-3 * scale)
        assert np.linalg.norm(got.gradients[key] - value) <= allowed, key
    for key, value in want.state.items():  # running statistics moved alike
        assert_close(got.state[key], value, "forward", key)
