"""Rewrites of LLVM's text form before Enzyme: every parallel region of OpenMP behind a function of its own.

What a region keeps for its reverse pass, Enzyme makes room for in the function that starts the region, by what it finds
there. In a function of many regions, loops and branches (LULESH's time step, all inlined) it finds the wrong thing: the
gradient was off by two thirds of itself after twenty steps, with one thread as with four, and no message. In a function
that does nothing but start the region there is nothing to find but the region's own arguments, and it is right.

And a *pointer* that a region captures by reference may be taken for its own shadow: the caller's input array is then
overwritten, with no message. Where a region only reads such a pointer, it gets the pointer itself, as ``firstprivate``
would have it. What remains is found by :func:`deep500.operators.enzyme.ir.shared_pointers`, to be refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from deep500.operators.enzyme.ir import parameters

_START = re.compile(
    r"^  (?:tail |notail )?call void \(ptr, i32, ptr, \.\.\.\) @__kmpc_fork_call\((.*)\)([^()\n]*)$", re.MULTILINE
)
_FUNCTION = re.compile(
    r"^define [^\n]*?@(\"[^\"\n]+\"|[-\w.$]+)\(([^\n]*)\) [^()\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
_POINTER = "dereferenceable(8)"
_HARMLESS = (
    r"^  (?:{name} = alloca |store ptr [^,\n]+, ptr {name},|%\S+ = load ptr, ptr {name},|[^\n]*@llvm\.lifetime\.)"
)


@dataclass(frozen=True)
class _SourceRegion:
    """One region: its function's text, its parameters and its body."""

    text: str
    parameters: list[str]
    body: str


def own_regions(ir: str) -> str:
    """The module with each region started by a function that does only that, and given the pointers that it reads.

    Args:
        ir: LLVM's text form, as clang writes it, before Enzyme.

    Example:
        >>> start = "  call void (ptr, i32, ptr, ...) @__kmpc_fork_call(ptr @1, i32 2, ptr @region, i64 %n, ptr %x)"
        >>> function = "define void @forward(i64 %n, ptr %x) {\\n" + start + "\\n  ret void\\n}\\n"
        >>> region = "define internal void @region(ptr %0, ptr %1, i64 %2, ptr %3) #1 {\\n  ret void\\n}\\n"
        >>> print(own_regions(function + region).replace(region, ""), end="")
        define void @forward(i64 %n, ptr %x) {
          call void @d5.region.0(i64 %n, ptr %x)
          ret void
        }
        <BLANKLINE>
        define internal void @d5.region.0(i64 %d5.0, ptr %d5.1) noinline nounwind {
          call void (ptr, i32, ptr, ...) @__kmpc_fork_call(ptr @1, i32 2, ptr @region, i64 %d5.0, ptr %d5.1)
          ret void
        }
    """
    starts = [parameters(match[1]) for match in _START.finditer(ir)]
    if not starts:
        return ir
    names = {_name(arguments) for arguments in starts}
    regions = {match[1]: _SourceRegion(match[0], parameters(match[2]), match[3]) for match in _FUNCTION.finditer(ir)}
    regions = {name: region for name, region in regions.items() if name in names}
    handed = {name: _handed(ir, name, region) for name, region in regions.items()}
    count, functions = itertools.count(), []

    def started(match: re.Match[str]) -> str:
        places = handed.get(_name(parameters(match[1])), [])
        call, function = _apart(match, next(count), places)
        functions.append(function)
        return call

    changed = _START.sub(started, ir)
    for name, places in handed.items():
        changed = changed.replace(regions[name].text, _reading(regions[name], places), 1)
    return "\n".join([changed, *functions])


def _apart(start: re.Match[str], number: int, handed: list[int]) -> tuple[str, str]:
    """Return what stands for the start of a region, and the function that it calls."""
    arguments = parameters(start[1])
    loads, passed = [], list(arguments[3:])
    for place in handed:
        value = f"%d5.pointer.{number}.{place}"
        loads.append(f"  {value} = load ptr, ptr {passed[place].split()[-1]}, align 8{start[2]}\n")
        passed[place] = f"ptr {value}"
    outside = [place for place, argument in enumerate(passed) if "%" in argument.split()[-1]]
    inside = [
        f"{argument.rpartition(' ')[0]} %d5.{place}" if place in outside else argument
        for place, argument in enumerate(passed)
    ]
    function = (
        f"define internal void @d5.region.{number}({', '.join(inside[place] for place in outside)}) noinline nounwind "
        "{\n  call void (ptr, i32, ptr, ...) @__kmpc_fork_call("
        f"{', '.join([*arguments[:3], *inside])})\n  ret void\n}}\n"
    )
    call = f"  call void @d5.region.{number}({', '.join(passed[place] for place in outside)}){start[2]}"
    return "".join(loads) + call, function


def _name(arguments: list[str]) -> str:
    return arguments[2].split()[-1].removeprefix("@")


def _handed(ir: str, name: str, region: _SourceRegion) -> list[int]:
    """Return which arguments of a region, from its third on, are addresses of pointers that are the same throughout."""
    starts = list(_callers(ir, name))
    if len(re.findall(rf"@{re.escape(name)}(?![-\w.$\"])", ir)) != 1 + len(starts):  # called otherwise, too
        return []
    places = []
    for place, parameter in enumerate(region.parameters[2:]):
        if _POINTER not in parameter or not _is_read(region.body, parameter.split()[-1]):
            continue
        if all(_is_local(caller, arguments[3 + place].split()[-1]) for caller, arguments in starts):
            places.append(place)
    return places


def _callers(ir: str, name: str) -> Iterator[tuple[str, list[str]]]:
    """Every start of a region: the function around it, and its arguments."""
    for function in _FUNCTION.finditer(ir):
        if f"@{name}" in function[3]:
            for start in _START.finditer(function[0]):
                arguments = parameters(start[1])
                if _name(arguments) == name:
                    yield function[0], arguments


def _is_read(body: str, reference: str) -> bool:
    """Return whether a region loads a pointer from there, and does nothing else with it."""
    uses = _lines(body, reference)
    return bool(uses) and all(re.match(rf"  %\S+ = load ptr, ptr {re.escape(reference)}(?:,|$)", use) for use in uses)


def _is_local(caller: str, name: str) -> bool:
    """Return whether it is a local variable that only its function and the regions that it starts can reach."""
    uses = _lines(caller, name)
    known = re.compile(_HARMLESS.format(name=re.escape(name)))
    return any(f"{name} = alloca ptr" in use for use in uses) and all(
        known.match(use) or _START.match(use) for use in uses
    )


def _lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(rf"{re.escape(name)}(?![-\w.$\"])", line)]


def _reading(region: _SourceRegion, places: list[int]) -> str:
    """The region's text with these of its parameters pointers, no longer addresses of pointers."""
    head, _, body = region.text.partition("\n")
    for place in places:
        parameter = region.parameters[2 + place]
        name = parameter.split()[-1]
        head = head.replace(parameter, f"ptr {name}", 1)
        load = rf"= load ptr, ptr {re.escape(name)}(?:,[^\n]*)?$"
        same = f"= getelementptr i8, ptr {name}, i64 0".replace("\\", "\\\\")
        body = re.sub(load, same, body, flags=re.MULTILINE)
    return f"{head}\n{body}"
