"""Let derived loops run upwards again where no iteration can tell.

A reverse pass runs loops backwards, so vector code must turn every register around that it loads or stores: up to a
quarter of the time of an element-wise gradient. A loop is turned only if it can be seen to be element-wise: one block,
one induction variable from n - 1 down to 0, every access to memory at exactly that index of an argument that is
``noalias``, of a local array, or of one place within either, and no call but of pure math functions. Then no iteration
reads what another one writes: any order does.

In the reverse pass of an operator, what such a loop writes back to a shadow that it has used up, a zero, is left out:
the shadow is the wrapper's own copy, or was zero before.
"""

from __future__ import annotations

import re

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
    r"|floor|ceil|trunc)\.[.\w]+|(?:exp|exp2|expm1|log|log2|log10|log1p|sqrt|sin|cos|tan|tanh|sinh|cosh|atan|erf|pow|fabs)f?)\("
)


def turn_loops(ir: str) -> str:
    """The module with its element-wise loops running upwards.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.
    """
    return _FUNCTION.sub(lambda found: _in_function(found[0]), ir)


def _in_function(text: str) -> str:
    head = text.partition("\n")[0]
    apart = {name for attributes, name in _PARAMETER.findall(head) if "noalias" in attributes.split()}
    roots = {name: name for name in (*apart, *_LOCAL.findall(text))}
    if not roots or "phi i64" not in text:
        return text
    roots |= {name: roots[base] for name, base in _OFFSET.findall(text) if base in roots}
    turned = _BLOCK.sub(lambda found: _turned(found[0], found[1], found[2], roots), text)
    return turned if turned == text or REVERSE not in head else _without_zeros(turned, apart)


def _without_zeros(text: str, apart: set[str]) -> str:
    """The function without stores of zero to arguments that are otherwise only loaded from, once, just there."""
    for base in apart:
        places = re.findall(rf"^  {_NAME} = getelementptr [^\n]*ptr {re.escape(base)},", text, re.MULTILINE)
        if len(places) != 1 or len(_uses(text, base)) != 2:  # the parameter itself, and the place
            continue
        zero = re.findall(rf"^  store \w+ 0\.0+e\+00, ptr {re.escape(places[0])},[^\n]*\n", text, re.MULTILINE)
        loads = re.findall(rf"= load \w+, ptr {re.escape(places[0])},", text)
        if len(zero) == len(loads) == 1 and len(_uses(text, places[0])) == 3:
            text = text.replace(zero[0], "", 1)
    return text


def _turned(block: str, label: str, body: str, roots: dict[str, str]) -> str:
    entry = _ENTRY.match(body)
    if entry is None or body.count(" = phi ") != 1:
        return block
    above, edges = entry[1], {entry[3]: entry[2], entry[5]: entry[4]}
    this = f"%{label}"
    if this not in edges:
        return block
    index = edges.pop(this)
    ((outside, count),) = edges.items()
    found = re.search(rf"^  {re.escape(index)} = add (?:nsw |nuw )*i64 {re.escape(above)}, -1\n", body, re.MULTILINE)
    step = found[0] if found else ""
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


def _is_elementwise(body: str, index: str, roots: dict[str, str]) -> bool:
    """Whether memory is touched at the index only, and nothing else has an effect."""
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
        found = _ACCESS.match(line)
        kind, base = places.get(found[2], ("", "")) if found else ("", "")
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
