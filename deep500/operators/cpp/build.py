"""From a `BuildSpec` to a library in the cache: found there, or compiled and moved there."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from deep500.errors import CacheError, CompileError
from deep500.operators.base import Descriptors
from deep500.operators.cpp.cache import building, enter, private_folder, sound_library, write_text
from deep500.operators.cpp.commands import FLAGS, LINK, Derivation, Job, compile_library
from deep500.operators.cpp.compilers import Compiler, cpu_model, find_compiler, find_nvcc
from deep500.operators.cpp.entries import make_room
from deep500.operators.cpp.ranks import mpi_flags
from deep500.operators.cpp.spec import INCLUDE, BuildSpec, Infer
from deep500.operators.cpp.wrapper import ABI, wrapper_source
from deep500.reading import declare, read_json

INCLUDED = declare([str])
"""Format of an entry of the cache, ``<key>.json``: the files that the source includes."""


def find_library(
    spec: BuildSpec, inputs: Descriptors, infer: Infer, live_output: bool = False, derivation: Derivation | None = None
) -> Path:
    """The library of an operator, built now unless the cache has it.

    The key holds the source, everything else of the spec, the compiler and the CPU. It leads to a list of the
    files that the source includes; the library lies under the key together with what those files hold.

    Args:
        spec: what to build.
        inputs, infer: the operator's, to try a derived gradient with.
        live_output: show what the compiler is asked and says.
        derivation: what derives its gradient, None where that is the class's own.

    Raises:
        CompileError: it does not compile.
        EnzymeError: Enzyme cannot differentiate it, or the gradient is wrong.
        CacheError: the cache cannot be written, or others can write to it.
        MissingEngine: there is no compiler.
        MissingDevice: it is in CUDA, and nvcc or a GPU is missing.
    """
    compiler = find_nvcc(spec.name) if spec.is_cuda else find_compiler()
    folder = private_folder("cpp")
    key = _key(spec, compiler, derivation)
    library = _cached(folder, key, spec)
    if library is not None:
        return library
    from deep500.progress import progress  # where something is built

    with progress(f"building {spec.name}"), building(folder, key) as place:
        library = _cached(folder, key, spec)  # another process may have built it while this one waited
        if library is None:
            job = _job(spec, compiler, place, live_output, inputs, infer, derivation)
            compile_library(job)
            library = _entered(job, folder, key)
            make_room()
        return library


def _key(spec: BuildSpec, compiler: Compiler, derivation: Derivation | None) -> str:
    texts = [str(ABI), spec.as_json(), compiler.kind, compiler.identity, cpu_model(), " ".join(FLAGS + LINK)]
    texts += [os.environ.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")]
    texts.append(wrapper_source(spec, "", derive=None if derivation is None else derivation.source))
    if derivation is not None:
        texts += derivation.identity()
    if spec.ranks:
        texts += [word for words in mpi_flags() for word in words]
    digest = hashlib.sha256("\0".join(texts).encode())
    for path in (*([spec.file] if spec.file else []), *spec.other_files):
        digest.update(b"\0" + Path(path).name.encode() + b"\0" + Path(path).read_bytes())
    return digest.hexdigest()[:32]


def _cached(folder: Path, key: str, spec: BuildSpec) -> Path | None:
    """The library, if there is one. A list or library that is damaged is none: it is built and listed anew."""
    entry = folder / f"{key}.json"
    try:
        listed = read_json(entry, INCLUDED, error=CacheError) if entry.is_file() else None
    except CacheError:
        listed = None
    if listed is None:
        return None
    place = folder / _with_contents(key, [_known_place(name, spec) for name in listed])
    return sound_library(place, f"{spec.name}.so")


def _with_contents(key: str, files: list[Path]) -> str:
    """The key with the contents of included files worked in; a missing file counts as empty."""
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
    places = [("<source>", Path(spec.file).parent)] if spec.file else []
    return [("<deep500>", INCLUDE), *places]


def _job(
    spec: BuildSpec,
    compiler: Compiler,
    place: Path,
    live_output: bool,
    inputs: Descriptors,
    infer: Infer,
    derivation: Derivation | None,
) -> Job:
    main = spec.file
    if main is None:
        main = f"{spec.name}.cpp"
        (place / main).write_text(spec.source or "", encoding="utf-8")
    library = place / "made" / f"{spec.name}.so"
    library.parent.mkdir()
    return Job(spec, compiler, place, main, library, live_output, inputs, infer, derivation)


def _entered(job: Job, folder: Path, key: str) -> Path:
    """Move a library that is finished to its place, and list what it was made from."""
    included = [path for path in _included(job.listing, job.place) if not path.is_relative_to(job.place)]
    included += _asked_for(job.spec, included)
    target = folder / _with_contents(key, included)
    enter(job.library, target, key)
    write_text(folder / f"{key}.json", json.dumps([_portable(path, job.spec) for path in included]))
    return target / job.library.name


def _asked_for(spec: BuildSpec, included: list[Path]) -> list[Path]:
    """Files beside a source of which it, or what it includes, asks whether there are some: later there may be."""
    files = [Path(name) for name in (*([spec.file] if spec.file else []), *spec.other_files)]
    files += [path for path in included if not path.is_relative_to(INCLUDE)]
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()]
    names = {name for text in texts for name in _HAS_INCLUDE.findall(text)}
    return sorted({(file.parent / name).resolve() for file in files for name in names} - set(included))


_HAS_INCLUDE = re.compile(r'__has_include\s*\(\s*"([^"\n]+)"')


def _included(listing: Path, place: Path) -> list[Path]:
    """Files that the unit and the other sources include; system headers are left out by the compiler."""
    if not listing.is_file():
        raise CompileError(f"got no list of included files from the compiler; expected {listing.name}: report this")
    included = set()
    for rule in place.glob("*.d"):
        text = rule.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
        for word in text.partition(": ")[2].replace("\\ ", "\0").split():
            name = word.replace("\0", " ").replace("$$", "$").replace("\\#", "#")  # as make quotes them
            included.add((place / name).resolve())
    return sorted(included)
