"""Compiled operators in XLA: one custom call for all of them, which runs an operator on XLA's own buffers.

What is compiled holds the operator's key, not an address, so it stays good in JAX's cache on disk; see
:mod:`deep500.operators.bridge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.errors import InputError
from deep500.frameworks.jax.custom_routes import Specs, is_differentiable
from deep500.networks.execution.custom import no_gradient, no_second
from deep500.operators.bridge import BACKWARD, FORWARD, HVP, JVP, Bridge, build_bridge, make_instance
from deep500.operators.python_op import GradientOp
from deep500.tensors import TensorDescriptor

TARGET = "deep500_call"
"""The name of the custom call in XLA."""


@lru_cache(maxsize=1)
def bridge() -> Bridge:
    """The bridge between XLA and compiled operators, built if need be and made known to JAX.

    Raises:
        MissingEngine: it must be built and there is no C++ compiler.
    """
    source = Path(__file__).resolve().parent / "custom_call.cpp"
    bridge = Bridge(build_bridge(source, [jax.ffi.include_dir()], [], f"jaxlib {jax.lib.__version__}"))
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(bridge.library.d500_xla_call), platform="cpu")
    return bridge


class XlaCall:
    """A compiled operator within traced programs; see :class:`deep500.frameworks.jax.custom_routes.Route`."""

    implementation = "xla_ffi"

    def __init__(self, op: Any) -> None:
        self.op, self.key = op, bridge().enter(op)

    def forward(self, specs: Specs, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs."""
        make_instance(self.op, [x.shape for x in inputs], [y.shape for y in specs])  # what it has against them, now
        return self._call(FORWARD, 0, specs, inputs)

    def backward(
        self, needed: Sequence[bool], grads: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The gradients of the needed inputs."""
        return self._call(BACKWARD, mask(needed), chosen(needed, inputs), [*grads, *inputs, *outputs])

    def push(self, inputs: Sequence[Any], tangents: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
        """Tangents of all outputs, from those of all inputs."""
        specs = [jax.ShapeDtypeStruct(y.shape, y.dtype) for y in outputs]
        return self._call(JVP, 0, specs * 2, [*inputs, *tangents])[len(specs) :]

    def bend(
        self, needed: Sequence[bool], grads: Sequence[Any], inputs: Sequence[Any], tangents: Sequence[Any]
    ) -> Sequence[Any]:
        """How the gradients of the needed inputs change: by the Hessian-vector product, as the Hessian is symmetric."""
        return self._call(HVP, mask(needed), chosen(needed, inputs), [*grads, *inputs, *tangents])

    def _call(self, phase: int, needed: int, specs: Specs, args: Sequence[Any]) -> tuple[Any, ...]:
        if not specs:
            return ()
        call = jax.ffi.ffi_call(TARGET, tuple(specs), vmap_method="sequential")
        return tuple(call(*args, key=self.key, phase=np.int64(phase), wanted=np.int64(needed)))


class XlaGradientCall:
    """The gradient of a compiled operator, where a network asks for it by name."""

    implementation = "xla_ffi"

    def __init__(self, op: GradientOp) -> None:
        self.count, self.inner = op.count, XlaCall(op.operator)

    def forward(self, specs: Specs, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of the operator's inputs, zeros for those that have none."""
        op, last = self.inner.op, len(inputs) - self.count
        grads, taken, outputs = inputs[: self.count], inputs[self.count : last], inputs[last:]
        if not op.differentiable:
            raise no_gradient(op)
        inferred = op.infer([TensorDescriptor(str(x.dtype), x.shape) for x in taken])
        for g, y, d in zip(grads, outputs, inferred, strict=True):
            if not g.shape == y.shape == d.shape or not str(g.dtype) == str(y.dtype) == d.dtype:
                raise InputError(
                    f"operator {op.name!r}: got an output {y.dtype}{list(y.shape)} and its gradient {g.dtype}"
                    f"{list(g.shape)}; expected both {d}"
                )
        needed = [is_differentiable(x) and i not in op.spec.inactive for i, x in enumerate(taken)]
        gradients = iter(self.inner.backward(needed, grads, taken, outputs))
        return tuple(next(gradients) if w else jnp.zeros_like(x) for w, x in zip(needed, taken, strict=True))

    def backward(self, *args: Any) -> tuple[Any, ...]:
        """No: it is asked for nothing that could call this."""
        raise no_second(self.inner.op)

    push = bend = backward


def mask(needed: Sequence[bool]) -> int:
    """Bit i for input i."""
    return sum(1 << i for i, want in enumerate(needed) if want)


def chosen(needed: Sequence[bool], inputs: Sequence[Any]) -> Specs:
    """Dtypes and shapes of the needed inputs."""
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x, w in zip(inputs, needed, strict=True) if w]
