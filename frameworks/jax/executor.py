"""`Executor`: a network compiled to pure functions under ``jax.jit`` and run with JAX's own automatic differentiation.

There is one compiled function per (outputs, mode); JAX compiles it anew for each input shape and keeps what it
compiled, so that the smaller last batch of an epoch costs one compilation. Parameters, running statistics and random
keys are arguments. Buffers of parameters are never donated: callers who fetched them still hold them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import jax
import numpy as np

from deep500.devices import Device, fall_back, to_device
from deep500.errors import InputError, MissingDevice
from deep500.frameworks.jax.compiler import TARGET, PureFunction, pure_function
from deep500.frameworks.jax.dtypes import DTYPES, place
from deep500.frameworks.jax.functions import Compiled
from deep500.frameworks.jax.memory import step_memory
from deep500.networks.execution.executor import BoundNetwork, GraphExecutor
from deep500.networks.execution.precision import used_precision
from deep500.networks.execution.program import Program, from_network
from deep500.networks.execution.refusals import unfit_parameter, unknown_parameter, unknown_value
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.network import Choice, Network, Parameter
from deep500.networks.quantization import differentiable


def from_model(
    network: Network,
    device: Device | str | None = None,
    strict: bool = False,
    seed: int = 0,
    quantization: str | None = None,
    precision: str = "ieee",
    deterministic: bool = False,
) -> Executor:
    """An executor for a network.

    Args:
        network: is copied.
        device: the processor if None; without a GPU, a ``GPUDevice`` falls back to it with a warning.
        strict: raise MissingDevice instead of falling back.
        seed: of Dropout and its like, see :meth:`Executor.reseed`.
        quantization: what gradients of quantised values are: none, or those of the straight-through estimator
            (``"straight_through"``, see :mod:`deep500.networks.quantization`).
        precision: of float32 on a GPU: ``"ieee"``, or ``"tf32"``, which rounds what products and convolutions take to
            ten bits of fraction and differs by 1e-3. Processors compute as IEEE says, whatever is asked for.
        deterministic: on a GPU, allow only kernels that give the same bits every time; XLA must have been told
            so when the process started (``XLA_FLAGS=--xla_gpu_deterministic_ops=true``).

    Raises:
        UnsupportedOperator: naming every node that cannot be run.

    Example:
        >>> from deep500.networks import create
        >>> executor = from_model(create("mlp", shape=(4,), classes=3))
        >>> executor.inference({"input": np.ones((2, 4), "float32")})["output"].shape
        (2, 3)
    """
    return Executor(network, device, strict, seed, quantization, precision, deterministic)


def from_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    device: Device | str | None = None,
    trainable: Choice | None = None,
    **options: Any,
) -> Executor:
    """An executor for an ONNX model: a path, bytes or a message; see :func:`from_model` for the options."""
    return Executor(Network.from_onnx(model, trainable), device, **options)


class JaxNetwork(BoundNetwork):
    """The network of an executor; its tensors are JAX arrays, which are immutable."""

    def __init__(self, network: Network, executor: Executor) -> None:
        super().__init__(network)
        self._executor = executor

    def fetch_tensors(self, names: Sequence[str]) -> list[Any]:
        """Parameters, gradients and outputs of the last run, as they are now (see the base class)."""
        self._executor.refresh()
        return [self._executor.value(name) for name in names]

    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter (see the base class)."""
        self._executor.set_tensor(name, value, copy=True)

    def assign_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter; an array of JAX's is taken as it is."""
        self._executor.set_tensor(name, value, copy=False)

    def leave_gradients(self, gradients: Mapping[str, Any]) -> None:
        """In ``executor.gradients``."""
        self._executor.gradients.update(gradients)

    def weighted_sum(self, terms: Sequence[Sequence[Any]], weights: Sequence[float]) -> list[Any]:
        """One jitted function of all arrays."""
        return _weighted_sum([list(term) for term in terms], list(weights))

    def concatenate(self, tensors: Sequence[Any]) -> jax.Array:
        """By ``jax.numpy.concatenate``."""
        return jax.numpy.concatenate(list(tensors))

    def to_tensor(self, array: np.ndarray) -> jax.Array:
        """An array as one of JAX's on the device (a copy)."""
        return place(array, self._executor.jax_device)


