"""Rewrites of LLVM's text form after Enzyme, which make reverse passes faster: sums, divisions, element-wise loops.

*Loops.* A reverse pass runs loops backwards, so vector code must turn every register around that it loads or stores:
up to a quarter of the time of an element-wise gradient. A loop is turned only if it can be seen to be element-wise: one
block, one induction variable from n - 1 down to 0, every access to memory at exactly that index of an argument that is
``noalias``, of a local array, or of one place within either, and no call but of pure math functions. Then no iteration
reads what another one writes: any order does. Measured in pairs, the gradient of rmsnorm then takes 0.81 of the time
with ``fast_math``, 0.94 without; those of nine other operators change by 3 % at most.
"""

from __future__ import annotations

import itertools
import re

_TWICE = re.compile(
    r"^(  (?:tail )?call void @cblas_[sd]axpy\(i32 [^,]+, (float|double) )(%[-\w.$]+|%\"[^\"\n]+\")(, [^\n]*\n)\1\3\4",
    re.MULTILINE,
)


def once(ir: str) -> str:
    """The module with what is added twice, as behind the dot product of a vector with itself, added once, doubled.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.
    """
    count = itertools.count()

    def doubled(calls: re.Match[str]) -> str:
        name = f"%d5.twice.{next(count)}"
        return f"  {name} = fmul {calls[2]} {calls[3]}, 2.000000e+00\n{calls[1]}{name}{calls[4]}"

    return _TWICE.sub(doubled, ir)


_BACKWARDS = re.compile(r'^(?:"?invert[-\w.$]*"?):.*?(?=^(?:[-\w.$]+|"[^"\n]+"):|^}|\Z)', re.MULTILINE | re.DOTALL)
_FREE = {"fadd": "nsz contract", "fsub": "nsz contract", "fmul": "nsz contract", "fdiv": "nsz arcp"}
_ARITHMETIC = re.compile(rf"^(  %(?!\S*_unwrap)\S+ = )({'|'.join(_FREE)}) (?=float|double|<)", re.MULTILINE)
_CARRIED = re.compile(r"^  (%\S+) = phi [^\[\n]+((?:\[ [^\]\n]+ \](?:, )?)+)", re.MULTILINE)
_FREED_SUM = re.compile(r"^(  (%\S+) = fadd )(?=nsz contract )", re.MULTILINE)
_ADDITION = re.compile(r"^  (%\S+) = fadd nsz contract (?:float|double|<[^>]+>) ([^,\n]+), ([^,\n]+)$", re.MULTILINE)


def loosen(ir: str) -> str:
    """The module with freedom for its reverse passes that keeps what the source computes.

    In the blocks that run backwards a sum that a loop carries may be added in the order of vector code, since no source
    says in which order the terms of a gradient are added. Anywhere in a reverse pass, but for what is computed once
    more, a product may be fused with the sum that it goes into and a divisor's reciprocal be taken: one rounding. Sums
    of the source keep their order: ``(x + 2^52) - 2^52`` rounds to a whole number, and would be ``x`` otherwise.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.

    Example:
        >>> block = "invert1:\\n  %1 = phi double [ 0.0, %2 ], [ %3, %invert1 ]\\n  %3 = fadd double %1, %4\\n"
        >>> print(loosen("define void @d500_reverse() {\\n" + block + "}"))
        define void @d500_reverse() {
        invert1:
          %1 = phi double [ 0.0, %2 ], [ %3, %invert1 ]
          %3 = fadd reassoc nsz contract double %1, %4
        }
    """

    def reordered(match: re.Match[str]) -> str:
        sums = set(_carried_sums(match[0]))
        return _FREED_SUM.sub(lambda term: f"{term[1]}reassoc " if term[2] in sums else term[0], match[0])

    def loosened(function: re.Match[str]) -> str:
        head = function[0].partition("\n")[0]
        if not re.search(r"@[\w.$]*(?:d500_reverse|diffe)", head) or "fwddiffe" in head:
            return function[0]
        freed = _ARITHMETIC.sub(lambda match: f"{match[1]}{match[2]} {_FREE[match[2]]} ", function[0])
        return _BACKWARDS.sub(reordered, freed)

    return _FUNCTION.sub(loosened, ir)


