"""From a `BuildSpec` to a library in the cache: found there, or compiled and moved there."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

from deep500.errors import CompileError
from deep500.operators.cpp.cache import building, cache_folder, enter, write_text
from deep500.operators.cpp.compilers import Compiler, cpu_model, find_compiler
from deep500.operators.cpp.running import FIRST_ZIG_SECONDS, SECONDS, run_compiler
from deep500.operators.cpp.spec import BuildSpec
from deep500.operators.cpp.wrapper import ABI, wrapper_source

INCLUDE = Path(__file__).resolve().parents[1] / "include"
"""Folder of ``deep500/deep500.h``."""

HEADERS = (".h", ".hpp", ".hh", ".inl", ".cuh")
OBJECTS = (".o", ".a", ".so")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-w")
LINK = ("-shared", "-Wl,-Bsymbolic", "-lm")
"""Calls inside a library stay inside, whatever else the process has loaded under the same names."""


def find_library(spec: BuildSpec, live_output: bool = False) -> Path:
    """The library of an operator, built now unless the cache has it.

    The key holds the source, everything else of the spec, the compiler and the processor. It leads to a list of the
    files that the source includes; the library lies under the key together with what those files hold.

    Raises:
        CompileError: it does not compile.
        CacheError: the cache cannot be written.
        MissingEngine: there is no compiler.
    """
    compiler = find_compiler()
    folder = cache_folder() / "cpp"
    key = _key(spec, compiler)
    found = _cached(folder, key, spec)
    if found is not None:
        return found
    with building(folder, key) as place:
        found = _cached(folder, key, spec)  # another process may have built it while this one waited
        return found or _build(spec, compiler, folder, key, place, live_output)


def _key(spec: BuildSpec, compiler: Compiler) -> str:
    texts = [str(ABI), spec.as_json(), compiler.kind, compiler.identity, cpu_model(), " ".join(FLAGS + LINK)]
    texts += [os.environ.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")]
    texts.append(wrapper_source(spec, ""))
    if spec.gradient == "enzyme":
        from deep500.operators.enzyme.engine import find_clang, find_engine

        engine = find_engine()
        texts += [str(engine), str(find_clang(engine))]
    digest = hashlib.sha256("\0".join(texts).encode())
    for path in (*([spec.file] if spec.file else []), *spec.other_files):
        digest.update(b"\0" + Path(path).name.encode() + b"\0" + Path(path).read_bytes())
    return digest.hexdigest()[:32]


def _cached(folder: Path, key: str, spec: BuildSpec) -> Path | None:
    try:
        listed = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    place = folder / _with_contents(key, [_known_place(name, spec) for name in listed])
    library = place / f"{spec.name}.so"
    return library if library.is_file() else None


def _with_contents(key: str, files: list[Path]) -> str:
    """The key with the contents of included files worked in; a file that is gone counts as empty."""
    digest = hashlib.sha256(key.encode())
    for file in files:
        digest.update(b"\0" + (file.read_bytes() if file.is_file() else b""))
    return digest.hexdigest()[:32]


def _portable(path: Path, spec: BuildSpec) -> str:
    """An included file as the list names it: a source that moves with its headers finds its library again."""
    for mark, folder in _places(spec):
        if path.is_relative_to(folder):
            return f"{mark}/{path.relative_to(folder)}"
    return str(path)


def _known_place(name: str, spec: BuildSpec) -> Path:
    mark, _, rest = name.partition("/")
    return dict(_places(spec)).get(mark, Path("/")) / rest


def _places(spec: BuildSpec) -> list[tuple[str, Path]]:
    own = [("<source>", Path(spec.file).parent)] if spec.file else []
    return [("<deep500>", INCLUDE), *own]


def _build(spec: BuildSpec, compiler: Compiler, folder: Path, key: str, place: Path, live_output: bool) -> Path:
    main = spec.file
    if main is None:
        main = f"{spec.name}.cpp"
        (place / main).write_text(spec.source or "", encoding="utf-8")
    unit, library, listing = place / "operator.cc", place / "made" / f"{spec.name}.so", place / "included.d"
    library.parent.mkdir()
    _compile(spec, compiler, main, unit, library, listing, live_output)
    included = [path for path in _included(listing, place) if not path.is_relative_to(place)]
    target = folder / _with_contents(key, included)
    enter(library.parent, target)
    write_text(folder / f"{key}.json", json.dumps([_portable(path, spec) for path in included]))
    return target / library.name


def _compile(
    spec: BuildSpec, compiler: Compiler, main: str, unit: Path, library: Path, listing: Path, live_output: bool
) -> None:
    sources = [f for f in spec.other_files if not f.endswith(HEADERS + OBJECTS)]
    objects = [f for f in spec.other_files if f.endswith(OBJECTS)]
    macros = [f"-DD500_DTYPE={_cpp_dtype(spec)}", *(f"-D{key}={value}" for key, value in spec.definitions)]
    flags = [f"-I{INCLUDE}", *(f"-I{Path(spec.file).parent}" for _ in [0] if spec.file), *macros]
    listing_flags = ["-MMD", "-MF", str(listing)]
    if spec.gradient == "enzyme":
        _compile_enzyme(spec, main, sources, unit, library, [*flags, *listing_flags])
        return
    unit.write_text(wrapper_source(spec, main), encoding="utf-8")
    flags = [
        *FLAGS,
        *_kind_flags(compiler),
        *(["-ffast-math"] if spec.fast_math else []),
        *flags,
        *_openmp(spec, compiler),
    ]
    made = unit.with_suffix(".o")
    run = [[*compiler.command, *flags, *listing_flags, "-c", str(unit), "-o", str(made)]]
    for number, source in enumerate(sources):
        objects.append(str(unit.with_name(f"other{number}.o")))
        run.append([*compiler.command, *flags, "-c", source, "-o", objects[-1]])
    run.append([*compiler.command, *flags, *LINK[:-1], str(made), *objects, "-o", str(library), LINK[-1]])
    first = compiler.kind == "zig" and _announce_first_zig()
    for command in run:
        run_compiler(spec, command, unit.parent, live_output, FIRST_ZIG_SECONDS if first else SECONDS)


def _compile_enzyme(
    spec: BuildSpec, main: str, sources: list[str], unit: Path, library: Path, flags: list[str]
) -> None:
    from deep500.operators.enzyme.pipeline import Options, compile_library
    from deep500.operators.enzyme.verify import check_build

    unit.write_text(wrapper_source(spec, main, sources), encoding="utf-8")
    compile_library(unit, library, flags, Options(fast_math=spec.fast_math, openmp=spec.openmp))
    check_build(spec, library)


def _cpp_dtype(spec: BuildSpec) -> str:
    from deep500.operators.cpp.spec import CPP_TYPES

    return CPP_TYPES[spec.dtype]


def _kind_flags(compiler: Compiler) -> list[str]:
    # Without -fno-gnu-unique, gcc shares static members of templates between libraries that know nothing of each other.
    return ["-fno-gnu-unique"] if compiler.kind == "gcc" else []


def _openmp(spec: BuildSpec, compiler: Compiler) -> list[str]:
    return ["-fopenmp"] if spec.openmp else []


def _announce_first_zig() -> bool:
    """Whether zig has not yet built its C++ library for this user; if so, say that it takes a while."""
    cache = Path(os.environ.get("ZIG_GLOBAL_CACHE_DIR") or Path.home() / ".cache" / "zig")
    if any(cache.glob("o/*/libc++.a")):
        return False
    sys.stderr.write(
        "deep500: the first build with zig compiles its C++ library: this once, it takes one to two minutes\n"
    )
    return True


def _included(listing: Path, place: Path) -> list[Path]:
    """Files that the unit includes, in the compiler's order; system headers are left out by the compiler."""
    if not listing.is_file():
        raise CompileError(f"got no list of included files from the compiler; expected {listing.name}: report this")
    text = listing.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    words = text.partition(": ")[2].replace("\\ ", "\0").split()
    return sorted({(place / word.replace("\0", " ")).resolve() for word in words})
