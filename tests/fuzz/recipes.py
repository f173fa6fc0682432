"""Drawn recipes, whose keys meet in every combination: ``python -m tests.fuzz.recipes --count 500 --seed 1``.

Each key alone has tests; here up to six of them meet. A recipe is drawn, trained, and changed in ways after which it
must end with the same weights: the same bits (again, resumed, on another thread, with more checkpoints, in
less memory), or up to rounding (in pieces, on two ranks, in another framework). Refused in one line is right, another
exception is not. A broken relation is a finding, reduced to the fewest keys. ``--replay NUMBER`` runs one;
``--processes`` judges what needs ranks that are processes: resuming on two of them, and engines of the frameworks' own.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import deep500 as d5
from tests.fuzz.recipe_runs import (
    COUNTS,
    MIXES,
    MODELS,
    TOKENS,
    VALIDATION,
    Drawn,
    Outcome,
    halved,
    judged_outside,
    observe,
    unchanged,
)

BACKENDS = ("reference", "pytorch", "jax", "tensorflow", "onnxruntime")
ROUNDING = {"float64": 1e-9, "float32": 2e-3}
"""Relative to the largest of an array, and of its updates, which a few steps of training amplify."""


# fmt: off
OPTIMIZERS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("GradientDescent", {"lr": 0.05}),
    ("GradientDescent", {"lr": 0.05, "weight_decay": 0.01}),
    ("MomentumOptimizer", {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    ("AdamOptimizer", {"lr": 0.003}),
    ("AdamWOptimizer", {"lr": 0.003, "weight_decay": 0.1}),
    ("AMSGradOptimizer", {"lr": 0.003}),
    ("RMSPropOptimizer", {"lr": 0.001}),
    ("AdaGradOptimizer", {"lr": 0.01}),
    ("NAdamWOptimizer", {"lr": 0.003}),
    ("LAMBOptimizer", {"lr": 0.01}),
    ("LARSOptimizer", {"lr": 0.1}),
    ("AdafactorOptimizer", {"lr": 0.01}),
    ("AdEMAMixOptimizer", {"lr": 0.003}),
    ("MuonOptimizer", {"lr": 0.01}),
    ("SOAPOptimizer", {"lr": 0.003}),
    ("ScheduleFreeSGDOptimizer", {"lr": 0.05}),
    ("ScheduleFreeAdamWOptimizer", {"lr": 0.003}),
    ("AcceleGradOptimizer", {"lr": 0.05}),
)
KEYS: Mapping[str, Sequence[Any]] = {
    "accumulate": (2, 4),
    "ema": (0.5, 0.9),
    "checkpointing": (0.99, 0.85),
    "memory": (0.95, 0.8),
    "loss_pieces": (2,),
    "freeze": ("*bias", "*1*"),
    "groups": ([{"parameters": "*bias", "lr": 0.001}],),
    "no_decay": ("norms_and_biases",),
    "gradient_transform": (d5.ClipGradientNorm(0.5),),
    "gradient_modifier": (halved,),
    "schedule": (d5.schedules.CosineSchedule(total=2), d5.schedules.StepSchedule(1, 0.5),
                 d5.schedules.WarmUp(3, d5.schedules.CosineSchedule(total=2))),
    "augmentation": ([d5.Crop(8, padding=1)], [d5.Flip()], [d5.Cutout(3), d5.Flip()]),
    "validation_split": (0.2,),
    "train_sampler": (d5.OrderedSampler, d5.ShuffleSampler, d5.ChoiceSampler),
    "precision": ("bf16",),
    "keep_checkpoints": (1,),
    "train_sampler_kwargs": ({"drop_last_batch": False},),
    "data_threads": (2,),
    "network_transformations": (["substitutions"],),
    "seed": (3,),
}
UNSTEADY = ("SOAPOptimizer",)
"""Eigenvectors of equal eigenvalues are any that rounding chooses, and later gradients fall on them."""
SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "ConsistentDecentralized": {},
    "ConsistentParameterServer": {},
    "ReproducibleDecentralized": {},
    "ShardedOptimizer": {},
    "ShardedParameters": {},
    "Pipeline": {"micro_batches": 2},
    "DividedNetwork": {},
}
"""Those that compute what one process computes."""
OTHER_SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "LocalSGD": {"every": 2},
    "DiLoCo": {"every": 2},
    "ModelAverage": {},
    "ConsistentNeighbors": {},
    "TopK": {"ratio": 0.3},
    "SignSGD": {},
    "QSGD": {},
    "PowerSGD": {},
    "SparseAllreduce": {},
}
"""Those that compute something else, the same every time."""
# fmt: on


def draw(number: int, seed: int, backends: Sequence[str]) -> Drawn:
    """The recipe of a number."""
    rng = random.Random(f"{seed} {number}")
    dtype = rng.choice(("float64", "float64", "float32"))
    model = rng.choice(list(MODELS))
    names = rng.sample(list(KEYS), rng.choice((0, 1, 2, 2, 3, 3, 4, 6)))
    keys = {name: rng.choice(KEYS[name]) for name in names}
    if model in TOKENS or model == "lstm":
        keys.pop("augmentation", None)
    if model not in TOKENS:
        keys.pop("loss_pieces", None)
    if "precision" in keys:  # of the operators; weights stay as they are
        dtype = "float32"
    ranks = rng.choice((1, 1, 1, 2))
    if ranks > 1:
        name = rng.choice([*SCHEMES, *OTHER_SCHEMES])
        keys |= {"scheme": getattr(d5.schemes, name), "scheme_kwargs": {**SCHEMES, **OTHER_SCHEMES}[name]}
    optimizer = rng.choice(OPTIMIZERS)
    backend = rng.choice(backends)
    counts = random.Random(f"{seed} {number} counts").choice(["all", *COUNTS])
    return Drawn(backend, model, dtype, optimizer, keys, ranks, counts=counts)


@dataclass(frozen=True)
class Relation:
    """A change after which a recipe ends with the same weights.

    Attributes:
        change: of the recipe.
        exact: whether the same bits are promised, by the recipe.
        holds: for which recipes.
        processes: whether it starts some, which takes seconds.
    """

    change: Callable[[Drawn], Drawn]
    exact: Callable[[Drawn], bool] = lambda _: True
    holds: Callable[[Drawn], bool] = lambda _: True
    processes: bool = False


def _inexact(_: Drawn) -> bool:
    return False


def _absent(*names: str) -> Callable[[Drawn], bool]:
    return lambda drawn: not set(names) & drawn.keys.keys()


def _divisible(drawn: Drawn) -> bool:
    """Return whether samples do not see each other, draw nothing, and all who compute them compute the same."""
    scheme = getattr(drawn.keys.get("scheme"), "__name__", "")
    plain = drawn.model not in MIXES and drawn.model != "dropout" and scheme not in OTHER_SCHEMES
    return plain and not {"memory", "precision"} & drawn.keys.keys()


def _serial(drawn: Drawn) -> bool:
    return drawn.ranks == 1 and _divisible(drawn) and "accumulate" not in drawn.keys


def _is_plain(value: Any) -> bool:
    """Return whether a value can be written as a word."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _native(name: str) -> Relation:
    """Two processes with an engine of the framework's own are stopped and resumed."""
    return Relation(
        lambda drawn: replace(
            drawn.with_keys(scheme=getattr(d5.schemes, name), scheme_kwargs={}), ranks=2, stops=True, processes=True
        ),
        _inexact,
        lambda drawn: drawn.backend in ("pytorch", "jax") and _serial(drawn) and "seed" not in drawn.keys,
        processes=True,
    )


