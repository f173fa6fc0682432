"""The commands that turn an operator's source into a library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import MissingEngine
from deep500.operators.cpp.compilers import Compiler
from deep500.operators.cpp.running import SECONDS, ZIG_NOTICE, ZIG_SECONDS, run_compiler
from deep500.operators.cpp.spec import CPP_TYPES, INCLUDE, BuildSpec
from deep500.operators.cpp.wrapper import wrapper_source

HEADERS = (".h", ".hpp", ".hh", ".inl", ".cuh")
OBJECTS = (".o", ".a", ".so")
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-march=native", "-fPIC", "-w")
LINK = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs")
"""Calls inside a library stay inside, whatever else the process has loaded under the same names; none leads nowhere."""

Examples = Callable[[], list[tuple[list[tuple[int, ...]], list[tuple[int, ...]]]]]
"""Gives pairs of input and output shapes that an operator can be tried with."""


@dataclass(frozen=True)
class Job:
    """One build.

    Attributes:
        place: folder to build in.
        main: the operator's source, as the unit includes it.
        library: what is to be made.
        live: whether commands and their output are shown.
        examples: gives shapes of inputs and outputs to try a derived gradient with.
    """

    spec: BuildSpec
    compiler: Compiler
    place: Path
    main: str
    library: Path
    live: bool
    examples: Examples

    @property
    def unit(self) -> Path:
        """The generated translation unit."""
        return self.place / "operator.cc"

    @property
    def listing(self) -> Path:
        """Where the compiler lists the files that the unit includes."""
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
        """Folders of headers, and the macros that were asked for."""
        spec = self.spec
        folders = [f"-I{INCLUDE}", *([f"-I{Path(spec.file).parent}"] if spec.file else [])]
        return [*folders, *(f"-D{key}={value}" for key, value in spec.definitions)]

    def listing_flags(self, number: int = 0) -> list[str]:
        """Flags that make the compiler write the listing of the unit, or of another source, from 1 on."""
        return ["-MMD", "-MF", str(self.place / f"other{number}.d" if number else self.listing)]


def compile_library(job: Job) -> None:
    """Make the library, by whatever compiles the source."""
    if job.spec.gradient == "enzyme":
        compile_with_enzyme(job)
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
        *job.flags,
    ]
    made = [str(job.place / f"{number}.o") for number in range(1 + len(job.sources))]
    commands = [[*front, *job.listing_flags(), "-x", "cu", "-c", str(job.unit), "-o", made[0]]]
    for number, source in enumerate(job.sources, 1):
        commands.append([*front, *job.listing_flags(number), "-c", source, "-o", made[number]])
    linking = [*job.compiler.command, "-shared", "-Xlinker=-Bsymbolic,-z,defs"]
    commands.append([*linking, *made, *job.objects, "-o", str(job.library)])
    for command in commands:
        run_compiler(spec, command, job.place, job.live)


def compile_plainly(job: Job) -> None:
    """Compile the unit and the other sources, and link them."""
    spec, compiler = job.spec, job.compiler
    job.unit.write_text(wrapper_source(spec, job.main), encoding="utf-8")
    front, back = openmp_flags(compiler) if spec.openmp else ([], [])
    flags = [*FLAGS, *_kind_flags(compiler), f"-DD500_DTYPE={CPP_TYPES[spec.dtype]}", *job.flags]
    compiling = [*compiler.command, *flags, *front, *(_fast_math(compiler) if spec.fast_math else [])]
    objects = [str(job.place / "operator.o")]
    commands = [[*compiling, *job.listing_flags(), "-c", str(job.unit), "-o", objects[0]]]
    for number, source in enumerate(job.sources, 1):
        objects.append(str(job.place / f"other{number}.o"))
        commands.append([*compiling, *job.listing_flags(number), "-c", source, "-o", objects[-1]])
    objects += job.objects
    # Linked without -ffast-math: with it, gcc adds code that makes the whole process round denormal numbers to 0.
    libraries = [*(["-lmvec"] if spec.fast_math and compiler.kind != "gcc" else []), "-lm"]
    commands.append([*compiler.command, *flags, *LINK, *objects, "-o", str(job.library), *back, *libraries])
    *compilations, linking = commands
    for command in compilations:
        run_compiler(spec, command, job.place, job.live)
    seconds, notice = (ZIG_SECONDS, ZIG_NOTICE) if compiler.kind == "zig" else (SECONDS, "")
    run_compiler(spec, linking, job.place, job.live, seconds, notice)


def compile_with_enzyme(job: Job) -> None:
    """Compile through Enzyme, and check the gradient that comes out."""
    from deep500.operators.enzyme.build import Build

    Build(job).run()


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
    found = {file.name: Path(str(file.locate())).resolve().parent for file in listed}
    if len(found) < 2:
        raise MissingEngine(
            "got openmp=True with the compiler zig and no OpenMP runtime; expected Intel's: pip install intel-openmp"
        )
    runtime = found["libiomp5.so"]
    return ["-fopenmp", f"-I{found['omp.h']}"], [f"-L{runtime}", "-liomp5", f"-Wl,-rpath,{runtime}"]


def _kind_flags(compiler: Compiler) -> list[str]:
    # Without -fno-gnu-unique, gcc shares static members of templates between libraries that know nothing of each other.
    return ["-fno-gnu-unique"] if compiler.kind == "gcc" else []


def _fast_math(compiler: Compiler) -> list[str]:
    return ["-ffast-math"] if compiler.kind == "gcc" else ["-ffast-math", "-fveclib=libmvec"]
