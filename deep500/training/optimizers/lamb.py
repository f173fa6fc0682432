"""LAMB: LARS with Adam's update."""

from __future__ import annotations

from typing import Any

from deep500.training.optimizers.adam import AdamOptimizer
from deep500.training.optimizers.lars import trust_ratio


class LAMBOptimizer(AdamOptimizer):
    """LAMB (You et al. 2020, arXiv 1904.00962, version 3) as Optax has it; ``t`` counted from 1, moments as Adam's.

    ``a = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay w;  w <- w - lr |w| / |a| a`` (ratio 1 where a
    norm is 0). Norms are not clipped, nor are gradients before (``gradient_transform`` does that); Keras decays outside
    of the ratio, which is another rule.

    Norms are of whole tensors: schemes whose ranks update parts of a tensor refuse it. For biases and norms as a rule:
    ``groups=[{"parameters": "norms_and_biases", "adapts": False, "weight_decay": 0}]``.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr, betas, eps: as Adam's.
        weight_decay: within the ratio.
        adapts: whether there is a ratio.
    """

    eps: float = 1e-6
    adapts: bool = True

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        mean, square = self.moments(grad, name)
        update = mean / (1 - self.betas[0] ** (self.steps + 1)) / self.deviation(square)
        update = update + self.weight_decay * old_param
        if self.adapts:
            update = trust_ratio(old_param, update) * update
        return old_param - self.lr * update
