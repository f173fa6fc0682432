"""What Deep500 costs on top of TensorFlow: ``python -m tests.benchmarks.overhead_tensorflow [--rounds N]``.

ResNet-20 (CIFAR shape): a training step against the same network written by hand, channels last, in one ``tf.function``
on one thread; and inference at batch 1. Variants take turns in random order within one process; each round gives one
pair. The yardstick is fed images with channels last, Deep500 in ONNX's layout, so that transposing them is part of its
cost. Native against native again shows what the method cannot resolve.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping

import numpy as np

import deep500.frameworks.tensorflow as d5fw
from deep500.frameworks.tensorflow.runtime import tf
from deep500.measure.statistics import median_interval, paired_ratio
from deep500.networks import add_loss, create
from tests.benchmarks.native_resnet_tensorflow import ResNet20, training_step

LR, MOMENTUM, BAR = 0.01, 0.9, 1.05
Work = Callable[[], object]


def images_of(size: int) -> tuple[np.ndarray, np.ndarray]:
    """One batch of noise, channels first."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((size, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, size)


def native_step(size: int) -> Work:
    """The hand-written step."""
    images, labels = images_of(size)
    step, batch = (
        training_step(ResNet20(), LR, MOMENTUM),
        tf.constant(np.ascontiguousarray(images.transpose(0, 2, 3, 1))),
    )
    answer = tf.constant(labels)
    return lambda: float(step(batch, answer)[0])


def deep500_step(size: int) -> Work:
    """One step through executor and optimizer."""
    images, labels = images_of(size)
    optimizer = d5fw.MomentumOptimizer(d5fw.from_model(add_loss(create("resnet", depth=20))), "loss", LR, MOMENTUM)
    inputs = {"input": tf.constant(images), "label": tf.constant(labels)}
    return lambda: float(optimizer.step(inputs)["loss"])


def native_inference(size: int) -> Work:
    """The hand-written network in evaluation mode."""
    images, _ = images_of(size)
    model, batch = ResNet20(), tf.constant(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    function = tf.function(lambda x: model(x, False), autograph=False)
    return lambda: np.asarray(function(batch))


def deep500_inference(size: int) -> Work:
    """The same through the executor."""
    images, _ = images_of(size)
    executor, inputs = d5fw.from_model(create("resnet", depth=20)), {"input": tf.constant(images)}
    return lambda: np.asarray(executor.inference(inputs)["output"])


def measure(variants: Mapping[str, Work], rounds: int, calls: int) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall seconds per call of each variant, in turns in random order."""
    order, shuffle = list(variants), random.Random(0).shuffle
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for work in variants.values():
        for _ in range(3):
            work()
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            work, cpu, wall = variants[name], time.process_time(), time.perf_counter()
            for _ in range(calls):
                work()
            times[name].append(((time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls))
    return times


def report(what: str, size: int, times: Mapping[str, list[tuple[float, float]]]) -> None:
    """One line per ratio, with the verdict on the bar."""
    native = median_interval([cpu for cpu, _ in times["native"]])
    print(f"{what}, batch {size}: native {native.median * 1e3:.3g} ms of CPU ({native.n} rounds)")
    for name in [n for n in times if n != "native"]:
        for clock, column in (("CPU", 0), ("wall", 1)):
            ratio = paired_ratio([t[column] for t in times[name]], [t[column] for t in times["native"]])
            met = f"  bar {BAR}: {'met' if ratio.median <= BAR else 'MISSED'}"
            print(f"  {name:>14} / native, {clock:>4}: {ratio}{met if (name, clock) == ('deep500', 'CPU') else ''}")


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batches", default="8,64")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for size in map(int, options.batches.split(",")):
        variants = {"native": native_step(size), "native again": native_step(size), "deep500": deep500_step(size)}
        report("step", size, measure(variants, options.rounds, max(1, 16 // size)))
    variants = {"native": native_inference(1), "native again": native_inference(1), "deep500": deep500_inference(1)}
    report("inference", 1, measure(variants, options.rounds, 16))


if __name__ == "__main__":
    main()
