"""The keys of a recipe: one table that everything else reads.

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
from deep500.measure.allocation import KEPT, RETURNED
from deep500.recipe.parallel import is_wish
from deep500.recipe.transformations import SUBSTITUTIONS
from deep500.tasks import TASKS, Task
from deep500.transformations.mixed_precision import PRECISIONS
from deep500.transformations.recomputation.budgets import check_budget
from deep500.transformations.recomputation.plan_file import CheckpointingPlan

Check = tuple[Callable[[Any], bool], str]
"""Whether a value fits, and what is expected of one that does not."""


@dataclass(frozen=True)
class Key:
    """One key of a recipe.

    Attributes:
        meaning: in words.
        required: whether it must be given.
        default: its value if it is absent.
        companions: whether it takes ``<key>_args`` and ``<key>_kwargs``.
        named: whether ``module:Name`` or ``path.py:Name`` may stand for its value, or for an element of its list.
        call: whether a class that is named so stands for an object of it, made without arguments; of other classes
            objects are asked for.
        takes: what its function, or each of its list, is called with, in words.
        check: of its value.
    """

    meaning: str
    required: bool = False
    default: Any = None
    companions: bool = False
    named: bool = True
    call: bool = False
    takes: tuple[str, ...] = ()
    check: Check | None = None


def _is_number(value: Any, kinds: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _whole(least: int) -> Check:
    return (
        lambda value: _is_number(value, int) and least <= value < 2**63,
        f"an integer of at least {least}, in 64 bits",
    )


def _part(example: float) -> Check:
    expected = f"a number between 0 and 1, such as {example}"
    return lambda value: value is None or (_is_number(value) and 0 < value < 1), expected


def _several(fits: Callable[[Any], bool], expected: str) -> Check:
    return lambda value: isinstance(value, (list, tuple)) and all(map(fits, value)), expected


def _names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) and name for name in value)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike)) and bool(str(value))


def _hears(value: Any) -> bool:
    return any(hasattr(value, hook) for hook in HOOKS)


def _budget(value: Any) -> bool:
    if value is None or isinstance(value, CheckpointingPlan) or _is_path(value):
        return True
    try:
        check_budget(value)
    except PlanError:
        return False
    return True


POSITIVE = _whole(1)
LISTENERS = _several(_hears, "a list of listeners: children of deep500.Event, or objects with one of its hooks")
SCHEDULE: Check = (lambda value: value is None or _hears(value), "a schedule of deep500.schedules, or a listener")
BUDGET: Check = (
    _budget,
    "a share of the peak (a float above 0, up to 1), bytes (an int above 0), a plan file, or a plan",
)
MEMORY: Check = (
    lambda value: _budget(value) and not isinstance(value, CheckpointingPlan),
    "a share of the peak (a float above 0, up to 1), bytes (an int above 0), or a plan file",
)
PRECISION: Check = (lambda value: value is None or value in PRECISIONS, "'bf16' or 'f16' or None")
MAKER: Check = (callable, "a callable (class or function)")
SCHEME: Check = (
    lambda value: value is None or all(map(callable, value.values() if isinstance(value, Mapping) else [value])),
    MAKER[1] + ", or with a mesh a dict of them by axis",
)
AXES: Check = (
    lambda value: value is None or (isinstance(value, Mapping) and all(_is_number(n, int) for n in value.values())),
    "a dict of numbers of ranks by axis, such as {'data': 2, 'pipeline': 2}",
)
FUNCTION: Check = (lambda value: value is None or callable(value), "a function")
FUNCTIONS = _several(callable, "a list of functions")
BATCH = ("batch", "rng")


def _carries(value: Any) -> bool:
    groups = value if isinstance(value, Mapping) else {} if value is None else {"": None}
    known = [taken for size, taken in groups.items() if str(size).isdecimal() and isinstance(taken, (list, tuple))]
    return len(known) == len(groups) and all(len(k) > 2 and all(_is_number(n) and n > 0 for n in k) for k in known)


NAMES: Check = (
    lambda value: value is None or (isinstance(value, str) and value != "") or _names(value),
    "names or patterns",
)

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
                            "once, at the end", named=False, check=_part(0.1)),
    "executor": Key("callable(network), such as d5fw.from_model", required=True, companions=True, check=MAKER),
    "optimizer": Key("callable(executor, 'loss') -> optimizer", required=True, companions=True, check=MAKER),
    "epochs": Key("number of passes over the training data", required=True, check=POSITIVE, named=False),
    "batch_size": Key("samples per step", required=True, check=POSITIVE, named=False),
    "train_sampler": Key("callable(dataset, batch_size); ShuffleSampler if absent", companions=True, check=MAKER),
    "validation_sampler": Key("like train_sampler; OrderedSampler if absent", companions=True, check=MAKER),
    "data_threads": Key("threads that make batches while the network trains", default=1, check=POSITIVE, named=False),
    "task": Key(
        "what is learned: a name such as 'classification' or 'regression', or callable(label=...) -> Task; "
        "classification if absent, regression for mean_squared_error on data without classes",
        companions=True,
        check=(lambda value: value is None or callable(value) or isinstance(value, Task)
               or (isinstance(value, str) and value in TASKS), f"one of {', '.join(TASKS)}, path.py:Name, or a Task"),
    ),
    "loss": Key(
        "of classification: 'cross_entropy' or 'mean_squared_error', if the model has none; other tasks have their own",
        named=False,
    ),
    "preprocessing": Key("transformations of training and validation batches", default=(), call=True, check=FUNCTIONS,
                         takes=BATCH),
    "augmentation": Key("transformations of training batches only", default=(), call=True, check=FUNCTIONS,
                        takes=BATCH),
    "scheme": Key(
        "how ranks train together: callable(optimizer, comm); d5.schemes.ConsistentDecentralized if absent or None",
        companions=True,
        check=SCHEME,
    ),
    "mesh": Key(
        "ranks by axis, from the outermost on, such as {'data': 2, 'pipeline': 2}: schemes composed; 'scheme' is that "
        "of the last axis, or a dict by axis",
        named=False,
        check=AXES,
    ),
    "schedule": Key("learning-rate schedule", call=True, check=SCHEDULE),
    "gradient_modifier": Key("callable(name, parameter, gradient) -> gradient", call=True, check=FUNCTION,
                             takes=("name", "parameter", "gradient")),
    "gradient_transform": Key("callable on all gradients together, such as global clipping", call=True,
                              check=FUNCTION, takes=("names", "gradients")),
    "events": Key("listeners", default=(), check=LISTENERS),
    "network_transformations": Key(
        "callables network -> network, applied before training; 'substitutions' rewrites by proved rules",
        default=(),
        check=_several(lambda value: callable(value) or value == SUBSTITUTIONS,
                       f"a list of callables network -> network, or {SUBSTITUTIONS!r}"),
    ),
    "checkpointing": Key(
        "memory of a step, as a share of its peak or in bytes, to keep within by computing values again; or a plan",
        named=False,
        check=BUDGET,
    ),
    "memory": Key(
        "memory of a step, as a share of its peak or in bytes, to keep within by pieces of the batch and by computing "
        "values again, planned together; or the path of a plan",
        named=False,
        check=MEMORY,
    ),
    "parallel": Key(
        "'auto', 'measured', bytes that a rank may hold, pins such as {'fc1': 'n'}, or the path of a plan: the network "
        "itself is divided among the ranks",
        named=False,
        check=(is_wish, "'auto', 'measured', bytes (an int above 0), a dict of pins, or the path of a plan"),
    ),
    "malloc": Key("'kept' or 'returned': glibc keeps memory that is freed for the next allocation, or returns it at "
                  "once; its own way if absent", named=False,
                  check=(lambda value: value in (None, KEPT, RETURNED), f"{KEPT!r}, {RETURNED!r} or None")),
    "precision": Key("'bf16' or 'f16': most operators run in 16 bits, weights stay float32", named=False,
                     check=PRECISION),
    "loss_pieces": Key("in how many pieces of the tokens the last layer and the loss run, differentiated one after the "
                       "other", default=1, check=POSITIVE, named=False),
    "accumulate": Key("in how many pieces a batch runs, one after the other", default=1, check=POSITIVE, named=False),
    "freeze": Key("names or patterns of parameters that are not trained", default=(), check=NAMES,
                  named=False),
    "groups": Key("dicts of 'parameters' (names or patterns) and hyper-parameters of their own", default=(),
                  check=_several(lambda group: isinstance(group, Mapping) and "parameters" in group,
                                  "a list of dicts with 'parameters' and hyper-parameters"), named=False),
    "no_decay": Key("parameters without weight decay: 'norms_and_biases', names or patterns", named=False,
                    check=NAMES),
    "ema": Key("decay of an exponential moving average of the weights, by which validations judge", named=False,
               check=_part(0.999)),
    "keep_checkpoints": Key("how many of the newest epochs' checkpoints are kept", default=2, check=POSITIVE,
                            named=False),
    "references": Key("samples that seeds of reference runs took to the target, by batch size: {64: [910, 940, 880]}",
                      named=False, check=(_carries, "three or more numbers of samples by batch size")),
    "custom_ops": Key("paths of operator plugins, from the recipe's folder", default=(),
                      check=_several(_is_path, "a list of paths"), named=False),
    "seed": Key("of weights, order and augmentation", default=0, check=_whole(0), named=False),
}
# fmt: on
"""Every key of a recipe."""

COMPANIONS = ("_args", "_kwargs")


BASES = {name: name for name in KEYS} | {
    f"{name}{ending}": name for name, key in KEYS.items() if key.companions for ending in COMPANIONS
}
"""All names that FIXED and MUTABLE may hold, with the key that each belongs to (``task_kwargs``: ``task``)."""

FREE = ("seed", "checkpointing", "memory", "loss_pieces", "parallel", "data_threads", "malloc", "keep_checkpoints")
"""Keys that stay mutable unless FIXED names them: other values leave results comparable, or the same."""


def check_name(key: Any, where: str) -> None:
    """Raise RecipeError with the nearest name unless the key exists."""
    if key not in BASES:
        raise RecipeError(f"got unknown key {key!r} {where}; expected a recipe key; {nearest(str(key), BASES)}")
