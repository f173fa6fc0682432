"""Values that forward stores in its object and reads again: Enzyme takes the object for constant, and loses them.

A member has no shadow, so what is computed from inputs and kept there comes back without its derivative. Differences
show that only where the check's sizes and values reach it; the intermediate code shows it everywhere. A place in
the object is a chain of offsets and of pointers followed from it: ``this + 16, followed`` is what a vector holds.
A lambda that is called through a pointer (``std::function``) has the object in its closure, at some offset.

An inactive input has no shadow either: Enzyme takes it for its own, and adds gradients to it, once it cannot tell that
a pointer is to that input and to nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from deep500.operators.enzyme.functions import reached
from deep500.operators.enzyme.ir import parameters

Place = tuple[str, ...]
FOLLOWED, ANY, CLOSURE = "->", "*", "closure"
_FLOAT = r"(?:half|bfloat|float|double|x86_fp80|fp128|<\d+ x (?:half|bfloat|float|double)>)"
_VALUE = r"(%[-\w.$]+|%\"[^\"\n]+\")"
_PRIMAL = re.compile(r"d500_primal|d500_(?:surrogate_)?part|d500_surrogate")
_LOAD = re.compile(rf"= load (?:volatile |atomic )*(\S+|<[^>]+>), ptr {_VALUE}")
_STORE = re.compile(rf"^\s+store (?:volatile |atomic )*(\S+|<[^>]+>) (\S+), ptr {_VALUE}")
_OFFSET = re.compile(rf"= getelementptr (?:\w+ )*?(i8|\S+|\[[^\]]*\]|%[^,]*), ptr {_VALUE}, (.*?)(?:, !dbg.*)?$")
_COPY = re.compile(rf"call void @llvm\.mem(?:cpy|move)\S*\(ptr [^%,]*{_VALUE}, ptr [^%,]*{_VALUE},")
_CALL = re.compile(r"(?:call|invoke) [^\n@]*@(\"[^\"\n]+\"|[-\w.$]+)\((.*)\)")
_DEFINED = re.compile(rf"^\s+{_VALUE} = (.*)$")
_STEP = re.compile(rf"^\s+{_VALUE} = getelementptr [^\n]*i8, ptr {_VALUE}, i64 (\d+)", re.MULTILINE)
_BITS = re.compile(r"i(?:16|32|64)$")
_MOST = 20
_CHOICES = ("phi ptr", "select ", "freeze ptr")
_DERIVATIVE = re.compile(r"__enzyme_autodiff<void>\(\(void \*\)(d500_\w+)([^;]*)")
_WORD = re.compile(r"enzyme_(dupnoneed|dup|const), (\w+)")


@dataclass
class _Walk:
    """The accesses met so far: places that are written with computed values, by instruction; places that are read.

    ``closures`` are places of the object whose addresses were stored outside of it, by offset there.
    """

    bodies: dict[str, str]
    written: dict[str, set[Place]] = field(default_factory=dict)
    read: set[Place] = field(default_factory=set)
    seen: set[tuple[str, str]] = field(default_factory=set)
    closures: dict[str, set[Place]] = field(default_factory=dict)


def kept_in_members(ir: str) -> list[str]:
    """Instructions that store a value computed from inputs in a member of the operator which forward reads, too.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.

    Example:
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @d500_primal)\\n}\\n"
        >>> keep = "  %2 = load double, ptr %1\\n  %3 = getelementptr i8, ptr %0, i64 8\\n  store double %2, ptr %3\\n"
        >>> read = "  %4 = load double, ptr %3\\n"
        >>> kept_in_members(call + "define void @d500_primal(ptr %0, ptr %1) {\\n" + keep + read + "}")
        ['  store double %2, ptr %3']
        >>> kept_in_members(call + "define void @d500_primal(ptr %0, ptr %1) {\\n" + keep + "}")
        []
    """
    walk = _Walk(reached(ir, tables=True))
    for name in walk.bodies:
        if _PRIMAL.search(name):
            _visit(walk, name, {0: {("this",)}}, set())
    if walk.closures:  # what is called through pointers may find the object there
        for name in set(walk.bodies) - {visited for visited, _ in walk.seen}:
            _visit(walk, name, {0: {(CLOSURE,)}}, set())
    return [
        instruction
        for instruction, places in walk.written.items()
        if any(_same(a, b) for a in places for b in walk.read)
    ]


def mixed_pointers(ir: str, source: str) -> list[str]:
    """Instructions that choose between a pointer to an inactive input and another one, or that store such a pointer.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.
        source: the C++ of the wrapper, whose calls of Enzyme say which inputs are inactive.

    Example:
        >>> calls = "d500_primal(Op *, const T *__restrict__ x0); __enzyme_autodiff<void>((void *)d500_primal, "
        >>> ir = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @d500_primal)\\n}\\n"
        >>> ir += "define void @d500_primal(ptr %0, ptr %1, ptr %2) {\\n  %3 = select i1 %c, ptr %1, ptr %2\\n}"
        >>> mixed_pointers(ir, calls + "enzyme_const, op, enzyme_const, x0, enzyme_dup, x1, dx1)")
        ['  %3 = select i1 %c, ptr %1, ptr %2']
        >>> mixed_pointers(ir, calls + "enzyme_const, op, enzyme_dup, x0, dx0, enzyme_dup, x1, dx1)")
        []
    """
    inactive: dict[str, set[int]] = {}
    for function, words in _DERIVATIVE.findall(source):
        for number, (word, name) in enumerate(_WORD.findall(words)):
            if word == "const" and re.search(rf"const (?!\w*int|bool)[\w:]+ \*__restrict__ {name}\b", source):
                inactive.setdefault(function, set()).add(number)
    if not inactive:
        return []
    bodies, met, seen = reached(ir), dict[str, None](), set[tuple[str, frozenset[int]]]()
    waiting = [(name, frozenset(inactive.get(base[0], ()))) for name in bodies if (base := _PRIMAL.search(name))]
    while waiting:
        name, numbers = waiting.pop()
        if (name, numbers) in seen:
            continue
        seen.add((name, numbers))
        names, lines = _parts(bodies[name], name)
        known = _derived(lines, {names[number] for number in numbers if number < len(names)})
        for line in lines:
            call = _CALL.search(line)
            if _is_mixed(line, known):
                met[line] = None
            elif call and call[1] in bodies:
                values = [argument.split()[-1] if argument else "" for argument in parameters(call[2])]
                waiting.append((call[1], frozenset(i for i, value in enumerate(values) if value in known)))
    return list(met)


def _is_mixed(line: str, known: set[str]) -> bool:
    """Return whether an instruction chooses between known pointers and others, or stores a known one."""
    if store := _STORE.match(line):
        return store[1] == "ptr" and store[2] in known
    defined = _DEFINED.match(line)
    if not defined or not defined[2].startswith(_CHOICES):
        return False
    chosen = set(re.findall(rf"\[ {_VALUE}," if defined[2].startswith("phi") else rf"ptr {_VALUE}", defined[2]))
    return bool(chosen & known) and not chosen <= known


def _parts(text: str, name: str) -> tuple[list[str], list[str]]:
    """Names of a function's parameters, and its lines."""
    head, _, body = text.partition("\n")
    arguments = parameters(head.partition(f"@{name}(")[2].rpartition(")")[0])
    return [argument.split()[-1] for argument in arguments if argument], body.splitlines()


