"""``deep500 bits``: the first step, value and operator at which two runs, models or backends part, to the last bit.

Runs are trained again from their recipes, which needs no more of them than their folders. At the first step after which
parameters, gradients or loss differ, both sides begin once more with the parameters that they had in common: the
forward pass is compared value by value in the order of the network, then gradients from the end backwards, then the
update. What is named has inputs of the same bits, so the fault is its own.

Differences are counted in units in the last place: how many floating-point numbers lie between two (Goldberg 1991, What
every computer scientist should know about floating-point arithmetic, section 1.2).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.first_difference import FUSED, chunks, reader, values_of
from deep500.compare.subject import Batch, Candidate
from deep500.compare.traces import as_arrays, gradients_of
from deep500.errors import ComparisonError, InputError
from deep500.events import Event, StopTraining
from deep500.networks.execution.inputs import batch_symbol, make_inputs
from deep500.networks.losses import gradient_name
from deep500.networks.network import Network
from deep500.progress import numbered
from deep500.recipe.build import load_custom_ops, load_data, make_executor, make_optimizer, make_parts
from deep500.recipe.loader import load_recipe
from deep500.recipe.names import backend_of
from deep500.recipe.options import parse_options
from deep500.recipe.plan import Plan, Source, make_plan
from deep500.results.record import Record
from deep500.tensors import digest
from deep500.training.statistics import TrainingStatistics
from deep500.training.trainer import Trainer

LOSS = "loss"


@dataclass(frozen=True)
class Parting:
    """Where two sides part.

    Attributes:
        step: training steps from 1 on; None for models.
        where: in words: the value and its operator, a gradient, a parameter after the update, or an input.
        index: of the element that differs most.
        first, second: this element on both sides.
        ulps: its distance in units in the last place; None where there is none: NaN, whole numbers.
        elements, of: how many elements differ, of how many.
    """

    step: int | None
    where: str
    index: tuple[int, ...]
    first: Any
    second: Any
    ulps: int | None
    elements: int
    of: int

    def __str__(self) -> str:
        at = "" if self.step is None else f"step {self.step}: "
        far = "" if self.ulps is None else f", {self.ulps} unit{'' if self.ulps == 1 else 's'} in the last place apart"
        return (
            f"{at}{self.where}, element {list(self.index)}: {self.first} against {self.second}{far}; "
            f"{self.elements} of {self.of} elements differ"
        )


@dataclass
class Verdict:
    """What came of a comparison: where two sides part, None if nowhere, over so many steps; and what to know of it."""

    parting: Parting | None
    steps: int
    compared: str
    notes: list[str]

    def __str__(self) -> str:
        said = f"the same bits: {self.compared}" if self.parting is None else str(self.parting)
        return "\n".join([said, *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        parting = None if self.parting is None else asdict(self.parting)
        for name in ("first", "second") if parting else ():
            assert parting is not None
            parting[name] = str(parting[name])
        return {"same": self.parting is None, "parting": parting, "steps": self.steps, "notes": self.notes}


def ulps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How many numbers of their dtype lie between two arrays' elements, the later one included; as whole numbers.

    Args:
        first, second: of one shape and one of float16, float32, float64; NaN counts like the numbers beyond infinity.

    Example:
        >>> a = np.array([1.0, -0.0, 1.0], "float32")
        >>> ulps(a, np.array([np.nextafter(np.float32(1), np.float32(2)), 0.0, 1.0], "float32")).tolist()
        [1, 0, 0]
    """
    places = []
    for array in (first, second):
        whole = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").astype(object)
        lowest = -(1 << 8 * array.dtype.itemsize - 1)
        places.append(np.where(whole < 0, lowest - whole, whole))  # both zeros are 0, and order is that of the numbers
    return np.abs(places[0] - places[1])


