"""Numbers that loops choose or divide in each round and use in it: Enzyme takes them for what the last round leaves.

It has a rule of its own for ``most = x[i] > most ? x[i] : most``, and for ``rest /= x[i]``: the adjoint goes to the
round that was chosen last, or through the product of all divisors. That is right where only what is left behind the
loop is used. Where each round uses what it has, as ``y[i] = most * most`` does, the gradient is wrong, without a word.
The rule asks for a phi whose next value is the choice itself; here a function that returns its argument stands between
them, where there are such uses. It is inlined once Enzyme is done.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from deep500.operators.enzyme.functions import BasicBlock, blocks

_VALUE = r"(?:%[-\w.$]+|%\"[^\"\n]+\")"
_CARRIED = re.compile(rf"^  ({_VALUE}) = phi (?:[a-z]+ )*(half|bfloat|float|double|x86_fp80|fp128) \[")
_SOURCE = re.compile(rf"\[ ({_VALUE}), %([-\w.$]+|\"[^\"\n]+\") \]")
_OPERAND = rf"({_VALUE}|[^,\s]+)"
_NEXT = re.compile(
    rf"^  ({_VALUE}) = (?:select (?:[a-z]+ )*i1 [^,]+, \w+ {_OPERAND}, \w+ {_OPERAND}|fdiv (?:[a-z]+ )*\w+ {_OPERAND},)"
)
_JUMP = re.compile(rf"^  (?:br|switch|indirectbr|(?:{_VALUE} = )?invoke) ")


def round_by_round(ir: str) -> str:
    """The module whose loops hand on through a call what they choose or divide, and use in the same round.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.

    Example:
        >>> most = "  %1 = phi double [ %x, %0 ], [ %3, %loop ]\\n  %3 = select i1 %2, double %v, double %1\\n"
        >>> end = "  br i1 %c, label %loop, label %end\\n}"
        >>> print(round_by_round("define void @f() {\\nloop:\\n" + most + "  store double %3, ptr %y\\n" + end))
        define void @f() {
        loop:
          %1 = phi double [ %x, %0 ], [ %d5.next.0, %loop ]
          %3 = select i1 %2, double %v, double %1
          store double %3, ptr %y
          %d5.next.0 = call double @d5_next_double(double %3)
          br i1 %c, label %loop, label %end
        }
        define weak hidden double @d5_next_double(double %0) noinline nounwind willreturn memory(none) {
          ret double %0
        }
    """
    lines, count, kinds = ir.split("\n"), itertools.count(), set[str]()
    for _, parts in blocks(lines):
        for phi, kind, value, latch in list(_choices(parts)):
            name = f"%d5.next.{next(count)}"
            lines[phi] = lines[phi].replace(f"[ {value}, %{latch.name} ]", f"[ {name}, %{latch.name} ]")
            jump = next(number for number, line in reversed(latch.lines) if _JUMP.match(line))
            lines[jump] = f"  {name} = call {kind} @d5_next_{kind}({kind} {value})\n{lines[jump]}"
            kinds.add(kind)
    added = [
        f"define weak hidden {kind} @d5_next_{kind}({kind} %0) noinline nounwind willreturn memory(none) {{\n"
        f"  ret {kind} %0\n}}"
        for kind in sorted(kinds)
    ]
    return "\n".join([*lines, *added])


def _choices(parts: list[BasicBlock]) -> Iterator[tuple[int, str, str, BasicBlock]]:
    """Each phi of that kind by its line, its type, its next value, and the block that it comes from."""
    by_name = {part.name: part for part in parts}
    results = {
        choice[1]: choice.groups()[1:] for part in parts for _, line in part.lines if (choice := _NEXT.match(line))
    }
    for header in parts:
        for number, line in header.lines:
            phi = _CARRIED.match(line)
            if phi is None:
                continue
            for value, latch in dict.fromkeys(_SOURCE.findall(line)):
                if phi[1] in results.get(value, ()) and _is_used(value, number, _loop(by_name, header.name, latch)):
                    yield number, phi[2], value, by_name[latch]


def _loop(by_name: dict[str, BasicBlock], header: str, latch: str) -> list[BasicBlock]:
    """The blocks of the loop that is closed by a jump from one block to another."""
    names, waiting = {header}, [latch]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += [part.name for part in by_name.values() if name in part.targets]
    return [by_name[name] for name in names]


def _is_used(value: str, phi: int, loop: list[BasicBlock]) -> bool:
    """Return whether more is done with a value in its loop than that it is compared and handed on."""
    use = re.compile(rf"{re.escape(value)}(?![-\w.$\"])")
    lines = [line for part in loop for number, line in part.lines if number != phi and " = fcmp " not in line]
    return any(use.search(line) and not line.startswith(f"  {value} = ") for line in lines)
