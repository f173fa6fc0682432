"""Plans for networks that work on pieces of the batch: the activations of one piece after the other are computed again.

A network of pieces (:func:`deep500.transformations.microbatching.microbatch`) keeps for its backward pass what the
whole one keeps. With every piece a region that runs again, a step holds the activations of one piece. The last piece is
the first that the backward pass needs, so its own are kept: they are there when nothing else is.
"""

from __future__ import annotations

import re

from deep500.errors import PlanError
from deep500.networks.graph import Graph
from deep500.networks.hashing import structure_hash
from deep500.networks.network import Network
from deep500.transformations.recomputation.counting import peak_bytes
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion
from deep500.transformations.recomputation.regions import count_operations
from deep500.transformations.recomputation.rewriting import recomputing
from deep500.transformations.recomputation.training_step import training_step

_PIECE = re.compile(r"piece(\d+)/")


def plan_pieces(network: Network, batch: int, loss: str = "loss") -> CheckpointingPlan:
    """The plan in which all pieces of a network but the last are computed again in the backward pass.

    Args:
        network: of :func:`deep500.microbatch`.
        batch: number of samples of a whole step.
        loss: the scalar that is differentiated.

    Returns:
        a plan for ``executor.set_checkpointing``; its bytes are counted in the network, its time in operations.

    Raises:
        PlanError: a network without pieces.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.microbatching import microbatch
        >>> plan = plan_pieces(microbatch(add_loss(create("simple_cnn")), 4), batch=32)
        >>> [region.name for region in plan.regions], plan.predicted_peak < plan.peak_without
        (['piece0', 'piece1', 'piece2'], True)
    """
    regions = _regions(network)
    if len(regions) < 2:
        raise PlanError(
            f"got network {network.name!r} without pieces of the batch; expected one that works on several: "
            "make it with microbatch(network, pieces)"
        )
    step = training_step(network, batch, loss)
    forward = {name for node in step.forward for name in node.writes}
    planned = [
        PlannedRegion(name, name, tuple(value for value in values if value in forward))
        for name, values in list(regions.items())[:-1]
    ]
    again, times = recomputing(step, [region.values for region in planned]), count_operations(step)
    extra = sum(times[node.writes[0]] for node in again.repeated)
    peaks = peak_bytes(again.network), peak_bytes(step.network)
    whole = sum(times.values()) + extra
    hashed, how = structure_hash(network), "pieces of the batch"
    return CheckpointingPlan(
        hashed, batch, loss, "none", tuple(planned), peaks[0], peaks[0], whole, extra, "FLOP", how, peaks[1]
    )


def _regions(network: Graph) -> dict[str, list[str]]:
    """The values that the nodes of each piece write, in the order of the pieces."""
    regions: dict[str, list[str]] = {}
    for node in network.nodes:
        named = _PIECE.match(node.name)
        if named:
            regions.setdefault(f"piece{named[1]}", []).extend(node.writes)
    return dict(sorted(regions.items(), key=lambda region: int(region[0][5:])))
