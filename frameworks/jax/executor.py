"""`Executor`: a network compiled to pure functions under ``jax.jit`` and run with JAX's own automatic differentiation.

There is one compiled function per (outputs, mode); JAX compiles it anew for each input shape and keeps what it
compiled, so that the smaller last batch of an epoch costs one compilation. Parameters, running statistics and random
keys are arguments. Buffers of parameters are never donated: callers who fetched them still hold them.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from copy import copy
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from deep500.devices import Device
from deep500.errors import InputError, MissingDevice
from deep500.frameworks.jax.compiler import TARGET, PureFunction, pure_function
from deep500.frameworks.jax.dtypes import DTYPES, place
from deep500.frameworks.jax.functions import Compiled
from deep500.frameworks.jax.memory import step_memory
from deep500.frameworks.jax.network import JaxNetwork
from deep500.keywords import hands_on
from deep500.networks.execution.differentiating import DifferentiatingExecutor
from deep500.networks.execution.framework_clock import FrameworkClock
from deep500.networks.execution.guards import guarded
from deep500.networks.execution.options import ExecutorOptions
from deep500.networks.execution.program import Program, from_network
from deep500.networks.network import Choice, Network, Parameter


@dataclass(frozen=True, kw_only=True)
class JaxOptions(ExecutorOptions):
    """Options of this backend beside those of all.

    Where kernels are to be ``deterministic``, XLA must have been told so when the process started
    (``XLA_FLAGS=--xla_gpu_deterministic_ops=true``).

    Attributes:
        seed: of Dropout and its like, see :meth:`Executor.reseed`.
    """

    seed: int = 0


@hands_on(JaxOptions)
def from_model(network: Network, device: Device | str | None = None, **options: Any) -> Executor:
    """An executor for a network, which is copied; ``options`` are those of :class:`JaxOptions`.

    Raises:
        UnsupportedOperator: naming every node that cannot be run.

    Example:
        >>> from deep500.networks import create
        >>> executor = from_model(create("mlp", shape=(4,), classes=3))
        >>> executor.inference({"input": np.ones((2, 4), "float32")})["output"].shape
        (2, 3)
    """
    return Executor(network, device, **options)


@hands_on(JaxOptions)
def from_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    device: Device | str | None = None,
    trainable: Choice | None = None,
    **options: Any,
) -> Executor:
    """An executor for an ONNX model: a path, bytes or a message; see :func:`from_model` for the options."""
    return Executor(Network.from_onnx(model, trainable), device, copy=False, **options)


class Executor(DifferentiatingExecutor):
    """A network as jitted functions on a device; see :func:`from_model` for the arguments."""

    backend = "jax"
    choices = ("precision", "deterministic")
    always_random = False  # whether every run gets a key, whatever its nodes are
    network: JaxNetwork
    engine: Any  # of JAX's own on several ranks, which a scheme trains by; None: none
    network_type = JaxNetwork
    options_type = JaxOptions

    def prepare(self, device: Device | str | None, options: JaxOptions) -> None:
        super().prepare(device, options)
        if self.deterministic and "--xla_gpu_deterministic_ops=true" not in os.environ.get("XLA_FLAGS", ""):
            raise InputError(
                "got deterministic=True and an XLA that was not told; expected "
                "XLA_FLAGS=--xla_gpu_deterministic_ops=true in the environment: set it before the process starts"
            )
        self._peak_before: int | None = None
        self.engine = None
        number = self.device.index
        self.jax_device = _devices("gpu")[number] if self.device.kind == "gpu" else _cpu(number)
        self.written: set[str] = set()  # constants that were fed since: no longer written into the functions
        self.wide = True
        self.usual = self.jax_device == jax.local_devices()[0] and self.device.kind == "cpu"
        self.reseed(options.seed)

    def count_gpus(self, wished: Device) -> int:
        return len(_devices("gpu")) if wished.kind == "gpu" else 0

    def settings(self) -> AbstractContextManager[Any]:
        """Settings while functions are traced, compiled and called: what is folded lands on its device."""
        settings = ExitStack()
        settings.enter_context(jax.default_device(self.jax_device))
        if self.device.kind == "gpu":  # JAX's own default there is TF32
            settings.enter_context(
                jax.default_matmul_precision("highest" if self.precision == "ieee" else "tensorfloat32")
            )
        return settings

    # -- compiling --------------------------------------------------------------------------------------------------
    def live(self, name: str, parameter: Parameter) -> Any:
        if parameter.value.dtype.name not in DTYPES:
            return parameter.value  # refused when a node wants it
        return place(parameter.value, self.jax_device)

    def zeros(self, name: str) -> jax.Array:
        return jax.numpy.zeros_like(self.tensors[name])

    def build(self, outputs: tuple[str, ...], loss: str | None) -> Compiled:
        program = self.program(outputs)
        return Compiled(self, program if loss is None else guarded(program), loss is not None, loss or "")

    def forget_constant(self, name: str) -> None:
        """See the base class; the parameter is an argument of what is compiled from now on."""
        self.written.add(name)
        super().forget_constant(name)

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
        compiled = Compiled(self, self.program(self.network.outputs if outputs is None else outputs), training)
        return self.pure(compiled, compiled.constants)

    # -- running ----------------------------------------------------------------------------------------------------
    def forward(self, compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self.engine is not None:
            self.engine.check_whole()
        results, _ = compiled(inputs)
        return {name: results[name] for name in compiled.outputs}

    def step(self, compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self.engine is not None:
            return self.engine.step(compiled, inputs)
        (_, (results, state)), gradients = compiled(inputs)
        self.tensors.update(state)
        self.gradients = {**dict(zip(compiled.trained, gradients, strict=True)), **compiled.unreached}
        return {name: results[name] for name in compiled.outputs}

    def clocked(self, compiled: Compiled, clock: FrameworkClock) -> Compiled:
        def whole(function: Callable[..., Any]) -> Callable[..., Any]:
            return clock.timed(lambda *operands: jax.block_until_ready(function(*operands)))

        watched = copy(compiled)
        watched.variants = OrderedDict((key, whole(function)) for key, function in compiled.variants.items())
        return watched

    def wait(self) -> None:
        """Nothing: what is called under the clock waits for its own results."""

    def update_engine(self) -> type:
        """The class that compiles updates: jitted functions, with the step of all ranks if there is an engine."""
        if self.engine is not None:
            from deep500.frameworks.jax.engines import RanksUpdater

            return RanksUpdater
        from deep500.frameworks.jax.updates import Updater

        return Updater

    def start_engine(self, kind: str, comm: Any, loss: str, options: Mapping[str, Any]) -> Any:
        """One of :mod:`deep500.frameworks.jax.engines` (see ``TrainsByEngines``)."""
        from deep500.frameworks.jax.engines import start

        self._compiled = {key: compiled for key, compiled in self._compiled.items() if key[1] is None}
        self.engine = start(kind, self, comm, loss, options)
        return self.engine

    def keep(self, results: Mapping[str, Any]) -> None:
        """Hold the outputs of a run for who asks."""
        self._results = dict(results)

    def next_draw(self) -> np.ndarray:
        """Seed and number of the next run's random key."""
        self.runs += 1
        return np.array([self.seed & (2**63 - 1), self.runs], np.int64)

    def reseed(self, seed: int) -> None:
        """Start the random keys anew: run ``n`` from here on draws by ``fold_in(key(seed), n)``."""
        super().reseed(seed)
        self.runs = 0

    def synchronize(self) -> None:
        """Wait for the arrays of the last run."""
        jax.block_until_ready((self._results, self.gradients, self.tensors))

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

    def step_profiler(self, loss: str | None) -> Any:
        """See :class:`ProfilesSteps`."""
        from deep500.frameworks.jax.profiling import StepProfiler

        return StepProfiler(self, loss)


def _cpu(index: int) -> jax.Device:
    """JAX's device of the CPU: the first, unless ``XLA_FLAGS`` made several."""
    there = _devices("cpu")
    if index >= len(there):
        raise MissingDevice(
            f"got device cpu:{index}; expected one of the {len(there)} processors that JAX sees: let JAX_PLATFORMS "
            "name cpu too (cuda,cpu), or ask for another device"
        )
    return there[index]


def _devices(kind: str) -> list[Any]:
    """JAX's devices of a kind in this process, none if there is no such platform."""
    try:
        return jax.local_devices(backend=kind)
    except RuntimeError:
        return []


__all__ = ["Executor", "JaxNetwork", "from_model", "from_onnx"]
