"""How a case was executed: by kernels of the backend's own, by ONNX's function bodies, by its evaluator, on host NumPy.

A :class:`Recorder` listens where a backend looks an operator up: where it takes the body that ONNX's schema gives an
operator that its table lacks, where the reference hands a node to ONNX's evaluator, and which entries of the table it
takes that compute with NumPy on the host, in the place of the framework (:data:`HOST`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

WAYS = {
    "own": "kernels of the backend's own, or of its framework's",
    "body": "the function body that ONNX defines",
    "host": "NumPy on the host, in the place of the framework",
    "evaluator": "ONNX's reference evaluator",
}
"""Ways and their names on the page; a case whose nodes went several ways counts for the last of them."""

_STRINGS = ("StringNormalizer", "StringSplit", "LabelEncoder")
HOST: dict[str, frozenset[str]] = {
    "pytorch": frozenset(["Unique"]),
    "jax": frozenset(["Unique", "NonMaxSuppression", "NonZero"]),
    "tensorflow": frozenset(["Unique", "NonMaxSuppression", *_STRINGS]),
}
"""Operators whose entry in a backend's table takes the tensors' values to NumPy and computes there."""

_PROGRAM = "deep500.networks.execution.program"


class Recorder:
    """Listens to a backend's look-ups, from now on."""

    def __init__(self, backend: str) -> None:
        self.seen: set[str] = set()
        if backend == "reference":
            _watch("deep500.networks.execution.fallback", "make_kernel", self._evaluator)
        elif backend == "onnxruntime":
            _watch("deep500.frameworks.onnxruntime.compiler", "expand", self._body)
        elif backend in HOST:
            self.host = HOST[backend]
            _watch(_PROGRAM, "expand", self._body)
            _watch(_PROGRAM, "supported", self._nodes)

    def _evaluator(self, kernel: Any) -> None:
        self.seen.add("evaluator")

    def _body(self, nodes: Any) -> None:
        if nodes is not None:
            self.seen.add("body")

    def _nodes(self, program: Any) -> None:
        if any(node.op_type in self.host for node in program.nodes):
            self.seen.add("host")

    def start(self) -> None:
        """Forget what was seen."""
        self.seen = set()

    def way(self) -> str:
        """How everything was executed since :meth:`start`."""
        return next((way for way in reversed(WAYS) if way in self.seen), "own")


def _watch(module: str, name: str, listener: Callable[[Any], None]) -> None:
    """Show the listener what a function of a module returns."""
    owner: ModuleType = importlib.import_module(module)
    function = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        listener(result)
        return result

    setattr(owner, name, watched)
