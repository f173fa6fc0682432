"""From a resolved recipe to objects: plugins, data, network, executor, samplers, optimizer. One function per key.

Keywords are checked against a callable's signature before it is called, so that a wrong one is named with the nearest.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deep500.devices import DeviceWarning
from deep500.distributed import Communicator, Serial
from deep500.errors import DataError, InputError, MissingDevice, RecipeError, nearest
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.operators.registry import load_plugin
from deep500.recipe.names import describe
from deep500.recipe.ranks import distribute, share
from deep500.recipe.training import optimizer_keywords, shaped
from deep500.recipe.transformations import transformed
from deep500.training.accumulation import AccumulationWarning
from deep500.training.data import Dataset, StandInWarning, load_dataset
from deep500.training.data.prefetch import Prefetch
from deep500.training.data.samplers import OrderedSampler, Sampler, ShuffleSampler

LOSS = "loss"
"""Name of the value that recipes minimize."""

COLLECTED = (DeviceWarning, StandInWarning, AccumulationWarning)
"""Warnings that a run's record repeats."""

DRY_BATCHES = 2
"""Batches of everything in a dry run."""


@dataclass
class Parts:
    """The objects of one training run."""

    executor: GraphExecutor
    optimizer: Any
    train_sampler: Any
    validation_sampler: Any


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
                raise MissingDevice(f"--strict: {warning.message}; expected the device: choose another with --device")
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
    for given in paths:
        place = (base or Path()) / Path(given).expanduser()
        if not place.exists():
            raise RecipeError(
                f"custom_ops: got {str(given)!r}, that is {place.absolute()}, where nothing is; expected a plugin's "
                "folder or Python file: correct the path, which is relative to the recipe's file"
            )
        try:
            load_plugin(place)
        except InputError as error:
            raise RecipeError(f"custom_ops: {error}") from error
        facts.append({"path": str(given), "sha256": digest(place)})
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


def load_data(values: Mapping[str, Any], strict: bool, download: bool, root: Path | None) -> tuple[Dataset, Dataset]:
    """The recipe's training and validation data.

    Raises:
        DataError: absent (under ``strict``) or damaged data, or a callable that returns something else.
        RecipeError: unknown keywords.
    """
    source, args, kwargs = values["dataset"], values["dataset_args"], values["dataset_kwargs"]
    if isinstance(source, str):
        extra: dict[str, Any] = {"root": root, "download": download, "stand_in": not strict}
        return load_dataset(source, *args, **{**extra, **kwargs})
    if not callable(source):
        raise RecipeError(f"dataset: got {source!r}; expected a name or a callable that returns (train, test)")
    check_call("dataset", source, 0, args, kwargs)
    pair = source(*args, **kwargs)
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(half, Dataset) for half in pair)):
        raise DataError(
            f"dataset: got {type(pair).__name__} from {describe(source)}; expected two Datasets: (train, test)"
        )
    return pair[0], pair[1]


def make_network(values: Mapping[str, Any], data: Dataset, seed: int) -> Network:
    """The recipe's network with its loss on top, after the recipe's transformations.

    Raises:
        RecipeError: unknown keywords, a callable that returns no network, or a transformation that does not fit.
        NetworkError: the model cannot be built, read, or be given a loss.
    """
    network = _model(values, data, seed)
    if not network.has_value(LOSS):
        from deep500.networks import add_loss

        add_loss(network, values["loss"], label=data.label_name)
    elif LOSS not in network.outputs:
        network.add_output(LOSS)
    return shaped(transformed(_fit_input(network, data), values), values)


def _model(values: Mapping[str, Any], data: Dataset, seed: int) -> Network:
    source, args, kwargs = values["model"], values["model_args"], dict(values["model_kwargs"])
    known = {"classes": data.classes, "shape": data.shape, "seed": seed}
    given: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    if isinstance(source, Network):
        return source.copy()
    if isinstance(source, (str, os.PathLike)) and (str(source).endswith(".onnx") or os.sep in str(source)):
        check_call("model", Network.from_onnx, 1, args, kwargs)
        return Network.from_onnx(source, *args, **kwargs)
    if isinstance(source, str):
        from deep500.networks import create

        return create(source, None, *args, **{**given, **kwargs})
    if not callable(source):
        raise RecipeError(f"model: got {source!r}; expected a zoo name, an ONNX file, a Network or a callable")
    offered = {name: value for name, value in given.items() if accepts(source, name) and name not in kwargs}
    check_call("model", source, 0, args, {**offered, **kwargs})
    made = source(*args, **offered, **kwargs)
    made = made[0] if isinstance(made, tuple) else made
    if not isinstance(made, Network):
        raise RecipeError(f"model: got {type(made).__name__} from {describe(source)}; expected a deep500 Network")
    return made


def _fit_input(network: Network, data: Dataset) -> Network:
    """Rename the network's only data input to the data set's name for it."""
    free = [name for name in network.inputs if name != data.label_name]
    if len(free) == 1 and free[0] != data.input_name and not network.has_value(data.input_name):
        descriptor = network.inputs[free[0]]
        network.add_input(data.input_name, descriptor.shape, descriptor.dtype or "float32")
        network.replace_value(free[0], data.input_name)
        network.remove_input(free[0])
    return network


