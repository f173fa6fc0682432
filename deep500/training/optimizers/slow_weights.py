"""Lookahead: slow weights that follow the fast ones of another optimizer every few steps."""

from __future__ import annotations

from typing import Any

from deep500.training.optimizers.hyperparameters import hyperparameter


def lookahead(kind: Any) -> Any:
    """Return an optimizer class with slow weights around a kind's (Zhang et al. 2019, arXiv 1907.08610).

    After every ``every`` steps ``slow <- slow + slow_step (w - slow);  w <- slow``; what the kind remembers stays
    (pytorch-optimizer's ``pullback_momentum="none"``). State: n more.

    Args:
        kind: a class with an ``update_rule``.

    Example:
        >>> from deep500.training.optimizers import AdamOptimizer
        >>> lookahead(AdamOptimizer).hyperparameters
        ('lr', 'betas', 'eps', 'weight_decay', 'every', 'slow_step')
    """

    class Lookahead(kind):
        keeps_parameters = True
        elementwise = vars(kind).get("elementwise", False)

        every: float = hyperparameter(5.0, least=1.0)
        slow_step: float = 0.5

        def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
            slow = self.slot("slow")
            slow.setdefault(name, old_param * 1)
            new = super().update_rule(grad, old_param, name)
            if (self.steps + 1) % int(self.every):
                return new
            slow[name] = slow[name] + self.slow_step * (new - slow[name])
            return slow[name] * 1

    Lookahead.__name__ = Lookahead.__qualname__ = f"Lookahead{kind.__name__}"
    Lookahead.__doc__ = f"Slow weights around :class:`{kind.__name__}`, see :func:`lookahead`."
    return Lookahead
