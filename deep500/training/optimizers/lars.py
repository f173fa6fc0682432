"""LARS: the rate of each tensor in proportion to its norm."""

from __future__ import annotations

from typing import Any

from deep500.training.optimizers.arithmetic import norm
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


def trust_ratio(param: Any, update: Any, eps: float = 0.0, coefficient: float = 1.0) -> Any:
    """``coefficient |w| / (|u| + eps)`` of whole tensors, a scalar tensor; 1 where one of the norms is 0.

    Example:
        >>> import numpy as np
        >>> float(trust_ratio(np.array([3.0, 4.0]), np.array([0.0, 2.0]))), float(trust_ratio(np.zeros(2), np.ones(2)))
        (2.5, 1.0)
    """
    weights, change = norm(param), norm(update)
    none = 0.0 ** (weights * change)  # 1 where one of them is 0, else 0
    above = (1 - none) * weights * coefficient if coefficient != 1 else (1 - none) * weights
    return above / ((change + eps if eps else change) + none) + none


class LARSOptimizer(UpdateRuleOptimizer):
    """LARS (You, Gitman, Ginsburg 2017, arXiv 1708.03888) as Optax has it.

    ``u = g + weight_decay w;  lam = trust_coefficient |w| / (|u| + eps)`` (1 where a norm is 0);
    ``v <- momentum v + lr lam u;  w <- w - v``, or with ``nesterov`` ``w <- w - (lr lam u + momentum v)``. The paper
    has ``|g| + weight_decay |w|`` for ``|u|``; ports to PyTorch have the rate outside of ``v``.

    Norms are of whole tensors: schemes whose ranks update parts of a tensor refuse it. Biases and norms are as a rule
    left out: ``groups=[{"parameters": "norms_and_biases", "adapts": False, "weight_decay": 0}]``.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        momentum: factor of the velocity.
        weight_decay: factor of the L2 penalty's gradient.
        trust_coefficient, eps: of the ratio.
        nesterov: whether to look ahead.
        adapts: whether there is a ratio; without it ``lam = 1``.
    """

    lr: float = 0.1
    momentum: float = hyperparameter(0.9, below=1)
    weight_decay: float = 0.0
    trust_coefficient: float = 1e-3
    eps: float = 0.0
    nesterov: bool = False
    adapts: bool = True

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        update = grad + self.weight_decay * old_param
        if self.adapts:
            update = trust_ratio(old_param, update, self.eps, self.trust_coefficient) * update
        velocities = self.slot("momentum_buffer")
        velocities[name] = self.momentum * velocities.get(name, 0.0) + self.lr * update
        return old_param - (self.lr * update + self.momentum * velocities[name] if self.nesterov else velocities[name])
