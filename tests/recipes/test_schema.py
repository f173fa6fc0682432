"""Keys, halves, overrides and signatures: each wrong input is an error that says what to do instead."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from deep500.devices import GPUDevice
from deep500.errors import RecipeError
from deep500.metrics import TestAccuracy
from deep500.recipe.calls import accepts, check_call
from deep500.recipe.describing import describe
from deep500.recipe.options import parse_options
from deep500.recipe.overrides import convert
from deep500.recipe.plan import RunPlan, merge
from deep500.recipe.schema import BASES, KEYS
from deep500.recipe.steps import make_plan
from deep500.training.clipping import ClipGradientNorm
from deep500.training.data.augmentation import Crop, Flip
from deep500.training.data.samplers import Sampler, ShuffleSampler
from deep500.training.schedules import CosineSchedule, TableSchedule, WarmUp


def make_executor(network, device="cpu"):
    """Stands for ``from_model``."""


def make_optimizer(executor, loss, lr=0.1, momentum=0.0):
    """Stands for an optimizer."""


FIXED = {"model": "mlp", "model_kwargs": {"hidden": (8,)}, "dataset": "digits", "epochs": 2, "augmentation": [Crop(8)]}
MUTABLE = {
    "batch_size": 64,
    "executor": make_executor,
    "optimizer": make_optimizer,
    "optimizer_args": (0.1, 0.9),
    "optimizer_kwargs": {},
    "loss": "cross_entropy",
}
METRICS = [(TestAccuracy(), 90.0)]


def plan(*argv, fixed=FIXED, mutable=MUTABLE, metrics=METRICS):
    return make_plan(fixed, mutable, metrics, parse_options(argv))


def without(half, *keys, **more):
    return {key: value for key, value in {**half, **more}.items() if key not in keys}


WRONG = [
    ({"mutable": without(MUTABLE, batchsize=3)}, r"unknown key 'batchsize' in MUTABLE.*'batch_size'"),
    ({"fixed": without(FIXED, epoch_args=3)}, r"unknown key 'epoch_args' in FIXED"),
    ({"fixed": without(FIXED, batch_size=3)}, r"'batch_size' in FIXED and in MUTABLE"),
    ({"fixed": without(FIXED, "dataset")}, r"got no 'dataset'; expected name, or callable.*add it to FIXED or MUTABLE"),
    ({"fixed": [1]}, r"got list as FIXED; expected a dict"),
    ({"mutable": without(MUTABLE, batch_size=0)}, r"batch_size: got 0; expected an integer of at least 1"),
    ({"mutable": without(MUTABLE, batch_size=True)}, r"batch_size: got True"),
    ({"fixed": without(FIXED, epochs=1.5)}, r"epochs: got 1.5"),
    ({"fixed": without(FIXED, seed=-1)}, r"seed: got -1"),
    ({"mutable": without(MUTABLE, optimizer="Adam")}, r"optimizer: got 'Adam'; expected a callable"),
    ({"mutable": without(MUTABLE, optimizer_args=0.1)}, r"optimizer_args: got 0.1; expected a tuple; write \(0.1,\)"),
    ({"mutable": without(MUTABLE, optimizer_kwargs=[1])}, r"optimizer_kwargs: got \[1\]; expected a dict"),
    ({"fixed": without(FIXED, augmentation=Crop(8))}, r"augmentation: got .* expected a list"),
    (
        {"fixed": without(FIXED, references={32: [900.0, 950.0]})},
        r"references: got .* three or more numbers of samples",
    ),
    ({"fixed": without(FIXED, references={"small": [900, 950, 960]})}, r"references: got "),
    ({"fixed": without(FIXED, references={32: [900, 950, "many"]})}, r"references: got "),
    ({"metrics": (TestAccuracy(), 90.0)}, r"METRICS: got 90.0; expected \(metric, target or None\)"),
    ({"metrics": [(TestAccuracy, 90.0)]}, r"add the parentheses: TestAccuracy\(\)"),
    ({"metrics": [(TestAccuracy(), "90")]}, r"got target '90' for 'test_accuracy'"),
    ({"metrics": [(TestAccuracy(), float("nan"))]}, r"got target nan"),
    ({"metrics": [TestAccuracy(), TestAccuracy()]}, r"got 'test_accuracy' twice"),
    ({"metrics": {}}, r"METRICS: got dict"),
]

WRONG_WORDS = [
    (["batch_size"], r"got 'batch_size'; expected key=value"),
    (["batchsize=3"], r"unknown key 'batchsize' on the command line.*'batch_size'"),
    (["batch_size=2.5"], r"batch_size=2.5, of type float; expected int like 64"),
    (["batch_size=big"], r"of type str; expected int"),
    (["batch_size=0"], r"batch_size: got 0"),
    (["batch_size.x=1"], r"expected a dot only after"),
    (["optimizer_kwargs.=1"], r"expected a dot only after"),
    (["optimizer_args.2=1"], r"expected a position from 0 to 1"),
    (["optimizer_args.lr=1"], r"expected a position from 0 to 1"),
    (["optimizer_args.0=high"], r"of type str; expected float like 0.1"),
    (["epochs=3"], r"got epochs=3, but 'epochs' is FIXED.*batch_size.*--open"),
    (["model_kwargs.depth=20"], r"'model_kwargs' is FIXED"),
    (["gradient_modifier=3"], r"'gradient_modifier' is left at its default by the recipe"),
    (["optimizer=Adam"], r"got optimizer=Adam; expected a name in deep500"),
    (["--repeat", "0"], r"wrong command line: argument --repeat"),
    (["--nonsense"], r"unrecognized arguments: --nonsense"),
    (["--device", "tpu"], r"got device 'tpu'"),
    (["seed=3", "--seed", "4"], r"got seed=3 and --seed 4; expected one of them"),
    (["executor_kwargs.device=gpu", "--device", "cpu"], r"device=gpu and --device cpu; expected one"),
    (["--backend", "reference"], r"--backend reference but the executor is .*make_executor"),
]


@pytest.mark.parametrize(("halves", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_wrong_recipe(halves, message):
    with pytest.raises(RecipeError, match=message):
        plan(**halves)


@pytest.mark.parametrize(("words", "message"), WRONG_WORDS, ids=[" ".join(words) for words, _ in WRONG_WORDS])
def test_wrong_command_line(words, message):
    with pytest.raises(ValueError, match=message):
        plan(*words)


def test_what_is_said_twice_alike_is_taken():
    assert plan("seed=4", "--seed", "4").seeds == [4]


def test_references_are_recorded_with_their_batch_sizes():
    carried = plan(fixed={**FIXED, "references": {32: [900, 950.5, 940]}}).resolved["recipe"]["references"]
    assert carried == {"32": [900, 950.5, 940]}


def test_overrides_change_a_copy_only():
    before = copy.deepcopy((FIXED["model_kwargs"], MUTABLE["optimizer_kwargs"], MUTABLE["optimizer_args"]))
    metrics = list(METRICS)
    words = (
        "batch_size=128",
        "optimizer_args.0=1",
        "optimizer_kwargs.nesterov=True",
        "loss=mean_squared_error",
        "seed=4",
    )
    values = plan(*words, "--device", "gpu:1", metrics=metrics).values
    assert (values["batch_size"], values["optimizer_args"]) == (128, (1.0, 0.9))
    assert values["optimizer_kwargs"] == {"nesterov": True} and values["loss"] == "mean_squared_error"
    assert values["executor_kwargs"] == {"device": GPUDevice(1)} and values["seed"] == 4
    assert before == (FIXED["model_kwargs"], MUTABLE["optimizer_kwargs"], MUTABLE["optimizer_args"])
    assert metrics == METRICS and "executor_kwargs" not in MUTABLE and "seed" not in MUTABLE
    assert type(values["optimizer_args"][0]) is float


def test_open_division_says_what_opened_it():
    closed, opened = plan("batch_size=3", "--seed", "7"), plan("epochs=1", "model_kwargs.hidden=[4]", "--open")
    assert (closed.division, opened.division) == ("closed", "open")
    assert opened.opened == ["epochs=1", "model_kwargs.hidden=[4]"]
    assert opened.values["epochs"] == 1 and opened.values["model_kwargs"] == {"hidden": (4,)}
    fixed_seed = without(FIXED, seed=3)
    with pytest.raises(RecipeError, match="--seed 4, but 'seed' is FIXED"):
        plan("--seed", "4", fixed=fixed_seed)
    assert plan("--seed", "3", fixed=fixed_seed).division == "closed"  # it is what FIXED says


def test_repeat_and_dry_run():
    assert plan("--repeat", "3", "--seed", "5").seeds == [5, 6, 7]
    assert plan("--dry-run", fixed=without(FIXED, epochs=200)).values["epochs"] == 1


def test_a_name_stands_for_a_callable():
    sampled = plan("train_sampler=OrderedSampler", mutable=without(MUTABLE, train_sampler=ShuffleSampler))
    assert sampled.values["train_sampler"].__name__ == "OrderedSampler"


def test_defaults_are_complete():
    values = plan().values
    assert set(values) == set(BASES)
    assert (values["seed"], values["events"], values["dataset_kwargs"]) == (0, (), {})


CONVERSIONS = [
    ("3", 1, 3),
    ("3", 1.0, 3.0),
    ("1e-3", 0.1, 1e-3),
    ("[1, 2]", (0,), (1, 2)),
    ("True", False, True),
    ("x.onnx", "mlp", "x.onnx"),
    ("3", "mlp", "3"),
    ("'a b'", "mlp", "a b"),
    ("None", None, None),
    ("{'a': 1}", {}, {"a": 1}),
]


@pytest.mark.parametrize(("text", "old", "new"), CONVERSIONS)
def test_convert(text, old, new):
    got = convert("k=v", text, old)
    assert got == new and type(got) is type(new)


@pytest.mark.parametrize(("text", "old"), [("1", True), ("True", 1), ("True", 1.0), ("(1,)", 1), ("1", (1,)), ("x", 1)])
def test_convert_refuses(text, old):
    with pytest.raises(RecipeError, match="expected"):
        convert("k=v", text, old)


def test_options_that_define_a_run_survive_a_round_trip():
    words = [
        "batch_size=3",
        "--backend",
        "pytorch",
        "--repeat",
        "2",
        "--device",
        "cpu",
        "--seed",
        "0",
        "--dry-run",
        "--strict",
        "--open",
        "--download",
        "--data",
        "d",
    ]
    options = parse_options([*words, "--out", "x", "--quiet", "--json"])
    assert parse_options(options.defining()).defining() == options.defining()
    assert set(options.defining()) == set(words) and parse_options([]).defining() == []


def test_resume_takes_a_folder_or_none():
    assert parse_options(["--resume"]).resume == "" and parse_options([]).resume is None
    assert parse_options(["--resume", "d"]).resume == "d"
    mixed = parse_options(["--resume", "batch_size=3"])
    assert mixed.resume == "" and mixed.overrides == ["batch_size=3"]


def test_unknown_keyword_of_a_callable_offers_the_nearest():
    with pytest.raises(RecipeError, match=r"optimizer_kwargs: got 'momentun'.*'momentum'"):
        check_call("optimizer", make_optimizer, 2, (), {"momentun": 0.9})
    with pytest.raises(RecipeError, match="arguments that make_optimizer"):
        check_call("optimizer", make_optimizer, 2, (1, 2, 3), {})
    with pytest.raises(RecipeError, match="got 'executor'; expected a keyword"):  # the runner supplies it
        check_call("optimizer", make_optimizer, 2, (), {"executor": 1})
    check_call("optimizer", make_optimizer, 2, (0.1,), {"momentum": 0.9})
    for key, value, expected in (
        ("schedule", CosineSchedule, r"got the class CosineSchedule; .*write CosineSchedule\(\.\.\.\)"),
        ("augmentation", [Flip], r"got the class Flip; expected an object"),
        ("gradient_modifier", ClipGradientNorm(1.0), r"takes other arguments .*\(name, parameter, gradient\)"),
        ("gradient_transform", lambda gradients: gradients, r"takes other arguments .*\(names, gradients\)"),
        ("preprocessing", [lambda batch: batch], r"takes other arguments .*\(batch, rng\)"),
    ):
        with pytest.raises(RecipeError, match=f"^{key}: .*{expected}"):
            plan(fixed=without(FIXED, key), mutable={**without(MUTABLE, key), key: value})
    unfinished = type("Curriculum", (Sampler,), {"__iter__": lambda self: iter(())})
    with pytest.raises(RecipeError, match=r"train_sampler: got Curriculum, which lacks order\(\)"):
        check_call("train_sampler", unfinished, 2, (), {})


def test_describe_is_stable_and_tells_values_apart():
    assert describe(make_executor).endswith(":make_executor") and describe(GPUDevice(1)) == "gpu:1"
    assert describe(CosineSchedule(total=3)) != describe(CosineSchedule(total=4))
    assert describe(WarmUp(5, CosineSchedule(3))) == describe(WarmUp(5, CosineSchedule(3)))
    assert describe(WarmUp(5, TableSchedule({0: 1.0}))) != describe(WarmUp(5, TableSchedule({0: 2.0})))
    assert describe(Crop(8)) != describe(Crop(9)) and describe(np.float32(2)) == 2.0
    assert describe(np.zeros(2)) != describe(np.ones(2))


def test_every_key_and_option_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    options = [
        "--" + {"framework": "backend", "tags": "tag"}.get(name, name).replace("_", "-")
        for name in vars(parse_options([]))
        if name not in ("overrides", "turns", "end", "launch")  # the last three: for launches
    ]
    assert [name for name in [*KEYS, *options] if name not in page] == []


def test_every_key_has_a_meaning():
    assert all(key.meaning for key in KEYS.values())
    merged = merge(RunPlan(FIXED, MUTABLE, METRICS, parse_options([]))).values
    assert merged["model_kwargs"] == FIXED["model_kwargs"] and merged["model_kwargs"] is not FIXED["model_kwargs"]


class _Meta(type):
    def __call__(cls, *args, **kwargs):
        return super().__call__(*args, **kwargs)


class _Made(metaclass=_Meta):
    def __init__(self, classes, seed=0):
        self.classes = classes


def test_a_class_with_a_metaclass_of_a_framework_is_asked_itself() -> None:
    assert accepts(_Made, "seed") and not accepts(_Made, "shape")
    check_call("model", _Made, 0, (), {"classes": 3})
    with pytest.raises(RecipeError, match=r"model_kwargs: got 'clases'; .*classes"):
        check_call("model", _Made, 0, (), {"clases": 3})
