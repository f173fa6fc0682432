"""AdaGrad and RMSProp: the rate of each weight shrinks with the size of its gradients."""

from __future__ import annotations

from typing import Any

from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class AdaGradOptimizer(UpdateRuleOptimizer):
    """AdaGrad (Duchi, Hazan, Singer 2011), with ``t`` counted from 1.

    ``g' = g + weight_decay w;  s <- s + g'^2;  w <- w - lr / (1 + (t - 1) lr_decay) * g' / (sqrt(s) + eps)``.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        lr_decay: how fast the rate falls besides.
        weight_decay: factor of the L2 penalty's gradient.
        initial_accumulator_value: what ``s`` begins with.
        eps: keeps the quotient finite.
    """

    elementwise = True

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        if self.weight_decay:
            grad = grad + self.weight_decay * old_param
        sums = self.slot("sum")
        sums[name] = sums.get(name, self.initial_accumulator_value) + grad * grad
        rate = self.lr / (1 + self.steps * self.lr_decay)
        return old_param - rate * grad / (sums[name] ** 0.5 + self.eps)


class RMSPropOptimizer(UpdateRuleOptimizer):
    """RMSProp (Tieleman and Hinton 2012; centered: Graves 2013, arXiv 1308.0850).

    ``g' = g + weight_decay w;  s <- alpha s + (1 - alpha) g'^2;  d = sqrt(s) + eps``; with ``centered``
    ``a <- alpha a + (1 - alpha) g';  d = sqrt(s - a^2) + eps``. Then ``w <- w - lr g' / d``, or with momentum
    ``b <- momentum b + g' / d;  w <- w - lr b``.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        alpha: decay of the averages.
        eps: keeps the quotient finite; outside the root, as PyTorch has it (TensorFlow has it inside).
        weight_decay: factor of the L2 penalty's gradient.
        momentum: factor of the velocity.
        centered: whether to divide by the standard deviation instead of the root mean square.
    """

    elementwise = True

    lr: float = 1e-2
    alpha: float = hyperparameter(0.99, below=1)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        if self.weight_decay:
            grad = grad + self.weight_decay * old_param
        variance = self._average("square_avg", name, grad * grad)
        if self.centered:  # rounding may put the difference a hair below zero
            variance = abs(variance - self._average("grad_avg", name, grad) ** 2)
        direction = grad / (variance**0.5 + self.eps)
        if self.momentum:
            velocities = self.slot("momentum_buffer")
            direction = velocities[name] = self.momentum * velocities.get(name, 0.0) + direction
        return old_param - self.lr * direction

    def _average(self, slot: str, name: str, value: Any) -> Any:
        averages = self.slot(slot)
        averages[name] = self.alpha * averages.get(name, 0.0) + (1 - self.alpha) * value
        return averages[name]
