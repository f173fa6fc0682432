"""What ends a run half way, or is shared or drawn at random: a whole result, the original, or one line."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500 import cli
from deep500.networks import Network
from deep500.registry import load_backend
from deep500.transformations.substitutions import optimize
from deep500.transformations.substitutions.cost import ranking
from deep500.transformations.substitutions.cost.database import Database
from tests.test_cli import error_line
from tests.transformations.substitutions.samples import branches, optimized


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    branches(4).to_onnx("one.onnx")


def test_a_price_store_that_is_read_only(
    model: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite opens the file as it does one whose permissions forbid writing, which bind nobody who is root."""
    words = ["optimize", "one.onnx", "-o", "out.onnx", "--database", "costs.sqlite", "--budget", "60"]
    words += ["--backend", "reference"]
    Database("costs.sqlite")
    before, connect = Path("costs.sqlite").read_bytes(), sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **more: connect(f"file:{path}?mode=ro", uri=True, **more))
    assert cli.main(words) == 2
    said = error_line(capsys)
    assert "readonly database" in said and "database=" in said
    assert not Path("out.onnx").exists()
    assert Path("costs.sqlite").read_bytes() == before


def test_two_runs_share_a_price_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both measure the same operators at the same time; each gets a whole result, the store one price for each."""
    store, results = tmp_path / "costs.sqlite", list[Any]()

    monkeypatch.setattr(ranking, "MOST", 10)  # rounds of the timing, which is not what is tried here

    def run_one() -> None:
        results.append(optimized(branches(4, count=2), measure=True, database=store))

    threads = [threading.Thread(target=run_one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2 and all(result.before is not None for result in results)
    with closing(sqlite3.connect(store)) as connection:
        (rows,), (units,) = (connection.execute(f"SELECT count({what}) FROM costs") for what in ("*", "DISTINCT unit"))
    assert rows == units and rows[0] > 0


@pytest.mark.parametrize("stage", ["load_rules", "import_network", "_search", "export_network", "check_equivalent"])
def test_a_model_whose_second_form_does_not_fit(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError("Unable to allocate 9 GiB")

    network = branches(4)
    monkeypatch.setattr(optimize, stage, full)
    copy = Network.copy  # no room for another copy of the arrays of what stays, either
    monkeypatch.setattr(Network, "copy", lambda net, arrays=True: full() if arrays else copy(net, arrays))
    result = optimized(network)
    assert result.chosen is None and result.network == network and "Unable to allocate 9 GiB" in result.reason


def test_a_model_that_does_not_fit_at_all(
    model: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Network, "from_onnx", full)
    assert cli.main(["optimize", "one.onnx", "-o", "out.onnx"]) != 0
    said = error_line(capsys)
    assert "no memory for it" in said and "take a machine with more" in said


def test_random_numbers_that_look_alike_stay_two() -> None:
    """Two nodes with equal attributes draw different numbers; the products around them are merged."""
    network = branches(4)
    for name in ("first", "second"):
        network.add_node("RandomNormalLike", ["x"], [name], name=name)
        network.add_output(name)
    network.add_node("Dropout", ["y"], ["dropped"])
    network.add_output("dropped")
    result = optimized(network)
    kinds = [node.op_type for node in result.network.nodes]
    assert result.chosen and kinds.count("RandomNormalLike") == 2 and kinds.count("MatMul") == 1
    x = {"x": np.random.default_rng(0).normal(size=(4, 16)).astype("float32")}
    one, two = (dict(load_backend("reference").from_model(net).inference(x)) for net in (network, result.network))
    assert not np.array_equal(two["first"], two["second"])
    np.testing.assert_allclose(two["y"], one["y"], rtol=1e-5, atol=1e-6)
