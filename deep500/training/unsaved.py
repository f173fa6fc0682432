"""State of a user's optimizer, scheme or operator in attributes, which no checkpoint has: resumed, a run differs.

One step is watched: an attribute that it reads before it writes it, and leaves changed, is state. Which attributes are
Deep500's own shows in the code of its classes.
"""

from __future__ import annotations

import dis
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from deep500.operators.base import CustomOp
from deep500.operators.python_op import CustomPythonOp
from deep500.operators.registry import DOMAIN, living_operators

OWN = "deep500."
SAVES = ("state_dict", "own_state", "number_arrays")
"""Methods by which a class says itself what is stored."""


class UnsavedStateWarning(UserWarning):
    """A step depends on what an earlier one left in an attribute, which no checkpoint has."""


def watching_steps(optimizer: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The optimizer's ``step``, which watches the second one if the optimizer or its base is of a user's class.

    Example:
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import GradientDescent
        >>> optimizer = GradientDescent(reference.from_model(add_loss(create("mlp", shape=(4,), classes=2))))
        >>> watching_steps(optimizer) == optimizer.step
        True
    """
    parts = [part for part in (optimizer, getattr(optimizer, "base_optimizer", None)) if part is not None]
    parts = [part for part in parts if not type(part).__module__.startswith(OWN) and not _saves(type(part))]
    custom = {node.op_type for node in optimizer.network.nodes if node.domain == DOMAIN}
    if not (parts or custom) or optimizer.steps > 1:
        return optimizer.step
    watched = False

    def step(inputs: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal watched
        if watched or optimizer.steps != 1:
            return optimizer.step(inputs)
        watched = True
        watches: list[Any] = [*map(_StepWatch, parts), *map(_OperatorWatch, _own_operators(custom))]
        try:
            outputs = optimizer.step(inputs)
        finally:
            carried = [watch.end() for watch in watches]
        for text in filter(None, carried):
            warnings.warn(text, UnsavedStateWarning, stacklevel=3)
        return outputs

    return step


def _saves(cls: type) -> bool:
    return any(name in vars(base) for base in cls.__mro__ if not base.__module__.startswith(OWN) for name in SAVES)


class _StepWatch:
    """Attributes of a user's own, and which of them a step reads first."""

    def __init__(self, watched: Any) -> None:
        self.watched, self.first = watched, dict[str, str]()
        cls = type(watched)
        ours = {name for base in cls.__mro__ if base.__module__.startswith(OWN) for name in _names(base)}
        names = vars(watched).keys() - ours - set(watched.get_parameters())
        self.names = sorted(name for name in names if not _is_computed(cls, name))
        self.before = {name: image(vars(watched)[name]) for name in self.names}
        for name in self.names:
            if not isinstance(vars(cls).get(name), _Spy):
                setattr(cls, name, _Spy(name, getattr(cls, name, _Spy)))
            vars(cls)[name].watches[id(watched)] = self.first

    def end(self) -> str:
        """Stop watching; return what to say of state, if there is some."""
        cls, values = type(self.watched), vars(self.watched)
        for name in self.names:
            vars(cls)[name].watches.pop(id(self.watched), None)
        carried = [n for n in self.names if self.first.get(n) == "read" and image(values.get(n)) != self.before[n]]
        if not carried:
            return ""
        return (
            f"{cls.__name__}: got {', '.join(map(repr, carried))}, which a step reads as the last left it and no "
            "checkpoint has, so that a resumed run would differ; expected arrays in self.slot(...) and numbers in "
            "begins_with and next_numbers(), or own_state() and load_own_state() of a scheme: keep it there"
        )


def _own_operators(names: Iterable[str]) -> list[Any]:
    operators = living_operators(names)
    return [op for op in operators if isinstance(op, CustomPythonOp) and not type(op).__module__.startswith(OWN)]


class _OperatorWatch:
    """Memory of an operator from call to call."""

    def __init__(self, operator: Any) -> None:
        self.operator, self.before = operator, self._values(operator)

    @staticmethod
    def _values(operator: Any) -> dict[str, Any]:
        ours = {name for base in (CustomPythonOp, CustomOp) for name in _names(base)} | {"_seen"}
        return {name: image(value) for name, value in vars(operator).items() if name not in ours}

    def end(self) -> str:
        """Return what to say of attributes that calls have changed, if there are some."""
        after = self._values(self.operator)
        changed = sorted(name for name in after if after[name] != self.before.get(name))
        if not changed:
            return ""
        return (
            f"operator {self.operator.name!r}: got {', '.join(map(repr, changed))}, which calls change and no "
            "checkpoint has, so that a resumed run would differ; expected an operator without memory: take random "
            "numbers from an input that a RandomNormalLike or RandomUniformLike node makes"
        )


def _is_computed(cls: type, name: str) -> bool:
    """Return whether a class has a property of that name, or a cached one, which is not ours to replace."""
    value = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return hasattr(type(value), "__get__") and not isinstance(value, _Spy)


class _Spy:
    """An attribute of a class's objects that notes of those that are watched whether it is read or written first.

    It stays: other threads may be in a step.
    """

    def __init__(self, name: str, default: Any) -> None:
        self.name, self.default, self.watches = name, default, dict[int, dict[str, str]]()

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            if self.default is _Spy:
                raise AttributeError(f"type object {owner.__name__!r} has no attribute {self.name!r}")
            return self.default
        self._note(instance, "read")
        try:
            return vars(instance)[self.name]
        except KeyError:
            if self.default is _Spy:
                raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}") from None
            return self.default

    def __set__(self, instance: Any, value: Any) -> None:
        self._note(instance, "written")
        vars(instance)[self.name] = value

    def __delete__(self, instance: Any) -> None:
        if vars(instance).pop(self.name, _Spy) is _Spy:
            raise AttributeError(self.name)

    def _note(self, instance: Any, what: str) -> None:
        if self.watches and (first := self.watches.get(id(instance))) is not None:
            first.setdefault(self.name, what)


