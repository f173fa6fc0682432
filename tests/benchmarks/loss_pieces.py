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

from deep500.measure.statistics import Interval
from deep500.networks import Network
from deep500.networks.execution.capabilities import step_memory
from deep500.registry import load_backend
from deep500.transformations.loss_pieces import microbatch_loss
from tests.benchmarks import turns
from tests.benchmarks.filling import say, say_not, say_ratio, with_ends

BACKENDS = ("reference", "pytorch", "jax", "tensorflow", "onnxruntime")
FIGURES = {
    "peak of the stage, pieces over whole, 8 pieces": "at most .25",
    "CPU time, pieces over whole, 8 pieces": "at most 1.10 on three backends, by the interval",
    "the same over torch's linear_cross_entropy": "no bar",
}
PEAK, TIME, PEER = FIGURES
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
    peaks: dict[str, float] = {}
    ratios: dict[str, Interval] = {}
    for backend in options.backends:
        _measure(backend, options, peaks, ratios)
    met = True
    if peaks:
        met &= say_ratio(PEAK, peaks, at_most=0.25)
    over_peer = ratios.pop("peer", None)
    if ratios:
        within = sum(ratio.high is not None and ratio.high <= 1.10 for ratio in ratios.values())
        met &= say(TIME, "; ".join(f"{key}: {with_ends(ratio)}" for key, ratio in ratios.items()), within >= 3)
    if over_peer is not None:
        say_ratio(PEER, over_peer)
    elif "pytorch" in options.backends:
        say_not(PEER, "this PyTorch has no linear_cross_entropy")
    return 0 if met else 1


def _measure(backend: str, options: argparse.Namespace, peaks: dict[str, float], ratios: dict[str, Interval]) -> None:
    """Print by number of pieces; keep what the figures are of, 8 pieces, by backend (``peer``: over PyTorch's own)."""
    inputs, network = batch(options.words), head(options.words)
    for pieces in options.pieces:
        executors = [load_backend(backend).from_model(net) for net in (network, microbatch_loss(network, pieces))]
        whole, cut = (partial(_step, executor, inputs) for executor in executors)
        work: dict[str, turns.Work] = {"whole": whole, "deep500": cut}
        if backend == "pytorch" and (own := peer(options.words)) is not None:
            work["linear_cross_entropy"] = own
        times = turns.measure(work, options.rounds, 1, warm_up=2)
        ratio = turns.report(f"{backend}, {pieces} pieces", times)
        counted = [step_memory(executor, inputs) for executor in executors]
        share = None if counted[0] is None or counted[1] is None else counted[1] / counted[0]
        print("  peak: " + ("not counted by the backend" if share is None else f"{share:.3f}"), flush=True)
        if pieces == 8:
            ratios[backend] = ratio
            if "linear_cross_entropy" in work:
                ratios["peer"] = turns.ratio_of(times, "deep500", "linear_cross_entropy")
            if share is not None:
                peaks[backend] = share


def _step(executor: Any, inputs: dict[str, np.ndarray]) -> None:
    executor.inference_and_backprop(inputs)
    executor.synchronize()


if __name__ == "__main__":
    sys.exit(main())
