"""The libraries, kept between runs: ``plain`` (primals, gradients by hand), ``enzyme``, ``ref``, and a tool."""

from __future__ import annotations

import hashlib
from pathlib import Path

from deep500.errors import CompileError
from deep500.operators.cpp.cache import building, cache_folder, enter_folder
from deep500.operators.cpp.compilers import cpu_model
from deep500.operators.enzyme import pipeline
from deep500.operators.enzyme.engine import find_clang, find_engine
from deep500.operators.enzyme.pipeline import FIRST_LINK_SECONDS, Options, compile_library, compiler_lines, run

SOURCES = Path(__file__).parent
MATHEMATICS = ("-ffast-math", "-fno-exceptions")
PLAIN = ("-std=c++17", "-O3", "-march=native", *MATHEMATICS, "-fveclib=libmvec", "-shared", "-fPIC", "-w")
"""The primal gets all that the last step of the gradients gets."""

OPTIONS = {"enzyme": Options("enzyme", fast_math=True), "ref": Options("ref", fast_math=True)}
LIBRARIES = ("plain", "allocation", *OPTIONS)


def libraries() -> dict[str, Path]:
    """Paths of the libraries by name, built unless this user's cache has them.

    Raises:
        MissingEngine: Enzyme or a compiler is missing; says how to get it.
        CompileError, EnzymeError: a source was changed into what does not build.

    Example:
        >>> sorted(libraries())  # doctest: +SKIP
        ['allocation', 'enzyme', 'plain', 'ref']
    """
    engine = find_engine()
    clang = find_clang(engine)
    texts = [path.read_bytes() for path in (Path(pipeline.__file__), *sorted(SOURCES.glob("*.[ch]pp")))]
    words = repr((engine.version, clang.version, cpu_model(), PLAIN, OPTIONS)).encode()
    key = hashlib.sha256(b"\0".join([words, *texts])).hexdigest()[:24]
    folder = cache_folder() / "enzyme_microbenchmarks"
    target = folder / key
    if not target.is_dir():
        with building(folder, key) as place:
            if not target.is_dir():
                _build(clang.command, place)
                enter_folder(place, target)
    return {name: target / f"{name}.so" for name in LIBRARIES}


def _build(compiler: tuple[str, ...], folder: Path) -> None:
    """All kernels are in one file each, as most of a build's time goes into headers."""
    for name in ("plain", "allocation"):
        command = [*compiler, *PLAIN, str(SOURCES / f"{name}.cpp"), "-o", str(folder / f"{name}.so"), "-lmvec", "-lm"]
        code, _, said = run(command, FIRST_LINK_SECONDS)
        if code:
            raise CompileError(f"{name}.cpp: got C++ that does not compile; expected C++17\n{compiler_lines(said)}")
    for name, options in OPTIONS.items():
        compile_library(SOURCES / "gradients.cpp", folder / f"{name}.so", MATHEMATICS, options)
