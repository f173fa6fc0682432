"""From a resolved recipe to objects: plugins, data, network, executor, samplers, optimizer. One function per key.

The network is made in :mod:`deep500.recipe.model`; keywords are checked by :mod:`deep500.recipe.calls`.
"""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.devices import DeviceWarning
from deep500.distributed import Communicator, Serial
from deep500.errors import AccumulationWarning, InputError, MissingDevice, RecipeError, UnknownDataset
from deep500.measure.allocation import set_allocator
from deep500.networks.drawing import undrawn
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.operators.registry import forget_operators, load_plugin
from deep500.recipe.calls import accepts, check_call, parameters
from deep500.recipe.describing import describe
from deep500.recipe.model import LOSS, make_native, make_network, make_task
from deep500.recipe.ranks import distribute, drawn_by_ranks, meet, share
from deep500.tasks import Task
from deep500.training.data import Dataset, StandInWarning, load_dataset
from deep500.training.data.episodes import episodes
from deep500.training.data.prefetch import Prefetch
from deep500.training.data.samplers import OrderedSampler, Sampler, ShuffleSampler
from deep500.training.data.split import hold_out

if TYPE_CHECKING:
    from deep500.transformations.memory_plan import MemoryPlan

COLLECTED = (DeviceWarning, StandInWarning, AccumulationWarning)
"""Warnings that a run's record repeats."""

OF_OPTIMIZER = ("gradient_modifier", "gradient_transform", "groups", "no_decay")
"""Keys that are keywords of every optimizer, passed on where the recipe gives them."""

DRY_BATCHES = 2
"""Batches of everything in a dry run."""


@dataclass
class Parts:
    """The objects of one training run."""

    executor: GraphExecutor
    optimizer: Any
    train_sampler: Any
    validation_sampler: Any
    task: Task
    test_sampler: Any = None


@dataclass
class Notes:
    """Where a run departs from what was asked for: warnings for the record, and whether data are a stand-in."""

    warnings: list[str] = field(default_factory=list)
    stand_in: bool = False

    @contextmanager
    def collecting(self, strict: bool) -> Iterator[None]:
        """Collect the warnings of :data:`COLLECTED`; raise those about hardware under ``strict``, pass on others."""
        with warnings.catch_warnings(record=True) as caught:
            for category in COLLECTED:
                warnings.simplefilter("always", category)
            yield
        for warning in caught:
            if issubclass(warning.category, DeviceWarning) and strict:
                absent = str(warning.message).rpartition(";")[0]
                raise MissingDevice(f"{absent}; with --strict nothing else is taken: choose another with --device")
            if issubclass(warning.category, COLLECTED):
                if str(warning.message) not in self.warnings:
                    self.warnings.append(str(warning.message))
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def load_custom_ops(paths: Sequence[str | Path], base: Path | None) -> list[dict[str, str]]:
    """Load plugins; relative paths are relative to ``base``, the recipe's folder (the current one if None).

    Returns:
        for each its path, as given, and the SHA-256 of its files: what the results record.

    Raises:
        RecipeError: no plugin at that path, or one that cannot be imported.
    """
    facts = []
    for path in paths:
        place = (base or Path()) / Path(path).expanduser()
        if not place.exists():
            raise RecipeError(
                f"custom_ops: got {str(path)!r}, that is {place.absolute()}, where nothing is; expected a plugin's "
                "folder or Python file: correct the path, which is relative to the recipe's file"
            )
        try:
            load_plugin(place)
        except InputError as error:
            raise RecipeError(f"custom_ops: {error}") from error
        facts.append({"path": str(path), "sha256": digest(place)})
    return facts


def digest(place: Path) -> str:
    """SHA-256 over the names and contents of a plugin's files; what Python and editors leave behind does not count."""
    if place.is_file():
        return hashlib.sha256(place.read_bytes()).hexdigest()
    content_hash = hashlib.sha256()
    for file in sorted(place.rglob("*")):
        relative = file.relative_to(place)
        if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in relative.parts):
            content = file.read_bytes()
            content_hash.update(f"{relative.as_posix()}\0{len(content)}\0".encode())
            content_hash.update(content)
    return content_hash.hexdigest()


