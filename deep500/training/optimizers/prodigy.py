"""Prodigy: Adam that estimates its learning rate from the distance to where it began."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from deep500.errors import InputError
from deep500.training.optimizers.hyperparameters import hyperparameter
from deep500.training.optimizers.sums import SummingOptimizer


class ProdigyOptimizer(SummingOptimizer):
    """Prodigy (Mishchenko and Defazio 2024, arXiv 2306.06101) as prodigyopt has it, decoupled decay, t from 1.

    With the distance ``d`` (``d0`` at first), ``rate = d lr`` (times ``sqrt(1 - b2^t) / (1 - b1^t)`` with
    ``use_bias_correction``) and ``b3 = sqrt(b2)``, sums over all elements of all parameters:
    ``r <- b3 r + rate d / d0 sum(g (w0 - w));  s <- b3 s + rate d / d0 g;  d_hat = d_coef r / sum(|s|)``;
    ``m <- b1 m + (1 - b1) d g;  v <- b2 v + (1 - b2) d^2 g^2``; then ``d <- max(d, d_hat)``, growing by at most
    ``growth_rate``, and with the rate of before ``w <- w - rate (weight_decay w + m / (sqrt(v) + d eps))``.
    ``lr`` is a factor that schedules move, 1 as a rule. Optax corrects the bias by default, which is another rule.

    The sums are global: where ranks hold some parameters each (``ShardedOptimizer``), they are added up over ranks; a
    scheme that calls ``update_rule`` by itself is refused. Reading them waits for the device once in a step.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: factor of the estimated rate.
        betas: ``(b1, b2)``.
        eps: keeps the quotient finite.
        weight_decay: decoupled.
        use_bias_correction: whether the rate corrects the bias of the moments.
        d0: the first distance, > 0.
        d_coef: factor of the estimate.
        growth_rate: by which ``d`` may grow in a step.
    """

    count = 2
    begins_with: ClassVar[Mapping[str, float]] = {"d": 0.0, "d_max": 0.0, "d_numerator": 0.0}
    shared = frozenset({"lr", "betas", "use_bias_correction", "d0", "d_coef", "growth_rate"})

    lr: float = 1.0
    betas: tuple[float, float] = hyperparameter((0.9, 0.999), below=1)
    eps: float = 1e-8
    weight_decay: float = 0.0
    use_bias_correction: bool = False
    d0: float = hyperparameter(1e-6, least=1e-300)
    d_coef: float = 1.0
    growth_rate: float = 1e300

    def distance(self) -> float:
        """``d`` before this step."""
        return self.numbers["d"] or self.d0

    def rate(self) -> float:
        """``rate`` of this step."""
        (b1, b2), t = self.betas, self.steps + self.behind + 1  # one rate for all, as are the sums
        return self.distance() * self.lr * ((1 - b2**t) ** 0.5 / (1 - b1**t) if self.use_bias_correction else 1.0)

    def summands(self, grad: Any, old_param: Any, name: str) -> Sequence[Any]:
        d, sums = self.distance(), self.slot("s")
        first = self.slot("p0").setdefault(name, old_param * 1)
        sums[name] = math.sqrt(self.betas[1]) * sums.get(name, 0.0) + d / self.d0 * self.rate() * grad
        return grad * (first - old_param), abs(sums[name])

    def take_sums(self, sums: Sequence[float]) -> None:
        d, (progress, size) = self.distance(), sums
        numerator = math.sqrt(self.betas[1]) * self.numbers["d_numerator"] + d / self.d0 * self.rate() * progress
        estimate = self.d_coef * numerator / size if size else d
        most = max(self.numbers["d_max"] or self.d0, estimate)
        new = min(most, (max(d, estimate) if d == self.d0 else d) * self.growth_rate)
        self.coming = {"d": new, "d_max": most, "d_numerator": numerator}

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        if not self.summed:
            raise InputError(
                f"got ProdigyOptimizer and one parameter, {name!r}; expected all of them, over which it sums: use a "
                "scheme that calls its update(), such as ConsistentDecentralized or ShardedOptimizer"
            )
        (b1, b2), d, rate = self.betas, self.distance(), self.rate()
        means, squares = self.slot("exp_avg"), self.slot("exp_avg_sq")
        means[name] = b1 * means.get(name, 0.0) + (1 - b1) * d * grad
        squares[name] = b2 * squares.get(name, 0.0) + (1 - b2) * d * d * grad * grad
        deviation = squares[name] ** 0.5 + self.coming["d"] * self.eps
        return self.decayed(old_param) - rate * means[name] / deviation

    def decayed(self, param: Any) -> Any:
        return (1 - self.weight_decay * self.rate()) * param