def _names(cls: type) -> Iterator[str]:
    """Attributes that the code of a class sets."""
    for value in vars(cls).values():
        function = getattr(value, "fget", value)
        function = getattr(function, "__wrapped__", function)
        if isinstance(function, FunctionType):
            yield from _used(function.__code__)


def _used(code: CodeType) -> Iterator[str]:
    yield from (step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant)


_NO_NUMBERS = (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError)
"""Errors of what is a symbol, or of a kind that NumPy has not."""


def image(value: Any, depth: int = 4, most: int | None = None) -> Any:
    """The part of a value that can be compared later: bytes of arrays, generators' states, contents of containers.

    Args:
        value: of any kind.
        depth: of containers and objects in one another.
        most: elements of an array that are looked at, evenly spaced; all if None.

    Example:
        >>> generator = np.random.default_rng(0); before = image(generator)
        >>> _ = generator.random(); image(generator) == before
        False
    """
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, Mapping):
        return {repr(key): image(element, depth - 1, most) for key, element in value.items()} if depth else None
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        try:
            if most is not None and (size := int(np.prod(value.shape))) > most:
                return tuple(value.shape), image(value.reshape(-1)[:: size // most], 0)
            value = value.detach().cpu() if hasattr(value, "detach") else value
            array = np.asarray(value.float() if "bfloat16" in str(value.dtype) and hasattr(value, "float") else value)
        except _NO_NUMBERS:
            return None
        return array.shape, array.tobytes()
    if isinstance(value, (list, tuple, set, frozenset)) or type(value).__name__ == "deque":
        return [image(element, depth - 1, most) for element in value] if depth else None
    return image(vars(value), depth - 1, most) if depth and hasattr(value, "__dict__") and not callable(value) else None