def _ranked(name: str) -> Relation:
    return Relation(
        lambda drawn: replace(drawn.with_keys(scheme=getattr(d5.schemes, name), scheme_kwargs=SCHEMES[name]), ranks=2),
        _inexact,
        _serial,
    )


RELATIONS: Mapping[str, Relation] = {
    "again": Relation(lambda drawn: drawn),
    "stopped and resumed": Relation(lambda drawn: replace(drawn, stops=True), holds=lambda drawn: drawn.ranks == 1),
    "two data threads": Relation(lambda drawn: drawn.with_keys(data_threads=2)),
    "three checkpoints": Relation(lambda drawn: drawn.with_keys(keep_checkpoints=3)),
    "said on the command line": Relation(
        lambda drawn: replace(
            drawn,
            keys={key: value for key, value in drawn.keys.items() if not _is_plain(value)},
            argv=tuple(f"{key}={value!r}" for key, value in drawn.keys.items() if _is_plain(value)),
        ),
        holds=lambda drawn: any(map(_is_plain, drawn.keys.values())),
    ),
    "a listener more": Relation(lambda drawn: drawn.with_keys(events=[d5.Event()])),
    "with an average": Relation(lambda drawn: drawn.with_keys(ema=0.9), holds=_absent("ema")),
    "its seed by --seed": Relation(
        lambda drawn: replace(drawn.with_keys(seed=11), argv=("--seed", str(drawn.keys.get("seed", 0))))
    ),
    "second of two seeds": Relation(
        lambda drawn: replace(drawn.with_keys(seed=drawn.keys.get("seed", 0) - 1), argv=("--repeat", "2")),
        holds=lambda drawn: drawn.keys.get("seed", 0) > 0,
    ),
    "a modifier that does nothing": Relation(
        lambda drawn: drawn.with_keys(gradient_modifier=unchanged), holds=_absent("gradient_modifier")
    ),
    "no group of its own": Relation(
        lambda drawn: drawn.with_keys(groups=[], freeze=()), holds=_absent("groups", "freeze")
    ),
    "computed again": Relation(
        lambda drawn: drawn.with_keys(checkpointing=0.99),
        lambda drawn: drawn.backend in ("reference", "pytorch"),
        _absent("checkpointing", "memory"),
    ),
    "in less memory": Relation(
        lambda drawn: drawn.with_keys(memory=0.9), _inexact, _absent("checkpointing", "memory", "accumulate")
    ),
    "in two pieces": Relation(
        lambda drawn: drawn.with_keys(accumulate=2),
        _inexact,
        lambda drawn: _divisible(drawn) and "accumulate" not in drawn.keys,
    ),
    "loss in two pieces": Relation(
        lambda drawn: drawn.with_keys(loss_pieces=2),
        _inexact,
        lambda drawn: drawn.model in TOKENS and "loss_pieces" not in drawn.keys,
    ),
    "substitutions": Relation(
        lambda drawn: drawn.with_keys(network_transformations=["substitutions"]),
        _inexact,
        _absent("network_transformations"),
    ),
    "on the reference": Relation(
        lambda drawn: replace(drawn, backend="reference"),
        _inexact,
        lambda drawn: drawn.backend != "reference" and drawn.model != "dropout" and "precision" not in drawn.keys,
    ),
    **{f"two ranks, {name}": _ranked(name) for name in SCHEMES},
    "two processes, stopped and resumed": Relation(
        lambda drawn: replace(drawn, stops=True, processes=True),
        holds=lambda drawn: drawn.ranks == 2 and "seed" not in drawn.keys,
        processes=True,
    ),
    "two processes, FSDP, stopped and resumed": _native("FSDP"),
    "two processes, DDP, stopped and resumed": _native("DDP"),
}
"""By name; each is written once, and judged on every recipe for which it holds."""


