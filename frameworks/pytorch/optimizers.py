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

from deep500.errors import InputError, nearest
from deep500.networks.execution.executor import GraphExecutor
from deep500.training.optimizers.base import Optimizer


class NativeOptimizer(Optimizer):
    """A ``torch.optim`` optimizer as an Optimizer; ``state_dict`` has the reference optimizer's slots.

    A class names its ``kind`` in ``torch.optim`` and the ``options`` that make it fast; its hyper-parameters are the
    keywords of both.
    """

    kind: ClassVar[type[torch.optim.Optimizer]]
    options: ClassVar[dict[str, Any]] = {"fused": True}

    def __init__(self, executor: GraphExecutor, loss: str = "loss", **options: Any) -> None:
        super().__init__(executor, loss, **options)
        self._native: torch.optim.Optimizer | None = None
        self._version: int | None = None
        self._parameters: list[torch.nn.Parameter] = []
        self._rebuild()  # here, because torch.optim's first constructor imports for seconds, which no step should pay

    @property
    def native(self) -> torch.optim.Optimizer:
        """The ``torch.optim`` optimizer; made anew, with its state, when the network was edited."""
        if self._native is None or self._version != self.network.version:
            self._rebuild()
        return self._native  # type: ignore[return-value]

    def _rebuild(self) -> None:
        self._parameters = [self.executor.tensor(name) for name in self.parameter_names()]  # type: ignore[attr-defined]
        known = {} if self._native is None else self._native.state
        old, new = ([p for p in self._parameters if (p in known) == is_old] for is_old in (True, False))
        groups = [{"params": group} for group in (old, new) if group]  # fused kernels want all or none to have a past
        native = self.kind(groups, **self.get_parameters(), **self.options)
        native.state.update({p: known[p] for p in old})
        self._native, self._version = native, self.network.version

    def update(self) -> None:
        """Apply the gradients of the last run; a parameter that they do not reach has the gradient 0."""
        native = self.native
        values = self.get_parameters()
        for group in native.param_groups:
            group.update(values)
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.changes_gradients:
            self._modify()
        native.step()

    def _modify(self) -> None:
        parameters = [p.detach() for p in self._parameters]
        gradients: Any = [p.grad for p in self._parameters]
        with torch.no_grad():
            gradients = self.modified(self.parameter_names(), parameters, gradients)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient

    def state_dict(self) -> dict[str, np.ndarray]:
        native, state = self.native, {"step": np.asarray(self.steps, np.int64)}
        for name, parameter in zip(self.parameter_names(), self._parameters, strict=True):
            for slot, tensor in native.state.get(parameter, {}).items():
                if slot != "step" and isinstance(tensor, torch.Tensor):
                    state[f"{slot}/{name}"] = np.array(self.network.to_numpy(tensor))
        return state

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        if "step" not in state:
            raise InputError("got optimizer state without 'step'; expected what state_dict() returned: load that")
        native = self.native
        known = dict(zip(self.parameter_names(), self._parameters, strict=True))
        loaded: dict[torch.Tensor, dict[str, Any]] = {}
        for key, array in state.items():
            if key == "step":
                continue
            slot, _, name = key.partition("/")
            if name not in known:
                raise InputError(
                    f"got optimizer state {key!r}; expected '<slot>/<parameter>': "
                    f"{nearest(name, known)} Load the state of the same network"
                )
            if np.shape(array) not in (tuple(known[name].shape), ()):
                raise InputError(
                    f"optimizer state {key!r}: got shape {np.shape(array)}; expected "
                    f"{tuple(known[name].shape)}, the parameter's: load the state of the same network"
                )
            full = np.broadcast_to(np.asarray(array), tuple(known[name].shape))
            loaded.setdefault(known[name], {})[slot] = self.network.to_tensor(full)
        self.steps = int(state["step"])
        for slots in loaded.values():
            slots["step"] = torch.tensor(float(self.steps), device=self.executor.torch_device)  # type: ignore[attr-defined]
        native.state.clear()
        native.state.update(loaded)
        self._rebuild()


class GradientDescent(NativeOptimizer):
    """``torch.optim.SGD`` without momentum, with the arguments and the rule of
    :class:`deep500.training.optimizers.GradientDescent`."""

    hyperparameters = ("lr", "weight_decay")
    kind = torch.optim.SGD
    lr: float
    weight_decay: float

    def __init__(
        self, executor: GraphExecutor, loss: str = "loss", lr: float = 0.1, weight_decay: float = 0.0, **options: Any
    ) -> None:
        super().__init__(executor, loss, lr=lr, weight_decay=weight_decay, **options)


class MomentumOptimizer(NativeOptimizer):
    """``torch.optim.SGD``, with the arguments and the rule of
    :class:`deep500.training.optimizers.MomentumOptimizer`."""

    hyperparameters = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
    kind = torch.optim.SGD
    lr: float
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool

    def __init__(
        self,
        executor: GraphExecutor,
        loss: str = "loss",
        lr: float = 0.01,
        momentum: float = 0.9,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **options: Any,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InputError(
                f"got nesterov=True with momentum={momentum!r}, dampening={dampening!r}; expected momentum > 0 and "
                "dampening 0: change them or drop nesterov"
            )
        super().__init__(
            executor,
            loss,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            **options,
        )


class AdamOptimizer(NativeOptimizer):
    """``torch.optim.Adam``, with the arguments and the rule of
    :class:`deep500.training.optimizers.AdamOptimizer`."""

    hyperparameters = ("lr", "betas", "eps", "weight_decay")
    kind = torch.optim.Adam
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float

    def __init__(
        self,
        executor: GraphExecutor,
        loss: str = "loss",
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(executor, loss, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **options)


class AdamWOptimizer(NativeOptimizer):
    """``torch.optim.AdamW``, with the arguments and the rule of
    :class:`deep500.training.optimizers.AdamWOptimizer`."""

    hyperparameters = ("lr", "betas", "eps", "weight_decay")
    kind = torch.optim.AdamW
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float

    def __init__(
        self,
        executor: GraphExecutor,
        loss: str = "loss",
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(executor, loss, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **options)


class AdaGradOptimizer(NativeOptimizer):
    """``torch.optim.Adagrad``, with the arguments and the rule of
    :class:`deep500.training.optimizers.AdaGradOptimizer`."""

    hyperparameters = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
    kind = torch.optim.Adagrad
    lr: float
    lr_decay: float
    weight_decay: float
    initial_accumulator_value: float
    eps: float

    def __init__(
        self,
        executor: GraphExecutor,
        loss: str = "loss",
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **options: Any,
    ) -> None:
        super().__init__(
            executor,
            loss,
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
            **options,
        )


class RMSPropOptimizer(NativeOptimizer):
    """``torch.optim.RMSprop``, with the arguments and the rule of
    :class:`deep500.training.optimizers.RMSPropOptimizer`."""

    hyperparameters = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered")
    kind = torch.optim.RMSprop
    options: ClassVar[dict[str, Any]] = {"foreach": True}
    lr: float
    alpha: float
    eps: float
    weight_decay: float
    momentum: float
    centered: bool

    def __init__(
        self,
        executor: GraphExecutor,
        loss: str = "loss",
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            executor,
            loss,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            **options,
        )
