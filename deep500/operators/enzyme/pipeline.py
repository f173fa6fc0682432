"""From C++ with ``__enzyme_*`` calls to a shared library: front (clang to IR), gate, Enzyme, back (IR to machine code).

Two orders are offered. ``enzyme``: the forward is optimised, then differentiated, then optimised again. ``ref``: it is
differentiated as written and optimised afterwards, which is what tools that work on source do; it is there to be
compared with (Moses and Churavy 2020, section 4), and close to their Ref rather than equal: the engine runs GVN and
SROA even then.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from deep500.errors import CompileError, EnzymeError
from deep500.operators.enzyme.coverage import counted, lined
from deep500.operators.enzyme.diagnose import explain, hints, pragmas
from deep500.operators.enzyme.engine import Clang, Engine, find_clang, find_engine
from deep500.operators.enzyme.exceptions import catch_lines, catching
from deep500.operators.enzyme.exits import exits_kept
from deep500.operators.enzyme.functions import Location, calls_through_pointers, lines_behind, lines_of
from deep500.operators.enzyme.headers import HEADERS, UNFIT, parsed_headers
from deep500.operators.enzyme.ir import (
    compared_numbers,
    fix_reductions,
    inline_functions,
    keep_outputs,
    library_calls,
    own_messages,
    plain_updates,
    reading_products,
    shared_pointers,
    split,
    typed_copies,
)
from deep500.operators.enzyme.loops import guard_zeros, loosen, once, spare_gradients, turn_loops
from deep500.operators.enzyme.members import kept_in_members, mixed_pointers
from deep500.operators.enzyme.memory import (
    FILLED_ONCE,
    as_allocated,
    freed_by_choice,
    kept_on_one_way,
    may_be_chosen,
    moved_apart,
)
from deep500.operators.enzyme.regions import own_regions
from deep500.operators.enzyme.rounds import round_by_round
from deep500.progress import stage

GATE = "\ndeclare void @__enzyme_autodiff_gate(...)\n"
"""The engine looks for Enzyme calls only if a function's name starts with ``__enzyme_autodiff``; C++ names do not."""

LEFT_OVER = re.compile(r"\b(?:call|invoke)\b[^\n]*__enzyme_(?:autodiff|fwddiff|augmentfwd|reverse)")
BEFORE = ("-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops")
FRONT = {"enzyme": ("-O2", *BEFORE), "ref": ("-O1", "-Xclang", "-disable-llvm-passes", *BEFORE)}
LEAN = "-D_LIBCPP_REMOVE_TRANSITIVE_INCLUDES"
"""libc++'s switch for headers without those that they once included for others: they take two thirds of the time."""

UNOPTIMISED = ("-Xclang", "-O0")
"""For the last step, of machine code that runs a few times: zig would take a plain ``-O0`` for a wish to build the C++
library once more, as one to be debugged, which takes minutes."""

ONE_BY_ONE = ("--force-vector-width=1", "--force-vector-interleave=1")
"""LLVM's switches that leave loops alone which ``omp simd`` wants to be vector code, until Enzyme is done: it stops at
the vectors of truth values in such code. The last step makes vectors of them."""

AS_THEY_ARE = ("--funcspec-max-iters=0",)
"""LLVM's switch that makes no copies of functions for some of their arguments, under names of which Enzyme knows no
rule and no registered gradient: it would derive what is inside, as of a product that is not to be read."""

BRANCHES = (
    "--speculate-one-expensive-inst=0",
    "--phi-node-folding-threshold=0",
    "--two-entry-phi-node-folding-threshold=0",
)
"""LLVM's switches that leave in a branch what stands there."""

NO_ERRNO = "-fno-math-errno"
FAST = ("-ffast-math",)
VECTOR_MATH = ("-fveclib=libmvec", "-lmvec")
SECONDS = 120.0
PATIENCE = 10.0
"""Times as many seconds may pass, on a busy machine, as a tool may compute."""
ENDLESS = -1000
"""Stands for an exit code of Enzyme that was ended by the time-out."""

