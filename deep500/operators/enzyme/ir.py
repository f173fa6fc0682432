"""Rewrites of LLVM's text form around Enzyme: reductions of OpenMP before it, modules apart, calls inlined.

*OpenMP.* Enzyme knows most of what clang emits for ``parallel for``, but not the entry of a reduction. And a *pointer*
that a parallel region captures by reference may be taken for its own shadow: the caller's input array is then
overwritten, with no message. Reductions are corrected, such pointers found so that they can be refused.

*Modules.* Enzyme gets gradients wrong where one module asks for forward and for reverse mode of code that shares
functions (a growing ``std::vector``, seen with the engine that is pinned: the heap is corrupted). So every mode gets a
module of its own.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Collection, Sequence

from deep500.operators.enzyme.functions import reached
from deep500.operators.enzyme.memory import ACCESS, kinds_of_memory

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
    r"^(@(?!llvm\.)[\w.$]+ = )((?:dso_local |hidden |unnamed_addr |local_unnamed_addr |thread_local(?:\([a-z]+\))? )*)"
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
    return {REST: _with(ir, rest)} | {name: saturated(_borrowing(_with(ir, [name]))) for name in alone}


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
        names_left = [name for name in names if name.removeprefix("ptr @") in exports or not _is_export(ir, name)]
        return f"{listed[1]}[{len(names_left)} x ptr] [{', '.join(names_left)}]{listed[3]}" if names_left else ""

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
        lambda match: re.sub(r"ptr [^,%]*(%(?:7|9)\b)", r"ptr noundef readonly captures(none) \1", match[0]), ir
    )


_UNKNOWN = re.compile(r"@llvm\.(tan|atan2|exp10)\.(f32|f64)\b")
_SUFFIXES = {"f32": "f", "f64": ""}


def library_calls(ir: str) -> str:
    """The module with calls of the C library for LLVM's own functions that Enzyme does not know, though it knows those.

    Clang writes them where no function sets errno, as with ``-ffast-math``.

    Args:
        ir: LLVM's text form, as clang writes it, before Enzyme.

    Example:
        >>> library_calls("  %1 = call fast double @llvm.atan2.f64(double %a, double %b)")
        '  %1 = call fast double @atan2(double %a, double %b)'
    """
    for function, width in set(_UNKNOWN.findall(ir)):
        name = f"{function}{_SUFFIXES[width]}"
        if re.search(rf"^declare [^\n]*@{name}\(", ir, re.MULTILINE):
            ir = re.sub(rf"^declare [^\n]*@llvm\.{function}\.{width}\(.*$", "", ir, flags=re.MULTILINE)
        ir = ir.replace(f"@llvm.{function}.{width}(", f"@{name}(")
    return ir


_TANH = re.compile(r"(\bcall [^\n@]*(double|float) )@(llvm\.tanh\.f(?:32|64)|tanhf?)\(")
_SATURATED = {"double": "150.0", "float": "20.0"}
_WITHIN = """
define internal {kind} @d500_{name}({kind} %x) alwaysinline {{
  %high = fcmp ogt {kind} %x, {limit}
  %most = select i1 %high, {kind} {limit}, {kind} %x
  %low = fcmp olt {kind} %most, -{limit}
  %within = select i1 %low, {kind} -{limit}, {kind} %most
  %y = call {kind} @{name}({kind} %within)
  ret {kind} %y
}}
"""


def saturated(ir: str) -> str:
    """The module with ``tanh`` of a number that is not beyond where it is 1 by far.

    To Enzyme its slope is 1 / cosh^2, of which the slope is infinity times zero where that overflows: at 355, in
    float32 at 45.

    Args:
        ir: LLVM's text form, before Enzyme.

    Example:
        >>> print(saturated("  %1 = tail call double @tanh(double %0)").partition(" {")[0])
          %1 = tail call double @d500_tanh(double %0)
        define internal double @d500_tanh(double %x) alwaysinline
    """
    met = sorted({(kind, name) for _, kind, name in _TANH.findall(ir)})
    return _TANH.sub(r"\1@d500_\3(", ir) + "".join(
        _WITHIN.format(kind=kind, name=name, limit=_SATURATED[kind]) for kind, name in met
    )


_OURS = re.compile(r"^(define [^\n]*@(?:d5|\w*d5_next)_\w+\([^\n]*) #(\d+)( [^\n]*)?\{$", re.MULTILINE)
_GROUP = r"^attributes #{number} = \{{([^\n]*)\}}$"


def inline_functions(ir: str) -> str:
    """The module with the functions of ``math.h`` and ``rounds.py`` inlined, which Enzyme had to see as calls.

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


