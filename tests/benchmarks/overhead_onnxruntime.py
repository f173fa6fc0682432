"""What Deep500 costs on top of ONNX Runtime: ``python -m tests.benchmarks.overhead_onnxruntime [--rounds N]``.

ResNet-20 (CIFAR shape), inference, against a bare ``InferenceSession`` of the same model, one thread. Variants take
turns in random order within one process; each round gives one pair. Bare against bare shows what cannot be resolved.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import time
from collections.abc import Callable, Mapping

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime as ort

import deep500.frameworks.onnxruntime as d5fw
from deep500.measure.statistics import median_interval, paired_ratio
from deep500.networks import Network, create

BAR = 1.02


def bare(network: Network, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """The session that a user would make."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    model = network.to_onnx(opset=22).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def ours(network: Network, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """The executor, inputs checked at every call."""
    executor = d5fw.from_model(network, threads=1)
    return lambda: executor.inference(feeds)


def measure(variants: Mapping[str, Callable[[], object]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds of CPU per call of each variant, in turns in random order."""
    order, times = list(variants), {name: [] for name in variants}
    shuffle = random.Random(0).shuffle
    for work in variants.values():
        for _ in range(5):
            work()
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            work, start = variants[name], time.process_time()
            for _ in range(calls):
                work()
            times[name].append((time.process_time() - start) / calls)
    return times


def main() -> int:
    """Parse the command line, measure, print; 1 if the interval's lower end is above the bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--batches", default="1,8")
    options = parser.parse_args()
    network, missed = create("resnet", depth=20), False
    print(f"ResNet-20 inference, onnxruntime {ort.__version__}, 1 thread, CPU time")
    gc.disable()
    for size in [int(n) for n in options.batches.split(",")]:
        feeds = {"input": np.random.default_rng(0).standard_normal((size, 3, 32, 32)).astype(np.float32)}
        variants = {"bare": bare(network, feeds), "bare again": bare(network, feeds), "deep500": ours(network, feeds)}
        times = measure(variants, options.rounds, max(1, 24 // size))
        print(f"batch {size}: bare {median_interval(times['bare']).median * 1e3:.4g} ms")
        for name in ("bare again", "deep500"):
            ratio = paired_ratio(times[name], times["bare"])
            verdict = ""
            if name == "deep500" and size == 1:
                verdict = f"  bar {BAR}: {'met' if ratio.median <= BAR else 'MISSED'}"
                missed = ratio.low is not None and ratio.low > BAR
            print(f"  {name:>12} / bare: {ratio}{verdict}")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
