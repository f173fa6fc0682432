"""Every library is tried once before it may be used: a gradient that was derived is not yet a gradient that is right.

An exit code of zero proves nothing. What is compared, at small random inputs:

* the gradient against central differences, along a random direction of every input and along one where nothing cancels.
  In float64: operators for shorter types that are written with ``D500_DTYPE`` are built a second time for it, others
  are judged by longer steps and a tolerance of 1 % (5 % float16, 20 % bfloat16). A forward may round to less than its
  types say (a ``float`` accumulator): how much is measured, and what differences are off by for it is allowed for;
* the gradient by an element that is exactly 0, where branches meet, against differences to both sides (a warning; one
  that is not finite is derived once more, with zeros that stay zero whatever they multiply);
* the same once more at larger sizes (up to 150, and beyond each number that the code compares with), where they are
  open, and with inputs beyond such numbers, in float64: code then goes other ways;
* at all of these, outputs of two calls, before which outputs and memory were filled with different things;
* the library's own gradients with those in float64, all at once, a second time, and one by one;
* Jacobian-vector products with the gradient, Hessian-vector products with differences of the gradient, at all sizes;
* all inputs, byte by byte, before and after each call;
* forward alone, in a build that counts basic blocks: further draws are made until every block ran, and judged; lines
  of which no block ran are named in a warning.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any

from deep500.errors import Deep500Error, EnzymeError
from deep500.operators.cpp.spec import BuildSpec, Infer
from deep500.operators.enzyme.diagnose import hints
from deep500.operators.enzyme.functions import Location, quoted
from deep500.operators.enzyme.probed import STAGE
from deep500.tensors import TensorDescriptor

PROGRAM = """
import runpy, sys, types
folder, parts = sys.argv.pop(), "deep500.operators.enzyme".split(".")
for n in (1, 2, 3):
    package = sys.modules[".".join(parts[:n])] = types.ModuleType(parts[n - 1])
    package.__path__ = ["/".join([folder, *parts[1:n]])]
runpy.run_module("deep500.operators.enzyme.probe", run_name="__main__")
"""
"""The probe without the packages that it is in: what they import takes time."""

SECONDS, PATIENCE = 120.0, 5.0
"""Of CPU time for a check, and how many times as many may pass."""

CAUSES = {
    "value": "Enzyme sees what is written to outputs, scratch space and local variables; keep no results in members of "
    "the class, write no output that was not computed from the inputs by arithmetic, and register a gradient "
    "(__enzyme_register_gradient_*) where arithmetic has no useful one; check=False turns this check off",
    "crash": "declare sizes that forward can have in the input descriptors, and look for accesses out of bounds",
    "unwritten": "write every element of every output, and read from outputs, scratch space and new memory only what "
    "was written before (y[i] += ... after y[i] = 0)",
    "changed": "write to outputs and scratch only; in OpenMP regions, list every pointer and size in firstprivate(); "
    "let no pointer point to an inactive input at one time, to computed values at another (copy the input)",
}


GOT = {"crash": "a crash when it was tried", "unwritten": "outputs that depend on what was in memory before"}


@dataclass(frozen=True)
class Defect:
    """A defect of one part (``backward``, ``jvp``, ``hvp``) of a library, and the user's lines that are to blame."""

    part: str
    text: str
    kind: str
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Covered:
    """A build that counts the blocks that run: its library, lines and columns of each block, the user's file.

    ``taped`` is the library that records what is computed from what, None if there is none.
    """

    library: Path
    places: list[set[Location]]
    source: Path
    taped: Path | None = None

    def missed(self, never: Sequence[int]) -> list[str]:
        """Lines with something on them that no draw ran, of blocks that never ran; a template may run elsewhere."""
        ran = {at for block, places in enumerate(self.places) if block not in never for at in places}
        return quoted({line for block in never for line, _ in self.places[block] - ran}, self.source)


@dataclass(frozen=True)
class Tried:
    """The shapes and magnitudes that a library is tried at.

    Attributes:
        examples: pairs of input and output shapes, see :func:`examples`.
        wide: lists of larger ones; of each list, the first for which forward works is tried beside.
        beyond: magnitudes of further inputs.
        sizes: lists of further examples, to reach blocks that the others do not.
    """

    examples: Sequence[Any]
    wide: Sequence[Any] = ()
    beyond: Sequence[float] = ()
    sizes: Sequence[Any] = ()


