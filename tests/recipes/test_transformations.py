"""The key ``network_transformations``: the same training by another network, whatever the seed, rank or resumption."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Threads, set_world
from deep500.errors import RecipeError
from deep500.events import Event
from deep500.networks import Network
from deep500.recipe import run_recipe, transformations
from deep500.recipe.transformations import transformed
from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from tests.conftest import load_backend
from tests.recipes.common import quick

SUBSTITUTIONS = {"network_transformations": ["substitutions"]}


def model(classes: int, shape: tuple[int, ...], seed: int) -> Network:
    """Three layers side by side on one image: one product of matrices does for all."""
    network, rng, size = Network("parallel"), np.random.default_rng(seed), int(np.prod(shape))
    network.add_input("input", ("N", *shape))
    network.add_node("Flatten", ["input"], ["flat"])
    for number in range(3):
        network.add_parameter(f"w{number}", (rng.normal(size=(size, classes)) / 8).astype("float32"))
        network.add_node("MatMul", ["flat", f"w{number}"], [f"p{number}"])
        network.add_node("Tanh", [f"p{number}"], [f"t{number}"])
    network.add_node("Sum", ["t0", "t1", "t2"], ["output"])
    network.add_output("output")
    return network


def data() -> tuple[d5.Dataset, d5.Dataset]:
    """Nothing to learn, and little of it."""
    x = np.random.default_rng(0).normal(size=(160, 1, 4, 4)).astype(np.float32)
    y = np.arange(160) % 5
    return d5.NumpyDataset(x[:128], labels=y[:128]), d5.NumpyDataset(x[128:], labels=y[128:])


def run(folder: Path, *words: str, backend: str = "reference", **changes: Any) -> Record:
    base = {"model": model, "model_kwargs": {}, "dataset": data, "augmentation": [], "batch_size": 32}
    recipe = quick(backend, **{**base, "metrics": [(d5.TestAccuracy(), None)], **changes})
    return Record.open(Path(run_recipe(*recipe, ["--quiet", *words, "--out", str(folder)]).path))


def arrays(record: Record) -> dict[str, np.ndarray]:
    """All arrays of the newest checkpoint."""
    return load_checkpoint(list_checkpoints(record.path / "checkpoints" / "seed-0")[-1])["arrays"]


NAMES = [f"{part}/w{number}" for part in ("network", "optimizer/momentum_buffer") for number in range(3)]


def assert_close(want: Record, got: Record) -> None:
    """The same weights and momentum up to rounding; and they moved."""
    before, after, start = arrays(want), arrays(got), model(5, (1, 4, 4), 0)
    for name in NAMES:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert np.abs(before["network/w0"] - start.parameters["w0"].value).max() > 1e-2


def test_the_networks_differ(backend_name: str) -> None:
    """Or the tests below would compare a network with itself."""
    network = d5.add_loss(model(5, (1, 4, 4), 0))
    values = {"batch_size": 32, "executor": load_backend(backend_name).from_model, **SUBSTITUTIONS}
    rewritten = transformed(network, values)
    kinds = [node.op_type for node in rewritten.nodes]
    assert kinds.count("MatMul") == 1 and rewritten.trainable() == network.trainable()


def test_substitutions_train_to_the_same_losses(backend_name: str, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", backend=backend_name)
    rewritten = run(tmp_path / "rewritten", backend=backend_name, **SUBSTITUTIONS)
    assert_close(plain, rewritten)
    assert rewritten.manifest()["division"] == "closed"


class _Interrupt(Event):
    def after_epoch(self, run: Any) -> None:
        raise KeyboardInterrupt


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole", **SUBSTITUTIONS)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", events=[_Interrupt], **SUBSTITUTIONS)
    monkeypatch.setattr(_Interrupt, "after_epoch", lambda self, run: None)
    resumed = run(tmp_path / "broken", "--resume", events=[_Interrupt], **SUBSTITUTIONS)
    assert resumed.manifest()["resumed"]
    want, got = arrays(whole), arrays(resumed)
    assert want.keys() == got.keys()
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_two_ranks_rewrite_alike(tmp_path: Path) -> None:
    def ranks(folder: Path) -> Record:
        def work(comm: Any) -> Path:
            set_world(comm)
            try:
                return run(folder, **SUBSTITUTIONS).path
            finally:
                set_world(None)

        return Record.open(Threads(2).run(work)[0])

    first, second, serial = ranks(tmp_path / "one"), ranks(tmp_path / "two"), run(tmp_path / "serial")
    assert_close(serial, first)
    for name, array in arrays(first).items():
        np.testing.assert_array_equal(arrays(second)[name], array, err_msg=name)


# -- callables --------------------------------------------------------------------------------------------------------
SEEN: list[str] = []


def noted(network: Network) -> Network:
    """Changes nothing."""
    SEEN.append(network.name)
    return network


def test_callables_follow_each_other(tmp_path: Path) -> None:
    SEEN.clear()
    quick_search = functools.partial(d5.optimize_network, training=True, measure=False, budget=20.0)
    plain = run(tmp_path / "plain")
    assert_close(plain, run(tmp_path / "own", network_transformations=[quick_search, noted]))
    assert SEEN
    assert_close(plain, run(tmp_path / "both", network_transformations=(noted, "substitutions")))


def renamed(network: Network) -> Network:
    other = Network("other")
    other.add_input("picture", ("N", 1, 4, 4))
    return other


def silent(network: Network) -> Network:
    twin = network.copy()
    twin.remove_output("loss")
    return twin


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([renamed], r"got inputs \['picture'\] from .*renamed.*; expected \['input', 'label'\]"),
        ([silent], r"got outputs \['output'\] from .*silent.*; expected \['output', 'loss'\]"),
        ([lambda network: None], r"network_transformations: got NoneType from .*; expected a deep500 Network"),
        ([lambda network: network.to_onnx()], r"network_transformations: got ModelProto from"),
        ("substitutions", r"network_transformations: got 'substitutions'; expected a list of callables"),
        (["substitution"], r"network_transformations: got \['substitution'\]; expected a list of callables"),
        ([3], r"network_transformations: got \[3\]; expected a list of callables"),
        (noted, r"network_transformations: got .*noted.*; expected a list of callables"),
    ],
)
def test_values_that_do_not_fit(value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        run(tmp_path, network_transformations=value)


def test_a_search_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine finds in time depends on the machine: ranks would differ."""
    for limit in (1e-9, 1e-3):  # the budget ends it; it ends by itself, though later than it may
        monkeypatch.setattr(transformations, "LIMIT", limit)
        with pytest.raises(
            RecipeError, match=f"no end of the search within {limit:g} s.*optimize the model beforehand"
        ):
            run(tmp_path, **SUBSTITUTIONS)
