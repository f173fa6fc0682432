"""Exports, imports, measures; see the package's docstring."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

import deep500.frameworks.pytorch as d5fw
import tests.benchmarks.imported
from deep500.measure.statistics import Interval
from deep500.networks import Network
from deep500.networks.emit import Emitter
from tests.benchmarks.filling import say, say_ratio
from tests.benchmarks.imported import COMPILED, FIRST, INFERENCE, RUNTIME, STEP
from tests.benchmarks.imported.models import MODELS
from tests.benchmarks.turns import Comparison, Work, compare, geometric_mean, measure, ratio_of

OPSET = 18
BAR, RUNTIME_BAR, COMPILED_BAR = 1.05, 1.01, 0.80
SOME = ("resnet", "unet", "bert", "gru")
"""What is compiled unless others are named: each takes minutes."""
TOLERANCE = 1e-4  # of outputs, in float32


@dataclass
class Subject:
    """A module with its inputs, and the file that it was exported to, with and without a loss."""

    name: str
    module: torch.nn.Module
    args: tuple[torch.Tensor, ...]
    data: bytes
    network: Network

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """By the network's names."""
        given = {f"x{i}": value for i, value in enumerate(self.args)}
        return {name: value for name, value in given.items() if name in self.network.inputs}

    def with_loss(self) -> Network:
        """The network with the mean of its output's squares as loss."""
        network = self.network.copy()
        emit = Emitter(network)
        emit("ReduceMean", emit("Mul", "y", "y"), output="loss", keepdims=0)
        network.add_output("loss")
        return network


def export(name: str, exporter: str) -> Subject:
    """Build a module and export it, in training mode."""
    torch.manual_seed(0)
    module, args = MODELS[name]()
    module.train()
    names = [f"x{i}" for i in range(len(args))]
    options: dict[str, Any] = {"input_names": names, "output_names": ["y"], "opset_version": OPSET}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            program = torch.onnx.export(module, args, dynamo=True, **options)
            data = program.model_proto.SerializeToString()  # type: ignore[union-attr]
        else:
            file = io.BytesIO()
            mode = torch.onnx.TrainingMode.PRESERVE
            torch.onnx.export(module, args, file, dynamo=False, training=mode, do_constant_folding=False, **options)
            data = file.getvalue()
        network = Network.from_onnx(data)
    return Subject(name, module, args, data, network)


