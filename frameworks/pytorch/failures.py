"""PyTorch's errors while a network runs, as Deep500's: what was got, at which node, and what to do."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from deep500 import errors
from deep500.errors import Deep500Error, InputError, NetworkError, UnsupportedOperator
from deep500.networks.execution.refusals import no_memory

_GENERATED = "<eval_with_key>"  # file name that torch.fx gives to generated code
_PLACES = [Path(file).parent for file in (torch.__file__, errors.__file__, __file__)]
_OURS = (_GENERATED, *(str(path) for place in _PLACES for path in (place, place.resolve())))  # both: behind links, too
_NO_INDEX = re.compile(r"\bindex -?\d+ is out of bounds for dimension \d+")
_NO_KERNEL = re.compile(
    r"not implemented for|not supported|not currently support|Could not run '|no kernel|does not have a deterministic"
)
RAISED = (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, AssertionError, MemoryError)
"""Errors that Python code of a node may raise, beside PyTorch's RuntimeError."""
CAUGHT = (RuntimeError, *RAISED)
_MEMORY = re.compile(r"can't allocate memory|out of memory")


def raise_ours(error: Exception, module: Any, doing: str = "") -> None:
    """Raise what :func:`failure` makes of an error; return where it is to pass as it is."""
    if ours := failure(error, module, doing):
        raise ours from error


def failure(error: Exception, module: Any, doing: str = "") -> Deep500Error | None:
    """An error that PyTorch raised in a network's code as one of ours.

    Args:
        error: a RuntimeError (NotImplementedError is one) or one of :data:`RAISED`, still with its traceback.
        module: the :class:`~deep500.frameworks.pytorch.compiler.NetworkModule` that ran.
        doing: what went on, for errors that come from no node.

    Returns:
        None for an error that is ours already, the device's own error for memory, or that Python code outside of the
        network raised, for instance a hook: let it pass.
    """
    frames = traceback.extract_tb(error.__traceback__)
    text = re.sub(r"\s+", " ", str(error)).strip()[:400]
    if isinstance(error, Deep500Error) or not frames[-1].filename.startswith(_OURS):
        return None
    node = _node(error.__traceback__, module)
    if _MEMORY.search(text) or isinstance(error, MemoryError):
        # the device's own class is what callers of PyTorch wait for
        ours = type(error) is RuntimeError or isinstance(error, MemoryError)
        return no_memory(node or doing or "the network", text) if ours else None
    where = f"{node}: " if node else f"{doing}: " if doing else ""
    if isinstance(error, IndexError) or _NO_INDEX.search(text):  # torch's own checks, of class labels above all
        return InputError(
            f"{where}got an index out of range ({text}); expected labels and indices that exist: check the data"
        )
    if isinstance(error, NotImplementedError) or _NO_KERNEL.search(text):
        return UnsupportedOperator(
            f"{where}got something that PyTorch has no kernel for ({text}); expected another dtype or operator: use "
            "another backend"
        )
    if node and isinstance(error, RAISED):  # Python's own, of a number that makes no sense to a function of ours
        text = f"{type(error).__name__}: {text}"
    elif type(error) is not RuntimeError:  # the device's, the compiler's
        return None
    text = text.removeprefix("got ")
    return NetworkError(f"{where}got {text}; expected operands that fit: check the shapes and values of its inputs")


def _node(trace: TracebackType | None, module: Any) -> str | None:
    """The network's node whose line of generated code failed, from the name that the line assigns to."""
    for frame in traceback.extract_tb(trace):
        if frame.filename.startswith(_GENERATED):  # the first: further ones are code of sub-graphs
            name = re.match(r"\s*(\w+) = ", frame.line or "")
            if name and (place := module.meta["places"].get(name[1])):  # none for a region of a checkpointing plan
                return place
    return None