_RISKY = re.compile(
    r"^  (%(?!\S*_unwrap)[-\w.$]+) = (f(div|mul) (?:[a-z]+ )*(double|float) (%[-\w.$]+), ([^,\n]+))$", re.MULTILINE
)


def guard_zeros(ir: str) -> str:
    """The module whose reverse passes take zero for a zero divided by anything and for a zero times anything.

    What was overwritten before it was used has a zero as its adjoint, and may be what has no slope: log(0); and where
    exp(x) is infinite, 1 / (1 + exp(x)) has none either. Enzyme's strong zeros leave quotients and functions out.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.

    Example:
        >>> print(guard_zeros("define void @d500_reverse() {\\ninvert1:\\n  %2 = fdiv double %1, %0\\n}"))
        define void @d500_reverse() {
        invert1:
          %d5.risky.0 = fdiv double %1, %0
          %d5.first.0 = fcmp oeq double %1, 0.0
          %2 = select i1 %d5.first.0, double 0.0, double %d5.risky.0
        }
    """
    count = itertools.count()

    def guarded(operation: re.Match[str]) -> str:
        result, text, sign, kind, first, second = operation.groups()
        if sign == "mul" and not second.startswith("%"):
            return operation[0]
        n = next(count)
        lines = [f"  %d5.risky.{n} = {text}", f"  %d5.first.{n} = fcmp oeq {kind} {first}, 0.0"]
        zero = f"%d5.first.{n}"
        if sign == "mul":
            zero = f"%d5.either.{n}"
            lines += [f"  %d5.second.{n} = fcmp oeq {kind} {second}, 0.0"]
            lines += [f"  {zero} = or i1 %d5.first.{n}, %d5.second.{n}"]
        return "\n".join([*lines, f"  {result} = select i1 {zero}, {kind} 0.0, {kind} %d5.risky.{n}"])

    def in_function(function: re.Match[str]) -> str:
        head = function[0].partition("\n")[0]
        if f"{REVERSE}_each" in head:  # its one block runs forwards, then backwards
            return _RISKY.sub(guarded, function[0])
        if not re.search(r"@[\w.$]*(?:d500_reverse|diffe)", head):
            return function[0]
        return _BACKWARDS.sub(lambda block: _RISKY.sub(guarded, block[0]), function[0])

    return _FUNCTION.sub(in_function, ir)


def _carried_sums(block: str) -> list[str]:
    """Names of the additions from a value that a block carries into its next round to what it carries there."""
    label = block.partition(":")[0].strip('"')
    sums = {match[1]: (match[2], match[3]) for match in _ADDITION.finditer(block)}
    names = []
    for phi in _CARRIED.finditer(block):
        sources = re.findall(r"\[ ([^,\]]+), %\"?([^\]\" ]+)\"? \]", phi[2])
        end = next((value for value, origin in sources if origin == label), "")
        chain = _path(sums, end, phi[1])
        names += chain
    return names


def _path(sums: dict[str, tuple[str, str]], end: str, begin: str) -> list[str]:
    """The additions that lead from a value to another, the last one first; none if they do not."""
    if end == begin or end not in sums:
        return []
    for term in sums[end]:
        if term == begin:
            return [end]
        if rest := _path(sums, term, begin):
            return [end, *rest]
    return []


REVERSE = "d500_reverse"
"""Part of the names of the functions around reverse passes, see ``wrapper.py``."""

_FUNCTION = re.compile(r"^define [^\n]*\{\n.*?^\}", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"ptr ([^,()]*(?:\([^()]*\)[^,()]*)*)(%[-\w.$]+|%\"[^\"]+\")")
_BLOCK = re.compile(r"^((?:\"[^\"\n]+\"|[-\w.$]+)):[^\n]*\n((?:  [^\n]*\n)+)", re.MULTILINE)
_NAME = r"(%(?:\"[^\"\n]+\"|[-\w.$]+))"
_BOUND = r"(%(?:\"[^\"\n]+\"|[-\w.$]+)|\d+)"
_ENTRY = re.compile(rf"^  {_NAME} = phi i64 \[ {_BOUND}, {_NAME} \], \[ {_BOUND}, {_NAME} \]\n")
_LOCAL = re.compile(rf"^  {_NAME} = alloca ", re.MULTILINE)
_OFFSET = re.compile(rf"^  {_NAME} = getelementptr [^\n]*, ptr {_NAME}, i64 [^\n]*$", re.MULTILINE)
_ACCESS = re.compile(rf"^  (?:{_NAME} = load [^,]+|store [^,]+ [^,]+), ptr {_NAME}[,\n]", re.MULTILINE)
_PURE = re.compile(
    r"@(?:llvm\.(?:exp|exp2|log|log2|log10|sqrt|fabs|sin|cos|tanh|pow|powi|fma|fmuladd|minnum|maxnum|minimum|maximum|copysign"
    r"|floor|ceil|trunc)\.[.\w]+|(?:exp|exp2|expm1|log|log2|log10|log1p|sqrt|sin|cos|tan|tanh|sinh|cosh|atan|erf|pow|fabs)f?|d5_\w+)\("
)


