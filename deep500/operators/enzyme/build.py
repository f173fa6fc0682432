"""Build an operator with derived gradients: compile, differentiate, check; fewer derivatives where Enzyme lacks some.

The gradient must exist. Forward mode and Hessian-vector products may be beyond Enzyme where the gradient is not (a
registered gradient has no forward mode): such a library is built without them and says why when they are asked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from deep500.errors import CompileError, EnzymeError
from deep500.operators.cpp.commands import LINK, Job, compile_error
from deep500.operators.cpp.ranks import NO_FORWARD_MODE
from deep500.operators.cpp.spec import CPP_TYPES, FLOATING, BuildSpec
from deep500.operators.cpp.wrapper import wrapper_source
from deep500.operators.enzyme.pipeline import NO_ERRNO, BuildOptions, build_taped, compile_library, count_blocks
from deep500.operators.enzyme.verify import (
    Covered,
    Tried,
    check_build,
    compared_examples,
    error_of,
    examples,
    magnitudes,
    wide_examples,
)
from deep500.operators.enzyme.wrapper import gradient_source
from deep500.progress import stage

Missing = dict[str, str]
APART = ("d500_jvp", "d500_hvp")
NO_NUMBER = re.compile(r" is -?(?:nan|inf)\b")
EAGER = ("-funroll-loops", NO_ERRNO, "-mllvm", "-inline-threshold=2000")
"""For the front. What is unrolled and inlined before Enzyme comes needs no records of its own: attention's gradient
takes a third of the time, that of a power a seventh. Functions that set no errno are computed once. Where Enzyme fails
on it, as on most of OpenMP, or makes a gradient of it that is wrong (std::sort of 24 numbers and more), it is left
out; code that sorts comes without first, but pairs are sorted right only with it."""

CONTAINERS = '#include "deep500/containers.h"\n'
"""Before everything else, but not beside objects that were compiled elsewhere: their containers are the library's."""


