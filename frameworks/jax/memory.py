"""What XLA reserves for a training step, from its own plan of buffers: exact, and known before the step runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deep500.errors import UnsupportedOperator

if TYPE_CHECKING:
    from deep500.frameworks.jax.executor import Executor


def footprint(executor: Executor, inputs: Mapping[str, Any], loss: str = "loss") -> int:
    """Bytes that a training step holds at most beside its inputs and parameters, gradients and outputs included.

    The step is compiled for these inputs and does not run. Counted is XLA's one block for everything that is temporary
    plus what the step returns; scratch memory that kernels get elsewhere is not.

    Args:
        executor: with a plan or without one.
        inputs: as for ``inference_and_backprop``.
        loss: the scalar that is differentiated.

    Raises:
        UnsupportedOperator: XLA does not tell on this device: "not measured".
        PlanError, InputError: see ``inference_and_backprop``.

    Example:
        >>> import numpy as np
        >>> from deep500.frameworks.jax import from_model
        >>> from deep500.networks import add_loss, create
        >>> executor = from_model(add_loss(create("mlp", shape=(4,), classes=3)))
        >>> given = {"input": np.ones((8, 4), "float32"), "label": np.zeros(8, "int64")}
        >>> footprint(executor, given) > 8 * 128 * 4
        True
    """
    found = executor.training(inputs, loss).lowered(inputs).compile().memory_analysis()
    if found is None:
        raise UnsupportedOperator(
            f"memory of a training step: not measured, as XLA does not tell on {executor.jax_device.platform!r}; "
            "expected a device on which it does: use the processor"
        )
    return int(found.temp_size_in_bytes + found.output_size_in_bytes)
