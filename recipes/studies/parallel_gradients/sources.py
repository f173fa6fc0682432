"""The original program, from a user's checkout: ``--source PATH``. Only its driver is here, nothing is copied."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import CommunicationError, CompileError, InputError
from deep500.measure.statistics import paired_ratio
from deep500.operators.cpp.cache import building, cache_folder, enter_folder
from deep500.operators.cpp.compilers import cpu_model
from deep500.operators.enzyme import pipeline, regions
from deep500.operators.enzyme.engine import find_clang, find_engine
from deep500.operators.enzyme.pipeline import BuildOptions, compile_library
from recipes.studies.parallel_gradients.building import FLAGS, SOURCES
from recipes.studies.parallel_gradients.launching import SETTINGS

FILES = ("lulesh.cc", "lulesh-init.cc", "lulesh-util.cc", "lulesh-viz.cc")
HEADER = re.compile(r'^\s*#\s*include\s*"lulesh\.h".*$', re.MULTILINE)
REGIONS = (
    # Loops that share a region get one each: what a loop keeps, Enzyme finds room for by the region's arguments.
    (r"^#pragma omp parallel[ \t]*$", ""),
    (r"^#pragma omp for (?:nowait )?(?=firstprivate)", "#pragma omp parallel for "),
    # The least of a thread's share becomes the least of a block: threads go backwards in an order of their own.
    (
        r"^#pragma omp parallel firstprivate\((.*)\)\s*\{",
        r"#pragma omp parallel for firstprivate(\1, threads)\nfor (Index_t block = 0; block < threads; ++block) {",
    ),
    (
        r"^#pragma omp for[ \t]*\n\s*for \(Index_t i = 0 ; i < length ; \+\+i\)",
        "for (Index_t i = (long)length * block / threads; i < (long)length * (block + 1) / threads; ++i)",
    ),
    (r"\bomp_get_thread_num\(\)", "block"),
)
"""Changes to the text of LULESH before it is compiled with OpenMP: what is sought, and what stands for it."""


@dataclass(frozen=True)
class Original:
    """A program, and how its driver is built.

    Attributes:
        title: its name.
        files: by which its checkout is known.
        joined: files that the driver includes as one, ``<driver>_checkout.inc``.
        driver: ours.
        flags: for the front; ``{}`` is the checkout.
        options: of the pipeline.
        sizes: what is measured: how large, and how many steps.
        changes: to the joined text where it is built with OpenMP.
        threaded: more flags for the front, with OpenMP.
    """

    title: str
    files: tuple[str, ...]
    joined: tuple[str, ...]
    driver: str
    flags: tuple[str, ...]
    options: dict[str, Any]
    sizes: tuple[int, int]
    changes: tuple[tuple[str, str], ...] = ()
    threaded: tuple[str, ...] = ()


ORIGINALS = (
    # Loops over an element's corners are unrolled before Enzyme, which else gets what they leave in local arrays wrong
    # (the strain rates, on which the next time step depends). Roots stay in their branches, see BuildOptions.
    Original(
        "LULESH 2.0",
        (*FILES, "lulesh.h"),
        FILES,
        "lulesh",
        ("-funroll-loops", "-DUSE_MPI=0", "-I{}"),
        {"speculate": False},
        (10, 5),
        REGIONS,
        # Loops whose length is not known stay as they are: what an unrolled one keeps, Enzyme finds no room for.
        ("-mllvm", "-unroll-runtime=false"),
    ),
    # Its own header has a call that this clang takes for an error; its own build reorders arithmetic.
    Original(
        "miniBUDE",
        ("src/bude.h", "src/serial/fasten.hpp", "src/omp/fasten.hpp"),
        (),
        "minibude",
        ("-Wno-missing-template-arg-list-after-template-kw", "-I{}/src"),
        {"fast_math": True},
        (20, 1),
    ),
)
STEP, WORST_ERROR, WORST_DIFFERENCE = 1e-6, 1e-5, 1e-10
THREADS = (1, 2, 4)


def report_sources(paths: Sequence[Path], samples: int = 7) -> str:
    """Lines on every checkout, serial and with OpenMP: what its gradient costs, and how far off differences it is.

    Args:
        paths: folders with LULESH 2.0 or miniBUDE.
        samples: of primal and gradient, in turns.

    Raises:
        InputError: a folder holds neither.
    """
    lines = []
    for path in paths:
        original = original_of(path)
        size, steps = original.sizes
        serial = None
        for openmp in (False, True):
            about = f"{original.title}, {'OpenMP' if openmp else 'serial'}, size {size}, {steps} step{'s'[: steps > 1]}"
            try:
                library = build(path, openmp)
            except CompileError as error:
                lines.append(f"{about}: not differentiated: {str(error).splitlines()[0]}")
                lines += [f"    {line}" for line in str(error).splitlines()[1:4]]
                continue
            for threads in THREADS if openmp else (1,):
                answer = in_a_process(library, size, steps, samples, threads)
                ratio = paired_ratio(answer["gradient_seconds"], answer["primal_seconds"])
                gradient = np.array(answer["gradient"])
                serial = gradient if serial is None and not openmp else serial
                off = np.inf if serial is None else abs(gradient - serial).max() / abs(serial).max()
                right = answer["error"] <= WORST_ERROR and (serial is None or off <= WORST_DIFFERENCE)
                verdict = "" if right else "WRONG: "
                with_threads = f", {threads} thread{'s'[: threads > 1]}" if openmp else ""
                lines.append(
                    f"{verdict}{about}{with_threads}: gradient/primal {ratio}; off central differences by "
                    f"{answer['error']:.0e}, which differ among themselves by {answer['noise']:.0e}"
                    + (f"; off the serial gradient by {off:.0e}" if openmp and serial is not None else "")
                )
    return "\n\n" + "\n".join(lines) if lines else ""


def original_of(checkout: Path) -> Original:
    """Tell which program is checked out there.

    Raises:
        InputError: none of those that have a driver.
    """
    for original in ORIGINALS:
        if all((checkout / name).is_file() for name in original.files):
            return original
    started = (o for o in ORIGINALS if any((checkout / name).is_file() for name in o.files))
    nearest = next(started, ORIGINALS[0])
    missing = next(name for name in nearest.files if not (checkout / name).is_file())
    titles = " or ".join(original.title for original in ORIGINALS)
    raise InputError(f"got --source {checkout} without {missing}; expected a checkout of {titles}: correct it")


def build(checkout: Path, openmp: bool) -> Path:
    """The library, built unless this user's cache has it.

    Raises:
        InputError: it is no checkout of a program with a driver.
        CompileError, EnzymeError: it does not build, or Enzyme refuses it.
    """
    original = original_of(checkout)
    whole = _joined(checkout, original)
    for sought, instead in original.changes if openmp else ():
        whole = re.sub(sought, instead, whole, flags=re.MULTILINE)
    threaded = original.threaded if openmp else ()
    flags = (*FLAGS, *threaded, *(flag.format(checkout.resolve()) for flag in original.flags))
    options = BuildOptions(openmp=openmp, timeout=600, **original.options)
    engine = find_engine()
    words = repr((engine.version, find_clang(engine).version, cpu_model(), flags, options)).encode()
    headers = b"".join(path.read_bytes() for path in sorted(checkout.glob("**/*.h*")) if path.is_file())
    driver = SOURCES / f"{original.driver}_driver.cpp"
    texts = [whole.encode(), headers, driver.read_bytes(), Path(pipeline.__file__).read_bytes()]
    texts += [Path(regions.__file__).read_bytes()]
    key = hashlib.sha256(b"\0".join([words, *texts])).hexdigest()[:24]
    folder = cache_folder() / "parallel_gradients"
    target, name = folder / key, f"{original.driver}.so"
    if not target.is_dir():
        with building(folder, key) as place:
            if not target.is_dir():
                include = place / f"{original.driver}_checkout.inc"
                include.write_text(whole, encoding="utf-8")
                compile_library(driver, place / name, (*flags, f"-I{place}"), options)
                include.unlink()
                enter_folder(place, target)
    return target / name


def _joined(checkout: Path, original: Original) -> str:
    """Files that are one program only together: their header has no guard, and is wanted once."""
    texts = [(checkout / name).read_text(encoding="utf-8", errors="replace") for name in original.joined]
    return "\n".join([*texts[:1], *(HEADER.sub("", text) for text in texts[1:])])


def in_a_process(library: Path, size: int, steps: int, samples: int, threads: int) -> dict[str, Any]:
    """Run :func:`measure` without the threads and memory of this process."""
    words = [str(library), *map(str, (size, steps, samples, threads))]
    command = [sys.executable, "-m", __name__, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, env={**os.environ, **SETTINGS})
    if done.returncode:
        raise CommunicationError(f"got exit code {done.returncode} of {library}; expected an answer: see above")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def measure(path: str, size: int, steps: int, samples: int, threads: int = 1) -> dict[str, Any]:
    """In a process of its own: seconds of all CPUs, and the relative error of the derivative along a direction.

    ``noise`` is by how much differences of two step widths differ; ``gradient`` has all of its numbers.
    """
    library = ctypes.CDLL(path)
    if hasattr(library, "omp_set_num_threads"):
        library.omp_set_num_threads(threads)
    for name in ("source_new", "source_shadow"):
        getattr(library, name).restype = ctypes.c_void_p
    for name in ("source_along", "source_value"):
        getattr(library, name).restype = ctypes.c_double
    library.source_numbers.restype = ctypes.c_long
    seconds: dict[str, list[float]] = {"primal_seconds": [], "gradient_seconds": []}
    along, gradient = 0.0, np.empty(0)
    for _ in range(samples):
        domain = ctypes.c_void_p(library.source_new(size))
        start = time.process_time()
        library.source_primal(domain, steps)
        seconds["primal_seconds"].append(time.process_time() - start)
        library.source_free(domain)
        domain, shadow = ctypes.c_void_p(library.source_new(size)), ctypes.c_void_p(library.source_shadow(size))
        start = time.process_time()
        library.source_gradient(domain, shadow, steps)
        seconds["gradient_seconds"].append(time.process_time() - start)
        along = library.source_along(shadow)
        gradient = np.empty(library.source_numbers(shadow, None))
        library.source_numbers(shadow, ctypes.c_void_p(gradient.ctypes.data))
        library.source_free(domain)
        library.source_free(shadow)
    wide, narrow = (_difference(library, size, steps, step) for step in (STEP, STEP / 10))
    errors = {"error": abs(narrow - along) / abs(along), "noise": abs(wide - narrow) / abs(narrow)}
    return {**seconds, **errors, "gradient": gradient.tolist()}


def _difference(library: ctypes.CDLL, size: int, steps: int, step: float) -> float:
    ends = []
    for sign in (1, -1):
        domain = ctypes.c_void_p(library.source_new(size))
        library.source_move(domain, ctypes.c_double(sign * step))
        library.source_primal(domain, steps)
        ends.append(library.source_value(domain))
        library.source_free(domain)
    return float(ends[0] - ends[1]) / (2 * step)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], *map(int, sys.argv[2:]))))
