"""Stochastic gradient descent, with and without momentum. Weight decay is the coupled (L2) one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from deep500.errors import InputError
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class GradientDescent(UpdateRuleOptimizer):
    """Gradient descent: ``w <- w - lr (g + weight_decay w)``.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        weight_decay: factor of the L2 penalty's gradient.
    """

    elementwise = True

    lr: float = 0.1
    weight_decay: float = 0.0

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        if self.weight_decay:
            grad = grad + self.weight_decay * old_param
        return old_param - self.lr * grad


class MomentumOptimizer(UpdateRuleOptimizer):
    """Heavy ball momentum in PyTorch's form (not Keras's, which puts the rate into the buffer).

    ``g' = g + weight_decay w;  v <- momentum v + (1 - dampening) g'`` (``v = g'`` at first);
    ``w <- w - lr v``, or with ``nesterov`` ``w <- w - lr (g' + momentum v)``. Polyak 1964; Sutskever et al. 2013.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        momentum: factor of the velocity.
        dampening: share of the gradient that does not enter the velocity.
        weight_decay: factor of the L2 penalty's gradient.
        nesterov: whether to look ahead; needs momentum and no dampening, else InputError.
    """

    elementwise = True

    lr: float = 0.01
    momentum: float = 0.9
    dampening: float = hyperparameter(0.0, least=-math.inf)
    weight_decay: float = 0.0
    nesterov: bool = False

    @classmethod
    def check_together(cls, values: Mapping[str, Any]) -> None:
        momentum, dampening = values["momentum"], values["dampening"]
        if values["nesterov"] and (momentum <= 0 or dampening != 0):
            raise InputError(
                f"got nesterov=True with momentum={momentum!r}, dampening={dampening!r}; expected momentum > 0 and "
                "dampening 0: change them or drop nesterov"
            )

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        if self.weight_decay:
            grad = grad + self.weight_decay * old_param
        if not self.momentum:
            return old_param - self.lr * grad
        velocities = self.slot("momentum_buffer")
        if name in velocities:
            velocities[name] = self.momentum * velocities[name] + (1 - self.dampening) * grad
        else:
            velocities[name] = grad * 1
        direction = grad + self.momentum * velocities[name] if self.nesterov else velocities[name]
        return old_param - self.lr * direction
