"""``MacroF1Loss`` in C++: a loss of the whole batch, whatever ranks it is divided among, with a gradient by Enzyme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import deep500 as d5


@d5.register_op("MacroF1Loss")
def macro_f1(inputs: Sequence[d5.TensorDescriptor]) -> d5.CustomOp:
    """1 - F1, the mean over classes of 2 tp / (2 tp + fp + fn), where probabilities count as parts of hits.

    Inputs: probabilities ``[N, C]``, float32 or float64; labels ``[N]``, int64. A ratio of sums is no mean over
    samples: under ``--ranks`` the sums are those of all ranks, and every rank returns the same loss.
    """
    dtype = inputs[0].dtype
    return d5.compile_custom_cppop(
        "macro_f1",
        Path(__file__).with_name("macro_f1.cpp"),
        [d5.TensorDescriptor(dtype, ("N", "C")), d5.TensorDescriptor("int64", ("N",))],
        [d5.TensorDescriptor(dtype, ())],
        gradient="enzyme",
        comm=d5.distributed.world(),
    )
