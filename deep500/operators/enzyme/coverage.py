"""Which of an operator's lines its check ran: forward is built once more with a byte per basic block, set when it runs.

A gradient is judged only where forward went. Nothing is optimised in this build, so that every branch of the source is
one, and there is no gradient in it, so that it takes a fraction of the other's time.
"""

from __future__ import annotations

import re
from pathlib import Path

from deep500.operators.enzyme.functions import BasicBlock, Location, blocks, called, locations

BYTES = "d500_blocks"
"""The export that holds the bytes."""

_FIRST = re.compile(r"^\s+%\S+ = (?:phi|landingpad)\b|^\s+(?:cleanup|catch|filter)\b")
_FAILS = re.compile(r"@__cxa_throw|^\s+unreachable", re.MULTILINE)
_WORKS = re.compile(  # what belongs to no line, or to lifetimes, is of clean-ups
    r"^\s+(?:store |(?:%\S+ = )?(?:\w+ )?call )(?![^\n]*@llvm\.lifetime)[^\n]*!dbg|^\s+(?:%\S+ = )?invoke ",
    re.MULTILINE,
)
_DONE = re.compile(
    r"^  (?:%\S+ = )?(?:\w+ )?(?:call|invoke) [^\n]*?(?:\n +to label [^\n]*?)?, !dbg (!\d+)", re.MULTILINE
)


def counted(ir: str, source: Path, start: str = "d500_forward") -> tuple[str, list[set[Location]]]:
    """The module with a byte per block, and the lines and columns of the user's file that each byte stands for.

    Blocks that only exceptions lead to, or that throw, are left out: no gradient is taken there. Those that neither
    store nor call stand for nothing: they only lead on, as ``return`` and what follows ``&&`` do.

    Args:
        ir: LLVM's text form with ``-gline-tables-only``.
        source: the user's file.
        start: the function that is run.

    Example:
        >>> counted("define void @d500_forward() {\\n  ret void\\n}", Path(__file__))[1]
        []
    """
    lines, known = ir.splitlines(), locations(ir, source)
    within = called(ir, start)
    added: dict[int, str] = {}
    places: list[set[Location]] = []
    for name, parts in blocks(lines):
        for block in _usual(parts) if name in within else ():
            met = {known[place] for place in re.findall(r"!dbg (!\d+)", block.text) if place in known}
            if met and not _FAILS.search(block.text):
                after = next(number for number, text in block.lines if not _FIRST.match(text))
                added[after] = f"  store i8 1, ptr getelementptr (i8, ptr @{BYTES}, i64 {len(places)})"
                places.append(met if _WORKS.search(block.text) else set())
    counting = [text for n, line in enumerate(lines) for text in ([added[n], line] if n in added else [line])]
    array = f"@{BYTES} = dso_local global [{max(1, len(places))} x i8] zeroinitializer"
    return "\n".join([*counting, array, ""]), places


def lined(ir: str, source: Path) -> str:
    """The module that stores the line of the user's file before every call there, for ``deep500/taped.h``.

    Args:
        ir, source: see :func:`counted`.
    """
    known = locations(ir, source)

    def noted(call: re.Match[str]) -> str:
        return f"  store i32 {known[call[1]][0]}, ptr @d500_line\n{call[0]}" if call[1] in known else call[0]

    return _DONE.sub(noted, ir)


def _usual(parts: list[BasicBlock]) -> list[BasicBlock]:
    """The blocks that may run without an exception."""
    by_name = {block.name: block for block in parts}
    waiting, visited = [""], set()
    while waiting:
        name = waiting.pop()
        if name not in visited:
            visited.add(name)
            waiting += by_name[name].targets
    return [block for block in parts if block.name in visited]