def load_data(values: Mapping[str, Any], strict: bool, download: bool, root: Path | None) -> tuple[Dataset, ...]:
    """The recipe's training and validation data, and test data where there is a third split.

    Raises:
        DataError: absent (under ``strict``) or damaged data, or a callable that returns something else.
        RecipeError: unknown keywords.
    """
    if values["environment"] is not None:
        args, kwargs = values["environment_args"], values["environment_kwargs"]
        return episodes(values["environment"], *args, **kwargs)
    source, args, kwargs = values["dataset"], values["dataset_args"], values["dataset_kwargs"]
    if isinstance(source, str):
        extra: dict[str, Any] = {"root": root, "download": download, "stand_in": not strict}
        return _three_splits(load_dataset(source, *args, **{**extra, **kwargs}), values["validation_split"])
    if not callable(source):
        raise RecipeError(f"dataset: got {source!r}; expected a name or a callable that returns (train, test)")
    check_call("dataset", source, 0, args, kwargs)
    parts = source(*args, **kwargs)
    fits = isinstance(parts, (tuple, list)) and len(parts) in (2, 3)
    if not (fits and all(isinstance(part, Dataset) for part in parts)):
        raise UnknownDataset(
            f"dataset: got {type(parts).__name__} from {describe(source)}; expected two or three Datasets: (train, "
            "test) or (train, validation, test)"
        )
    return _three_splits(tuple(parts), values["validation_split"])


def _three_splits(parts: tuple[Dataset, ...], share: float | None) -> tuple[Dataset, ...]:
    """The parts, validation held out of the training samples if a share is wanted."""
    if share is None:
        return parts
    if len(parts) == 3:
        raise RecipeError(
            f"got validation_split={share} for data that have a validation part of {len(parts[1])} samples; expected "
            "one of them: leave validation_split out"
        )
    return *hold_out(parts[0], share), parts[1]


def allocate(values: Mapping[str, Any]) -> None:
    """Tell the allocator of this process what the recipe says of it."""
    if values["malloc"] is not None:
        set_allocator(values["malloc"])


def make_executor(values: Mapping[str, Any], network: Network) -> GraphExecutor:
    """The recipe's network in its framework."""
    allocate(values)
    function, args, kwargs = values["executor"], values["executor_args"], values["executor_kwargs"]
    check_call("executor", function, 1, args, kwargs)
    executor = function(network, *args, **kwargs)
    if not isinstance(executor, GraphExecutor):
        raise RecipeError(f"executor: got {type(executor).__name__}; expected a GraphExecutor: use d5fw.from_model")
    return executor


def make_sampler(
    values: Mapping[str, Any], key: str, data: Dataset, seed: int, dry_run: bool, comm: Communicator | None = None
) -> Any:
    """``train_sampler`` or ``validation_sampler`` over its data: this rank's share, transformed, working ahead. Test
    data are sampled as validation data are."""
    usual: dict[str, Callable[..., Any]] = {"train_sampler": ShuffleSampler, "validation_sampler": OrderedSampler}
    function = values[key] or usual[key]
    args, kwargs = values[f"{key}_args"], dict(values[f"{key}_kwargs"])
    batch_size = values["batch_size"]
    if len(data) < batch_size and key == "train_sampler":
        raise RecipeError(
            f"got batch_size={batch_size}; expected at most {len(data)}, the training samples: make it smaller"
        )
    usually: dict[str, Any] = {"seed": seed, **({"drop_last_batch": False} if key == "validation_sampler" else {})}
    supplied = {n: v for n, v in usually.items() if accepts(function, n) and n not in kwargs and not args}
    check_call(key, function, 2, args, {**supplied, **kwargs})
    sampler = function(data, min(batch_size, len(data)), *args, **supplied, **kwargs)  # validation data may be few
    if not isinstance(sampler, Sampler):
        raise RecipeError(
            f"{key}: got {type(sampler).__name__}; expected a Sampler: use d5.ShuffleSampler or derive one"
        )
    if key == "validation_sampler":
        _check_judged(sampler, len(data))
    transformations = [*values["preprocessing"], *(values["augmentation"] if key == "train_sampler" else ())]
    for transformation in transformations:
        sampler.add_transformation(transformation)
    if dry_run:
        sampler = FirstBatches(sampler, DRY_BATCHES)
    # outermost: a rank prefetches its share of a batch, transformed, not what other ranks compute
    part = share(sampler, values, comm or Serial(), training=key == "train_sampler")
    threads = values["data_threads"]
    return Prefetch(part, depth=max(AHEAD, 2 * threads), workers=threads)


