"""The commands that turn an operator's source into a library; what a compiler says, as an error that names the source.

A gradient that is derived is the business of a :class:`Derivation`, which is handed in from above: this room knows no
engine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deep500.errors import CompileError, MissingEngine
from deep500.operators.base import Descriptors
from deep500.operators.cpp.compilers import Compiler
from deep500.operators.cpp.ranks import mpi_flags
from deep500.operators.cpp.spec import CPP_TYPES, INCLUDE, BuildSpec, Infer
from deep500.operators.cpp.wrapper import is_global, wrapper_source

HEADERS = (".h", ".hpp", ".hh", ".inl", ".cuh")
OBJECTS = (".o", ".a", ".so")
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-march=native", "-fPIC", "-w")
LINK = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs")
"""Calls inside a library stay inside, whatever else the process has loaded under the same names; none leads nowhere."""


class Derivation(Protocol):
    """A deriver of the gradients of operators from their forward; can be pickled, as operators can."""

    def source(self, spec: BuildSpec, fields: Mapping[str, Any]) -> str:
        """C++ that exports the derivatives and the signature, whose other fields these are."""

    def identity(self) -> Sequence[str]:
        """Facts that a library's gradient depends on beside its source, for the key in the cache."""

    def build(self, job: Job) -> None:
        """Compile the library with its derivatives, and check them."""


@dataclass(frozen=True)
class Job:
    """One build.

    Attributes:
        place: folder to build in.
        main: the operator's source, as the unit includes it.
        library: what is to be made.
        live: whether commands and their output are shown.
        inputs: descriptors, as declared.
        infer: gives those of the outputs; with the inputs', shapes to try a derived gradient with.
        derivation: what compiles the library where its gradient is derived, else None.
    """

    spec: BuildSpec
    compiler: Compiler
    place: Path
    main: str
    library: Path
    live: bool
    inputs: Descriptors
    infer: Infer
    derivation: Derivation | None = None

    @property
    def unit(self) -> Path:
        """The generated translation unit."""
        return self.place / "operator.cc"

    @property
    def listing(self) -> Path:
        """File in which the compiler lists the files that the unit includes."""
        return self.place / "included.d"

    @property
    def sources(self) -> list[str]:
        """Further sources."""
        return [file for file in self.spec.other_files if not file.endswith(HEADERS + OBJECTS)]

    @property
    def objects(self) -> list[str]:
        """Objects and libraries that are ready."""
        return [file for file in self.spec.other_files if file.endswith(OBJECTS)]

    @property
    def flags(self) -> list[str]:
        """Folders of headers, and of the macros that were asked for those which the unit does not define itself."""
        macros = [f"-D{key}={value}" for key, value in self.spec.definitions if is_global(key)]
        return [*self._folders, *macros, *(mpi_flags()[0] if self.spec.ranks else ())]

    @property
    def flags_of_others(self) -> list[str]:
        """The same for other sources, which are compiled by themselves: all macros."""
        macros = [f"-D{key}={value}" for key, value in self.spec.definitions]
        return [*self._folders, *macros, *(mpi_flags()[0] if self.spec.ranks else ())]

    @property
    def libraries(self) -> list[str]:
        """Libraries to link beside the objects."""
        return list(mpi_flags()[1]) if self.spec.ranks else []

    @property
    def _folders(self) -> list[str]:
        return [f"-I{INCLUDE}", *([f"-I{Path(self.spec.file).parent}"] if self.spec.file else [])]

    def listing_flags(self, number: int = 0) -> list[str]:
        """Flags that make the compiler write the listing of the unit, or of another source, from 1 on."""
        return ["-MMD", "-MF", str(self.place / f"other{number}.d" if number else self.listing)]


def compile_library(job: Job) -> None:
    """Make the library, by whatever compiles the source."""
    if job.derivation is not None:
        job.derivation.build(job)
    elif job.spec.is_cuda:
        compile_cuda(job)
    else:
        compile_plainly(job)


