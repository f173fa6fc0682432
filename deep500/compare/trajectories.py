"""``deep500 compare RECIPE --against WORDS``: how far two trainings part, step by step, and where beyond rounding.

Four trainings begin with the same weights and get the same batches: the base; the base again, whose distance is what a
machine adds by itself; the base with every parameter moved by one unit in the last place, up or down by chance, before
each step, whose distance is what rounding grows to; and the other side. Two sides part where their distance is above
:data:`BEYOND` times the larger of the two floors, at its largest so far. Distances are of trained parameters: Euclidean
and largest of all elements, of each parameter and of all together, as the original's divergence of optimizers
is (Ben-Nun et al. 2019, arXiv 1901.10183).
"""

from __future__ import annotations

import copy
import datetime
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import ComparisonError, TrainingError
from deep500.events import Event, StopTraining
from deep500.progress import numbered
from deep500.recipe.build import load_custom_ops, load_data, make_parts
from deep500.recipe.loader import load_recipe
from deep500.recipe.options import Options
from deep500.recipe.plan import RecipeFile
from deep500.recipe.recomputation import refuse_memory
from deep500.recipe.steps import make_plan
from deep500.report.figures import Figure
from deep500.report.plot import Axis, Plot
from deep500.results.files import to_json, write_atomic, writing
from deep500.tensors import digest
from deep500.training.trainer import Trainer

SCHEMA = "deep500-trajectory-1"
STEPS = 100
"""Steps if not told otherwise."""
BEYOND = 10.0
"""Times the floor: frameworks sum in another order, which is a few units in the last place in each step, not one."""
SATURATED = 0.1
"""Share of the way from the start at which rounding alone hides what else differs."""
AGAIN, ROUNDING, OTHER = "the base again", "rounding alone", "the other"
ALL = "all parameters"
MEASURES = {"l2": "Euclidean distance", "largest": "largest element"}
SHORT = {"other": OTHER, "rounding": ROUNDING, "base again": AGAIN}


@dataclass
class Distances:
    """How far a training is from the base after each step, from step 0 on.

    Attributes:
        l2, largest: by parameter, and of :data:`ALL`.
        losses: of each step; None at step 0.
        same_batches: steps for which both saw the same.
        ended: why it has fewer steps than were asked for.
    """

    l2: dict[str, list[float]] = field(default_factory=dict)
    largest: dict[str, list[float]] = field(default_factory=dict)
    losses: list[float | None] = field(default_factory=list)
    same_batches: int = 0
    ended: str = ""

    def add(self, now: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]) -> None:
        """Note one step."""
        apart = {name: now[name].astype(np.float64).ravel() - base[name].ravel() for name in base}
        squares = {name: float(d @ d) for name, d in apart.items()}
        most = {name: float(np.abs(d).max(initial=0)) for name, d in apart.items()}
        for name, square in {**squares, ALL: sum(squares.values())}.items():
            self.l2.setdefault(name, []).append(square**0.5)
            self.largest.setdefault(name, []).append(most[name] if name in most else float(np.max([*most.values()])))


