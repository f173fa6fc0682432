"""Errors of executors of every backend about a call or a network that they refuse: functions that return them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deep500.errors import Deep500Error, InputError, NetworkError, OutOfMemory, nearest
from deep500.networks.node import Node


def unknown_value(name: str, known: Iterable[str]) -> NetworkError:
    """For ``fetch_tensors``: nothing of this name is held."""
    return NetworkError(
        f"got {name!r}; expected a parameter, a gradient or an output of the last run ({nearest(name, list(known))}): "
        "declare an inner value with add_output(), and run first"
    )


def unknown_parameter(name: str, known: Iterable[str]) -> NetworkError:
    """For ``feed_tensor``: the network has no such parameter."""
    return NetworkError(f"got parameter {name!r}; expected one of the network's: {nearest(name, list(known))}")


def unfit_parameter(name: str, new: Any, old: Any) -> InputError:
    """For ``feed_tensor``: another dtype or shape than the parameter has; both have attributes of these names."""
    return InputError(
        f"parameter {name!r}: got {new.dtype}{list(new.shape)}; expected {old.dtype}{list(old.shape)}: convert or "
        "reshape it"
    )


def unreached_loss(loss: str) -> NetworkError:
    """For training: the loss has no gradient."""
    return NetworkError(
        f"got loss {loss!r}, which no trainable parameter influences; expected one that does: name another"
    )


def loss_not_scalar(loss: str, got: str) -> NetworkError:
    """For training: the loss has more than one element, or is no floating number."""
    return NetworkError(f"loss {loss!r}: got {got}; expected a floating scalar: reduce it, say by ReduceMean")


def no_memory(where: str, text: str) -> OutOfMemory:
    """For a framework that could not allocate a result; ``where`` is a node or what ran, ``text`` the reason."""
    return OutOfMemory(
        f"{where}: got a result that memory cannot hold ({text}); expected a smaller one: "
        "check the sizes that it is given"
    )


def unfit_operands(node: Node, operands: Sequence[Any], error: Exception) -> Deep500Error:
    """For a node whose function failed on these operands (arrays, None where one is absent)."""
    shapes = ", ".join(f"{x.dtype}{list(x.shape)}" if hasattr(x, "shape") else "-" for x in operands)
    if isinstance(error, MemoryError):
        return no_memory(f"node {node.name!r} ({node.op_type})", str(error) or "no more words")
    kind = InputError if isinstance(error, IndexError) else NetworkError
    return kind(
        f"node {node.name!r} ({node.op_type}): got {shapes}; expected operands that fit: {error}. "
        "Check the shapes and values of its inputs"
    )