FIRST_LINK_SECONDS = 900.0
"""The first link with zig builds the C++ library, which takes a minute or two."""


@dataclass(frozen=True)
class BuildOptions:
    """The settings by which a library is built.

    Attributes:
        pipeline: ``enzyme`` (optimise, differentiate) or ``ref`` (differentiate, optimise).
        fast_math: let the compiler reorder arithmetic and use the vector math library, in forward and gradient. Without
            it the gradient is strict too (``--enzyme-fast-math=0``): NaN and infinity go where they should.
        openmp: compile OpenMP pragmas, against LLVM's or Intel's runtime.
        back: more flags for the last step, such as ``-O2`` or ``-lm``.
        enzyme: more flags for the engine, such as ``--enzyme-print-perf``.
        timeout: seconds for each of front and Enzyme.
        name: what errors call it; the file's name if empty.
        source: the user's own file, for the lines of its OpenMP pragmas; the compiled file itself if None.
        complain: makes the error for what the compiler said.
        apart: exports that are differentiated in modules of their own, see :mod:`deep500.operators.enzyme.ir`.
        turn: let element-wise loops of derivatives run upwards, see :mod:`deep500.operators.enzyme.loops`.
        speculate: compute what only one branch needs before the branch. Where that is NaN (a root of what the branch
            excludes), so is the derivative: zero times NaN. Where it is not, other zeros are guarded, too.
        owned: no two iterations of a parallel loop read one active place: gradients then need no atomic updates.
        headers: take the C++ library's headers as they were parsed for other operators; the unit must begin with
            ``deep500/containers.h``, or do with it.
        explained: let errors of Enzyme name the user's line, for which it has to fail twice.
        listing: where to list the files that the C++ includes, system headers left out, as ``-MMD`` does.
    """

    pipeline: str = "enzyme"
    fast_math: bool = False
    openmp: bool = False
    back: tuple[str, ...] = ()
    enzyme: tuple[str, ...] = ()
    timeout: float = SECONDS
    name: str = ""
    source: Path | None = None
    complain: Callable[[str], CompileError] | None = None
    apart: tuple[str, ...] = ()
    turn: bool = False
    listing: Path | None = None
    headers: bool = False
    owned: bool = False
    speculate: bool = True
    explained: bool = True


def compile_library(
    tu: Path, library: Path, flags: Sequence[str] = (), options: BuildOptions | None = None
) -> tuple[list[int], list[float]]:
    """Build a shared library from one C++ file, differentiating every ``__enzyme_*`` call in it.

    Returns the numbers that the code compares with, see :func:`deep500.operators.enzyme.ir.compared_numbers`.

    Args:
        tu: the C++ file.
        library: where the library goes; it appears whole or not at all.
        flags: for the front: ``-I...``, ``-D...``, ``-std=...`` (``-std=c++17`` unless one is given).
        options: the rest.

    Raises:
        CompileError: the C++ does not compile or link; holds the compiler's lines.
        EnzymeError: it cannot be differentiated; says what to change. Where only exports of ``apart`` fail, ``missing``
            says why for each.
        MissingEngine: there is no Enzyme or no clang.
    """
    options = options or BuildOptions()
    options = replace(options, name=options.name or tu.name, source=options.source or tu)
    if options.pipeline not in FRONT:
        raise CompileError(f"got pipeline {options.pipeline!r}; expected one of {sorted(FRONT)}")
    engine = find_engine()
    clang = find_clang(engine)
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=library.parent) as folder:
        before, built = Path(folder) / "before.ll", Path(folder) / library.name
        stage("compiling")
        prepare(clang, tu, before, ["-g0", *flags], options)
        stage("differentiating")
        compared = compared_numbers(before.read_text(encoding="utf-8"))
        refuse_pointers_to_functions(before.read_text(encoding="utf-8"), options)
        if freed_by_choice(before.read_text(encoding="utf-8")):
            options = replace(options, enzyme=(*FILLED_ONCE, *options.enzyme))
        modules = _modules(before, options)
        with ThreadPoolExecutor(len(modules)) as pool:
            results = list(pool.map(lambda module: differentiate(engine, clang, module, options), modules))
        if results[0][0] == ENDLESS:
            raise refusal(*results[0], modules[0], options)
        if failed(*results[0][:2]):
            if options.explained:  # once more with debug information, which names the line
                prepare(clang, tu, modules[0], ["-gline-tables-only", *flags], replace(options, listing=None))
                results[0] = differentiate(engine, clang, modules[0], options)
            raise refusal(*results[0], modules[0], options)
        if not options.explained and "-funroll-loops" in flags and any(kept_on_one_way(ir) for _, ir, _ in results):
            raise EnzymeError(
                f"{options.name}: got an array that unrolled loops do not keep; expected loops as they are"
            )
        missing = {}
        for module, (code, ir, message) in zip(modules, results, strict=True):
            if failed(code, ir):
                missing[module.stem] = str(refusal(code, ir, message, module, options))
            module.write_text(_finished(ir, options), encoding="utf-8")
        if missing:
            raise EnzymeError("\n".join(missing.values()), missing=missing)
        stage("linking")
        back(clang, modules, built, options)
        built.replace(library)
    return compared