_INTEGER = re.compile(r"= icmp \w+(?: \w+)* i(?:16|32|64) [^,\n]+, (-?\d+)$", re.MULTILINE)
_FLOAT = re.compile(r"= fcmp [^\n]*?(?:double|float) [^,\n]+, (-?\d\S*|0x[0-9A-F]{16})$", re.MULTILINE)


def compared_numbers(ir: str) -> tuple[list[int], list[float]]:
    """Constants that code compares integers with, and floats with: where it may go another way, in rising order.

    Functions of our headers compare floats, too: only those that are called count.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.

    Example:
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @f)\\n}\\n"
        >>> body = "  %1 = icmp ugt i64 %n, 200\\n  %2 = fcmp olt double %x, 0x4020000000000000\\n}\\n"
        >>> compared_numbers(call + "define void @f() {\\n" + body)
        ([200], [8.0])
    """
    known = reached(ir, tables=True)
    texts = [match[0] for match in _DEFINITION.finditer(ir) if "d500_detail" not in match[1] or match[1] in known]
    floats = [
        struct.unpack(">d", bytes.fromhex(text[2:]))[0] if text.startswith("0x") else float(text)
        for text in _FLOAT.findall("\n".join(texts))
    ]
    return sorted({int(text) for text in _INTEGER.findall(ir)}), sorted({x for x in floats if math.isfinite(x)})


_PRIMAL = re.compile(
    r"^define [^\n]*?@[\w.$]*(d500_primal|d500_(?:surrogate_)?part|d500_surrogate)[\w.$]*\((.*)\) [^\n()]*\{$",
    re.MULTILINE,
)
_GRADIENT = re.compile(
    r"__enzyme_autodiff<void>\(\(void \*\)(d500_primal|d500_(?:surrogate_)?part|d500_surrogate)([^;]*);"
)


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
    functions = [(parameters(match[2]), outputs.get(match[1], set())) for match in _PRIMAL.finditer(ir)]
    if all("writeonly" in parameters[place].split() for parameters, places in functions for place in places):
        return ir
    changed = re.sub(r"ptr @enzyme_dupnoneed\b", "ptr @enzyme_dup", ir)
    if "@enzyme_dup = " not in changed:
        changed = changed.replace("@enzyme_dupnoneed = ", "@enzyme_dup = ", 1)
    return changed


_PLAIN_COPY = re.compile(
    r"^(  (?:tail )?call void @llvm\.mem(?:cpy|move)\.p0\.p0\.i64\(ptr [^,]*?(%[-\w.$]+), ptr [^,]*?(%[-\w.$]+), "
    r"i64 [^,]+, i1 false\)(?: #\d+)?)((?:, !dbg !\d+)?)(?:, !tbaa\.struct !\d+)?$",
    re.MULTILINE,
)
_PLAIN_FILL = re.compile(
    r"^(  (?:tail )?call void @llvm\.memset\.p0\.i64\(ptr [^,]*?(%[-\w.$]+), (i8 )0, i64 [^,]+, i1 false\)(?: #\d+)?)"
    r"((?:, !dbg !\d+)?)$",
    re.MULTILINE,
)
_LOCAL = re.compile(r"^  (%[-\w.$]+) = alloca ([^\n]*?)(?:, align \d+)?$", re.MULTILINE)
_STRUCTURE = re.compile(r"^(%\"[^\"\n]+\"|%[-\w.$]+) = type ([^\n]*)$", re.MULTILINE)
_SCALAR = re.compile(r"%\"[^\"\n]+\"|%[-\w.$]+|\b(?:[a-wyz]\w*|x86_fp80)\b")
_PRIMAL_KINDS = re.compile(r"static void d500_primal\(\w+ \*op, ([^)]*)\)")
_BESIDE = r"^  {name} = getelementptr [^\n]*?, ptr (%[-\w.$]+),"


