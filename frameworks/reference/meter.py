"""Seconds of each kernel of a run, and the bytes of the arrays that live while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from deep500.frameworks.reference.compiler import KernelProgram, KernelStep


class HeldBytes:
    """Counts the bytes of arrays between two kernels; give it to :meth:`KernelProgram.run`.

    An array counts once however many views of it are held, and as long as one is. What was there before, inputs and
    parameters, does not count, nor does what a kernel needs inside.

    Attributes:
        live: bytes held now.
        peak: the most that were held while a kernel ran, its results included.

    Example:
        >>> from deep500.frameworks.reference.operators.table import Random
        >>> from deep500.networks import Network
        >>> net = Network(); net.add_input("x", (8, 3)); net.add_node("Exp", ["x"], ["a"])
        >>> net.add_node("Tanh", ["a"], ["b"]); net.add_node("Abs", ["b"], ["c"]); net.add_output("c")
        >>> x = np.ones((8, 3), "float32")
        >>> held = HeldBytes([x])
        >>> _ = KernelProgram(net, ["c"], Random()).run({"x": x}, held)
        >>> held.peak, held.live
        (192, 96)
    """

    def __init__(self, inputs: Iterable[Any]) -> None:
        self.live = self.peak = 0
        self._inputs = {id(base_of(value)) for value in inputs if isinstance(value, np.ndarray)}
        self._slots: dict[int, tuple[np.ndarray, ...]] = {}
        self._uses: dict[int, int] = {}  # in how many slots an array is

    def __call__(self, step: KernelStep, values: list[Any]) -> None:
        """Take in the results of a kernel, then release what is not read later."""
        slots, uses = self._slots, self._uses
        for slot in step.writes:
            value = values[slot]
            simple = type(value) is np.ndarray and value.base is None
            for base in (value,) if simple else map(base_of, _arrays(value)):
                key = id(base)
                if key in self._inputs or not slot:
                    continue
                slots[slot] = (*slots[slot], base) if slot in slots else (base,)
                count = uses.get(key, 0)
                uses[key] = count + 1
                if not count:
                    self.live += base.nbytes
        self.peak = max(self.peak, self.live)
        for slot in step.done:
            for base in slots.pop(slot, ()):
                key = id(base)
                if uses[key] == 1:
                    del uses[key]
                    self.live -= base.nbytes
                else:
                    uses[key] -= 1


class Marks:
    """Takes the time after each kernel; give it to :meth:`KernelProgram.run`. It looks at the clock once per kernel.

    Example:
        >>> from deep500.frameworks.reference.operators.table import Random
        >>> from deep500.networks import Network
        >>> net = Network(); net.add_input("x", (8, 3)); net.add_node("Relu", ["x"], ["y"]); net.add_output("y")
        >>> marks, program = Marks(), KernelProgram(net, ["y"], Random())
        >>> _ = program.run({"x": np.ones((8, 3), "float32")}, marks.start())
        >>> len(marks.seconds())
        1
    """

    def __init__(self) -> None:
        self._times: list[float] = []

    def start(self) -> Marks:
        """Begin a run; returns itself."""
        self._times = [perf_counter()]
        return self

    def __call__(self, step: KernelStep, values: list[Any]) -> None:
        """A kernel is done."""
        self._times.append(perf_counter())

    def seconds(self) -> list[float]:
        """From each kernel's end to the next one's."""
        return [after - before for before, after in pairwise(self._times)]


def node_times(program: KernelProgram, inputs: Mapping[str, Any], samples: int) -> dict[str, float]:
    """Seconds of each node of a program by the first value that it writes: the least of ``samples`` runs after a first.

    Example:
        >>> from deep500.frameworks.reference.operators.table import Random
        >>> from deep500.networks import Network
        >>> net = Network(); net.add_input("x", (8, 3)); net.add_node("Relu", ["x"], ["y"]); net.add_output("y")
        >>> times = node_times(KernelProgram(net, ["y"], Random()), {"x": np.ones((8, 3), "float32")}, 5)
        >>> list(times), 0 < times["y"] < 1
        (['y'], True)
    """
    program.run(inputs)
    marks, runs = Marks(), []
    for _ in range(samples):
        program.run(inputs, marks.start())
        runs.append(marks.seconds())
    least = map(min, zip(*runs, strict=True))
    return {step.node.writes[0]: seconds for step, seconds in zip(program.steps, least, strict=True)}


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, list):
        return [array for item in value for array in _arrays(item)]
    return [value] if isinstance(value, np.ndarray) else []


def base_of(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