def _finished(ir: str, options: BuildOptions) -> str:
    """A module as Enzyme leaves it, mended and made faster."""
    joined = spare_gradients(once(loosen(inline_functions(as_allocated(ir if options.speculate else guard_zeros(ir))))))
    owned = plain_updates(joined) if options.owned else joined
    return turn_loops(owned) if options.turn else owned


def build_taped(tu: Path, library: Path, flags: Sequence[str], options: BuildOptions) -> None:
    """Build forward with numbers that record what is computed from them, and in which of the user's lines.

    Arguments and errors are those of :func:`compile_library`.
    """
    assert options.source is not None
    clang = find_clang(find_engine())
    ir = tu.with_suffix(".ll")
    front(clang, tu, ir, [*flags, "-gline-tables-only"], replace(options, pipeline="ref"))
    ir.write_text(lined(ir.read_text(encoding="utf-8"), options.source), encoding="utf-8")
    back(clang, [ir], library, replace(options, back=(*UNOPTIMISED, *options.back)))


def count_blocks(tu: Path, library: Path, flags: Sequence[str], options: BuildOptions) -> list[set[Location]]:
    """Build forward alone, not optimised, with a byte per block; returns where the blocks are in the user's file.

    See :func:`deep500.operators.enzyme.coverage.counted`; arguments and errors are those of :func:`compile_library`.
    """
    assert options.source is not None
    clang = find_clang(find_engine())
    ir = tu.with_suffix(".ll")
    front(clang, tu, ir, [*flags, "-gline-tables-only"], replace(options, pipeline="ref"))
    text, places = counted(ir.read_text(encoding="utf-8"), options.source)
    ir.write_text(text, encoding="utf-8")
    back(clang, [ir], library, replace(options, back=(*UNOPTIMISED, *options.back)))
    return places