def check_build(
    spec: BuildSpec,
    library: Path,
    twin: Path | None,
    tried: Tried,
    guarded: bool = False,
    covered: Covered | None = None,
) -> tuple[list[Defect], dict[str, Any]]:
    """Try a library in a process of its own; returns what is wrong, the gradient first, and what was seen.

    Args:
        spec: what was built.
        library: the operator's.
        twin: the same operator in float64, None if there is none.
        tried: at what.
        guarded: a gradient at 0 that is not finite where forward is smooth cannot be helped: a warning.
        covered: the build that counts blocks.

    Raises:
        EnzymeError: it does not end, or no inputs are found for which forward works.
    """
    job = {
        "library": str(library),
        "twin": str(twin) if twin else None,
        "inactive": spec.inactive,
        "whole": {index: limits for index, *limits in spec.whole},
        **vars(tried),
        "guarded": guarded,
        "covered": str(covered.library) if covered else None,
        "taped": str(covered.taped) if covered and covered.taped else None,
        "blocks": [bool(places) for places in covered.places] if covered else [],
    }
    done = _run(spec, json.dumps(job))
    if done.returncode or not done.stdout:  # std::exit(0) is no good end either
        return [_crash(spec, done)], {}
    report = json.loads(done.stdout)
    if report["unusable"]:
        raise EnzymeError(
            f"C++ operator {spec.name!r}: got no inputs to check the gradient with ({report['unusable']}); expected "
            "forward to work for small shapes: declare sizes in the input descriptors, or pass check=False"
        )
    _warn(spec, report)
    missed = covered.missed(report["never"]) if covered and not report["wrong"] else []
    if missed:
        lines = "\n".join(missed)
        warnings.warn(
            f"C++ operator {spec.name!r}: its gradient was not judged where the check never came, by sizes or by "
            f"values. Try it there (d5.check_op_gradient)\n{lines}",
            stacklevel=3,
        )
    blamed = [quoted(defect.get("lines", ()), covered.source) if covered else [] for defect in report["wrong"]]
    wrong = [Defect(d["part"], d["text"], d["kind"], named) for d, named in zip(report["wrong"], blamed, strict=True)]
    blocks = {n for n, places in enumerate(covered.places if covered else ()) if places}
    return wrong, {"blocks": len(blocks), "ran": len(blocks - set(report["never"])), "exact": report["exact"]}


def _warn(spec: BuildSpec, report: dict[str, Any]) -> None:
    """Say what could not be judged, and what may be on purpose."""
    for index in report["zero"]:
        warnings.warn(
            f"C++ operator {spec.name!r}: the gradient of input {index} is zero everywhere it was tried; rounding to "
            f"integers has none. Register one (__enzyme_register_gradient_*), or pass inactive=({index},)",
            stacklevel=3,
        )
    for index in report["unclear"]:
        warnings.warn(
            f"C++ operator {spec.name!r}: the gradient of input {index} could not be judged: forward is so roughly "
            "rounded that its differences say nothing. Compute in a wider type, or compare it with another framework",
            stacklevel=3,
        )
    for index, got, expected in report["at_zero"]:
        warnings.warn(
            f"C++ operator {spec.name!r}: the gradient by an element of input {index} that is exactly 0 is {got:.6g}; "
            f"differences to both sides: {expected:.6g}. Two forms meet there and Enzyme takes the slope of the other "
            "one: of |x| it takes 1 at 0, so let 0 belong to the positive numbers (x < 0 ? ... : ...)",
            stacklevel=3,
        )


def error_of(spec: BuildSpec, defect: Defect, source: str = "") -> EnzymeError:
    """The error for a gradient that is wrong.

    Args:
        source: the operator's C++ text, for what in it is known to do that.
    """
    got = GOT.get(defect.kind, "a gradient that is not that of forward")
    known = hints(source)
    cures = "; ".join(known if known and " threw " in defect.text else [*known, CAUSES[defect.kind]])
    return EnzymeError(
        f"C++ operator {spec.name!r}: got {got}: {defect.text}; expected what forward implies, and inputs left as "
        f"they are\n{''.join(f'{line}{chr(10)}' for line in defect.lines)}what to change: {cures}"
    )


