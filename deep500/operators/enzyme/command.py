"""``deep500 tools operator FILE``: build an operator with a derived gradient, and tell all that its check has seen."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deep500.errors import CompileError
from deep500.operators.cpp.commands import Job
from deep500.operators.cpp.compiled_op import CompiledOp
from deep500.operators.cpp.spec import BuildSpec, as_definitions, as_paths, check_name, dtypes
from deep500.operators.enzyme import Enzyme
from deep500.operators.enzyme.build import Build
from deep500.tensors import TensorDescriptor


class _ReportingEnzyme(Enzyme):
    """Enzyme that remembers the report of its last build's check."""

    def __init__(self) -> None:
        self.report: dict[str, Any] = {}

    def build(self, job: Job) -> None:
        build = Build(job)
        try:
            build.run()
        finally:
            self.report = build.report


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``deep500 tools operator``."""
    parser.description = (
        "Derive the gradient of a C++ operator, check it anew, and say what was run, what it was compared with, and "
        "which lines no input reached. Exit code 1: it is wrong, or cannot be derived."
    )
    add = parser.add_argument
    add("file", help="the C++ source")
    for name in ("input", "output"):
        add(f"--{name}", action="append", metavar="[DTYPE:]SHAPE", help="as Nx3, int64:N; one for each (default: N)")
    add("--dtype", default="float64", choices=("float64", "float32"), help="where none is said (default: float64)")
    add("--define", action="append", default=[], metavar="NAME=VALUE", help="a macro")
    add("--openmp", action="store_true", help="compile with OpenMP")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    return _execute


def _execute(options: argparse.Namespace) -> int:
    inputs = [_described(text, options.dtype) for text in options.input or ["N"]]
    outputs = [_described(text, options.dtype) for text in options.output or ["N"]]
    path = as_paths("operator", [options.file])[0]
    name, enzyme = Path(path).stem, _ReportingEnzyme()
    check_name(name)
    macros = dict(word.partition("=")[::2] for word in options.define)
    anew = as_definitions(name, macros | {"D500_CHECKED": time.time_ns()})  # the cache says nothing of its check
    read, written = dtypes(name, "input", inputs), dtypes(name, "output", outputs)
    spec = BuildSpec(name, None, path, read, written, definitions=anew, gradient="enzyme", openmp=options.openmp)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            op: CompiledOp | None = CompiledOp(spec, inputs, outputs, derivation=enzyme)
            text = ""
        except CompileError as error:
            op, text = None, str(error)
    seen = enzyme.report
    facts: dict[str, Any] = {"operator": name, "right": op is not None, "error": text}
    facts |= {"blocks": seen.get("blocks", 0), "ran": seen.get("ran", 0), "exact_points": seen.get("exact", 0)}
    facts |= {part: op.signature[part] or op.signature[f"no_{part}"] for part in ("jvp", "hvp")} if op else {}
    facts["warnings"] = [str(warning.message) for warning in caught]
    sys.stdout.write(json.dumps(facts) + "\n" if options.json else _text(facts))
    return int(op is None)


def _described(text: str, dtype: str) -> TensorDescriptor:
    named, _, shape = text.rpartition(":")
    sizes = tuple(int(size) if size.isdecimal() else size for size in shape.split("x"))
    return TensorDescriptor(named or dtype, sizes)


def _text(facts: dict[str, Any]) -> str:
    lines = [f"{facts['operator']}: {'right' if facts['right'] else facts['error']}"]
    lines.append(f"blocks of forward that ran: {facts['ran']} of {facts['blocks']}")
    exact = f"{facts['exact_points']} points, element by element" if facts["exact_points"] else "none: differences only"
    lines.append(f"exact derivative by a tape: {exact}")
    for part in ("jvp", "hvp"):
        if part in facts:
            lines.append(f"{part}: {'right' if facts[part] is True else facts[part]}")
    return "\n".join([*lines, *facts["warnings"], ""])
