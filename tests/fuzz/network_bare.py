"""A model on runtimes that are not ours: ONNX Runtime's session, ONNX's reference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: "ran", "refused" (our error, or a bare session's) or "raw" (anything else), with results."""

    how: str
    text: str = ""
    outputs: Arrays = field(default_factory=dict)
    gradients: Arrays = field(default_factory=dict)


def bare(model: bytes, feeds: Arrays) -> Outcome:
    """ONNX Runtime's own session, and where it has no kernel, ONNX's reference."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        taken = {value.name for value in session.get_inputs()}
        results = session.run(None, {name: value for name, value in feeds.items() if name in taken})
    except Exception as error:  # noqa: BLE001 - its errors have no class in common
        return replace(witness(model, feeds), text=f"{type(error).__name__}: {error}"[:300])
    return Outcome("ran", "", dict(zip(names, results, strict=True)))


def witness(model: bytes, feeds: Arrays) -> Outcome:
    """ONNX's reference implementation."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(onnx.load_model_from_string(model))
        with np.errstate(all="ignore"):
            results = evaluator.run(None, feeds)
    except Exception as error:  # noqa: BLE001 - as above
        return Outcome("refused", f"{type(error).__name__}: {error}"[:300])
    return Outcome("ran", "onnx.reference", dict(zip(evaluator.output_names, map(np.asarray, results), strict=True)))
