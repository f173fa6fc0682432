"""`Traits`: what is known of a scheme before one is made: what it promises, and whom its ranks wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from deep500.errors import InputError

Waiting = Literal["together", "neighbours", "pairs", "server"]
"""Which ranks a rank waits for: all ranks at every exchange; those whose parameters it takes; one partner, another
one in each step; or the link of a server, rank 0, which carries one message at a time."""


class Traits:
    """Facts about a scheme, as attributes of its class; recipes, trainers and predictions ask for them."""

    waits: ClassVar[Waiting | None] = None
    """Which ranks a rank waits for; ``deep500 simulate`` asks for it and refuses a scheme that has not declared it."""
    least_ranks: ClassVar[int] = 1
    one_backend: ClassVar[bool] = False
    """Whether all ranks must compute with the same backend, whose engine exchanges."""
    consistent: ClassVar[bool] = True
    """Whether all ranks have the same parameters, bit by bit, after every step."""
    whole: ClassVar[bool] = True
    """Whether every rank holds all parameters between steps."""
    joins_parts: ClassVar[bool] = False
    """Whether it can make wholes of parts that ranks hold, such as averages of weights."""
    draws: ClassVar[bool] = False
    """Whether its ranks can draw their parts of initial values (:func:`deep500.networks.undrawn`)."""
    first_writes: ClassVar[bool] = False
    """Whether rank 0's checkpoint of a recipe has all arrays; those of other ranks may lack parameters and state."""
    changes_parameters: ClassVar[bool] = False
    """Whether it changes parameters itself; then it refuses a base optimizer that would not notice."""
    agrees_on_overflow: ClassVar[bool] = False
    """Whether all ranks make an update or none does, so that float16's loss scaling is the same everywhere: every rank
    passes through the base optimizer's step each time."""

    sees_whole_batch: ClassVar[bool] = False
    """Whether its ranks compute the loss of the samples of all ranks, and no mean of means."""
    stands_inside: ClassVar[bool] = False
    """Whether it may stand on the inner axis of a mesh: gradients of its ranks pass to the scheme around it."""
    stands_outside: ClassVar[bool] = False
    """Whether it may stand on an outer axis of a mesh, around a scheme whose ranks agree on gradients."""
    agrees_on_statistics: ClassVar[bool] = True
    """Whether :meth:`evaluation` makes running statistics the same on all ranks, wherever they come from."""

    @classmethod
    def computing_ranks(cls, size: int) -> range:
        """The ranks among which batches are divided; all of them, unless one only serves the others."""
        return range(size)

    @classmethod
    def kept_by_each(cls) -> str:
        """In words, state of each rank that another number of ranks could not take over; empty: nothing, so that a
        run may go on on another number."""
        return "" if cls.consistent else "parameters of its own"

    @classmethod
    def on_other_ranks(cls) -> str:
        """In words, how a run that goes on on another number of ranks relates to one that was never stopped."""
        same = cls.waits == "together" and cls.consistent
        but = ", up to the order of sums, and to Dropout's draws and batch statistics, which are each rank's" * same
        return f"{'' if same else 'not '}equal to a run that was never stopped{but}"

    @classmethod
    def put_together(cls, states: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The :meth:`state_dict` of a run on any number of ranks, from those of all ranks in their order.

        Raises:
            InputError: they differ, unless the scheme says what then holds.
        """
        return same_everywhere(states, cls.__name__)


def same_everywhere(states: Sequence[Mapping[str, np.ndarray]], scheme: str) -> dict[str, np.ndarray]:
    """The arrays that all ranks have, bit by bit; raises InputError that names the first one in which a rank differs.

    Example:
        >>> same_everywhere([{"step": np.array(3)}, {"step": np.array(4)}], "ModelAverage")
        Traceback (most recent call last):
        deep500.errors.InputError: got ranks of ModelAverage that differ in 'step' (rank 1 from rank 0); expected nothing that each keeps of its own: go on with as many ranks
    """  # noqa: E501
    first = dict(states[0])
    for rank, state in enumerate(states[1:], 1):
        for name in [*first, *(name for name in state if name not in first)]:
            here, there = first.get(name), state.get(name)
            if here is None or there is None or not _same_bits(np.asarray(here), np.asarray(there)):
                raise InputError(
                    f"got ranks of {scheme} that differ in {name!r} (rank {rank} from rank 0); expected nothing that "
                    "each keeps of its own: go on with as many ranks"
                )
    return first


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
