"""The cells of one model in one backend: errors (``accuracy``) and times (``speed``), each a number or a reason.

Run as a program it is one process of the table: ``python -m tests.models.cells PART MODEL BACKEND
FOLDER`` prints its cells as one line of JSON, the last of its output.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from deep500.errors import Deep500Error
from deep500.measure.statistics import median_interval, paired_ratio
from deep500.networks import Network, gradient_name, to_dtype
from deep500.registry import load_backend
from tests.models.architectures import ARCHITECTURES
from tests.models.compare import relative_difference
from tests.models.exported import Exported, export, match
from tests.models.originals import RATE, NotComparable, add_weighted_loss, original

Cell = dict[str, Any]
BUDGET = 1.0
"""Seconds of CPU that the rounds of one ratio may take, as long as there are enough for an interval."""
ROUNDS, FEWEST, PATIENCE = 30, 6, 60.0
LENGTH = 160
MEMORY = 8 << 30
"""Bytes that one process may hold."""


def reason_of(error: BaseException) -> str:
    """The first line of an error, with its type where it is not one of Deep500's own."""
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    kind = "" if isinstance(error, (Deep500Error, NotComparable, AssertionError)) else f"{type(error).__name__}: "
    return shorten(f"{kind}{line}")


def shorten(line: str) -> str:
    """A line as the page shows it: without folders, which differ from machine to machine, and not too long."""
    line = re.sub(r"(/[^\s/:]+)+/(?=[^\s/]+\.onnx)", "", line)
    return line if len(line) <= LENGTH else line[:LENGTH].rpartition(" ")[0] + " ..."


def attempt(measure: Callable[[], Cell]) -> Cell:
    """A cell, or the reason why there is none."""
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is what the table is to show
        return {"reason": reason_of(error)}


# -- accuracy ----------------------------------------------------------------------------------------------------------
def named_inputs(network: Network, exported: Exported) -> dict[str, np.ndarray]:
    """The inputs under the file's names; exporters may drop some that the model does not need, or rename a lone one."""
    if set(network.inputs) <= set(exported.inputs):
        return {name: exported.inputs[name] for name in network.inputs}
    return dict(zip(network.inputs, exported.inputs.values(), strict=True))


def forward_error(network: Network, exported: Exported, backend: str) -> Cell:
    """Largest difference of any output from the original's, as a share of the largest value there."""
    executor = load_backend(backend).from_model(network)
    outputs = executor.inference(named_inputs(network, exported))
    got = [executor.network.to_numpy(outputs[name]) for name in network.outputs]
    assert len(got) == len(exported.outputs), f"got {len(got)} outputs; expected {len(exported.outputs)}"
    return {"value": max(relative_difference(g, w) for g, w in zip(got, exported.outputs, strict=True))}


def gradient_error(network: Network, exported: Exported, backend: str) -> Cell:
    """Norm of the difference of all gradients, over their norm; in float64."""
    if exported.reason:
        raise NotComparable(exported.reason)
    mine = {name: network.parameters[name].value for name in network.trainable()}
    pairs = match(mine, {name: exported.parameters[name] for name in exported.gradients})
    missing = sorted(name for name, arrays in pairs.items() if not arrays)
    if missing:
        raise NotComparable(f"{len(missing)} of {len(pairs)} parameters do not train in the file: {missing[0]}")
    wide = to_dtype(add_weighted_loss(network.copy(), exported.weights), "float64")
    executor = load_backend(backend).from_model(wide)
    given = {
        n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in named_inputs(network, exported).items()
    }
    executor.inference_and_backprop(given, "loss")
    names = list(dict.fromkeys(name for arrays in pairs.values() for name, _ in arrays))
    tensors = executor.network.fetch_tensors([gradient_name(name) for name in names])
    found = {name: executor.network.to_numpy(tensor) for name, tensor in zip(names, tensors, strict=True)}
    squares = np.zeros(2)
    for name, want in exported.gradients.items():
        got = np.zeros_like(want)
        for mine_name, order in pairs[name]:
            got += found[mine_name].reshape([want.shape[i] for i in order]).transpose(np.argsort(order))
        squares += np.sum((got - want) ** 2), np.sum(want**2)
    norm = float(np.sqrt(squares[1]))
    assert norm > 1e-3, f"the gradient's norm is {norm:.2g}: agreement would say nothing"
    others = sorted(set(mine) - set(names))
    return {
        "value": float(np.sqrt(squares[0])) / norm,
        "parameters": len(pairs),
        "others": others[:3],
        "more": len(others),
    }


