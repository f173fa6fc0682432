"""AdEMAMix: AdamW with a second, much slower average of gradients."""

from __future__ import annotations

import math
from typing import Any

from deep500.training.optimizers.adam import AdamOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class AdEMAMixOptimizer(AdamOptimizer):
    """AdEMAMix (Pagliardini, Ablin, Grangier 2024, arXiv 2409.03137), as the paper and Optax have it; t from 1.

    ``m``, ``v`` as Adam's, ``s <- b3 s + (1 - b3) g`` without correction of its bias;
    ``w <- w - lr ((m / (1 - b1^t) + alpha s) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay w)``. In the first
    ``warmup_steps`` (T) ``alpha`` rises in proportion to t, and ``b3`` from ``b1`` so that the half-life does:
    ``log b3_t = log b1 log b3 / ((1 - t/T) log b3 + t/T log b1)``, section 3 of the paper.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr, eps, weight_decay: as AdamW's.
        betas: ``(b1, b2, b3)``.
        alpha: share of the slow average.
        warmup_steps: T; 0: both are what they are from the first step on.
    """

    elementwise = True
    decoupled = True

    betas: tuple[float, float, float] = hyperparameter((0.9, 0.999, 0.9999), below=1)  # type: ignore[assignment]
    alpha: float = 5.0
    warmup_steps: float = 0.0

    def slow(self) -> tuple[float, float]:
        """``b3`` and ``alpha`` of this step."""
        (b1, _, b3), share = self.betas, (self.steps + 1) / self.warmup_steps if self.warmup_steps else 1.0
        if share >= 1 or not b1:
            return b3, self.alpha * min(share, 1.0)
        first, last = math.log(b1), math.log(b3)
        return min(math.exp(first * last / ((1 - share) * last + share * first)), b3), self.alpha * share

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        (b1, b2, _), (b3, alpha), t = self.betas, self.slow(), self.steps + 1
        means, slow, squares = self.slot("exp_avg"), self.slot("exp_avg_slow"), self.slot("exp_avg_sq")
        means[name] = b1 * means.get(name, 0.0) + (1 - b1) * grad
        slow[name] = b3 * slow.get(name, 0.0) + (1 - b3) * grad
        squares[name] = b2 * squares.get(name, 0.0) + (1 - b2) * grad * grad
        deviation = (squares[name] / (1 - b2**t)) ** 0.5 + self.eps
        update = (means[name] / (1 - b1**t) + alpha * slow[name]) / deviation
        return self.decayed(old_param) - self.lr * update
