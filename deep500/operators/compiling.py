"""`compile_custom_cppop`: from C++ source to an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep500.errors import InputError
from deep500.keywords import takes
from deep500.operators.base import Descriptors
from deep500.operators.cpp.compiled_op import CompiledOp
from deep500.operators.cpp.ranks import mpi_of
from deep500.operators.cpp.spec import (
    AUTOMATIC,
    GRADIENTS,
    BuildSpec,
    Infer,
    as_definitions,
    as_paths,
    check_name,
    dtypes,
)
from deep500.operators.enzyme import Enzyme


@dataclass(frozen=True, kw_only=True)
class CppOptions:
    """The options of an operator in C++ that are named."""

    gradient: str | None = AUTOMATIC
    infer: Infer | None = None
    inactive: Sequence[int] = ()
    fast_math: bool = False
    isolate: bool = False
    openmp: bool = False
    timeout: float = 60.0
    check: bool = True
    whole: Mapping[int, tuple[int, int]] | None = None
    comm: Any = None


@dataclass(frozen=True)
class FileOptions(CppOptions):
    """The options of an operator in a file.

    Args:
        name: an identifier.
        file: the source; CUDA if its name ends with ``.cu``.
        input_descriptors: dtype and shape of every input. A size may be a symbol, the shape None: then any shapes are
            taken when it is called, and an operator object is made for each of them.
        output_descriptors: of every output. Symbols take their sizes from the inputs; a shape of None is input 0's.
        other_files: further sources, objects or libraries to build from.
        live_output: write what the compiler is asked and says to standard error.
        additional_definitions: macros and their values, ``{"DPOWER": "3"}``.
        gradient: ``"backward"``: the class's own; ``"enzyme"``: derived from forward by Enzyme; None: none. Left out:
            the class's own if it has one.
        infer: input descriptors -> output descriptors, for shapes that symbols cannot express.
        inactive: indices of inputs that get no gradient.
        fast_math: let the compiler reorder floating-point arithmetic and use vector math functions.
        isolate: run it in a worker process, where a crash or an endless loop does no harm.
        openmp: compile with OpenMP.
        timeout: seconds for one call with ``isolate``.
        check: compare a gradient that Enzyme derives with differences, once per build. False leaves that out, and the
            library's signature says so: for gradients that are registered and meant to differ from forward's.
        whole: index of an input of whole numbers -> (least, greatest + 1) that they have in that check; 0 and 1 else.
        comm: the ranks that it communicates with (``deep500/communication.h``): ``d5.distributed.world()`` under MPI,
            or an mpi4py communicator. Without one, and where there is one rank, it is alone. All ranks call this.
    """

    name: str
    file: str | Path
    input_descriptors: Descriptors
    output_descriptors: Descriptors
    other_files: Sequence[str | Path] = ()
    live_output: bool = False
    additional_definitions: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class CodeOptions(CppOptions):
    """The options of an operator whose code is a string.

    Args:
        name: an identifier.
        code: the source, in C++.

    The others are those of :func:`compile_custom_cppop`.
    """

    name: str
    code: str
    input_descriptors: Descriptors
    output_descriptors: Descriptors
    other_files: Sequence[str | Path] = ()
    live_output: bool = False
    additional_definitions: Mapping[str, Any] | None = None


@takes(FileOptions)
def compile_custom_cppop(options: FileOptions) -> CompiledOp:
    """Compile a C++ operator, or find it in the cache, and load it.

    Returns:
        The operator. The library is kept in ``DEEP500_CACHE`` (else ``$XDG_CACHE_HOME/deep500``, ``~/.cache/deep500``)
        and built again only when a source, an included file, an argument, the compiler or the CPU changes.

    Raises:
        InputError: an argument is wrong.
        CompileError: the source does not compile, or does not fit the descriptors.
        EnzymeError: Enzyme cannot differentiate it, or the gradient is wrong.
        CacheError: the cache cannot be written.
        MissingEngine: there is no compiler.
        MissingDevice: it is in CUDA, and nvcc or a GPU is missing.
    """
    check_name(options.name)
    return _compile(options, None, as_paths(options.name, [options.file])[0])


@takes(CodeOptions)
def compile_custom_cppop_inline(options: CodeOptions) -> CompiledOp:
    """Compile an operator like :func:`compile_custom_cppop` from source text; the compiler calls it ``<name>.cpp``.

    Example:
        >>> import deep500 as d5
        >>> import numpy as np
        >>> twice = d5.compile_custom_cppop_inline("twice", '''
        ... #include "deep500/deep500.h"
        ... struct twice : deep500::CustomOperator {
        ...   std::size_t length;
        ...   explicit twice(std::size_t n) : length(n) {}
        ...   void forward(const float *x, float *y) { for (std::size_t i = 0; i < length; ++i) y[i] = 2 * x[i]; }
        ... };
        ... D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
        ...   return new twice(in[0].size());
        ... }
        ... D500_REGISTER_OP(twice);
        ... ''', [d5.tensordesc(["N"])], [d5.tensordesc(["N"])])
        >>> twice(np.ones(3, "float32")).tolist()
        [2.0, 2.0, 2.0]
    """
    check_name(options.name)
    return _compile(options, options.code, None)


def _compile(options: FileOptions | CodeOptions, source: str | None, file: str | None) -> CompiledOp:
    return CompiledOp(
        _spec(options, source, file, _is_parallel(options)),
        options.input_descriptors,
        options.output_descriptors,
        options.infer,
        options.timeout if options.isolate else None,
        options.live_output,
        Enzyme() if options.gradient == "enzyme" else None,
        options.comm,
    )


def _is_parallel(options: FileOptions | CodeOptions) -> bool:
    """Whether an operator is built with MPI."""
    if mpi_of(options.name, options.comm) is None:
        return False
    if options.isolate:
        raise InputError(
            f"C++ operator {options.name!r}: got comm with isolate=True; expected one of them: its process would be no "
            "rank"
        )
    return True


def _spec(options: FileOptions | CodeOptions, source: str | None, file: str | None, ranks: bool) -> BuildSpec:
    name, inputs, outputs = options.name, options.input_descriptors, options.output_descriptors
    gradient, inactive = options.gradient, options.inactive
    if not inputs or not outputs:
        raise InputError(f"C++ operator {name!r}: got {len(inputs)} inputs and {len(outputs)} outputs; expected some")
    if options.infer is None:  # such a function may compute any size, from anything
        _check_sizes(name, inputs, outputs)
    if gradient not in GRADIENTS:
        raise InputError(f"C++ operator {name!r}: got gradient {gradient!r}; expected 'backward', 'enzyme' or None")
    if any(not 0 <= i < len(inputs) for i in inactive):
        raise InputError(f"C++ operator {name!r}: got inactive {list(inactive)}; expected indices of its inputs")
    if file and file.endswith(".cu") and gradient == "enzyme":
        raise InputError(
            f"CUDA operator {name!r}: got gradient='enzyme'; expected 'backward' or None: Enzyme differentiates C++ "
            "for the processor only"
        )
    if file and file.endswith(".cu") and ranks:
        raise InputError(f"CUDA operator {name!r}: got comm; expected none: ranks communicate from the processor only")
    input_types = dtypes(name, "input", inputs)
    return BuildSpec(
        name,
        source,
        file,
        input_types,
        dtypes(name, "output", outputs, input_types[0]),
        as_paths(name, options.other_files),
        as_definitions(name, dict(options.additional_definitions or {})),
        gradient,
        tuple(sorted(inactive)),
        options.fast_math,
        options.openmp,
        options.check,
        tuple((index, *limits) for index, limits in sorted((options.whole or {}).items())),
        ranks,
    )


def _check_sizes(name: str, inputs: Descriptors, outputs: Descriptors) -> None:
    """Raise InputError for a size of an output that follows from no input."""
    known = {size for descriptor in inputs for size in getattr(descriptor, "shape", None) or ()}
    names = ", ".join(sorted(size for size in known if isinstance(size, str))) or "none"
    for i, descriptor in enumerate(outputs):
        for size in getattr(descriptor, "shape", None) or ():
            if not isinstance(size, int) and (size is None or size not in known):
                raise InputError(
                    f"C++ operator {name!r}: got size {size!r} of output {i}; expected a number or a symbol of the "
                    f"inputs ({names}): correct it, or pass infer"
                )
