"""Steps of ONNX's Resize along each axis, as small NumPy arrays that any framework can apply.

Every mode is linear in the input: per axis an index (nearest) or a matrix (linear, cubic), and where
``tf_crop_and_resize`` reads beyond the image. Coordinates and kernels are those of ONNX's specification of Resize.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.attributes import Resizing, collect
from deep500.networks.node import Node
from deep500.tensors import Shape

NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""How a coordinate becomes an index, by the attribute ``nearest_mode``."""


class AxisStep(NamedTuple):
    """A step along one axis, by places or by a matrix; steps follow one another."""

    axis: int
    places: np.ndarray | None  # [outputs] int64: which samples to take; or
    matrix: np.ndarray | None  # [outputs, inputs] float64: weights of the samples
    outside: np.ndarray | None  # [outputs] bool: what the extrapolation value replaces


def resize_steps(
    shape: Sequence[int | None],
    roi: Sequence[float],
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    settings: Resizing,
) -> Iterator[AxisStep]:
    """The steps of a Resize; axes that stay as they are have none.

    Args:
        shape: of the input. An axis of unknown size (None) must keep it: its scale is 1.
        roi, scales, sizes: the operator's inputs; ``roi`` may be empty, one of the others is None or empty.
        settings: the operator's attributes; ``axes`` are those that the inputs speak of, all if None.

    Example:
        >>> (step,) = resize_steps((1, 4), [], [1.0, 0.5], None, Resizing(mode="linear"))
        >>> step.axis, step.matrix.tolist()
        (1, [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    """
    chosen = list(range(len(shape))) if settings.axes is None else [axis % len(shape) for axis in settings.axes]
    way, mode = settings.coordinate_transformation_mode, settings.mode
    crop = way == "tf_crop_and_resize"
    bounds = list(roi) or [0.0] * len(chosen) + [1.0] * len(chosen)
    plan = _plan([shape[axis] for axis in chosen], scales, sizes, settings.keep_aspect_ratio_policy)
    for k, (axis, (scale, out)) in enumerate(zip(chosen, plan, strict=True)):
        n = shape[axis]
        if n is None or (out == n and scale == 1 and not crop):
            continue
        at = _coordinates(way, n, out, scale, (bounds[k], bounds[k + len(chosen)]))
        index = matrix = None
        if mode == "nearest":
            index = np.clip(NEAREST[settings.nearest_mode](at), 0, n - 1).astype(np.int64)
        else:
            matrix = _matrix(at, n, scale, settings)
        yield AxisStep(axis, index, matrix, (at < 0) | (at > n - 1) if crop else None)


def steps_of_node(
    node: Node, shape: Shape, new: Shape, known: Callable[[int], np.ndarray | None]
) -> list[AxisStep] | None:
    """The steps of a Resize node before it runs; None where sizes or operands decide which only the run knows.

    Args:
        node: the Resize.
        shape, new: what is known of the shapes of its input and its output, of the same rank.
        known: gives the value of the node's input of an index, None if it is not known.
    """
    inputs = [*node.inputs, *[""] * (4 - len(node.inputs))]
    roi, scales, sizes = (known(i) if inputs[i] else np.zeros(0) for i in (1, 2, 3))
    settings = collect(Resizing, node.all_attributes())
    crop = settings.coordinate_transformation_mode == "tf_crop_and_resize"
    if roi is None and crop:
        return None
    axes = [int(a) % len(shape) for a in node.attribute("axes") or range(len(shape))]
    if not inputs[3]:
        pairs = [] if scales is None else list(zip(axes, scales, strict=True))
        if scales is None or not all(isinstance(shape[a], int) or s == 1 for a, s in pairs):
            return None
        chosen: dict[str, Any] = {"scales": [float(s) for s in scales], "sizes": None}
    elif not crop and settings.keep_aspect_ratio_policy == "stretch":  # the inferred sizes are the wanted ones
        axes = [a for a in axes if shape[a] is None or shape[a] != new[a]]
        chosen = {"scales": None, "sizes": [new[a] for a in axes]}
        if not all(isinstance(shape[a], int) and isinstance(new[a], int) for a in axes):
            return None
    elif sizes is None or not all(isinstance(shape[a], int) for a in axes):
        return None
    else:
        chosen = {"scales": None, "sizes": [int(s) for s in sizes]}
    numbers = [d if isinstance(d, int) else None for d in shape]
    bounds = [float(v) for v in roi] if roi is not None and crop else []
    return list(resize_steps(numbers, bounds, **chosen, settings=settings._replace(axes=axes))) if axes else []


