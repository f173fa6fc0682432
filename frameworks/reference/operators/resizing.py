"""Images read at other places.

Resize: along each axis samples are taken, or weighted by a small matrix; beyond the image a crop replaces them.
GridSample: the samples around a place, weighted.
"""

from __future__ import annotations

import numpy as np

from deep500.frameworks.reference.operators.table import ints, op
from deep500.networks.attributes import Resizing
from deep500.networks.resampling import resize_steps

Array = np.ndarray


@op("Resize")
def resize(
    x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None, *, settings: Resizing
) -> Array:
    """The steps of each axis one after the other; whole numbers are weighted as float32."""
    ratios = None if scales is None else _floats(scales)
    steps = resize_steps(x.shape, _floats(roi), ratios, ints(sizes), settings)
    dtype, y = x.dtype, x
    for axis, places, matrix, outside in steps:
        if places is not None:
            y = np.take(y, places, axis)
        if matrix is not None:
            y = y if y.dtype.kind == "f" else y.astype(np.float32)
            y = np.moveaxis(np.tensordot(y, matrix.astype(y.dtype), ([axis], [1])), -1, axis)
        if outside is not None:
            beyond = outside.reshape([-1 if a == axis else 1 for a in range(y.ndim)])
            y = np.where(beyond, np.array(settings.extrapolation_value, y.dtype), y)
    return np.ascontiguousarray(y.astype(dtype, copy=False))


def _floats(value: Array | None) -> list[float]:
    return [] if value is None else [float(v) for v in np.ravel(value)]


@op("GridSample")
def grid_sample(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Array:
    """See :func:`deep500.networks.grid_sampling.grid_sample`."""
    from deep500.networks import grid_sampling

    return grid_sampling.grid_sample(np, x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)
