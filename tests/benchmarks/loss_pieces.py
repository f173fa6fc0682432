"""The last layer and its loss in pieces, over the same step with the scores formed whole: time in pairs, and memory.

    python -m tests.benchmarks.loss_pieces
    python -m tests.benchmarks.loss_pieces --backends pytorch jax --rounds 12 --words 32000

Beside them PyTorch's own ``linear_cross_entropy``, chunked, on the same numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from deep500.networks import Network
from deep500.networks.execution.capabilities import step_memory
from deep500.registry import load_backend
from deep500.transformations.loss_pieces import microbatch_loss
from tests.benchmarks import turns

BACKENDS = ("reference", "pytorch", "jax", "tensorflow", "onnxruntime")
FIGURES = {
    "peak of the stage, pieces over whole, 8 pieces": "at most .25",
    "CPU time, pieces over whole, 8 pieces": "at most 1.10 on three backends, by the interval",
    "the same over torch's linear_cross_entropy": "no bar",
}
ITEMS, TOKENS, WIDTH = 8, 256, 256


def head(words: int) -> Network:
    """A layer from features of tokens to scores of words, and the loss."""
    network = Network("head")
    network.add_input("x", ("N", TOKENS, WIDTH))
    network.add_input("label", ("N", TOKENS), "int64")
    rng = np.random.default_rng(0)
    network.add_parameter("gain", np.ones(WIDTH, np.float32))
    network.add_parameter("weight", (rng.standard_normal((WIDTH, words)) / 16).astype(np.float32))
    network.add_node("Mul", ["x", "gain"], "features")
    network.add_node("MatMul", ["features", "weight"], "scores")
    network.add_node("Transpose", ["scores"], "output", perm=[0, 2, 1])
    network.add_node("SoftmaxCrossEntropyLoss", ["output", "label"], "loss", ignore_index=-100)
    network.add_output("loss")
    return network


def batch(words: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, words, (ITEMS, TOKENS))
    labels[:, ::7] = -100
    return {"x": rng.standard_normal((ITEMS, TOKENS, WIDTH)).astype(np.float32), "label": labels}


def peer(words: int) -> Callable[[], None] | None:
    """A step by PyTorch's own, if this PyTorch has it."""
    import torch

    function = getattr(torch.nn.functional, "linear_cross_entropy", None)
    if function is None:
        return None
    chunked: Any = torch.nn.LinearCrossEntropyOptions()
    arrays, network = batch(words), head(words)
    features = torch.tensor(arrays["x"]).reshape(-1, WIDTH)
    labels = torch.tensor(arrays["label"]).reshape(-1)
    gain = torch.ones(WIDTH, requires_grad=True)
    weight = torch.tensor(network.parameter("weight").value.T.copy(), requires_grad=True)

    def step() -> None:
        gain.grad = weight.grad = None
        function(features * gain, weight, labels, ignore_index=-100, options=chunked).backward()

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--words", type=int, default=16000)
    parser.add_argument("--pieces", type=int, nargs="+", default=[8, 16])
    options = parser.parse_args()
    return 0 if all([_measured(backend, options) for backend in options.backends]) else 1


def _measured(backend: str, options: argparse.Namespace) -> bool:
    inputs, network, met = batch(options.words), head(options.words), True
    for pieces in options.pieces:
        executors = [load_backend(backend).from_model(net) for net in (network, microbatch_loss(network, pieces))]
        whole, cut = (partial(_step, executor, inputs) for executor in executors)
        work: dict[str, turns.Work] = {"whole": whole, "deep500": cut}
        if backend == "pytorch" and (own := peer(options.words)) is not None:
            work["linear_cross_entropy"] = own
        times = turns.measure(work, options.rounds, 1, warm_up=2)
        compared = turns.Comparison(f"{backend}, {pieces} pieces", lambda: {}, 1, bar=1.10)
        met &= turns.report(compared, times)
        peaks = [step_memory(executor, inputs) for executor in executors]
        if peaks[0] is None or peaks[1] is None:
            print("  peak: not measured, the backend does not count bytes", flush=True)
            continue
        share = peaks[1] / peaks[0]
        print(
            f"  peak {share:.3f} of {peaks[0] / 1e6:.0f} MB  bar .25: {'met' if share <= 0.25 else 'MISSED'}",
            flush=True,
        )
        met &= share <= 0.25
    return met


def _step(executor: Any, inputs: dict[str, np.ndarray]) -> None:
    executor.inference_and_backprop(inputs)
    executor.synchronize()


if __name__ == "__main__":
    sys.exit(main())
