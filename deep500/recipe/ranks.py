"""A recipe on several ranks: start them, check that they run the same, and let only rank 0 write results."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from deep500.devices import GPUDevice
from deep500.distributed import Communicator, DistributedOptimizer, current_world
from deep500.distributed.launch import THREADS, launch, started
from deep500.distributed.sampler import DistributedSampler
from deep500.distributed.schemes import ConsistentDecentralized
from deep500.errors import CommunicationError, RecipeError
from deep500.measure.environment import describe
from deep500.recipe.calls import check_call
from deep500.recipe.options import Options
from deep500.recipe.parallel import MODEL, check_parallel
from deep500.registry import backend_of, load_backend
from deep500.results import RecipeResult, Record
from deep500.results.verdict import metric_from

WRITING_SECONDS = 600.0
"""How long the other ranks wait while rank 0 writes its results."""

FAILING_SECONDS = 5.0
"""How long a rank whose training failed waits for rank 0 to say so in the results."""


def start_ranks(options: Options, command: Sequence[str] | None) -> None:
    """If ``--ranks`` asks for ranks that are not running yet: start them, wait, and leave with their exit code.

    Args:
        options: of the recipe.
        command: what to start on every rank: a file, or ``-m`` and a module, and arguments; None: there is none.

    Raises:
        RecipeError: the recipe was called by a program, which cannot be started again on every rank.
        SystemExit: the ranks have run.
    """
    if options.ranks is None or options.ranks == 1 or started() or current_world().size == options.ranks:
        return
    if command is None:
        raise RecipeError(
            f"got --ranks {options.ranks} from within a program; expected a recipe's file or 'deep500 run': start "
            f"those, or the program itself with mpirun -n {options.ranks}"
        )
    sys.stdout.flush()
    raise SystemExit(launch(options.ranks, command))


def check_size(options: Options, comm: Communicator) -> None:
    """Note in the options how many ranks there are; raises RecipeError unless that is what ``--ranks`` says."""
    if options.ranks is not None and options.ranks != comm.size:
        raise RecipeError(
            f"got --ranks {options.ranks} in a world of {comm.size}; expected the number that the launcher started: "
            "leave --ranks out, or give both the same"
        )
    options.ranks = comm.size if comm.size > 1 else None


def check_agreement(comm: Communicator, facts: Mapping[str, Any]) -> None:
    """Raise CommunicationError naming the first fact in which a rank differs from rank 0.

    Args:
        facts: what JSON can hold and must be the same everywhere, but for a device that is each rank's own GPU
            (``GPUDevice()``); installed versions are added.
    """
    if comm.size == 1:
        return
    everywhere = comm.gather_facts([{**facts, "versions": describe()["versions"]}, str(GPUDevice())])
    first, device = everywhere[0]
    for rank, (theirs, device_of_rank) in enumerate(everywhere):
        for path, expected, got in differences(first, theirs):
            if path.endswith(".device") and (expected, got) == (device, device_of_rank):
                continue
            raise CommunicationError(
                f"got ranks that do not run the same: {path} is {expected!r} on rank 0, {got!r} on rank {rank}; "
                "expected the same recipe, options, data and packages on each: install and start the same everywhere"
            )


def differences(a: Any, b: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two values that JSON can hold differ: dotted path (empty: as a whole) and both values."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            yield from differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif a != b:
        yield path, a, b


def share(sampler: Any, values: Mapping[str, Any], comm: Communicator, training: bool) -> Any:
    """This rank's part of a sampler; the sampler itself where there is one rank."""
    if comm.size == 1:
        return sampler
    ranks = list(scheme_of(values).computing_ranks(comm.size)) if training else list(range(comm.size))
    return DistributedSampler(sampler, ranks.index(comm.rank) if comm.rank in ranks else None, len(ranks))


def scheme_of(values: Mapping[str, Any]) -> Any:
    """The recipe's scheme: what its key says, else ConsistentDecentralized."""
    if values["mesh"] is not None:
        return _mesh(values)
    if values["parallel"] is not None:
        return _dividing(values).func
    return values["scheme"] or ConsistentDecentralized


def _dividing(values: Mapping[str, Any]) -> Any:
    from deep500.distributed.schemes import DividedNetwork  # few recipes divide their network

    return partial(DividedNetwork.as_asked(values["parallel"]), recompute=values["checkpointing"])


def _mesh(values: Mapping[str, Any]) -> Any:
    """The schemes that the key ``mesh`` composes; raises RecipeError for companions of a scheme that is not one."""
    from deep500.distributed.schemes.mesh import SchemeMesh  # few recipes have one

    scheme, args, kwargs = values["scheme"], values["scheme_args"], values["scheme_kwargs"]
    if args or kwargs:
        if not callable(scheme):
            raise RecipeError(
                f"got scheme_args or scheme_kwargs with mesh={values['mesh']!r}; expected them with one scheme, that "
                "of the last axis: give schemes by axis, as scheme={axis: functools.partial(...)}"
            )
        scheme = partial(scheme, *args, **kwargs)
    if values["parallel"] is not None:
        check_parallel(values)
        scheme = {MODEL: _dividing(values)}
    return SchemeMesh(values["mesh"], scheme)


