"""Convolutions, matrix products and recurrent layers of DeepBench's training list: time and FLOP/s in every backend.

python -m recipes.studies.deepbench_operators --quick
python -m recipes.studies.deepbench_operators --kind conv --backend pytorch --backend jax --limit 10

The sizes are in deepbench_sizes.json, which names their source. Per problem: forward, and forward with the gradients of
all its inputs, which costs three times the operations. As many threads as each framework takes: OMP_NUM_THREADS=1 and
the like say so. Exit codes: 0, 1 if a backend failed on a problem, else as ``deep500 run``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from deep500.errors import Deep500Error, UnsupportedOperator
from deep500.measure.environment import describe
from deep500.measure.statistics import MINIMUM_SAMPLES, Interval
from deep500.networks import Network
from deep500.networks.flops import count_flops
from deep500.operators.measure import rate, time_calls
from deep500.registry import backend_names, is_installed, load_backend

SIZES = Path(__file__).with_name("deepbench_sizes.json")
KINDS = ("conv", "gemm", "rnn")
CELLS = {"vanilla": ("RNN", 1), "lstm": ("LSTM", 4), "gru": ("GRU", 3)}
TRAINING = 3
"""A training step's operations over forward's: forward, gradient of the data, gradient of the weights."""
COPIES = 4
"""Room that a problem is taken to need, over its tensors: gradients and what frameworks lay out anew."""


@dataclass(frozen=True)
class ListedProblem:
    """One row of the list."""

    kind: str
    sizes: Mapping[str, Any]

    def network(self, training: bool) -> tuple[Network, dict[str, np.ndarray]]:
        """The operator, and what to feed: nothing may be constant, or backends would compute it once for all.

        Args:
            training: the data too is a parameter, so that it gets a gradient, and the gradient of the output is fed.
        """
        network, fed = Network(self.kind), {}
        operator, shapes, attributes = {"conv": _conv, "gemm": _gemm, "rnn": _rnn}[self.kind](self.sizes)
        random = np.random.default_rng(0)
        for number, (name, shape) in enumerate(shapes.items()):
            value = random.standard_normal(shape, np.float32) * np.float32(prod(shape[1:]) ** -0.5)
            if number or training:
                network.add_parameter(name, value)
            else:
                network.add_input(name, shape)
                fed[name] = value
        network.add_node(operator, list(shapes), ["y"], name="operator", **attributes)
        network.add_output("y")
        if training:
            shape = network.descriptors()["y"].shape or ()
            network.add_input("dy", shape)
            fed["dy"] = random.standard_normal(shape, np.float32)
            network.add_node("Mul", ["y", "dy"], ["weighted"])
            network.add_node("ReduceSum", ["weighted"], ["loss"], keepdims=0)
            network.add_output("loss")
        return network, fed

    def flop(self, network: Network) -> int:
        """Operations of one forward; a multiply-add is two."""
        return int(count_flops(network)["operator"] or 0)

    def __str__(self) -> str:
        s = self.sizes
        if self.kind == "gemm":
            a, b = ("T" if s[f"transpose_{x}"] else "N" for x in "ab")
            return f"{s['m']} x {s['n']} x {s['k']} {a}{b}"
        if self.kind == "rnn":
            return f"{s['cell']} {s['hidden']}, batch {s['batch']}, {s['steps']} steps"
        data = f"{s['batch']}x{s['channels']}x{s['height']}x{s['width']}"
        filters = f"{s['filters']} of {s['filter_height']}x{s['filter_width']}"
        return f"{data}, {filters}, pad {s['pad_height']}, step {s['stride_height']}"


def _conv(s: Mapping[str, int]) -> tuple[str, dict[str, tuple[int, ...]], dict[str, Any]]:
    shapes = {
        "x": (s["batch"], s["channels"], s["height"], s["width"]),
        "w": (s["filters"], s["channels"], s["filter_height"], s["filter_width"]),
    }
    pads = [s["pad_height"], s["pad_width"]] * 2
    return "Conv", shapes, {"pads": pads, "strides": [s["stride_height"], s["stride_width"]]}


def _gemm(s: Mapping[str, int]) -> tuple[str, dict[str, tuple[int, ...]], dict[str, Any]]:
    """Row by row; DeepBench's own programs store columns."""
    a, b = (s["m"], s["k"]), (s["k"], s["n"])
    shapes = {"a": a[::-1] if s["transpose_a"] else a, "b": b[::-1] if s["transpose_b"] else b}
    return "Gemm", shapes, {"transA": int(s["transpose_a"]), "transB": int(s["transpose_b"])}


def _rnn(s: Mapping[str, Any]) -> tuple[str, dict[str, tuple[int, ...]], dict[str, Any]]:
    """Build a recurrent operator with as many inputs as hidden units; the plain cell has a ReLU."""
    operator, gates = CELLS[s["cell"]]
    hidden = s["hidden"]
    weights = (1, gates * hidden, hidden)
    shapes = {"x": (s["steps"], s["batch"], hidden), "w": weights, "r": weights}
    return operator, shapes, {"hidden_size": hidden, **({"activations": ["Relu"]} if operator == "RNN" else {})}


