"""Rules of the classification losses, with class weights, ``ignore_index`` and every reduction.

With p = softmax(scores) and per-sample weights w: d scores = (p - onehot) * w * dL, divided by sum(w) for the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule


class _Labels:
    """Labels [N, ...] as one-hot vectors [N, C, ...], and the factor of each sample's gradient, or a scalar."""

    def __init__(self, g: GradContext) -> None:
        self.g = g
        labels = g.input(1)
        if g.describe(labels).dtype != "int64":  # the type that every OneHot takes
            labels = g.cast(labels, "int64")
        ignore = g.attribute("ignore_index")
        self.valid: Value | None = None
        if ignore is not None:  # such labels may lie outside 0..C-1
            skip, zero = (Value(g, g.emitter.constant(np.array(n, np.int64))) for n in (ignore, 0))
            self.valid = g("Not", g("Equal", labels, skip))
            self.safe = g.where(self.valid, labels, zero)
        else:
            self.safe = labels

    def one_hot(self) -> Value:
        g = self.g
        known = g.static(g.input(0), [1])
        classes = np.array(1 if known is None else known[0])
        depth = g.emitter.constant(classes)
        if known is None:
            depth = str(g("Gather", g.shape(g.input(0)), depth))
        return g("OneHot", self.safe, depth, g.array([0, 1]), axis=1)

    def factor(self) -> Value:
        """dL * w, divided by sum(w) or the number of samples for the mean."""
        g, dl = self.g, self.g.grad(0)
        weight = g("Gather", g.input(2), self.safe) if g.optional(2) else None
        if self.valid is not None:
            mask = g.cast(self.valid)
            weight = mask if weight is None else weight * mask
        if g.attribute("reduction") == "mean":
            labels = g.input(1)
            if weight is None:
                dl = dl / g.count(labels)
            else:  # 0 where nothing counts, as in PyTorch, though the loss is 0 / 0
                total = g("ReduceSum", weight, keepdims=0)
                dl = dl / g.where(g("Equal", total, 0), 1, total)
        factor = dl if weight is None else dl * weight
        scalar = weight is None and g.attribute("reduction") != "none"
        return factor if scalar else g("Unsqueeze", factor, g.ints(1))


@gradient_rule("SoftmaxCrossEntropyLoss", blocked=[1])
def softmax_cross_entropy_loss(g: GradContext) -> Sequence[Value | None]:
    """(p - onehot) * factor; a gradient of the second output, log p, adds d - p * sum(d)."""
    if g.needs(2):
        g.refuse("the class weights have no rule: take them out of wrt")
    x = g.input(0)
    log_p = g.outputs[1] if len(g.outputs) > 1 else None
    p = g("Softmax", x, axis=1) if log_p is None else g("Exp", log_p)
    dx = None
    if g.grads[0] is not None:
        labels = _Labels(g)
        dx = (p - labels.one_hot()) * labels.factor()
    if len(g.grads) > 1 and g.grads[1] is not None:
        d = g.grads[1]
        more = d - p * g.total(d, [1], keepdims=True)
        dx = more if dx is None else dx + more
    return [dx]


@gradient_rule("NegativeLogLikelihoodLoss", blocked=[1])
def negative_log_likelihood_loss(g: GradContext) -> Sequence[Value | None]:
    """-onehot * factor."""
    if g.needs(2):
        g.refuse("the class weights have no rule: take them out of wrt")
    labels = _Labels(g)
    return [labels.one_hot() * -labels.factor()]