def _visit(walk: _Walk, name: str, places: dict[int, set[Place]], clean: set[int]) -> None:
    """Follow the object through a function; ``places`` and ``clean`` say what is known of its parameters."""
    key = (name, repr(sorted((i, sorted(p)) for i, p in places.items())))
    if key in walk.seen or name not in walk.bodies:
        return
    walk.seen.add(key)
    names, lines = _parts(walk.bodies[name], name)
    at = {names[i]: set(known) for i, known in places.items() if i < len(names)}
    before: dict[str, set[Place]] = {}
    while before != at:
        before = dict(at)
        for line in lines:
            _follow(line, at, walk.closures)
    inputs = {n for i, n in enumerate(names) if i not in places and i not in clean}
    computed, pointers = _computed(lines, at, inputs), _derived(lines, inputs)
    for line in lines:
        _note(walk, line, at, computed, pointers)
    for line in lines:
        _note_closure(walk, line, at, walk.bodies[name])


def _note_closure(walk: _Walk, line: str, at: dict[str, set[Place]], body: str) -> None:
    """Note where outside of the object an instruction stores a pointer to it."""
    store = _STORE.match(line)
    if store and store[1] in ("ptr", "i64") and store[2] in at and store[3] not in at:
        offset = next((step[3] for step in _STEP.finditer(body) if step[1] == store[3]), "0")
        walk.closures.setdefault(offset, set()).update(at[store[2]])


