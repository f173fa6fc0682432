"""Updates of all parameters in one ``tf.function``, with forward and backward pass where nothing comes between.

What is remembered is in variables, which the function writes. They have the layout of the parameters' variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.dtypes import from_array, to_array
from deep500.frameworks.tensorflow.operators.windows import kernel_first
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.losses import gradient_name
from deep500.training.optimizers.compiling import CHUNK, Packed, Update, UpdateEngine
from deep500.training.optimizers.tracing import FUNCTIONS


def _power(x: Any, exponent: Any) -> Any:
    return tf.sqrt(x) if type(exponent) is float and exponent == 0.5 else x**exponent


_FUNCTIONS = {**FUNCTIONS, "pow": _power}


def _joined(tensors: Sequence[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


class Engine(UpdateEngine):
    """Traces updates."""

    fuses = True

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        self.kernels = frozenset(executor.kernels)
        self.shapes = {name: tuple(variable.shape) for name, variable in executor.variables.items()}
        self.slots: dict[tuple[tuple[str, ...], str], Any] = {}

    def lay(self, name: str, array: np.ndarray) -> np.ndarray:
        """An array of a parameter's shape, in the layout of its variable."""
        return to_array(self.executor.turned(name, from_array(array)))

    def show(self, name: str, array: np.ndarray) -> np.ndarray:
        """Reverse :meth:`lay`, of an array in a row."""
        tensor = from_array(array.reshape(self.shapes[name]))
        return to_array(kernel_first(tensor) if name in self.kernels else tensor)

    def hold(self, names: tuple[str, ...], slot: str, array: np.ndarray) -> Any:
        """A variable, the same one every time."""
        if (names, slot) not in self.slots:
            with tf.device(self.executor.tf_device):
                self.slots[names, slot] = tf.Variable(from_array(array), trainable=False)
        else:
            self.slots[names, slot].assign(from_array(array))
        return self.slots[names, slot]

    def compile(self, updates: Sequence[Update]) -> _Step:
        """Return the step for all chunks."""
        written = []
        for names, program, _ in updates:
            size = sum(int(np.prod(self.shapes[name])) for name in names)
            shape = self.shapes[names[0]] if len(names) == 1 else (size,)
            zeros = np.zeros(shape, self.executor.network.parameters[names[0]].value.dtype)
            for slot, _ in program.writes:
                if (names, slot) not in self.slots:
                    self.hold(names, slot, zeros)
            written.append({slot: self.slots[names, slot] for slot, _ in program.writes})
        return _Step(self, updates, written)


class _Step:
    """A step for all chunks, alone or with the network."""

    def __init__(self, engine: Engine, updates: Sequence[Update], written: list[Packed]) -> None:
        self.engine, self.updates, self.written = engine, updates, written
        self.names = [name for update in updates for name in update.names]
        self.variables = [engine.executor.variables[name] for name in self.names]
        self._fused: tuple[Any, Callable[..., Any]] | None = None
        self._traced = tf.function(self._update, autograph=False)

    def _update(self, numbers: Any, gradients: Mapping[str, Any]) -> None:
        """Update all variables; gradients come in their layout."""
        for update, written in zip(self.updates, self.written, strict=True):
            some = [gradients[name] for name in update.names]
            variables = [self.engine.executor.variables[name] for name in update.names]
            self._rule(update, variables, written)(some, numbers[update.first : update.first + update.program.count])

    def _rule(self, update: Update, variables: Sequence[Any], written: Packed) -> Callable[..., Any]:
        program = update.program

        def rule(gradients: Sequence[Any], numbers: Any) -> None:
            params = [variable.read_value() for variable in variables]
            slots = {slot: self.engine.slots[update.names, slot].read_value() for slot in program.reads}
            values = tf.unstack(tf.cast(numbers, params[0].dtype), program.count)
            new, after = program(_joined(gradients), _joined(params), slots, values, _FUNCTIONS)
            pieces = [new] if len(params) == 1 else tf.split(new, [int(np.prod(p.shape)) for p in params])
            for variable, piece in zip(variables, pieces, strict=True):
                variable.assign(tf.reshape(piece, variable.shape))
            for slot, value in after.items():
                written[slot].assign(value)

        # Memory decides how long large tensors take, and XLA reads and writes each of them once, in place.
        large = len(variables) == 1 and variables[0].shape.num_elements() > CHUNK
        xla = large and self.engine.executor.device.kind == "cpu"
        return tf.function(rule, autograph=False, jit_compile=True) if xla else rule

    def __call__(
        self, numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]
    ) -> list[Packed]:
        executor = self.engine.executor
        if gradients is None:
            gradients = dict(
                zip(self.names, executor.network.fetch_tensors([gradient_name(n) for n in self.names]), strict=True)
            )
        with tf.device(executor.tf_device):
            laid = {name: executor.turned(name, gradients[name]) for name in self.names}
            self._traced(tf.constant(numbers, tf.float64), laid)
        self._forget()
        return self.written

    def run(
        self, inputs: Mapping[str, Any], loss: str, numbers: list[float], packed: Sequence[Packed]
    ) -> tuple[dict[str, Any], list[Packed]]:
        """Run the network forward and backward, and update; returns its outputs and the slots."""
        executor = self.engine.executor
        compiled, events = executor.checked_step(inputs, loss), executor.events
        if self._fused is None or self._fused[0] is not compiled:

            def fused(numbers: Any, *values: Any) -> Any:
                results, gradients = compiled.run(*values)
                self._update(numbers, dict(zip(compiled.gradients, gradients, strict=True)))
                return results, gradients

            self._fused = compiled, compiled.trace(fused)
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, executor)
        given = tf.constant(numbers, tf.float64)
        results, gradients = executor.run(compiled, inputs, self._fused[1], given)
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, executor)
        self._forget()
        return executor.keep(compiled, results, gradients), self.written

    def _forget(self) -> None:
        for name in filter(self.engine.executor.is_constant, self.names):
            self.engine.executor.forget_constant(name)
