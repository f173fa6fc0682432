"""`BuildSpec`: all that decides what library an operator becomes. Plain data, so that it can be pickled and hashed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deep500.errors import InputError
from deep500.operators.base import Descriptors
from deep500.tensors import TensorDescriptor

INCLUDE = Path(__file__).resolve().parents[1] / "include"
"""Folder of ``deep500/deep500.h``."""

# fmt: off
CPP_TYPES = {
    "float32": "float", "float64": "double", "float16": "deep500::float16", "bfloat16": "deep500::bfloat16",
    "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "bool": "bool",
}
# fmt: on
"""C++ type of the elements of each dtype that an operator can have."""

# fmt: off
TENSOR_TYPES = {
    "float32": "TT_FLOAT", "float64": "TT_DOUBLE", "float16": "TT_HALF", "bfloat16": "TT_BFLOAT16", "int8": "TT_INT8",
    "int16": "TT_INT16", "int32": "TT_INT32", "int64": "TT_INT64", "uint8": "TT_UINT8", "uint16": "TT_UINT16",
    "uint32": "TT_UINT32", "uint64": "TT_UINT64", "bool": "TT_BOOL",
}
# fmt: on

FLOATING = ("float32", "float64", "float16", "bfloat16")
"""Dtypes that have gradients."""

AUTOMATIC = "automatic"
"""The gradient that is used where none is asked for: the class's ``backward`` if it has one, else none."""

GRADIENTS = (AUTOMATIC, "backward", "enzyme", None)

Definitions = tuple[tuple[str, str], ...]
Infer = Callable[[list[TensorDescriptor]], Sequence[TensorDescriptor]]
"""Descriptors of the inputs -> those of the outputs."""


@dataclass(frozen=True)
class BuildSpec:
    """The description of a build.

    Attributes:
        name: the operator's, an identifier.
        source: text of the operator, for the inline form; None: it is in ``file``.
        file: absolute path of the operator's source, None for the inline form.
        inputs, outputs: dtypes.
        other_files: absolute paths of further sources, objects or libraries.
        definitions: macros and their values.
        gradient: one of :data:`GRADIENTS`.
        inactive: indices of inputs that get no gradient (Enzyme).
        fast_math: let the compiler reorder floating-point arithmetic and use vector math functions.
        openmp: compile with OpenMP.
        check: try a derived gradient before it may be used (Enzyme).
        whole: limits of inputs of whole numbers in that check, by index.
        ranks: compile with MPI.
    """

    name: str
    source: str | None
    file: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    other_files: tuple[str, ...] = ()
    definitions: Definitions = ()
    gradient: str | None = AUTOMATIC
    inactive: tuple[int, ...] = ()
    fast_math: bool = False
    openmp: bool = False
    check: bool = True
    whole: tuple[tuple[int, int, int], ...] = ()
    ranks: bool = False

    @property
    def dtype(self) -> str:
        """Dtype of the first floating-point input: what ``D500_DTYPE`` is."""
        return next((dtype for dtype in self.inputs if dtype in FLOATING), "float32")

    @property
    def is_cuda(self) -> bool:
        """Return whether the source is CUDA's."""
        return self.file is not None and Path(self.file).suffix == ".cu"

    def as_json(self) -> str:
        """Everything but the paths, for the key in the cache."""
        parts = asdict(self) | {"file": None, "other_files": None, "cuda": self.is_cuda}
        return json.dumps(parts, sort_keys=True)


def check_name(name: str) -> None:
    """Raise InputError unless the name is an identifier."""
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise InputError(f"got operator name {name!r}; expected an ASCII identifier: rename it")


def dtypes(name: str, what: str, descriptors: Descriptors, default: str | None = None) -> tuple[str, ...]:
    """Dtypes of the descriptors; raises InputError for one that C++ operators cannot have."""
    checked = []
    for i, descriptor in enumerate(descriptors):
        if not isinstance(descriptor, TensorDescriptor):
            raise InputError(
                f"C++ operator {name!r}, {what} {i}: got {descriptor!r}; expected a TensorDescriptor: write "
                "d5.tensordesc(shape, 'float32')"
            )
        dtype = descriptor.dtype or default
        if dtype not in CPP_TYPES:
            raise InputError(
                f"C++ operator {name!r}, {what} {i}: got dtype {dtype}; expected one of {', '.join(CPP_TYPES)}"
            )
        checked.append(dtype)
    return tuple(checked)


def as_definitions(name: str, definitions: dict[str, Any]) -> Definitions:
    """Macros sorted by name; raises InputError for what cannot be one."""
    macros = {str(key): "1" if value is None else str(value) for key, value in definitions.items()}
    for key, value in macros.items():
        if "=" in key:
            macro, _, rest = key.partition("=")
            raise InputError(
                f"C++ operator {name!r}: got definition {key!r}: {value!r}; expected a macro's name and its value "
                f"apart: write {{{macro!r}: {rest!r}}}"
            )
        if not key.partition("(")[0].isidentifier() or "\n" in key + value:
            raise InputError(
                f"C++ operator {name!r}: got definition {key!r}: {value!r}; expected the name of a macro and one line"
            )
    return tuple(sorted(macros.items()))


def as_paths(name: str, files: Sequence[str | Path]) -> tuple[str, ...]:
    """Absolute paths; raises InputError for a file that is not there, or whose name C++ cannot include."""
    paths = []
    for file in files:
        path = Path(file).expanduser().resolve()
        if not path.is_file():
            raise InputError(f"C++ operator {name!r}: got file {str(file)!r}, which does not exist; expected a source")
        if any(mark in str(path) for mark in '"\n\\'):
            raise InputError(f"C++ operator {name!r}: got file {str(file)!r}; expected a path without quotes: move it")
        paths.append(str(path))
    return tuple(paths)
