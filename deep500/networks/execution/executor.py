"""`GraphExecutor`: a network compiled for a device; `BoundNetwork` is the same network with live tensors.

Requirements of the seam, for those who write a backend:

* ``inference`` runs in evaluation mode, ``inference_and_backprop`` in training mode: BatchNormalization uses the
  batch's statistics and updates its running ones, Dropout drops. Running variance is the *unbiased* one, as PyTorch
  keeps it; normalisation always uses the biased one. (A node with an explicit ``training_mode=1`` means what ONNX
  says, always.)
* Results are the framework's own tensors on the device, keyed by the network's names. Nothing waits for the device.
* Inputs may be NumPy arrays or the framework's tensors. They are checked by name, dtype and shape at every call.
* A run needs only the inputs on which what it computes depends: the outputs that it returns, and in training the loss.
  To miss one of those, or to give an unknown one, is an InputError. Any other may be absent, and is not checked
  (:func:`~deep500.networks.execution.input_check.input_check`).
* Editing ``executor.network`` recompiles before the next run: compare ``network.version``.
* Gradients are those of one run, under ``gradient_name(parameter)``; they never accumulate. A trainable parameter that
  the loss does not reach has zeros, and is not in ``network.gradient(loss)``: optimizers leave it alone.
* What cannot run is *one* UnsupportedOperator naming every offending node, raised while the executor is built.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

from deep500.devices import Device, to_device
from deep500.errors import PlanError, UnsupportedOperator
from deep500.events import SILENT, Events
from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.graph import Graph


class RecomputedRegion(Protocol):
    """A part of the forward pass that runs again: its name, and the values that its nodes write."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


class Recomputation(Protocol):
    """A checkpointing plan as executors see it; :mod:`deep500.transformations.recomputation` makes them.

    Attributes:
        regions: those that run again in the backward pass instead of being kept, outermost first.
        batch: the number of samples for which the plan holds.
        loss: the scalar that is differentiated.
    """

    @property
    def regions(self) -> Sequence[RecomputedRegion]: ...
    @property
    def batch(self) -> int: ...
    @property
    def loss(self) -> str: ...
    def check(self, network: Graph, batch: int) -> None:
        """Raise PlanError unless the plan was made for this network and batch size."""


