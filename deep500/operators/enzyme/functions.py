"""The functions of LLVM's text form: which are differentiated, and of which of the user's lines instructions are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Location = tuple[int, int]
NAME = r"(\"[^\"\n]+\"|[-\w.$]+)"
_FUNCTION = re.compile(rf"^define [^\n]*?@{NAME}\(.*?^\}}", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(rf"^@{NAME} = [^\n]*constant ([^\n]*ptr @[^\n]*)$", re.MULTILINE)
_DIFFERENTIATED = re.compile(rf"^[^\n]*(?:call|invoke) [^\n]*__enzyme_\w+[^\n(]*\([^@\n]*@{NAME}", re.MULTILINE)
_REFERENCE = re.compile(rf"@{NAME}")
_INDIRECT = re.compile(
    r"^\s+(?:%\S+ = )?(?:tail |musttail |notail )?(?:call|invoke) [^@\n]*?\s%[-\w.$]+\(", re.MULTILINE
)
_NODE = re.compile(
    r"^(!\d+) = (?:distinct )?(!DI(?:Location|Subprogram|LexicalBlock\w*|File)\([^\n]*\))$", re.MULTILINE
)
_HEAD = re.compile(rf"^define [^\n]*?@{NAME}\([^\n]*\{{$")
_LABEL = re.compile(rf"^{NAME}:")
_TARGET = re.compile(rf"(?<!unwind )label %{NAME}")


@dataclass
class BasicBlock:
    """A basic block: its name, and its lines with their numbers in the module's text."""

    name: str
    lines: list[tuple[int, str]]

    @property
    def text(self) -> str:
        """Its instructions."""
        return "\n".join(line for _, line in self.lines)

    @cached_property
    def targets(self) -> list[str]:
        """Names of the blocks that may follow without an exception."""
        return _TARGET.findall(self.text)


def blocks(lines: Sequence[str]) -> list[tuple[str, list[BasicBlock]]]:
    """Every function of a module with its blocks, the one that is entered first, which may have no name.

    Args:
        lines: LLVM's text form.

    Example:
        >>> [(name, parts)] = blocks(["define void @f() {", "  br label %1", "1:", "  br label %1", "}"])
        >>> name, [(part.name, part.targets) for part in parts]
        ('f', [('', ['1']), ('1', ['1'])])
    """
    functions: list[tuple[str, list[BasicBlock]]] = []
    inside = False
    for number, line in enumerate(lines):
        if head := _HEAD.match(line):
            functions.append((head[1], [BasicBlock("", [])]))
            inside = True
        elif line == "}":
            inside = False
        elif inside and (label := _LABEL.match(line)):
            functions[-1][1].append(BasicBlock(label[1], []))
        elif inside and line.strip():
            functions[-1][1][-1].lines.append((number, line))
    return functions


def reached(ir: str, stop: Sequence[str] = (), tables: bool = False) -> dict[str, str]:
    """Functions that are differentiated, and what they call by name, with their text.

    Args:
        ir: LLVM's text form, before Enzyme.
        stop: names of functions that are passed over, with what only they call.
        tables: also functions of the tables that they use, as those of virtual functions.

    Example:
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @f)\\n}\\n"
        >>> list(reached(call + "define void @f() {\\n  call void @h()\\n}\\ndefine void @h() {\\n}\\n"))
        ['f', 'h']
    """
    return _reached(ir, _DIFFERENTIATED.findall(ir), stop, tables)


def called(ir: str, start: str) -> dict[str, str]:
    """A function and what it calls, by name or through tables, with their text."""
    return _reached(ir, [start], (), True)


def _reached(ir: str, waiting: list[str], stop: Sequence[str], tables: bool) -> dict[str, str]:
    functions = {match[1]: match[0] for match in _FUNCTION.finditer(ir)}
    bodies = {**functions, **dict(_TABLE.findall(ir))} if tables else functions
    visited: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name in stop or name in visited or name not in bodies:
            continue
        visited[name] = bodies[name]
        waiting += _REFERENCE.findall(bodies[name])
    return {name: text for name, text in visited.items() if name in functions}


def calls_through_pointers(ir: str) -> bool:
    """Return whether what is differentiated calls functions through pointers, as virtual ones and ``std::function``.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.

    Example:
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @f)\\n}\\n"
        >>> calls_through_pointers(call + "define void @f() {\\n  %2 = call double %1(double %0)\\n}\\n")
        True
        >>> calls_through_pointers(call + "define void @f() {\\n  %2 = call double @h(double %0)\\n}\\n")
        False
    """
    return any(_INDIRECT.search(text) for text in reached(ir).values())


def lines_of(ir: str, instructions: Sequence[str], source: Path) -> list[str]:
    """Lines of the user's file that instructions are of, in rising order, as ``line 3: y[i] = x[i];``.

    What stands in a header is of the user's line that it was inlined into.

    Args:
        ir: LLVM's text form with ``-gline-tables-only``.
        instructions: text that holds their ``!dbg !number``.
        source: the user's file.
    """
    known = locations(ir, source)
    met = [known[place] for place in re.findall(r"!dbg (!\d+)", "\n".join(instructions)) if place in known]
    return quoted((line for line, _ in met), source)


def quoted(numbers: Iterable[int], source: Path) -> list[str]:
    """Lines of a file by their numbers, in rising order, as ``line 3: y[i] = x[i];``; what is not there is left out."""
    text = source.read_text(encoding="utf-8", errors="replace").splitlines()
    return [f"line {number}: {text[number - 1].strip()}" for number in sorted(set(numbers)) if 0 < number <= len(text)]


def locations(ir: str, source: Path) -> dict[str, Location]:
    """Locations (``!12``) of a module that are of the user's file, or of what was inlined there -> line and column."""
    nodes = dict(_NODE.findall(ir))
    numbers = {}
    for start, node in nodes.items():
        if not node.startswith("!DILocation("):
            continue
        place = start
        while place in nodes and _file(nodes, place) != source.name:
            place = _field(nodes[place], "inlinedAt")
        if place in nodes:
            numbers[start] = int(_field(nodes[place], "line")), int(_field(nodes[place], "column") or 0)
    return numbers


def lines_behind(ir: str, header: str, line: int, source: Path) -> list[str]:
    """Lines of the user's file that a line of a header was inlined into, or that call what it stands in.

    See :func:`lines_of` for what is taken and returned.
    """
    nodes = dict(_NODE.findall(ir))
    bodies = {name: re.sub(r"\n\s+to label ", " to label ", body) for name, body in reached(ir).items()}  # of invoke
    places = [p for p, node in nodes.items() if _field(node, "line") == str(line) and _file(nodes, p) == header]
    sought = re.compile("|".join(rf"!dbg {place}\b" for place in places) or "(?!)")
    for _ in bodies:
        met = {name: [t for t in body.splitlines() if sought.search(t)] for name, body in bodies.items()}
        lines = lines_of(ir, [text for texts in met.values() for text in texts], source)
        callees = [re.escape(name) for name, texts in met.items() if texts]
        if lines or not callees:
            return lines
        sought = re.compile(rf"(?:call|invoke) [^\n]*@(?:{'|'.join(callees)})\(")
    return []


def _file(nodes: dict[str, str], place: str) -> str:
    """The name of the file that a location's scope is in."""
    scope = _field(nodes[place], "scope")
    match = re.search(r'filename: "([^"]*)"', nodes.get(_field(nodes.get(scope, ""), "file"), ""))
    return Path(match[1]).name if match else ""


def _field(node: str, name: str) -> str:
    match = re.search(rf"\b{name}: (!?\d+)", node)
    return match[1] if match else ""
