"""How far two answers are apart, and ONNX Runtime's own answer to a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

BAR = 1e-4
"""Largest difference allowed, as a share of the largest value expected."""

SMALLEST = 1e-3
"""Expected values must exceed this: two networks that both vanish agree on nothing."""


def relative_difference(got: np.ndarray, want: np.ndarray) -> float:
    """Largest absolute difference over the largest absolute value expected.

    Raises:
        AssertionError: other shape or dtype, numbers that are not finite, or expected values that are all but 0.
    """
    kinds = [f"{a.dtype}{a.shape}" for a in (got, want)]
    assert kinds[0] == kinds[1], f"got {kinds[0]}; expected {kinds[1]}"
    largest = float(np.abs(want).max())
    assert largest > SMALLEST, f"the largest value expected is {largest:.2g}: agreement would say nothing"
    assert np.isfinite(got).all(), "got numbers that are not finite"
    wide = np.float64 if got.dtype.kind in "biu" else got.dtype
    return float(np.abs(got.astype(wide) - want.astype(wide)).max()) / largest


def runtime_answer(path: Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime makes of the file, with its default optimizations, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {v.name: inputs[v.name] for v in session.get_inputs()})
