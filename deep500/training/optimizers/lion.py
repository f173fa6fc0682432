"""Lion: the sign of a blend of gradient and momentum."""

from __future__ import annotations

from typing import Any

from deep500.training.optimizers.arithmetic import sign
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class LionOptimizer(UpdateRuleOptimizer):
    """Lion (Chen et al. 2023, arXiv 2302.06675), as its authors' and all others have it; ``m = 0`` at first.

    ``c = b1 m + (1 - b1) g;  w <- (1 - lr weight_decay) w - lr sign(c);  m <- b2 m + (1 - b2) g``. A rate of a tenth of
    AdamW's and ten times its decay suit it. A difference in the last bit can turn a step around: compare losses.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate, by which every weight moves.
        betas: ``(b1, b2)``.
        weight_decay: decoupled.
    """

    elementwise = True
    decoupled = True

    lr: float = 1e-4
    betas: tuple[float, float] = hyperparameter((0.9, 0.99), below=1)
    weight_decay: float = 0.0

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        (b1, b2), means = self.betas, self.slot("exp_avg")
        mean = means.get(name, 0.0)
        blend = b1 * mean + (1 - b1) * grad
        means[name] = b2 * mean + (1 - b2) * grad
        return self.decayed(old_param) - self.lr * sign(blend)
