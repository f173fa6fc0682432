"""Compiled operators in TensorFlow: one operator, ``Deep500Call``, which runs any of them on TensorFlow's own memory.

It is written against TensorFlow's C interface (``custom_call.cpp``), so the compiler that builds operators builds it
too, whatever its C++ library. Graphs hold the key of an operator; see :mod:`deep500.operators.bridge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import InputError, UnsupportedOperator
from deep500.frameworks.tensorflow.custom_routes import describe, infer, is_differentiable, whole, with_shapes
from deep500.frameworks.tensorflow.dtypes import tf_dtype
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.custom import no_gradient, no_second
from deep500.operators.base import Descriptors
from deep500.operators.bridge import BACKWARD, FORWARD, HVP, JVP, Bridge, build_bridge
from deep500.operators.failures import guarded
from deep500.operators.python_op import GradientOp
from deep500.tensors import TensorDescriptor

_kernels: dict[str, OpKernel] = {}


@lru_cache(maxsize=1)
def _loaded() -> tuple[Bridge, Any]:
    """The bridge and TensorFlow's module of its operator, built if need be.

    Raises:
        MissingEngine: it must be built and there is no C++ compiler.
    """
    source = Path(__file__).resolve().parent / "custom_call.cpp"
    folder, framework = Path(tf.sysconfig.get_lib()), tf.sysconfig.get_link_flags()[-1].rpartition(":")[2]
    library = folder / (framework if framework.startswith("lib") else "libtensorflow_framework.dylib")
    path = build_bridge(source, [tf.sysconfig.get_include()], [str(library)], f"tensorflow {tf.__version__}")
    module = tf.load_op_library(str(path))
    tf.RegisterGradient("Deep500Call")(_gradient)
    return Bridge(path), module


class OpKernel:
    """A compiled operator; see :class:`deep500.frameworks.tensorflow.custom_routes.Route`."""

    implementation = "op_kernel"

    def __init__(self, op: Any) -> None:
        self.op = op
        bridge, module = _loaded()
        self.key, self._call = bridge.enter(op), module.deep500_call
        self.dtypes = [tf_dtype(name) for name in op.signature["inputs"]]
        self.made = [tf_dtype(name) for name in op.signature["outputs"]]
        self._numbers = [dtype.as_datatype_enum for dtype in self.made]  # converted already, which costs each call
        plan = op.shape_plan()
        self._plan = None if plan is None else flat(plan)
        self._planned: dict[Any, list[int]] = {}
        _kernels[self.key] = self

    def eager(self, tensors: Sequence[Any]) -> list[Any]:
        """See :class:`Route`; what the inputs' sizes must be is checked by the kernel."""
        if [x.dtype for x in tensors] != self.dtypes:
            self.op.check([describe(x) for x in tensors])
        plan = self._plan
        if plan is None:
            inputs = tuple(describe(x) for x in tensors)
            if inputs not in self._planned:
                self._planned[inputs] = constant(self.op.infer(inputs))
            plan = self._planned[inputs]
        return list(self._call(args=tensors, key=self.key, phase=FORWARD, wanted=0, plan=plan, Tout=self._numbers))

    def traced(self, tensors: Sequence[Any]) -> list[Any]:
        """See :class:`Route`."""
        inputs = [describe(x) for x in tensors]
        inferred, args, plan = infer(self.op, inputs), list(tensors), self._plan
        if plan is None and all(d.is_static for d in inferred):
            plan = constant(inferred)
        if plan is None:  # the author's own infer, and sizes that only a run knows
            args.append(self._sizes(tensors))
        outputs = self._call(args=args, key=self.key, phase=FORWARD, wanted=0, plan=plan or [], Tout=self.made)
        return with_shapes(outputs, [d.shape for d in inferred])

    def _sizes(self, tensors: Sequence[Any]) -> Any:
        """The outputs' ranks and sizes as a tensor, asked of the operator in the run."""
        dtypes = [x.dtype.name for x in tensors]

        def ask(*shapes: np.ndarray) -> np.ndarray:
            known = [TensorDescriptor(t, tuple(map(int, s))) for t, s in zip(dtypes, shapes, strict=True)]
            results: list[Any] = [d.shape for d in self.op.infer(known)]
            return np.array([size for shape in results for size in (len(shape), *shape)], np.int64)

        return tf.numpy_function(
            guarded(self.op.name, ask), [tf.shape(x, tf.int64) for x in tensors], tf.int64, stateful=False
        )

    def gradient(self, inputs: Sequence[Any], outputs: Sequence[Any], grads: Sequence[Any], skipped: Any) -> list[Any]:
        """Gradients of the inputs, None for those that have none or are not wanted."""
        if not self.op.differentiable:
            raise no_gradient(self.op)
        skipped = {*skipped, *self.op.spec.inactive}
        needed = [is_differentiable(x) and i not in skipped for i, x in enumerate(inputs)]
        args = [*(whole(g, y) for g, y in zip(grads, outputs, strict=True)), *inputs, *outputs]
        gradients = iter(self._derivative(BACKWARD, args, inputs, needed))
        return [next(gradients) if w else None for w in needed]

    def second(self, args: Sequence[Any], needed: Sequence[bool], tangents: Sequence[Any]) -> list[Any]:
        """The gradient of ``gradient``, by Jacobian-vector and Hessian-vector products (the Hessian is symmetric)."""
        if not (self.op.signature.get("jvp") and self.op.signature.get("hvp")):
            raise no_second(self.op)
        out = len(self.made)
        grads, inputs = args[:out], args[out : out + len(self.dtypes)]
        rest = iter(tangents)
        along = [whole(next(rest) if w else None, x) for w, x in zip(needed, inputs, strict=True)]
        sizes = tf.concat([part for g in grads for part in ([tf.cast(tf.rank(g), tf.int64)], tf.shape(g, tf.int64))], 0)
        pushed = self._call(
            args=[*inputs, *along, sizes], key=self.key, phase=JVP, wanted=0, plan=[], Tout=self.made * 2
        )
        bent = iter(self._derivative(HVP, [*grads, *inputs, *along], inputs, needed))
        first = [
            p if is_differentiable(p) else None for p in with_shapes(pushed[out:], [describe(g).shape for g in grads])
        ]
        return [*first, *(next(bent) if w else None for w in needed), *[None] * out]

    def _derivative(self, phase: int, args: Sequence[Any], inputs: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
        """One of the calls whose results are like the needed inputs."""
        chosen = [x for x, w in zip(inputs, needed, strict=True) if w]
        if not chosen:
            return []
        mask = sum(1 << i for i, want in enumerate(needed) if want)
        results = self._call(args=args, key=self.key, phase=phase, wanted=mask, plan=[], Tout=[x.dtype for x in chosen])
        return with_shapes(results, [describe(x).shape for x in chosen])


class GradientKernel:
    """The gradient of a compiled operator, where a network asks for it by name."""

    implementation = "op_kernel"

    def __init__(self, op: GradientOp) -> None:
        self.count, self.inner = op.count, OpKernel(op.operator)

    def eager(self, tensors: Sequence[Any]) -> list[Any]:
        """See :class:`Route`."""
        return self.traced(tensors)

    def traced(self, tensors: Sequence[Any]) -> list[Any]:
        """See :class:`Route`; zeros for inputs that have no gradient."""
        kernel, last = self.inner, len(tensors) - self.count
        grads, inputs, outputs = tensors[: self.count], tensors[self.count : last], tensors[last:]
        kernel.op.check([describe(x) for x in inputs])
        for i, dtype in enumerate(kernel.made):
            if {grads[i].dtype, outputs[i].dtype} != {dtype}:
                raise InputError(
                    f"operator {kernel.op.name!r}: got output {i} of {outputs[i].dtype.name} and its gradient of "
                    f"{grads[i].dtype.name}; expected {dtype.name}"
                )
        gradients = kernel.gradient(inputs, outputs, grads, ())
        return [tf.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs, strict=True)]


