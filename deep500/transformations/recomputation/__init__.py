"""Recomputation (activation checkpointing): values that a budget of memory does not let us keep are computed again.

A backward pass reads what the forward pass wrote. A plan names the regions of a network whose values are dropped and
computed once more when they are needed; the recipe key is ``checkpointing=``, the word that users know.

The face is what plans networks and runs plans; the rest is imported from its file.
"""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.transformations.recomputation.chain import Mode as Mode
    from deep500.transformations.recomputation.chain import Stage as Stage
    from deep500.transformations.recomputation.node_times import measured_regions as measured_regions
    from deep500.transformations.recomputation.pieces import plan_pieces as plan_pieces
    from deep500.transformations.recomputation.plan_file import CheckpointingPlan as CheckpointingPlan
    from deep500.transformations.recomputation.plan_file import load_plan as load_plan
    from deep500.transformations.recomputation.planning import checkpointing_front as checkpointing_front
    from deep500.transformations.recomputation.planning import plan_checkpointing as plan_checkpointing
    from deep500.transformations.recomputation.planning import plan_front as plan_front
    from deep500.transformations.recomputation.planning import plan_network as plan_network
    from deep500.transformations.recomputation.regions import NetworkRegions as NetworkRegions
    from deep500.transformations.recomputation.regions import find_regions as find_regions
    from deep500.transformations.recomputation.rewriting import planned_step as planned_step

load_when_used(__name__)