def problems(kinds: Iterable[str] = KINDS, limit: int | None = None) -> list[ListedProblem]:
    """The list, or the first of each kind (``limit``) when they are sorted by how much there is to compute."""
    data = json.loads(SIZES.read_text(encoding="utf-8"))
    selected = []
    for kind in kinds:
        rows = [ListedProblem(kind, dict(zip(data[kind]["columns"], row, strict=True))) for row in data[kind]["rows"]]
        selected += rows if limit is None else sorted(rows, key=work)[:limit]
    return selected


def work(problem: ListedProblem) -> int:
    """Multiply-adds, up to padding and strides."""
    s = problem.sizes
    if problem.kind == "gemm":
        return s["m"] * s["n"] * s["k"]
    if problem.kind == "rnn":
        return 2 * CELLS[s["cell"]][1] * s["hidden"] ** 2 * s["batch"] * s["steps"]
    names = ("batch", "channels", "height", "width", "filters", "filter_height", "filter_width")
    return prod(s[name] for name in names) // (s["stride_height"] * s["stride_width"])


@dataclass(frozen=True)
class BackendRow:
    """One backend's result for one problem; ``failure`` says why there are no times."""

    problem: ListedProblem
    backend: str
    flop: int = 0
    forward: Interval | None = None
    training: Interval | None = None
    failure: str = ""
    wrong: bool = False

    def cells(self) -> list[str]:
        """The row as text."""
        head = [self.problem.kind, str(self.problem), self.backend]
        if self.forward is None or self.training is None:
            return [*head, self.failure]
        return [*head, *_figures(self.forward, self.flop), *_figures(self.training, TRAINING * self.flop)]


HEAD = ["kind", "sizes", "backend", "forward ms", "(95 % CI)", "GFLOP/s", "with gradients ms", "(95 % CI)", "GFLOP/s"]


def _figures(seconds: Interval, flop: int) -> list[str]:
    speed = rate(flop, seconds)
    assert speed is not None and seconds.low is not None and seconds.high is not None
    return [
        f"{1e3 * seconds.median:.3g}",
        f"{1e3 * seconds.low:.3g} - {1e3 * seconds.high:.3g}",
        f"{speed.median / 1e9:.3g}",
    ]


def measure(problem: ListedProblem, backend: str, samples: int, memory: float) -> BackendRow:
    """Time one problem in one backend."""
    network, _ = problem.network(training=True)
    flop = problem.flop(network)
    needed = 4 * COPIES * sum(d.size or 0 for d in network.descriptors().values()) / 2**30
    del network
    if needed > memory:
        return BackendRow(problem, backend, flop, failure=f"left out: needs about {needed:.3g} GiB (--memory)")
    try:
        times = [_seconds(problem, backend, training, samples) for training in (False, True)]
        return BackendRow(problem, backend, flop, *times)
    except UnsupportedOperator as error:
        return BackendRow(problem, backend, flop, failure=f"not supported: {_line(error)}")
    except Exception as error:  # noqa: BLE001  # each framework has its own; one problem must not end the others
        return BackendRow(problem, backend, flop, failure=f"failed: {_line(error)}", wrong=True)


def _seconds(problem: ListedProblem, backend: str, training: bool, samples: int) -> Interval:
    network, arrays = problem.network(training)
    executor = load_backend(backend).from_model(network)
    fed = {name: executor.network.to_tensor(array) for name, array in arrays.items()}

    def call() -> None:
        executor.inference_and_backprop(fed, "loss") if training else executor.inference(fed, ["y"])
        executor.synchronize()

    return time_calls(call, samples, warmup=2)


def _line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:100]}"


def table(rows: Sequence[BackendRow]) -> str:
    """All rows, columns aligned."""
    cells = [HEAD, *(row.cells() for row in rows)]
    full = [row for row in cells if len(row) == len(HEAD)]
    widths = [max(len(row[i]) for row in (full if i > 2 else cells)) for i in range(len(HEAD))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--kind", action="append", choices=KINDS, help="only these; may be repeated")
    add("--backend", action="append", metavar="NAME", help="only these; may be repeated (all that are installed)")
    add("--limit", type=int, metavar="N", help="only the N smallest problems of each kind")
    add("--samples", type=int, default=10, metavar="N", help="times per median (10)")
    add("--memory", type=float, default=8.0, metavar="GIB", help="leave out what needs more (8)")
    add("--quick", action="store_true", help=f"the smallest problem of each kind, {MINIMUM_SAMPLES} samples")
    args = parser.parse_args(argv)
    if args.quick:
        args.limit, args.samples = args.limit or 1, MINIMUM_SAMPLES
    if args.samples < MINIMUM_SAMPLES:
        parser.error(f"got --samples {args.samples}; expected at least {MINIMUM_SAMPLES}, for an interval")
    if args.limit is not None and args.limit < 1:
        parser.error(f"got --limit {args.limit}; expected at least 1")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; returns the exit code."""
    chosen = options(argv)
    backends = chosen.backend or [name for name in backend_names() if is_installed(name)]
    try:
        for name in backends:
            load_backend(name)
    except Deep500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    todo = [(problem, name) for problem in problems(chosen.kind or KINDS, chosen.limit) for name in backends]
    rows = []
    with tqdm(todo, file=sys.stderr, disable=None, unit="problem") as bar:
        for problem, backend in bar:
            bar.set_description(f"{problem} {backend}")
            rows.append(measure(problem, backend, chosen.samples, chosen.memory))
    print(f"{describe()['cpu']}, medians of {chosen.samples}; float32\n")
    print(table(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
