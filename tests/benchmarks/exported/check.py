"""One model through the command, and what came out: opened, compared, timed by a judge who knows nothing of Deep500."""

from __future__ import annotations

import contextlib
import io
import re
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Lacking

from deep500 import cli
from tests.benchmarks.exported.models import MODELS

TOLERANCE, HALF = 2e-5, 2e-2
"""Largest relative error by norm in the file's own precision; with float16 in it."""
SIZES = {0: 3, 1: 6}
"""Of sizes without a number, by axis: other ones than the models were exported with."""
DTYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64"}


@dataclass(frozen=True)
class Outcome:
    """What became of one model.

    Attributes:
        name: of the model.
        nodes: what the command says of operators.
        same: whether its bytes are those of the original.
        error: largest relative error of an output in ONNX Runtime; nan where the result did not open.
        twin: the command's own error in float64; None where there is none (nothing changed, or no float64).
        said: the command's ratio and interval; empty where nothing was taken.
        ratio: median of pairs of this judge's, result over original.
        seconds: of the command.
        problem: why it is not good; empty if it is.
    """

    name: str
    nodes: str = ""
    same: bool = False
    error: float = float("nan")
    twin: float | None = None
    said: str = ""
    ratio: float = float("nan")
    seconds: float = 0.0
    problem: str = ""

    @property
    def good(self) -> bool:
        return not self.problem

    @staticmethod
    def header() -> str:
        names = "model", "operators", "result", "error", "float64", "ratio [95 %]", "judge's", "s"
        return f"| {' | '.join(names)} |\n{'|---' * len(names)}|"

    def row(self) -> str:
        twin = "" if self.twin is None else f"{self.twin:.0e}"
        result = self.problem or ("same bytes" if self.same else "faster" if self.said else "rewritten")
        figures = f"{self.error:.0e} | {twin} | {self.said} | {self.ratio:.3f} | {self.seconds:.1f}"
        return f"| {self.name} | {self.nodes} | {result} | {figures} |"


def optimize(name: str, folder: Path, budget: float, pairs: int = 200, measure: bool = True) -> Outcome:
    """Export a model, run the command on it, and look at what was written.

    Without ``measure`` the cheapest by formula is taken, faster or not: more is rewritten, which must be equal too.
    """
    stem = re.sub(r"\W+", "-", name)
    source, result = folder / f"{stem}.onnx", folder / f"{stem}-optimized.onnx"
    MODELS[name](source)
    words = ["optimize", str(source), "-o", str(result), "--backend", "onnxruntime", "--budget", str(budget), "--quiet"]
    words += ["--no-measure"] * (not measure)
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = cli.main(words)
    seconds, text = time.perf_counter() - start, out.getvalue()
    if code:
        return Outcome(name, seconds=seconds, problem=f"exit {code}: {err.getvalue().strip()[:200]}")
    same = source.read_bytes() == result.read_bytes()
    nodes = found[1] if (found := re.search(r"^(\d+ -> \d+) operators", text, re.M)) else ""
    twin = float(found[1]) if (found := re.search(r"within (\S+) in float64", text)) else None
    found = re.search(r"^measured: .*/original (\S+) \(95% CI ([^,]+)", text, re.MULTILINE)
    said = f"{found[1]} [{found[2]}]" if found else ""
    known: dict[str, Any] = {"nodes": nodes, "same": same, "twin": twin, "said": said, "seconds": seconds}
    try:
        before, after = session(source), session(result)
    except (Fail, InvalidGraph, Lacking) as problem:
        return Outcome(name, **known, problem=f"does not open: {problem}"[:200])
    feeds = inputs(before)
    expected, got = before.run(None, feeds), after.run(None, feeds)
    names = [[value.name for value in one.get_outputs()] for one in (before, after)]
    error = max(distance(a, b) for a, b in zip(got, expected, strict=True))
    limit = HALF if any(a.dtype == np.float16 for a in expected) else TOLERANCE
    ratio = 1.0 if same else judged(before, after, feeds, pairs)
    problem = "" if names[0] == names[1] and error <= limit else f"differs: {error:.1e} {names}"
    if "failed: " in text:  # what was found was wrong, or could not be written: it stayed out, and is a fault of ours
        problem = problem or text[text.index("candidate") :].splitlines()[0][:300]
    if not problem and measure and not same and not said:
        problem = "written anew, but not faster"
    return Outcome(name, **known, error=error, ratio=ratio, problem=problem)


def session(path: Path) -> onnxruntime.InferenceSession:
    """A bare session on one thread, with all of ONNX Runtime's optimizations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def inputs(opened: onnxruntime.InferenceSession) -> dict[str, Any]:
    """Random inputs; token ids below 32 and masks of ones and zeros, ones first. Initializers keep their values."""
    rng, feeds = np.random.default_rng(0), {}
    for value in opened.get_inputs():
        shape = [size if isinstance(size, int) else SIZES[axis] for axis, size in enumerate(value.shape)]
        if value.type == "tensor(int64)":
            array = (
                rng.integers(0, 32, shape) if "mask" not in value.name else np.sort(rng.integers(0, 2, shape))[:, ::-1]
            )
        else:
            array = rng.normal(size=shape)
        feeds[value.name] = np.ascontiguousarray(array.astype(DTYPES[value.type]))
    return feeds


def distance(got: Any, expected: Any) -> float:
    """Relative difference by norm."""
    if got.shape != expected.shape or got.dtype != expected.dtype or not np.isfinite(got).all():
        return float("inf")
    wide = expected.astype("float64")
    return float(np.linalg.norm(got.astype("float64") - wide) / max(float(np.linalg.norm(wide)), 1e-12))


def judged(before: Any, after: Any, feeds: dict[str, Any], pairs: int) -> float:
    """Median of (time of the result / time of the original), in turns."""
    ratios = []
    for turn in range(pairs + 5):
        times = {}
        for which in ((before, after), (after, before))[turn % 2]:
            start = time.process_time_ns()
            for _ in range(3):
                which.run(None, feeds)
            times[which] = time.process_time_ns() - start
        if turn >= 5:
            ratios.append(times[after] / max(times[before], 1))
    return median(ratios)