def _run(spec: BuildSpec, job: str) -> subprocess.CompletedProcess[str]:
    endless = (
        f"C++ operator {spec.name!r}: got no end of its check in {SECONDS:g} s; expected one: declare smaller sizes"
    )
    # Seconds of the processor, as a busy machine must not decide; threads that wait for each other do not use it up.
    limited = ["/bin/sh", "-c", 'ulimit -S -t "$0" && exec "$@"', f"{SECONDS:.0f}", sys.executable, "-I", "-c", PROGRAM]
    try:
        done = subprocess.run(
            [*limited, str(Path(__file__).parents[2])],
            input=job,
            capture_output=True,
            text=True,
            timeout=PATIENCE * SECONDS,
            check=False,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        )
    except subprocess.TimeoutExpired as error:
        raise EnzymeError(endless) from error
    if done.returncode == -Signals.SIGXCPU:
        raise EnzymeError(endless)
    return done


def _crash(spec: BuildSpec, done: subprocess.CompletedProcess[str]) -> Defect:
    """The part that was running when it crashed."""
    what = Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
    stages = [line.removeprefix(STAGE) for line in done.stderr.splitlines() if line.startswith(STAGE)]
    last = stages[-1] if stages else "start"
    others = [line for line in done.stderr.splitlines() if line and not line.startswith(STAGE)]
    text = f"{what} in {last}" + (f" ({others[-1]})" if others else "")
    return Defect(last.split()[0], text, "crash")


Shapes = list[tuple[int, ...]]

RANKS = ((5,), (4, 5), (2, 3, 4, 5), (3, 4, 5))
"""Shapes in place of None, the same for every input that has it."""

WIDE, MOST = (150, 40, 24, 12), 20_000
"""Larger sizes of axes, and of all tensors together."""

SIZES, NEAR, MAGNITUDES = 5, 60, (2.0, 1e6)
"""At most so many sizes beyond numbers that code compares with, and at them; limits of the magnitudes of inputs."""


def wide_examples(
    inputs: Sequence[TensorDescriptor], infer: Infer, compared: Sequence[int] = ()
) -> list[list[tuple[Shapes, Shapes]]]:
    """Shapes like those of :func:`examples`, as large as ``WIDE`` where ``MOST`` elements allow that; may be none.

    Args:
        inputs, infer: see :func:`examples`.
        compared: numbers that the code compares with. Beyond each that is larger than those sizes, it may do what it
            does nowhere else, so that further lists have shapes one larger.

    Example:
        >>> from deep500 import tensordesc
        >>> wide_examples([tensordesc(("N", 3))], lambda inputs: inputs, [200])
        [[([(150, 3)], [(150, 3)])], [([(201, 3)], [(201, 3)])]]
    """

    def fitting(size: int) -> list[tuple[Shapes, Shapes]]:
        return _fitting(_candidates(inputs, size), inputs, infer)

    usual: list[tuple[Shapes, Shapes]] = next(filter(None, map(fitting, WIDE)), [])
    further = [fitting(number + 1) for number in compared if WIDE[0] <= number < MOST]
    return list(filter(None, [usual, *list(filter(None, further))[:SIZES]]))


def compared_examples(
    inputs: Sequence[TensorDescriptor], infer: Infer, compared: Sequence[int] = ()
) -> list[list[tuple[Shapes, Shapes]]]:
    """Shapes like those of :func:`examples`, of the sizes that code compares with and those beside them.

    Then shapes with one such axis among small ones, and with small ones in front only, as those of batches are.

    Args:
        inputs, infer, compared: see :func:`wide_examples`.

    Example:
        >>> from deep500 import tensordesc
        >>> [shapes[0][0] for shapes in compared_examples([tensordesc(("N", "M"))], lambda inputs: inputs, [77])]
        [[(1, 1)], [(2, 1)], [(76, 75)], [(77, 76)], [(78, 77)], [(78, 2)], [(2, 78)]]
    """
    near = {number + step for number in compared for step in (-1, 0, 1)}
    sizes = [1, 2, *sorted(size for size in near if 2 < size <= WIDE[0])]
    groups = [_fitting(_candidates(inputs, size), inputs, infer) for size in sizes]
    names = list(dict.fromkeys(_keys(inputs)))
    for size in sorted({number + 1 for number in compared if 2 < number < WIDE[0]}) or WIDE[1:2]:
        for large in [*([name] for name in names), *(names[i:] for i in range(1, len(names) - 1))][len(names) == 1 :]:
            known = {**dict.fromkeys(names, 2), **dict.fromkeys(large, size)}
            mixed = [_filled(i, x, known, RANKS[0]) for i, x in enumerate(inputs)]
            groups.append(_fitting([mixed], inputs, infer))
    return list(filter(None, groups))[:NEAR]


