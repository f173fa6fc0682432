"""Go on with a run on another number of ranks: one state is made of those of all ranks, and every rank takes it over.

A process may be killed at any point of it. First rank 0 writes that state beside the checkpoints of a seed, as
``of-<ranks>-ranks/epoch-<n>.safetensors``; then the manifest says the new number; then each rank makes it a checkpoint
of its own, one file under several names where the file system has such; what belongs to the former ranks, and that
folder, go last. Until the manifest has changed the former ranks can go on as they were, from then on the new ones.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.distributed import Communicator, DistributedOptimizer
from deep500.distributed.traits import same_everywhere
from deep500.errors import InputError, ResultsError
from deep500.recipe.ranks import WRITING_SECONDS, scheme_of
from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from deep500.results.files import share_atomic, writing

ALIKE = ("epoch", "step", "seed", "sampler", "hyperparameters", "loss_scaling")
"""Values that are alike in every rank's checkpoint; seconds are each rank's own."""


def check_ranks(record: Record, values: Mapping[str, Any], count: int) -> None:
    """Raise ResultsError if the run was trained on another number of ranks and its scheme cannot go on on this one."""
    began = record.manifest().get("ranks", 1)
    scheme = scheme_of(values)
    if began == count:
        return
    name, describes = getattr(scheme, "__name__", type(scheme).__name__), getattr(scheme, "kept_by_each", None)
    local = describes() if describes else "what only it knows, for it is no class derived from DistributedOptimizer"
    if local:
        raise ResultsError(
            f"{record.path}: got {count} rank{'s' * (count != 1)}; expected {began}, on which the run was trained so "
            f"far, for in {name} each rank keeps {local}; start as many, or start a new run"
        )


def put_together(record: Record, scheme: Any, began: int, count: int) -> None:
    """Write one checkpoint for all ranks of each seed that is begun and not finished: of so many ranks, for so many.

    Raises:
        ResultsError: the ranks' states differ in what the scheme does not put together.
    """
    for seed in record.manifest()["seeds"]:
        if record.finished_seed(seed) is not None:
            continue
        folders = [record.checkpoints(seed, rank) for rank in range(began)]
        folder = folders[0]
        in_turn = getattr(scheme, "first_writes", False)
        states = _newest(folders[:1] if in_turn else folders, in_turn)
        if states is None:  # nothing that all ranks have: the seed begins anew
            for path in (path for one_rank in folders for path in list_checkpoints(one_rank)):
                with writing(path):
                    path.unlink()
            continue
        try:
            state = _joined(states, scheme)
        except InputError as error:
            raise ResultsError(
                f"{folder}: {error}; so the run, which {began} trained, does not go on on {count}; or start a new run"
            ) from error
        save_checkpoint(_between(folder, count), states[0]["epoch"], state, keep=1)


def take_over(record: Record, comm: Communicator) -> None:
    """Make what :func:`put_together` wrote this rank's own checkpoints, if there is something; all ranks call it."""
    seeds = record.manifest()["seeds"]
    for seed in seeds:
        mine = record.checkpoints(seed)
        for path in list_checkpoints(_between(record.checkpoints(seed, 0), comm.size)):
            with writing(mine):
                mine.mkdir(parents=True, exist_ok=True)
            share_atomic(path, mine / path.name)
            for old in list_checkpoints(mine):
                if old.name != path.name:
                    with writing(old):
                        old.unlink()
    with comm.patience(WRITING_SECONDS):
        comm.barrier()
    if comm.rank == 0:
        for seed in seeds:
            _clear(record.checkpoints(seed), comm.size)


def _between(folder: Path, count: int) -> Path:
    return folder / f"of-{count}-ranks"


def _clear(folder: Path, count: int) -> None:
    """Remove what is of other ranks than there are, if ranks have taken over something."""
    taken = list_checkpoints(_between(folder, count))
    for path in folder.glob("*/") if folder.is_dir() else ():
        rank = re.fullmatch(r"rank-(\d+)", path.name)
        if rank is not None and taken and int(rank[1]) >= count:
            with writing(path):
                shutil.rmtree(path)
    for path in folder.glob("of-*-ranks"):  # last: what they stand for is done
        with writing(path):
            shutil.rmtree(path)


def _newest(folders: Sequence[Path], in_turn: bool) -> list[dict[str, Any]] | None:
    """The checkpoints of the newest epoch of which every rank has one that can be read."""
    common = set.intersection(*({path.name for path in list_checkpoints(folder)} for folder in folders))
    for path in reversed(list_checkpoints(folders[0])):
        if path.name in common:
            with contextlib.suppress(ResultsError):  # damaged: the one before is as good
                return [load_checkpoint(folder / path.name, in_turn) for folder in folders]
    return None


def _joined(states: Sequence[Mapping[str, Any]], scheme: Any) -> dict[str, Any]:
    """One state for those of all ranks. Running statistics became their mean in the validation before."""
    for rank, state in enumerate(states):
        odd = [key for key in ALIKE if state["values"].get(key) != states[0]["values"].get(key)]
        if odd:
            raise InputError(f"got ranks that differ in {odd[0]!r} (rank {rank} from rank 0); expected the same epoch")
    prefix = "optimizer/"
    shared, optimizers = (
        [
            {n.removeprefix(prefix): a for n, a in state["arrays"].items() if n.startswith(prefix) is of_it}
            for state in states
        ]
        for of_it in (False, True)
    )
    joined = {f"{prefix}{name}": array for name, array in scheme.put_together(optimizers).items()}
    return {"arrays": {**same_everywhere(shared, scheme.__name__), **joined}, "values": states[0]["values"]}


def fitting(optimizer: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """A state without what a scheme remembers, for an optimizer that is in none: a run that goes on on one rank."""
    if isinstance(optimizer, DistributedOptimizer):
        return dict(state)
    arrays = {name: array for name, array in state["arrays"].items() if not name.startswith("optimizer/scheme")}
    return {**state, "arrays": arrays}
