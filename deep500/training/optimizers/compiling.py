"""Update rules for all parameters at once: the rule of a `ThreeStepOptimizer`, written for one, run by the backend.

A backend offers one of two ways (:mod:`deep500.networks.execution.capabilities`):

* ``CompilesUpdates`` (JAX, TensorFlow): the rule is traced for all parameters and compiled. While it is traced, what
  changes from step to step (hyper-parameters, ``steps``, numbers that the optimizer keeps in attributes) is a `Number`:
  its arithmetic becomes formulas, computed in float64 at every step and handed over; what the rule *asks* of one
  (``if self.weight_decay``) is a question whose answer is noted, and another answer later is another trace.
* ``ListsTensors`` (PyTorch): the rule runs once on lists of tensors, by functions that take lists.

What cannot be done so runs parameter by parameter, as on NumPy, and `Updates.refusal` says why. A compiled rule is held
against the rule itself on NumPy in its first two steps: one that keeps something the trace did not see, such as random
numbers of its own, would differ there, and is not compiled.
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from deep500.networks.execution.capabilities import CompilesUpdates, ListsTensors

State: TypeAlias = dict[str, dict[str, Any]]
"""What an optimizer remembers: slot -> parameter -> tensor."""
Formula: TypeAlias = Any
"""A `Leaf`, a number, or a tuple of an operation's name and formulas."""

_MOST_TRACES = 8
_CHECKED_STEPS = 2
_TOLERANCES = {"float64": 1e-9, "float32": 1e-3}
_NO_NUMBERS = frozenset({"accumulate", "backprops", "rank"})


class UncompiledWarning(UserWarning):
    """A rule that gave something else once it was compiled runs parameter by parameter."""


class _Refused(Exception):
    """The rule cannot be run for all parameters at once; the message says why."""


class Leaf(NamedTuple):
    """A number that an optimizer holds: the attribute's name, and the place where it is a tuple."""

    name: str
    place: int = -1


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "pow": operator.pow,
    "neg": operator.neg,
    "abs": operator.abs,
}
_QUESTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "bool": bool,
    "float": float,
    "int": int,
    "index": operator.index,
}


def _value(formula: Formula, numbers: Mapping[Leaf, Any]) -> Any:
    if isinstance(formula, Leaf):
        return numbers[formula]
    if isinstance(formula, tuple):
        name, *parts = formula
        return {**_ARITHMETIC, **_QUESTIONS}[name](*(_value(part, numbers) for part in parts))
    return formula


@dataclass
class _Trace:
    """What one trace of a rule asked and used.

    Attributes:
        numbers: those of the step in which it was traced.
        formulas: what met tensors, by place among the numbers that are handed over.
        answers: questions, as formulas, with their answers.
        read: gives the number of a place as something that a tensor of some dtype can be combined with.
    """

    numbers: Mapping[Leaf, Any]
    formulas: dict[Formula, int] = field(default_factory=dict)
    answers: dict[Formula, Any] = field(default_factory=dict)
    read: Callable[[int, Any], Any] | None = None

    def ask(self, question: Formula) -> Any:
        """The answer to a question, which is noted."""
        return self.answers.setdefault(question, _value(question, self.numbers))

    def operand(self, formula: Formula, tensor: Any) -> Any:
        """A formula's number, for arithmetic with a tensor."""
        if self.read is None:
            self.formulas.setdefault(formula, len(self.formulas))
            return _value(formula, self.numbers)
        if formula not in self.formulas:
            raise _Refused("it computes something else with other tensors")
        return self.read(self.formulas[formula], tensor.dtype)

    def holds(self, numbers: Mapping[Leaf, Any]) -> bool:
        """Whether a rule that was traced so would ask the same, and get the same answers, with other numbers."""
        return all(_value(question, numbers) == answer for question, answer in self.answers.items())


class Number:
    """A number of an optimizer while its rule is traced: see the module."""

    __array_ufunc__ = None  # NumPy's arrays leave arithmetic with it to this class
    __slots__ = ("formula", "trace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: _Trace, formula: Formula) -> None:
        self.trace, self.formula = trace, formula

    def _with(self, name: str, other: Any, mirrored: bool) -> Any:
        if isinstance(other, Number) or (isinstance(other, (int, float)) and not isinstance(other, np.generic)):
            parts = (self.formula, other.formula if isinstance(other, Number) else other)
            return Number(self.trace, (name, *(parts[::-1] if mirrored else parts)))
        mine = self.trace.operand(self.formula, other)
        return _ARITHMETIC[name](other, mine) if mirrored else _ARITHMETIC[name](mine, other)

    def _ask(self, name: str, *others: Any) -> Any:
        return self.trace.ask((name, self.formula, *(o.formula if isinstance(o, Number) else o for o in others)))


def _arithmetic(name: str, mirrored: bool) -> Callable[..., Any]:
    return lambda self, other: self._with(name, other, mirrored)


def _unary(name: str) -> Callable[..., Any]:
    return lambda self: Number(self.trace, (name, self.formula))


def _question(name: str) -> Callable[..., Any]:
    return lambda self, *others: self._ask(name, *others)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Number, f"__{_name}__", _arithmetic(_name, False))
    setattr(Number, f"__r{_name}__", _arithmetic(_name, True))
