"""Rewrites of LLVM's text form around Enzyme: reductions of OpenMP before it, modules apart, loops upwards after it.

*OpenMP.* Enzyme knows most of what clang emits for ``parallel for``, but not the entry of a reduction. And a *pointer*
that a parallel region captures by reference may be taken for its own shadow: the caller's input array is then
overwritten, with no message. Reductions are corrected, such pointers found so that they can be refused.

*Modules.* Enzyme gets gradients wrong where one module asks for forward and for reverse mode of code that shares
functions (a growing ``std::vector``, seen with the engine that is pinned: the heap is corrupted). So every mode gets a
module of its own.

*Loops.* A reverse pass runs loops backwards, so vector code must turn every register around that it loads or stores:
up to a quarter of the time of an element-wise gradient. A loop is turned only if it can be seen to be element-wise: one
block, one induction variable from n - 1 down to 0, every access to memory at exactly that index of an argument that is
``noalias``, of a local array, or of one place within either, and no call but of pure math functions. Then no iteration
reads what another one writes: any order does. In the reverse pass of an operator, what such a loop writes back to a
shadow that it has used up, a zero, is left out: the shadow is the wrapper's own copy, or was zero before. Measured in
pairs, gradients of gelu and mish then take 0.75 and 0.84 of the time with ``fast_math``, 0.90 and 0.88 without; where
no loop is element-wise, nothing changes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence

_REDUCE = re.compile(
    r"^(\s*%[-\w.$]+ = )(?:(?:tail|notail|musttail) )?call i32 @__kmpc_reduce(?:_nowait)?\(.*$", re.MULTILINE
)
_END_REDUCE = re.compile(r"call void @__kmpc_end_reduce(?:_nowait)?\((ptr [^,]*), (i32 [^,]*), ptr [^)]*\)")
_BARRIER = re.compile(r"^declare void @__kmpc_barrier", re.MULTILINE)
_FORK = re.compile(r"@__kmpc_fork_call\([^\n]*?, ptr (?:nonnull |noundef )*(@[-\w.$\"]+)")
_REFERENCE = re.compile(r"ptr [^,()%]*(?:\([^()]*\)[^,()%]*)*dereferenceable\(8\)[^,%]*(%[-\w.$]+)")


def fix_reductions(ir: str) -> str:
    """Let reductions combine by atomic updates, which Enzyme differentiates.

    The runtime's ``__kmpc_reduce`` answers 1 (combine in a tree, then call ``end_reduce``), 2 (combine with atomics)
    or 0. The answer is made the constant 2, and the matching ``end_reduce`` a barrier.

    Args:
        ir: LLVM's text form, as clang writes it, before Enzyme.
    """
    if not _REDUCE.search(ir):
        return ir
    ir = _END_REDUCE.sub(r"call void @__kmpc_barrier(\1, \2)", _REDUCE.sub(r"\1add i32 0, 2", ir))
    return ir if _BARRIER.search(ir) else ir + "\ndeclare void @__kmpc_barrier(ptr, i32)\n"


_ATOMIC = re.compile(
    r"^(\s*)(%[-\w.$]+|%\"[^\"\n]+\") = atomicrmw fadd ptr (\S+), (double|float) (\S+) monotonic, (align \d+)",
    re.MULTILINE,
)


def plain_updates(ir: str) -> str:
    """Let gradients add to memory without atomic updates, which Enzyme writes wherever threads run.

    Right only where no two iterations of a parallel loop read one active place, so that backwards no two add to one.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.

    Example:
        >>> print(plain_updates("  %a = atomicrmw fadd ptr %p, double %v monotonic, align 8"))
          %a = load double, ptr %p, align 8
          %d5.sum.0 = fadd double %a, %v
          store double %d5.sum.0, ptr %p, align 8
    """
    count = itertools.count()

    def plain(update: re.Match[str]) -> str:
        indent, old, place, kind, value, align = update.groups()
        new = f"%d5.sum.{next(count)}"
        return (
            f"{indent}{old} = load {kind}, ptr {place}, {align}\n{indent}{new} = fadd {kind} {old}, {value}\n"
            f"{indent}store {kind} {new}, ptr {place}, {align}"
        )

    return _ATOMIC.sub(plain, ir)


def shared_pointers(ir: str) -> list[str]:
    """Names of parallel regions that capture a pointer by reference, outermost function first.

    A parameter that clang marks as a reference to eight bytes and whose value the region loads as a pointer is one
    such; references to numbers (reductions, atomics) and to objects (a vector) are not.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.
    """
    regions = []
    for name in dict.fromkeys(_FORK.findall(ir)):
        body = _function(ir, name)
        head, _, rest = body.partition("{\n")
        if any(
            re.search(rf"= load ptr, ptr {re.escape(reference)}[,\s]", rest) for reference in _REFERENCE.findall(head)
        ):
            regions.append(name)
    return regions


_DEFINITION = re.compile(r"^define [^\n]*?@(\"[^\"\n]+\"|[-\w.$]+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_OUR_MESSAGES = re.compile(r"^_ZN2d58messages|^d500_communicate$")


def own_messages(ir: str) -> list[str]:
    """Calls of MPI that are not those of ``communication.h``, whose derivatives are registered.

    Args:
        ir: LLVM's text form, before Enzyme.

    Example:
        >>> own_messages("define void @_ZN4mine7forwardEv() {\\n  %1 = call i32 @MPI_Bcast(ptr %0)\\n}")
        ['MPI_Bcast']
    """
    if "@MPI_" not in ir:
        return []
    calls: dict[str, None] = {}
    for function in _DEFINITION.finditer(ir):
        if not _OUR_MESSAGES.match(function[1]):
            calls |= dict.fromkeys(re.findall(r"@(P?MPI_\w+)\(", function[0].partition("\n")[2]))
    return list(calls)


def _function(ir: str, name: str) -> str:
    body = re.search(rf"^define [^\n]*{re.escape(name)}\(.*?^}}", ir, re.MULTILINE | re.DOTALL)
    return body[0] if body else ""


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

    def hidden(definition: re.Match[str]) -> str:
        attributes, name = definition[1], definition[2]
        if name in exports:
            return definition[0]
        # A definition that is internal has neither visibility nor preemption.
        plain = re.sub(r"\b(?:dso_local|hidden|protected|default) ", "", attributes)
        return f"define internal {plain}@{name}("

    def used(listed: re.Match[str]) -> str:
        names = [name.strip() for name in listed[2].split(",")]
        kept = [name for name in names if name.removeprefix("ptr @") in exports or not _is_export(ir, name)]
        return f"{listed[1]}[{len(kept)} x ptr] [{', '.join(kept)}]{listed[3]}" if kept else ""

    return _USED.sub(used, _STRONG.sub(hidden, ir))


def _is_export(ir: str, reference: str) -> bool:
    name = reference.removeprefix("ptr @")
    return any(name == export for _, export in _STRONG.findall(ir))


_PRODUCT = re.compile(r"^define [^\n]*@cblas_[sd]gemm\([^\n]*$", re.MULTILINE)


def reading_products(ir: str) -> str:
    """The module with matrix products that are seen to read their factors only, whatever is made of their body.

    Enzyme would else keep copies of factors, and takes a wrong leading dimension for that of a transposed one.

    Args:
        ir: LLVM's text form, as clang writes it, before Enzyme.

    Example:
        >>> reading_products("define void @cblas_sgemm(ptr noundef %7, ptr noundef %12) {")
        'define void @cblas_sgemm(ptr noundef readonly captures(none) %7, ptr noundef %12) {'
    """
    return _PRODUCT.sub(
        lambda found: re.sub(r"ptr [^,%]*(%(?:7|9)\b)", r"ptr noundef readonly captures(none) \1", found[0]), ir
    )


_OURS = re.compile(r"^(define [^\n]*@d5_\w+\([^\n]*) #(\d+)( [^\n]*)?\{$", re.MULTILINE)
_GROUP = r"^attributes #{number} = \{{([^\n]*)\}}$"


def inline_functions(ir: str) -> str:
    """The module with the functions of ``math.h`` inlined, which Enzyme had to see as calls: loops become vector code.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.

    Example:
        >>> print(inline_functions("define float @d5_expf(float %0) #3 {\\n}\\nattributes #3 = { noinline nounwind }"))
        define float @d5_expf(float %0) #1000003 {
        }
        attributes #3 = { noinline nounwind }
        attributes #1000003 = { alwaysinline nounwind }
    """
    added = {}
    for _, number, _ in _OURS.findall(ir):
        group = re.search(_GROUP.format(number=number), ir, re.MULTILINE)
        if group and "noinline" in group[1].split():
            added[number] = (
                f"attributes #{1000000 + int(number)} = {{{group[1].replace('noinline', 'alwaysinline', 1)}}}"
            )
    if not added:
        return ir
    new = _OURS.sub(lambda m: f"{m[1]} #{1000000 + int(m[2])}{m[3] or ' '}{{" if m[2] in added else m[0], ir)
    return "\n".join([new.rstrip("\n"), *added.values()])


def _borrowing(ir: str) -> str:
    """The module with its variables declared only: another one defines them. Gradients that are registered stay."""

    def declared(definition: re.Match[str]) -> str:
        if _KEPT.match(definition[1]):
            return f"{definition[1]}internal {definition[2].replace('dso_local ', '')}{definition[3]} {definition[4]}"
        kind = _type_of(definition[4])
        return f"{definition[1]}external {definition[2].replace('dso_local ', '')}{definition[3]} {kind}"

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

    def reordered(found: re.Match[str]) -> str:
        sums = set(_carried_sums(found[0]))
        return _FREED_SUM.sub(lambda one: f"{one[1]}reassoc " if one[2] in sums else one[0], found[0])

    def loosened(function: re.Match[str]) -> str:
        head = function[0].partition("\n")[0]
        if not re.search(r"@[\w.$]*(?:d500_reverse|diffe)", head) or "fwddiffe" in head:
            return function[0]
        freed = _ARITHMETIC.sub(lambda found: f"{found[1]}{found[2]} {_FREE[found[2]]} ", function[0])
        return _BACKWARDS.sub(reordered, freed)

    return _FUNCTION.sub(loosened, ir)


def _carried_sums(block: str) -> list[str]:
    """Names of the additions from a value that a block carries into its next round to what it carries there."""
    label = block.partition(":")[0].strip('"')
    sums = {found[1]: (found[2], found[3]) for found in _ADDITION.finditer(block)}
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
    turned = _BLOCK.sub(lambda matched: _turned(matched[0], matched[1], matched[2], roots), text)
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


_COUNTED = re.compile(rf"^  {_NAME} = phi i64 \[ {_NAME}, {_NAME} \], \[ (\d+), {_NAME} \]\n", re.MULTILINE)


def _turned_constant(block: str, label: str, body: str, roots: dict[str, str]) -> str:
    """The same for a count that is known: the index itself starts at it, and is decreased behind its last use."""
    entry = _COUNTED.match(body)
    if entry is None or entry[3] != f"%{label}" or not _sums_beside(body, entry[3]):
        return block
    index, later, last = entry[1], entry[2], entry[4]
    step = re.search(rf"^  {re.escape(later)} = add (?:nsw )?i64 {re.escape(index)}, -1\n", body, re.MULTILINE)
    test = re.search(
        rf"^  {_NAME} = icmp eq i64 {re.escape(index)}, 0\n(?:  %[^\n]* = add [^\n]*\n)?  br i1 \1, label {_NAME}, "
        rf"label {re.escape(entry[3])}(?=[,\n])",
        body,
        re.MULTILINE,
    )
    if not step or not test or len(_uses(body, later)) != 2 or not _is_elementwise(body, index, roots):
        return block
    changed = body.replace(f"[ {last}, {entry[5]} ]", f"[ 0, {entry[5]} ]", 1)
    changed = changed.replace(step[0], f"  {later} = add nuw nsw i64 {index}, 1\n", 1)
    changed = changed.replace(f"icmp eq i64 {index}, 0\n", f"icmp eq i64 {index}, {last}\n", 1)
    return block.replace(body, changed, 1)


def _turned(block: str, label: str, body: str, roots: dict[str, str]) -> str:
    body, block = _index_first(block, body)
    block = _turned_constant(block, label, body, roots)
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
    lines = [found[0] for found in _PHI.finditer(body)]
    if any(re.match(r"  %\d+ =", line) for line in lines):  # numbers have their places
        return body, block
    first = sorted(lines, key=lambda line: " = phi i64 " not in line)
    changed = body.replace("".join(lines), "".join(first), 1)
    return changed, block.replace(body, changed, 1)


def _sums_beside(body: str, this: str) -> bool:
    """Whether all that iterations hand on beside the index are sums whose order is free."""
    for line in [found[0] for found in _PHI.finditer(body)][1:]:
        total = _SUM.match(line)
        if total is None or total[4] != this or len(_uses(body, total[1])) != 2 or len(_uses(body, total[3])) != 2:
            return False
        before = rf"^  {re.escape(total[3])} = fadd (?:fast|reassoc) (?:\w+ )*{total[2]} "
        place = rf"{before}[^\n]*{re.escape(total[1])}(?![-\w.$\"])"
        if not re.search(place, body, re.MULTILINE):
            return False
    return True


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


_PRIMAL = re.compile(r"^define [^\n]*?@[\w.$]*(d500_primal|d500_part)[\w.$]*\((.*)\) [^\n()]*\{$", re.MULTILINE)
_GRADIENT = re.compile(r"__enzyme_autodiff<void>\(\(void \*\)(d500_primal|d500_part)([^;]*);")


def keep_outputs(ir: str, source: str) -> str:
    """The module with outputs that a reverse pass computes once more where forward reads them again.

    ``enzyme_dupnoneed`` leaves stores to outputs out. If forward reads such a place later on, the reverse pass reads
    what memory held: a wrong gradient. So it is used only where the compiler found that outputs are but written.

    Args:
        ir: LLVM's text form of the whole unit, before Enzyme.
        source: the C++ of the wrapper, whose calls of Enzyme say which parameters are outputs.

    Example:
        >>> calls = "__enzyme_autodiff<void>((void *)d500_primal<Op>, enzyme_const, op, enzyme_dupnoneed, y, dy);"
        >>> use = "call void @__enzyme_autodiff(ptr @enzyme_dupnoneed)"
        >>> keep_outputs("define void @d500_primal(ptr %0, ptr writeonly %1) #0 {\\n" + use, calls)[-17:]
        'enzyme_dupnoneed)'
        >>> keep_outputs("define void @d500_primal(ptr %0, ptr %1) #0 {\\n" + use, calls)[-11:]
        'enzyme_dup)'
    """
    outputs: dict[str, set[int]] = {}
    for call in _GRADIENT.finditer(source):
        words = re.findall(r"enzyme_(?:dupnoneed|dup|const)", call[2])
        outputs.setdefault(call[1], set()).update(i for i, word in enumerate(words) if word == "enzyme_dupnoneed")
    functions = [(_parameters(found[2]), outputs.get(found[1], set())) for found in _PRIMAL.finditer(ir)]
    if all("writeonly" in parameters[place].split() for parameters, places in functions for place in places):
        return ir
    kept = re.sub(r"ptr @enzyme_dupnoneed\b", "ptr @enzyme_dup", ir)
    if "@enzyme_dup = " not in kept:
        kept = kept.replace("@enzyme_dupnoneed = ", "@enzyme_dup = ", 1)
    return kept


def _parameters(text: str) -> list[str]:
    """A function's parameters, divided at the commas outside of brackets."""
    parts, depth = [""], 0
    for mark in text:
        depth += (mark in "([{<") - (mark in ")]}>")
        if mark == "," and not depth:
            parts.append("")
        else:
            parts[-1] += mark
    return [part.strip() for part in parts]
