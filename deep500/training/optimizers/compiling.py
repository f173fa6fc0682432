"""The update of all parameters at once, by what a backend makes of the rule's `RuleProgram`.

Parameters that a rule treats alike lie end to end in one tensor (a `Chunk`), and so does what is remembered of them: a
rule of ten operations takes ten calls, not ten for each parameter. What is packed so is unpacked when somebody reads
``optimizer.state``. Large parameters are chunks by themselves, because putting them together would cost a copy.

Every step traces the rule again, which takes microseconds, and looks for the function of its program: what a step does
depends on rule, state and numbers only, not on earlier steps, so that a resumed run computes the same bits.
"""

from __future__ import annotations

import abc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from deep500.training.optimizers.tracing import RANDOM, RuleProgram, Untraceable, trace
from deep500.training.optimizers.updates import State, Updates

Packed: TypeAlias = dict[str, Any]
"""State of a chunk: slot -> tensor."""

CHUNK = 1 << 16
"""Elements up to which parameters are put together: a few tensors of that size stay in a core's cache."""
_MOST_PROGRAMS = 16
_NO_STEP = "there was no step yet"


class Chunk(NamedTuple):
    """Parameters of one part and dtype, and the slots that they have."""

    part: int
    names: tuple[str, ...]
    slots: frozenset[str]


class Update(NamedTuple):
    """A program that is compiled for a chunk, and the place of its first number among those of all chunks."""

    names: tuple[str, ...]
    program: RuleProgram
    first: int


Step: TypeAlias = Callable[[list[float], Mapping[str, Any] | None, Sequence[Packed]], Sequence[Packed]]
"""Takes numbers, gradients (None: those of the last run) and the slots of every chunk; updates the executor's
parameters, and returns the slots that were written."""


Summing: TypeAlias = Callable[
    [list[float], Mapping[str, Any] | None, Sequence[Packed]], tuple[Sequence[Packed], list[float]]
]
"""Takes what a step takes; returns the slots that were written, and sums over all parameters."""


class UpdateEngine(abc.ABC):
    """Compiles updates of chunks for an executor of one backend, as its network is now.

    Attributes:
        fuses: whether its steps have a method ``run(inputs, loss, numbers, packed)``, which runs the network, too, and
            returns ``(outputs, written slots)``.
        steps: what was compiled.
    """

    fuses: ClassVar[bool] = False

    def __init__(self, executor: Any, chunks: list[Chunk]) -> None:
        executor.refresh()
        self.executor, self.chunks = executor, chunks
        parameters, parts = executor.network.parameters, executor.network.part_shapes
        names = [name for chunk in chunks for name in chunk.names]
        self.shapes = {name: parts.get(name, parameters[name].value.shape) for name in names}
        self.steps: dict[tuple[RuleProgram, ...], Any] = {}

    @abc.abstractmethod
    def compile(self, updates: Sequence[Update]) -> Step:
        """Return the step for all chunks."""

    def compile_sums(self, updates: Sequence[Update]) -> Summing:
        """Return what adds up over all chunks; raises Untraceable where the backend has none."""
        raise Untraceable("this backend compiles no sums over all parameters")

    def lay(self, name: str, array: np.ndarray) -> np.ndarray:
        """An array of a parameter's shape, in the layout in which the backend holds the parameter."""
        return array

    def show(self, name: str, array: np.ndarray) -> np.ndarray:
        """Reverse :meth:`lay`, of an array in a row."""
        return array

    def tensor(self, names: tuple[str, ...], slot: str, array: np.ndarray) -> Any:
        """A slot of a chunk as steps take it."""
        return self.executor.network.to_tensor(array)

    def pack(self, state: State) -> list[Packed]:
        """Put the state of these parameters together, and take it out of ``state``."""
        network, packed = self.executor.network, []
        for _, names, slots in self.chunks:
            together: Packed = {}
            for slot in sorted(slots):
                arrays = [self._laid(name, slot, np.asarray(network.to_numpy(state[slot][name]))) for name in names]
                flat = arrays[0] if len(names) == 1 else np.concatenate([array.reshape(-1) for array in arrays])
                together[slot] = self.tensor(names, slot, flat)
            packed.append(together)
        for _, names, slots in self.chunks:
            for slot in slots:
                for name in names:
                    del state[slot][name]
        return packed

    def _laid(self, name: str, slot: str, array: np.ndarray) -> np.ndarray:
        dtype, shape = self.executor.network.parameters[name].value.dtype, self.shapes[name]
        if array.shape not in ((), shape) or array.dtype != dtype:
            raise Untraceable(f"its slot {slot!r} of {name!r} is not like the parameter")
        return self.lay(name, np.broadcast_to(array, shape))

    def unpack(self, packed: Sequence[Packed]) -> State:
        """Reverse :meth:`pack`, into arrays: slot -> parameter -> array."""
        arrays: State = {}
        for (_, names, _), together in zip(self.chunks, packed, strict=True):
            ends = np.cumsum([int(np.prod(self.shapes[name])) for name in names])
            for slot, tensor in together.items():
                pieces = np.split(np.asarray(self.executor.network.to_numpy(tensor)).reshape(-1), ends[:-1])
                whole = {n: self.show(n, p).reshape(self.shapes[n]) for n, p in zip(names, pieces, strict=True)}
                arrays.setdefault(slot, {}).update(whole)
        return arrays


