"""Values that inference leaves open and a file declares, such as those of an If whose branches differ in type."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx

from deep500.networks.protos import model_proto


def with_declared(
    graph: onnx.GraphProto,
    model: onnx.ModelProto,
    values: Iterable[onnx.ValueInfoProto],
    infer: Callable[[onnx.ModelProto], onnx.ModelProto],
) -> onnx.ModelProto:
    """A model inferred once more with declared values, so that inference goes on behind them.

    Args:
        graph: gets the values.
        model: what was inferred without them, and stays so where they contradict it.
        values: of nodes.
        infer: infers a model.
    """
    graph.value_info.extend(values)
    try:
        return infer(model_proto(graph))
    except onnx.shape_inference.InferenceError:
        return model
