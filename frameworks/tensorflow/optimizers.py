"""Optimizers that run with the network in one ``tf.function``: forward, backward and update, under the usual names.

TensorFlow's kernels update the variables in place where their formula is PyTorch's (momentum, Adam with its eps scaled,
AdaGrad); RMSprop's is not (eps stands inside its root), nor is dampened momentum: these are written out. Keras's
optimizers are not used: SGD puts the learning rate into the velocity, Adagrad and Adam place eps elsewhere.
"""

from __future__ import annotations

from typing import Any

from deep500.errors import InputError
from deep500.frameworks.tensorflow.fused import NativeOptimizer, Numbers, Slots
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.executor import GraphExecutor


class GradientDescent(NativeOptimizer):
    """Arguments and update rule of :class:`deep500.training.optimizers.GradientDescent`."""

    hyperparameters = ("lr", "weight_decay")
    lr: float
    weight_decay: float

    def __init__(
        self, executor: GraphExecutor, loss: str = "loss", lr: float = 0.1, weight_decay: float = 0.0, **options: Any
    ) -> None:
        super().__init__(executor, loss, lr=lr, weight_decay=weight_decay, **options)

    def numbers(self) -> dict[str, float]:
        return {"lr": self.lr, "weight_decay": self.weight_decay}

    def shape(self) -> tuple[Any, ...]:
        return (bool(self.weight_decay),)

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        variable.assign_sub(n["lr"] * grad)


class MomentumOptimizer(NativeOptimizer):
    """Arguments and update rule of :class:`deep500.training.optimizers.MomentumOptimizer`."""

    hyperparameters = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
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
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InputError(
                f"got nesterov=True with momentum={momentum!r}, dampening={dampening!r}; expected momentum > 0 and "
                "dampening 0: change them or drop nesterov"
            )

    def slots(self) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if self.momentum else {}

    def numbers(self) -> dict[str, float]:
        return {
            "lr": self.lr,
            "momentum": self.momentum,
            "share": 1 - self.dampening,
            "weight_decay": self.weight_decay,
        }

    def shape(self) -> tuple[Any, ...]:
        begun = frozenset(self._begun) if self.dampening else None
        return bool(self.momentum), begun, bool(self.weight_decay), self.nesterov

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        if not self.momentum:
            variable.assign_sub(n["lr"] * grad)
            return
        if self.dampening and id(slots) not in self._begun:  # the first gradient enters whole
            grad = grad * n["share"]
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=slots["momentum_buffer"].handle,
            lr=n["lr"],
            grad=grad,
            momentum=n["momentum"],
            use_nesterov=self.nesterov,
        )


class AdamOptimizer(NativeOptimizer):
    """Arguments and update rule of :class:`deep500.training.optimizers.AdamOptimizer`."""

    hyperparameters = ("lr", "betas", "eps", "weight_decay")
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

    def slots(self) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def numbers(self) -> dict[str, float]:
        (b1, b2), t = self.betas, self.steps + 1
        # the kernel's eps stands beside the root of the uncorrected moment: scaled, the formula is the paper's
        return {
            "lr": self.lr,
            "b1": b1,
            "b2": b2,
            "p1": b1**t,
            "p2": b2**t,
            "eps": self.eps * (1 - b2**t) ** 0.5,
            "weight_decay": self.weight_decay,
            "kept": 1 - self.lr * self.weight_decay,
        }

    def shape(self) -> tuple[Any, ...]:
        return (bool(self.weight_decay),)

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=slots["exp_avg"].handle,
            v=slots["exp_avg_sq"].handle,
            beta1_power=n["p1"],
            beta2_power=n["p2"],
            lr=n["lr"],
            beta1=n["b1"],
            beta2=n["b2"],
            epsilon=n["eps"],
            grad=grad,
        )


class AdamWOptimizer(AdamOptimizer):
    """Arguments and update rule of :class:`deep500.training.optimizers.AdamWOptimizer`."""

    couples_decay = False

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
        super().__init__(executor, loss, lr, betas, eps, weight_decay, **options)

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        if self.weight_decay:
            variable.assign(variable * n["kept"])
        super().rule(variable, grad, slots, n)


class AdaGradOptimizer(NativeOptimizer):
    """Arguments and update rule of :class:`deep500.training.optimizers.AdaGradOptimizer`."""

    hyperparameters = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
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

    def slots(self) -> dict[str, float]:
        return {"sum": self.initial_accumulator_value}

    def numbers(self) -> dict[str, float]:
        return {"lr": self.lr / (1 + self.steps * self.lr_decay), "eps": self.eps, "weight_decay": self.weight_decay}

    def shape(self) -> tuple[Any, ...]:
        return (bool(self.weight_decay),)

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        tf.raw_ops.ResourceApplyAdagradV2(
            var=variable.handle, accum=slots["sum"].handle, lr=n["lr"], epsilon=n["eps"], grad=grad
        )


class RMSPropOptimizer(NativeOptimizer):
    """Arguments and update rule of :class:`deep500.training.optimizers.RMSPropOptimizer`."""

    hyperparameters = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered")
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

    def slots(self) -> dict[str, float]:
        wanted = {"square_avg": True, "grad_avg": self.centered, "momentum_buffer": bool(self.momentum)}
        return {name: 0.0 for name, used in wanted.items() if used}

    def numbers(self) -> dict[str, float]:
        return {
            "lr": self.lr,
            "alpha": self.alpha,
            "rest": 1 - self.alpha,
            "eps": self.eps,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
        }

    def shape(self) -> tuple[Any, ...]:
        return bool(self.weight_decay), bool(self.momentum), self.centered

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        def average(slot: str, value: Any) -> Any:
            return slots[slot].assign(n["alpha"] * slots[slot] + n["rest"] * value, read_value=True)

        variance = average("square_avg", grad * grad)
        if self.centered:  # rounding may put the difference a hair below zero
            variance = tf.abs(variance - tf.square(average("grad_avg", grad)))
        direction = grad / (tf.sqrt(variance) + n["eps"])
        if self.momentum:
            direction = slots["momentum_buffer"].assign(n["momentum"] * slots["momentum_buffer"] + direction)
        variable.assign_sub(n["lr"] * direction)
