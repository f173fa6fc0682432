"""The keys of a recipe, one table that everything else reads, and the first step to a run: both halves together.

A recipe is FIXED + MUTABLE + METRICS. Each key belongs to one half; a key of kind ``callable`` accepts companions
``<key>_args`` (a sequence) and ``<key>_kwargs`` (a dict), which are passed when the object is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deep500.errors import PlanError, RecipeError, nearest
from deep500.events import HOOKS
from deep500.recipe import training
from deep500.recipe.plan import RunPlan
from deep500.recipe.transformations import check_transformations
from deep500.tasks import TASKS, Task
from deep500.transformations.recomputation.budgets import check_budget
from deep500.transformations.recomputation.plan_file import CheckpointingPlan


@dataclass(frozen=True)
class Key:
    """One key of a recipe.

    Attributes:
        meaning: in words.
        required: whether it must be given.
        default: its value if it is absent.
        companions: whether it takes ``<key>_args`` and ``<key>_kwargs``.
        named: whether ``module:Name`` or ``path.py:Name`` may stand for its value, or for an element of its list.
        call: whether a class that is named so stands for an object of it, made without arguments.
        check: says what is expected instead of a value, None if it is fine.
    """

    meaning: str
    required: bool = False
    default: Any = None
    companions: bool = False
    named: bool = True
    call: bool = False
    check: Callable[[Any], str | None] | None = None


def _positive(value: Any) -> str | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return None if fits else "an integer of at least 1"


def _share(value: Any) -> str | None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1
    return None if value is None or fits else "a number between 0 and 1, such as 0.1"


def _seed(value: Any) -> str | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if fits else "an integer of at least 0"


def _listeners(value: Any) -> str | None:
    hears = isinstance(value, (list, tuple)) and all(any(hasattr(item, hook) for hook in HOOKS) for item in value)
    return None if hears else "a list of listeners: children of deep500.Event, or objects with one of its hooks"


def _schedule(value: Any) -> str | None:
    return None if value is None else _listeners([value]) and "a schedule of deep500.schedules, or a listener"


def _function(value: Any) -> str | None:
    return None if value is None or callable(value) else "a function"


def _callables(value: Any) -> str | None:
    return None if isinstance(value, (list, tuple)) and all(map(callable, value)) else "a list of functions"


def _paths(value: Any) -> str | None:
    fits = isinstance(value, (list, tuple)) and all(
        isinstance(path, (str, os.PathLike)) and str(path) for path in value
    )
    return None if fits else "a list of paths"


def _maker(value: Any) -> str | None:
    return None if callable(value) else "a callable (class or function)"


def _task(value: Any) -> str | None:
    fits = value is None or callable(value) or isinstance(value, Task) or (isinstance(value, str) and value in TASKS)
    return None if fits else f"one of {', '.join(TASKS)}, path.py:Name, or a Task"


def _checkpointing(value: Any) -> str | None:
    if value is None or isinstance(value, CheckpointingPlan) or (isinstance(value, (str, os.PathLike)) and str(value)):
        return None
    try:
        check_budget(value)
    except PlanError:
        return "a share of the peak (a float above 0, up to 1), bytes (an int above 0), a plan file, or a plan"
    return None


# fmt: off
KEYS: dict[str, Key] = {
    "model": Key(
        "zoo name, ONNX file, Network, a framework's model, or callable that returns one",
        required=True,
        companions=True,
    ),
    "dataset": Key("name, or callable that returns (train, test) or (train, validation, test); or 'environment'",
                   companions=True),
    "environment": Key("in the place of a data set, what a task of control acts in: a gymnasium id, or callable that "
                       "makes one", companions=True),
    "validation_split": Key("share of the training samples that validations see; the test samples are then judged "
                            "once, at the end", named=False, check=_share),
    "executor": Key("callable(network), such as d5fw.from_model", required=True, companions=True, check=_maker),
    "optimizer": Key("callable(executor, 'loss') -> optimizer", required=True, companions=True, check=_maker),
    "epochs": Key("number of passes over the training data", required=True, check=_positive, named=False),
    "batch_size": Key("samples per step", required=True, check=_positive, named=False),
    "train_sampler": Key("callable(dataset, batch_size); ShuffleSampler if absent", companions=True, check=_maker),
    "validation_sampler": Key("like train_sampler; OrderedSampler if absent", companions=True, check=_maker),
    "task": Key(
        "what is learned: a name such as 'classification' or 'regression', or callable(label=...) -> Task; "
        "classification if absent, regression for mean_squared_error on data without classes",
        companions=True,
        check=_task,
    ),
    "loss": Key(
        "of classification: 'cross_entropy' or 'mean_squared_error', if the model has none; other tasks have their own",
        named=False,
    ),
    "preprocessing": Key("transformations of training and validation batches", default=(), call=True, check=_callables),
    "augmentation": Key("transformations of training batches only", default=(), call=True, check=_callables),
    "scheme": Key(
        "how ranks train together: callable(optimizer, comm); d5.schemes.ConsistentDecentralized if absent",
        companions=True,
        check=_maker,
    ),
    "schedule": Key("learning-rate schedule", call=True, check=_schedule),
    "gradient_modifier": Key("callable(name, parameter, gradient) -> gradient", call=True, check=_function),
    "gradient_transform": Key("callable on all gradients together, such as global clipping", call=True,
                              check=_function),
    "events": Key("listeners", default=(), check=_listeners),
    "network_transformations": Key(
        "callables network -> network, applied before training; 'substitutions' rewrites by proved rules",
        default=(),
        check=check_transformations,
    ),
    "checkpointing": Key(
        "memory of a step, as a share of its peak or in bytes, to keep within by computing values again; or a plan",
        named=False,
        check=_checkpointing,
    ),
    "precision": Key("'bf16' or 'f16': most operators run in 16 bits, weights stay float32", named=False,
                     check=training.precision),
    "accumulate": Key("in how many pieces a batch runs, one after the other", default=1, check=_positive, named=False),
    "freeze": Key("names or patterns of parameters that are not trained", default=(), check=training.names,
                  named=False),
    "groups": Key("dicts of 'parameters' (names or patterns) and hyper-parameters of their own", default=(),
                  check=training.groups, named=False),
    "no_decay": Key("parameters without weight decay: 'norms_and_biases', names or patterns", named=False,
                    check=training.names),
    "ema": Key("decay of an exponential moving average of the weights, by which validations judge", named=False,
               check=training.decay),
    "keep_checkpoints": Key("how many of the newest epochs' checkpoints are kept", default=2, check=_positive,
                            named=False),
    "custom_ops": Key("paths of operator plugins, from the recipe's folder", default=(), check=_paths, named=False),
    "seed": Key("of weights, order and augmentation", default=0, check=_seed, named=False),
}
# fmt: on
"""Every key of a recipe."""

COMPANIONS = ("_args", "_kwargs")


BASES = {name: name for name in KEYS} | {
    f"{name}{ending}": name for name, key in KEYS.items() if key.companions for ending in COMPANIONS
}
"""All names that FIXED and MUTABLE may hold, with the key that each belongs to (``task_kwargs``: ``task``)."""

FREE = ("seed", "checkpointing", "keep_checkpoints")
"""Keys that stay mutable unless FIXED names them: other values leave results comparable, or the same."""


def merge(plan: RunPlan) -> RunPlan:
    """Put both halves into one dict, containers copied, so that overrides never reach the caller's; no defaults yet.

    Raises:
        RecipeError: unknown key (with the nearest name), key in both halves, missing key.
    """
    fixed, mutable = plan.fixed, plan.mutable
    for half, half_name in ((fixed, "FIXED"), (mutable, "MUTABLE")):
        if not isinstance(half, Mapping):
            raise RecipeError(f"got {type(half).__name__} as {half_name}; expected a dict; write {half_name} = {{...}}")
        for name in half:
            check_name(name, f"in {half_name}")
    both = sorted(set(fixed) & set(mutable))
    if both:
        raise RecipeError(
            f"got {both[0]!r} in FIXED and in MUTABLE; expected it in one of them; remove it from the other"
        )
    plan.values = {key: _copied(value) for key, value in {**fixed, **mutable}.items()}
    for name, key in KEYS.items():
        if key.required and name not in plan.values:
            raise RecipeError(f"got no {name!r}; expected {key.meaning}; add it to FIXED or MUTABLE")
    if "dataset" not in plan.values and "environment" not in plan.values:
        raise RecipeError(f"got no 'dataset'; expected {KEYS['dataset'].meaning}; add it to FIXED or MUTABLE")
    if "dataset" in plan.values and "environment" in plan.values:
        raise RecipeError("got 'dataset' and 'environment'; expected one of them: remove the other")
    for name, base in BASES.items():
        if name in fixed or (base in fixed and name not in mutable):
            plan.closed[name] = "FIXED"
        elif name not in mutable and base not in mutable and base not in FREE:
            plan.closed[name] = "left at its default by the recipe"
    return plan


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value


def check_name(key: Any, where: str) -> None:
    """Raise RecipeError with the nearest name unless the key exists."""
    if key not in BASES:
        raise RecipeError(f"got unknown key {key!r} {where}; expected a recipe key; {nearest(str(key), BASES)}")
