"""The libraries of all forms, kept between runs: one source, five ways to run its loops."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from deep500.operators.cpp.cache import building, cache_folder, enter_folder
from deep500.operators.cpp.compilers import cpu_model
from deep500.operators.cpp.ranks import mpi_flags
from deep500.operators.cpp.spec import INCLUDE
from deep500.operators.enzyme import pipeline
from deep500.operators.enzyme.engine import find_clang, find_engine
from deep500.operators.enzyme.pipeline import BuildOptions, compile_library

SOURCES = Path(__file__).parent
MESSAGES = INCLUDE / "deep500" / "communication.h"
FLAGS = ("-fno-exceptions", "-fno-math-errno", "-DD500_RULES_OF_MESSAGES")


@dataclass(frozen=True)
class ParallelForm:
    """A way in which a program is parallel.

    Attributes:
        title: for people.
        openmp, mpi, raja: threads; ranks; loops as function objects with execution policies.
    """

    title: str
    openmp: bool = False
    mpi: bool = False
    raja: bool = False


FORMS = {
    "serial": ParallelForm("serial"),
    "openmp": ParallelForm("OpenMP", openmp=True),
    "mpi": ParallelForm("MPI", mpi=True),
    "hybrid": ParallelForm("MPI+OpenMP", openmp=True, mpi=True),
    "raja": ParallelForm("RAJA-style", openmp=True, raja=True),
}
FAST = {"hydro": False, "docking": True}
"""Whether arithmetic may be reordered, as the programs' own builds have it: docking's is."""


def library(proxy: str, form: str) -> Path:
    """Path of a proxy's library in a form, built unless this user's cache has it.

    Args:
        proxy: ``hydro`` or ``docking``.
        form: one of FORMS.

    Raises:
        MissingEngine: Enzyme or a compiler is missing; says how to get it.
        MissingBackend: a form with ranks, and there is no MPI to build with.
        CompileError, EnzymeError: a source was changed into what does not build.
    """
    how = FORMS[form]
    front, back = mpi_flags() if how.mpi else ((), ())
    flags = (*FLAGS, f"-I{INCLUDE}", *front, *(("-DD5_RAJA",) if how.raja else ()))
    exports = (f"{proxy}_gradient", f"{proxy}_tangent")
    options = BuildOptions(openmp=how.openmp, fast_math=FAST[proxy], back=back, apart=exports, owned=True)
    engine = find_engine()
    texts = [path.read_bytes() for path in (Path(pipeline.__file__), MESSAGES, *sorted(SOURCES.glob("*.[ch]pp")))]
    words = repr((proxy, engine.version, find_clang(engine).version, cpu_model(), flags, options)).encode()
    key = hashlib.sha256(b"\0".join([words, *texts])).hexdigest()[:24]
    folder = cache_folder() / "parallel_gradients"
    target = folder / key
    if not target.is_dir():
        with building(folder, key) as place:
            if not target.is_dir():
                compile_library(SOURCES / f"{proxy}.cpp", place / f"{proxy}.so", flags, options)
                enter_folder(place, target)
    return target / f"{proxy}.so"
