"""AcceleGrad: acceleration and adaptive step size in one; the three-step optimizer that needs all three steps."""

from __future__ import annotations

from typing import Any

from deep500.tensors import total
from deep500.training.optimizers.base import ThreeStepOptimizer


class AcceleGradOptimizer(ThreeStepOptimizer):
    """AcceleGrad (Levy, Yurtsever, Cevher 2018, arXiv 1809.02864), ``t`` counted from 0, ``y = z = w`` at first.

    ``a = max(1, (t + 1) / 4)`` (1 while t <= 2);  ``w = z / a + (1 - 1 / a) y``: where the gradient ``g`` is taken;
    ``S <- S + a^2 |g|^2;  eta = lr * 2 D / sqrt(G^2 + S)``;  ``z <- z - a eta g;  y <- w - eta g``.

    The norm is that of each parameter tensor by itself, as if each were a problem of its own. Between steps the network
    holds ``y`` (the paper's guarantee is for a weighted average of all ``y``), and there is no projection.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: scales the step size, for schedules.
        D: bound on the distance to the optimum.
        G: bound on the norm of the gradients.
        weight_decay: factor of the L2 penalty's gradient.
    """

    keeps_parameters = True
    lr: float = 1.0
    D: float = 1.0
    G: float = 1.0
    weight_decay: float = 0.0

    @property
    def alpha(self) -> float:
        """``a``."""
        return 1.0 if self.steps <= 2 else (self.steps + 1) / 4

    def new_input(self) -> None:
        """Nothing to do."""

    def prepare_param(self, name: str) -> None:
        y, z = self.slot("y"), self.slot("z")
        if name not in y:
            y[name] = z[name] = self.network.fetch_tensors([name])[0] * 1
        self.network.assign_tensor(name, z[name] / self.alpha + (1 - 1 / self.alpha) * y[name])

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        if self.weight_decay:
            grad = grad + self.weight_decay * old_param
        y, z, sums = self.slot("y"), self.slot("z"), self.slot("sum")
        sums[name] = sums.get(name, 0.0) + self.alpha**2 * total(grad * grad)
        eta = self.lr * 2 * self.D / (self.G**2 + sums[name]) ** 0.5
        z[name] = z[name] - self.alpha * eta * grad
        y[name] = old_param - eta * grad
        return y[name] * 1  # the network may take over what it is given
