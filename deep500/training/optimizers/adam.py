"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class AdamOptimizer(UpdateRuleOptimizer):
    """Adam (Kingma and Ba 2015, arXiv 1412.6980), with ``t`` counted from 1.

    ``g' = g + weight_decay w;  m <- b1 m + (1 - b1) g';  v <- b2 v + (1 - b2) g'^2``;
    ``w <- w - lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)``: eps stands outside the root, as in the paper.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        betas: ``(b1, b2)``, the decay of the two moments.
        eps: keeps the quotient finite.
        weight_decay: factor of the L2 penalty's gradient (coupled: it passes through the moments).
    """

    elementwise = True

    lr: float = 1e-3
    betas: tuple[float, float] = hyperparameter((0.9, 0.999), below=1)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        if self.weight_decay and not self.decoupled:
            grad = grad + self.weight_decay * old_param
        return self.decayed(old_param) - self.moment_step(grad, name)

    def moment_step(self, grad: Any, name: str) -> Any:
        """Take a gradient into the moments and return what to subtract from the parameter."""
        mean, square = self.moments(grad, name)
        return self.lr / (1 - self.betas[0] ** (self.steps + 1)) * mean / self.deviation(square)

    def moments(self, grad: Any, name: str) -> tuple[Any, Any]:
        """Take a gradient into the moments and return them as they are now, without correction of their bias."""
        (b1, b2), means, squares = self.betas, self.slot("exp_avg"), self.slot("exp_avg_sq")
        means[name] = b1 * means[name] + (1 - b1) * grad if name in means else (1 - b1) * grad
        squares[name] = b2 * squares[name] + (1 - b2) * grad * grad if name in squares else (1 - b2) * grad * grad
        return means[name], squares[name]

    def deviation(self, square: Any) -> Any:
        """Return ``sqrt(v / (1 - b2^t)) + eps``."""
        return square**0.5 / (1 - self.betas[1] ** (self.steps + 1)) ** 0.5 + self.eps


class AdamWOptimizer(AdamOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101).

    As :class:`AdamOptimizer` without its L2 term, after ``w <- (1 - lr weight_decay) w``.
    """

    elementwise = True
    decoupled = True

    weight_decay: float = 1e-2
