"""The libraries, kept between runs: ``plain`` (primals, gradients by hand), ``enzyme``, ``ref``, a tape tool each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import CompileError, EnzymeError
from deep500.operators.cpp.cache import building, enter_folder, private_folder
from deep500.operators.cpp.compilers import cpu_model
from deep500.operators.enzyme import pipeline
from deep500.operators.enzyme.engine import Clang, find_clang, find_engine
from deep500.operators.enzyme.pipeline import FIRST_LINK_SECONDS, BuildOptions, compile_library, compiler_lines, run
from recipes.studies.enzyme_microbenchmarks.problems import BENCHMARKS, STYLES
from recipes.studies.enzyme_microbenchmarks.tapes import TapeTool

SOURCES = Path(__file__).parent
FOLDER = "enzyme_microbenchmarks"
MATHEMATICS = ("-ffast-math",)
NO_EXCEPTIONS = ("-fno-exceptions",)
PLAIN = ("-std=c++17", "-O3", "-march=native", *MATHEMATICS, "-fveclib=libmvec", "-shared", "-fPIC", "-w")
"""The primal and the tape tools get all that the last step of the gradients gets."""

OPTIONS = {"enzyme": BuildOptions("enzyme", fast_math=True), "ref": BuildOptions("ref", fast_math=True)}
BY_ROWS, BY_SLOPES = "ba", "brusselator"
"""Their gradients are written out in gradients.cpp: of rows of a Jacobian, of a function with arrays of results."""

SWITCHES = {BY_ROWS: "-DBA_BY_ROWS", BY_SLOPES: "-DBRUSSELATOR_SLOPES"}

REFUSED = "refused.json"


@dataclass(frozen=True)
class Libraries:
    """The libraries that were built.

    Attributes:
        paths: of the libraries by name: ``plain``, ``allocation``, ``enzyme``, ``ref``, names of tape tools.
        refused: what the engine could not differentiate: why, by pipeline and benchmark.
    """

    paths: dict[str, Path]
    refused: dict[str, dict[str, str]]


def libraries(names: Sequence[str], tapes: Sequence[TapeTool] = ()) -> Libraries:
    """The libraries, built unless this user's cache has them.

    Args:
        names: of benchmarks and styles.
        tapes: tools that overload operators.

    Raises:
        MissingEngine: Enzyme or a compiler is missing; says how to get it.
        CompileError: a source was changed into what does not build, or a tool's version is another than expected.

    Example:
        >>> sorted(libraries(["euler"]).paths)  # doctest: +SKIP
        ['allocation', 'enzyme', 'plain', 'ref']
    """
    engine = find_engine()
    clang = find_clang(engine)
    texts = [path.read_bytes() for path in (Path(pipeline.__file__), *sorted(SOURCES.rglob("*.[ch]pp")))]
    chosen = sorted(names)
    words = repr((engine.version, clang.version, cpu_model(), PLAIN, OPTIONS, chosen)).encode()
    key = hashlib.sha256(b"\0".join([words, *texts])).hexdigest()[:24]
    place = _built(key, lambda folder: _build(clang, folder, chosen))
    paths = {name: place / f"{name}.so" for name in ("plain", "allocation", *OPTIONS)}
    for tape in tapes:
        tape_key = hashlib.sha256(f"{key} {tape.version} {tape.include} {tape.sources}".encode()).hexdigest()[:24]
        built = _built(tape_key, lambda folder, tape=tape: _build_tape(clang, folder, tape, chosen))  # type: ignore[misc]
        paths[tape.name] = built / f"{tape.name}.so"
    return Libraries(paths, json.loads((place / REFUSED).read_text(encoding="utf-8")))


def _built(key: str, build: Callable[[Path], None]) -> Path:
    """The folder of a key, filled by ``build(folder)`` if there is none."""
    folder = private_folder(FOLDER)
    target = folder / key
    if not target.is_dir():
        with building(folder, key) as place:
            if not target.is_dir():
                build(place)
                enter_folder(place, target)
    return target


def _flags(names: Sequence[str], written: Sequence[str] = ()) -> list[str]:
    """Flags that say which functions a file is about; for those of ``written`` it has code of their own."""
    lists = {"FOR_BENCHMARKS": BENCHMARKS, "FOR_STYLES": STYLES}
    calls = {macro: [f"DO({n})" for n in names if n in every and n not in written] for macro, every in lists.items()}
    switches = [SWITCHES[name] for name in names if name in written]
    return [*switches, *(f"-D{macro}(DO)={' '.join(items)}" for macro, items in calls.items())]


def _build(clang: Clang, folder: Path, names: Sequence[str]) -> None:
    """All kernels are in one file each, as most of a build's time goes into headers."""
    for name in ("plain", "allocation"):
        _compile(clang, [str(SOURCES / f"{name}.cpp"), *NO_EXCEPTIONS, *_flags(names)], folder, name)
    refused = {name: _differentiate(folder / f"{name}.so", options, names) for name, options in OPTIONS.items()}
    (folder / REFUSED).write_text(json.dumps(refused), encoding="utf-8")


def _build_tape(clang: Clang, folder: Path, tape: TapeTool, names: Sequence[str]) -> None:
    words = [str(SOURCES / "tapes.cpp"), *map(str, tape.sources), *_flags(names, [BY_ROWS])]
    _compile(clang, [*words, f'-DTAPE="tapes/{tape.name}.hpp"', f"-I{tape.include}"], folder, tape.name)


def _compile(clang: Clang, words: Sequence[str], folder: Path, name: str) -> None:
    command = [*clang.command, *PLAIN, *words, "-o", str(folder / f"{name}.so"), "-lmvec", "-lm"]
    code, _, errors = run(command, FIRST_LINK_SECONDS)
    if code:
        raise CompileError(f"{name}: got C++ that does not compile; expected C++17\n{compiler_lines(errors)}")


def _differentiate(library: Path, options: BuildOptions, names: Sequence[str]) -> dict[str, str]:
    """Build the gradients that the engine can make; returns why it cannot make the others.

    All at once if it can; if not, one by one, and then those that it could make.
    """

    def build(some: Sequence[str]) -> str:
        flags = (*MATHEMATICS, *NO_EXCEPTIONS, *_flags(some, list(SWITCHES)))
        try:
            compile_library(SOURCES / "gradients.cpp", library, flags, options)
        except EnzymeError as error:
            return str(error)
        return ""

    if not build(names):
        return {}
    refused = {name: why for name in names if (why := build([name]))}
    failure = build([name for name in names if name not in refused])
    if failure:
        raise EnzymeError(failure)
    return refused