class GraphExecutor(abc.ABC):
    """A network compiled for a device. Every backend's ``Executor`` derives from it.

    What only some executors can do (count memory, time nodes, report gradients early) is in
    :mod:`deep500.networks.execution.capabilities`.

    Attributes:
        network: the :class:`BoundNetwork`.
        device: where it runs.
        events: who listens to ``forward``, ``backward``, ... (:data:`deep500.events.SILENT` by default).
        backend: name of the backend, as :func:`deep500.registry.load_backend` takes it.
        precision: how float32 is computed, see :mod:`deep500.networks.execution.precision`.
        deterministic: whether only kernels were allowed that give the same bits every time.
        checkpointing: the plan under which training runs compute values again; see :meth:`set_checkpointing`.
        seed: the last one that randomness was restarted with.
        choices: arguments, and attributes of the same names, that another executor like this one is made with.
    """

    backend: str = "?"
    network: BoundNetwork
    checkpointing: Recomputation | None = None
    precision: str = "ieee"
    deterministic: bool = False
    seed: int = 0
    choices: ClassVar[tuple[str, ...]] = ()

    def __init__(self, device: Device | str | None = None) -> None:
        self.device = to_device(device)
        self.events: Events = SILENT

    @abc.abstractmethod
    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run forward in evaluation mode.

        Args:
            inputs: arrays or tensors by input name.
            outputs: values to return; the network's outputs if None. Inputs that they do not depend on may be absent.

        Returns:
            tensors of the framework by name.

        Raises:
            InputError: unknown or missing input, wrong dtype or shape.
        """

    @abc.abstractmethod
    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, Any]:
        """Run forward in training mode, then backward from ``loss``, a scalar.

        Inputs on which neither the loss nor an output of the network depends may be absent.

        Returns the network's outputs and the loss; gradients are fetched by name from ``network.fetch_tensors``.
        """

    def set_checkpointing(self, plan: Recomputation | None) -> None:
        """Compute values of the forward pass again in the backward pass, as a plan says, instead of keeping them.

        Outputs, gradients, running statistics and random draws stay those of the run without a plan; inference never
        changes. Training calls must have the plan's batch size and loss, others are a PlanError.

        Args:
            plan: from :func:`deep500.plan_checkpointing` or a plan file; None ends it.

        Raises:
            PlanError: it is no plan, or was made for another network.
            UnsupportedOperator: this backend cannot follow plans.

        Example:
            >>> import deep500.frameworks.reference as d5ref
            >>> from deep500.networks import add_loss, create
            >>> from deep500.transformations.recomputation import plan_network
            >>> executor = d5ref.from_model(add_loss(create("resnet", depth=8)))
            >>> executor.set_checkpointing(plan_network(executor.network, 0.9, batch=2))
            >>> len(executor.checkpointing.regions) > 0
            True
        """
        if plan is not None:
            if not all(hasattr(plan, part) for part in ("regions", "batch", "loss", "check")):
                raise PlanError(
                    f"got {type(plan).__name__} to follow; expected a CheckpointingPlan or None: make one with "
                    "plan_checkpointing, or read it with load_plan"
                )
            plan.check(self.network, plan.batch)
        if plan is not self.checkpointing:
            self._forget_training()
            self.checkpointing = plan

    @contextmanager
    def rehearsal(self) -> Iterator[GraphExecutor]:
        """An executor like this one, of a copy of its network: what it runs leaves no trace in this one.

        Example:
            >>> import deep500.frameworks.reference as d5ref
            >>> from deep500.networks import add_loss, create
            >>> executor = d5ref.from_model(add_loss(create("mlp", shape=(4,))))
            >>> with executor.rehearsal() as twin:
            ...     twin.backend, twin is executor
            ('reference', False)
        """
        yield self.like(self.network.copy())

    def like(self, network: Graph) -> GraphExecutor:
        """An executor of the same backend with the same choices, on the same device, for another network.

        Example:
            >>> import deep500.frameworks.reference as d5ref
            >>> from deep500.networks import create
            >>> executor = d5ref.from_model(create("mlp", shape=(4,)))
            >>> other = executor.like(create("mlp", shape=(5,)))
            >>> other.backend, other.network.inputs["input"].shape
            ('reference', ('N', 5))
        """
        kind: Any = type(self)
        other: GraphExecutor = kind(network, self.device, **{name: getattr(self, name) for name in self.choices})
        return other

    def _forget_training(self) -> None:
        """Drop compiled training runs, so that the next one follows ``self.checkpointing``; backends implement it."""
        raise UnsupportedOperator(
            f"got a checkpointing plan for backend {self.backend!r}; expected a backend that computes values again: "
            "use 'reference', or leave the plan out"
        )

    def _check_planned(self, inputs: Mapping[str, Any], loss: str) -> None:
        """Raise PlanError unless a training call is the one that the plan was made for; backends call it first."""
        plan = self.checkpointing
        if plan is None:
            return
        if loss != plan.loss:
            raise PlanError(f"got loss {loss!r}; expected {plan.loss!r}, for which the checkpointing plan was made")
        for name, described in self.network.inputs.items():
            shape = getattr(inputs.get(name), "shape", ())
            for want, size in zip(described.shape or (), shape, strict=False):
                if isinstance(want, str) and size != plan.batch:  # with_batch gives all symbols this size
                    raise PlanError(
                        f"input {name!r}: got {size} for {want!r}; expected {plan.batch}, the batch size for which the "
                        "checkpointing plan was made: plan again, or end it with set_checkpointing(None)"
                    )

    @abc.abstractmethod
    def reseed(self, seed: int) -> None:
        """Restart the randomness of Dropout and its like, so that what follows is a function of ``seed``.

        Backends call ``super().reseed(seed)``: executors of stages draw by the seed of the whole network's.
        """
        self.seed = seed

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has finished its work."""