def _modules(before: Path, options: BuildOptions) -> list[Path]:
    """The files that Enzyme gets."""
    texts = split(before.read_text(encoding="utf-8"), options.apart)
    paths = [before.with_name(f"{name}.ll") for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def prepare(clang: Clang, tu: Path, target: Path, flags: Sequence[str], options: BuildOptions) -> None:
    """C++ to what the engine reads: LLVM's text form with OpenMP corrected and the gate opened."""
    front(clang, tu, target, flags, options)
    ir = round_by_round(library_calls(reading_products(target.read_text(encoding="utf-8"))))
    refuse_messages(ir, options)
    refuse_catches(ir, options)
    wrapper = tu.read_text(encoding="utf-8")
    mixed = options.pipeline == "enzyme" and not options.openmp and mixed_pointers(ir, wrapper)
    if mixed or kept_in_members(ir):
        front(clang, tu, target, [*flags, "-gline-tables-only"], replace(options, listing=None))
        lined_ir = target.read_text(encoding="utf-8")
        raise _refused_mixtures(lined_ir, wrapper, options) if mixed else _refused_members(lined_ir, options)
    if options.openmp:
        ir = own_regions(fix_reductions(ir))
        refuse_order(ir, options)
        refuse_shared_pointers(ir, options)
    apart = exits_kept(moved_apart(may_be_chosen(typed_copies(keep_outputs(ir, wrapper), wrapper))))
    target.write_text(apart + GATE, encoding="utf-8")


def front(clang: Clang, tu: Path, ir: Path, flags: Sequence[str], options: BuildOptions) -> None:
    """C++ to LLVM's text form. The CPU is chosen here: it is written into every function."""
    standard = () if any(flag.startswith("-std=") for flag in flags) else ("-std=c++17",)
    command = [
        *clang.command,
        *standard,
        *FRONT[options.pipeline],
        "-fPIC",
        "-march=native",
        *_mathematics(options),
        *((*openmp_flags(clang)[0], *_llvm(ONE_BY_ONE)) if options.openmp else ()),
        *_llvm(AS_THEY_ARE),
        *(() if options.speculate else _llvm(BRANCHES)),
        *flags,
        "-S",
        "-emit-llvm",
        str(tu),
        "-o",
        str(ir),
        *_listing_flags(clang, options),
        "-Wno-unused-command-line-argument",
        "-Werror=null-dereference",  # what stands before such a write would be deleted, without a trace
    ]
    parsed = _parsed(clang, standard, flags, options)
    code, message = _compiler([*command, LEAN, *parsed], options.timeout, options, tu.parent)
    if code and parsed and any(words in message for words in UNFIT):
        code, message = _compiler([*command, LEAN], options.timeout, options, tu.parent)
    if code:  # the source may rely on such a header
        code, message = _compiler(command, options.timeout, options, tu.parent)
    if code:
        raise (options.complain or _complaint(options))(message)
    if options.listing is not None and clang.is_zig:
        _as_rule(options.listing, tu, Path(clang.command[0]).parent, [*map(str, HEADERS)] if parsed else [])


def _parsed(clang: Clang, standard: Sequence[str], flags: Sequence[str], options: BuildOptions) -> list[str]:
    """Switches for headers that were parsed before, see :mod:`deep500.operators.enzyme.headers`."""
    if not (options.headers and clang.is_zig):
        return []
    openmp = [openmp_flags(clang)[0]] if options.openmp else []
    kind = [*standard, "-O2", "-fPIC", "-march=native", LEAN, *_mathematics(options), *[w for ws in openmp for w in ws]]
    kind += [flag for flag in flags if flag == NO_ERRNO]
    return parsed_headers(clang, kind, lambda command: _compiler(command, options.timeout, options)[0])


def differentiate(engine: Engine, clang: Clang, ir: Path, options: BuildOptions) -> tuple[int, str, str]:
    """Run Enzyme on LLVM's text form; returns its exit code (or ``ENDLESS``), what it made, and what it said."""
    switches = [*(() if options.fast_math else ("--enzyme-fast-math=0",)), *AS_THEY_ARE, *options.enzyme]
    switches += [] if options.speculate else BRANCHES
    switches += ONE_BY_ONE if options.openmp else []
    if engine.kind == "catalyst":
        stage = ("--checkpoint-stage=O2Opt",) if options.pipeline == "ref" else ()
        command = [str(engine.path), "--tool=llc", *stage, *switches, str(ir), "-o", "-"]
    else:
        command = [
            *clang.command,
            "-x",
            "ir",
            str(ir),
            "-O2" if options.pipeline == "enzyme" else "-O1",
            *BEFORE,
            "-S",
            "-emit-llvm",
            "-o",
            "-",
            f"-fpass-plugin={engine.path}",
            "-Xclang",
            "-load",
            "-Xclang",
            str(engine.path),
            *_llvm(switches),
        ]
    # Seconds of the processor: a busy machine must not decide which derivatives there are, and the cache keep it.
    limited = ["/bin/sh", "-c", 'ulimit -S -t "$0" && exec "$@"', f"{options.timeout:.0f}", *command]
    try:
        code, output, errors = run(limited, PATIENCE * options.timeout)
    except subprocess.TimeoutExpired as error:
        raise EnzymeError(
            f"{options.name}: got no end of Enzyme in {PATIENCE * options.timeout:g} s, of which it had the processor "
            f"for less than {options.timeout:g} s; expected a machine that is less busy: build it again"
        ) from error
    return (ENDLESS, "", "") if code == -signal.SIGXCPU else (code, output, errors)


def failed(code: int, text: str) -> bool:
    """Return whether Enzyme failed: an exit code of 0 does not say that everything was differentiated."""
    return bool(code or not text or LEFT_OVER.search(text))


def refusal(code: int, result: str, errors: str, ir: Path, options: BuildOptions) -> EnzymeError:
    """The error for code that Enzyme refuses."""
    if code == ENDLESS:
        cures = "; ".join(hints(_own_source(options))) or "simplify the operator"
        return EnzymeError(
            f"{options.name}: got no end of Enzyme in {options.timeout:g} s; expected one\nwhat to change: {cures}"
        )
    left = LEFT_OVER.search(result)
    errors = f"error: Enzyme: not differentiated: {left[0].strip()}" if left and not errors else errors
    module = ir.read_text(encoding="utf-8")
    text = explain(errors, code, module, _own_source(options))
    header = re.search(r"/([^/\s:]+):(\d+):\d+: Enzyme:", text.partition("\n")[0])
    if header and options.source is not None:  # in a header that the user's line calls
        text = "\n".join([text, *lines_behind(module, header[1], int(header[2]), options.source)])
    return EnzymeError(
        f"{options.name}: got C++ that Enzyme cannot differentiate; expected what it can\n{text}", errors
    )


def back(clang: Clang, modules: Sequence[Path], library: Path, options: BuildOptions) -> None:
    """LLVM's text form to a shared library."""
    command = [
        *clang.command,
        "-w",
        "-O3",
        "-march=native",
        *_mathematics(options),
        *options.back,
        "-shared",
        "-fPIC",
        *map(str, modules),
        "-o",
        str(library),
        "-lm",
        *(VECTOR_MATH if options.fast_math else ()),
        *(openmp_flags(clang)[1] if options.openmp else ()),
    ]
    code, message = _compiler(command, FIRST_LINK_SECONDS, options)
    if code:
        # Enzyme's derivative of tgamma calls this, and no library has it.
        cures = hints(_own_source(options)) if "undefined symbol: digamma" in message else []
        raise CompileError(
            f"{library.name}: got code that does not link; expected it to: {'; '.join(cures) or 'mend it'}\n"
            f"{compiler_lines(message)}"
        )


def openmp_flags(clang: Clang) -> tuple[list[str], list[str]]:
    """Flags of front and back for OpenMP: a system clang brings its runtime, zig takes Intel's from pip."""
    if not clang.is_zig:
        return ["-fopenmp"], ["-fopenmp"]
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files("intel-openmp") or []
    except PackageNotFoundError:
        listed = []
    runtime_files = {
        Path(f.name).name: Path(str(f.locate())).resolve() for f in listed if f.name in ("omp.h", "libiomp5.so")
    }
    if len(runtime_files) < 2 or not all(path.is_file() for path in runtime_files.values()):
        raise CompileError("got no OpenMP runtime; expected Intel's, beside zig: pip install 'deep500[enzyme]'")
    runtime = runtime_files["libiomp5.so"].parent
    return (
        ["-fopenmp", f"-I{runtime_files['omp.h'].parent}"],
        ["-fopenmp", f"-L{runtime}", "-liomp5", f"-Wl,-rpath,{runtime}"],
    )


def refuse_messages(ir: str, options: BuildOptions) -> None:
    """Raise EnzymeError for calls of MPI: Enzyme's own rules crash on some, and one process can check none."""
    calls = own_messages(ir)
    if calls:
        raise EnzymeError(
            f"{options.name}: got calls of {', '.join(calls)}; expected messages whose derivatives are known: call "
            "d5::exchange, d5::sum_shared, d5::allreduce_sum or d5::allreduce_min of deep500/communication.h, or write "
            "backward"
        )


def refuse_catches(ir: str, options: BuildOptions) -> None:
    """Raise EnzymeError for code that catches its own exceptions: thrown in a reverse pass, they end the process."""
    lines = catch_lines(_own_source(options))
    if lines and catching(ir):
        raise EnzymeError(
            f"{options.name}: got an exception that is caught inside of forward; expected none: with Enzyme, one that "
            "is thrown ends the process. Decide with if before what may throw (v[i] where i < v.size() instead of "
            "v.at(i)); an exception may leave forward\n" + "\n".join(lines)
        )


def _refused_members(ir: str, options: BuildOptions) -> EnzymeError:
    """The error for code that keeps what it computes in its object: there it has no derivative."""
    assert options.source is not None
    lines = lines_of(ir, kept_in_members(ir), options.source)
    return EnzymeError(
        f"{options.name}: got values computed from inputs, or pointers to them, that are kept in members of the class "
        "and read again; expected members that forward only reads: with Enzyme, what is kept there loses its "
        "derivative, without a message; use scratch space (std::size_t scratch() const) or local variables\n"
        + "\n".join(lines)
    )


def _refused_mixtures(ir: str, wrapper: str, options: BuildOptions) -> EnzymeError:
    """The error for pointers that may be to an inactive input or to something else: its array would be written to."""
    assert options.source is not None
    lines = lines_of(ir, mixed_pointers(ir, wrapper), options.source)
    return EnzymeError(
        f"{options.name}: got a pointer that may be to an inactive input or to something else, or one to an inactive "
        "input that is kept in memory; expected pointers to inactive inputs in local variables: with Enzyme, gradients "
        "are added to the input itself; copy it into a local array, or leave inactive out\n" + "\n".join(lines)
    )


def refuse_pointers_to_functions(ir: str, options: BuildOptions) -> None:
    """Raise EnzymeError with forward mode ``missing`` for calls through pointers: its results are wrong there.

    The gradient is right. Jacobian-vector products were wrong in five of five such programs, without a message, and
    Hessian-vector products ended the process in four.
    """
    names = [name for name in options.apart if re.search(rf"^define [^\n]*@{name}\(", ir, re.MULTILINE)]
    if names and calls_through_pointers(ir):
        text = (
            f"{options.name}: got calls through pointers (virtual functions, std::function, tables of functions); "
            "expected none: Enzyme's forward mode is wrong for them; call through if or switch, or through templates"
        )
        raise EnzymeError(text, missing=dict.fromkeys(names, text))


def refuse_order(ir: str, options: BuildOptions) -> None:
    """Raise EnzymeError for code whose result depends on which thread comes first, or which it is.

    Backwards, threads come in an order of their own: a maximum in a critical section had a gradient that was wrong in
    2,000 of 2,000 runs with four threads, and right with one.
    """
    asked = re.findall(r"call [^\n]*@(omp_get_(?:thread_num|num_threads))\(", ir)
    if asked:
        names = ", ".join(dict.fromkeys(f"{name}()" for name in asked))
        raise EnzymeError(
            f"{options.name}: got {names}; expected code that does not depend on its thread: with Enzyme, what threads "
            "divide by their numbers gets a wrong gradient, without a message; let parallel for divide blocks instead"
        )
    if re.search(r"call [^\n]*@__kmpc_critical", ir):
        lines = [f"line {n}: {text.strip()}" for n, text in pragmas(_own_source(options)) if "critical" in text]
        raise EnzymeError(
            f"{options.name}: got an OpenMP critical section; expected updates whose order does not matter: with "
            "Enzyme, threads go backwards in an order of their own, and the gradient is wrong, without a message; use "
            "atomic for sums, per-block partials and a serial loop for extremes\n" + "\n".join(lines)
        )


def refuse_shared_pointers(ir: str, options: BuildOptions) -> None:
    """Raise EnzymeError for a parallel region that captures a pointer by reference: it may overwrite inputs."""
    regions = shared_pointers(ir)
    if not regions:
        return
    suspects = [
        f"line {n}: {text.strip()}"
        for n, text in pragmas(_own_source(options))
        if "parallel" in text and "firstprivate" not in text
    ]
    raise EnzymeError(
        f"{options.name}: got {len(regions)} OpenMP parallel region(s) that share a pointer by reference; expected "
        "every pointer and size in firstprivate(...): with Enzyme, such a region overwrites its inputs silently\n"
        + "\n".join(suspects or regions)
    )


def _compiler(
    command: Sequence[str], timeout: float, options: BuildOptions, folder: Path | None = None
) -> tuple[int, str]:
    try:
        code, _, message = run(command, timeout, folder)
    except subprocess.TimeoutExpired as error:
        raise CompileError(
            f"{options.name}: got no end of the compiler in {timeout:g} s; expected one: simplify the operator"
        ) from error
    return code, message


def run(command: Sequence[str], timeout: float, folder: Path | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a tool; it and its children end with the time-out."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd=folder,
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out, errors


def compiler_lines(output: str, most: int = 40) -> str:
    """The compiler's messages, without notes of its own on itself, at most ``most`` lines."""
    lines = [t for t in output.splitlines() if t.strip() and "argument unused during compilation" not in t]
    return "\n".join([*lines[:most], *(["..."] if len(lines) > most else [])])


def _listing_flags(clang: Clang, options: BuildOptions) -> list[str]:
    if options.listing is None:
        return []
    if clang.is_zig:  # with -MMD, it makes no IR and says nothing about it
        return ["-Xclang", "-header-include-file", "-Xclang", str(options.listing), "-Xclang", "-H"]
    return ["-MMD", "-MF", str(options.listing)]


def _as_rule(listing: Path, tu: Path, compiler: Path, more: Sequence[str] = ()) -> None:
    """Rewrite clang's list of headers as a rule of make, without system headers; dots may stand for the depth."""
    lines = [*listing.read_text(encoding="utf-8").splitlines(), *more]
    headers = dict.fromkeys(re.sub(r"^\.+ ", "", line) for line in lines)
    headers_of_user = [path for path in headers if not path.startswith((f"{compiler}{os.sep}", "/usr/include/"))]
    words = [path.replace(" ", "\\ ") for path in (str(tu), *headers_of_user)]
    listing.write_text(f"{tu.stem}.o: {' '.join(words)}\n", encoding="utf-8")


def _llvm(switches: Sequence[str]) -> list[str]:
    """Return switches as clang takes them."""
    return [word for switch in switches for word in ("-mllvm", switch)]


def _mathematics(options: BuildOptions) -> tuple[str, ...]:
    return FAST if options.fast_math else ()


def _complaint(options: BuildOptions) -> Callable[[str], CompileError]:
    def complain(output: str) -> CompileError:
        return CompileError(
            f"{options.name}: got C++ that does not compile; expected C++17: mend it\n{compiler_lines(output)}"
        )

    return complain


def _own_source(options: BuildOptions) -> str:
    """The user's source."""
    assert options.source is not None
    return options.source.read_text(encoding="utf-8", errors="replace")