def difference(first: Outcome, second: Outcome, exact: bool, tolerance: float) -> str:
    """In what they differ; empty if in nothing."""
    for name, array in first.arrays.items():
        if name.startswith("ema/") and not any(other.startswith("ema/") for other in second.arrays):
            continue
        other = second.arrays.get(name)
        if other is None and name.startswith("optimizer/") and not exact:
            continue  # another rank's
        if other is None:
            return f"{name} is absent"
        if array.shape != other.shape or array.dtype != other.dtype:
            return f"{name}: {array.dtype}{array.shape} and {other.dtype}{other.shape}"
        if array.tobytes() == other.tobytes():
            continue
        far = np.max(np.abs(np.subtract(array, other, dtype=np.float64)), initial=0.0)
        scale = np.max(np.abs(array), initial=1e-3)
        if exact or not far <= tolerance * scale:
            return f"{name} is {far / scale:.2g} off"
    if exact and first.losses != second.losses:
        return f"losses {first.losses} and {second.losses}"
    if not np.allclose(first.losses, second.losses, rtol=tolerance, atol=0):
        return f"losses {first.losses} and {second.losses}"
    return ""


def outside(drawn: Drawn, outcome: Outcome) -> str:
    """How the judged metric differs from that of the checkpoint's weights; empty if it does not.

    Where ranks hold weights of their own, each judges its part of the samples by them: the checkpoint has rank 0's.
    """
    alike = drawn.ranks == 1 or drawn.keys["scheme"].__name__ in SCHEMES
    expected = judged_outside(drawn, outcome) if alike and outcome.arrays else None
    if expected is None or outcome.metric is None:
        return ""
    slack = ROUNDING[drawn.dtype] * max(abs(expected), 1) + (100 / VALIDATION if drawn.dtype == "float32" else 0)
    return (
        ""
        if abs(expected - outcome.metric) <= slack
        else f"the metric is {outcome.metric}; its weights have {expected}"
    )


