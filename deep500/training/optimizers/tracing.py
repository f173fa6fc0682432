"""Update rules as programs: a rule runs once, on symbols, and what it computes is written down.

The rule of a `ThreeStepOptimizer` is written for one parameter. Here a symbol stands for the gradient, another for
the parameter, and further ones for what is remembered, while the optimizer's numbers are what they are in this step,
so that branches, schedules and ``math`` are plain Python. The `RuleProgram` holds for every parameter of a part because
whatever may differ between parameters is refused (`Untraceable`): a rule that reads a name, a shape, an element, or an
object that is neither number nor text, or that changes the optimizer. It runs twice, so that random numbers show.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, NoneType
from typing import Any, TypeAlias

import numpy as np

from deep500.training.optimizers.arithmetic import norm

Operand: TypeAlias = int | tuple[float]
"""A value's place, counted from gradient and parameter on; ``~n`` for the number ``n``; an exponent that is fixed."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "pow", "neg", "abs")},
    "norm": norm,
}
"""By the names of steps; for parameters end to end, ``norm`` has to be that of each, in the places of its elements."""


RANDOM = "it draws random numbers, or computes something else when it runs again"


class Untraceable(Exception):
    """A rule does not become a program; the message says why."""


@dataclass(frozen=True)
class RuleProgram:
    """The computation of a rule, element by element but for norms.

    Attributes:
        steps: an operation and its operands each; ``("slot", name)`` reads what is remembered.
        writes: slots, and the places of what they remember from now on.
        result: place of the parameter's new value.
        sums: places of tensors that are added up over all parameters.
    """

    steps: tuple[tuple[Any, ...], ...]
    writes: tuple[tuple[str, int], ...]
    result: int
    sums: tuple[int, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: a program is a key in every step."""
        return hash((self.steps, self.writes, self.result, self.sums))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The slots that are read."""
        return tuple(step[1] for step in self.steps if step[0] == "slot")

    @cached_property
    def count(self) -> int:
        """How many numbers it takes."""
        return sum(operand < 0 for step in self.steps for operand in step[1:] if isinstance(operand, int))

    @cached_property
    def decrement(self) -> RuleProgram | None:
        """The program of what is subtracted from the parameter, where that is the last step."""
        name, *operands = self.steps[-1] if self.steps else ("",)
        if name != "sub" or operands[0] != 1 or operands[1] < 0 or self.result != len(self.steps) + 1:
            return None
        return RuleProgram(self.steps[:-1], self.writes, operands[1])

    @cached_property
    def last_uses(self) -> list[set[int]]:
        """For each step the places of values that no later one needs."""
        needed, uses = {self.result, *(place for _, place in self.writes)}, list[set[int]]()
        for step in reversed(self.steps):
            places = {operand for operand in step[1:] if isinstance(operand, int) and operand >= 0}
            uses.append(places - needed)
            needed |= places
        return uses[::-1]

    def __call__(
        self,
        gradient: Any,
        parameter: Any,
        slots: Mapping[str, Any],
        numbers: Sequence[Any],
        functions: Mapping[str, Callable[..., Any]] = FUNCTIONS,
    ) -> tuple[Any, dict[str, Any]]:
        """Compute the parameter's new value, and what is remembered of it, on a framework's tensors and scalars."""
        values = [gradient, parameter]
        for (name, *operands), unused in zip(self.steps, self.last_uses, strict=True):
            if name == "slot":
                values.append(slots[operands[0]])
                continue
            arguments = [p[0] if isinstance(p, tuple) else values[p] if p >= 0 else numbers[~p] for p in operands]
            values.append(functions[name](*arguments))
            for place in unused:  # large tensors are let go of as soon as they can be
                values[place] = None
        return values[self.result], {slot: values[place] for slot, place in self.writes}


class _Trace:
    """Steps and numbers of a rule that runs; ``present`` are the slots that its parameters have."""

    def __init__(self, present: frozenset[str]) -> None:
        self.present = present
        self.steps: list[tuple[Any, ...]] = []
        self.numbers: list[float] = []
        self.reads: dict[str, Symbol] = {}
        self.writes: dict[str, int] = {}

    def add(self, *step: Any) -> Symbol:
        self.steps.append(step)
        return Symbol(self, len(self.steps) + 1)

    def read(self, slot: str) -> Symbol:
        if slot in self.writes:
            return Symbol(self, self.writes[slot])
        if slot not in self.reads:
            self.reads[slot] = self.add("slot", slot)
        return self.reads[slot]


class Symbol:
    """Stands for a tensor: arithmetic is written down, everything else fails."""

    __slots__ = ("place", "trace")
    __array_ufunc__ = None  # NumPy's arrays and scalars leave arithmetic to this class, which does not know them
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: _Trace, place: int) -> None:
        self.trace, self.place = trace, place

    def __neg__(self) -> Symbol:
        return self.trace.add("neg", self.place)

    def __abs__(self) -> Symbol:
        return self.trace.add("abs", self.place)

    def __pow__(self, exponent: Any) -> Any:
        if type(exponent) in (int, float):  # stands in the program: roots and squares have kernels of their own
            return self.trace.add("pow", self.place, (exponent,))
        return _binary(self, "pow", exponent, False)

    def __getattr__(self, name: str) -> Any:  # also for hasattr, which another error than AttributeError passes
        raise Untraceable(f"it asks a tensor for {name!r}")

    def _refuse(self, *_: Any) -> Any:
        raise Untraceable("it asks for a tensor's elements, or writes into a tensor")

    __bool__ = __float__ = __int__ = __len__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __repr__ = __str__ = __format__ = _refuse  # who prints a tensor wants its elements
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = __getitem__ = __setitem__ = __iter__ = _refuse