@contextmanager
def _same_draws() -> Iterator[None]:
    """Refuse what draws from the generators of the process, and put them back."""
    read, write = np.random.get_state, np.random.set_state
    python, numpy = random.getstate(), read()
    try:
        yield
    finally:
        if random.getstate() != python or read()[2:] != numpy[2:]:  # type: ignore[index] # places, which a draw moves
            random.setstate(python)
            write(numpy)
            raise Untraceable(RANDOM)


class CompiledUpdates(Updates):
    """Updates of an executor that has an ``update_engine``."""

    def __init__(self) -> None:
        self._engine: Any = None  # if some of the state is packed
        self._packed: list[Packed] = []
        self._present: tuple[int, tuple[str, ...]] | None = None  # version and names that the engine is for
        self._engines: dict[Any, UpdateEngine] = {}
        super().__init__()
        self.refusal, self._refused = _NO_STEP, -1  # the step in which it was refused

    # -- state --------------------------------------------------------------------------------------------------------
    @property
    def state(self) -> State:
        """The state by slot and parameter, of which nothing is packed any more."""
        if self._engine is not None:
            to_tensor = self._engine.executor.network.to_tensor
            for slot, arrays in self._engine.unpack(self._packed).items():
                self._state.setdefault(slot, {}).update({name: to_tensor(array) for name, array in arrays.items()})
            self._engine, self._packed = None, []
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state, self._engine, self._packed = state, None, []

    def arrays(self, to_numpy: Callable[[Any], np.ndarray]) -> State:
        arrays = {slot: {n: np.array(to_numpy(t)) for n, t in some.items()} for slot, some in self._state.items()}
        if self._engine is not None:
            for slot, more in self._engine.unpack(self._packed).items():
                arrays.setdefault(slot, {}).update({name: np.array(array) for name, array in more.items()})
        return arrays

    # -- stepping -----------------------------------------------------------------------------------------------------
    def apply(self, optimizer: Any, names: Sequence[str], gradients: Sequence[Any] | None = None) -> bool:
        ready = self._ready(optimizer, tuple(names))
        if ready is None:
            return False
        by_name = None if gradients is None else dict(zip(names, gradients, strict=True))
        self._write(ready[0](ready[1], by_name, self._packed))
        optimizer.updated = True
        return True

    def sums(self, optimizer: Any, names: Sequence[str], gradients: Sequence[Any] | None = None) -> list[float] | None:
        refused = self._refused
        ready = self._ready(optimizer, tuple(names), "summands")
        if ready is None:
            self._refused = refused  # the rule itself may be compiled
            return None
        by_name = None if gradients is None else dict(zip(names, gradients, strict=True))
        written, totals = ready[0](ready[1], by_name, self._packed)
        self._write(written)
        return list(totals)

    def run(self, optimizer: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        if not optimizer.executor.update_engine().fuses:
            return None
        exchange = optimizer.exchange
        passed = exchange is optimizer or (exchange.passes_steps and exchange.owned is None)
        watched = bool(optimizer.executor.events.before_update)
        if watched or optimizer.in_pieces or optimizer.changes_gradients or not passed:
            return None
        ready = self._ready(optimizer, tuple(optimizer.parameter_names()))
        if ready is None:
            return None
        outputs, written = ready[0].run(inputs, optimizer.loss, ready[1], self._packed)
        self._write(written)
        optimizer.backprops, optimizer.updated = optimizer.backprops + 1, True
        return dict(outputs)

    def _write(self, written: Sequence[Packed]) -> None:
        chunks = self._engine.chunks
        for number, (chunk, slots) in enumerate(zip(chunks, written, strict=True)):
            self._packed[number].update(slots)
            if not chunk.slots.issuperset(slots):
                chunks[number] = chunk._replace(slots=chunk.slots.union(slots))

    def _ready(
        self, optimizer: Any, names: tuple[str, ...], method: str = "update_rule"
    ) -> tuple[Any, list[float]] | None:
        """The step for these parameters and its numbers, with the state packed for it."""
        if not names:
            self.refusal = "there are no parameters"
            return None
        if self.refusal == RANDOM or self._refused == optimizer.steps:  # a rule that draws is not run once more
            return None
        if self._engine is not None and type(self._engine) is not optimizer.executor.update_engine():
            _ = self.state  # unpacked: the executor compiles in another way from here on
        try:
            chunks = self._chunks(optimizer, names)
            with _same_draws() if self.refusal == _NO_STEP else nullcontext():
                updates, numbers = _traced(optimizer, chunks, method)
            if self._engine is None:
                self._prepare(optimizer, names, chunks)
            programs, steps = tuple(update.program for update in updates), self._engine.steps
            if programs not in steps:
                if len(steps) == _MOST_PROGRAMS:
                    raise Untraceable("it computes something else in every step")
                make = self._engine.compile if method == "update_rule" else self._engine.compile_sums
                steps[programs] = make(updates)
        except Untraceable as refusal:
            self.refusal, self._refused, _ = str(refusal), optimizer.steps, self.state  # which unpacks it
            return None
        self.refusal = ""
        return steps[programs], numbers

    def _chunks(self, optimizer: Any, names: tuple[str, ...]) -> list[Chunk]:
        network = optimizer.network
        if self._engine is not None and self._present == (network.version, names):
            return list(self._engine.chunks)
        state, chosen, alike, room = self.state, set(names), dict[Any, list[list[str]]](), dict[Any, int]()
        for number, part in enumerate(optimizer.parts()):
            for name in (name for name in part.names if name in chosen):
                value = network.parameters[name].value
                key = number, frozenset(slot for slot, tensors in state.items() if name in tensors), value.dtype
                rows = alike.setdefault(key, [])
                if room.get(key, 0) < value.size:
                    rows.append([])
                    room[key] = CHUNK
                rows[-1].append(name)
                room[key] -= value.size
        return [Chunk(number, tuple(row), slots) for (number, slots, _), rows in alike.items() for row in rows]

    def _prepare(self, optimizer: Any, names: tuple[str, ...], chunks: list[Chunk]) -> None:
        """Pack the state, for an engine that may have been there before."""
        version = optimizer.network.version
        if self._present is not None and self._present[0] != version:
            self._engines.clear()
        make = optimizer.executor.update_engine()
        key = make, tuple(chunk[:2] for chunk in chunks)
        if key not in self._engines:
            self._engines[key] = make(optimizer.executor, chunks)
        engine = self._engines[key]
        engine.chunks = chunks
        self._packed = engine.pack(self._state)
        self._engine, self._present = engine, (version, names)


def _traced(optimizer: Any, chunks: Sequence[Chunk], method: str) -> tuple[list[Update], list[float]]:
    """The program of every chunk, traced once for those that are alike, and the numbers of all."""
    parts, numbers = optimizer.parts(), list[float]()
    traces: dict[tuple[int, frozenset[str]], tuple[RuleProgram, int]] = {}
    for part, _, slots in chunks:
        if (part, slots) not in traces:
            program, more = trace(optimizer, optimizer.values_of(parts[part]), slots, method)
            traces[part, slots] = program, len(numbers)
            numbers.extend(more)
    return [Update(chunk.names, *traces[chunk.part, chunk.slots]) for chunk in chunks], numbers
