"""Memory that is moved over itself, and memory of which a pointer is to one of several places.

*Moved.* Enzyme derives ``memmove`` as if it were ``memcpy``, upwards: where the source lies behind the target and both
overlap (``v.erase(v.begin())``), gradients are carried along to the end. The way through a second place is a function
that LLVM leaves as it is: it would make one ``memmove`` of it again.

*Given back.* Enzyme keeps a ``free`` of memory that its reverse pass does not need, and lets the reverse pass free what
it needs. Where one ``free`` is of either (a size of 0 was given a branch of its own), it does both, and the heap is
corrupted. It decides so only for memory that it would fill once more.

*Chosen.* What a nest of loops writes by a pointer that was chosen, as that of a vector that may be empty, is to Enzyme
somewhere else than new memory (``noalias``): what was read before by the memory's own pointer is not kept, but read
again when it is overwritten.

*Whole arrays.* Enzyme keeps some in memory of ``malloc``, and says that it lies at a multiple of their size. Where
loops were unrolled, it keeps them for the rounds of four only, and reads them in what is left, too.
"""

from __future__ import annotations

import re

from deep500.operators.enzyme.functions import NAME, reached

FILLED_ONCE = ("--enzyme-rematerialize=0",)
"""Enzyme's switch by which it keeps memory for its reverse pass, and fills none once more."""

_VALUE = r"(?:%[-\w.$]+|%\"[^\"\n]+\")"
_FUNCTION = re.compile(rf"^define [^\n]*?@{NAME}\(.*?^\}}", re.MULTILINE | re.DOTALL)
_MOVE = re.compile(
    rf"^(  )(?:tail |notail )?call void @llvm\.memmove\.p0\.p0\.i64\(ptr [^,\n]*?({_VALUE}), ptr [^,\n]*?({_VALUE}), "
    r"i64 ([^,\n]+), i1 false\)(?: #\d+)?((?:, ![\w.]+ !\d+)*)$",
    re.MULTILINE,
)
_TAG = re.compile(r", !tbaa(?:\.struct)? !(\d+)")
_PLACE = re.compile(r", !dbg !\d+")
_DECLARED = "declare void @llvm.memcpy.p0.p0.i64("
_MOVED = """define internal void @{name}(ptr %to, ptr %from, i64 %bytes) noinline optnone nounwind {{
  %room = call noalias ptr @malloc(i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %room, ptr %from, i64 %bytes, i1 false){tag}
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %room, i64 %bytes, i1 false){tag}
  call void @free(ptr %room)
  ret void
}}"""


_ALLOCATED = re.compile(
    rf"^\s+({_VALUE}) = (?:tail )?(?:call|invoke) [^\n@]*@(?:malloc|calloc|_Zn[wa]m\w*)\(", re.MULTILINE
)
_GIVEN_BACK = re.compile(rf"(?:call|invoke) void @(?:free|_Zd[la]Pv\w*)\(ptr [^%,)]*({_VALUE})")
_CHOSEN = re.compile(rf"^\s+({_VALUE}) = (?:phi|select|freeze) (.*)$", re.MULTILINE)
_STEP = re.compile(rf"^\s+({_VALUE}) = getelementptr [^\n]*?, ptr ({_VALUE})", re.MULTILINE)
_READ = re.compile(
    r"^[^\n]* load [^\n]*$|^[^\n]*(?:call|invoke) (?![^\n]*@(?:free|_Zd[la]Pv\w*|llvm\.\w+)[.(])[^\n]*$", re.MULTILINE
)
_POINTER = re.compile(rf"\bptr (?:[^,()%\n]*(?:\([^()]*\))?[^,()%\n]*)({_VALUE})(?=[,)]|$)", re.MULTILINE)
_CHOICE = re.compile(rf"\[ ({_VALUE}|null),|ptr ({_VALUE}|null)")


