"""Rule of Resize. It is linear in its data and acts on each axis by one matrix; the gradient is the product with the
transposed matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule
from deep500.networks.resampling import steps_of_node


@gradient_rule("Resize", refused={1: "the region", 2: "the scales"})
def resize(g: GradContext) -> Sequence[Value | None]:
    """Every mode; resized axes need known sizes."""
    x, dy = g.input(0), g.grad()
    rank = g.rank(x)
    steps = steps_of_node(g.node, g.dims(x) or (), g.dims(g.output()) or (), g.constant_of)
    if steps is None:
        g.refuse("an axis is resized from or to a size, or by an operand, that is not known when the network is built")
    for axis, places, matrix, outside in reversed(steps):
        weights = np.eye((g.static(x, [axis]) or (0,))[0])[places] if places is not None else matrix
        if weights is None:  # an axis on which values are replaced only
            weights = np.eye(len(outside if outside is not None else ()))
        if outside is not None:
            weights = np.where(outside[:, None], 0, weights)
        last = [*(a for a in range(rank) if a != axis), axis]
        moved = g("MatMul", g.transpose(dy, last), g.array(weights))
        dy = g.transpose(moved, np.argsort(last).tolist())
    return [dy]
