"""The update of all parameters at once, by what a backend makes of the rule's `Program`.

Parameters that a rule treats alike lie end to end in one tensor (a `Chunk`), and so does what is remembered of them: a
rule of ten operations takes ten calls, not ten for each parameter. What is packed so is unpacked when somebody reads
``optimizer.state``. Large parameters are chunks by themselves, because putting them together would cost a copy.

Every step traces the rule again, which takes microseconds, and looks for the function of its program: what a step does
depends on rule, state and numbers only, not on earlier steps, so that a resumed run computes the same bits.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from deep500.training.optimizers.tracing import Program, Untraceable, trace

State: TypeAlias = dict[str, dict[str, Any]]
"""What an optimizer remembers: slot -> parameter -> tensor."""
Packed: TypeAlias = dict[str, Any]
"""What is remembered of a chunk: slot -> tensor."""

CHUNK = 1 << 16
"""Elements up to which parameters are put together: a few tensors of that size stay in a core's cache."""
_MOST_PROGRAMS = 16


class Chunk(NamedTuple):
    """Parameters of one part and dtype, and the slots that they have."""

    part: int
    names: tuple[str, ...]
    slots: frozenset[str]


class Update(NamedTuple):
    """What is compiled for a chunk: a program, and the place of its first number among those of all chunks."""

    names: tuple[str, ...]
    program: Program
    first: int


Step: TypeAlias = Callable[[list[float], Mapping[str, Any] | None, Sequence[Packed]], Sequence[Packed]]
"""Takes numbers, gradients (None: those of the last run) and the slots of every chunk; updates the executor's
parameters, and returns the slots that were written."""


class UpdateEngine(abc.ABC):
    """Compiles updates for an executor of one backend, as its network is now.

    Attributes:
        fuses: whether its steps have a method ``run(inputs, loss, numbers, packed)``, which runs the network, too, and
            returns ``(outputs, written slots)``.
    """

    fuses = False

    def __init__(self, executor: Any) -> None:
        self.executor = executor

    @abc.abstractmethod
    def compile(self, updates: Sequence[Update]) -> Step:
        """Return the step for all chunks."""

    def lay(self, name: str, array: np.ndarray) -> np.ndarray:
        """An array of a parameter's shape, in the layout in which the backend holds the parameter."""
        return array

    def show(self, name: str, array: np.ndarray) -> np.ndarray:
        """Reverse :meth:`lay`, of an array in a row."""
        return array

    def hold(self, names: tuple[str, ...], slot: str, array: np.ndarray) -> Any:
        """A slot of a chunk as steps take it."""
        return self.executor.network.to_tensor(array)


@dataclass
class _Layout:
    """Chunks of a network's parameters as it is in some version, and the steps for them."""

    version: int
    names: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    engine: UpdateEngine
    chunks: list[Chunk]
    steps: dict[tuple[Program, ...], Step] = field(default_factory=dict)

    def packed(self, state: State) -> list[Packed]:
        """Put the state of these parameters together, and take it out of ``state``."""
        network, packed = self.engine.executor.network, list[Packed]()
        for _, names, slots in self.chunks:
            together: Packed = {}
            for slot in sorted(slots):
                arrays = [np.asarray(network.to_numpy(state[slot][name])) for name in names]
                for name, array in zip(names, arrays, strict=True):
                    if (
                        array.shape not in ((), self.shapes[name])
                        or array.dtype != network.parameters[name].value.dtype
                    ):
                        raise Untraceable(f"its slot {slot!r} of {name!r} is not like the parameter")
                laid = [
                    self.engine.lay(name, np.broadcast_to(array, self.shapes[name]))
                    for name, array in zip(names, arrays, strict=True)
                ]
                flat = laid[0] if len(names) == 1 else np.concatenate([array.reshape(-1) for array in laid])
                together[slot] = self.engine.hold(names, slot, flat)
            packed.append(together)
        for _, names, slots in self.chunks:
            for slot in slots:
                for name in names:
                    del state[slot][name]
        return packed

    def arrays(self, packed: Sequence[Packed]) -> dict[str, dict[str, np.ndarray]]:
        """What was put together as arrays: slot -> parameter -> array."""
        arrays: dict[str, dict[str, np.ndarray]] = {}
        to_numpy = self.engine.executor.network.to_numpy
        for chunk, together in zip(self.chunks, packed, strict=True):
            sizes = [int(np.prod(self.shapes[name])) for name in chunk.names]
            for slot, tensor in together.items():
                flat = np.asarray(to_numpy(tensor)).reshape(-1)
                pieces = zip(chunk.names, np.split(flat, np.cumsum(sizes)[:-1]), strict=True)
                whole = {name: self.engine.show(name, piece).reshape(self.shapes[name]) for name, piece in pieces}
                arrays.setdefault(slot, {}).update(whole)
        return arrays