for _name in ("neg", "abs"):
    setattr(Number, f"__{_name}__", _unary(_name))
for _name in _QUESTIONS:
    setattr(Number, f"__{_name}__", _question(_name))


class _NoNetwork:
    """Stands for an optimizer's executor while its rule runs for all parameters."""

    def __getattr__(self, name: str) -> Any:
        raise _Refused("it asks the network")


def _twin(optimizer: Any, state: Any, numbers: Mapping[str, Any]) -> Any:
    """A copy of an optimizer on which its rule may run; nothing that the rule does reaches the optimizer."""
    twin = copy.copy(optimizer)
    held = {key: copy.copy(value) if isinstance(value, (dict, list, set)) else value for key, value in vars(twin).items()}
    vars(twin).clear()
    vars(twin).update({**held, **numbers, "state": state, "executor": _NoNetwork()})
    vars(twin).pop("update_rule", None)
    return twin


def _contents(optimizer: Any) -> dict[str, Any]:
    """What an optimizer holds besides its state, by identity."""

    def parts(value: Any) -> Any:
        if isinstance(value, dict):
            return [*map(id, value.values())]
        return [*map(id, value)] if isinstance(value, (list, set)) else id(value)

    return {key: parts(value) for key, value in vars(optimizer).items() if key != "state"}


def _run(optimizer: Any, twin: Any, names: Sequence[str], arguments: Callable[[Sequence[str]], Iterator[Any]]) -> None:
    """The rule, under the hyper-parameters of each part; ``arguments`` gives those of its calls and takes results."""
    before, chosen = _contents(twin), set(names)
    for part in optimizer.parts():
        with twin.within(part):
            calls = arguments([name for name in part.names if name in chosen])
            call = next(calls, None)
            while call is not None:
                result = twin.update_rule(*call)
                try:
                    call = calls.send(result)
                except StopIteration:
                    call = None
    after = _contents(twin)
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    if changed:
        raise _Refused(f"it changes {changed[0]!r}, which is no slot")


def _one_by_one(params: Mapping[str, Any], grads: Mapping[str, Any], new: dict[str, Any]) -> Any:
    def arguments(names: Sequence[str]) -> Iterator[Any]:
        for name in names:
            new[name] = yield grads[name], params[name], name

    return arguments