def apart(first: np.ndarray, second: np.ndarray, where: str, step: int | None = None) -> Parting | None:
    """How two arrays differ, None if they have the same bits (the zeros of both signs are two)."""
    if first.shape != second.shape or first.dtype != second.dtype:
        a, b = (f"{array.dtype}{list(array.shape)}" for array in (first, second))
        return Parting(step, where, (), a, b, None, max(first.size, second.size), max(first.size, second.size))
    differs = _bits(first) != _bits(second)
    count = int(differs.sum())
    if not count:
        return None
    if first.dtype in (np.float16, np.float32, np.float64):
        places = np.flatnonzero(differs)
        far = ulps(first.reshape(-1)[places], second.reshape(-1)[places])
        worst = int(places[int(np.argmax(far))])
        distance = None if np.isnan(first.flat[worst]) or np.isnan(second.flat[worst]) else int(far.max())
    else:
        worst, distance = int(np.flatnonzero(differs)[0]), None
    index = tuple(int(i) for i in np.unravel_index(worst, first.shape)) if first.ndim else ()
    return Parting(step, where, index, first.flat[worst], second.flat[worst], distance, count, first.size)


def _bits(array: np.ndarray) -> np.ndarray:
    if array.dtype == object:
        return array.reshape(-1)
    raw = np.ascontiguousarray(array).reshape(-1)
    return raw.view(np.uint8).reshape(raw.size, raw.dtype.itemsize).copy().view(f"V{raw.dtype.itemsize}")[:, 0]


# -- models ---------------------------------------------------------------------------------------------------------
def compare_networks(
    networks: Sequence[Network], candidates: Sequence[Candidate], feeds: Mapping[str, Any] | None = None, seed: int = 0
) -> Verdict:
    """Where two networks, or one on two backends, part: outputs in evaluation mode on made-up inputs, and gradients.

    Args:
        networks: two, whose values are matched by name; the same one twice for two backends.
        candidates: how each side is built.
        feeds: inputs; made up by ``seed`` if None.

    Raises:
        ComparisonError: they have no value in common.
    """
    feeds = make_inputs(networks[0], 2 if batch_symbol(networks[0]) else None, seed) if feeds is None else feeds
    common = [(node, value) for node, value in values_of(networks[0].nodes) if networks[1].producer(value) is not None]
    if not common:
        raise ComparisonError("got networks without a value of the same name; expected some: compare two forms of one")
    parting = _forward(networks, candidates, feeds)
    compared = f"{len(common)} values of two networks"
    return Verdict(parting, 0, compared, _strangers(networks))


def _strangers(networks: Sequence[Network]) -> list[str]:
    """Which nodes only one of them has: matched are values of one name."""
    names = [{value for _, value in values_of(network.nodes)} for network in networks]
    alone = [len(names[0] - names[1]), len(names[1] - names[0])]
    return [f"not compared: {alone[0]} and {alone[1]} values that only one of them has"] if any(alone) else []


def _forward(
    networks: Sequence[Network], candidates: Sequence[Candidate], feeds: Mapping[str, Any], step: int | None = None
) -> Parting | None:
    """The first value in evaluation mode that is not the same, in the order of the first network."""
    executors = [candidate.build(network) for candidate, network in zip(candidates, networks, strict=True)]
    for chunk in chunks(networks[0]):
        wanted = [value for _, value in values_of(chunk) if networks[1].producer(value) is not None]
        seen = [
            as_arrays(executor, executor.inference(_needed(network, feeds), wanted))
            for executor, network in zip(executors, networks, strict=True)
        ]
        for node, value in values_of(chunk):
            if value in wanted:
                where = f"forward, value {value!r} of node {node.name!r} ({node.op_type})"
                parting = apart(seen[0][value], seen[1][value], where, step)
                if parting is not None:
                    return parting
    return None


def _needed(network: Network, feeds: Mapping[str, Any]) -> Batch:
    return {name: value for name, value in feeds.items() if name in network.inputs}


