"""Excused cases, by name and with the reason: cases no backend can pass, wrong results."""

from __future__ import annotations

import re

NOBODY = {
    r"^test_bernoulli": "compares random draws; the generator is each implementation's own",
    r"^test_loop16_seq_none$": "compares Python objects: the expected value is a sequence or None",
}
"""Cases that no implementation passes (onnx 1.23.2), with the reason."""

_GENERATOR = "draws from the framework's own generator; the expected values are those of NumPy's"
_ALIGN = "places samples by the rounded output size where scale * size is no whole number"
_DROPOUT = {r"^test_training_dropout(_default)?(_mask)?$": _GENERATOR}

_ORDER = "1000 equal values of the order of 1e10, then Softmax: the order of summation decides"

WRONG: dict[str, dict[str, str]] = {
    "reference": {r"^test_squeezenet$": _ORDER},
    "pytorch": _DROPOUT,
    "tensorflow": _DROPOUT | {r"^test_squeezenet$": f"{_ORDER}, which differs between processors"},
    "jax": _DROPOUT | {r"^test_squeezenet$": "as on the reference: XLA sums the average twice, in two orders"},
    "onnxruntime": _DROPOUT | {r"^test_resize_downsample_scales_(linear|cubic)_align_corners$": _ALIGN},
}
"""backend -> pattern -> why the result differs from the suite's and is left so."""


def excuse(backend: str, case: str) -> str | None:
    """Why a wrong result on a backend is accepted, None if it is not."""
    reasons = {**NOBODY, **WRONG.get(backend, {})}
    return next((reason for pattern, reason in reasons.items() if re.search(pattern, case)), None)
