"""What Deep500 costs on top of PyTorch: ``python -m tests.benchmarks.overhead [--rounds N] [--batches 1,8] [--quick]``.

ResNet-20 (CIFAR shape), forward, backward and momentum update, against the same network written by hand with a plain
loop, on one thread of the CPU. Variants take turns in random order within one process; each round gives one pair. The
ratio's interval is that of paired samples, and native against native again shows what the method cannot resolve.
"""

from __future__ import annotations

import argparse
import io
import random
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F

import deep500.frameworks.pytorch as d5fw
from deep500.measure.statistics import median_interval, paired_ratio
from deep500.networks import add_loss, create
from deep500.training.data.dataset import NumpyDataset
from deep500.training.data.samplers import ShuffleSampler
from deep500.training.listeners import DefaultTrainerEvents, ProgressBar
from deep500.training.trainer import Trainer
from tests.benchmarks.native_resnet import ResNet20

LR, MOMENTUM = 0.01, 0.9
BARS = {"step": 1.02, "epoch": 1.03}
SAMPLES = {1: 64, 8: 256, 64: 512}  # per epoch
Work = Callable[[], object]
Times = dict[str, list[tuple[float, float]]]


def batch_of(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One batch of noise."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((size, 3, 32, 32)).astype(np.float32)
    return torch.from_numpy(images), torch.from_numpy(rng.integers(0, 10, size))


def native_step(images: torch.Tensor, labels: torch.Tensor, **options: bool) -> Work:
    """The plain loop's body."""
    model = ResNet20()
    optimizer = torch.optim.SGD(model.parameters(), LR, MOMENTUM, **options)

    def step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def deep500_optimizer() -> d5fw.MomentumOptimizer:
    """The same in Deep500."""
    return d5fw.MomentumOptimizer(d5fw.from_model(add_loss(create("resnet", depth=20))), "loss", LR, MOMENTUM)


def deep500_step(images: torch.Tensor, labels: torch.Tensor) -> Work:
    """One step through executor and optimizer."""
    optimizer, inputs = deep500_optimizer(), {"input": images, "label": labels}
    return lambda: optimizer.step(inputs)


def sampler_of(size: int) -> ShuffleSampler:
    """An epoch of noise; both loops read it the same way."""
    rng, count = np.random.default_rng(0), SAMPLES.get(size, 4 * size)
    images = rng.standard_normal((count, 3, 32, 32)).astype(np.float32)
    return ShuffleSampler(NumpyDataset(images, "input", rng.integers(0, 10, count)), size)


def native_epoch(size: int) -> Work:
    """The plain loop over an epoch, with training loss and accuracy."""
    sampler, model = sampler_of(size), ResNet20()
    optimizer = torch.optim.SGD(model.parameters(), LR, MOMENTUM)

    def epoch() -> tuple[float, float]:
        total, correct, count = torch.zeros(()), torch.zeros((), dtype=torch.int64), 0
        for batch in sampler:
            images, labels = torch.from_numpy(batch["input"]), torch.from_numpy(batch["label"])
            optimizer.zero_grad()
            output = model(images)
            loss = F.cross_entropy(output, labels)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(labels)
            correct += (output.argmax(1) == labels).sum()
            count += len(labels)
        return total.item() / count, correct.item() / count

    return epoch


def deep500_epoch(size: int) -> Work:
    """One more epoch of a Trainer with its default events, the progress bar drawn as on a terminal."""
    optimizer = deep500_optimizer()
    trainer = Trainer(sampler_of(size), None, optimizer.executor, optimizer)

    def epoch() -> None:
        events = DefaultTrainerEvents(trainer.epoch + 1)
        for event in events:
            if isinstance(event, ProgressBar):
                event.file, event.force = io.StringIO(), True
        trainer.run(trainer.epoch + 1, events)

    return epoch


def measure(variants: Mapping[str, Work], rounds: int, calls: int, seed: int = 0) -> Times:
    """CPU and wall seconds per call of each variant, in turns in random order."""
    order, times = list(variants), {name: [] for name in variants}
    shuffle = random.Random(seed).shuffle
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


def report(what: str, size: int, times: Times) -> None:
    """One line per ratio, with the verdict on the bar where there is one."""
    native = median_interval([cpu for cpu, _ in times["native"]])
    print(f"{what}, batch {size}: native {native.median * 1e3:.3g} ms of CPU ({native.n} rounds)")
    for name in [n for n in times if n != "native"]:
        for clock, column in (("CPU", 0), ("wall", 1)):
            ratio = paired_ratio([t[column] for t in times[name]], [t[column] for t in times["native"]])
            verdict = ""
            if name == "deep500" and clock == "CPU":
                sure = ratio.high is not None and ratio.low is not None and not ratio.low <= BARS[what] <= ratio.high
                verdict = f"  bar {BARS[what]}: {'met' if ratio.median <= BARS[what] else 'MISSED'}"
                verdict += "" if sure else " (the interval holds the bar: more rounds would tell)"
            print(f"  {name:>20} / native, {clock:>4}: {ratio}{verdict}")


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--quick", action="store_true", help="few rounds, batch 1 and 8: does it run, not how fast")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [1, 8] if options.quick else [int(n) for n in options.batches.split(",")]
    rounds = 8 if options.quick else options.rounds
    print(f"ResNet-20, 272,474 parameters, torch {torch.__version__}, 1 thread")
    for size in sizes:
        batch = batch_of(size)
        variants = {
            "native": native_step(*batch),
            "native again": native_step(*batch),
            "native, fused update": native_step(*batch, fused=True),
            "deep500": deep500_step(*batch),
        }
        report("step", size, measure(variants, rounds, max(1, 16 // size)))
    for size in sizes:
        variants = {"native": native_epoch(size), "native again": native_epoch(size), "deep500": deep500_epoch(size)}
        report("epoch", size, measure(variants, max(8, rounds // 3), 1))


if __name__ == "__main__":
    main()
