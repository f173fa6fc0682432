"""Rules that need sums over all elements of all parameters before they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from deep500.tensors import total
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.tunable import in_its_group


class SummingOptimizer(UpdateRuleOptimizer, declares=False):
    """Base of rules that :meth:`summands` of all parameters are added up for, before the first rule of an update.

    The summands are arithmetic as a rule is, and may remember things in slots. PyTorch computes those of all parameters
    at once, and one number each is read.

    Example (descent whose step has the length ``lr``):
        >>> class UnitStep(SummingOptimizer):
        ...     count = 1
        ...     lr: float = 0.1
        ...     def summands(self, grad, old_param, name): return (grad * grad,)
        ...     def take_sums(self, sums): self.length = sums[0] ** 0.5
        ...     def update_rule(self, grad, old_param, name): return old_param - self.lr / self.length * grad
        >>> UnitStep.needs_all
        True
    """

    needs_all = True
    count: ClassVar[int] = 0
    """How many sums there are."""
    around: ClassVar[Mapping[str, Callable[..., Any]]] = {**UpdateRuleOptimizer.around, "summands": in_its_group}

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.summed = False  # whether the sums of the coming update were taken

    def summands(self, grad: Any, old_param: Any, name: str) -> Sequence[Any]:
        """The tensors of a parameter whose elements are added up."""
        raise NotImplementedError

    def take_sums(self, sums: Sequence[float]) -> None:
        """Take the sums, over all ranks that hold some parameters each."""
        raise NotImplementedError

    def update(self) -> None:
        if not self.changes_gradients:
            owned = self._owned(self.parameter_names())
            if self._take_up(self._compiled(owned)) and self.updates.apply(self, owned):
                return
        super().update()

    def take_all(self, rows: Sequence[tuple[str, Any, Any]]) -> None:
        if self.summed:
            return
        alike = all(getattr(g, "shape", None) == old.shape and g.dtype == old.dtype for _, old, g in rows)
        sums = self._compiled([name for name, *_ in rows], [grad for *_, grad in rows]) if alike else None
        if sums is None:
            parts = [[total(tensor) for tensor in self.summands(grad, old, name)] for name, old, grad in rows]
            numbers = [[float(self.network.to_numpy(part)) for part in row] for row in parts]
            sums = [sum(column) for column in zip(*numbers, strict=True)]
        self._take_up(sums)

    def _compiled(self, names: Sequence[str], gradients: Sequence[Any] | None = None) -> list[float] | None:
        compute: Any = getattr(self.updates, "sums", None)
        return None if compute is None else compute(self, names, gradients)

    def _take_up(self, sums: Sequence[float] | None) -> bool:
        if sums is not None:
            whole = np.array(sums or [0.0] * self.count, np.float64)
            self.take_sums((whole if self.exchange.owned is None else self.exchange.totals(whole)).tolist())
            self.summed = True
        return self.summed

    def count_update(self) -> None:
        self.summed = False
        super().count_update()

    def load_numbers(self, state: Mapping[str, np.ndarray]) -> None:
        self.summed = False
        super().load_numbers(state)
