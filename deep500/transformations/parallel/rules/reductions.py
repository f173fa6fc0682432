"""Rules of reductions and losses: axes that stay are split, and over what is reduced the ranks have terms."""

from __future__ import annotations

from deep500.transformations.parallel.rules.registry import letters, passing, sharding_rule, without
from deep500.transformations.parallel.strategies import Factors, SizedNode

_TERMS = {
    "ReduceSum": "sum",
    "ReduceSumSquare": "sum",
    "ReduceL1": "sum",
    "ReduceMean": "sum",
    "ReduceMax": "max",
    "ReduceMin": "min",
}


@sharding_rule(*_TERMS, "ReduceProd", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ArgMax", "ArgMin")
def reduction(view: SizedNode) -> Factors | None:
    """Axes that stay; over others sums, maxima, minima of the ranks' terms, which a mean weighs by shares, or none."""
    op_type, rank = view.node.op_type, len(view.inputs[0])
    axes = [view.attribute("axis", 0) % rank] if op_type.startswith("Arg") else view.axes(1, rank)
    if not axes or (not view.present(1) and view.attribute("noop_with_empty_axes")):
        return None
    labels = letters(rank)
    stays = without(labels, axes)
    outputs = stays if view.attribute("keepdims", 1) else [n for i, n in enumerate(stays) if i not in axes]
    taken = [str(labels[axis]) for axis in axes]
    reduced = dict.fromkeys(taken, _TERMS[op_type]) if op_type in _TERMS else {}
    return Factors(
        [labels, *[[None] * len(shape) for shape in view.inputs[1:]]],
        [outputs],
        reduced,
        linear=[frozenset({0})] if op_type in ("ReduceSum", "ReduceMean") else [],
        means=frozenset(taken) if op_type == "ReduceMean" else frozenset(),
    )


@sharding_rule("TopK", "CumSum", "CumProd")
def along_an_axis(view: SizedNode) -> Factors | None:
    """All axes but the one that is followed."""
    rank = len(view.inputs[0])
    axes = view.axes(1, rank) if view.node.op_type != "TopK" else [view.attribute("axis", -1) % rank]
    return None if axes is None else passing(view, axes, linear=view.node.op_type == "CumSum")


@sharding_rule("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def classification(view: SizedNode) -> Factors | None:
    """Samples and places, with sums as terms; a mean is divided after it (:mod:`.joint` takes means apart)."""
    if view.attribute("reduction") == "mean":
        return None
    labels = letters(len(view.inputs[1]))
    scores: list[str | None] = [labels[0], None, *labels[1:]]
    weights: list[list[str | None]] = [[None] * len(shape) for shape in view.inputs[2:]]
    outputs: list[list[str | None]] = [labels if view.attribute("reduction") == "none" else []]
    if len(view.outputs) > 1 and view.attribute("reduction") != "none":
        return None  # the second output is split where the first has terms: two shardings of one factor
    outputs += [scores for _ in view.outputs[1:]]
    return Factors([scores, labels, *weights], outputs, {str(label): "sum" for label in labels})
