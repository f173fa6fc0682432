"""Derivatives of custom operators in JAX, forward and reverse: ``jvp``, ``grad``, ``hessian`` and their ``vmap``.

Three primitives are each other's derivatives: the Jacobian times tangents (linear in these), the gradient (its
transpose) and the Hessian of ``<gradients, operator>`` times tangents (its own transpose). That an operator lacks one
of them is said when it is asked for. Third derivatives and forward over forward mode it has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from deep500.errors import UnsupportedOperator
from deep500.frameworks.jax.custom_routes import Route, is_differentiable
from deep500.networks.execution.custom import no_forward, no_gradient, no_second
from deep500.operators.base import CustomOp
from deep500.operators.cpp import CompiledOp

Arrays = Sequence[Any]
Needed = tuple[bool, ...]


def differentiable(
    op: CustomOp, route: Route, run: Callable[..., tuple[Any, ...]], extra: int = 0
) -> Callable[..., tuple[Any, ...]]:
    """The operator with its derivatives.

    Args:
        op: the operator.
        route: runs it and its derivatives.
        run: gives the outputs.
        extra: how many of the last arguments of ``run`` are no inputs and have no influence.
    """
    function = jax.custom_jvp(run)
    without = op.spec.inactive if isinstance(op, CompiledOp) else ()

    def rule(primals: Arrays, tangents: Arrays) -> tuple[Any, Any]:
        outputs = function(*primals)
        inputs = primals[: len(primals) - extra]
        needed = tuple(
            is_differentiable(x)
            and i not in without
            and not isinstance(tangents[i], jax.custom_derivatives.SymbolicZero)
            for i, x in enumerate(inputs)
        )
        along = [t for t, want in zip(tangents, needed, strict=False) if want]
        how = {"custom": _Of(op, route), "ins": len(inputs), "outs": len(outputs), "along": needed}
        moved = iter(JACOBIAN.bind(*along, *inputs, *outputs, **how)) if along else None
        return outputs, tuple(_tangent(y, moved) for y in outputs)

    function.defjvp(rule, symbolic_zeros=True)
    return function


def _tangent(output: Any, moved: Iterator[Any] | None) -> Any:
    """The next tangent for a floating output, zeros if there are none; whole numbers have one of no dtype."""
    if not is_differentiable(output):
        return np.zeros(output.shape, jax.dtypes.float0)
    return jnp.zeros_like(output) if moved is None else next(moved)


class _Of:
    """An operator and its route, as a part of programs: the same operator is the same program."""

    def __init__(self, op: CustomOp, route: Route) -> None:
        self.op, self.route = op, route

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Of) and (self.op, self.route) == (other.op, other.route)

    def __hash__(self) -> int:
        return hash((id(self.op), id(self.route)))


def _primitive(name: str, run: Callable[..., Sequence[Any]], results: Callable[..., Sequence[Any]]) -> Any:
    """A primitive with several results, which runs a function and is called element by element under vmap.

    Args:
        run: operands and parameters -> results.
        results: the operands whose dtypes and shapes the results have.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(lambda *operands, **parameters: jax.jit(partial(run, **parameters))(*operands))
    primitive.def_abstract_eval(lambda *operands, **parameters: [_plain(x) for x in results(*operands, **parameters)])
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=True))

    def batched(operands: Arrays, axes: Sequence[Any], **parameters: Any) -> tuple[Any, Any]:
        mapped = [jnp.moveaxis(x, a, 0) for x, a in zip(operands, axes, strict=True) if a is not None]

        def of_slices(slices: Arrays) -> Any:
            rest = iter(slices)
            return primitive.bind(
                *(x if a is None else next(rest) for x, a in zip(operands, axes, strict=True)), **parameters
            )

        stacked = jax.lax.map(of_slices, mapped)
        return stacked, [0] * len(stacked)

    batching.primitive_batchers[primitive] = batched
    return primitive


def _plain(x: Any) -> Any:
    return jax.core.ShapedArray(x.shape, x.dtype)