class Updates:
    """The third step of a `ThreeStepOptimizer`, for many parameters, and what the optimizer remembers.

    Attributes:
        refusal: why the last step ran parameter by parameter; "" if it did not.
    """

    def __init__(self) -> None:
        self.refusal = ""
        self._state: State = {}
        self._layout: _Layout | None = None  # if some of the state is packed
        self._packed: list[Packed] = []
        self._layouts: dict[Any, _Layout] = {}

    # -- state --------------------------------------------------------------------------------------------------------
    @property
    def state(self) -> State:
        """The state by slot and parameter, of which nothing is packed any more."""
        if self._layout is not None:
            to_tensor = self._layout.engine.executor.network.to_tensor
            for slot, arrays in self._layout.arrays(self._packed).items():
                tensors = {name: to_tensor(array) for name, array in arrays.items()}
                self._state.setdefault(slot, {}).update(tensors)
            self._layout, self._packed = None, []
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state, self._layout, self._packed = state, None, []

    def arrays(self, to_numpy: Callable[[Any], np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """Copies of the state as arrays: slot -> parameter -> array."""
        arrays = {slot: {n: np.array(to_numpy(t)) for n, t in tensors.items()} for slot, tensors in self._state.items()}
        if self._layout is not None:
            for slot, more in self._layout.arrays(self._packed).items():
                arrays.setdefault(slot, {}).update({name: np.array(array) for name, array in more.items()})
        return arrays

    # -- stepping -----------------------------------------------------------------------------------------------------
    def apply(self, optimizer: Any, names: Sequence[str], gradients: Sequence[Any] | None = None) -> bool:
        """Update these parameters of the network, with these gradients or those of the last run.

        Returns:
            whether it was done; else the rule has to run parameter by parameter.
        """
        ready = self._ready(optimizer, tuple(names))
        if ready is None:
            return False
        step, numbers = ready
        by_name = None if gradients is None else dict(zip(names, gradients, strict=True))
        self._write(step(numbers, by_name, self._packed))
        return True

    def run(self, optimizer: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Run the network forward and backward and update all parameters, in one; None where that is not possible."""
        if self._layout is not None and not self._layout.engine.fuses:
            return None
        ready = self._ready(optimizer, tuple(optimizer.parameter_names()))
        if ready is None or not self._layout.engine.fuses:  # type: ignore[union-attr]
            return None
        step, numbers = ready
        outputs, written = step.run(inputs, optimizer.loss, numbers, self._packed)  # type: ignore[attr-defined]
        self._write(written)
        return outputs

    def _write(self, written: Sequence[Packed]) -> None:
        layout = self._layout
        for number, slots in enumerate(written):
            self._packed[number].update(slots)
            chunk = layout.chunks[number]  # type: ignore[union-attr]
            if not slots.keys() <= chunk.slots:
                layout.chunks[number] = chunk._replace(slots=chunk.slots.union(slots))  # type: ignore[union-attr]

    def _ready(self, optimizer: Any, names: tuple[str, ...]) -> tuple[Step, list[float]] | None:
        """The step for these parameters and its numbers, with the state packed for it."""
        make = getattr(optimizer.executor, "update_engine", None)
        if make is None or not names:
            self.refusal = "this backend compiles no updates" if make is None else "there are no parameters"
            return None
        try:
            chunks = self._chunks(optimizer, names)
            programs, updates, numbers = self._traced(optimizer, chunks)
            if self._layout is None:
                self._lay_out(optimizer.network, make, names, chunks)
            steps = self._layout.steps  # type: ignore[union-attr]
            if programs not in steps:
                if len(steps) == _MOST_PROGRAMS:
                    raise Untraceable("it computes something else in every step")
                steps[programs] = self._layout.engine.compile(updates)  # type: ignore[union-attr]
        except Untraceable as refusal:
            self.refusal, _ = str(refusal), self.state  # which unpacks it
            return None
        self.refusal = ""
        return steps[programs], numbers

    def _chunks(self, optimizer: Any, names: tuple[str, ...]) -> list[Chunk]:
        network, layout = optimizer.network, self._layout
        if layout is not None and layout.version == network.version and layout.names == names:
            return layout.chunks
        state, chosen, alike = self.state, set(names), dict[Any, list[list[str]]]()
        for number, part in enumerate(optimizer.parts()):
            room = dict[Any, int]()
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

    def _traced(self, optimizer: Any, chunks: Sequence[Chunk]) -> tuple[tuple[Program, ...], list[Update], list[float]]:
        parts, numbers = optimizer.parts(), list[float]()
        traces: dict[tuple[int, frozenset[str]], tuple[Program, int]] = {}
        for part, _, slots in chunks:
            if (part, slots) not in traces:
                program, more = trace(optimizer, optimizer.values_of(parts[part]), slots)
                traces[part, slots] = program, len(numbers)
                numbers.extend(more)
        updates = [Update(chunk.names, *traces[chunk.part, chunk.slots]) for chunk in chunks]
        return tuple(update.program for update in updates), updates, numbers

    def _lay_out(
        self, network: Any, make: Callable[[], UpdateEngine], names: tuple[str, ...], chunks: list[Chunk]
    ) -> None:
        key = network.version, tuple((chunk.part, chunk.names) for chunk in chunks)
        if key not in self._layouts:
            if any(layout.version != network.version for layout in self._layouts.values()):
                self._layouts.clear()
            shapes = {name: network.parameters[name].value.shape for name in names}
            self._layouts[key] = _Layout(network.version, names, shapes, make(), chunks)
        layout = self._layouts[key]
        layout.chunks = chunks
        self._packed = layout.packed(self._state)
        self._layout = layout
