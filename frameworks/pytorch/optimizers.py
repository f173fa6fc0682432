"""PyTorch's own optimizers under the names and keywords of the reference ones.

They read ``parameter.grad`` where the executor left it and update the parameters in place, with the fused kernels where
there are any: measured on a CPU with ResNet-20's 65 tensors, momentum takes 118 us fused, 278 us with ``foreach`` and
415 us by torch's default; RMSprop, which has no fused form, 854 us with ``foreach`` and 1125 us by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from deep500.networks.execution.executor import GraphExecutor
from deep500.training import optimizers
from deep500.training.optimizers import Optimizer


class NativeOptimizer(Optimizer):
    """A ``torch.optim`` optimizer as an Optimizer; ``state_dict`` has the reference optimizer's slots.

    A class names its ``kind`` in ``torch.optim``, the ``options`` that make it fast, and the optimizer that it is like,
    whose hyper-parameters are the keywords of ``kind`` too. On a GPU ``on_card`` takes the options' place.
    """

    kind: ClassVar[type[torch.optim.Optimizer]]
    options: ClassVar[dict[str, Any]] = {"fused": True}
    on_card: ClassVar[dict[str, Any]] = {"fused": True}
    elementwise: ClassVar[bool] = False
    """Whether every element is updated as if it were alone; see ``ThreeStepOptimizer.elementwise``."""

    def __init__(self, executor: GraphExecutor, loss: str = "loss", *values: Any, **options: Any) -> None:
        super().__init__(executor, loss, *values, **options)
        self._native: torch.optim.Optimizer | None = None
        self._version: tuple[int, frozenset[str] | None] | None = None  # and what this process updates
        self._parameters: dict[str, torch.nn.Parameter] = {}
        self._rebuild()  # here, because torch.optim's first constructor imports for seconds, which no step should pay

    @property
    def native(self) -> torch.optim.Optimizer:
        """The ``torch.optim`` optimizer; a new one, with its state, when the network was edited or this process updates
        other parameters."""
        if self._native is None or self._version != (self.network.version, self.exchange.owned):
            self._rebuild()
        return self._native  # type: ignore[return-value]

    def _rebuild(self) -> None:
        tensor, owned = self.executor.tensor, self.exchange.owned  # type: ignore[attr-defined]
        mine = [name for name in self.parameter_names() if owned is None or name in owned]
        self._parameters = {name: tensor(name) for name in mine}
        known = {} if self._native is None else self._native.state
        groups = []
        for part in self.parts():  # fused kernels want all or none of a group to have a past
            tensors = [self._parameters[name] for name in part.names if name in self._parameters]
            halves = ([p for p in tensors if (p in known) == is_old] for is_old in (True, False))
            groups += [{"params": half, "part": part, **self.values_of(part)} for half in halves if half]
        native = self.make_native(groups)
        native.state.update({p: known[p] for p in self._parameters.values() if p in known})
        self._native, self._version = native, (self.network.version, owned)

    def make_native(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """A new one for these groups."""
        on_card = self.executor.torch_device.type == "cuda"  # type: ignore[attr-defined]
        return self.kind(groups, **self.get_parameters(), **(self.on_card if on_card else self.options))

    def update(self) -> None:
        """Apply the gradients of the last run; a parameter that they do not reach has the gradient 0."""
        native = self.native
        for group in native.param_groups:
            group.update(self.values_of(group["part"]))
        for parameter in self._parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.changes_gradients:
            self._modify()
        native.step()
        # Fused kernels write without counting it, and what inference keeps of parameters goes by that count.
        torch.autograd.graph.increment_version(list(self._parameters.values()))

    def _modify(self) -> None:
        tensors = self._parameters.values()
        parameters, gradients = [p.detach() for p in tensors], [p.grad for p in tensors]
        with torch.no_grad():
            modified = self.modified(list(self._parameters), parameters, gradients)
        for parameter, gradient in zip(tensors, modified, strict=True):
            parameter.grad = gradient

    @property
    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        """The state between steps: slot -> parameter -> tensor; setting it needs the shapes of the parameters' tensors,
        and :meth:`load_numbers` after it."""
        slots: dict[str, dict[str, torch.Tensor]] = {}
        native = self.native
        for name, parameter in self._parameters.items():
            for slot, tensor in native.state.get(parameter, {}).items():
                if slot != "step" and isinstance(tensor, torch.Tensor):
                    slots.setdefault(slot, {})[name] = tensor
        return slots

    @state.setter
    def state(self, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        native = self.native
        native.state.clear()
        for slot, tensors in state.items():
            for name, tensor in tensors.items():
                native.state[self._parameters[name]][slot] = tensor

    def number_arrays(self) -> dict[str, np.ndarray]:
        """The counts of parameters that began later; what is of no parameter is ``"step"`` alone."""
        return self.counts.arrays(self.steps)

    def load_numbers(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from the ``"step"`` of a checked state."""
        self.steps = int(state["step"])
        self.load_counts(state)
        native, device = self.native, self.executor.torch_device  # type: ignore[attr-defined]
        for name, parameter in self._parameters.items():
            if slots := native.state.get(parameter):
                slots["step"] = torch.tensor(float(self.steps - self.counts.late.get(name, 0)), device=device)
        self._rebuild()

    def state_dict(self) -> dict[str, np.ndarray]:
        to_numpy, arrays = self.network.to_numpy, dict[str, np.ndarray]()
        for slot, tensors in self.state.items():
            arrays.update({f"{slot}/{name}": np.array(to_numpy(tensor)) for name, tensor in tensors.items()})
        return {"step": np.asarray(self.steps, np.int64), **self.number_arrays(), **arrays}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self._rebuild()  # of the parameters that this process updates now
        shapes = {name: tuple(parameter.shape) for name, parameter in self._parameters.items()}
        loaded: dict[str, dict[str, torch.Tensor]] = {}
        for slot, name, array in self.checked_slots(state):
            loaded.setdefault(slot, {})[name] = self.network.to_tensor(np.broadcast_to(array, shapes[name]))
        self.state = loaded
        self.load_numbers(state)


