"""AMSGrad: Adam whose second moment, where it divides, never falls."""

from __future__ import annotations

from typing import Any

from deep500.training.optimizers.adam import AdamOptimizer
from deep500.training.optimizers.arithmetic import larger


class AMSGradOptimizer(AdamOptimizer):
    """AMSGrad as ``torch.optim.Adam(amsgrad=True)`` and Keras have it (Reddi, Kale, Kumar 2018, arXiv 1904.09237).

    Adam with ``s <- max(s, v)`` (``s = 0`` at first) in the place of ``v`` where it divides; the maximum is of the raw
    ``v``, whose bias is corrected afterwards. Optax takes the maximum of the corrected one, which is another rule.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr, betas, eps, weight_decay: as Adam's.
    """

    elementwise = True

    def deviation_of(self, square: Any, name: str) -> Any:
        """Take a second moment into the maximum, and return what to divide by."""
        most = self.slot("max_exp_avg_sq")
        most[name] = larger(square, most[name]) if name in most else square * 1
        return self.deviation(most[name])

    def moment_step(self, grad: Any, name: str) -> Any:
        mean, square = self.moments(grad, name)
        return self.lr / (1 - self.betas[0] ** (self.steps + 1)) * mean / self.deviation_of(square, name)
