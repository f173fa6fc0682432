"""Bytes that TensorFlow's allocator hands out while a training step runs: its own count, not samples of the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deep500.frameworks.tensorflow.dtypes import as_tensor
from deep500.frameworks.tensorflow.runtime import tf


def step_memory(executor: Any, inputs: Mapping[str, Any], loss: str = "loss") -> int | None:
    """Bytes that a training step holds at most beyond what is held before it, gradients and outputs included.

    On processors, tensors of less than 256 KiB are not counted, as TensorFlow takes them from elsewhere.
    The step runs twice, the first time to compile it; statistics and random numbers move on. What it holds depends on
    the order in which TensorFlow's threads take up what is ready, so it varies from run to run by some per cent, unless
    ``tf.config.threading.set_inter_op_parallelism_threads(1)`` was called in time.

    Args:
        executor: of this backend, with a plan or without one.
        inputs: as for ``inference_and_backprop``.
        loss: the scalar that is differentiated.

    Returns:
        bytes; None where the allocator does not count (not measured). On processors it does with oneDNN, which is on by
        default where TensorFlow was built with it; ``TF_ENABLE_ONEDNN_OPTS=0`` ends that.

    Raises:
        PlanError, InputError: see ``inference_and_backprop``.

    Example:
        >>> import numpy as np
        >>> from deep500.frameworks.tensorflow import from_model
        >>> from deep500.networks import add_loss, create
        >>> executor = from_model(add_loss(create("mlp", shape=(4,), classes=3)))
        >>> given = {"input": np.ones((4096, 4), "float32"), "label": np.zeros(4096, "int64")}
        >>> held = step_memory(executor, given)
        >>> held is None or held >= 4096 * 128 * 4  # the output of the hidden layer
        True
    """
    name = executor.tf_device.removeprefix("/")
    tensors = {key: as_tensor(value) for key, value in inputs.items()}
    executor.inference_and_backprop(tensors, loss)
    executor.forget_results()
    executor.gradients = {}
    try:
        before = tf.config.experimental.get_memory_info(name)["current"]
        tf.config.experimental.reset_memory_stats(name)
    except ValueError:  # TensorFlow's word for an allocator that does not count
        return None
    executor.inference_and_backprop(tensors, loss)
    executor.synchronize()
    return int(tf.config.experimental.get_memory_info(name)["peak"] - before)