def moved_apart(ir: str) -> str:
    """The module in which what is differentiated moves memory by way of a second place.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.

    Example:
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @f)\\n}\\n"
        >>> move = "  call void @llvm.memmove.p0.p0.i64(ptr align 8 %0, ptr %1, i64 %2, i1 false), !tbaa !7\\n}"
        >>> print(moved_apart(call + "define void @f() {\\n" + move).splitlines()[4])
          call void @moved_apart.7(ptr %0, ptr %1, i64 %2)
    """
    bodies, tags = reached(ir, tables=True), dict[str, str]()

    def moved(move: re.Match[str]) -> str:
        tag = _TAG.search(move[5])
        name = f"moved_apart.{tag[1]}" if tag else "moved_apart"
        tags[name] = tag[0] if tag else ""
        place = _PLACE.search(move[5])
        return f"{move[1]}call void @{name}(ptr {move[2]}, ptr {move[3]}, i64 {move[4]}){place[0] if place else ''}"

    changed = _FUNCTION.sub(lambda match: _MOVE.sub(moved, match[0]) if match[1] in bodies else match[0], ir)
    if not tags:
        return ir
    added = [_MOVED.format(name=name, tag=tag) for name, tag in tags.items()]
    for needed in (f"{_DECLARED}ptr, ptr, i64, i1 immarg)", "declare ptr @malloc(i64)", "declare void @free(ptr)"):
        function = needed.partition("@")[2].partition("(")[0]
        if not re.search(rf"^(?:declare|define) [^\n]*@{re.escape(function)}\(", ir, re.MULTILINE):
            added.append(needed)
    return "\n".join([changed.rstrip("\n"), *added, ""])


def may_be_chosen(ir: str) -> str:
    """The module without ``noalias`` of new memory that is read by its own pointer, and for which one is chosen.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.

    Example:
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @f)\\n}\\n"
        >>> text = "define void @f() {\\n  %1 = call noalias ptr @_Znwm(i64 %0)\\n  %2 = load double, ptr %1\\n"
        >>> print(may_be_chosen(call + text + "  %3 = phi ptr [ null, %a ], [ %1, %b ]\\n}").splitlines()[4])
          %1 = call ptr @_Znwm(i64 %0)
    """
    bodies = reached(ir, tables=True)
    changed = _FUNCTION.sub(lambda match: _may_be_chosen(match[0]) if match[1] in bodies else match[0], ir)
    added = "@_Znwm(" in changed and "@_Znwm(" not in ir
    return f"{changed}\ndeclare noundef nonnull ptr @_Znwm(i64)\n" if added else changed


def _may_be_chosen(text: str) -> str:
    chosen = {name for _, rest in _CHOSEN.findall(text) for pair in _CHOICE.findall(rest) for name in pair}
    if not chosen & set(_ALLOCATED.findall(text)):
        return text
    steps, read = dict(_STEP.findall(text)), set[str]()
    for place in _POINTER.findall("\n".join(_READ.findall(text))):
        base = place
        while base in steps:
            base = steps[base]
        read.add(base)
    return _ALLOCATED.sub(lambda call: _not_apart(call[0]) if call[1] in chosen & read else call[0], text)


def _not_apart(allocation: str) -> str:
    """A call without ``noalias``, which LLVM would give back to ``malloc``."""
    return allocation.replace(" noalias ", " ", 1).replace("@malloc(", "@_Znwm(")


_ALIGNED = re.compile(r"^(\s+(?:[^\n=]+ = load|store) [^\n]*, align )(\d+)(?![^\n]*, align )", re.MULTILINE)
_ALIGNMENT = 16
"""Of what ``malloc`` gives."""


def as_allocated(ir: str) -> str:
    """The module whose reads and writes ask for no more alignment than new memory has.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.

    Example:
        >>> as_allocated("  store double %1, ptr %kept, align 2048, !noalias !7")
        '  store double %1, ptr %kept, align 16, !noalias !7'
    """
    return _ALIGNED.sub(lambda match: f"{match[1]}{min(int(match[2]), _ALIGNMENT)}", ir)


_KEPT_WHOLE = re.compile(rf"^\s+({_VALUE}) = [^\n]*@malloc\(i64 \d+\)[^\n]*!enzyme_cache_alloc", re.MULTILINE)


def kept_on_one_way(ir: str) -> bool:
    """Return whether an array is kept whole on one way through a function, and read where ways have met.

    Args:
        ir: LLVM's text form, as Enzyme leaves it.

    Example:
        >>> text = "  %kept = call ptr @malloc(i64 2048), !enzyme_cache_alloc !7\\n"
        >>> kept_on_one_way(text + "  %3 = phi ptr [ undef, %1 ], [ %kept, %2 ]")
        True
        >>> kept_on_one_way(text + "  %3 = phi ptr [ %4, %1 ], [ %kept, %2 ]")
        False
    """
    whole = set(_KEPT_WHOLE.findall(ir))
    choices = [rest for _, rest in _CHOSEN.findall(ir) if "[ undef," in rest] if whole else []
    return any(name in whole for rest in choices for pair in _CHOICE.findall(rest) for name in pair)


