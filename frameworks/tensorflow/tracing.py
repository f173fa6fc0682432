"""Functions traced by ``tf.function`` once for all batch sizes; eager where that is impossible."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from deep500.frameworks.tensorflow.dtypes import tf_dtype
from deep500.frameworks.tensorflow.operators import NeedsValue
from deep500.frameworks.tensorflow.runtime import tf
from deep500.tensors import TensorDescriptor


def traced(
    run: Callable[..., Any], inputs: Collection[TensorDescriptor], jit_compile: bool, numbers: bool = False
) -> Callable[..., Any]:
    """The function, traced for these inputs, with a vector of numbers before them if wanted."""
    if any("(" in (d.dtype or "") for d in inputs):  # sequences and optional values
        return run
    specs = [tf.TensorSpec([None], tf.float64)] if numbers else []
    for d in inputs:
        shape = None if d.shape is None else [n if isinstance(n, int) else None for n in d.shape]
        specs.append(tf.TensorSpec(shape, tf_dtype(d.dtype)))
    general = tf.function(run, input_signature=specs, autograph=False, jit_compile=jit_compile or None)
    of_nothing = tf.function(run, autograph=False)  # sees that a size is 0, which needs other kernels
    chosen: list[Any] = []

    def call(*inputs: Any) -> Any:
        if not chosen:
            try:
                chosen.append(general.get_concrete_function())
            except NeedsValue:
                chosen.append(run)
        if chosen[0] is not run and any(x.shape.num_elements() == 0 for x in inputs[numbers:]):
            return of_nothing(*inputs)
        return chosen[0](*inputs)

    return call