@dataclass
class Finding:
    """A recipe that breaks a relation, and how; without a relation it fails by itself, or its metric is a wrong one."""

    drawn: Drawn
    relation: str
    what: str


class Judge:
    """Trains recipes and changed ones; what was refused is counted by its sentence."""

    def __init__(self, relations: Sequence[str] = (), at_most: int = 99, processes: bool = False) -> None:
        self.relations = relations or [name for name, each in RELATIONS.items() if each.processes is processes]
        self.at_most = at_most
        self.refused: Counter[str] = Counter()
        self.compared: Counter[str] = Counter()

    def judge(self, drawn: Drawn, rng: random.Random) -> Finding | None:
        """The first relation that is broken."""
        first = observe(drawn)
        if first.broken:
            return Finding(drawn, "", first.broken)
        if first.refused:
            self.refused[first.refused] += 1
            return None
        if what := outside(drawn, first) or self._frozen(drawn, first):
            return Finding(drawn, "", what)
        rough = "precision" in drawn.keys or drawn.optimizer[0] in UNSTEADY  # only what promises the same bits
        relations = {name: RELATIONS[name] for name in self.relations}
        names = [
            n for n, relation in relations.items() if relation.holds(drawn) and (relation.exact(drawn) or not rough)
        ]
        for name in rng.sample(names, min(self.at_most, len(names))):
            what = self.broken(drawn, first, name)
            if what:
                return Finding(drawn, name, what)
        return None

    def broken(self, drawn: Drawn, first: Outcome, name: str) -> str:
        """How a relation is broken; empty if it holds, or if the changed recipe is refused."""
        relation = RELATIONS[name]
        second = observe(relation.change(drawn))
        if second.broken:
            return second.broken
        if second.refused:
            self.refused[f"{name}: {second.refused}"] += 1
            return ""
        self.compared[name] += 1
        return difference(first, second, relation.exact(drawn), ROUNDING[drawn.dtype])

    def _frozen(self, drawn: Drawn, first: Outcome) -> str:
        """Which parameter is frozen and depends on the learning rate, or trained and does not; empty if none is."""
        patterns = drawn.keys.get("freeze")
        if not patterns or drawn.optimizer[0] == "AdafactorOptimizer":
            return ""
        name, options = drawn.optimizer
        second = observe(replace(drawn, optimizer=(name, {**options, "lr": options["lr"] / 2})))
        for key, array in first.arrays.items():
            if key.startswith("network/") and key.endswith(("weight", "bias")) and key in second.arrays:
                same = array.tobytes() == second.arrays[key].tobytes()
                if same != fnmatch.fnmatch(key.removeprefix("network/"), patterns):
                    return f"{key} is {'the same' if same else 'another one'} at half the rate"
        return ""

    def reduced(self, finding: Finding) -> Finding:
        """The same finding with as few keys as show it."""
        for name in list(finding.drawn.keys):
            if name in ("scheme", "scheme_kwargs"):
                continue
            less = replace(finding.drawn, keys={k: v for k, v in finding.drawn.keys.items() if k != name})
            first = observe(less)
            if first.refused:
                continue
            relation = finding.relation
            if relation and not RELATIONS[relation].holds(less):
                continue
            alone = first.broken or outside(less, first) or self._frozen(less, first)
            what = alone if not relation else self.broken(less, first, relation)
            if what:
                finding = Finding(less, relation, what)
        return finding


def main() -> int:
    """Judge; 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N")
    parser.add_argument("--replay", type=int, metavar="NUMBER")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--processes", action="store_true", help="judge what starts processes, not the rest")
    parser.add_argument("--relations", type=int, default=6, metavar="N", help="of each recipe, drawn")
    options = parser.parse_args()
    backends = options.backends.split(",")
    judge = Judge(at_most=99 if options.replay is not None else options.relations, processes=options.processes)
    numbers = range(options.first, options.first + options.count) if options.replay is None else [options.replay]
    findings = 0
    for number in numbers:
        drawn = draw(number, options.seed, backends)
        finding = judge.judge(drawn, random.Random(number))
        if finding:
            findings += 1
            least = judge.reduced(finding)
            print(f"{number}: {least.drawn}\n    {least.relation or 'it ends'}: {least.what[:600]}", flush=True)
    print(f"{len(numbers)} recipes, {findings} findings; relations compared: {dict(judge.compared)}; refused:")
    for text, count in judge.refused.most_common():
        print(f"  {count} x {text[:300]}")
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