def _fitting(
    candidates: Iterable[Shapes], inputs: Sequence[TensorDescriptor], infer: Infer
) -> list[tuple[Shapes, Shapes]]:
    """Those of candidates that have at most ``MOST`` elements, and are no error, with the outputs' shapes."""
    return [
        (shapes, known)
        for shapes, known in _inferred(candidates, inputs, infer)
        if sum(math.prod(shape) for shape in (*shapes, *known)) <= MOST
    ]


def magnitudes(compared: Sequence[float]) -> list[float]:
    """Sizes of inputs beyond the numbers that the code compares with, those of usual size left out.

    Example:
        >>> magnitudes([0.5, 8.0, -8.0, 1e300])
        [12.0]
    """
    return sorted({1.5 * abs(x) for x in compared if MAGNITUDES[0] < abs(x) < MAGNITUDES[1]})


def examples(inputs: Sequence[TensorDescriptor], infer: Infer, size: int = 0) -> list[tuple[Shapes, Shapes]]:
    """Shapes of inputs and of outputs that fit the descriptors, the likeliest first.

    Symbols get sizes that fall in the order of their appearance (data before kernels), then equal, then rising ones.

    Args:
        inputs: as declared.
        infer: gives descriptors of the outputs; what it refuses is left out.
        size: the largest size of an axis; as small as can be if 0.

    Example:
        >>> from deep500 import tensordesc
        >>> examples([tensordesc(("N", 3))], lambda inputs: inputs)[0]
        ([(4, 3)], [(4, 3)])
    """
    return _inferred(_candidates(inputs, size), inputs, infer)


def _inferred(
    candidates: Iterable[Shapes], inputs: Sequence[TensorDescriptor], infer: Infer
) -> list[tuple[Shapes, Shapes]]:
    fitting: list[tuple[Shapes, Shapes]] = []
    for shapes in candidates:
        described = [
            TensorDescriptor(descriptor.dtype, shape) for descriptor, shape in zip(inputs, shapes, strict=True)
        ]
        try:
            outputs = list(infer(described))
        except (Deep500Error, ArithmeticError, LookupError, TypeError, ValueError):
            continue
        static = [output.shape or () for output in outputs if output.is_static]
        known = [tuple(size for size in shape if isinstance(size, int)) for shape in static]
        if (
            len(known) == len(outputs)
            and all(size > 0 for shape in known for size in shape)
            and (shapes, known) not in fitting
        ):
            fitting.append((shapes, known))
    return fitting


def _candidates(inputs: Sequence[TensorDescriptor], size: int) -> Iterator[Shapes]:
    names = list(dict.fromkeys(_keys(inputs)))
    count = len(names)
    if size and not count and all(descriptor.shape is not None for descriptor in inputs):
        return  # there is one size
    ranks = RANKS if not size else ((size,), (3, size), (2, 3, 4, size))
    first, same, least = (size, size, size - count + 1) if size else (count + 3, 4, 2)
    for rank in ranks if any(descriptor.shape is None for descriptor in inputs) else ranks[:1]:
        for sizes in ([first - i for i in range(count)], [same] * count, [least + i for i in range(count)]):
            known = dict(zip(names, sizes, strict=True))
            yield [_filled(i, descriptor, known, rank) for i, descriptor in enumerate(inputs)]


def _keys(inputs: Sequence[TensorDescriptor]) -> Iterator[object]:
    for i, descriptor in enumerate(inputs):
        for axis, size in enumerate(descriptor.shape or ()):
            if not isinstance(size, int):
                yield _key(i, axis, size)


def _key(index: int, axis: int, size: object) -> object:
    return (index, axis) if size is None else size


def _filled(
    index: int, descriptor: TensorDescriptor, known: dict[object, int], rank: tuple[int, ...]
) -> tuple[int, ...]:
    if descriptor.shape is None:
        return rank
    return tuple(s if isinstance(s, int) else known[_key(index, axis, s)] for axis, s in enumerate(descriptor.shape))
