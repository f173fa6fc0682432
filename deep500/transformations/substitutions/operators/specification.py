"""One specification per operator: everything that generation, proof and application need to know about it.

A specification holds the shape rule, one evaluator (for any `Arithmetic`), the order of parameters in patterns, and the
ONNX form. `specification_hash` names their current state: a rule proved under another state is stale.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from deep500.errors import NetworkError, nearest
from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array

Shape = tuple[int, ...]
Parameters = Mapping[str, Any]
OPSET = 20  # the lowest whose operators the ONNX forms use (Gelu)
MODULES = ("matrix", "elementwise", "channelwise", "layout", "convolution", "pooling", "normalization", "constants")
SILENT = frozenset({"annotation", "returns", "ctx", "kind", "simple", "type_comment", "type_ignores", "type_params"})
"""Fields of syntax trees that say nothing about what is computed."""


class ShapeMismatch(NetworkError):
    """An operator does not take these shapes or parameters."""


@dataclass(frozen=True)
class Operator:
    """The specification of one operator.

    Attributes:
        name: the rule language's name, for instance ``"conv"``.
        arity: number of inputs; constants have none.
        parameters: names of all parameters, in the order of the prover's encoding; none has a default.
        shape: (input shapes, parameters) -> output shapes; raises `ShapeMismatch`.
        evaluate: (arithmetic, inputs with a leading batch axis, parameters) -> outputs with a batch axis.
        onnx: (input names, output names, parameters, input shapes) -> nodes in topological order, opset >= 20;
            a further parameter ``dtype`` names the element type of constants, float32 without it.
        outputs: number of outputs.
        commutative: whether the two inputs may change places.
        shaped: parameters that hold sizes, which change from one network to the next (groups, cut positions).
    """

    name: str
    arity: int
    shape: Callable[[Sequence[Shape], Parameters], tuple[Shape, ...]]
    evaluate: Callable[[Arithmetic, Sequence[Array], Parameters], tuple[Array, ...]]
    onnx: Callable[[Sequence[str], Sequence[str], Parameters, Sequence[Shape]], list[onnx.NodeProto]]
    parameters: tuple[str, ...] = ()
    outputs: int = 1
    commutative: bool = False
    shaped: frozenset[str] = field(default_factory=frozenset)

    def infer(self, shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        """Return the output shapes.

        Raises:
            ShapeMismatch: wrong number of inputs, wrong parameter names, or shapes that do not fit.
        """
        if len(shapes) != self.arity or set(parameters) != set(self.parameters):
            raise ShapeMismatch(
                f"{self.name}: got {len(shapes)} inputs and parameters {sorted(parameters)}; expected {self.arity} "
                f"and {sorted(self.parameters)}; give exactly these"
            )
        return self.shape(shapes, parameters)


_OPERATORS: dict[str, Operator] = {}


def register(operator: Operator) -> Operator:
    """Add a specification; a name can be taken once.

    Raises:
        NetworkError: the name is taken.
    """
    if operator.name in _OPERATORS:
        raise NetworkError(f"got a second operator {operator.name!r}; expected unique names; choose another name")
    _OPERATORS[operator.name] = operator
    return operator


@functools.cache
def operators() -> dict[str, Operator]:
    """All specifications by name.

    Example:
        >>> operators()["matmul"].infer([(2, 3), (3, 5)], {})
        ((2, 5),)
    """
    for module in MODULES:
        importlib.import_module(f"deep500.transformations.substitutions.operators.{module}")
    return _OPERATORS


def operator(name: str) -> Operator:
    """The specification called ``name``.

    Raises:
        NetworkError: there is none; the message names the nearest.
    """
    known = operators()
    if name not in known:
        raise NetworkError(f"got operator {name!r}; expected one with a specification; {nearest(name, known)}")
    return known[name]


@functools.cache
def specification_hash() -> str:
    """SHA-256 over the specifications and the arithmetic that evaluates them (16 hex digits).

    It is taken of their statements, not of their bytes: rules stay proved when a file is laid out anew, its comments
    are written better, or a module that it imports from moves.
    """
    paths = [Path(__file__).with_name(f"{name}.py") for name in ("arithmetic", *MODULES)]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name}\0{meaning(path.read_text(encoding='utf-8'))}\0".encode())
    return digest.hexdigest()[:16]


def meaning(source: str) -> str:
    """The statements of a module as text, without layout, comments, docstrings, annotations and imports.

    Example:
        >>> meaning("import math\\ndef area(r: float) -> float:\\n    'Of a disc.'\\n    return math.pi*r") == (
        ...     meaning("def area(r):\\n    return (math.pi * r)  # of a disc"))
        True
    """
    return _statements(ast.parse(source))


def _statements(node: object) -> str:
    # `ast.dump` would do, but its text differs from one version of Python to the next: fields come and go with
    # their defaults, so that a file of rules would be stale on every interpreter but the one that wrote it.
    if isinstance(node, list):
        return f"[{','.join(text for text in map(_statements, node) if text)}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return ""
    if isinstance(node, ast.Expr) and isinstance(
        node.value, ast.Constant
    ):  # a docstring, or ...: neither does anything
        return ""
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in SILENT)
    inner = ",".join(f"{name}={_statements(value)}" for name, value in fields if value not in (None, []))
    return f"{type(node).__name__}({inner})"


def require(condition: bool, name: str, got: object, expected: str) -> None:
    """Raise `ShapeMismatch` unless ``condition`` holds."""
    if not condition:
        raise ShapeMismatch(f"{name}: got {got}; expected {expected}; change the shapes or the parameters")
