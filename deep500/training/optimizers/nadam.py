"""NAdam in PyTorch's form, whose momentum rises by a schedule of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from deep500.training.optimizers.adam import AdamOptimizer


class NAdamOptimizer(AdamOptimizer):
    """NAdam as ``torch.optim.NAdam`` has it (Dozat 2016), with ``t`` counted from 1 and moments as Adam's.

    ``mu_t = b1 (1 - 0.96^(t momentum_decay) / 2);  P_t = mu_1 ... mu_t``;
    ``u = (1 - mu_t) g / (1 - P_t) + mu_(t+1) m / (1 - P_(t+1));  w <- w - lr u / (sqrt(v / (1 - b2^t)) + eps)``.
    Keras has this with ``momentum_decay=1``; Optax's and AlgoPerf's are other rules (:class:`AlgoPerfNAdamOptimizer`).

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr, betas, eps, weight_decay: as Adam's.
        momentum_decay: how fast ``mu`` rises from about ``b1 / 2`` to ``b1``.
        decoupled_weight_decay: whether ``w <- (1 - lr weight_decay) w`` comes first, instead of an L2 penalty.
    """

    elementwise = True
    begins_with: ClassVar[Mapping[str, float]] = {"mu_product": 1.0}
    shared = frozenset({"betas", "momentum_decay"})

    lr: float = 2e-3
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False

    def momentum(self, t: int) -> float:
        """``mu_t``."""
        return self.betas[0] * (1 - 0.5 * 0.96 ** (t * self.momentum_decay))

    def next_numbers(self) -> Mapping[str, float]:
        return {"mu_product": self.numbers["mu_product"] * self.momentum(self.steps + 1)}

    def product(self) -> float:
        """``P_t``; that of a parameter with another ``t`` than the optimizer is computed anew."""
        if not self.behind:
            return self.coming["mu_product"]
        return math.prod(map(self.momentum, range(1, self.steps + 2)))

    @property
    def decoupled(self) -> bool:  # type: ignore[override]
        """As the hyper-parameter says."""
        return self.decoupled_weight_decay

    def moment_step(self, grad: Any, name: str) -> Any:
        mean, square = self.moments(grad, name)
        mu, ahead, product = self.momentum(self.steps + 1), self.momentum(self.steps + 2), self.product()
        update = (1 - mu) / (1 - product) * grad + ahead / (1 - product * ahead) * mean
        return self.lr * update / self.deviation(square)