def native_step(subject: Subject) -> Work:
    """The plain loop's body, with the fused kernel that our optimizer uses too."""
    module, args = subject.module, subject.args
    optimizer = torch.optim.SGD(module.parameters(), 0.0, 0.9, fused=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        y = module(*args)
        loss = (y * y).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def deep500_step(subject: Subject, **options: Any) -> Work:
    """A step of the imported network."""
    optimizer = d5fw.MomentumOptimizer(d5fw.from_model(subject.with_loss(), **options), "loss", 0.0, 0.9)
    inputs = subject.inputs
    return lambda: optimizer.step(inputs)["loss"]


def native_inference(subject: Subject) -> Work:
    """The module in evaluation mode."""

    def infer() -> torch.Tensor:
        with torch.no_grad():
            return subject.module(*subject.args)

    return infer


def deep500_inference(subject: Subject, **options: Any) -> Work:
    """The executor; ONNX's names of inputs and outputs."""
    executor, inputs = d5fw.from_model(subject.network, **options), subject.inputs
    return lambda: executor.inference(inputs)["y"]


def agree(subject: Subject) -> float:
    """How far outputs in evaluation mode are apart, in parts of the largest; more than the tolerance is an error."""
    subject.module.eval()
    wanted, found = native_inference(subject)(), deep500_inference(subject)()
    subject.module.train()
    apart = float((wanted - found).abs().max() / wanted.abs().max())  # type: ignore[operator]
    if apart > TOLERANCE:
        raise AssertionError(f"{subject.name}: got outputs that differ by {apart:.1e}; expected at most {TOLERANCE}")
    return apart


def compare_with_module(subject: Subject, rounds: int) -> tuple[Interval, Interval]:
    """A training step, then an inference, against the module."""
    found = Counter(d5fw.from_model(subject.network).module.recognised.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.items()) or "nothing"
    print(
        f"{subject.name}: {len(subject.network.nodes)} nodes, outputs within {agree(subject):.0e}; recognised: {kinds}"
    )
    steps = {"module": native_step(subject), "deep500": deep500_step(subject)}
    step = compare(Comparison(f"{subject.name}, step", lambda: steps, 2), rounds)
    subject.module.eval()
    inferences = {"module": native_inference(subject), "deep500": deep500_inference(subject)}
    return step, compare(Comparison(f"{subject.name}, inference", lambda: inferences, 8), rounds)


def compare_with_eager(subject: Subject, rounds: int) -> Iterator[tuple[Interval, float]]:
    """Ratios of the executor with ``compile=True`` to the one without, and CPU seconds of its first call."""
    for what, work in (("step", deep500_step), ("inference", deep500_inference)):
        compiled, eager = work(subject, compile=True), work(subject)
        start = time.process_time()
        compiled()
        first = time.process_time() - start
        times = measure({"eager": eager, "compiled": compiled}, rounds, 2)
        ratio = ratio_of(times, "compiled", "eager")
        print(f"{subject.name}, {what}: compiled / eager, CPU: {ratio}; first call {first:.1f} s of CPU")
        yield ratio, first


def compare_with_session(subject: Subject, rounds: int) -> Interval:
    """ONNX Runtime's executor against a bare session of the file."""
    import onnxruntime as ort

    import deep500.frameworks.onnxruntime as d5ort

    feeds = {name: value.numpy() for name, value in subject.inputs.items()}
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(subject.data, options, providers=["CPUExecutionProvider"])
    executor = d5ort.from_model(subject.network, threads=1)
    apart = np.abs(session.run(None, feeds)[0] - executor.inference(feeds)["y"]).max()
    print(f"{subject.name}: outputs within {apart:.0e} of the bare session's")
    works: dict[str, Work] = {"bare": lambda: session.run(None, feeds), "deep500": lambda: executor.inference(feeds)}
    return compare(Comparison(f"{subject.name}, ONNX Runtime's inference", lambda: works, 16), rounds)


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=tests.benchmarks.imported.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("module", "compile", "runtime")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts, help="only these")
    parser.add_argument("--only", help="models, separated by commas")
    parser.add_argument("--exporter", choices=("legacy", "dynamo"), default="legacy")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    print(f"torch {torch.__version__}, exporter {options.exporter}, opset {OPSET}, 1 thread")
    names = options.only.split(",") if options.only else list(MODELS)
    steps, inferences, runtimes, compiled = {}, {}, {}, []
    try:
        for name in names:
            subject = export(name, options.exporter)
            if "module" in options.part:
                steps[name], inferences[name] = compare_with_module(subject, options.rounds)
            if "compile" in options.part and (options.only or name in SOME):
                compiled += compare_with_eager(subject, options.rounds)
            if "runtime" in options.part:
                runtimes[name] = compare_with_session(subject, options.rounds)
    except ModuleNotFoundError as error:
        print(f"got no package {error.name!r}; expected it installed: pip install {error.name}", file=sys.stderr)
        return 3
    met = True
    if steps:
        met &= say_ratio(STEP, steps, at_most=BAR)
        met &= say_ratio(INFERENCE, inferences, at_most=BAR)
    if compiled:
        ratios, first = zip(*compiled, strict=True)
        met &= say_ratio(COMPILED, geometric_mean(ratios), at_most=COMPILED_BAR, unit="of steps and inferences")
        say(FIRST, f"{min(first):.1f} to {max(first):.1f} s of CPU, {len(first)} steps and inferences")
    if runtimes:
        met &= say_ratio(RUNTIME, runtimes, at_most=RUNTIME_BAR)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