def _follow(line: str, at: dict[str, set[Place]], closures: dict[str, set[Place]]) -> None:
    """Add the places that the result of an instruction points to."""
    defined = _DEFINED.match(line)
    if not defined:
        return
    result, rest = defined[1], defined[2]
    if offset := _OFFSET.search(line):
        index = offset[3].split()[-1] if offset[1] == "i8" and "%" not in offset[3] else ANY
        at[result] = at.get(result, set()) | {_moved(place, index) for place in at.get(offset[2], ())}
    elif (load := _LOAD.search(line)) and load[1] == "ptr":
        at[result] = at.get(result, set()).union(*(_followed(place, closures) for place in at.get(load[2], ())))
    elif rest.startswith((*_CHOICES, "ptrtoint ptr")):
        known = [at[value] for value in re.findall(_VALUE, rest) if value in at]
        at[result] = at.get(result, set()).union(*known)
    if at.get(result):
        at[result] = _widened(at[result])
    else:
        at.pop(result, None)


def _widened(places: set[Place]) -> set[Place]:
    """The same places, or all beside them where a pointer walks through more than can be told apart: the walk ends."""
    ends = {place[:-1] for place in places if place[-1] == ANY}
    if len(places) > _MOST:
        ends |= {place[:-1] for place in places if place[-1].isdigit()}
    return {(*place[:-1], ANY) if place[:-1] in ends and place[-1] != FOLLOWED else place for place in places}


def _moved(place: Place, index: str) -> Place:
    """A place beside another: behind a followed pointer all is one, so that a loop over it ends."""
    if place[-1] in (FOLLOWED, ANY):
        return place
    if index == ANY or (len(place) > 1 and place[-1] != "this"):
        known = place[:-1] if place[-1] != "this" else place
        return (*known, ANY if index == ANY else str(int(place[-1]) + int(index)))
    return (*place, index)


def _followed(place: Place, closures: dict[str, set[Place]]) -> set[Place]:
    if place[0] == CLOSURE:
        return closures.get(place[1] if len(place) > 1 else "0", set())
    return {(*place, FOLLOWED) if len(place) < _MOST else place}


def _computed(lines: list[str], at: dict[str, set[Place]], inputs: set[str]) -> set[str]:
    """Names of values that may depend on inputs: loaded from elsewhere than the object, or made of such values."""
    dependent = set(inputs)
    before = -1
    while before != (before := len(dependent)):
        for line in lines:
            defined = _DEFINED.match(line)
            if not defined or defined[1] in dependent:
                continue
            load = _LOAD.search(line)
            if load:
                outside = load[2] not in at and (re.match(_FLOAT, load[1]) or _are_bits(load[1], line))
                if outside:
                    dependent.add(defined[1])
            elif any(value in dependent for value in re.findall(_VALUE, defined[2])):
                dependent.add(defined[1])
    return dependent


def _derived(lines: list[str], pointers: set[str]) -> set[str]:
    """Names of pointers, and of those that steps and choices make of them."""
    known, before = set(pointers), -1
    while before != (before := len(known)):
        for line in lines:
            defined, step = _DEFINED.match(line), _OFFSET.search(line)
            chosen = re.findall(_VALUE, defined[2]) if defined and defined[2].startswith(_CHOICES) else []
            if defined and any(source in known for source in ([step[2]] if step else chosen)):
                known.add(defined[1])
    return known


def _note(walk: _Walk, line: str, at: dict[str, set[Place]], computed: set[str], pointers: set[str]) -> None:
    """Note what an instruction reads from and writes to the object; a pointer to inputs is as good as what is there."""
    if store := _STORE.match(line):
        number = re.match(_FLOAT, store[1]) or _are_bits(store[1], line)
        if number and store[3] in at and store[2] in computed:
            walk.written.setdefault(line, set()).update(at[store[3]])
        if store[1] == "ptr" and store[3] in at and store[2] in pointers:
            walk.written.setdefault(line, set()).update(*(_followed(place, walk.closures) for place in at[store[3]]))
    elif load := _LOAD.search(line):
        if re.match(_FLOAT, load[1]) or _are_bits(load[1], line):
            walk.read |= at.get(load[2], set())
    elif copy := _COPY.search(line):
        walk.read |= at.get(copy[2], set())
        if copy[1] in at and copy[2] not in at:
            walk.written.setdefault(line, set()).update(at[copy[1]])
    elif (call := _CALL.search(line)) and call[1] in walk.bodies:
        values = [argument.split()[-1] if argument else "" for argument in parameters(call[2])]
        places = {i: at[value] for i, value in enumerate(values) if value in at}
        if places:
            _visit(walk, call[1], places, {i for i, value in enumerate(values) if value not in computed})


def _are_bits(kind: str, line: str) -> bool:
    """Return whether an access moves the bits of any number: whole numbers proper have a type of their own."""
    return bool(_BITS.match(kind)) and "!tbaa" not in line


def _same(a: Place, b: Place) -> bool:
    """Return whether two places may be one."""
    return len(a) == len(b) and all(
        x == y or (ANY in (x, y) and FOLLOWED not in (x, y)) for x, y in zip(a, b, strict=True)
    )