def compile_cuda(job: Job) -> None:
    """Compile the unit and the other sources with nvcc, and link them with CUDA's runtime."""
    spec = job.spec
    job.unit.write_text(wrapper_source(spec, job.main), encoding="utf-8")
    mathematics = ["--use_fast_math"] if spec.fast_math else []
    front = [
        *job.compiler.command,
        "-std=c++17",
        "-O3",
        "-w",
        "-Xcompiler=-fPIC,-march=native,-fno-gnu-unique",
        *(["-Xcompiler=-fopenmp"] if spec.openmp else []),
        *mathematics,
        f"-DD500_DTYPE={CPP_TYPES[spec.dtype]}",
    ]
    objects = [str(job.place / f"{number}.o") for number in range(1 + len(job.sources))]
    commands = [[*front, *job.flags, *job.listing_flags(), "-x", "cu", "-c", str(job.unit), "-o", objects[0]]]
    for number, source in enumerate(job.sources, 1):
        command = [*front, *job.flags_of_others, *job.listing_flags(number), "-c", source, "-o", objects[number]]
        commands.append(command)
    linking = [*job.compiler.command, "-shared", "-Xlinker=-Bsymbolic,-z,defs"]
    linking += ["-Xcompiler=-fopenmp"] if spec.openmp else []
    commands.append([*linking, *objects, *job.objects, "-o", str(job.library)])
    for command in commands:
        run_compiler(spec, command, job.place, job.live)


def compile_plainly(job: Job) -> None:
    """Compile the unit and the other sources, and link them."""
    spec, compiler = job.spec, job.compiler
    job.unit.write_text(wrapper_source(spec, job.main), encoding="utf-8")
    front, back = openmp_flags(compiler) if spec.openmp else ([], [])
    flags = [*FLAGS, *_kind_flags(compiler), f"-DD500_DTYPE={CPP_TYPES[spec.dtype]}"]
    compiling = [*compiler.command, *flags, *front, *(_fast_math(compiler) if spec.fast_math else [])]
    objects = [str(job.place / "operator.o")]
    commands = [[*compiling, *job.flags, *job.listing_flags(), "-c", str(job.unit), "-o", objects[0]]]
    for number, source in enumerate(job.sources, 1):
        objects.append(str(job.place / f"other{number}.o"))
        command = [*compiling, *job.flags_of_others, *job.listing_flags(number), "-c", source, "-o", objects[-1]]
        commands.append(command)
    objects += job.objects
    # Linked without -ffast-math: with it, gcc adds code that makes the whole process round denormal numbers to 0.
    libraries = [*job.libraries, *(["-lmvec"] if spec.fast_math and compiler.kind != "gcc" else []), "-lm"]
    commands.append([*compiler.command, *flags, *LINK, *objects, "-o", str(job.library), *back, *libraries])
    *compilations, linking = commands
    for command in compilations:
        run_compiler(spec, command, job.place, job.live)
    seconds, notice = (ZIG_SECONDS, ZIG_NOTICE) if compiler.kind == "zig" else (SECONDS, "")
    run_compiler(spec, linking, job.place, job.live, seconds, notice)


def openmp_flags(compiler: Compiler) -> tuple[list[str], list[str]]:
    """Flags of compiling and of linking with OpenMP; zig has no runtime of its own and takes Intel's from pip.

    Raises:
        MissingEngine: it is not installed.
    """
    if compiler.kind != "zig":
        return ["-fopenmp"], ["-fopenmp"]
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = [file for file in files("intel-openmp") or [] if file.name in ("omp.h", "libiomp5.so")]
    except PackageNotFoundError:
        listed = []
    runtime_files = {file.name: Path(str(file.locate())).resolve().parent for file in listed}
    if len(runtime_files) < 2:
        raise MissingEngine(
            "got openmp=True with the compiler zig and no OpenMP runtime; expected Intel's: pip install intel-openmp"
        )
    runtime = runtime_files["libiomp5.so"]
    return ["-fopenmp", f"-I{runtime_files['omp.h']}"], [f"-L{runtime}", "-liomp5", f"-Wl,-rpath,{runtime}"]


def _kind_flags(compiler: Compiler) -> list[str]:
    # Without -fno-gnu-unique, gcc shares static members of templates between libraries that know nothing of each other.
    # A limit of errors, since it would explain twenty thousand one by one; clang has one.
    return ["-fno-gnu-unique", "-fmax-errors=20"] if compiler.kind == "gcc" else ["-ferror-limit=20"]


