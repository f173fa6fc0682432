"""``CTCLoss`` (connectionist temporal classification) in C++, with a gradient by Enzyme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import deep500 as d5

REDUCTIONS = ("none", "sum", "mean")


@d5.register_op("CTCLoss")
def ctc_loss(
    inputs: Sequence[d5.TensorDescriptor], blank: int = 0, reduction: str = "mean", zero_infinity: int = 0
) -> d5.CustomOp:
    """-log of the probability that frames say labels, over all alignments (Graves et al. 2006).

    Inputs: log-probabilities ``[T, N, C]``, float32 or float64; labels ``[N, S]``, what stands after an item's length
    is not read; lengths in frames ``[N]``, lengths in labels ``[N]``, all int64. Forward is that of PyTorch's
    ``ctc_loss``; the gradient is the one of this function, so equal to PyTorch's behind a LogSoftmax, which theirs
    takes for granted. An infinite loss (labels that do not fit their frames) has gradient 0.

    Args:
        blank: the class that is no label.
        reduction: ``"none"`` ``[N]``, ``"sum"``, or ``"mean"`` of loss / number of labels.
        zero_infinity: 1: infinite losses count 0.
    """
    classes = (inputs[0].shape or (None,))[-1]
    if reduction not in REDUCTIONS or blank < 0 or (isinstance(classes, int) and blank >= classes):
        raise d5.errors.InputError(
            f"operator CTCLoss: got reduction {reduction!r}, blank {blank}; expected one of {', '.join(REDUCTIONS)}, "
            f"and a class from 0 to {classes} - 1"
        )
    dtype = inputs[0].dtype
    shapes = [("T", "N", "C"), ("N", "S"), ("N",), ("N",)]
    return d5.compile_custom_cppop(
        "ctc_loss",
        Path(__file__).with_name("ctc_loss.cpp"),
        [d5.TensorDescriptor(t, s) for t, s in zip((dtype, "int64", "int64", "int64"), shapes, strict=True)],
        [d5.TensorDescriptor(dtype, ("N",) if reduction == "none" else ())],
        additional_definitions={
            "BLANK": int(blank),
            "REDUCTION": REDUCTIONS.index(reduction),
            "ZERO_INFINITY": int(bool(zero_infinity)),
        },
        gradient="enzyme",
        whole={1: (1, 4), 2: (6, 7), 3: (1, 3)},  # 7 frames, 6 items, 5 classes, 4 labels
    )