# -- runs -----------------------------------------------------------------------------------------------------------
@dataclass
class Replay:
    """A run that can be trained again: its plan, where it came from, and its data.

    Attributes:
        name: how it is called.
        plan, source: of its recipe.
        data: its data sets.
        seed: of the run that is compared.
        record: its folder.
    """

    name: str
    plan: Plan
    source: Source
    data: tuple[Any, ...]
    seed: int
    record: Record

    @classmethod
    def of(cls, folder: Path, framework: str | None = None, seed: int | None = None) -> Replay:
        """Load what a results folder was made by.

        Args:
            folder: of the run.
            framework: another backend than the run's.
            seed: one of its seeds; its first if None.

        Raises:
            ComparisonError: a run of several ranks, or one whose recipe file is gone or another.
        """
        record = Record.open(folder)
        manifest = record.manifest()
        source = Source.of(manifest["recipe_file"])
        if source.path is None or source.sha256() != manifest["recipe_sha256"]:
            raise ComparisonError(
                f"{folder}: got a run whose recipe file {manifest['recipe_file']} is gone or another; expected it as "
                "it ran: put it back"
            )
        if manifest.get("ranks", 1) > 1:
            raise ComparisonError(f"{folder}: got a run of {manifest['ranks']} ranks; expected one of a single process")
        recipe, options = load_recipe(source.path), parse_options(manifest["argv"])
        options.framework, options.open = framework or options.framework, options.open or framework is not None
        plan = make_plan(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, options, source.folder)
        load_custom_ops(plan.values["custom_ops"], source.folder)
        data = load_data(plan.values, options.strict, options.download, options.data)
        seeds = manifest["seeds"]
        if seed is not None and seed not in seeds:
            raise InputError(f"got --seed {seed}; expected one of the run's: {', '.join(map(str, seeds))}")
        return cls(str(folder), plan, source, data, seeds[0] if seed is None else seed, record)

    def train(self, listener: Event) -> TrainingStatistics:
        """Train with the recipe's schedule and one listener, in the order and with the draws of the run."""
        parts = make_parts(self.plan.values, self.data, self.seed, self.record.manifest()["dry_run"])
        trainer = Trainer(
            parts.train_sampler, None, parts.executor, parts.optimizer, seed=self.seed, task=parts.task
        )  # validations draw nothing
        schedule = self.plan.values["schedule"]
        return trainer.run(self.plan.values["epochs"], [*([copy.deepcopy(schedule)] if schedule else []), listener])

    def candidate(self) -> Candidate:
        """How its executors and optimizers are made."""
        values = self.plan.values
        return Candidate(
            self.name, lambda network: make_executor(values, network), lambda executor: make_optimizer(values, executor)
        )


class _Digests(Event):
    """Digests of what each step takes and leaves, up to so many steps."""

    def __init__(self, most: int | None) -> None:
        self.most, self.steps = most, list[dict[str, str]]()

    def after_batch(self, run: Any) -> None:
        loss = {LOSS: run.executor.network.to_numpy(run.outputs[LOSS])} if LOSS in run.outputs else {}
        self.steps.append(
            {
                "inputs": digest({name: as_array(run.executor, value) for name, value in run.inputs.items()}),
                "gradients": digest({**gradients_of(run.executor, LOSS), **loss}),
                "parameters": digest(run.executor.network.state()),
            }
        )
        if self.most is not None and len(self.steps) >= self.most:
            raise StopTraining(f"{self.most} steps were asked for")


class _Capture(Event):
    """All of one step: parameters before and after it, its inputs and gradients."""

    def __init__(self, step: int) -> None:
        self.step, self.now = step, 0
        self.before: dict[str, np.ndarray] = {}

    def before_batch(self, run: Any) -> None:
        if self.now + 1 == self.step:
            self.before = copies(run.executor.network.state())
            self.network = run.executor.network.copy()

    def after_batch(self, run: Any) -> None:
        self.now += 1
        if self.now == self.step:
            self.inputs = {name: as_array(run.executor, value) for name, value in run.inputs.items()}
            self.gradients = gradients_of(run.executor, LOSS)
            self.after = copies(run.executor.network.state())
            raise StopTraining("the step was reached")


def as_array(executor: Any, value: Any) -> np.ndarray:
    """An input of a step as an array of its own."""
    return np.array(value if isinstance(value, np.ndarray) else executor.network.to_numpy(value))


