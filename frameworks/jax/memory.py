"""The bytes that XLA reserves for a training step, from its plan of buffers: exact, and known before the step runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def step_memory(executor: Any, inputs: Mapping[str, Any], loss: str = "loss") -> int | None:
    """Bytes that a training step holds at most beside its inputs and parameters, gradients and outputs included.

    The step is compiled for these inputs and does not run. Counted is XLA's one block for everything that is temporary
    plus what the step returns; scratch memory that kernels get elsewhere is not.

    Args:
        executor: of this backend, with a plan or without one.
        inputs: as for ``inference_and_backprop``.
        loss: the scalar that is differentiated.

    Returns:
        bytes; None where XLA does not tell on this device (not measured).

    Raises:
        PlanError, InputError: see ``inference_and_backprop``.

    Example:
        >>> import numpy as np
        >>> from deep500.frameworks.jax import from_model
        >>> from deep500.networks import add_loss, create
        >>> executor = from_model(add_loss(create("mlp", shape=(4,), classes=3)))
        >>> given = {"input": np.ones((8, 4), "float32"), "label": np.zeros(8, "int64")}
        >>> step_memory(executor, given) > 8 * 128 * 4
        True
    """
    planned = executor.checked_step(inputs, loss).lowered(inputs).compile().memory_analysis()
    return None if planned is None else int(planned.temp_size_in_bytes + planned.output_size_in_bytes)