def _split(operands: Arrays, first: int, ins: int) -> tuple[Arrays, Arrays, Arrays]:
    return operands[:first], operands[first : first + ins], operands[first + ins :]


def _spread(values: Arrays, which: Sequence[bool], like: Arrays) -> list[Any]:
    """The values at the places where ``which`` is true, zeros elsewhere."""
    rest = iter(values)
    return [next(rest) if w else jnp.zeros_like(x) for w, x in zip(which, like, strict=True)]


def _floating(arrays: Arrays) -> list[Any]:
    return [x for x in arrays if is_differentiable(x)]


def _whole(grads: Arrays, outputs: Arrays) -> list[Any]:
    """Gradients for all outputs: zeros for those that have none."""
    return _spread(grads, [is_differentiable(y) for y in outputs], outputs)


def _filled(value: Any, aval: Any) -> Any:
    return jnp.zeros(aval.shape, aval.dtype) if isinstance(value, ad.Zero) else value


# -- what they compute ------------------------------------------------------------------------------------------------
def _push(*operands: Any, custom: _Of, ins: int, outs: int, along: Needed) -> Sequence[Any]:
    """Tangents of the inputs in ``along``, inputs, outputs -> tangents of the floating outputs."""
    v, x, y = _split(operands, sum(along), ins)
    if not getattr(custom.op, "signature", {}).get("jvp"):
        raise no_forward(custom.op)
    return _floating(custom.route.push(x, _spread(v, along, x), y))


def _pull(*operands: Any, custom: _Of, ins: int, outs: int, needed: Needed) -> Sequence[Any]:
    """Gradients of the floating outputs, inputs, outputs -> gradients of the needed inputs."""
    g, x, y = _split_gradients(operands, ins, outs)
    return custom.route.backward(needed, _whole(g, y), list(x), list(y))


def _bend(*operands: Any, custom: _Of, ins: int, outs: int, along: Needed, needed: Needed) -> Sequence[Any]:
    """Tangents of the inputs in ``along``, then what ``_pull`` takes -> change of the needed inputs' gradients."""
    v, (g, x, y) = operands[: sum(along)], _split_gradients(operands[sum(along) :], ins, outs)
    return custom.route.bend(needed, _whole(g, y), list(x), _spread(v, along, x))


def _split_gradients(operands: Arrays, ins: int, outs: int) -> tuple[Arrays, Arrays, Arrays]:
    """Gradients of the floating outputs, inputs, outputs."""
    return _split(operands, len(operands) - ins - outs, ins)


JACOBIAN = _primitive(
    "deep500_jacobian", _push, lambda *a, custom, ins, outs, along: _floating(_split(a, sum(along), ins)[2])
)
GRADIENT = _primitive(
    "deep500_gradient",
    _pull,
    lambda *a, custom, ins, outs, needed: [
        x for x, w in zip(_split_gradients(a, ins, outs)[1], needed, strict=True) if w
    ],
)
HESSIAN = _primitive(
    "deep500_hessian",
    _bend,
    lambda *a, custom, ins, outs, along, needed: [
        x for x, w in zip(_split_gradients(a[sum(along) :], ins, outs)[1], needed, strict=True) if w
    ],
)


# -- how they are each other's derivatives ----------------------------------------------------------------------------
def _jvp_of_jacobian(operands: Arrays, tangents: Arrays, **how: Any) -> tuple[Any, Any]:
    (_, x, y), (moved, of_x, _) = (_split(a, sum(how["along"]), how["ins"]) for a in (operands, tangents))
    if not all(isinstance(t, ad.Zero) or t.dtype == jax.dtypes.float0 for t in of_x):
        raise _too_many(how["custom"].op)
    v = [_filled(t, t.aval) if isinstance(t, ad.Zero) else t for t in moved]
    return JACOBIAN.bind(*operands, **how), JACOBIAN.bind(*v, *x, *y, **how)


