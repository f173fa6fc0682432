"""The picture of the rooms in ``docs/design.md`` is the code's: each room stands in it, imports go down only.

The picture is a code block of the page: one floor a line, upper floors first, rooms inside a room indented below it,
``|`` between rooms of one floor, which do not know each other. ``.`` stands for the parent's own files. A room whose
inner rooms are not drawn is one room here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "design.md"
PACKAGES = {"deep500": ROOT / "deep500", "frameworks": ROOT / "frameworks", "custom_ops": ROOT / "custom_ops"}


def picture() -> dict[str, tuple[int, int]]:
    """Every room of the page as a dotted name, with its floor (counted from the top) and its place on that floor."""
    block = re.search(r"^```text\nrooms\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert block is not None, "docs/design.md has no picture of the rooms"
    rooms: dict[str, tuple[int, int]] = {}
    parents: list[tuple[int, str]] = [(-1, "deep500")]
    for floor, line in enumerate(block[1].splitlines()):
        indent = len(line) - len(line.lstrip())
        while parents[-1][0] >= indent:
            parents.pop()
        names = [name.strip() for name in re.split(r" {2,}", line.strip())[0].split(" | ")]
        parent = parents[-1][1]
        for place, name in enumerate(names):
            room = f"{parent}.(files)" if name == "." else f"{parent}.{name}"
            assert room not in rooms, f"{room} stands twice in the picture"
            rooms[room] = (floor, place)
        parents.append((indent, f"{parent}.{names[0]}"))
    return rooms


def modules() -> dict[str, Path]:
    """All modules of the package by dotted name."""
    files: dict[str, Path] = {}
    for name, folder in PACKAGES.items():
        start = "deep500" if name == "deep500" else f"deep500.{name}"
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if name == "deep500" and parts[0] in ("frameworks", "custom_ops"):
                continue
            files[".".join([start, *(part for part in parts if part != "__init__")])] = path
    return files


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports, those inside functions too, those for type checkers only not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in [*tree.body]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            tree.body.remove(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module


def room_of(module: str, rooms: dict[str, tuple[int, int]], known: dict[str, Path]) -> str:
    """The innermost room of the picture that holds a module."""
    name = module
    while name not in rooms and "." in name:
        name = name.rpartition(".")[0]
    if name == module and known[module].name != "__init__.py":
        return name
    return f"{name}.(files)" if f"{name}.(files)" in rooms else name


def graph_classes(trees: dict[str, ast.Module]) -> set[str]:
    """Names of the classes that derive from ``Graph``, directly or not."""
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    names, before = {"Graph"}, 0
    while len(names) > before:
        before = len(names)
        names |= {node.name for node in classes if names & {ast.unparse(base) for base in node.bases}}
    return names


def test_nobody_reaches_into_a_graph() -> None:
    """What ``Graph`` keeps for itself (``_nodes``, ``_commit``) is read and written in its file only."""
    home = "deep500.networks.graph"
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules().items()}
    graphs, own = graph_classes(trees), set[str]()
    for node in ast.walk(trees.pop(home)):
        name = node.name if isinstance(node, ast.FunctionDef) else node.attr if isinstance(node, ast.Attribute) else ""
        own |= {name} if name.startswith("_") and not name.startswith("__") else set()
    assert {"_nodes", "_commit"} <= own and {"Network", "BoundNetwork"} < graphs
    wrong = []
    for module, tree in trees.items():
        others = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name not in graphs]
        attributes = (n for c in others for n in ast.walk(c) if isinstance(n, ast.Attribute))
        private = {id(n.value) for n in attributes if isinstance(n.value, ast.Name) and n.value.id == "self"}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in own and id(node.value) not in private:
                wrong.append(f"{module}:{node.lineno} {ast.unparse(node)}")
    assert not wrong, f"use or add a public method of Graph instead: {wrong}"


def test_every_room_stands_in_the_picture() -> None:
    rooms, known = picture(), modules()
    folders = {name for name, path in known.items() if path.name == "__init__.py" and name != "deep500"}
    top = {name for name in known if name.count(".") == 1}
    drawn = {room.removesuffix(".(files)") for room in rooms}
    deep = {room for room in drawn if room.count(".") > 1}
    missing = {name for name in folders | top if name.count(".") == 1} - drawn
    missing |= {name for name in folders if any(name.startswith(f"{room.rpartition('.')[0]}.") for room in deep)} - {
        name for name in folders if any(name == room or name.startswith(f"{room}.") for room in drawn)
    }
    assert not missing, f"draw these rooms in docs/design.md: {sorted(missing)}"
    gone = drawn - set(known)
    assert not gone, f"docs/design.md draws rooms that do not exist: {sorted(gone)}"


def test_imports_go_down() -> None:
    """No import, also none inside a function, goes to a floor above or to a neighbour on the same floor."""
    rooms, known = picture(), modules()
    wrong = []
    for module, path in known.items():
        if module == "deep500":
            continue  # the face: it only re-exports
        here = room_of(module, rooms, known)
        for target in imports(path, known):
            there = room_of(target, rooms, known)
            inner = path.name == "__init__.py" and target.startswith(f"{module}.")  # a face shows what its rooms hold
            if target == "deep500" or inner or here == there or rooms[here][0] < rooms[there][0]:
                continue
            wrong.append(f"{module} -> {target}")
    assert not wrong, f"{len(wrong)} imports go up in the picture of docs/design.md: {sorted(wrong)}"
