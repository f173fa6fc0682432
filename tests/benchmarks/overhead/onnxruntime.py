"""ONNX Runtime: an inference against a bare session of the same model."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime as ort

import deep500.frameworks.onnxruntime as d5fw
from deep500.networks import Network, create
from tests.benchmarks.overhead import RUNTIME
from tests.benchmarks.turns import Comparison, Work


def version() -> str:
    """The framework; the garbage collector is off while it is measured."""
    gc.disable()
    return f"onnxruntime {ort.__version__}"


def comparisons(sizes: Sequence[int]) -> Iterator[Comparison]:
    """An inference; the bar is that of one image."""
    for size in sizes:
        what, calls = f"inference, batch {size}", max(1, 24 // size)
        yield Comparison(what, lambda size=size: inferences(size), calls, RUNTIME if size == 1 else "", 1.02, 1.5)


def inferences(size: int) -> dict[str, Work]:
    """The ways to classify a batch."""
    network = create("resnet", depth=20)
    feeds = {"input": np.random.default_rng(0).standard_normal((size, 3, 32, 32)).astype(np.float32)}
    return {"bare": bare(network, feeds), "bare again": bare(network, feeds), "deep500": ours(network, feeds)}


def bare(network: Network, feeds: Mapping[str, np.ndarray]) -> Work:
    """The session that a user would make."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    model = network.to_onnx(opset=22).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def ours(network: Network, feeds: Mapping[str, np.ndarray]) -> Work:
    """The executor, inputs checked at every call."""
    executor = d5fw.from_model(network, threads=1)
    return lambda: executor.inference(feeds)