_TYPED_STEP = re.compile(
    rf"^\s+({_VALUE}) = getelementptr (?:inbounds |nuw |nusw )*([^\n]*?), ptr ({_VALUE}), i\d+ ([^\n]*)$", re.MULTILINE
)
ACCESS = re.compile(rf"^\s+(?:\S+ = load (\w+)|store (\w+) [^,\n]+), ptr ({_VALUE})", re.MULTILINE)
"""A load or a store: the type that is read, or written, and the pointer."""
_COPY = re.compile(rf"@llvm\.mem(?:cpy|move)\.[^\n(]*\(ptr [^,\n]*?({_VALUE}), ptr [^,\n]*?({_VALUE}),")


def kinds_of_memory(text: str) -> dict[str, str]:
    """Pointers to memory that a function uses as an array of ``double``, or of ``float``, and as nothing else -> which.

    Memory is the same where pointers are chosen, stepped or copied from one to the other.

    Args:
        text: a function in LLVM's text form.

    Example:
        >>> text = "  %2 = getelementptr double, ptr %1, i64 %0\\n  store double %3, ptr %2, align 8"
        >>> kinds_of_memory(text)
        {'%1': 'double', '%2': 'double'}
    """
    leaders: dict[str, str] = {}

    def leader(name: str) -> str:
        while leaders.setdefault(name, name) != name:
            leaders[name] = leaders[leaders[name]]
            name = leaders[name]
        return name

    pairs = [(name, other) for name, rest in _CHOSEN.findall(text) for pair in _CHOICE.findall(rest) for other in pair]
    steps = _TYPED_STEP.findall(text)
    for name, other in [*pairs, *((name, base) for name, _, base, _ in steps), *_COPY.findall(text)]:
        if other not in ("", "null"):
            leaders[leader(other)] = leader(name)
    kinds: dict[str, set[str]] = {}
    for read, written, place in ACCESS.findall(text):
        kinds.setdefault(leader(place), set()).add(read or written)
    for name, kind, _, index in steps:  # a constant number of bytes may be that of a structure's member
        if kind not in ("double", "float") and not (kind == "i8" and index.startswith("%")):
            kinds.setdefault(leader(name), set()).add(kind)
    alike = {name: kinds.get(leader(name), set()) for name in sorted(leaders)}
    return {name: min(kind) for name, kind in alike.items() if len(kind) == 1 and kind <= {"double", "float"}}


def freed_by_choice(ir: str) -> bool:
    """Return whether what is differentiated frees what a pointer was chosen for: an allocation, or something else.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.

    Example:
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @f)\\n}\\n"
        >>> text = "define void @f() {\\n  %1 = call ptr @malloc(i64 0)\\n  %2 = call ptr @malloc(i64 %0)\\n"
        >>> freed_by_choice(call + text + "  %3 = phi ptr [ %1, %a ], [ %2, %b ]\\n  call void @free(ptr %3)\\n}")
        True
        >>> freed_by_choice(call + text + "  call void @free(ptr %1)\\n  call void @free(ptr %2)\\n}")
        False
    """
    return any(map(_frees_by_choice, reached(ir, tables=True).values()))


def _frees_by_choice(text: str) -> bool:
    """Return whether a function frees what a pointer was chosen for: an allocation, or something else."""
    choices = {
        name: {first or second for first, second in _CHOICE.findall(rest)} for name, rest in _CHOSEN.findall(text)
    }
    allocated = set(_ALLOCATED.findall(text))
    for pointer in set(_GIVEN_BACK.findall(text)) & set(choices):
        roots, waiting, seen = set[str](), [pointer], set[str]()
        while waiting:
            value = waiting.pop()
            if value not in choices:
                roots.add(value)
            elif value not in seen:
                seen.add(value)
                waiting += choices[value]
        if roots & allocated and len(roots - {"null"}) > 1:
            return True
    return False
