"""One module of LLVM's text form into several, each with some of its exports.

Enzyme gets gradients wrong where one module asks for forward and for reverse mode of code that shares functions (a
growing ``std::vector``, seen with the engine that is pinned: the heap is corrupted). So every mode gets a module of its
own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_STRONG = re.compile(
    r"^define (?!internal |private |linkonce|weak|available_externally)([^@\n]*)@([\w.$]+)\(", re.MULTILINE
)
_USED = re.compile(r"^(@llvm\.(?:compiler\.)?used = appending global )\[\d+ x ptr\] \[([^\]]*)\](.*)$", re.MULTILINE)
_GLOBAL = re.compile(
    r"^(@(?!llvm\.)[\w.$]+ = )((?:dso_local |unnamed_addr |local_unnamed_addr |thread_local(?:\([a-z]+\))? )*)"
    r"(global|constant) (.*)$",
    re.MULTILINE,
)
REST = "rest"
_KEPT = re.compile(r"^@__enzyme_")


def split(ir: str, apart: Sequence[str]) -> dict[str, str]:
    """The module without some exports, then one module for each of these.

    Args:
        ir: LLVM's text form.
        apart: names of exported functions; those that the module does not define are passed over.

    Returns:
        The modules by name, the rest first; to be linked together. Variables of the first are shared by the others,
        except static ones.
    """
    exports = [name for _, name in _STRONG.findall(ir)]
    alone = [name for name in apart if name in exports]
    if not alone:
        return {REST: ir}
    rest = [name for name in exports if name not in alone]
    return {REST: _with(ir, rest)} | {name: _borrowing(_with(ir, [name])) for name in alone}


def _with(ir: str, exports: Collection[str]) -> str:
    """The module with only these exports: the others become internal, so that they vanish if nothing needs them."""

    def hidden(found: re.Match[str]) -> str:
        attributes, name = found[1], found[2]
        if name in exports:
            return found[0]
        # A definition that is internal has neither visibility nor preemption.
        plain = re.sub(r"\b(?:dso_local|hidden|protected|default) ", "", attributes)
        return f"define internal {plain}@{name}("

    def used(found: re.Match[str]) -> str:
        names = [one.strip() for one in found[2].split(",")]
        kept = [one for one in names if one.removeprefix("ptr @") in exports or not _is_function(ir, one)]
        return f"{found[1]}[{len(kept)} x ptr] [{', '.join(kept)}]{found[3]}" if kept else ""

    return _USED.sub(used, _STRONG.sub(hidden, ir))


def _is_function(ir: str, reference: str) -> bool:
    name = re.escape(reference.removeprefix("ptr "))
    return re.search(rf"^define [^\n]*{name}\(", ir, re.MULTILINE) is not None


def _borrowing(ir: str) -> str:
    """The module with its variables declared only: another one defines them. What tells Enzyme of gradients stays."""

    def declared(found: re.Match[str]) -> str:
        if _KEPT.match(found[1]):
            return f"{found[1]}internal {found[2].replace('dso_local ', '')}{found[3]} {found[4]}"
        kind = _type_of(found[4])
        return f"{found[1]}external {found[2].replace('dso_local ', '')}{found[3]} {kind}"

    return _GLOBAL.sub(declared, ir)


def _type_of(rest: str) -> str:
    """The type at the start of a definition's text: one word, or up to the bracket that closes it."""
    closing = {"[": "]", "{": "}", "<": ">", "(": ")"}
    stack: list[str] = []
    for i, mark in enumerate(rest):
        if mark in closing:
            stack.append(closing[mark])
        elif stack and mark == stack[-1]:
            stack.pop()
        elif not stack and mark in " ,":
            return rest[:i]
        if not stack and mark in closing.values():
            return rest[: i + 1]
    return rest