class Updates:
    """The third step of an optimizer, for many parameters.

    Args:
        optimizer: a `ThreeStepOptimizer`.

    Attributes:
        refusal: why its rule runs parameter by parameter; "" while it does not.
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.refusal = "" if optimizer.compiled else "its class says compiled = False"
        self._compiled: dict[Any, list[_Compiled]] = {}
        self._version = -1

    def apply(self, names: Sequence[str], parameters: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Apply the rule to these parameters of the network, with these gradients."""
        executor = self.optimizer.executor
        try:
            if not self.refusal and names:
                if isinstance(executor, CompilesUpdates):
                    return self._by_compiling(executor, tuple(names), parameters, gradients)
                if isinstance(executor, ListsTensors):
                    return self._by_lists(executor, names, parameters, gradients)
        except _Refused as refused:
            self.refusal = str(refused)
        optimizer = self.optimizer
        for name, old, gradient in zip(names, parameters, gradients, strict=True):
            optimizer.network.assign_tensor(name, optimizer.update_rule(gradient, old, name))
        return None

    # -- compiling ----------------------------------------------------------------------------------------------------
    def _numbers(self) -> dict[Leaf, Any]:
        """The numbers that the optimizer holds now."""
        optimizer = self.optimizer
        held = {name: value for name, value in vars(optimizer).items() if name not in _NO_NUMBERS}
        held.update({name: getattr(optimizer, name) for name in optimizer.hyperparameters})
        numbers = {Leaf(name): value for name, value in held.items() if _is_number(value)}
        for name, value in held.items():
            if isinstance(value, tuple) and value and all(map(_is_number, value)):
                numbers.update({Leaf(name, place): part for place, part in enumerate(value)})
        return numbers

    def _by_compiling(
        self, executor: CompilesUpdates, names: tuple[str, ...], parameters: Sequence[Any], gradients: Sequence[Any]
    ) -> None:
        optimizer, numbers = self.optimizer, self._numbers()
        if self._version != optimizer.network.version:
            self._compiled, self._version = {}, optimizer.network.version
        there = {slot: [name in tensors for name in names] for slot, tensors in optimizer.state.items()}
        state = {
            slot: {n: tensors[n] for n in names if n in tensors}
            for slot, tensors in optimizer.state.items()
            if any(there[slot])
        }
        known = self._compiled.setdefault((names, *((slot, *has) for slot, has in there.items())), [])
        compiled = next((one for one in known if one.trace.holds(numbers)), None)
        if compiled is None:
            if len(known) == _MOST_TRACES:
                raise _Refused(f"it was traced {_MOST_TRACES} times, for other answers each time")
            compiled = _Compiled(optimizer, names, numbers)
            known.append(compiled)
        before = None
        if compiled.checks < _CHECKED_STEPS:
            before = compiled.rehearse(numbers, parameters, gradients, state)
        values = [float(_value(formula, numbers)) for formula in compiled.trace.formulas]
        after = compiled(executor, values, parameters, gradients, state)
        if before is not None and (off := compiled.off(before, after)):
            self._restore(names, before)
            warnings.warn(
                f"{type(optimizer).__name__}: got {off} from its compiled update_rule; expected what the rule gives on NumPy:"
                " let it depend on its arguments, hyper-parameters and slots only, or say compiled = False in the class",
                UncompiledWarning,
                stacklevel=2,
            )
            raise _Refused(f"compiled, it gave {off}")
        for slot, tensors in after.items():
            optimizer.slot(slot).update(tensors)

    def _restore(self, names: Sequence[str], before: _Rehearsal) -> None:
        network = self.optimizer.network
        for name in names:
            network.assign_tensor(name, network.to_tensor(before.params[name]))
        for slot, arrays in before.state.items():
            self.optimizer.slot(slot).update({name: network.to_tensor(array) for name, array in arrays.items()})

    # -- lists --------------------------------------------------------------------------------------------------------
    def _by_lists(
        self, executor: ListsTensors, names: Sequence[str], parameters: Sequence[Any], gradients: Sequence[Any]
    ) -> None:
        params, grads = dict(zip(names, parameters, strict=True)), dict(zip(names, gradients, strict=True))
        slots = _ListedState(self.optimizer.state, executor.list_tensors)
        new: dict[str, Any] = {}

        def arguments(names: Sequence[str]) -> Iterator[Any]:
            if names:
                every = _Every(names)
                result = yield *(executor.list_tensors([of[name] for name in names]) for of in (grads, params)), every
                new.update(zip(names, _parts(result, len(names)), strict=True))

        try:
            _run(self.optimizer, _twin(self.optimizer, slots, {}), names, arguments)
        except (AttributeError, TypeError, ValueError, LookupError, RuntimeError) as error:
            raise _Refused(f"lists of tensors cannot do what it does ({error})") from error
        slots.commit(self.optimizer.state)
        for name in names:
            self.optimizer.network.assign_tensor(name, new[name])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass
class _Rehearsal:
    """Parameters and state before a step, and what the rule makes of them on NumPy."""

    params: dict[str, np.ndarray]
    state: dict[str, dict[str, np.ndarray]]
    new: dict[str, Any]
    after: State


