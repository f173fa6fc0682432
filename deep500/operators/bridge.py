"""Bridges: the one small library per framework that runs compiled operators on the framework's own memory.

A bridge (``custom_call.cpp`` of a backend, on ``include/deep500/bridge.h``) is compiled once per version of the
framework into the same cache as operators. Graphs name an operator by a key, a hash of what it is; each process tells
the bridge the addresses behind the keys that it uses.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeGuard

from deep500.errors import MissingEngine
from deep500.operators.base import CustomOp
from deep500.operators.cpp.binding import failure
from deep500.operators.cpp.cache import building, enter, private_folder, sound_library
from deep500.operators.cpp.compiled_op import CompiledOp
from deep500.operators.cpp.compilers import find_compiler
from deep500.operators.cpp.entries import make_room

INCLUDE = Path(__file__).resolve().parent / "include"
"""Folder of the headers."""

FORWARD, BACKWARD, JVP, HVP = range(4)
"""Phases that a bridge can be asked to run (``enum Phase`` of bridge.h)."""

MOST = 63
"""Inputs and outputs that an operator may have together."""

_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_EXPORTS = ("instance", "forward", "backward", "jvp", "hvp", "error")
_TIMEOUT = 1200.0  # zig compiles the C++ library on its first use


def build_bridge(source: Path, includes: Sequence[str], libraries: Sequence[str], version: str) -> Path:
    """The library of a bridge, compiled unless the cache has it.

    Args:
        source: its C++ text.
        includes: folders of the framework's headers.
        libraries: paths of the framework's libraries to link with.
        version: of the framework: other versions get libraries of their own.

    Raises:
        CacheError: the cache cannot be written, or others can write to it.
        MissingEngine: there is no C++ compiler, or it fails.
    """
    compiler = find_compiler()
    texts = [source.read_bytes(), (INCLUDE / "deep500" / "bridge.h").read_bytes()]
    about = repr((compiler.identity, _FLAGS, version, [*map(str, includes)], [*map(str, libraries)]))
    key = sha256(b"\0".join([*texts, about.encode()])).hexdigest()[:32]
    folder, name = private_folder("bridges"), f"{source.parent.name}.so"
    library = sound_library(folder / key, name)
    if library is not None:
        return library
    from deep500.progress import progress  # where something is built

    with progress(f"building the bridge to {source.parent.name}"), building(folder, key) as place:
        library = sound_library(folder / key, name)  # another process may have built it while this one waited
        if library is None:
            build = place / "made"
            build.mkdir()
            command = [*compiler.command, *_FLAGS, *(f"-I{folder}" for folder in (INCLUDE, *includes)), str(source)]
            _compile([*command, "-o", str(build / name), *map(str, libraries)], source)
            enter(build / name, folder / key, key)
            make_room()
    return folder / key / name


def _compile(command: Sequence[str], source: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        text = done.stderr
    except subprocess.TimeoutExpired:
        text = f"no end after {_TIMEOUT:.0f} s"
    else:
        if done.returncode == 0:
            return
    raise MissingEngine(
        f"got a failure of {command[0]} on {source.name} of backend {source.parent.name!r}: {text.strip()[-2000:]}; "
        "expected a working C++17 compiler: set DEEP500_CXX to another one, for instance to zig"
    )


class Bridge:
    """A loaded bridge.

    Args:
        path: of its library.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        add = self.library.d500_bridge_add
        add.restype, add.argtypes = (
            None,
            [*[ctypes.c_char_p] * 2, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 2, ctypes.c_int64],
        )
        self._keys: set[str] = set()

    def enter(self, op: CompiledOp) -> str:
        """Tell the bridge where a compiled operator is; returns the key by which graphs name it."""
        key = operator_key(op)
        if key not in self._keys:
            kinds = op.signature
            known = [True, True, *(bool(kinds.get(kind)) for kind in ("backward", "jvp", "hvp")), True]
            addresses = [op.address(f"d500_{n}") if k else None for n, k in zip(_EXPORTS, known, strict=True)]
            functions = (ctypes.c_void_p * len(addresses))(*addresses)
            declared = declared_sizes(op)
            numbers = (ctypes.c_int64 * len(declared))(*declared)
            inputs, outputs = len(kinds["inputs"]), len(kinds["outputs"])
            self.library.d500_bridge_add(
                key.encode(), op.name.encode(), inputs, outputs, functions, numbers, len(declared)
            )
            self._keys.add(key)
        return key


def can_bridge(op: CustomOp) -> TypeGuard[CompiledOp]:
    """Return whether an operator is machine code in this process, which a bridge can call."""
    return isinstance(op, CompiledOp) and not op.isolated and len(op.spec.inputs) + len(op.spec.outputs) <= MOST


def make_instance(op: CompiledOp, inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> None:
    """Have a compiled operator make itself for these shapes, now rather than at the first call.

    Raises:
        OperatorError: it refuses; with its own words.
    """
    make = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(op.address("d500_instance"))
    if not make(op.sizes(inputs, outputs).ctypes.data):
        reason = ctypes.CFUNCTYPE(ctypes.c_char_p)(op.address("d500_error"))() or b""
        raise failure(op.name, "create_new_op", reason.decode(errors="replace"))


def operator_key(op: CompiledOp) -> str:
    """A hash of a compiled operator's library (whose folder in the cache is named by its content) and descriptors."""
    about = repr((Path(op.path).parent.name, op.input_descriptors, op.output_descriptors))
    return sha256(about.encode()).hexdigest()[:32]


def declared_sizes(op: CompiledOp) -> list[int]:
    """Return the inputs' declared shapes, as bridge.h expects them: per input its rank (-1: any) and sizes (-1: any;
    -2, -3, ...: the symbols)."""
    symbols: dict[str, int] = {}
    encoded: list[int] = []
    for descriptor in op.input_descriptors or ():
        shape = descriptor.shape
        encoded.append(-1 if shape is None else len(shape))
        for size in shape or ():
            symbol = symbols.setdefault(size, -2 - len(symbols)) if isinstance(size, str) else -1
            encoded.append(size if isinstance(size, int) else symbol)
    return encoded
