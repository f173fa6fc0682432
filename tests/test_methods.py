"""Nobody assigns a method of somebody else's object: what may be exchanged is an interface, and has a name.

Found in the syntax: ``other.name = something callable``, where ``name`` is a method of a class of the project, and
``setattr`` likewise. Callable is a lambda, a function of the file, a method of the surrounding class, and what
``partial`` and its like return.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("deep500", "frameworks", "recipes", "custom_ops")
WRAPPERS = {"classmethod", "staticmethod", "partial", "partialmethod", "MethodType", "wraps", "cache"}
FOREIGN = {"private.forward", "part.forward"}
"""Of modules of PyTorch, in a copy that is exported and thrown away: an exporter listens nowhere else."""


@cache
def _files() -> dict[str, ast.Module]:
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    inside = [path for path in paths if not {"frameworks", "custom_ops"} & set(path.relative_to(ROOT).parts[1:2])]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in inside}


def _is_property(function: ast.FunctionDef) -> bool:
    return any("property" in (text := ast.unparse(d)) or text.endswith(".setter") for d in function.decorator_list)


def _methods(trees: list[ast.Module]) -> dict[str, set[str]]:
    """Names of methods by class, those of base classes included, as far as these files define them."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    methods: dict[str, set[str]] = {}
    for node in classes:
        inside = [f.name for f in node.body if isinstance(f, ast.FunctionDef) and not _is_property(f)]
        methods.setdefault(node.name, set()).update(inside)
    bases = [(n.name, ast.unparse(base).rpartition(".")[2]) for n in classes for base in n.bases]
    for _ in range(8):  # no class is deeper
        for name, base in bases:
            methods[name] |= methods.get(base, set())
    return methods


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _assignments(tree: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """Attributes that are assigned, each with its value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                else:
                    pairs = [(target, node.value)]
                yield from ((t, value) for t, value in pairs if isinstance(t, ast.Attribute))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
            owner, name, value = node.args
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield ast.copy_location(ast.Attribute(owner, name.value), node), value


def overwritten(trees: dict[str, ast.Module]) -> list[str]:
    """Every assignment of a callable to a method of an object that is not ``self``."""
    methods = _methods(list(trees.values()))
    names = set().union(*methods.values()) if methods else set()
    lines = []
    for file, tree in trees.items():
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        functions -= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and _is_stored(node)}
        inside = {
            part: node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for part in ast.walk(node)
        }
        for target, value in _assignments(tree):
            if target.attr not in names or ast.unparse(target.value) in ("self", "cls"):
                continue
            callee = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
            is_method = isinstance(value, ast.Attribute) and ast.unparse(value.value) == "self"
            is_method = is_method and value.attr in methods.get(inside.get(value, ""), ())
            is_function = isinstance(value, ast.Name) and value.id in functions
            if isinstance(value, ast.Lambda) or callee in WRAPPERS or is_method or is_function:
                lines.append(f"{file}:{target.lineno}: {ast.unparse(target)} = {ast.unparse(value)}")
    return sorted(lines)


@pytest.mark.slow
def test_no_method_of_another_object_is_assigned() -> None:
    lines = [line for line in overwritten(_files()) if line.partition(": ")[2].partition(" = ")[0] not in FOREIGN]
    assert not lines, "\n".join(["supply an object of an interface instead:", *lines])


PLANTED = """
class Executor:
    def reseed(self, seed): ...
    def run(self): ...
    @property
    def loss(self): ...

class Scheme(Executor):
    def __init__(self, executor, other):
        def local(seed): ...
        executor.reseed = self.reseeded
        self.before, other.run = other.run, lambda: None
        setattr(executor, "run", local)
        executor.run: object = partial(local, 3)
        executor.loss = self.reseeded   # a property
        executor.seed = self.reseeded   # no method
        executor.run = other.results    # nothing to call, as far as can be seen
        executor.run = executor.run()
        self.run = local
    def reseeded(self, seed): ...
"""


def test_what_is_assigned_is_found() -> None:
    lines = [line.partition(": ")[2] for line in overwritten({"planted.py": ast.parse(PLANTED)})]
    assert lines == [
        "executor.reseed = self.reseeded",
        "other.run = lambda: None",
        "executor.run = local",
        "executor.run = partial(local, 3)",
    ]
