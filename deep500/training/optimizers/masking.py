"""Cautious masking: only those weights move whose step agrees with the present gradient."""

from __future__ import annotations

from typing import Any

from deep500.errors import InputError
from deep500.training.optimizers.arithmetic import larger, norm, sign


def cautious(kind: Any) -> Any:
    """Return an optimizer class whose steps are a kind's, masked (Liang et al. 2024, arXiv 2411.16085).

    Of the step that the rule takes, decoupled weight decay apart, what has the sign of the gradient stays, and grows
    by ``n / (count + 1)``, ``count`` of ``n`` elements of a tensor, as pytorch-optimizer has it. The count is of a
    whole tensor: schemes whose ranks update parts of one refuse it.

    Args:
        kind: a subclass of :class:`~deep500.training.optimizers.UpdateRuleOptimizer`.

    Raises:
        InputError: a kind that remembers parameters of its own, such as Schedule-Free's.

    Example:
        >>> from deep500.training.optimizers import NAdamWOptimizer
        >>> cautious(NAdamWOptimizer).__name__, cautious(NAdamWOptimizer).hyperparameters[0]
        ('CautiousNAdamWOptimizer', 'lr')
    """

    if kind.keeps_parameters:
        raise InputError(
            f"got {kind.__name__} to mask, which remembers parameters beside the network's; expected a rule whose "
            "step is all that it does, such as AdamWOptimizer: choose another"
        )

    class Cautious(kind):
        elementwise = False

        def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
            start = self.decayed(old_param)
            step = start - super().update_rule(grad, old_param, name)
            agrees = larger(sign(step) * sign(grad), 0.0)
            count = norm(agrees) ** 2  # of ones
            return start - step * agrees * (norm(agrees * 0 + 1) ** 2 / (count + 1))

    Cautious.__name__ = Cautious.__qualname__ = f"Cautious{kind.__name__}"
    Cautious.__doc__ = f"Cautious masking of :class:`{kind.__name__}`, see :func:`cautious`."
    return Cautious