def copies(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays, with memory of their own."""
    return {name: np.array(array) for name, array in arrays.items()}


def compare_replays(first: Replay, second: Replay, steps: int | None = None) -> Verdict:
    """Train both again and tell where they part.

    Args:
        first, second: the sides.
        steps: to compare at most; None: all of them.
    """
    traces, notes = [], list[str]()
    for side in numbered("training run", (first, second)):
        listener = _Digests(steps)
        notes += _not_as_recorded(side, side.train(listener))
        traces.append(listener.steps)
    together = list(zip(*traces, strict=False))
    step = next((number for number, (a, b) in enumerate(together, 1) if a != b), None)
    if step is None:
        notes += (
            []
            if len(traces[0]) == len(traces[1])
            else [f"one side has {len(traces[0])} steps, the other {len(traces[1])}"]
        )
        return Verdict(None, len(together), f"{len(together)} steps: inputs, gradients, parameters", notes)
    captures = []
    for side in numbered(f"looking into step {step}, run", (first, second)):
        capture = _Capture(step)
        side.train(capture)
        captures.append(capture)
    candidates = [first.candidate(), second.candidate()]
    return Verdict(_within(captures, candidates, step), step, f"{step - 1} steps before", notes)


def _not_as_recorded(side: Replay, statistics: TrainingStatistics) -> Iterator[str]:
    """What of a run was left out, and where its replay does not do what the run did and tells of something else."""
    values = side.plan.values
    odd = [name for name in ("checkpointing", "ema", "events") if values[name]]
    if odd:
        yield f"{side.name}: trained again without {', '.join(odd)} of its recipe"
    if backend_of(values["executor"]) not in (None, side.record.manifest()["backend"]):
        return  # another backend was asked for
    for was, now in zip(side.record.epochs(side.seed), statistics.epochs, strict=False):
        if was["train_samples"] == now.train_samples and was["train_loss"] != now.train_loss:
            yield (
                f"{side.name}: the replay is not the run, whose epoch {was['epoch']} had the loss "
                f"{was['train_loss']!r} and now has {now.train_loss!r}: other versions, threads or machine"
            )
            return


def _within(captures: Sequence[_Capture], candidates: Sequence[Candidate], step: int) -> Parting:
    """The first thing within a step that is not the same."""
    first, second = captures
    for what, pair in (
        ("input", (first.inputs, second.inputs)),
        ("parameter before it", (first.before, second.before)),
    ):
        for name in pair[0]:
            if name in pair[1] and (parting := apart(pair[0][name], pair[1][name], f"{what} {name!r}", step)):
                return parting
    parting = _training(captures, candidates, step)
    if parting is not None:
        return parting
    order = sorted(first.gradients, key=lambda name: -reader(first.network, name)[0])
    for name in order:
        if name in second.gradients:
            where = f"backward, {gradient_name(name)!r}: the first gradient of {reader(first.network, name)[1]}"
            if parting := apart(first.gradients[name], second.gradients[name], where, step):
                return parting
    for name in first.after:
        if name in second.after and (
            parting := apart(first.after[name], second.after[name], f"update of parameter {name!r}", step)
        ):
            return parting
    return Parting(step, f"in the step as a whole ({FUSED})", (), None, None, None, 0, 0)


def _training(captures: Sequence[_Capture], candidates: Sequence[Candidate], step: int) -> Parting | None:
    """The first value of the forward pass in training mode that is not the same."""
    for chunk in chunks(captures[0].network):
        seen = []
        for capture, candidate in zip(captures, candidates, strict=True):
            shown = capture.network.copy()
            for name, array in capture.before.items():
                shown.set_parameter(name, array)
            shown.outputs[:] = [LOSS]
            for _, value in values_of(chunk):
                if shown.producer(value) is not None and value not in shown.outputs:
                    shown.add_output(value)
            executor = candidate.build(shown)
            executor.reseed(0)
            seen.append(as_arrays(executor, executor.inference_and_backprop(_needed(shown, capture.inputs), LOSS)))
        for node, value in values_of(chunk):
            if value in seen[0] and value in seen[1]:
                where = f"forward, value {value!r} of node {node.name!r} ({node.op_type})"
                if parting := apart(seen[0][value], seen[1][value], where, step):
                    return parting
    return None
