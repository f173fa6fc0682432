"""The reference executor: NumPy, written to be read. What it computes is what every other backend must compute.

It trains by running the network that :meth:`deep500.networks.Network.with_gradient` emits, on the same kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from deep500.devices import Device, fall_back, to_device
from deep500.frameworks.reference.compiler import KernelProgram
from deep500.frameworks.reference.meter import HeldBytes, node_times
from deep500.frameworks.reference.operators.table import Random
from deep500.networks.execution.emitted_gradient import EmittedGradientExecutor
from deep500.networks.execution.options import ExecutorOptions
from deep500.networks.execution.precision import used_precision
from deep500.networks.graph import Graph
from deep500.networks.quantization import differentiable
from deep500.transformations.recomputation.rewriting import executed_step


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions(ExecutorOptions):
    """Options of this backend beside those of all; NumPy always computes as IEEE says, and the same bits every time.

    Attributes:
        seed: of Dropout and its like, see :meth:`Executor.reseed`.
    """

    seed: int = 0


class Executor(EmittedGradientExecutor):
    """Runs a network with NumPy.

    Args:
        network: stays as it is; ``executor.network`` is a copy of it, bound to this executor.
        device: the CPU; another one falls back to it with a warning.
        options: fields of :class:`ReferenceOptions`.

    Raises:
        UnsupportedOperator: naming every node that neither we nor ONNX's reference evaluator can run.

    Example:
        >>> import deep500.networks as d5nt
        >>> import numpy as np
        >>> executor = Executor(d5nt.create("mlp", shape=(4,), classes=3))
        >>> executor.inference({"input": np.ones((2, 4), "float32")})["output"].shape
        (2, 3)
    """

    backend = "reference"

    def __init__(self, network: Graph, device: Device | str | None = None, **options: Any) -> None:
        asked = ReferenceOptions(**options)
        network = differentiable(network, asked.quantization)
        super().__init__(fall_back(to_device(device), 0, asked.strict), network)
        used_precision(asked.precision, self.device)  # raises for a name that no backend knows
        self.random = Random(asked.seed)
        self._inference(tuple(network.outputs))

    # -- compiling --------------------------------------------------------------------------------------------------
    def step_network(self, loss: str) -> tuple[Graph, dict[str, str]]:
        """The network in training mode ``with_gradient``, or what a recomputation plan makes of that."""
        return executed_step(self.network, self.checkpointing, loss)

    def inference_program(self, outputs: tuple[str, ...]) -> KernelProgram:
        return KernelProgram(self.network, outputs, self.random, self.network.parameters)

    def training_program(self, step: Graph, outputs: Sequence[str], statistics: Sequence[str]) -> KernelProgram:
        return KernelProgram(step, outputs, self.random, self.network.parameters)

    def reseed(self, seed: int) -> None:
        """See :meth:`GraphExecutor.reseed`."""
        super().reseed(seed)
        self.random.reseed(seed)

    # -- measuring --------------------------------------------------------------------------------------------------
    def step_memory(self, inputs: Mapping[str, Any], loss: str = "loss") -> int:
        """See :class:`CountsStepMemory`: by the arrays themselves, after each kernel; views do not count again.

        What a kernel needs inside, such as the columns of a convolution, is not counted; ``tracemalloc`` sees that too.
        """
        self._check_planned(inputs, loss)
        watch = HeldBytes([*inputs.values(), *(p.value for p in self.network.parameters.values())])
        training = self._training(loss)
        self._trainings[loss] = training._replace(run=partial(training.program.run, watch=watch))
        try:
            self.inference_and_backprop(inputs, loss)
        finally:
            self._trainings[loss] = training
        return watch.peak

    def node_times(self, network: Graph, inputs: Mapping[str, Any], samples: int = 5) -> dict[str, float]:
        """See :class:`TimesNodes`: of each kernel in a run of all of them."""
        return node_times(KernelProgram(network, network.outputs, Random(0)), inputs, samples)

    def step_profiler(self, loss: str | None) -> Any:
        """See :class:`ProfilesSteps`."""
        from deep500.frameworks.reference.profiling import StepProfiler

        return StepProfiler(self, loss)