class Executor(GraphExecutor):
    """A network as jitted functions on a device; see :func:`from_model` for the arguments."""

    backend = "jax"
    choices = ("precision", "deterministic")
    always_random = False  # whether every run gets a key, whatever its nodes are
    network: JaxNetwork

    def __init__(
        self,
        network: Network,
        device: Device | str | None = None,
        strict: bool = False,
        seed: int = 0,
        quantization: str | None = None,
        precision: str = "ieee",
        deterministic: bool = False,
    ) -> None:
        self._prepare(device, strict, seed)
        self.precision = used_precision(precision, self.device)
        self.deterministic = deterministic and self.device.kind == "gpu"
        if self.deterministic and "--xla_gpu_deterministic_ops=true" not in os.environ.get("XLA_FLAGS", ""):
            raise InputError(
                "got deterministic=True and an XLA that was not told; expected "
                "XLA_FLAGS=--xla_gpu_deterministic_ops=true in the environment: set it before the process starts"
            )
        self.network = JaxNetwork(differentiable(network, quantization), self)
        self.refresh()
        self._compile(tuple(self.network.outputs), False)

    def _prepare(self, device: Device | str | None, strict: bool, seed: int) -> None:
        """Everything that needs no network."""
        wanted = to_device(device)
        gpus = _devices("gpu") if wanted.kind == "gpu" else []
        super().__init__(fall_back(wanted, len(gpus), strict))
        self._peak_before: int | None = None
        self.jax_device = gpus[self.device.index] if self.device.kind == "gpu" else _processor(self.device.index)
        self.tensors: dict[str, Any] = {}
        self.gradients: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        self.written: set[str] = set()  # constants that were fed since: no longer written into the functions
        self._sources: dict[str, Parameter] = {}
        self._compiled: dict[tuple[tuple[str, ...], bool, str], Compiled] = {}
        self._version: int | None = None
        self.wide = True
        self.usual = self.jax_device == jax.devices()[0] and self.device.kind == "cpu"
        self.reseed(seed)

    def settings(self) -> AbstractContextManager[Any]:
        """What holds while functions are traced, compiled and called: what is folded lands on its device."""
        held = ExitStack()
        held.enter_context(jax.default_device(self.jax_device))
        if self.device.kind == "gpu":  # JAX's own default there is TF32
            held.enter_context(jax.default_matmul_precision("highest" if self.precision == "ieee" else "tensorfloat32"))
        return held

    # -- compiling --------------------------------------------------------------------------------------------------
    def refresh(self) -> None:
        """Take notice of edits: arrays of parameters that stay are kept, what was compiled is dropped."""
        network = self.network
        if self._version == network.version:
            return
        parameters = network.parameters
        self.tensors = {name: self._live(name, parameter) for name, parameter in parameters.items()}
        self._sources = dict(parameters)
        self._compiled, self._version = {}, network.version

    def _live(self, name: str, parameter: Parameter) -> Any:
        if self._sources.get(name) is parameter:
            return self.tensors[name]
        if parameter.value.dtype.name not in DTYPES:
            return parameter.value  # refused when a node wants it
        return place(parameter.value, self.jax_device)

    def _compile(self, outputs: tuple[str, ...], training: bool, loss: str = "") -> Compiled:
        key = (outputs, training, loss)
        if key not in self._compiled:
            self._compiled[key] = Compiled(self, self.program(outputs), training, loss)
        return self._compiled[key]

    def _forget_training(self) -> None:
        self._compiled = {key: compiled for key, compiled in self._compiled.items() if not compiled.loss}

    def program(self, outputs: Sequence[str]) -> Program:
        """The part of the network that these values depend on, in operators that this backend has."""
        return from_network(self.network, outputs, TARGET, {name: name for name in self.tensors})

    def pure(self, compiled: Compiled, known: Mapping[str, Any]) -> PureFunction:
        """The function of a compiled program; ``known`` are the values that stand in it."""
        return pure_function(compiled.program, compiled.training, known, compiled.items, compiled.state)

    def function(self, outputs: Sequence[str] | None = None, training: bool = False) -> PureFunction:
        """The network as a pure function ``f(parameters, state, inputs, key) -> (outputs, new state)``, not jitted.

        All are dicts by the network's names, ``key`` is one of ``jax.random``; ``f`` is good for ``jax.grad``,
        ``jax.vmap`` and the like. Parameters and state together are ``executor.tensors``.

        Example:
            >>> from deep500.networks import create
            >>> executor = from_model(create("mlp", shape=(4,), classes=3))
            >>> f = executor.function()
            >>> outputs, _ = f(executor.tensors, {}, {"input": np.ones((2, 4), "float32")}, jax.random.key(0))
            >>> outputs["output"].shape
            (2, 3)
        """
        self.refresh()
        compiled = self._compile(tuple(self.network.outputs if outputs is None else outputs), training)
        return self.pure(compiled, compiled.constants)

    # -- running ----------------------------------------------------------------------------------------------------
    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run forward in evaluation mode (see the base class)."""
        self.refresh()
        compiled = self._compile(tuple(self.network.outputs if outputs is None else outputs), False)
        compiled.check(inputs)
        events = self.events
        if events.before_forward:
            events.emit(events.before_forward, self)
        results, _ = compiled(inputs)
        if events.after_forward:
            events.emit(events.after_forward, self)
        self.results = results
        return {name: results[name] for name in compiled.outputs}

    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, Any]:
        """Run forward in training mode, then backward (see the base class)."""
        compiled = self.training(inputs, loss)
        events = self.events
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, self)
        (_, (results, state)), gradients = compiled(inputs)
        self.tensors.update(state)
        self.gradients = {**dict(zip(compiled.trained, gradients, strict=True)), **compiled.unreached}
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, self)
        self.results = results
        return {name: results[name] for name in compiled.outputs}

    def training(self, inputs: Mapping[str, Any], loss: str) -> Compiled:
        """The compiled training step for this loss, once these inputs are checked."""
        self._check_planned(inputs, loss)
        self.refresh()
        outputs = tuple(self.network.outputs)
        if loss not in outputs:
            outputs = (*outputs, find_loss(self.network, loss))
        compiled = self._compile(outputs, True, loss)
        compiled.check(inputs)
        return compiled

    def update_engine(self) -> Any:
        """See ``CompilesUpdates``: jitted functions."""
        from deep500.frameworks.jax.updates import Engine

        self.refresh()
        return Engine(self)

    def next_draw(self) -> np.ndarray:
        """Seed and number of the next run's random key."""
        self._runs += 1
        return np.array([self.seed & (2**63 - 1), self._runs], np.int64)

    def reseed(self, seed: int) -> None:
        """Start the random keys anew: run ``n`` from here on draws by ``fold_in(key(seed), n)``."""
        super().reseed(seed)
        self._runs = 0

    def synchronize(self) -> None:
        """Wait for the arrays of the last run."""
        jax.block_until_ready((self.results, self.gradients, self.tensors))

    def peak_memory(self, reset: bool = False) -> int | None:
        """Largest sum of arrays on the GPU, in bytes; None on the processor.

        JAX cannot forget a peak, so it is also None where no later one exceeded that of the last reset.
        """
        peak = (self.jax_device.memory_stats() or {}).get("peak_bytes_in_use")
        before, self._peak_before = self._peak_before, peak if reset else self._peak_before
        return None if peak is None or (before is not None and peak <= before) else int(peak)

    def step_memory(self, inputs: Mapping[str, Any], loss: str = "loss") -> int | None:
        """See ``CountsStepMemory``: what XLA plans to reserve, no step runs (:mod:`deep500.frameworks.jax.memory`)."""
        return step_memory(self, inputs, loss)

    # -- what the network asks ----------------------------------------------------------------------------------------
    def value(self, name: str) -> Any:
        """A parameter, a gradient or an output of the last run."""
        if name in self.tensors:
            return self.tensors[name]
        if name.endswith(".grad") and (parameter := name.removesuffix(".grad")) in self.gradients:
            return self.gradients[parameter]
        if name in self.results:
            return self.results[name]
        raise unknown_value(name, [*self.tensors, *map(gradient_name, self.gradients), *self.results])

    def set_tensor(self, name: str, value: Any, copy: bool) -> None:
        """Overwrite a parameter; functions into which its old value was written are compiled anew."""
        self.refresh()
        if name not in self.tensors:
            raise unknown_parameter(name, self.tensors)
        old, new = self.tensors[name], value if hasattr(value, "dtype") else np.asarray(value)
        if new.dtype != old.dtype or new.shape != old.shape:
            raise unfit_parameter(name, new, old)
        holders = [key for key, c in self._compiled.items() if name in c.constants]
        if holders and not np.array_equal(np.asarray(old), np.asarray(new)):
            self.written.add(name)
            for key in holders:
                del self._compiled[key]
        self.tensors[name] = place(new, self.jax_device)


@jax.jit
def _weighted_sum(terms: list[list[Any]], weights: list[Any]) -> list[Any]:
    return [sum(w * tensor for w, tensor in zip(weights, column, strict=True)) for column in zip(*terms, strict=True)]


def _processor(index: int) -> jax.Device:
    """JAX's device of the processor: the first, unless ``XLA_FLAGS`` made several."""
    there = _devices("cpu")
    if index >= len(there):
        raise MissingDevice(
            f"got device cpu:{index}; expected one of the {len(there)} processors that JAX sees: let JAX_PLATFORMS "
            "name cpu too (cuda,cpu), or ask for another device"
        )
    return there[index]


def _devices(kind: str) -> list[Any]:
    """JAX's devices of a kind, none if there is no such platform."""
    try:
        return jax.devices(kind)
    except RuntimeError:
        return []


__all__ = ["Executor", "JaxNetwork", "from_model", "from_onnx"]
