"""Capabilities of this backend's executors, beyond running a network: the protocols of
:mod:`deep500.networks.execution.capabilities`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from deep500.frameworks.pytorch.failures import CAUGHT, raise_ours
from deep500.frameworks.pytorch.memory import footprint, requested, settle
from deep500.frameworks.pytorch.numerics import one_thread
from deep500.networks.execution.differentiating import DifferentiatingExecutor
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.losses import find_loss

if TYPE_CHECKING:
    from deep500.transformations.recomputation.chain import Stage


class Capabilities(DifferentiatingExecutor):
    """An executor that watches gradients, pulls back from any value, and counts memory; the rest is a subclass's."""

    torch_device: torch.device
    _trainable: list[torch.Tensor]
    _watcher: Callable[[str, Any], None] | None
    _hooks: list[Any]
    _tensor: Callable[[Any], Any]
    engine: Any

    def _run(self, compiled: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def watch_gradients(self, callback: Callable[[str, Any], None] | None) -> None:
        """Report gradients of the parameters that can have one, by hooks on them (see ``WatchesGradients``)."""
        for handle in self._hooks:
            handle.remove()
        self._watcher, self._hooks = callback, []
        if callback is not None:
            self._hooks = [
                tensor.register_post_accumulate_grad_hook(_reporter(callback, name))
                for name, tensor in self.tensors.items()
                if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad
            ]

    def pull_back(
        self, inputs: Mapping[str, Any], seeds: Mapping[str, Any], wrt: Sequence[str], outputs: Sequence[str]
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """By automatic differentiation (see ``PullsBack``)."""
        self.refresh()
        names = tuple(dict.fromkeys([*seeds, *outputs]))
        compiled = self.compiled(names, None)
        compiled.check(inputs)
        leaves = {name: self._tensor(inputs[name]).detach().requires_grad_() for name in wrt}
        training = compiled.module.training
        compiled.module.eval()
        try:
            values = self._run(compiled, {**inputs, **leaves})
            goals = {name: values[name] for name in seeds if values[name].requires_grad}
            directions = [self._tensor(seeds[name]) for name in goals]
            results = torch.autograd.grad(list(goals.values()), list(leaves.values()), directions, allow_unused=True)
        except CAUGHT as error:
            raise_ours(error, compiled.module, "backward")
            raise
        finally:
            compiled.module.train(training)
        gradients = {
            name: torch.zeros_like(leaf) if gradient is None else gradient
            for (name, leaf), gradient in zip(leaves.items(), results, strict=True)
        }
        return gradients, {name: values[name].detach() for name in outputs}

    def peak_memory(self, reset: bool = False) -> int | None:
        """Largest sum of tensors on the GPU since the last reset, in bytes; None on the CPU."""
        if self.torch_device.type != "cuda":
            return None
        peak = requested(self.torch_device, "peak")
        if reset:
            torch.cuda.reset_peak_memory_stats(self.torch_device)
        return int(peak)

    @contextmanager
    def rehearsal(self) -> Iterator[GraphExecutor]:
        """See the base class; what it draws does not move torch's generators, which belong to the whole process."""
        with torch.random.fork_rng(), super().rehearsal() as twin:
            yield twin

    def by_one_thread(self) -> AbstractContextManager[None]:
        """See ``ComputesByOneThread``: convolutions and products add up what their threads computed."""
        return one_thread()

    def _let_go(self) -> None:
        self._results = {}
        for parameter in self._trainable:
            parameter.grad = None

    def step_memory(self, inputs: Mapping[str, Any], loss: str = "loss") -> int:
        """By the allocator's own events, also on the CPU (see ``CountsStepMemory``)."""
        if self.torch_device.type == "cuda":  # libraries get their workspaces at the first step, and keep them
            self.inference_and_backprop(inputs, loss)
        self._let_go()
        settle()
        return footprint(lambda: self.inference_and_backprop(inputs, loss), self.torch_device).peak

    def measure_stages(
        self, stages: Sequence[Collection[str]], inputs: Mapping[str, Any], loss: str = "loss", passes: int = 5
    ) -> list[Stage]:
        """Bytes of every stage by the allocator, and the least time of ``passes`` (see ``MeasuresStages``)."""
        from deep500.frameworks.pytorch.stages import measure

        self.refresh()
        outputs = tuple(self.network.outputs)
        compiled = self.compiled(outputs if loss in outputs else (*outputs, find_loss(self.network, loss)), None)
        compiled.check(inputs)
        tensors = [self._tensor(inputs.get(name)) for name in compiled.inputs]
        compiled.module.train()
        return measure(compiled, self.network, stages, tensors, loss, passes)

    def start_engine(self, kind: str, comm: Any, loss: str, options: Mapping[str, Any]) -> Any:
        """One of :mod:`deep500.frameworks.pytorch.engines` (see ``TrainsByEngines``)."""
        from deep500.frameworks.pytorch.engines import start

        self._compiled = {key: compiled for key, compiled in self._compiled.items() if key[1] is None}
        self.engine = start(kind, self, comm, loss, options)
        return self.engine

    def step_profiler(self, loss: str | None) -> Any:
        """See ``ProfilesSteps``."""
        from deep500.frameworks.pytorch.profiling import StepProfiler

        return StepProfiler(self, loss)


def _reporter(callback: Callable[[str, Any], None], name: str) -> Callable[[torch.Tensor], None]:
    return lambda parameter: callback(name, parameter.grad)