def resized(size: int, factor: float) -> int:
    """A size times a factor, in float32, as factors are: 3 times what it holds of 5/3 is 5 there, less in float64.

    Example:
        >>> resized(10, 1.3), resized(3, 5 / 3)
        (13, 5)
    """
    return math.floor(np.float32(size) * np.float32(factor))


def _plan(shape: Sequence[Any], scales: Any, sizes: Any, policy: str) -> list[tuple[float, Any]]:
    """Scale and output size per axis."""
    if not sizes:
        if not all(math.isfinite(s) and s > 0 for s in scales):
            raise NetworkError(
                f"got scales {list(scales)} for a Resize; expected finite ones above 0: check what it is given"
            )
        return [(s, n if n is None else resized(n, s)) for s, n in zip(scales, shape, strict=True)]
    if any(n == 0 and s for s, n in zip(sizes, shape, strict=True)):
        raise NetworkError(
            f"got a Resize from {shape} to {list(sizes)}; expected elements to sample: keep empty axes empty"
        )
    ratios = [s / n if n else 1.0 for s, n in zip(sizes, shape, strict=True)]
    if policy == "stretch":
        return list(zip(ratios, sizes, strict=True))
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [(scale, math.floor(scale * n + 0.5)) for n in shape]


def _coordinates(mode: str, n: int, out: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Where each output sample lies, in units of input samples."""
    i = np.arange(out, dtype=np.float64)
    half, (start, end) = (i + 0.5) / scale - 0.5, roi
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (n - 1) / (scale * n - 1) if scale * n > 1 else i * 0
    if mode == "pytorch_half_pixel":
        return half if out > 1 else i * 0
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - out / (scale * n)) + half
    if mode == "tf_crop_and_resize" and out > 1:
        return start * (n - 1) + i * (end - start) * (n - 1) / (out - 1)
    return i + 0.5 * (start + end) * (n - 1) if mode == "tf_crop_and_resize" else half


def _triangle(d: np.ndarray, a: float) -> np.ndarray:
    return np.clip(1 - d, 0, None)


def keys_cubic(d: Any, a: float, xp: Any = np) -> Any:
    """Weight of a sample at a distance, by Keys' cubic kernel (1981) with coefficient ``a``; ``xp`` as NumPy.

    Example:
        >>> [float(keys_cubic(np.array(d), -0.75)) for d in (0.0, 1.0, 2.0)]
        [1.0, 0.0, 0.0]
    """
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return xp.where(d <= 1, near, xp.where(d < 2, far, 0))


_KERNELS = {"linear": (_triangle, 1), "cubic": (keys_cubic, 2)}


def _matrix(x: np.ndarray, n: int, scale: float, settings: Resizing) -> np.ndarray:
    """Weights ``[outputs, inputs]``: beyond the edge counts the edge, or nothing under ``exclude_outside``."""
    (kernel, reach), exclude = _KERNELS[settings.mode], settings.exclude_outside
    shrink = min(scale, 1.0) if settings.antialias else 1.0
    radius = math.ceil(reach / shrink)
    j = np.floor(x)[:, None] + np.arange(-radius, radius + 2)
    weights = kernel(np.abs(j - x[:, None]) * shrink, settings.cubic_coeff_a)
    if exclude:
        weights = np.where((j < 0) | (j >= n), 0, weights)
    if exclude or settings.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((len(x), n))
    np.add.at(matrix, (np.arange(len(x))[:, None], np.clip(j, 0, n - 1).astype(int)), weights)
    return matrix