class Build:
    """One build; see :class:`~deep500.operators.cpp.commands.Job` for what it is made from."""

    def __init__(self, job: Job) -> None:
        # Where nothing tells of a gradient that is not a number, none may come about: see BuildOptions.speculate.
        self.job, self.speculate = job, job.spec.check
        sorts = re.search(r"\bsort\s*\(", self._source())
        ways = [False] if job.spec.openmp else [False, True] if sorts else [True, False]
        self.eager, self.others = ways[0], ways[1:]
        self.report: dict[str, Any] = {}  # of the last check: blocks, how many ran, points compared exactly

    def run(self) -> None:
        """Build and check the library, and list what it includes.

        Raises:
            CompileError: it does not compile.
            EnzymeError: it cannot be differentiated, or the gradient is wrong.
            MissingEngine: there is no Enzyme or no clang.
        """
        if not self.job.spec.check:
            self._differentiated()
            return
        with ThreadPoolExecutor(3) as pool:
            covered = pool.submit(self._covered)
            twin, taped = pool.submit(self._twin), pool.submit(self._taped)
            missing = self._differentiated()
            self.covered = replace(covered.result(), taped=taped.result())
            self._checked(twin.result(), missing)

    def _differentiated(self) -> Missing:
        """Build with as much as Enzyme can derive; returns what is missing, and why."""
        while True:
            try:
                return self._attempt(dict.fromkeys(("jvp", "hvp"), NO_FORWARD_MODE) if self.job.spec.ranks else {})
            except EnzymeError as error:
                if error.missing:
                    return self._attempt({name.removeprefix("d500_"): why for name, why in error.missing.items()})
                if not self.others:
                    raise
                self.eager = self.others.pop()

    def _attempt(self, missing: Missing) -> Missing:
        # The text stands in a C++ string that holds JSON.
        macros = [f"-DD500_NO_{part.upper()}={json.dumps(json.dumps(why)[1:-1])}" for part, why in missing.items()]
        eager = EAGER if self.eager else ()
        flags, explained = [*eager, *macros], not self.others  # else it is built in another way first
        self.compared = _compile(self.job, self.job.unit.name, flags, self.speculate, explained, self.job.listing)
        return missing

    def _checked(self, twin: Path | None, missing: Missing) -> None:
        """Try the library; without further derivatives where one is wrong, with branches left where one is NaN."""
        small = examples(self.job.inputs, self.job.infer)
        for _ in range(5):
            stage("checking the gradient")
            integers, floats = self.compared
            wide = wide_examples(self.job.inputs, self.job.infer, integers)
            near = compared_examples(self.job.inputs, self.job.infer, integers)
            tried = Tried(small, wide, magnitudes(floats), near)
            wrong, self.report = check_build(
                self.job.spec, self.job.library, twin, tried, not self.speculate, self.covered
            )
            if not wrong:
                return
            if self.speculate and any(NO_NUMBER.search(defect.text) for defect in wrong):
                self.speculate = False
                twin, missing = self._twin(), self._attempt(missing)
                continue
            if self.others and wrong[0].part == "backward":
                self.eager = self.others.pop()
                missing = self._differentiated()
                continue
            error = error_of(self.job.spec, wrong[0], self._source())
            if wrong[0].part not in ("jvp", "hvp"):
                break
            missing = self._attempt({**missing, wrong[0].part: str(error)})
        raise error

    def _covered(self) -> Covered:
        """Forward alone, with a count of the blocks that run."""
        job, unit, library = self.job, self.job.place / "covered.cc", self.job.place / "covered.so"
        unit.write_text(wrapper_source(replace(job.spec, gradient=None), job.main, job.sources), encoding="utf-8")
        macro = f"-DD500_DTYPE={CPP_TYPES[job.spec.dtype]}"
        flags, options = [macro, *job.flags, NO_ERRNO], self._alone()
        try:  # without threads, whose runtime does not go well with processes of processes
            places = count_blocks(unit, library, flags, options)
        except CompileError:
            if not job.spec.openmp:
                raise
            places = count_blocks(unit, library, flags, replace(options, openmp=True))
        return Covered(library, places, job.place / job.main)

    def _taped(self) -> Path | None:
        """Forward alone, with numbers of ``deep500/taped.h``, None if the source has other types beside D500_DTYPE."""
        job, unit, library = self.job, self.job.place / "taped.cc", self.job.place / "taped.so"
        if "D500_DTYPE" not in self._source() or job.objects or job.spec.ranks:
            return None
        text = wrapper_source(replace(double(job.spec), gradient=None), job.main, job.sources)
        text = re.sub(r"\bdouble\b", "d5::taped", text)  # the sources are included, not part of it
        unit.write_text(f'#include "deep500/taped.h"\n{text}', encoding="utf-8")
        try:
            build_taped(unit, library, ["-DD500_DTYPE=d5::taped", *job.flags, NO_ERRNO], self._alone())
        except CompileError:
            return None
        return library

    def _alone(self) -> BuildOptions:
        job = self.job
        back = (*LINK[1:], *job.objects, *job.libraries)
        name = f"C++ operator {job.spec.name!r}"
        source, shared = job.place / job.main, not job.objects
        return BuildOptions(back=back, complain=self._complain, name=name, source=source, headers=shared)

    def _complain(self, output: str) -> CompileError:
        return compile_error(self.job.spec, output.replace(f"{self.job.place}{os.sep}", ""))

    def _twin(self) -> Path | None:
        """The same operator in float64 with nothing but the gradient, None if it is or cannot be."""
        job, spec = self.job, double(self.job.spec)
        if spec == job.spec or "D500_DTYPE" not in self._source():
            return None
        twin = replace(job, spec=spec, library=job.place / "twin.so")
        for flags in ([*EAGER], []) if self.eager else ([],):  # as the library that it judges, where that can be
            try:
                _compile(twin, "twin.cc", [*flags, '-DD500_NO_JVP=""', '-DD500_NO_HVP=""'], self.speculate, False)
            except CompileError:
                continue  # in the end: the source has other types beside D500_DTYPE
            return twin.library
        return None

    def _source(self) -> str:
        """The operator's text, all files of it."""
        paths = [self.job.place / path for path in (self.job.main, *self.job.sources)]
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def double(spec: BuildSpec) -> BuildSpec:
    """The spec with float64 in place of every other floating-point dtype."""

    def widened(dtypes: Sequence[str]) -> tuple[str, ...]:
        return tuple("float64" if t in FLOATING else t for t in dtypes)

    return replace(spec, inputs=widened(spec.inputs), outputs=widened(spec.outputs), fast_math=False)


def _compile(
    job: Job, unit: str, flags: Sequence[str], speculate: bool, explained: bool, listing: Path | None = None
) -> tuple[list[int], list[float]]:
    def complain(output: str) -> CompileError:
        return compile_error(job.spec, output.replace(f"{job.place}{os.sep}", ""))

    spec, path = job.spec, job.place / unit
    text = wrapper_source(spec, job.main, job.sources, gradient_source)
    path.write_text(text if job.objects else CONTAINERS + text, encoding="utf-8")
    options = BuildOptions(
        fast_math=spec.fast_math,
        openmp=spec.openmp,
        back=(*LINK[1:], *job.objects, *job.libraries),
        complain=complain,
        name=f"C++ operator {spec.name!r}",
        source=job.place / job.main,
        listing=listing,
        apart=APART,
        turn=True,
        speculate=speculate,
        explained=explained,
        headers=not job.objects,
    )
    macros = [f"-DD500_DTYPE={CPP_TYPES[spec.dtype]}", "-DD500_DERIVED", *(() if speculate else ["-DD500_GUARDED"])]
    return compile_library(path, job.library, [*macros, *job.flags, *flags], options)