def accuracy(exported: Exported, backend: str) -> dict[str, Cell]:
    """Both errors."""
    try:
        network = Network.from_onnx(exported.path)
    except Exception as error:  # noqa: BLE001 - as above
        return {"forward": {"reason": reason_of(error)}, "gradient": {"reason": reason_of(error)}}
    return {
        "forward": attempt(lambda: forward_error(network, exported, backend)),
        "gradient": attempt(lambda: gradient_error(network, exported, backend)),
    }


# -- speed -------------------------------------------------------------------------------------------------------------
def in_turns(works: Sequence[Callable[[], object]], budget: float = BUDGET) -> np.ndarray:
    """Seconds of CPU of each, one column each, from rounds in which they take turns in random order."""
    clock, order = time.process_time, np.random.default_rng(0)
    for work in works:
        work()  # compiles
    start = clock()
    for work in works:
        work()
    once = max(clock() - start, 1e-5)
    rounds = int(np.clip(budget / once, FEWEST, ROUNDS)) if once * FEWEST < PATIENCE else 1
    calls = max(1, int(1e-3 * len(works) / once))  # below a millisecond the clock's own steps would show
    times = np.empty((rounds, len(works)))
    for i in range(rounds):
        for k in order.permutation(len(works)):
            work, start = works[k], clock()
            for _ in range(calls):
                work()
            times[i, k] = (clock() - start) / calls
    return times


def quotient(ours: np.ndarray, theirs: np.ndarray) -> Cell:
    """The ratio of the times of pairs, with its interval."""
    found = paired_ratio(ours, theirs)
    return {"value": found.median, "low": found.low, "high": found.high, "pairs": len(ours)}


def ratio(ours: Callable[[], object], theirs: Callable[[], object], budget: float = BUDGET) -> Cell:
    """CPU time of the one over that of the other, from pairs that are measured in turns."""
    times = in_turns((ours, theirs), budget)
    return quotient(times[:, 0], times[:, 1]) | {"original": median_interval(times[:, 1]).median}


def import_time(path: Path, backend: str) -> Cell:
    """CPU seconds from a file to an executor that is ready; what is imported or loaded once was so before."""
    module = load_backend(backend)
    module.from_onnx(path)
    start = time.process_time()
    module.from_onnx(path)
    return {"value": time.process_time() - start}


def our_inference(exported: Exported, module: Any, **options: Any) -> Callable[[], object]:
    """One run in evaluation mode, to be timed."""
    executor = module.from_onnx(exported.path, **options)
    given = {n: executor.network.to_tensor(v) for n, v in named_inputs(executor.network, exported).items()}

    def run() -> None:
        executor.inference(given)
        executor.synchronize()

    return run


def our_step(exported: Exported, module: Any, **options: Any) -> Callable[[], object]:
    """One training step with gradient descent, to be timed."""
    network = add_weighted_loss(Network.from_onnx(exported.path), exported.weights)
    executor = module.from_model(network, **options)
    optimizer = module.GradientDescent(executor, "loss", RATE)
    given = {n: executor.network.to_tensor(v) for n, v in named_inputs(network, exported).items()}

    def run() -> None:
        optimizer.step(given)
        executor.synchronize()

    return run


def speed(exported: Exported, backend: str, model: Any) -> dict[str, Cell]:
    """Ratios of an inference run and a training step to the original's, and the time of reading the file."""
    module = load_backend(backend)

    def inference() -> Cell:
        return ratio(our_inference(exported, module), model.inference())

    def step() -> Cell:
        theirs = model.step(exported.weights)
        return ratio(our_step(exported, module), theirs)

    return {
        "import": attempt(lambda: import_time(exported.path, backend)),
        "inference": attempt(inference),
        "step": attempt(step),
    }


def main() -> None:
    """One process of the table."""
    part, name, backend, folder = sys.argv[1:5]
    logging.disable(logging.WARNING)  # of the exporters and collections, about themselves
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    architecture = ARCHITECTURES[name]
    if part != "accuracy":
        import torch

        torch.set_num_threads(1)
    exported = export(architecture, Path(folder))
    if part == "export":
        nodes = len(onnx.load(exported.path, load_external_data=False).graph.node)
        weights = sum(a.size for a in exported.parameters.values())
        cells: dict[str, Any] = {
            "version": metadata.version(architecture.collection),
            "nodes": nodes,
            "weights": weights,
        }
    elif part == "accuracy":
        cells = accuracy(exported, backend)
    elif part == "speed":
        cells = speed(exported, backend, original(architecture, exported.inputs))
    else:
        from tests.models import beside

        cells = beside.PARTS[part](exported, architecture)
    print(json.dumps(cells))


if __name__ == "__main__":
    main()
