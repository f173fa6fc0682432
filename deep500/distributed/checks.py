"""Checks of what all ranks must have alike; every rank makes them together."""

from __future__ import annotations

from typing import Any

from deep500.distributed.transports.communicator import Communicator
from deep500.errors import CommunicationError, InputError
from deep500.operators.cpp.ranks import communicating


def check_networks(comm: Communicator, network: Any, scheme: str) -> None:
    """Raise CommunicationError unless all ranks train by one scheme, and their parameters have the same names, shapes
    and dtypes, and where they are drawn later the same values to come."""
    mine = [
        [name, list(p.value.shape), str(p.value.dtype), *([] if p.undrawn is None else [str(p.undrawn)])]
        for name, p in network.parameters.items()
    ]
    everywhere = comm.gather_facts([scheme, mine])
    for rank, (other, _) in enumerate(everywhere):
        if other != everywhere[0][0]:
            raise CommunicationError(
                f"got ranks that train by different schemes: {everywhere[0][0]} on rank 0, {other} on rank {rank}; "
                "expected one: give every rank the same recipe and options"
            )
    for rank, (_, theirs) in enumerate(everywhere):
        if theirs != mine:
            counts = (f"{len(mine)} parameters", f"{len(theirs)} parameters")
            odd = next((pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]), counts)
            raise CommunicationError(
                f"got different networks: rank {comm.rank} has {odd[0]}, rank {rank} has {odd[1]}; expected "
                "the same on every rank: run the same recipe everywhere"
            )


def check_shares(comm: Communicator, samples: float) -> None:
    """Raise InputError for shares that differ where operators communicate, which no weight of a rank reaches.

    What such an operator returns is of all samples: means of gradients would weigh them twice.
    """
    if comm.size == 1 or not communicating():
        return
    shares = comm.gather_facts(samples)
    if len(set(shares)) > 1 or not samples:
        raise InputError(
            f"got a batch of {', '.join(map(str, shares))} samples on {len(shares)} ranks; expected equal shares, "
            f"because the operator {communicating()[0]!r} communicates: choose a batch_size that the ranks divide, "
            "and a train_sampler that drops the last batch"
        )
