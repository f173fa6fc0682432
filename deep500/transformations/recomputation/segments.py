"""Plans for chains to compare with: equal segments (Chen et al. 2016, arXiv 1604.06174), and every stage alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isqrt

from deep500.errors import PlanError
from deep500.transformations.recomputation.chain import Keep, Recompute, Stage, simulate_chain
from deep500.transformations.recomputation.rotor import ChainPlacement, keep_all


def segmented(chain: Sequence[Stage], segments: int | None = None) -> ChainPlacement:
    """Equal segments, all but the last of them recomputed, as ``torch.utils.checkpoint_sequential`` cuts them.

    Args:
        chain: the stages.
        segments: how many, 1 to the number of stages; the rounded square root of that if None.

    Raises:
        PlanError: there are not as many stages.

    Example:
        >>> from deep500.transformations.recomputation.chain import Mode
        >>> chain = [Stage("s", output=4, modes=(Mode(1, 2, saved=10),), forward=1)] * 4
        >>> segmented(chain).outcome
        Outcome(peak=28, time=14, extra=2)
    """
    count = len(chain)
    root = isqrt(count)
    segments = (root + (count - root * root > root)) if segments is None else segments
    if not 1 <= segments <= count:
        raise PlanError(f"got {segments} segments; expected 1 to {count}, one stage each at least: ask for fewer")
    kept, length = keep_all(chain), count // segments
    starts = [i * length for i in range(segments)]
    cuts = [Recompute(first, end - 1, kept[first:end]) for first, end in pairwise(starts)]
    plan: tuple[Keep | Recompute, ...] = (*cuts, *kept[starts[-1] :])
    return ChainPlacement(plan, simulate_chain(chain, plan), f"{segments} segments")


def every_stage(chain: Sequence[Stage]) -> ChainPlacement:
    """Every stage recomputed by itself: checkpoint everything.

    Example:
        >>> from deep500.transformations.recomputation.chain import Mode
        >>> every_stage([Stage("s", output=4, modes=(Mode(1, 2, saved=10),), forward=1)] * 4).outcome
        Outcome(peak=26, time=16, extra=4)
    """
    plan = tuple(Recompute(k, k, (keep,)) for k, keep in enumerate(keep_all(chain)))
    return ChainPlacement(plan, simulate_chain(chain, plan), "every stage")
