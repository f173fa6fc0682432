"""NAdam and NAdamW in the form of AlgoPerf's baselines."""

from __future__ import annotations

from typing import Any

from deep500.training.optimizers.adam import AdamOptimizer


class AlgoPerfNAdamOptimizer(AdamOptimizer):
    """NAdam as AlgoPerf's baselines have it (Dahl et al. 2023, arXiv 2306.07179); moments as Adam's, t counted from 1.

    ``u = (b1 m + (1 - b1) g) / (1 - b1^t);  w <- w - lr u / (sqrt(v / (1 - b2^t)) + eps)``: both terms share one
    correction, where Optax corrects each by itself and PyTorch (:class:`NAdamOptimizer`) by a schedule.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr, betas, eps, weight_decay: as Adam's; the L2 penalty passes through the moments.
    """

    elementwise = True

    def moment_step(self, grad: Any, name: str) -> Any:
        mean, square = self.moments(grad, name)
        b1 = self.betas[0]
        return self.lr / (1 - b1 ** (self.steps + 1)) * (b1 * mean + (1 - b1) * grad) / self.deviation(square)


class NAdamWOptimizer(AlgoPerfNAdamOptimizer):
    """NAdamW as AlgoPerf's baseline has it: :class:`AlgoPerfNAdamOptimizer` without its L2 term, after
    ``w <- (1 - lr weight_decay) w``."""

    elementwise = True
    decoupled = True

    weight_decay: float = 1e-2