def _binary(symbol: Symbol, name: str, other: Any, mirrored: bool) -> Any:
    trace, kind = symbol.trace, type(other)
    if kind is Symbol and other.trace is trace:
        place = other.place
    elif kind is float or kind is int or kind is bool:  # not NumPy's scalars, which widen tensors
        numbers = trace.numbers
        numbers.append(float(other))
        place = -len(numbers)
    else:
        return NotImplemented
    steps = trace.steps
    steps.append((name, place, symbol.place) if mirrored else (name, symbol.place, place))
    return Symbol(trace, len(steps) + 1)


def _method(name: str, mirrored: bool) -> Callable[[Symbol, Any], Any]:
    return lambda self, other: _binary(self, name, other, mirrored)


for _name in ("add", "sub", "mul", "truediv"):
    setattr(Symbol, f"__{_name}__", _method(_name, False))
for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Symbol, f"__r{_name}__", _method(_name, True))


@norm.register
def _norm(symbol: Symbol) -> Symbol:
    return symbol.trace.add("norm", symbol.place)


class _Name:
    """Stands for the names of all parameters, as the key of slots."""

    def _refuse(self, *_: Any) -> Any:
        raise Untraceable("it reads the parameter's name")

    __hash__ = __eq__ = __str__ = __repr__ = __format__ = _refuse


_NAME = _Name()


class _Slots:
    """Stands for an optimizer's state."""

    def __init__(self, trace: _Trace) -> None:
        self.trace = trace

    def __getitem__(self, slot: str, default: Any = None) -> _Slot:
        return _Slot(self.trace, slot)

    setdefault = __getitem__
    __contains__ = __iter__ = None


class _Slot:
    """Stands for one slot, of which a rule sees its parameter's tensor."""

    def __init__(self, trace: _Trace, slot: str) -> None:
        self.trace, self.slot = trace, slot

    def __contains__(self, name: Any) -> bool:
        if name is not _NAME:
            raise Untraceable("it looks at what is remembered of another parameter")
        return self.slot in self.trace.writes or self.slot in self.trace.present

    def __getitem__(self, name: Any) -> Symbol:
        if name not in self:
            raise KeyError(self.slot)
        return self.trace.read(self.slot)

    def __setitem__(self, name: Any, value: Any) -> None:
        if name is not _NAME or type(value) is not Symbol:
            raise Untraceable("it remembers something that is no tensor of its parameter")
        if value.place < 2:  # gradient or parameter, whose memory is used again
            value = _binary(value, "mul", 1.0, False)
        self.trace.writes[self.slot] = value.place

    def get(self, name: Any, default: Any = None) -> Any:
        return self[name] if name in self else default

    def setdefault(self, name: Any, default: Any) -> Any:
        if name not in self:
            self[name] = default
        return self[name]


