"""Adafactor: second moments of matrices as the product of two vectors, and no momentum."""

from __future__ import annotations

import math
from typing import Any

from deep500.tensors import total
from deep500.training.optimizers.arithmetic import larger, norm
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class AdafactorOptimizer(UpdateRuleOptimizer):
    """Adafactor (Shazeer and Stern 2018, arXiv 1804.04235) as ``torch.optim.Adafactor`` has it, t counted from 1.

    ``w <- (1 - lr weight_decay) w``; with ``c = t^beta2_decay`` means of ``g^2`` along the last axis and the one before
    are averaged, ``r <- (1 - c) r + c mean_cols(g^2)``, ``s`` likewise, ``v = r s / max(mean(r), eps1)`` (of tensors
    with one axis: ``v <- (1 - c) v + c g^2``); ``u = g / sqrt(max(v, eps1^2))``;
    ``w <- w - max(eps2, RMS(w)) min(lr, 1 / sqrt(t)) u / max(1, RMS(u) / d)``, ``RMS(w)`` before the decay.

    RMS and means are of whole tensors: schemes whose ranks update parts of a tensor refuse it.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: bound on the relative rate.
        beta2_decay: the exponent, negative.
        eps: ``(eps1, eps2)``; PyTorch's ``eps1=None`` means the dtype's precision, that of float32 here.
        d: bound on the RMS of an update.
        weight_decay: decoupled.
    """

    decoupled = True

    lr: float = 1e-2
    beta2_decay: float = hyperparameter(-0.8, least=-math.inf, below=0)
    eps: tuple[float, float] = (2.0**-23, 1e-3)
    d: float = hyperparameter(1.0, least=1.0)
    weight_decay: float = 0.0

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        (eps1, eps2), t, shape = self.eps, self.steps + 1, tuple(int(size) for size in grad.shape)
        size = math.prod(shape) ** 0.5
        rate = larger(norm(old_param) / size, eps2) * min(self.lr, t**-0.5)
        square = self._second_moment(grad * grad, name, shape, float(t) ** self.beta2_decay)
        update = grad / larger(square, eps1**2) ** 0.5
        excess = larger(norm(update) / (size * self.d), 1.0)
        return self.decayed(old_param) - rate / excess * update

    def _second_moment(self, square: Any, name: str, shape: tuple[int, ...], share: float) -> Any:
        def average(slot: str, value: Any) -> Any:
            slots = self.slot(slot)
            slots[name] = (1 - share) * slots.get(name, 0.0) + share * value
            return slots[name]

        if len(shape) <= 1:
            return average("variance", square)
        rows = average("row_var", total(square, -1) / shape[-1])
        columns = average("col_var", total(square, -2) / shape[-2])
        return rows * columns / larger(total(rows, -2) / shape[-2], self.eps[0])

    def slot_shape(self, slot: str, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, *shape[-1:])}.get(slot, shape)
