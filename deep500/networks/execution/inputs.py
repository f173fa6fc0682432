"""Inputs for any ONNX file: batch size and other symbolic sizes filled in, values from a seed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deep500.errors import InputError
from deep500.networks.graph import Graph
from deep500.tensors import TensorDescriptor, numpy_dtype


def batch_symbol(network: Graph) -> str | None:
    """The symbolic size that the batch has: the first dimension of the first input; None if that is a number."""
    first = next((described.shape for described in network.inputs.values() if described.shape), None)
    return first[0] if first and isinstance(first[0], str) else None


def make_inputs(
    network: Graph, batch: int | None, seed: int = 0, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Arrays for every input: normal numbers, integers 0 or 1, truth values.

    Args:
        network: whose inputs are made up.
        batch: value of :func:`batch_symbol`; None where the model has its batch size.
        seed: decides the values.
        sizes: values of the other symbolic sizes by name.

    Raises:
        InputError: a size is unknown, or an input is no plain array of numbers.

    Example:
        >>> net = Graph("n"); net.add_input("x", ("N", 3))
        >>> make_inputs(net, 2)["x"].shape
        (2, 3)
    """
    symbol = batch_symbol(network)
    known = {**(sizes or {}), **({symbol: batch} if symbol is not None and batch is not None else {})}
    rng = np.random.default_rng(seed)
    return {name: _array(name, described, known, rng) for name, described in network.inputs.items()}


def _array(name: str, described: TensorDescriptor, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    if described.shape is None or described.dtype is None or "(" in described.dtype or described.dtype == "string":
        raise InputError(
            f"input {name!r}: got {described}; expected numbers of a known rank, which can be made up: wrap the model"
        )
    unknown = [size for size in described.shape if not isinstance(size, int) and size not in sizes]
    if unknown:
        raise InputError(
            f"input {name!r}: got sizes {', '.join(map(str, unknown))} that nothing fixes; expected a number for each: "
            + " ".join(f"--size {size}=8" for size in unknown)
        )
    shape = [size if isinstance(size, int) else sizes[str(size)] for size in described.shape]
    dtype = numpy_dtype(described.dtype)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