def turn_loops(ir: str) -> str:
    """The module with its element-wise loops running upwards.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.
    """
    return _FUNCTION.sub(lambda matched: _in_function(matched[0]), ir)


def _in_function(text: str) -> str:
    head = text.partition("\n")[0]
    apart = {name for attributes, name in _PARAMETER.findall(head) if "noalias" in attributes.split()}
    roots = {name: name for name in (*apart, *_LOCAL.findall(text))}
    if not roots or "phi i64" not in text:
        return text
    # One level of offsets is enough: what Enzyme and clang write takes them from the arguments themselves.
    roots |= {name: roots[base] for name, base in _OFFSET.findall(text) if base in roots}
    return _BLOCK.sub(lambda matched: _turned(matched[0], matched[1], matched[2], roots), text)


PROMISE = "d500_spends"
"""The variable that is 1 where an operator promises ``writes_once``; 0 behind Enzyme says that no copies are needed."""

_PROMISED = re.compile(rf"^(@{PROMISE} = [^\n]*global i32 )1\b", re.MULTILINE)


def spare_gradients(ir: str) -> str:
    """The module whose reverse passes only read the gradients of outputs, if the operator promises ``writes_once``.

    What a reverse pass has read of an output's gradient it sets to zero, since the same place may have been written
    before; so it needs a copy of its own. Where every element is written once there is no before. Whatever else is done
    with such a gradient, such as a product that wrote right to the output, leaves the module as it is.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.
    """
    if not _PROMISED.search(ir):
        return ir
    passes = [match[0] for match in _FUNCTION.finditer(ir) if _takes_gradients(match[0].partition("\n")[0])]
    spared = [_reading(text) for text in passes]
    if not passes or not all(spared):
        return ir
    for before, after in zip(passes, spared, strict=True):
        ir = ir.replace(before, after, 1)
    return _PROMISED.sub(r"\g<1>0", ir)


def _takes_gradients(head: str) -> bool:
    return REVERSE in head and f"{REVERSE}_each" not in head and "fwddiffe" not in head


def _reading(text: str) -> str:
    """The function without stores of zero to the gradients of outputs, which are its aligned parameters.

    Empty if more is done with them than that and reading.
    """
    head = text.partition("\n")[0]
    names = {name for attributes, name in _PARAMETER.findall(head) if re.search(r"\balign \d", attributes)}
    if not names:
        return ""
    offsets = _OFFSET.findall(text)
    while True:
        further = {name for name, base in offsets if base in names} - names
        if not further:
            break
        names |= further
    lines = []
    for line in text.splitlines(keepends=True)[1:]:
        offset = re.match(rf"  {_NAME} = getelementptr ", line)
        if not any(_uses(line, name) for name in names) or re.match(r"  \S+ = load ", line):
            lines.append(line)
        elif offset and offset[1] in names:  # what is reached through it has been looked at
            lines.append(line)
        elif not re.match(
            r"  store \w+ 0\.0+e\+00, |  (?:tail )?call void @llvm\.memset\.p0\.i64\([^,]*, i8 0, ", line
        ):
            return ""
    return "".join([f"{head}\n", *lines])


