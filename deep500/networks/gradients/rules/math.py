"""Rules of element-wise arithmetic. `dy` is the gradient of the output y; each formula is that of calculus."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule

Gradients = Sequence[Value | None]
Unary = Callable[[GradContext, Value, Value, Value], Value]  # (context, x, y, dy) -> dx

UNARY: dict[str, Unary] = {
    "Identity": lambda g, x, y, dy: dy,
    "Neg": lambda g, x, y, dy: -dy,
    "Abs": lambda g, x, y, dy: dy * g("Sign", x),
    "Sqrt": lambda g, x, y, dy: dy * 0.5 / y,
    "Exp": lambda g, x, y, dy: dy * y,
    "Log": lambda g, x, y, dy: dy / x,
    "Reciprocal": lambda g, x, y, dy: -(dy * y * y),
    "Erf": lambda g, x, y, dy: dy * (2 / math.sqrt(math.pi)) * g("Exp", -(x * x)),
    "Sin": lambda g, x, y, dy: dy * g("Cos", x),
    "Cos": lambda g, x, y, dy: -(dy * g("Sin", x)),
    "Tan": lambda g, x, y, dy: dy * (1 + y * y),
    "Asin": lambda g, x, y, dy: dy / g("Sqrt", 1 - x * x),
    "Acos": lambda g, x, y, dy: -(dy / g("Sqrt", 1 - x * x)),
    "Atan": lambda g, x, y, dy: dy / (1 + x * x),
    "Sinh": lambda g, x, y, dy: dy * g("Cosh", x),
    "Cosh": lambda g, x, y, dy: dy * g("Sinh", x),
    "Tanh": lambda g, x, y, dy: dy * (1 - y * y),
    "Asinh": lambda g, x, y, dy: dy / g("Sqrt", x * x + 1),
    "Acosh": lambda g, x, y, dy: dy / g("Sqrt", x * x - 1),
    "Atanh": lambda g, x, y, dy: dy / (1 - x * x),
}


def register_unary(table: dict[str, Unary]) -> None:
    """Register the rules of operators with one input and one output."""

    def register(op_type: str, formula: Unary) -> None:
        @gradient_rule(op_type)
        def rule(g: GradContext) -> Gradients:
            return [formula(g, g.input(0), g.output(), g.grad())]

    for op_type, formula in table.items():
        register(op_type, formula)


register_unary(UNARY)


def per_input(g: GradContext, *formulas: Callable[[], Value]) -> Gradients:
    """Gradients of broadcast inputs; each formula, of the output's shape, is emitted only if its input needs it."""
    return [g.unbroadcast(f(), g.input(i)) if g.needs(i) else None for i, f in enumerate(formulas)]


@gradient_rule("Add")
def add(g: GradContext) -> Gradients:
    """a + b."""
    return per_input(g, g.grad, g.grad)


@gradient_rule("Sub")
def sub(g: GradContext) -> Gradients:
    """a - b; the sign changes after the reduction, where there is less of it."""
    dy = g.grad()
    return [
        g.unbroadcast(dy, g.input(0)) if g.needs(0) else None,
        -g.unbroadcast(dy, g.input(1)) if g.needs(1) else None,
    ]


@gradient_rule("Mul")
def mul(g: GradContext) -> Gradients:
    """a * b."""
    dy, a, b = g.grad(), g.input(0), g.input(1)
    return per_input(g, lambda: dy * b, lambda: dy * a)


@gradient_rule("Div")
def div(g: GradContext) -> Gradients:
    """a / b."""
    dy, b = g.grad(), g.input(1)
    return per_input(g, lambda: dy / b, lambda: -(dy * g.output() / b))


@gradient_rule("Mod")
def mod(g: GradContext) -> Gradients:
    """a mod b = a - b * trunc(a / b), the only kind for floats (fmod=1)."""
    dy, a, b = g.grad(), g.input(0), g.input(1)

    def trunc() -> Value:
        quotient = a / b
        return g("Sign", quotient) * g("Floor", g("Abs", quotient))

    return per_input(g, lambda: dy, lambda: -(dy * trunc()))