def make_executor(values: Mapping[str, Any], network: Network) -> GraphExecutor:
    """The recipe's network in its framework."""
    function, args, kwargs = values["executor"], values["executor_args"], values["executor_kwargs"]
    check_call("executor", function, 1, args, kwargs)
    executor = function(network, *args, **kwargs)
    if not isinstance(executor, GraphExecutor):
        raise RecipeError(f"executor: got {type(executor).__name__}; expected a GraphExecutor: use d5fw.from_model")
    return executor


def make_sampler(
    values: Mapping[str, Any], key: str, data: Dataset, seed: int, dry_run: bool, comm: Communicator | None = None
) -> Any:
    """``train_sampler`` or ``validation_sampler`` over its data: this rank's share, transformed, working ahead."""
    usual: dict[str, Callable[..., Any]] = {"train_sampler": ShuffleSampler, "validation_sampler": OrderedSampler}
    function = values[key] or usual[key]
    args, kwargs = values[f"{key}_args"], dict(values[f"{key}_kwargs"])
    batch_size = values["batch_size"]
    if len(data) < batch_size and key == "train_sampler":
        raise RecipeError(
            f"got batch_size={batch_size}; expected at most {len(data)}, the training samples: make it smaller"
        )
    supplied = {"seed": seed} if accepts(function, "seed") and "seed" not in kwargs and not args else {}
    check_call(key, function, 2, args, {**supplied, **kwargs})
    sampler = function(data, min(batch_size, len(data)), *args, **supplied, **kwargs)
    if not isinstance(sampler, Sampler):
        raise RecipeError(
            f"{key}: got {type(sampler).__name__}; expected a Sampler: use d5.ShuffleSampler or derive one"
        )
    transformations = [*values["preprocessing"], *(values["augmentation"] if key == "train_sampler" else ())]
    for transformation in transformations:
        sampler.add_transformation(transformation)
    if dry_run:
        sampler = FirstBatches(sampler, DRY_BATCHES)
    return Prefetch(share(sampler, values, comm or Serial(), training=key == "train_sampler"))


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
    """The recipe's optimizer on an executor."""
    function: Callable[..., Any] = values["optimizer"]
    supplied = optimizer_keywords(values)
    twice = next((name for name in supplied if name in values["optimizer_kwargs"]), None)
    if twice:
        raise RecipeError(f"got {twice!r} as a key and in optimizer_kwargs; expected it once; remove one of them")
    kwargs = {**supplied, **values["optimizer_kwargs"]}
    given = 2 if _takes_loss(function) else 1
    check_call("optimizer", function, given, values["optimizer_args"], kwargs)
    return function(executor, *((LOSS,) if given == 2 else ()), *values["optimizer_args"], **kwargs)


def _takes_loss(function: Callable[..., Any]) -> bool:
    try:
        names = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True
    return len(names) > 1 and names[1].kind is not inspect.Parameter.KEYWORD_ONLY


def make_parts(
    values: Mapping[str, Any], data: tuple[Dataset, Dataset], seed: int, dry_run: bool, comm: Communicator | None = None
) -> Parts:
    """All objects of one run with one seed; everything that can be wrong is found here, before training."""
    train, test = data
    comm = comm or Serial()
    train_sampler = make_sampler(values, "train_sampler", train, seed, dry_run, comm)
    validation_sampler = make_sampler(values, "validation_sampler", test, seed, dry_run, comm)
    executor = make_executor(values, make_network(values, train, seed))
    executor.reseed(seed)
    optimizer = distribute(values, make_optimizer(values, executor), comm)
    return Parts(executor, optimizer, train_sampler, validation_sampler)


# -- calls that are checked before they are made -----------------------------------------------------------------------
_P = inspect.Parameter


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The callable's parameters by name, None where Python cannot tell (some C functions)."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether a callable takes a keyword of that name, by declaration or through ``**kwargs``."""
    declared = parameters(function)
    if declared is None:
        return False
    named = declared.get(name)
    if named is not None and named.kind in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY):
        return True
    return any(p.kind is _P.VAR_KEYWORD for p in declared.values())


def check_call(
    key: str,
    function: Callable[..., Any],
    given: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    also: Sequence[str] = (),
) -> None:
    """Raise RecipeError unless ``function(<given arguments>, *args, **kwargs)`` fits its signature.

    Args:
        key: recipe key, for the message.
        function: what will be called.
        given: number of leading positional arguments that the runner supplies itself.
        args, kwargs: the recipe's ``<key>_args`` and ``<key>_kwargs``.
        also: keywords that the runner supplies and a recipe may not.
    """
    declared = parameters(function)
    if declared is None:
        return
    name = getattr(function, "__qualname__", repr(function))
    open_ended = any(p.kind is _P.VAR_KEYWORD for p in declared.values())
    by_name = [n for n, p in declared.items() if p.kind in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY)]
    free = [n for n in by_name if n not in list(declared)[:given] and n not in also]
    for keyword in kwargs:
        if keyword not in free and (not open_ended or keyword in by_name):
            raise RecipeError(f"{key}_kwargs: got {keyword!r}; expected a keyword of {name}; {nearest(keyword, free)}")
    try:
        inspect.signature(function).bind(*(None,) * given, *args, **dict.fromkeys(also), **kwargs)
    except TypeError as error:
        raise RecipeError(
            f"{key}: got arguments that {name}{inspect.signature(function)} does not take ({error}); "
            f"expected those; correct {key}_args or {key}_kwargs"
        ) from error
