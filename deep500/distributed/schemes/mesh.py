"""`SchemeMesh`: ranks in a grid, on each axis of which a scheme stands; gradients pass from the inner to the outer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np

from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.schemes.averaging import LocalSGD
from deep500.distributed.schemes.divided import DividedNetwork
from deep500.distributed.schemes.native import FSDP
from deep500.distributed.schemes.parameters import ShardedParameters
from deep500.distributed.schemes.pipeline import Pipeline
from deep500.distributed.schemes.synchronous import ConsistentDecentralized
from deep500.distributed.traits import same_everywhere
from deep500.distributed.transports.communicator import Communicator
from deep500.distributed.world import world
from deep500.errors import InputError, nearest
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer

Maker: TypeAlias = Callable[..., DistributedOptimizer]

USUAL: Mapping[str, type[DistributedOptimizer]] = {
    "average": LocalSGD,
    "data": ConsistentDecentralized,
    "model": DividedNetwork,
    "shard": ShardedParameters,
    "pipeline": Pipeline,
}
"""Schemes by the name of an axis, where nothing else is said."""


class SchemeMesh:
    """Schemes composed by axis; called with an optimizer and a communicator it is the scheme of all ranks.

    A scheme that stands on an axis has the ranks that differ in that coordinate alone. What the ranks of an inner axis
    agree on counts outside by the samples of all of them, so that a composition of schemes that are serial training is
    serial training. ``FSDP`` on the last axis gets the whole mesh, as ``fully_shard`` averages over the outer axes
    itself (HSDP).

    Args:
        axes: number of ranks by axis, from the outermost on; ranks of the last one have numbers in a row, as those of
            one machine have. The product is the number of all ranks.
        schemes: ``callable(optimizer, comm)`` by axis, or one for the last axis; else those of :data:`USUAL` by the
            axis's name.

    Raises:
        InputError: an axis without ranks, or of an unknown name and without a scheme; when called: another number of
            ranks, or a scheme that cannot stand where it does.

    Example (in a recipe: ``"mesh": {"data": 2, "pipeline": 2}``):
        >>> from deep500.distributed import Threads
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import AdamOptimizer
        >>> def train(comm):
        ...     executor = reference.from_model(add_loss(create("mlp", shape=(4,), hidden=(8,), classes=2)))
        ...     scheme = SchemeMesh({"data": 2, "shard": 2})(AdamOptimizer(executor), comm)
        ...     scheme.step({"input": np.ones((2, 4), "float32"), "label": np.zeros(2, "int64")})
        ...     return scheme.title, scheme.inside.held()["state"]
        >>> Threads(4).run(train)[3]
        ('data: ConsistentDecentralized, shard: ShardedParameters', 232)
    """

    __name__ = "SchemeMesh"
    waits = "together"

    def __init__(self, axes: Mapping[str, int], schemes: Mapping[str, Maker] | Maker | None = None) -> None:
        self.axes = {axis: checked_integer(f"mesh[{axis!r}]", size, 1) for axis, size in axes.items()}
        if not self.axes:
            raise InputError("got a mesh without axes; expected some, such as {'data': 2, 'pipeline': 2}: name them")
        if callable(schemes):
            schemes = {list(self.axes)[-1]: schemes}
        named = dict(schemes or {})
        for axis in [*named, *self.axes]:
            known = list(self.axes) if axis in named else [*USUAL, *named]
            if axis not in known:
                raise InputError(
                    f"got axis {axis!r}; expected one of {', '.join(known)}{'' if axis in named else ', or a scheme'}: "
                    f"{nearest(axis, known) or 'give scheme={' + repr(axis) + ': ...}'}"
                )
        self.makers: dict[str, Maker] = {axis: named.get(axis) or USUAL[axis] for axis in self.axes}
        kinds = {axis: _kind(maker) for axis, maker in self.makers.items()}
        self.consistent = all(getattr(kind, "consistent", True) for kind in kinds.values())

    def __call__(self, base_optimizer: Optimizer, comm: Communicator | None = None) -> DistributedOptimizer:
        """The optimizer in the schemes of all axes; all ranks call it together."""
        comm = world() if comm is None else comm
        if prod(self.axes.values()) != comm.size:
            raise InputError(
                f"got a mesh of {' x '.join(f'{n} {axis}' for axis, n in self.axes.items())} on {comm.size} ranks; "
                f"expected sizes whose product is {comm.size}: start {prod(self.axes.values())} with --ranks, or "
                "change the mesh"
            )
        used = [axis for axis, size in self.axes.items() if size > 1] or [list(self.axes)[-1]]
        self._check(used)
        last = used[-1]
        if len(used) == 1:
            return self.makers[last](base_optimizer, comm)
        if _is(self.makers[last], FSDP):
            return self.makers[last](base_optimizer, comm, replicas=comm.size // self.axes[last])
        DistributedOptimizer(base_optimizer, comm)  # from here on all ranks have rank 0's parameters
        scheme: Any = base_optimizer
        for axis in reversed(used):
            scheme = self.makers[axis](scheme, self.part(axis, comm))
        return cast(DistributedOptimizer, scheme)

    def part(self, axis: str, comm: Communicator) -> Communicator:
        """The ranks that differ from this one in their place on an axis alone; all ranks call it together."""
        sizes = list(self.axes.values())
        stride = prod(sizes[list(self.axes).index(axis) + 1 :])
        return comm.split(axis, comm.rank - comm.rank // stride % self.axes[axis] * stride)

    def _check(self, used: Sequence[str]) -> None:
        """Raise InputError for a scheme that cannot stand where it does."""
        whole = True
        native = len(used) > 1 and _is(self.makers[used[-1]], FSDP)
        for place, axis in enumerate(reversed(used)):
            kind = _kind(self.makers[axis])
            if not (isinstance(kind, type) and issubclass(kind, DistributedOptimizer)) or len(used) == 1:
                continue
            around, within = place > 0, axis != used[0]
            name, why = kind.__name__, ""
            if native and around and kind is not ConsistentDecentralized:
                why = "around FSDP, which averages gradients over outer axes itself; expected ConsistentDecentralized"
            elif around and not kind.stands_outside:
                why = f"outside of axis {used[-place]!r}; expected one of {_names('stands_outside')}"
            elif around and kind.changes_parameters and not whole:
                why = f"outside of axis {used[-1]!r}, whose ranks hold parts of parameters; expected a scheme that "
                why += "exchanges gradients, such as ConsistentDecentralized"
            elif within and not kind.stands_inside and not (native and not around):
                why = f"inside of axis {used[0]!r}; expected one of {_names('stands_inside')}, FSDP"
            if why:
                raise InputError(f"got {name} on axis {axis!r}, {why}: change the order of axes, or the scheme")
            whole = whole and kind.whole

    # -- what recipes ask of a scheme ---------------------------------------------------------------------------------
    def computing_ranks(self, size: int) -> list[int]:
        """The ranks among which batches are divided."""
        ranks = [0]
        for axis, count in self.axes.items():
            computing = getattr(_kind(self.makers[axis]), "computing_ranks", DistributedOptimizer.computing_ranks)
            ranks = [rank * count + place for rank in ranks for place in computing(count)]
        return ranks

    def kept_by_each(self) -> str:
        """In words, why a run does not go on on another number of ranks."""
        return "its place in the mesh"

    def put_together(self, states: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """One state for those of all ranks, where they are the same."""
        return same_everywhere(states, self.__name__)


def _kind(maker: Any) -> Any:
    """The class that a maker makes an object of; a function itself."""
    while isinstance(maker, partial):
        maker = maker.func
    return maker


def _is(maker: Any, kind: type) -> bool:
    known = _kind(maker)
    return isinstance(known, type) and issubclass(known, kind)


def _names(trait: str) -> str:
    from deep500.distributed.schemes import by_name

    return ", ".join(sorted(name for name, kind in by_name().items() if getattr(kind, trait)))