@dataclass
class TrajectoryComparison:
    """The outcome of a comparison, as an object, as text and as JSON.

    Attributes:
        sides: the words of base and other.
        steps: that both have.
        moved: how far the base is from its start, after each step.
        losses: of the base.
        distances: by :data:`AGAIN`, :data:`ROUNDING`, :data:`OTHER`.
        parts: the step after which they part beyond rounding; None: in none.
        differs: the first step after which any bit differs.
        hidden: the first step from which on rounding alone hides the rest.
        notes: what else must be said.
    """

    sides: tuple[str, str]
    steps: int
    moved: list[float]
    losses: list[float | None]
    distances: dict[str, Distances]
    parts: int | None = None
    differs: int | None = None
    hidden: int | None = None
    notes: list[str] = field(default_factory=list)

    def floor(self, measure: str, name: str = ALL) -> np.ndarray:
        """The larger of the two floors after each step, at its largest so far."""
        floors = [getattr(self.distances[side], measure)[name][: self.steps + 1] for side in (AGAIN, ROUNDING)]
        return np.maximum.accumulate(np.max(floors, axis=0))

    def judge(self) -> None:
        """Find the steps at which they part, differ, and are hidden."""
        other = self.distances[OTHER]
        self.parts = _first(self._beyond(ALL))
        self.differs = _first(np.asarray(other.largest[ALL][: self.steps + 1]) != 0)
        moved = np.asarray(self.moved[: self.steps + 1])
        self.hidden = _first((self.floor("l2") > SATURATED * moved) & (moved > 0))
        for side, distances in self.distances.items():
            if distances.ended:
                self.notes.append(f"{side}: {distances.ended}")
        if other.same_batches < self.steps:
            self.notes.append(f"from step {other.same_batches + 1} on they see other batches")

    def _beyond(self, name: str) -> np.ndarray:
        other, end = self.distances[OTHER], self.steps + 1
        l2, largest = np.asarray(other.l2[name][:end]), np.asarray(other.largest[name][:end])
        # written so that NaN, which no floor holds, is beyond
        return ~((l2 <= BEYOND * self.floor("l2", name)) & (largest <= BEYOND * self.floor("largest", name)))

    def decisive(self, name: str, at: int) -> tuple[float, str, float, float]:
        """Return the distance that decides after a step whether they part: the one that is more times its floor.

        Returns:
            how many times, which distance, how far, and what rounding alone makes of it.
        """
        both = []
        for measure, words in MEASURES.items():
            far, floor = getattr(self.distances[OTHER], measure)[name][at], float(self.floor(measure, name)[at])
            both.append((far / (floor or 1) if floor or not far else np.inf, words, far, floor))
        return max(both, key=lambda row: np.nan_to_num(row[0], nan=np.inf))

    def rows(self) -> list[dict[str, Any]]:
        """Each parameter: its distances and floor at the end, and where it parts; those that part first come first."""
        other, end = self.distances[OTHER], self.steps
        rows: list[dict[str, Any]] = []
        for name in other.l2:
            parts = _first(self._beyond(name))
            _, by, distance, floor = self.decisive(name, end if parts is None else parts)
            rows.append(
                {
                    "name": name,
                    "parts": parts,
                    "decided_by": {"distance": by, "value": distance, "floor": floor},
                    "l2": other.l2[name][end],
                    "largest": other.largest[name][end],
                    "floor": float(self.floor("l2", name)[end]),
                }
            )
        times = {row["name"]: row["l2"] / (row["floor"] or 1e-300) for row in rows}
        return sorted(
            rows, key=lambda row: (row["name"] != ALL, row["parts"] is None, row["parts"], -times[row["name"]])
        )

    def __str__(self) -> str:
        apart, at = self.distances[OTHER].l2[ALL], self.steps if self.parts is None else self.parts
        moved, (_, words, distance, floor) = self.moved[at], self.decisive(ALL, at)
        share = f", {100 * apart[at] / moved:.2g} % of the way from the start" if moved else ""
        times = f"{distance / floor:.3g} times" if floor else "where there is none from"
        far = f"{apart[at]:.3g} apart{share}: {words} {distance:.3g}, {times} rounding alone ({floor:.3g})"
        if self.parts is None:
            text = f"they do not part beyond rounding in {self.steps} steps; then they are {far}"
        else:
            first = next((row["name"] for row in self.rows() if row["name"] != ALL and row["parts"] is not None), None)
            where = "" if first is None else f"; first of all parameters {first!r}"
            text = f"they part at step {self.parts}, beyond rounding: {far}{where}"
        bits = "no bit differs" if self.differs is None else f"the first bits differ at step {self.differs}"
        hidden = (
            []
            if self.hidden is None
            else [f"from step {self.hidden} on rounding alone is above {SATURATED:.0%} of the way: it hides the rest"]
        )
        return "\n".join([f"{self.sides[0]} against {self.sides[1]}", text, bits, *hidden, *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {"schema": SCHEMA, **asdict(self), "verdict": str(self).split("\n")[1]}

    def figures(self) -> list[Figure]:
        """Distance and loss over steps."""
        end, steps = self.steps + 1, Axis(0, self.steps, "step", whole=True)
        lines: dict[str, np.ndarray] = {n: np.array(self.distances[side].l2[ALL][:end]) for n, side in SHORT.items()}
        lines["from start"] = np.array(self.moved[:end])
        lines = {name: np.where((line > 0) & np.isfinite(line), line, np.nan) for name, line in lines.items()}
        seen = {name: line for name, line in lines.items() if np.isfinite(line).any()}
        still = f"; 0 in every step: {', '.join(name for name in lines if name not in seen)}" if len(seen) < 4 else ""
        about = f"Euclidean distance of all trained parameters from the base's; that of the base from its start{still}"
        values: dict[str, dict[str, Any]] = {
            "loss": {"other": self.distances[OTHER].losses[:end], "base": self.losses[:end]},
            "distance": seen or {"other": np.ones(1)},
        }
        figures = []
        for name, question, caption in (
            ("distance", "From where on do they part?", about),
            ("loss", "Does the loss show it?", "loss of each step's batch"),
        ):
            arrays = [np.array(line, np.float64) for line in values[name].values()]
            whole = [line[np.isfinite(line)] for line in arrays]
            plot = Plot(
                steps,
                Axis.around(np.concatenate(whole), name, log=name == "distance"),
                f"{name} over steps: {question[0].lower()}{question[1:-1]}, base and other",
            )
            for colour, line in enumerate(arrays):
                plot.line(np.flatnonzero(np.isfinite(line)), line[np.isfinite(line)], colour)
            plot.legend([*values[name]])
            figures.append(Figure.from_plot(question, plot, caption, self.steps))
        return figures

    def write(self, folder: Path) -> Path:
        """Write figures and tables as JSON and as a page; returns the path of the page."""
        now = datetime.datetime.now(datetime.timezone.utc)
        place = folder / f"{now:%Y%m%d-%H%M%S-%f}.html"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomic(place.with_suffix(".json"), to_json(self.as_dict()))
        write_atomic(place, self._page())
        return place

    def _page(self) -> str:
        from deep500.report.rendering import render_template

        after = f"after step {self.steps}"
        head = ["parameter", "part at step", "decided by", f"Euclidean distance {after}", "what rounding makes of it"]
        rows = []
        for row in self.rows():
            by = row["decided_by"]
            words = f"{by['distance']}: {by['value']:.3g}, by rounding {by['floor']:.3g}"
            parts = "not" if row["parts"] is None else row["parts"]
            rows.append((row["name"], parts, words, row["l2"], row["floor"], row["largest"]))
        return render_template(
            "findings.html.j2",
            question="where two trainings part",
            lines=str(self).split("\n"),
            figures=self.figures(),
            tables=[("Parameters", [*head, "largest difference"], rows)],
        )


def _first(places: np.ndarray) -> int | None:
    steps = np.flatnonzero(places)
    return int(steps[0]) if steps.size else None


class _StepWatcher(Event):
    """Hands on trained parameters, loss and a digest of the inputs after each step; nudges them before it if asked."""

    def __init__(self, most: int, see: Callable[..., None], rng: np.random.Generator | None) -> None:
        self.most, self.see, self.rng = most, see, rng

    def before_run(self, run: Any) -> None:
        """Hand on what the training begins with."""
        self.see(0, _trained(run.executor), None, "")

    def before_batch(self, run: Any) -> None:
        """Move every element by a unit in the last place."""
        if self.rng is None:
            return
        for name, array in _trained(run.executor).items():
            ends = np.where(self.rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
            run.executor.network.feed_tensor(name, np.where(array == 0, array, np.nextafter(array, ends)))

    def after_batch(self, run: Any) -> None:
        """Hand on what the step left."""
        loss = float(run.executor.network.to_numpy(run.outputs[run.trainer.loss]))
        to_numpy = run.executor.network.to_numpy
        inputs = {n: v if isinstance(v, np.ndarray) else to_numpy(v) for n, v in run.inputs.items()}
        self.see(run.step, _trained(run.executor), loss, digest(inputs))
        if run.step >= self.most:
            raise StopTraining(f"{self.most} steps were asked for")


def _trained(executor: Any) -> dict[str, np.ndarray]:
    names = set(executor.network.get_params())
    return {name: array for name, array in executor.network.state().items() if name in names}


def train(
    recipe: Path, options: Options, steps: int, see: Callable[..., None], rng: np.random.Generator | None = None
) -> str:
    """Train a recipe with its schedule and its draws, and hand on every step.

    Args:
        recipe, options: as ``deep500 run`` takes them.
        steps: at most.
        see: takes step, parameters by name, loss, digest of the inputs.
        rng: moves parameters by a unit in the last place before each step, if there is one.

    Returns:
        why it ended early, empty if it did not.
    """
    loaded, source = load_recipe(recipe, options.framework), RecipeFile.at(recipe)
    plan = make_plan(loaded.FIXED, loaded.MUTABLE, loaded.METRICS, options, source.folder)
    load_custom_ops(plan.values["custom_ops"], source.folder)
    refuse_memory(plan.values, "a comparison of two trainings")
    data = load_data(plan.values, options.strict, options.download, options.data)
    parts, schedule = make_parts(plan.values, data, plan.seeds[0], False), plan.values["schedule"]
    trainer = Trainer(parts.train_sampler, None, parts.executor, parts.optimizer, seed=plan.seeds[0], task=parts.task)
    listeners = [*([copy.deepcopy(schedule)] if schedule else []), _StepWatcher(steps, see, rng)]
    epochs = -(-steps // max(1, len(parts.train_sampler)))
    try:
        trainer.run(epochs, listeners)
    except TrainingError as error:
        return str(error)
    return ""


class _BaseSteps:
    """The base's parameters after each step, in a file."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps, self.shapes = folder, steps, dict[str, tuple[int, ...]]()
        self.digests, self.losses, self.moved = list[str](), list[float | None](), list[float]()

    def see(self, step: int, arrays: Mapping[str, np.ndarray], loss: float | None, inputs: str) -> None:
        """Note a step of the base."""
        if not step:
            self._begin(arrays)
        row = np.concatenate([arrays[name].ravel() for name in self.shapes]) if self.shapes else np.zeros(0)
        self.rows[step] = row
        self.moved.append(float(np.linalg.norm(row.astype(np.float64) - self.rows[0])))
        self.losses.append(loss)
        self.digests.append(inputs)

    def _begin(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.shapes = {name: array.shape for name, array in arrays.items()}
        dtype = np.result_type(*arrays.values()) if arrays else np.dtype("float32")
        size = sum(array.size for array in arrays.values())
        needed, free = size * dtype.itemsize * (self.steps + 1), shutil.disk_usage(self.folder).free
        if needed > 0.9 * free:
            raise ComparisonError(
                f"got {self.steps} steps of {size} parameters, {needed / 2**30:.3g} GiB in {self.folder}, where "
                f"{free / 2**30:.3g} GiB are free; expected less: give a smaller --steps, or another TMPDIR"
            )
        self.rows = np.memmap(self.folder / "base", dtype, "w+", shape=(self.steps + 1, max(1, size)))

    def at(self, step: int) -> dict[str, np.ndarray]:
        """The parameters after a step."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        return dict(zip(self.shapes, np.split(np.asarray(self.rows[step]), ends[:-1]), strict=True))

    def distances(self, run: Callable[[Callable[..., None]], str], side: str) -> Distances:
        """How far another training is from this one."""
        seen = Distances()

        def see(step: int, arrays: Mapping[str, np.ndarray], loss: float | None, inputs: str) -> None:
            if {name: array.shape for name, array in arrays.items()} != self.shapes:
                raise ComparisonError(
                    f"got {side} with {len(arrays)} trained parameters unlike the base's {len(self.shapes)} in name or "
                    "shape; expected the same network: compare optimizers or frameworks of one model"
                )
            if step >= len(self.losses):
                raise StopTraining("the base has no more steps")
            seen.add(arrays, self.at(step))
            seen.losses.append(loss)
            if seen.same_batches == step - 1 and inputs == self.digests[step]:
                seen.same_batches = step

        seen.ended = run(see)
        return seen


def compare_trajectories(base: tuple[Path, Options], other: tuple[Path, Options], steps: int) -> TrajectoryComparison:
    """Train base (three times) and other, and say from where on they part.

    Args:
        base, other: recipe file and options of each side.
        steps: at most.

    Raises:
        ComparisonError: other parameters on both sides, or no room for the base's.
    """
    seed = np.random.SeedSequence(0 if base[1].seed is None else base[1].seed)
    with tempfile.TemporaryDirectory() as place:
        recorded, distances = _BaseSteps(Path(place), steps), dict[str, Distances]()
        ended = ""
        for name in numbered("training", ["the base", AGAIN, ROUNDING, OTHER]):
            if name == "the base":
                ended = train(*base, steps, recorded.see)
                continue
            rng = np.random.default_rng(seed) if name == ROUNDING else None
            recipe, options = other if name == OTHER else base
            side = partial(train, recipe, options, steps, rng=rng)
            distances[name] = recorded.distances(side, name)
    count = min(len(apart.losses) for apart in distances.values()) - 1
    words = tuple(" ".join([recipe.stem, *options.defining()]) for recipe, options in (base, other))
    result = TrajectoryComparison((words[0], words[1]), count, recorded.moved, recorded.losses, distances)
    result.notes += [f"the base: {ended}"] if ended else []
    result.judge()
    return result