def _gradient(call: Any, *grads: Any) -> list[Any]:
    """The gradient of ``Deep500Call``, as TensorFlow asks for it."""
    kernel, phase = _kernel(call.get_attr("key")), call.get_attr("phase")
    args, results = list(call.inputs), list(call.outputs)
    if phase == FORWARD:
        count = len(kernel.dtypes)
        skipped = getattr(call, "skip_input_indices", None) or ()
        gradients = kernel.gradient(args[:count], results, grads, skipped)
        return gradients + [None] * (len(args) - count)
    if phase == BACKWARD:
        mask = call.get_attr("wanted")
        return kernel.second(args, [bool(mask >> i & 1) for i in range(len(kernel.dtypes))], grads)
    raise no_second(kernel.op)


def _kernel(key: str | bytes) -> OpKernel:
    name = key.decode() if isinstance(key, bytes) else key
    if name not in _kernels:
        raise UnsupportedOperator(
            f"got the gradient of custom operator {name!r}, which is not loaded in this process; expected "
            "custom_op(op) to be called first: do that"
        )
    return _kernels[name]


def flat(plan: Sequence[Sequence[tuple[int, int]] | None]) -> list[int]:
    """A shape plan as custom_call.cpp wants it: per output its rank, then (input, axis) or (-1, size) of every axis; -1
    for one that has input 0's shape."""
    numbers: list[int] = []
    for output in plan:
        numbers += [-1] if output is None else [len(output), *(part for pair in output for part in pair)]
    return numbers


def constant(outputs: Descriptors) -> list[int]:
    """The shape plan of outputs whose sizes are known."""
    shapes: list[Any] = [d.shape for d in outputs]
    return flat([[(-1, size) for size in shape] for shape in shapes])
