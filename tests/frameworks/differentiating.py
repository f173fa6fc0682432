"""One face for the frameworks that differentiate, for tables over them: tensors, gradients and compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.conftest import load_backend

Function = Callable[..., Any]


@cache
def face(backend: str) -> SimpleNamespace:
    """Functions that mean the same in each framework, and its backend as ``d5fw``.

    ``gradients(function, arrays)``: those of a scalar function, None if there is none; ``second``: those of the sum of
    their squares. ``compiled(function)``: as the framework's users compile it. ``routes``: how custom operators run:
    compiled, in Python, the framework's own function.
    """
    functions = {"pytorch": _torch, "tensorflow": _tensorflow, "jax": _jax}[backend]()

    def second(function: Function, arrays: Sequence[Any]) -> list[Any]:
        gradients, total = functions["gradients"], functions["total"]
        return gradients(lambda *arrays: sum(total(g**2) for g in gradients(function, arrays)), arrays)

    return SimpleNamespace(name=backend, d5fw=load_backend(backend), second=second, **functions)


def _torch() -> dict[str, Any]:
    import torch

    def gradients(function: Function, arrays: Sequence[Any]) -> list[Any]:
        leaves = [a if a.requires_grad else a.clone().requires_grad_(a.is_floating_point()) for a in arrays]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        got = iter(torch.autograd.grad(function(*leaves), wanted, create_graph=wanted[0] is arrays[0]))
        return [next(got) if leaf.requires_grad else None for leaf in leaves]

    return {
        "routes": ("builtin", "library", "native"),
        "tensor": torch.as_tensor,
        "cast": lambda x, dtype: x.to(getattr(torch, dtype)),
        "total": torch.sum,
        "rows": lambda x: x.sum(1),
        "sin": torch.sin,
        "softsign": torch.nn.functional.softsign,
        "gradients": gradients,
        "compiled": lambda function: torch.compile(function, fullgraph=True, backend="aot_eager"),
        "place": lambda x: x.data_ptr(),
    }


def _tensorflow() -> dict[str, Any]:
    from deep500.frameworks.tensorflow.runtime import tf

    def gradients(function: Function, arrays: Sequence[Any]) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(list(arrays))
            value = function(*arrays)
        return tape.gradient(value, list(arrays))

    return {
        "routes": ("op_kernel", "numpy_function", "native"),
        "tensor": tf.constant,
        "cast": tf.cast,
        "total": tf.reduce_sum,
        "rows": lambda x: tf.reduce_sum(x, 1),
        "sin": tf.sin,
        "softsign": tf.nn.softsign,
        "gradients": gradients,
        "compiled": lambda function: tf.function(function, autograph=False),
        "place": lambda x: np.asarray(memoryview(x)).ctypes.data,
    }


def _jax() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    def gradients(function: Function, arrays: Sequence[Any]) -> list[Any]:
        floating = [i for i, a in enumerate(arrays) if jnp.issubdtype(a.dtype, jnp.floating)]
        got = dict(zip(floating, jax.grad(function, floating)(*arrays), strict=True))
        return [got.get(i) for i in range(len(arrays))]

    return {
        "routes": ("xla_ffi", "pure_callback", "native"),
        "tensor": jnp.asarray,
        "cast": lambda x, dtype: x.astype(dtype),
        "total": jnp.sum,
        "rows": lambda x: x.sum(1),
        "sin": jnp.sin,
        "softsign": jax.nn.soft_sign,
        "gradients": gradients,
        "compiled": jax.jit,
        "place": lambda x: x.unsafe_buffer_pointer(),
    }