def _transpose_of_jacobian(
    cotangents: Arrays, *operands: Any, custom: _Of, ins: int, outs: int, along: Needed
) -> list[Any]:
    if not custom.op.differentiable:
        raise no_gradient(custom.op)
    v, x, y = _split(operands, sum(along), ins)
    g = [_filled(c, b) for c, b in zip(cotangents, _floating(y), strict=True)]
    gradients = GRADIENT.bind(*g, *x, *y, custom=custom, ins=ins, outs=outs, needed=along)
    return [*gradients, *[None] * (len(operands) - len(v))]


def _jvp_of_gradient(operands: Arrays, tangents: Arrays, **how: Any) -> tuple[Any, Any]:
    custom, ins, outs = how["custom"], how["ins"], how["outs"]
    g, x, y = _split_gradients(operands, ins, outs)
    of_g, of_x, _ = _split(tangents, len(g), ins)  # outputs are functions of the inputs, whose part is in of_x
    parts = []
    if not all(isinstance(t, ad.Zero) for t in of_g):
        parts.append(GRADIENT.bind(*(_filled(t, b) for t, b in zip(of_g, g, strict=True)), *x, *y, **how))
    along = tuple(not isinstance(t, ad.Zero) and is_differentiable(b) for t, b in zip(of_x, x, strict=True))
    if any(along):
        if not getattr(custom.op, "signature", {}).get("hvp"):
            raise no_second(custom.op)
        v = [t for t, want in zip(of_x, along, strict=True) if want]
        parts.append(HESSIAN.bind(*v, *operands, along=along, **how))
    results = GRADIENT.bind(*operands, **how)
    if not parts:
        return results, [ad.Zero(_plain(r)) for r in results]
    return results, [sum(rest, first) for first, *rest in zip(*parts, strict=True)]


def _transpose_of_gradient(
    cotangents: Arrays, *operands: Any, custom: _Of, ins: int, outs: int, needed: Needed
) -> list[Any]:
    _, x, y = _split_gradients(operands, ins, outs)
    chosen = [b for b, want in zip(x, needed, strict=True) if want]
    v = [_filled(c, b) for c, b in zip(cotangents, chosen, strict=True)]
    return [*JACOBIAN.bind(*v, *x, *y, custom=custom, ins=ins, outs=outs, along=needed), *[None] * (len(x) + len(y))]


def _jvp_of_hessian(operands: Arrays, tangents: Arrays, **how: Any) -> tuple[Any, Any]:
    count = sum(how["along"])
    if not all(isinstance(t, ad.Zero) or t.dtype == jax.dtypes.float0 for t in tangents[count:]):
        raise _too_many(how["custom"].op)
    v = [_filled(t, b) for t, b in zip(tangents[:count], operands[:count], strict=True)]
    return HESSIAN.bind(*operands, **how), HESSIAN.bind(*v, *operands[count:], **how)


def _transpose_of_hessian(
    cotangents: Arrays, *operands: Any, custom: _Of, ins: int, outs: int, along: Needed, needed: Needed
) -> Any:
    rest = operands[sum(along) :]
    _, x, _ = _split_gradients(rest, ins, outs)
    chosen = [b for b, want in zip(x, needed, strict=True) if want]
    v = [_filled(c, b) for c, b in zip(cotangents, chosen, strict=True)]
    return [
        *HESSIAN.bind(*v, *rest, custom=custom, ins=ins, outs=outs, along=needed, needed=along),
        *[None] * len(rest),
    ]


def _too_many(op: CustomOp) -> UnsupportedOperator:
    return UnsupportedOperator(
        f"operator {op.name!r}: got a derivative of forward mode along inputs, or a third derivative; expected at most "
        "forward mode over reverse mode: jax.jacfwd(jax.jacrev(f)), which jax.hessian is"
    )


_RULES = (
    (JACOBIAN, _jvp_of_jacobian, _transpose_of_jacobian),
    (GRADIENT, _jvp_of_gradient, _transpose_of_gradient),
    (HESSIAN, _jvp_of_hessian, _transpose_of_hessian),
)
for _made, _forward, _reverse in _RULES:
    ad.primitive_jvps[_made] = _forward
    ad.primitive_transposes[_made] = _reverse