def meet(values: Mapping[str, Any], comm: Communicator) -> None:
    """Let ranks meet for the framework's own engine where it must be before an executor is made."""
    if comm.size == 1 or values["mesh"] is not None or not getattr(scheme_of(values), "one_backend", False):
        return
    backend = backend_of(values["executor"])
    meeting = None if backend is None else getattr(load_backend(backend), "meet", None)
    if meeting is not None:
        meeting(comm)


def distribute(values: Mapping[str, Any], optimizer: Any, comm: Communicator) -> Any:
    """The optimizer in its scheme; itself where there is one rank and the recipe names no scheme.

    Raises:
        RecipeError: the key makes something else than a DistributedOptimizer.
        CommunicationError: the scheme needs more ranks.
    """
    if comm.size == 1 and values["scheme"] is None and values["mesh"] is None:
        return optimizer
    if values["mesh"] is not None:
        return _mesh(values)(optimizer, comm)
    if values["parallel"] is not None:
        return _dividing(values)(optimizer, comm)
    check_call("scheme", scheme_of(values), 2, values["scheme_args"], values["scheme_kwargs"])
    scheme = scheme_of(values)(optimizer, comm, *values["scheme_args"], **values["scheme_kwargs"])
    if not isinstance(scheme, DistributedOptimizer):
        raise RecipeError(
            f"scheme: got {type(scheme).__name__}; expected a DistributedOptimizer, such as "
            "d5.schemes.ConsistentDecentralized"
        )
    return scheme


def drawn_by_ranks(values: Mapping[str, Any], comm: Communicator) -> bool:
    """Whether ranks draw their parts of a network of the zoo, which then none of them ever holds whole: the scheme can,
    and nothing in the recipe edits initial values."""
    edits = ("freeze", "network_transformations", "mesh", "parallel", "memory")
    return (
        comm.size > 1
        and isinstance(values["model"], str)
        and backend_of(values["executor"]) == "pytorch"
        and not any(values[key] for key in edits)
        and values["loss_pieces"] == 1
        and "quantization" not in values["executor_kwargs"]
        and getattr(scheme_of(values), "draws", False)
    )


@contextlib.contextmanager
def one_after_the_other(comm: Communicator, download: bool) -> Iterator[None]:
    """Let rank 0 go first if it downloads, and the other ranks find the files."""
    with comm.patience(WRITING_SECONDS):
        if download and comm.rank != 0:
            comm.barrier()
        yield
        if download and comm.rank == 0:
            comm.barrier()


def record_of_rank(record: Record | None, comm: Communicator) -> Record:
    """The results folder that rank 0 writes, with what this rank may write into it."""
    path = comm.gather_facts(None if record is None else str(record.path))[0]
    return Record(Path(path), comm.rank)


def common_epoch(epochs: Sequence[int], comm: Communicator) -> int | None:
    """The newest epoch that every rank has a checkpoint of, None if there is none."""
    everywhere = comm.gather_facts(list(epochs))
    return max(set(everywhere[0]).intersection(*everywhere[1:]), default=None)


def result_of_all(mine: RecipeResult, comm: Communicator) -> RecipeResult:
    """Rank 0's result, on every rank, once it is written."""
    facts = {
        "verdict": mine.verdict,
        "path": mine.path,
        "report": mine.report,
        "labels": mine.labels,
        "metrics": [metric.as_dict() for metric in mine.metrics],
    }
    with comm.patience(WRITING_SECONDS):
        first = comm.gather_facts(facts)[0]
    if comm.rank == 0:
        return mine
    metrics = [metric_from(metric) for metric in first["metrics"]]
    return RecipeResult(first["verdict"], metrics, first["path"], first["report"], tuple(first["labels"]))


def yield_to_rank_0(record: Record, comm: Communicator) -> None:
    """After a failure on another rank: wait until rank 0, if its training failed too, has written why and ended all.

    Returns if rank 0 does not begin to write: then only this rank failed, and the run stays unfinished.
    """
    begin, patience = monotonic(), min(FAILING_SECONDS, comm.timeout / 2)
    while monotonic() - begin < (patience if record.summary() is None else WRITING_SECONDS):
        sleep(0.05)


def ranks_facts(comm: Communicator, optimizer: Any) -> dict[str, Any]:
    """The manifest's entry on the ranks: how many, what moves the bytes, the scheme, and where they run."""
    here = {"host": platform.node(), "threads": {name: os.environ[name] for name in THREADS if name in os.environ}}
    scheme = optimizer.title if isinstance(optimizer, DistributedOptimizer) else None
    return {
        "count": comm.size,
        "transport": comm.transport,
        "library": getattr(comm, "library", None),
        "scheme": scheme,
        "timeout_s": comm.timeout,
        "each": comm.gather_facts(here),
    }