def _fast_math(compiler: Compiler) -> list[str]:
    return ["-ffast-math"] if compiler.kind == "gcc" else ["-ffast-math", "-fveclib=libmvec"]


SECONDS = 300.0
ZIG_SECONDS = 1200.0
ZIG_NOTICE = "deep500: zig is building its own C++ library, this once; that takes one to two minutes\n"
PATIENCE = 5.0
"""Seconds after which a notice is given; builds without special reasons end earlier."""

MOST_LINES = 40
OURS = ("deep500 wrapper of ", "deep500/", "operator.cc", "<scratch space>")
"""Where the compiler's remarks are on our own text, as it names our files."""


def run_compiler(
    spec: BuildSpec, command: Sequence[str], folder: Path, live: bool, seconds: float = SECONDS, notice: str = ""
) -> None:
    """Run one command of a build.

    Args:
        live: also write what is run and said to standard error.
        seconds: when to give up.
        notice: what to write to standard error if it takes longer than usual.

    Raises:
        CompileError: it fails or takes too long.
    """
    from deep500.progress import stage  # where something is built

    stage("compiling")
    if live:
        sys.stderr.write(f"deep500: {' '.join(command)}\n")
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            output = _output(process, seconds, notice)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # the compiler's own children too
            if isinstance(error, subprocess.TimeoutExpired):
                raise CompileError(
                    f"C++ operator {spec.name!r}: got no end of {Path(command[0]).name} in {seconds:g} s; expected "
                    "one: simplify the source"
                ) from error
            raise
    if live:
        sys.stderr.write(output)
    if process.returncode:
        raise compile_error(spec, output.replace(f"{folder}{os.sep}", "").replace(f"{INCLUDE}{os.sep}", ""))


def _output(process: subprocess.Popen[str], seconds: float, notice: str) -> str:
    """All of its output until it ends."""
    if notice:
        try:
            return process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            sys.stderr.write(notice)
    return process.communicate(timeout=seconds)[0]


def compile_error(spec: BuildSpec, text: str) -> CompileError:
    """The error for a compiler's output: about the class where that does not fit the descriptors, else its lines."""
    text = re.sub(r"^\.+ .*\n", "", text, flags=re.MULTILINE)  # clang -H: the files that it read
    name, lines = f"C++ operator {spec.name!r}", compiler_lines(text)
    expected = re.search(r"D500: (expected [^\n]*?)\"?$", text, re.MULTILINE)
    if expected is None or re.search(r": error: |: fatal error: ", lines):
        cure = "add the source or library that has it to other_files" if "undefined" in text else "mend it"
        return CompileError(f"{name}: got C++ that does not compile; expected C++17: {cure}\n{lines or _cut(text)}")
    if not expected[1].startswith("expected public"):
        return CompileError(f"{name}: got a class that cannot be used; {expected[1]}")
    mismatch = re.search(r"((?:forward|backward)(?:_cuda)?)_check<.*?, false, (.*?)>(?:['’)]| |$)", text, re.MULTILINE)
    has = mismatch is not None and mismatch[2] != "void"
    got = re.sub(r" ?\([^()]*::\*\)", f" {mismatch[1]}", mismatch[2]) if has and mismatch else "none"
    return CompileError(f"{name}: got {got}; {expected[1]}: make the class and the descriptors agree")


def compiler_lines(output: str) -> str:
    """Return what the compiler said of the user's own files; empty if that is nothing."""
    lines: list[str] = []
    context: list[str] = []
    keep = False
    for line in output.splitlines():
        head = re.match(r"(.+?)(?::\d+:(?:\d+:)?|\(\d+\):) (?:fatal error|error|warning|note): ", line)
        if head:
            keep = not head[1].startswith(OURS)
            lines += [*context, line] if keep else []
            context = []
        elif re.match(r"\s+(?:\d+ )?\|", line):  # an excerpt of the source
            lines += [line] if keep else []
        elif line.strip() and not re.match(r"In file included from|\s+from |\d+ errors? generated", line):
            context.append(line)
    return _cut("\n".join(lines))


def _cut(text: str) -> str:
    lines = text.splitlines()
    return "\n".join([*lines[:MOST_LINES], *(["..."] if len(lines) > MOST_LINES else [])])