@gradient_rule("Pow")
def power(g: GradContext) -> Gradients:
    """a ** b; b may have another dtype. Where a is 0 the exponent's gradient is taken as 0, where b is 0 the base's."""
    dy, a, b = g.grad(), g.input(0), g.input(1)
    known = g.constant_of(1)
    exponent = b if g.describe(b).dtype == g.dtype else g.cast(b)

    def base() -> Value:
        if known is not None and known.size == 1 and known.item() in (1, 2):
            return dy if known.item() == 1 else dy * 2 * a
        slope = exponent * g("Pow", a, exponent - 1)
        if known is None or not np.all(known):
            slope = g.where(g("Equal", exponent, 0), 0, slope)
        return dy * slope

    def power_of() -> Value:
        return dy * g.output() * g("Log", g.where(g("Equal", a, 0), 1, a))

    grads = list(per_input(g, base, power_of))
    if grads[1] is not None and exponent is not b:
        grads[1] = g.cast(grads[1], g.describe(b).dtype)
    return grads


@gradient_rule("Sum")
def add_all(g: GradContext) -> Gradients:
    """The sum of any number of inputs."""
    return per_input(g, *[g.grad] * len(g.inputs))


@gradient_rule("Mean")
def mean(g: GradContext) -> Gradients:
    """The mean of any number of inputs."""
    dy = g.grad() / len(g.inputs)
    return per_input(g, *[lambda: dy] * len(g.inputs))


@gradient_rule("Max", "Min")
def extreme(g: GradContext) -> Gradients:
    """The element-wise extreme; equal winners share the gradient evenly, as in PyTorch."""
    if len(g.inputs) == 1:
        return [g.grad()]
    wins = [g.cast(g("Equal", g.input(i), g.output())) for i in range(len(g.inputs))]
    share = g.grad() / (wins[0] + wins[1] if len(wins) == 2 else g("Sum", *wins))
    return per_input(g, *[lambda i=i: share * wins[i] for i in range(len(wins))])


@gradient_rule("Clip")
def clip(g: GradContext) -> Gradients:
    """x between two bounds; on a bound the gradient goes to x, as in PyTorch."""
    dy, x, low, high = g.grad(), g.input(0), g.optional(1), g.optional(2)
    below = None if low is None else g("Less", x, low)
    above = None if high is None else g("Greater", x, high)
    outside = [m for m in (below, above) if m is not None]
    dx = dy
    if g.needs(0) and outside:
        dx = g.where(outside[0] if len(outside) == 1 else g("Or", *outside), 0, dy)
    bounds = [
        None if mask is None or bound is None or not g.needs(i) else g.unbroadcast(g.where(mask, dy, 0), bound)
        for i, mask, bound in ((1, below, low), (2, above, high))
    ]
    return [dx, *bounds]


@gradient_rule("Where", blocked=[0])
def where(g: GradContext) -> Gradients:
    """Each element's gradient goes to the input that it came from."""
    dy, chosen = g.grad(), g.input(0)
    return [
        None,
        g.unbroadcast(g.where(chosen, dy, 0), g.input(1)) if g.needs(1) else None,
        g.unbroadcast(g.where(chosen, 0, dy), g.input(2)) if g.needs(2) else None,
    ]


@gradient_rule("Cast", "CastLike", blocked=[1])
def cast(g: GradContext) -> Gradients:
    """Between floating dtypes the gradient is cast back; integers carry none."""
    return [g("CastLike", g.grad(), g.input(0))]


@gradient_rule("CumSum", blocked=[1])
def cumsum(g: GradContext) -> Gradients:
    """The gradient is the cumulative sum from the other end."""
    reverse = 1 - g.attribute("reverse", 0)
    return [g("CumSum", g.grad(), g.input(1), exclusive=g.attribute("exclusive", 0), reverse=reverse)]
