"""A run that is trained again to the bit, on as many ranks as it had, and what each rank then leaves to be compared.

Every rank runs this module's :func:`main` (one process: :func:`leave`), with its part of the batches, the scheme and
the communication of the run, and writes ``rank-<r>.json``: digests of every step. Of one step it writes all, as
``rank-<r>.npz`` with the names of nodes beside it: inputs, parameters before and after, gradients before and after the
exchange with other ranks, and every value of the forward pass, computed on the rank itself with the random numbers that
it drew in that step.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.first_difference import chunks, reader, values_of
from deep500.compare.traces import as_arrays, gradients_of
from deep500.distributed import Communicator, Serial, world
from deep500.distributed.launch import launch
from deep500.distributed.optimizer import innermost
from deep500.distributed.schemes.reproducible import interleave
from deep500.errors import ComparisonError, InputError
from deep500.events import Event, StopTraining
from deep500.networks.network import Network
from deep500.networks.node import RANDOM
from deep500.recipe.build import load_custom_ops, load_data, make_executor, make_parts
from deep500.recipe.loader import load_recipe
from deep500.recipe.options import parse_options
from deep500.recipe.plan import RecipeFile, RunPlan
from deep500.recipe.ranks import scheme_of
from deep500.recipe.recomputation import memory_plan_of_record
from deep500.recipe.steps import make_plan
from deep500.registry import backend_of
from deep500.results.record import Record
from deep500.tensors import digest
from deep500.training.exchange import Exchange, Relay
from deep500.training.statistics import TrainingStatistics
from deep500.training.trainer import Trainer, epoch_seed

LOSS = "loss"

INPUT, BEFORE, VALUE, OWN, EXCHANGED, AFTER = "input", "before", "value", "own", "exchanged", "after"
"""Parts of a step, as the names in its file begin."""


@dataclass
class Replay:
    """A run that can be trained again: its plan, where it came from, and its data.

    Attributes:
        name: how it is called.
        plan, source: of its recipe.
        data: its data sets.
        seed: of the run that is compared.
        record: its folder.
        framework: another backend than the run's.
    """

    name: str
    plan: RunPlan
    source: RecipeFile
    data: tuple[Any, ...]
    seed: int
    record: Record
    framework: str | None = None

    @classmethod
    def load(cls, folder: Path, framework: str | None = None, seed: int | None = None) -> Replay:
        """Load what a results folder was made by.

        Args:
            folder: of the run.
            framework: another backend than the run's.
            seed: one of its seeds; its first if None.

        Raises:
            ComparisonError: a run whose number of ranks changed, or whose recipe file is gone or another.
        """
        record = Record.open(folder)
        manifest = record.manifest()
        source = RecipeFile.at(manifest["recipe_file"])
        if source.path is None or source.sha256() != manifest["recipe_sha256"]:
            raise ComparisonError(
                f"{folder}: got a run whose recipe file {manifest['recipe_file']} is gone or another; expected it as "
                "it ran: put it back"
            )
        if any("ranks" in entry for entry in manifest["resumed"]):
            raise ComparisonError(
                f"{folder}: got a run that went on on another number of ranks; expected one number, on which it is "
                "trained again: compare a run that was not"
            )
        recipe, options = load_recipe(source.path), parse_options(manifest["argv"])
        options.framework, options.open = framework or options.framework, options.open or framework is not None
        plan = make_plan(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, options, source.folder)
        load_custom_ops(plan.values["custom_ops"], source.folder)
        data = load_data(plan.values, options.strict, options.download, options.data)
        seeds = manifest["seeds"]
        if seed is not None and seed not in seeds:
            raise InputError(f"got --seed {seed}; expected one of the run's: {', '.join(map(str, seeds))}")
        return cls(str(folder), plan, source, data, seeds[0] if seed is None else seed, record, framework)

    @property
    def ranks(self) -> int:
        """How many trained it."""
        return int(self.record.manifest().get("ranks", 1))

    @property
    def scheme(self) -> str:
        """How they exchanged what."""
        return f"{scheme_of(self.plan.values).__name__} on {self.ranks} ranks" if self.ranks > 1 else "one process"

    def train(self, listener: Event, comm: Communicator) -> TrainingStatistics:
        """Train with the recipe's schedule and one listener, in the order and with the draws of the run."""
        memory = memory_plan_of_record(self.plan.values["memory"], self.record.path)
        parts = make_parts(self.plan.values, self.data, self.seed, self.record.manifest()["dry_run"], comm, memory)
        trainer = Trainer(
            parts.train_sampler, None, parts.executor, parts.optimizer, seed=self.seed, task=parts.task
        )  # validations draw nothing
        schedule = self.plan.values["schedule"]
        listeners = [*([copy.deepcopy(schedule)] if schedule else []), _Validated(), listener]
        return trainer.run(self.plan.values["epochs"], listeners)

    def left_out(self) -> Iterator[str]:
        """Parts of the run that are not made again, in words."""
        odd = [name for name in ("checkpointing", "ema", "events") if self.plan.values[name]]
        if odd:
            yield f"{self.name}: trained again without {', '.join(odd)} of its recipe"

    def not_as_recorded(self, epochs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Where the replay does not do what the run did, so that it tells of something else.

        Args:
            epochs: of the replay, each with ``train_samples`` and ``train_loss``.
        """
        if backend_of(self.plan.values["executor"]) not in (None, self.record.manifest()["backend"]):
            return  # another backend was asked for
        for was, now in zip(self.record.epochs(self.seed), epochs, strict=False):
            if was["train_samples"] == now["train_samples"] and was["train_loss"] != now["train_loss"]:
                yield (
                    f"{self.name}: the replay is not the run, whose epoch {was['epoch']} had the loss "
                    f"{was['train_loss']!r} and now has {now['train_loss']!r}: other versions, threads or machine"
                )
                return


class _Validated(Event):
    """Stand in for validation in what it leaves behind: ranks' running statistics become their mean."""

    def after_epoch(self, run: Any) -> None:
        """The epoch is over."""
        with run.optimizer.evaluation():
            pass


class _Watch(Relay):
    """Keeps the gradients of each step as a rank computes them, and as the update gets them from all ranks."""

    def __init__(self, exchange: Exchange, to_numpy: Callable[[Any], np.ndarray]) -> None:
        super().__init__(exchange)
        self.to_numpy = to_numpy
        self.local: dict[str, np.ndarray] = {}
        self.exchanged: dict[str, np.ndarray] = {}

    def agreed_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        self.local = {name: np.array(self.to_numpy(g)) for name, g in zip(names, gradients, strict=True)}
        means = super().agreed_gradients(names, gradients)
        self.exchanged = {name: np.array(self.to_numpy(mean)) for name, mean in zip(names, means, strict=True)}
        return means


class _Step(Event):
    """Sees what passes between ranks in each step."""

    watch: _Watch | None = None

    def before_batch(self, run: Any) -> None:
        """A step begins."""
        base = innermost(run.optimizer)
        if self.watch is None and base is not run.optimizer and base.exchange.exchanges_gradients:
            base.exchange = self.watch = _Watch(base.exchange, run.executor.network.to_numpy)

    def gradients(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """This rank's of the step that was just made, and those of the update; alike where nothing is exchanged."""
        if self.watch is not None:
            return self.watch.local, self.watch.exchanged
        alike = gradients_of(run.executor, LOSS) if run.inputs and run.outputs else {}
        return alike, alike


class Digests(_Step):
    """Digests of what each step takes and leaves on this rank, up to so many steps."""

    def __init__(self, most: int | None) -> None:
        self.most, self.steps = most, list[dict[str, str]]()

    def after_batch(self, run: Any) -> None:
        """A step was made."""
        loss = {LOSS: run.executor.network.to_numpy(run.outputs[LOSS])} if LOSS in run.outputs else {}
        local, exchanged = self.gradients(run)
        self.steps.append(
            {
                INPUT: digest({name: as_array(run.executor, value) for name, value in run.inputs.items()}),
                OWN: digest({**local, **loss}),
                EXCHANGED: digest(exchanged),
                AFTER: digest(run.executor.network.state()),
            }
        )
        if self.most is not None and len(self.steps) >= self.most:
            raise StopTraining(f"{self.most} steps were asked for")


class Capture(_Step):
    """All of one step, by the parts and names of the module."""

    def __init__(self, step: int, seed: int, rank: int) -> None:
        self.step, self.seed, self.rank, self.now = step, seed, rank, 0
        self.arrays: dict[str, np.ndarray] = {}
        self.drawn = list[dict[str, np.ndarray]]()  # earlier batches of the epoch, as zeros: what was drawn for them

    def before_epoch(self, run: Any) -> None:
        """The executor draws anew from here on."""
        self.drawn.clear()
        self.epoch_seed = epoch_seed(self.seed, run.epoch, self.rank)

    def before_batch(self, run: Any) -> None:
        """A step begins."""
        super().before_batch(run)
        if self.now + 1 == self.step:
            self._keep(BEFORE, run.executor.network.state())
            self.network: Network = run.executor.network.copy()

    def after_batch(self, run: Any) -> None:
        """A step was made."""
        self.now += 1
        inputs = {name: as_array(run.executor, value) for name, value in run.inputs.items()}
        if self.now < self.step:
            self.drawn.append({name: np.zeros_like(array) for name, array in inputs.items()})
            return
        local, exchanged = self.gradients(run)
        self.inputs = inputs
        pieces = getattr(run.optimizer, "pieces", None)
        self.pieces = [inputs] if pieces is None else pieces(inputs)
        for part, arrays in (
            (INPUT, inputs),
            (OWN, local),
            (EXCHANGED, exchanged),
            (AFTER, run.executor.network.state()),
        ):
            self._keep(part, arrays)
        raise StopTraining("the step was reached")

    def _keep(self, part: str, arrays: Mapping[str, Any]) -> None:
        self.arrays.update({f"{part}/{name}": np.array(array) for name, array in arrays.items()})

    def forward(self, values: Mapping[str, Any]) -> None:
        """Add every value of the step's forward pass, in training mode, from the parameters before it.

        Args:
            values: of the recipe.
        """
        before = {name: self.arrays[f"{BEFORE}/{name}"] for name in self.network.parameters}
        for name, array in before.items():
            self.network.set_parameter(name, array)
        draws = any(node.op_type in RANDOM for node in self.network.nodes)
        for chunk in chunks(self.network) if len(next(iter(self.inputs.values()))) else ():
            shown = self.network.copy()
            shown.outputs[:] = [LOSS]
            for _, value in values_of(chunk):
                if shown.producer(value) is not None and value not in shown.outputs:
                    shown.add_output(value)
            executor = make_executor(values, shown)
            executor.reseed(self.epoch_seed)
            for zeros in self.drawn if draws else ():
                executor.inference_and_backprop(needed(shown, zeros), LOSS)
            parts = []
            for piece in self.pieces:
                for name, array in before.items():
                    executor.network.feed_tensor(name, array)
                parts.append(as_arrays(executor, executor.inference_and_backprop(needed(shown, piece), LOSS)))
            self._keep(VALUE, {name: interleaved([part[name] for part in parts]) for name in parts[0]})


def interleaved(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """A value of the batch from those of its blocks; the first where it has no samples."""
    whole = interleave(blocks, sum(len(block) for block in blocks if block.ndim))
    return blocks[0] if whole is None else whole


def needed(network: Network, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the feeds that the network takes."""
    return {name: value for name, value in feeds.items() if name in network.inputs}


def as_array(executor: Any, value: Any) -> np.ndarray:
    """An input of a step as an array of its own."""
    return np.array(value if isinstance(value, np.ndarray) else executor.network.to_numpy(value))


# -- what ranks do ----------------------------------------------------------------------------------------------------
def leave(replay: Replay, comm: Communicator, folder: Path, most: int | None, step: int | None) -> None:
    """Train again, and write this rank's file: digests of ``most`` steps (None: all), or all of one ``step``."""
    file = folder / f"rank-{comm.rank}"
    if step is None:
        digests = Digests(most)
        statistics = replay.train(digests, comm)
        epochs = [{"train_samples": e.train_samples, "train_loss": e.train_loss} for e in statistics.epochs]
        file.with_suffix(".json").write_text(json.dumps({"steps": digests.steps, "epochs": epochs}), encoding="utf-8")
        return
    capture = Capture(step, replay.seed, comm.rank)
    replay.train(capture, comm)
    capture.forward(replay.plan.values)
    arrays = {name: array for name, array in capture.arrays.items() if not array.dtype.hasobject}
    np.savez(file.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]
    nodes = [[node.name, node.op_type, list(node.writes)] for node in capture.network.nodes]
    readers = {name: reader(capture.network, name) for name in capture.network.parameters}
    file.with_suffix(".json").write_text(json.dumps({"nodes": nodes, "readers": readers}), encoding="utf-8")


def run_again(replay: Replay, folder: Path, most: int | None = None, step: int | None = None) -> None:
    """Let all ranks of a run :func:`leave` their files in a folder.

    Raises:
        ComparisonError: a rank failed; what it said stands above.
        MissingBackend: there is no MPI to start ranks with.
    """
    folder.mkdir(exist_ok=True)
    if replay.ranks == 1:
        leave(replay, Serial(), folder, most, step)
        return
    job = {
        "run": str(replay.record.path.absolute()),
        "framework": replay.framework,
        "seed": replay.seed,
        "folder": str(folder.absolute()),
        "most": most,
        "step": step,
    }
    code = launch(replay.ranks, ["-m", "deep500.compare.replays", json.dumps(job)])
    if code:
        raise ComparisonError(
            f"{replay.name}: got ranks that ended with code {code}; expected them to train the run again; see what "
            "they said above"
        )


def main(words: str) -> None:
    """This rank's part of :func:`run_again`."""
    job, comm = json.loads(words), world()
    replay = Replay.load(Path(job["run"]), job["framework"], job["seed"])
    leave(replay, comm, Path(job["folder"]), job["most"], job["step"])
    comm.barrier()
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
