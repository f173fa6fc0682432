"""Rules of reductions: the gradient of the reduced value is spread over what was reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule

Formula = Callable[["Reduction"], Value]


class Reduction:
    """A reduction seen backwards: its input, and output and gradient with the reduced axes kept."""

    def __init__(self, g: GradContext) -> None:
        self.g = g
        self.x = g.input(0)
        self._axes = g.constant_of(1) if g.optional(1) else None
        self.everything = g.optional(1) is None or (self._axes is not None and self._axes.size == 0)

    @property
    def is_identity(self) -> bool:
        """No axes and ``noop_with_empty_axes``: nothing is reduced."""
        return self.everything and bool(self.g.attribute("noop_with_empty_axes", 0))

    def with_axes(self, value: Value) -> Value:
        """A value of the output's shape with the reduced axes as ones, so that it broadcasts against the input."""
        g = self.g
        if g.attribute("keepdims", 1) or self.is_identity:
            return value
        if self.everything:
            return value  # a scalar broadcasts
        return g("Unsqueeze", value, g.input(1))

    @property
    def dy(self) -> Value:
        """The gradient, kept."""
        return self.with_axes(self.g.grad())

    @property
    def y(self) -> Value:
        """The output, kept."""
        return self.with_axes(self.g.output())

    def again(self, op_type: str, value: Value) -> Value:
        """Reduce another value of the input's shape over the same axes, kept."""
        axes = None if self.everything else self.g.input(1)
        return self.g(
            op_type, value, axes, keepdims=1, noop_with_empty_axes=self.g.attribute("noop_with_empty_axes", 0)
        )

    def count(self) -> Value | float:
        """How many elements go into one result."""
        g = self.g
        dims = g.dims(self.x)
        if self.is_identity:
            return 1.0
        if self.everything:
            return g.count(self.x)
        if self._axes is not None and dims is not None:
            return g.count(self.x, [int(a) % len(dims) for a in self._axes.reshape(-1)])
        return g.count(self.x) / g.cast(g("Size", g.output()))


def _mean(r: Reduction) -> Value:
    return r.g.expand_like(r.dy / r.count(), r.x)


def _extreme(r: Reduction) -> Value:
    """Equal winners share evenly, as PyTorch's amax and amin."""
    wins = r.g.cast(r.g("Equal", r.x, r.y))
    return wins * (r.dy / r.again("ReduceSum", wins))


def _product(r: Reduction) -> Value:
    """y / x; with one zero among the factors only that one has a gradient, with two none has."""
    g = r.g
    zero = g("Equal", r.x, 0)
    nonzero = g.where(zero, 1, r.x)
    zeros = r.again("ReduceSum", g.cast(zero))
    product = r.again("ReduceProd", nonzero) * r.dy
    alone = g.where(g("Equal", zeros, 1), product, 0)
    all_others = g.where(g("Equal", zeros, 0), product, 0)
    return g.where(zero, alone, all_others / nonzero)


def _norm(r: Reduction) -> Value:
    """x / |x|, 0 for the zero vector."""
    g, y = r.g, r.y
    return r.x * (r.dy / g.where(g("Equal", y, 0), 1, y))


REDUCTIONS: dict[str, Formula] = {
    "ReduceSum": lambda r: r.g.expand_like(r.dy, r.x),
    "ReduceMean": _mean,
    "ReduceMax": _extreme,
    "ReduceMin": _extreme,
    "ReduceProd": _product,
    "ReduceL1": lambda r: r.g("Sign", r.x) * r.dy,
    "ReduceL2": _norm,
    "ReduceLogSum": lambda r: r.g.expand_like(r.dy * r.g("Exp", -r.y), r.x),
    "ReduceLogSumExp": lambda r: r.g("Exp", r.x - r.y) * r.dy,
    "ReduceSumSquare": lambda r: r.x * (r.dy * 2),
}


def _register(op_type: str, formula: Formula) -> None:
    @gradient_rule(op_type, blocked=[1])
    def rule(g: GradContext) -> Sequence[Value | None]:
        return [formula(Reduction(g))]


for _op_type, _formula in REDUCTIONS.items():
    _register(_op_type, _formula)