_PLAIN = frozenset({float, int, bool, str, NoneType, MethodType, FunctionType, BuiltinFunctionType})


def _unchanging(name: str, value: Any) -> Any:
    if type(value) in _PLAIN or isinstance(value, (np.generic, type)):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_unchanging(name, item) for item in value)
    if isinstance(value, Mapping):
        return MappingProxyType({key: _unchanging(name, item) for key, item in value.items()})
    raise Untraceable(f"it reads {name!r}, a {type(value).__name__}")


class _Watched:
    """Comes before an optimizer's class where its rule is traced: lets it read plain values, and change nothing."""

    def __getattr__(self, name: str) -> Any:  # of what is not plain, and so not among the twin's attributes
        attributes = vars(self)["_optimizer"]
        if name in attributes:
            return _unchanging(name, attributes[name])
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "updated":  # which every rule notes
            raise Untraceable(f"it changes {name!r}")

    def __delattr__(self, name: str) -> None:
        raise Untraceable(f"it changes {name!r}")


_BASES = {"around", "_declarations", "__annotations__"}  # attributes of every optimizer's class


def _looker(name: str, value: Any) -> property:
    return property(lambda _: _unchanging(name, value))


@lru_cache(64)
def _watched(cls: Any) -> Any:
    """The class of an optimizer's twins."""
    shared = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items() if name not in _BASES}
    looks = {n: _looker(n, v) for n, v in shared.items() if isinstance(v, (list, set, dict, np.ndarray))}
    return type(cls.__name__, (_Watched, cls), {**looks, "state": None})


def trace(
    optimizer: Any, values: Mapping[str, Any], slots: frozenset[str], method: str = "update_rule"
) -> tuple[RuleProgram, Sequence[float]]:
    """The program of an optimizer's rule in this step, or of its ``summands``, and its numbers.

    Args:
        optimizer: a `ThreeStepOptimizer`; nothing that the rule does reaches it.
        values: hyper-parameters of the parameters that are meant.
        slots: those that these parameters have.

    Raises:
        Untraceable: the rule may do something else for some of them, or fails.
    """
    kind: Any = type(optimizer)
    cls, attributes = _watched(kind), vars(optimizer)
    plain = {name: value for name, value in attributes.items() if type(value) in _PLAIN}
    plain.update(values, groups=(), _in_part=True, _optimizer=attributes)
    runs = []
    for _ in range(2):
        traced, twin = _Trace(slots), object.__new__(cls)
        object.__setattr__(twin, "__dict__", {**plain, "state": _Slots(traced)})
        try:
            result = getattr(twin, method)(Symbol(traced, 0), Symbol(traced, 1), _NAME)
        except Untraceable:
            raise
        except Exception as error:  # also the user's own, which the rule raises again on tensors
            raise Untraceable(f"it fails on symbols: {type(error).__name__}: {error}") from error
        results = (result,) if method == "update_rule" else tuple(result)
        if any(type(tensor) is not Symbol or tensor.trace is not traced for tensor in results):
            raise Untraceable("it returns no tensor")
        ends = (results[0].place, ()) if method == "update_rule" else (1, tuple(tensor.place for tensor in results))
        runs.append((traced.steps, traced.writes, ends, traced.numbers))
    if runs[0] != runs[1]:
        raise Untraceable(RANDOM)
    steps, writes, ends, numbers = runs[0]
    return _known(RuleProgram(tuple(steps), tuple(writes.items()), *ends)), numbers


@lru_cache(256)
def _known(program: RuleProgram) -> RuleProgram:
    """The same object for equal programs, so that a step finds what was compiled without comparing them."""
    return program