def typed_copies(ir: str, source: str) -> str:
    """The module with the types of numbers that ``memcpy`` moves, which Enzyme asks for.

    Known are those of inputs and outputs, of local arrays and structures with numbers of one type, and of memory that a
    function reads and writes by pointers to them only.

    Args:
        ir: LLVM's text form, before Enzyme.
        source: the C++ of the wrapper, which has the types of forward's parameters.

    Example:
        >>> wrapper = "static void d500_primal(Op *op, const double *x0, double *y0) {"
        >>> copy = "  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %2, ptr align 8 %1, i64 %3, i1 false)\\n}"
        >>> function = "define void @d500_primal(ptr %0, ptr %1, ptr %2) {\\n" + copy
        >>> typed_copies(function, wrapper).splitlines()[1][-23:]
        'i1 false), !tbaa !90000'
    """
    kinds = _PRIMAL_KINDS.search(source)
    words = [re.sub(r"\bconst\b|\*.*", "", text).strip() for text in kinds[1].split(",")] if kinds else []
    used, bodies, structures = set[str](), reached(ir, tables=True), dict(_STRUCTURE.findall(ir))

    def typed(function: re.Match[str]) -> str:
        if function[1] not in bodies and "d500_primal" not in function[1]:
            return function[0]
        arguments = words if "d500_primal" in function[1] else []
        known = {f"%{i}": word for i, word in enumerate(arguments, 1) if word in _TYPE_NODES}
        known |= _locals(function[0], structures)
        alike = kinds_of_memory(function[0])

        def with_type(copy: re.Match[str]) -> str:
            types = {known[base] for place in (copy[2], copy[3]) if (base := _base(function[0], place)) in known}
            types = types or {alike[place] for place in (copy[2], copy[3]) if place in alike}
            if len(types) != 1:
                return copy[0]
            kind = types.pop()
            used.add(kind)
            return f"{copy[1]}{copy[4]}, !tbaa !{_TYPE_NODES[kind]}"

        return _PLAIN_FILL.sub(with_type, _PLAIN_COPY.sub(with_type, function[0]))

    changed = _DEFINITION.sub(typed, ir)
    nodes = [
        f'!{number} = !{{!{number + 1}, !{number + 1}, i64 0}}\n!{number + 1} = !{{!"{kind}", !{_CHARACTERS}, i64 0}}'
        for kind, number in _TYPE_NODES.items()
        if kind in used
    ]
    nodes += [
        f'!{_CHARACTERS} = !{{!"omnipotent char", !{_CHARACTERS + 1}, i64 0}}\n'
        f'!{_CHARACTERS + 1} = !{{!"Simple C++ TBAA"}}'
    ] * bool(used)
    return "\n".join([changed, *nodes, ""]) if used else ir


_TYPE_NODES, _CHARACTERS = {"double": 90000, "float": 90002}, 90004
"""Numbers of metadata that no module of an operator has: one of 30,000 lines has 10,000."""


def _locals(function: str, structures: dict[str, str]) -> dict[str, str]:
    """Local variables that hold numbers of one type and nothing else -> that type."""
    kinds = {
        name: scalars for name, text in _LOCAL.findall(function) if len(scalars := _scalars(text, structures)) == 1
    }
    for read, written, place in ACCESS.findall(function) if kinds else ():
        kinds.get(_base(function, place), set()).add(read or written)  # as a union may hold something else
    return {
        name: kind for name, scalars in kinds.items() if len(scalars) == 1 and (kind := min(scalars)) in _TYPE_NODES
    }


def _scalars(text: str, structures: dict[str, str]) -> set[str]:
    """The types that a type is made of."""
    parts = set(_SCALAR.findall(text))
    return {s for part in parts for s in (_scalars(structures[part], structures) if part in structures else {part})}


def _base(function: str, place: str) -> str:
    """The pointer that a place is counted from."""
    step = re.search(_BESIDE.format(name=re.escape(place)), function, re.MULTILINE)
    return _base(function, step[1]) if step else place


def parameters(text: str) -> list[str]:
    """A function's parameters, divided at the commas outside of brackets."""
    parts, depth = [""], 0
    for mark in text:
        depth += (mark in "([{<") - (mark in ")]}>")
        if mark == "," and not depth:
            parts.append("")
        else:
            parts[-1] += mark
    return [part.strip() for part in parts]
