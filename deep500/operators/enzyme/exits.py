"""Nests of loops that are left in several places, in which Enzyme is to keep which one it was.

Behind such a loop the reverse pass asks once more which exit was taken. Where that depends on how far a loop inside
came, as in the partitions of a quicksort, Enzyme computes it again, from what it kept of a round that is no round of
any loop: the gradient is wrong at some inputs, without a word. It keeps what a function returned that may have had an
effect. So the conditions of exits go through one that returns its argument, which is inlined once Enzyme is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from deep500.operators.enzyme.functions import BasicBlock, blocks, reached

_ASKED = re.compile(r"^  (br (i1)|switch (i\d+)) (%[-\w.$]+|%\"[^\"\n]+\"),", re.MULTILINE)
Graph = dict[str, list[str]]


def exits_kept(ir: str) -> str:
    """The module in which a nest that is left in several places asks a function whether to leave it.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.

    Example:
        >>> nest = "b:\\n  br i1 %x, label %b, label %c\\nc:\\n  br i1 %y, label %e, label %d\\n"
        >>> text = "define void @f() {\\n  br label %a\\na:\\n  br label %b\\n" + nest
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @f)\\n}\\n"
        >>> text += "d:\\n  br i1 %z, label %a, label %e\\ne:\\n  ret void\\n}"
        >>> print("\\n".join(exits_kept(call + text).splitlines()[9:15]))
        c:
          %d5.exit.0 = call i1 @d5_asked_i1(i1 %y)
          br i1 %d5.exit.0, label %e, label %d
        d:
          %d5.exit.1 = call i1 @d5_asked_i1(i1 %z)
          br i1 %d5.exit.1, label %a, label %e
    """
    lines, kinds, known = ir.split("\n"), dict[str, None](), reached(ir, tables=True)
    places = [place for name, parts in blocks(lines) if name in known for place in _exits(parts)]
    for count, (number, asked) in enumerate(sorted(places, key=lambda place: place[0])):
        kind, name = asked[2] or asked[3], f"%d5.exit.{count}"
        kinds[kind] = None
        rest = lines[number][asked.end() :]
        lines[number] = f"  {name} = call {kind} @d5_asked_{kind}({kind} {asked[4]})\n  {asked[1]} {name},{rest}"
    # Weak and with an effect: what has none, Enzyme would compute once more, too.
    added = [
        f"define weak hidden {kind} @d5_asked_{kind}({kind} %0) noinline nounwind willreturn "
        f'memory(inaccessiblemem: readwrite) "enzyme_inactive" {{\n  ret {kind} %0\n}}'
        for kind in kinds
    ]
    return "\n".join([*lines, *added, *[""] * bool(added)])


def _exits(parts: list[BasicBlock]) -> Iterator[tuple[int, re.Match[str]]]:
    """Numbers of a function's lines that decide whether a nest is left which is left in several places."""
    ends = {part.name for part in parts if "  unreachable" in part.text}
    graph = {part.name: [name for name in part.targets if name not in ends] for part in parts}
    leaving = {name for places, inner in _loops(graph, graph) if inner and len(places) > 1 for name in places}
    for part in parts:
        for number, line in part.lines if part.name in leaving else ():
            if asked := _ASKED.match(line):
                yield number, asked


def _loops(graph: Graph, whole: Graph) -> Iterator[tuple[set[str], bool]]:
    """The blocks in which each loop is left, and whether it holds another loop, outermost first."""
    for loop in _cycles(graph):
        head = next((after for name in graph if name not in loop for after in graph[name] if after in loop), "")
        within = {name: [after for after in graph[name] if after in loop and after != head] for name in loop}
        inner = list(_loops(within, whole))
        yield {name for name in loop if any(after not in loop for after in whole[name])}, bool(inner)
        yield from inner


def _cycles(graph: Graph) -> list[set[str]]:
    """Sets of blocks that lead to each other: what two walks find, the second against the arrows (Kosaraju)."""
    before: Graph = {name: [] for name in graph}
    for name, targets in graph.items():
        for target in targets:
            before[target].append(name)
    left = [name for tree in _trees(list(graph), graph) for name in tree]
    trees = _trees(left[::-1], before)
    return [set(tree) for tree in trees if len(tree) > 1 or tree[0] in graph[tree[0]]]


def _trees(starts: list[str], graph: Graph) -> list[list[str]]:
    """The blocks that are met from each start and not before, each behind those that it leads to."""
    trees, seen = list[list[str]](), set[str]()
    for start in starts:
        tree, path = list[str](), [(start, iter(graph[start]))] if start not in seen else []
        seen.add(start)
        while path:
            name, targets = path[-1]
            following = next((target for target in targets if target not in seen), None)
            if following is None:
                tree.append(name)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(graph[following])))
        trees += [tree] if tree else []
    return trees