class GradientDescent(NativeOptimizer, like=optimizers.GradientDescent):
    """``torch.optim.SGD`` without momentum."""

    elementwise = True
    kind = torch.optim.SGD


class MomentumOptimizer(NativeOptimizer, like=optimizers.MomentumOptimizer):
    """``torch.optim.SGD``."""

    elementwise = True
    kind = torch.optim.SGD


class AdamOptimizer(NativeOptimizer, like=optimizers.AdamOptimizer):
    """``torch.optim.Adam``."""

    elementwise = True
    kind = torch.optim.Adam


class AdamWOptimizer(NativeOptimizer, like=optimizers.AdamWOptimizer):
    """``torch.optim.AdamW``."""

    elementwise = True
    kind = torch.optim.AdamW


class AMSGradOptimizer(NativeOptimizer, like=optimizers.AMSGradOptimizer):
    """``torch.optim.Adam`` with ``amsgrad``."""

    elementwise = True
    kind = torch.optim.Adam
    options: ClassVar[dict[str, Any]] = {"fused": True, "amsgrad": True}
    on_card = options


class AdaGradOptimizer(NativeOptimizer, like=optimizers.AdaGradOptimizer):
    """``torch.optim.Adagrad``."""

    elementwise = True
    kind = torch.optim.Adagrad
    on_card: ClassVar[dict[str, Any]] = {"foreach": True}  # torch up to 2.11 has no fused kernel for CUDA


class RMSPropOptimizer(NativeOptimizer, like=optimizers.RMSPropOptimizer):
    """``torch.optim.RMSprop``."""

    elementwise = True
    kind = torch.optim.RMSprop
    options: ClassVar[dict[str, Any]] = {"foreach": True}
    on_card: ClassVar[dict[str, Any]] = {"foreach": True}
