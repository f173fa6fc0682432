"""Gradients of C++ operators derived by Enzyme, a pass of LLVM: what the room of C++ operators is handed for them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deep500.operators.cpp.commands import Job
    from deep500.operators.cpp.spec import BuildSpec


class Enzyme:
    """The :class:`~deep500.operators.cpp.commands.Derivation` by Enzyme.

    What builds is imported when something is built: finding a library in the cache takes less time than that.
    """

    def source(self, spec: BuildSpec, fields: Mapping[str, Any]) -> str:
        """See :func:`deep500.operators.enzyme.wrapper.gradient_source`."""
        from deep500.operators.enzyme.wrapper import gradient_source

        return gradient_source(spec, fields)

    def identity(self) -> list[str]:
        """Engine, compilers, how they are driven (the text of this folder), and the tape that gradients are held to."""
        from deep500.operators.cpp.compilers import identity, zig_program
        from deep500.operators.enzyme.engine import find_engine

        engine = find_engine()
        drivers = [shutil.which(name) for name in (f"clang++-{engine.llvm}", "clang++")] + [zig_program()]
        here = Path(__file__).parent
        files = [*sorted(here.glob("*.py")), here.parent / "include" / "deep500" / "taped.h"]
        ours = [path.read_text(encoding="utf-8") for path in files]
        return [str(engine), *(identity(Path(path)) for path in drivers if path), *ours]

    def build(self, job: Job) -> None:
        """Compile through Enzyme, and check the gradient that comes out; see :class:`.build.Build`."""
        from deep500.operators.enzyme.build import Build

        Build(job).run()