def _check_judged(sampler: Sampler, count: int) -> None:
    """Raise RecipeError for a sampler by which a network is judged by some samples only, or by some several times."""
    times = np.bincount(np.concatenate([*sampler.batches(0), np.zeros(0, np.int64)]), minlength=count)
    if (times != 1).any():
        raise RecipeError(
            f"validation_sampler: got {type(sampler).__name__}, which leaves out {int((times == 0).sum())} of {count} "
            f"samples and takes {int((times > 1).sum())} more than once; expected each once: use d5.OrderedSampler"
        )


AHEAD = 4
"""Batches that are made ahead by one thread or two; with more, two of each."""


class FirstBatches:
    """The first few batches of every epoch of a sampler; everything else is the sampler's."""

    def __init__(self, sampler: Any, count: int) -> None:
        self.sampler, self.count = sampler, count

    def batches(self, epoch: int) -> list[Any]:
        """Positions of the samples of those batches."""
        return self.sampler.batches(epoch)[: self.count]

    def __len__(self) -> int:
        return len(self.batches(self.sampler.epoch))

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self.sampler), self.count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)


def make_optimizer(values: Mapping[str, Any], executor: GraphExecutor) -> Any:
    """The recipe's optimizer on an executor, with what the recipe's keys add to its keywords."""
    function: Callable[..., Any] = values["optimizer"]
    supplied = {name: values[name] for name in OF_OPTIMIZER if values[name]}
    supplied |= {"accumulate": values["accumulate"]} if values["accumulate"] > 1 else {}
    twice = next((name for name in supplied if name in values["optimizer_kwargs"]), None)
    if twice:
        raise RecipeError(f"got {twice!r} as a key and in optimizer_kwargs; expected it once; remove one of them")
    kwargs = {**supplied, **values["optimizer_kwargs"]}
    declared = parameters(function)
    takes_loss = declared is None or any(p.kind is not p.KEYWORD_ONLY for p in list(declared.values())[1:2])
    first = (executor, LOSS) if takes_loss else (executor,)
    check_call("optimizer", function, len(first), values["optimizer_args"], kwargs)
    return function(*first, *values["optimizer_args"], **kwargs)


def make_parts(
    values: Mapping[str, Any],
    data: tuple[Dataset, ...],
    seed: int,
    dry_run: bool,
    comm: Communicator | None = None,
    memory: MemoryPlan | None = None,
) -> Parts:
    """All objects of one run with one seed; everything that can be wrong is found here, before training."""
    train, validation, *test = data
    forget_operators()  # those of an earlier seed
    comm = comm or Serial()
    train_sampler = make_sampler(values, "train_sampler", train, seed, dry_run, comm)
    validation_sampler = make_sampler(values, "validation_sampler", validation, seed, dry_run, comm)
    test_sampler = make_sampler(values, "validation_sampler", test[0], seed, dry_run, comm) if test else None
    task = make_task(values, train)
    meet(values, comm)
    native = make_native(values, train, seed)
    if native is None:
        with undrawn() if drawn_by_ranks(values, comm) else nullcontext():
            network = make_network(values, train, seed, task)
        executor = make_executor(values, network if memory is None else memory.apply(network))
    else:
        allocate(values)
        executor = native
    executor.reseed(seed)
    optimizer = distribute(values, make_optimizer(values, executor), comm)
    return Parts(executor, optimizer, train_sampler, validation_sampler, task, test_sampler)
