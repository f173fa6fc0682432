"""Capabilities that only some executors have: count memory, time nodes and stages, report gradients early.

Each capability is a protocol of one method, which a backend's executor has or has not; nothing else declares it. The
functions of this module ask an executor and return None (or False) where it lacks the capability: not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from deep500.networks.graph import Graph

if TYPE_CHECKING:
    from deep500.networks.execution.framework_clock import ClockedStep
    from deep500.networks.execution.step_profile import ProfiledStep


@runtime_checkable
class WatchesGradients(Protocol):
    """An executor that hands out gradients while its backward pass still runs."""

    def watch_gradients(self, callback: Callable[[str, Any], None] | None) -> None:
        """Call ``callback(parameter, gradient)`` in every later backward pass, as soon as a gradient is complete.

        The gradient is a tensor of the framework, to be read only. Parameters that the loss does not reach are not
        reported. There is one watcher at a time; None ends it. A backend may call from a thread of its own.
        """


@runtime_checkable
class ComputesByOneThread(Protocol):
    """An executor whose framework rounds otherwise when another number of threads shares a sum."""

    def by_one_thread(self) -> AbstractContextManager[None]:
        """Within it the framework computes with one thread."""


@runtime_checkable
class PullsBack(Protocol):
    """An executor whose framework differentiates what it runs with respect to inputs."""

    def pull_back(
        self, inputs: Mapping[str, Any], seeds: Mapping[str, Any], wrt: Sequence[str], outputs: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run forward in evaluation mode, and back from several values; nothing is left in the executor.

        Args:
            inputs: tensors or arrays by input name.
            seeds: for each value its gradient.
            wrt: inputs to differentiate with respect to.
            outputs: values to return.

        Returns:
            the gradient of each of ``wrt`` (zeros where none flows), and the outputs.
        """


@runtime_checkable
class CountsPeakMemory(Protocol):
    """An executor whose framework counts what its allocator hands out."""

    def peak_memory(self, reset: bool = False) -> int | None:
        """Most bytes that the framework's allocator had handed out on the device since the last reset.

        None where the framework does not count (on CPUs none does).
        """


@runtime_checkable
class CountsStepMemory(Protocol):
    """An executor that tells what one training step holds."""

    def step_memory(self, inputs: Mapping[str, Any], loss: str = "loss") -> int | None:
        """Most bytes of tensors that one training step holds at once, beyond those held before; runs such a step.

        Gradients of parameters count, as they are made anew in every step; inputs and parameters do not. Running
        statistics are updated and random numbers drawn as in any step.

        Returns:
            bytes by the allocator's own count, exactly; None where it does not count on this device (not measured).
        """


@runtime_checkable
class TimesNodes(Protocol):
    """An executor that runs nodes one by one, and so can time them."""

    def node_times(self, network: Graph, inputs: Mapping[str, Any], samples: int = 5) -> dict[str, float]:
        """Seconds that each node of a network takes on this backend, the least of ``samples`` runs after a first.

        Args:
            network: any, such as a training step of the executor's own; parameters are the network's.
            inputs: arrays or tensors by input name.
            samples: runs.

        Returns:
            seconds by the first value that a node writes.
        """


class StepProfiling(Protocol):
    """Runs steps under a framework's own profiler; ``frameworks/X/profiling.py`` has one of this name."""

    def step(self, inputs: Mapping[str, Any]) -> None:
        """Run one step and note what ran."""

    def finish(self) -> list[ProfiledStep]:
        """End profiling; the steps that were run, in order."""


@runtime_checkable
class ProfilesSteps(Protocol):
    """An executor that brings what its framework's profiler saw back to the network's nodes."""

    def step_profiler(self, loss: str | None) -> StepProfiling:
        """A profiler of training steps on ``loss``; None: forward runs in evaluation mode.

        Raises:
            UnsupportedOperator: for a choice of the executor's under which nodes have no kernels that are known.
        """


@runtime_checkable
class ClocksFramework(Protocol):
    """An executor that tells its framework's share of a training step from Deep500's."""

    def clocked_step(self, inputs: Mapping[str, Any], loss: str = "loss") -> ClockedStep:
        """Run forward and backward once, and wait for the device; what is compiled at first use is in the time."""


@runtime_checkable
class MeasuresStages(Protocol):
    """An executor that keeps the stages of a chain apart."""

    def measure_stages(
        self, stages: Sequence[Collection[str]], inputs: Mapping[str, Any], loss: str = "loss", passes: int = 5
    ) -> Sequence[Any]:
        """Time and bytes of running, recording and reversing each stage of a network that is a chain of them.

        Args:
            stages: for each the values that its nodes write, in order; together they hold the whole forward pass.
            inputs: of a training step.
            loss: the scalar that is differentiated.
            passes: how often times are taken.

        Returns:
            a :class:`deep500.transformations.recomputation.Stage` for each.
        """


def watch_gradients(executor: Any, callback: Callable[[str, Any], None] | None) -> bool:
    """See :meth:`WatchesGradients.watch_gradients`; False means that nothing will be called."""
    if not isinstance(executor, WatchesGradients):
        return False
    executor.watch_gradients(callback)
    return True


def by_one_thread(executor: Any) -> AbstractContextManager[None]:
    """See :meth:`ComputesByOneThread.by_one_thread`; nothing where bits do not depend on the number of threads."""
    return executor.by_one_thread() if isinstance(executor, ComputesByOneThread) else nullcontext()


def step_memory(executor: Any, inputs: Mapping[str, Any], loss: str = "loss") -> int | None:
    """See :meth:`CountsStepMemory.step_memory`; None where it is not counted."""
    return executor.step_memory(inputs, loss) if isinstance(executor, CountsStepMemory) else None


def node_times(executor: Any, network: Graph, inputs: Mapping[str, Any], samples: int = 5) -> dict[str, float] | None:
    """See :meth:`TimesNodes.node_times`; None where the backend runs nodes together."""
    return executor.node_times(network, inputs, samples) if isinstance(executor, TimesNodes) else None


def step_profiler(executor: Any, loss: str | None) -> StepProfiling | None:
    """See :meth:`ProfilesSteps.step_profiler`; None where the backend has no profiler."""
    return executor.step_profiler(loss) if isinstance(executor, ProfilesSteps) else None


def measure_stages(
    executor: Any, stages: Sequence[Collection[str]], inputs: Mapping[str, Any], loss: str = "loss", passes: int = 5
) -> Sequence[Any] | None:
    """See :meth:`MeasuresStages.measure_stages`; None where the backend does not keep stages apart."""
    if not isinstance(executor, MeasuresStages):
        return None
    return executor.measure_stages(stages, inputs, loss, passes)