class _Compiled:
    """A rule, traced and compiled for some parameters and some answers."""

    def __init__(self, optimizer: Any, names: tuple[str, ...], numbers: Mapping[Leaf, Any]) -> None:
        self.optimizer, self.names, self.trace, self.checks = optimizer, names, _Trace(dict(numbers)), 0
        self._function: Callable[..., Any] | None = None

    def rehearse(
        self, numbers: Mapping[Leaf, Any], parameters: Sequence[Any], gradients: Sequence[Any], state: State
    ) -> _Rehearsal:
        """The step on NumPy; the first finds the formulas."""
        self.checks += 1
        to_array = self.optimizer.network.to_numpy
        params, grads = ({n: np.array(to_array(t)) for n, t in zip(self.names, of, strict=True)} for of in (parameters, gradients))
        arrays = {slot: {name: np.array(to_array(t)) for name, t in tensors.items()} for slot, tensors in state.items()}
        trace = self.trace if self.checks == 1 else _Trace(numbers, self.trace.formulas)
        with np.errstate(all="ignore"):
            new, after = self._walk(trace, params, grads, arrays)
        every = [*new.values(), *(value for values in after.values() for value in values.values())]
        if not all(isinstance(value, (np.ndarray, np.generic)) for value in every):
            raise _Refused("it keeps or returns something that is no tensor")
        return _Rehearsal(params, arrays, new, after)

    def _walk(self, trace: _Trace, params: Any, grads: Any, state: State) -> tuple[dict[str, Any], State]:
        leaves: dict[str, Any] = {}
        for leaf in trace.numbers:
            number = Number(trace, leaf)
            leaves[leaf.name] = number if leaf.place < 0 else (*leaves.get(leaf.name, ()), number)
        after = {slot: dict(values) for slot, values in state.items()}
        twin, new = _twin(self.optimizer, after, leaves), dict[str, Any]()
        _run(self.optimizer, twin, self.names, _one_by_one(params, grads, new))
        return new, after

    def __call__(
        self, executor: CompilesUpdates, values: list[float], parameters: Any, gradients: Sequence[Any], state: State
    ) -> State:
        """Take the step; returns the new state."""
        if self._function is None:

            def rule(read: Any, params: Sequence[Any], grads: Sequence[Any], state: State) -> tuple[list[Any], State]:
                trace = _Trace(self.trace.numbers, self.trace.formulas, read=read)
                of = (dict(zip(self.names, tensors, strict=True)) for tensors in (params, grads))
                new, after = self._walk(trace, *of, state)
                return [new[name] for name in self.names], after

            self._function = executor.compile_update(rule, self.names)
        try:
            return self._function(values, gradients, state)
        except _Refused:
            raise
        except Exception as error:  # of many types, by what the rule asks of tensors that are not there yet
            if self.checks > 1:
                raise
            raise _Refused(f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}") from error

    def off(self, before: _Rehearsal, after: State) -> str:
        """What differs between the compiled step and the one on NumPy; "" if nothing does."""
        network = self.optimizer.network
        if {slot: set(values) for slot, values in after.items()} != {s: set(v) for s, v in before.after.items()}:
            return "other slots"
        now = dict(zip(self.names, network.fetch_tensors(list(self.names)), strict=True))
        pairs = [(name, before.new[name], now[name], before.params[name]) for name in self.names]
        for slot, values in before.after.items():
            old = before.state.get(slot, {})
            pairs += [(f"{slot}/{n}", v, after[slot][n], old.get(n, np.zeros_like(v))) for n, v in values.items()]
        for name, want, tensor, old in pairs:
            got, expected, start = (np.asarray(x, np.float64) for x in (network.to_numpy(tensor), want, old))
            if np.array_equal(np.isfinite(got), np.isfinite(expected)):
                off, moved, size = (
                    np.linalg.norm(np.nan_to_num(x, posinf=0.0, neginf=0.0)) for x in (got - expected, expected - start, start)
                )
                # the norm: where a step is a quotient of two small numbers, single elements may well be others
                relative = _TOLERANCES.get(str(np.asarray(want).dtype), 3e-2)
                if off <= relative * moved + relative * 1e-3 * size:
                    continue
            return f"another {name!r}"
        return ""


# -- lists of tensors ----------------------------------------------------------------------------------------------------
class _Every:
    """The names of the parameters of a part in one, where a rule takes a parameter's name; it is no string."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def __hash__(self) -> int:
        return hash(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Every) and self.names == other.names


def _parts(value: Any, count: int) -> list[Any]:
    tensors = getattr(value, "tensors", None)
    if tensors is None or len(tensors) != count:
        raise _Refused("it gives no tensor for each parameter")
    return list(tensors)


class _ListedState(dict[str, Any]):
    """An optimizer's state whose slots take `_Every`; what is written stays apart until `commit`."""

    def __init__(self, state: State, list_tensors: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self.before, self.list_tensors = state, list_tensors

    def __missing__(self, slot: str) -> _ListedSlot:
        self[slot] = _ListedSlot(self.before.get(slot, {}), self.list_tensors)
        return self[slot]

    def setdefault(self, slot: str, default: Any = None) -> Any:
        """The slot."""
        return self[slot]

    def commit(self, state: State) -> None:
        """Write what was written into the optimizer's own state."""
        for slot, listed in self.items():
            for every, tensors in listed.written.items():
                state.setdefault(slot, {}).update(zip(every.names, _parts(tensors, len(every.names)), strict=True))


class _ListedSlot:
    """One slot by `_Every`."""

    def __init__(self, before: Mapping[str, Any], list_tensors: Callable[[list[Any]], Any]) -> None:
        self.before, self.list_tensors = before, list_tensors
        self.written: dict[_Every, Any] = {}

    def __contains__(self, every: _Every) -> bool:
        there = {name in self.before for name in every.names}
        if len(there) > 1 and every not in self.written:
            raise LookupError("some parameters have a past and others have none")
        return every in self.written or there == {True}

    def __getitem__(self, every: _Every) -> Any:
        if every in self.written:
            return self.written[every]
        return self.list_tensors([self.before[name] for name in every.names])

    def __setitem__(self, every: _Every, tensors: Any) -> None:
        self.written[every] = tensors

    def get(self, every: _Every, default: Any = None) -> Any:
        """The tensors, or the default where there are none."""
        return self[every] if every in self else default

    def setdefault(self, every: _Every, default: Any) -> Any:
        """The tensors, which are the default where there are none."""
        if every not in self:
            self[every] = default
        return self[every]