def _turned(block: str, label: str, body: str, roots: dict[str, str]) -> str:
    body, block = _index_first(block, body)
    # Everything is matched before anything is changed: a block that differs in one point stays as it is.
    entry = _ENTRY.match(body)
    if entry is None or not _sums_beside(body, f"%{label}"):
        return block
    above, edges = entry[1], {entry[3]: entry[2], entry[5]: entry[4]}
    this = f"%{label}"
    if this not in edges:
        return block
    index = edges.pop(this)
    ((outside, count),) = edges.items()
    decrement = re.search(
        rf"^  {re.escape(index)} = add (?:nsw |nuw )*i64 {re.escape(above)}, -1\n", body, re.MULTILINE
    )
    step = decrement[0] if decrement else ""
    ending = re.search(
        rf"^  {_NAME} = icmp eq i64 {re.escape(index)}, 0\n  br i1 \1, label {_NAME}, label {re.escape(this)}(?=[,\n])",
        body,
        re.MULTILINE,
    )
    if ending is None or not step or len(_uses(body, above)) != 2 or not _is_elementwise(body, index, roots):
        return block
    upper = index[:-1] + '.up"' if index.endswith('"') else f"{index}.up"
    fresh = f"  {index} = phi i64 [ {upper}, {this} ], [ 0, {outside} ]\n"
    test = f"  {upper} = add nuw i64 {index}, 1\n  {ending[1]} = icmp eq i64 {upper}, {count}\n"
    changed = body.replace(entry[0], fresh, 1).replace(step, "", 1)
    changed = changed.replace(f"  {ending[1]} = icmp eq i64 {index}, 0\n", test, 1)
    return block.replace(body, changed, 1)


_PHI = re.compile(rf"^  {_NAME} = phi [^\n]*\n", re.MULTILINE)
_SUM = re.compile(rf"^  {_NAME} = phi (?:\w+ )*(float|double) \[ {_NAME}, {_NAME} \], \[ [^\n]* \]\n", re.MULTILINE)


def _index_first(block: str, body: str) -> tuple[str, str]:
    """The block's body with the phi of its index before those of sums, and the block with it."""
    lines = [match[0] for match in _PHI.finditer(body)]
    if any(re.match(r"  %\d+ =", line) for line in lines):  # numbers have their places
        return body, block
    first = sorted(lines, key=lambda line: " = phi i64 " not in line)
    changed = body.replace("".join(lines), "".join(first), 1)
    return changed, block.replace(body, changed, 1)


def _sums_beside(body: str, this: str) -> bool:
    """Return whether all that iterations hand on beside the index are sums whose order is free."""
    for line in [match[0] for match in _PHI.finditer(body)][1:]:
        total = _SUM.match(line)
        if total is None or total[4] != this or len(_uses(body, total[1])) != 2 or len(_uses(body, total[3])) != 2:
            return False
        before = rf"^  {re.escape(total[3])} = fadd (?:fast|reassoc) (?:\w+ )*{total[2]} "
        place = rf"{before}[^\n]*{re.escape(total[1])}(?![-\w.$\"])"
        if not re.search(place, body, re.MULTILINE):
            return False
    return True


def _is_elementwise(body: str, index: str, roots: dict[str, str]) -> bool:
    """Return whether memory is touched at the index only, and nothing else has an effect."""
    element = re.compile(
        rf"^  {_NAME} = getelementptr (?:inbounds |nuw |nusw )*(\w+), ptr {_NAME}, i64 {re.escape(index)}(?=[,\n])",
        re.MULTILINE,
    )
    places = {name: (kind, base) for name, kind, base in element.findall(body)}
    kinds: dict[str, tuple[str, str]] = {}
    for line in body.splitlines(keepends=True):
        if " call " in line and not _PURE.search(line):
            return False
        if re.search(r"\b(?:atomicrmw|cmpxchg|fence|invoke|volatile|atomic)\b", line):
            return False
        if not re.search(r"= load |^  store ", line):
            continue
        access = _ACCESS.match(line)
        kind, base = places.get(access[2], ("", "")) if access else ("", "")
        accessed = re.search(r"= load (\w+),|^  store (\w+) ", line)
        if (
            base not in roots
            or accessed is None
            or kind not in accessed.groups()
            or kinds.setdefault(roots[base], (kind, base)) != (kind, base)
        ):
            return False
    return bool(kinds)


def _uses(body: str, name: str) -> list[str]:
    return re.findall(rf"{re.escape(name)}(?![-\w.$\"])", body)
