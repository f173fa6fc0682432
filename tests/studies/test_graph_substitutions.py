"""The recipe of TASO's experiments: what it measures is what it says, planted faults are seen, nothing is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network
from deep500.registry import load_backend
from deep500.transformations.substitutions.rules.rule_file import read
from recipes.studies.graph_substitutions import __main__ as recipe
from recipes.studies.graph_substitutions import attention, grouping, networks, rules, timing
from recipes.studies.graph_substitutions.published import LAYOUT, SEARCH, V100
from recipes.studies.graph_substitutions.subjects import SEVEN, SUBJECTS

QUICK = ["--dry-run", "--backends", "reference", "--budget", "1", "--clock", "cpu"]


def plant(monkeypatch: pytest.MonkeyPatch, change: Callable[[Network], Network]) -> None:
    """An optimizer that does this to every network."""

    def optimize(network: Network, **_: Any) -> SimpleNamespace:
        history = SimpleNamespace(steps=("step",))
        return SimpleNamespace(
            network=change(network), history=history, seconds=0.5, before=2.0, after=1.0, timed_out=False, reason=""
        )

    monkeypatch.setattr(d5, "optimize_network", optimize, raising=False)


def shifted(network: Network) -> Network:
    """Every last bias and weight 1 % larger: what no tolerance may let through."""
    other = network.copy()
    for parameter in other.parameters.values():
        if parameter.value.dtype == np.float32:
            parameter.value = parameter.value * np.float32(1.01)
    return other


# -- what is measured -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SUBJECTS)
def test_small_networks_have_the_operators_of_the_full_ones(name: str) -> None:
    small, full = (SUBJECTS[name].network(quick) for quick in (True, False))
    assert {node.op_type for node in small.nodes} == {node.op_type for node in full.nodes}
    assert len(small.nodes) <= len(full.nodes)
    assert all(isinstance(size, int) for described in full.inputs.values() for size in described.shape or ())


def test_published_figures_are_of_networks_that_are_measured() -> None:
    assert set(SEARCH) < set(SEVEN) and set(V100) < set(SEVEN) and len(SEVEN) == 7
    assert LAYOUT["joint"][1] != LAYOUT["sequential"][1], "the published comparison has unequal layers"


def test_merged_groups_compute_the_same() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    weight, x = rng.normal(size=(64, 2, 3, 3)), rng.normal(size=(1, 64, 5, 6))
    want = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(weight), padding=1, groups=32)
    for factor in (1, 2, 4, 8, 16, 32):
        merged = grouping.merge(weight, 32, factor)
        network = grouping.convolution(merged.astype(np.float32), 64, 5)
        assert grouping.picked(network) == 32 // factor and merged.shape[1] == 2 * factor
        got = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(merged), padding=1, groups=32 // factor)
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_rules_are_divided_by_whether_they_transpose() -> None:
    known = read()
    substitution, layout = attention.divide(known)
    assert substitution and layout and len(substitution) + len(layout) == len(known)
    assert all("transpose" in " ".join(rule.left + rule.right) for rule in layout)
    assert not any("transpose" in " ".join(rule.left + rule.right) for rule in substitution)


def test_gains_are_the_first_ones_time_over_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def lasting(nanoseconds: int) -> Callable[[], None]:
        return lambda: now.__setitem__(0, now[0] + nanoseconds)

    monkeypatch.setitem(timing.CLOCKS, "planted", lambda: now[0])
    result = timing.in_turns({"slow": lasting(6_000), "fast": lasting(2_000), "same": lasting(6_000)}, 0.01, "planted")
    assert result.gains["fast"].ratio.median == pytest.approx(3) and result.gains["fast"].verdict == "slower"
    assert result.gains["same"].verdict == "equivalent" and set(result.gains) == {"fast", "same"}
    assert result.seconds["slow"].median == pytest.approx(6e-6), "short calls are repeated, and counted one by one"
    assert result.control.median == pytest.approx(1)


def test_the_mean_is_geometric_and_over_the_rounds_that_all_have() -> None:
    def row(original: list[float], ours: list[float]) -> networks.Row:
        samples = {"original": np.array(original), "ours": np.array(ours)}
        return networks.Row("bert", "reference", timed=SimpleNamespace(samples=samples))  # type: ignore[arg-type]

    mean = networks.mean_gain([row([4.0] * 8, [1.0] * 8), row([1.0] * 6, [1.0] * 6), networks.Row("x", "y")])
    assert mean is not None and mean.median == pytest.approx(2) and mean.n == 6
    assert networks.mean_gain([networks.Row("x", "y", failure="none")]) is None


# -- planted faults ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("only", ["E2", "E3", "E4"])
def test_wrong_answers_are_called_wrong(only: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    plant(monkeypatch, shifted)
    assert recipe.main([*QUICK, "--only", only, "--networks", "repvgg"]) == 1
    printed = capsys.readouterr().out
    assert "WRONG: " in printed and "answers differ by" in printed


def test_a_failing_network_is_reported_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def refuse(network: Network) -> Network:
        if network.name == "repvgg":
            raise ValueError("planted\nand more")
        return network

    plant(monkeypatch, refuse)
    assert recipe.main([*QUICK, "--only", "E2", "--networks", "repvgg,nasrnn"]) == 1
    printed = capsys.readouterr().out
    assert "WRONG: repvgg in reference: ValueError: planted" in printed
    assert "geometric mean of original/ours in reference over 1 of the 7 networks: " in printed


def test_a_layer_that_is_gone_is_called_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda network: network)
    chosen = recipe.options([*QUICK, "--only", "E4"])
    (block,) = recipe.run(chosen)["E4"].blocks
    assert not block.wrong and set(block.layers.values()) == {1}
    changed = attention.AttentionBlock("reference", {**block.layers, "joint": 0}, timed=block.timed)
    assert "unequal numbers of layers" in changed.wrong


def test_picks_are_judged_by_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def sweep(**seconds: list[float]) -> Any:
        samples = {name.removeprefix("g"): np.array(values) for name, values in seconds.items()}
        medians = {name: SimpleNamespace(median=np.median(values)) for name, values in samples.items()}
        return SimpleNamespace(samples=samples, seconds=medians)

    slower = grouping.Sweep(512, 28, "b", sweep(g32=[2.0] * 8, g16=[1.0] * 8), 32)
    assert slower.best == 16 and slower.verdict == "SLOWER than the best: 2 [2, 2]"
    alike = grouping.Sweep(512, 28, "b", sweep(g32=[1.01] * 8, g16=[1.0] * 8), 32)
    assert alike.verdict.startswith("as fast as the best")
    assert grouping.Sweep(512, 28, "b", sweep(g32=[1.0] * 8, g16=[2.0] * 8), 32).verdict == "the best"
    assert "not one convolution" in grouping.Sweep(512, 28, "b", sweep(g32=[1.0] * 8), None).verdict


def test_rules_without_proof_and_wrong_axioms_are_called_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = SimpleNamespace(depth=2, seed=0, quick=True, backends=("reference",))
    good, bad = (SimpleNamespace(id=name, verdict=verdict) for name, verdict in (("a", "proved"), ("b", "unknown")))
    made: Any = SimpleNamespace(
        depth=2, seconds=1.0, memory=2.0, outcome=SimpleNamespace(rules=[good, bad], multiple=[], open=[], counts={})
    )
    outcome, _ = rules.generated(settings, lambda depth, seed: made)
    assert outcome.wrong == ["E1: rules kept without a proof: b"]
    verdicts: Any = SimpleNamespace(verdicts={"proved": 1, "unknown": 1}, seconds=0.1)
    monkeypatch.setattr(rules, "verification", lambda proved, seed, sample: verdicts)
    assert rules.verified(settings, made).wrong == ["E5: 1 rules proved anew; expected the 2 that E1 kept"]
    failed: Any = SimpleNamespace(exhaustive=False, combinations={"x": 3}, failures={"x": "here"}, seconds=0.1)
    monkeypatch.setattr(rules, "validation", lambda exhaustive, seed: failed)
    check = SimpleNamespace(backend="reference", dtype="float32", differences={"y": "there"})
    monkeypatch.setattr(rules, "real_kernels", lambda *_: SimpleNamespace(checks=(check,)))
    monkeypatch.setattr(rules, "find_spec", lambda name: None)
    outcome = rules.validated(settings)
    assert outcome.wrong == [
        "E6: axiom x is wrong: here",
        "E6: axiom y is wrong with kernels of reference in float32: there",
    ]
    assert "E6, symbols: not measured (Z3 is not installed)" in str(outcome)


# -- the command line -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "E7"], "got --only E7; expected some of"),
        (["--networks", "bort"], "did you mean 'bert'"),
        (["--backends", "torch"], "got --backends torch"),
        (["--budget", "-1"], "expected more"),
        (["--json", "no/such/folder.json"], "folder that exists"),
    ],
)
def test_options_are_checked(words: list[str], message: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        recipe.options(words)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_tables_page_and_json_say_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    plant(monkeypatch, lambda network: network)
    files = tmp_path / "found.json", tmp_path / "found.html"
    words = [*QUICK, "--only", "E2,E3,E4", "--networks", "nasrnn", "--json", str(files[0]), "--report", str(files[1])]
    assert recipe.main(words) == 0
    printed, page, result = capsys.readouterr().out, files[1].read_text(), json.loads(files[0].read_text())
    (row,) = result["E2"]["rows"]
    middle = row["timed"]["seconds"]["original"][0]
    assert middle == pytest.approx(np.median(row["timed"]["samples"]["original"]))
    assert f"{1e3 * middle:.3g} [" in printed and f"{1e3 * middle:.3g} [" in page
    assert row["seconds"] == 0.5 and row["steps"] == 1 and row["published_search"]["tensat_seconds"] == 0.5
    assert len(result["E3"]["sweeps"]) == 1 and all(sweep["picked"] == 32 for sweep in result["E3"]["sweeps"])
    assert set(result["E4"]["blocks"][0]["search"]) == set(LAYOUT)
    assert result["wrong"] == [] and result["about"]["options"]["clock"] == "cpu"
    assert "context only" in printed and "0 of the 7" not in printed
    assert page.startswith("<!DOCTYPE html>") and not re.search(r'(src|href)="(?!data:|#)', page)


def test_onnx_runtimes_own_levels_are_measured_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    load_backend("onnxruntime")
    plant(monkeypatch, lambda network: network)
    words = ["--dry-run", "--backends", "onnxruntime", "--only", "E2", "--networks", "repvgg", "--clock", "cpu"]
    (row,) = recipe.run(recipe.options(words))["E2"].rows
    assert row.timed is not None and not row.wrong
    assert set(row.timed.gains) == {"ours", "original, disabled", "original, basic", "ours, disabled", "ours, basic"}


def test_what_is_not_compiled_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    load_backend("pytorch")
    plant(monkeypatch, lambda network: network)
    words = ["--dry-run", "--backends", "pytorch", "--only", "E2", "--networks", "repvgg", "--clock", "cpu"]
    result = recipe.run(recipe.options(words))["E2"]
    assert result.rows[0].absent == dict.fromkeys(("original, compiled", "ours, compiled"), "not measured")
    assert str(result).count("not measured") >= 4
