"""``deep500 simulate``: tables that follow from what is given, on real recipes, with errors for what makes no sense."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from deep500 import cli
from deep500.compare.subject import Setting
from deep500.errors import InputError, ResultsError
from deep500.recipe.loader import find_recipe
from deep500.results.scaling import STRONG, WEAK, Scaling
from deep500.scaling import command as simulate
from deep500.scaling.model import Interconnect, all_reduce
from deep500.scaling.noise import Noise
from deep500.scaling.page import text
from deep500.scaling.prediction import Compute, Machine, predict, serial_share, step_seconds
from deep500.scaling.rig import Rig, SchemeChoice, parse_schemes

pytestmark = pytest.mark.slow

NETWORK = "alpha=1e-3,beta=1e-9,gamma=0"
NET = Interconnect.parse(NETWORK)
LENET_BYTES = 85544
"""Of its gradients, and 4 of the weight that goes with them."""


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig("reference", Setting(str(find_recipe("digits_lenet"))))


def given_times(rig: Rig, schemes: str) -> Compute:
    """Ten milliseconds, of which half does not depend on the batch; schemes that compute nothing."""
    compute = Compute({batch: np.full(20, 0.005 + 0.005 * batch / 32) for batch in range(1, 33)})
    compute.known_seconds = {(str(choice), few): 0.0 for choice in parse_schemes(schemes) for few in (2, 8)}
    return compute


def test_weak_scaling_is_the_step_and_its_messages(rig: Rig) -> None:
    names = "ConsistentDecentralized,LocalSGD(every=4)"
    table, why = predict(given_times(rig, names), rig, parse_schemes(names), [16, 4096], WEAK, Machine(NET))
    assert not why and [entry.ranks for entry in table.entries] == [16, 4096, 16, 4096]
    for entry in table.entries:
        message = all_reduce(NET, entry.ranks, LENET_BYTES + 4) / (4 if "LocalSGD" in entry.scheme else 1)
        assert entry.seconds.median == pytest.approx(0.01 + message)
        assert table.efficiency(entry).median == pytest.approx(0.01 / (0.01 + message))
        assert entry.global_batch == 32 * entry.ranks and entry.kind == "predicted"
    assert table.mode == WEAK and table.base.seconds.median == pytest.approx(0.01)
    assert {bound.name for bound in table.bounds} == {f"network alone, {name}" for name in names.split(",")}


def test_strong_scaling_ends_where_ranks_have_no_samples_and_knows_amdahl(rig: Rig) -> None:
    names = "ConsistentDecentralized"
    table, why = predict(given_times(rig, names), rig, parse_schemes(names), [4, 64], STRONG, Machine(NET))
    (entry,) = table.entries
    assert entry.seconds.median == pytest.approx(0.005 + 0.005 / 4 + all_reduce(NET, 4, LENET_BYTES + 4))
    assert why == {(names, 64): "32 samples are too few for 64 ranks"} and "too few for 64 ranks" in text(table, why)
    law = table.bounds[-1]
    assert law.name == "Amdahl, serial share 50.0%"
    assert law.seconds == pytest.approx([0.01 * (0.5 + 0.5 / 4), 0.01 * (0.5 + 0.5 / 64)])
    assert serial_share({32: np.ones(3)}) is None


def test_own_computation_is_added(rig: Rig) -> None:
    scheme = SchemeChoice.parse("TopK(ratio=0.5)")
    compute = given_times(rig, "TopK(ratio=0.5)")
    plain, network = step_seconds(compute, rig, scheme, 4, 128, Machine(NET))
    assert plain.median == pytest.approx(0.01 + network)
    compute.known_seconds = {(str(scheme), 2): 0.001, (str(scheme), 8): 0.007}  # it decodes what all ranks send
    more, _ = step_seconds(compute, rig, scheme, 4, 128, Machine(NET, cores=4))
    assert more.median == pytest.approx(0.01 + 0.003 + network)


def test_more_ranks_than_cores_are_refused(
    rig: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names, machine = "ConsistentDecentralized,InconsistentParameterServer", Machine(NET, cores=2)
    table, why = predict(given_times(rig, names), rig, parse_schemes(names), [2, 4], WEAK, machine)
    assert [entry.ranks for entry in table.entries] == [2, 2]
    refusal = "got 4 ranks on 2 cores; expected a core for each: waiting on shared cores is not modelled"
    assert all(why[name, 4].startswith(refusal) for name in names.split(",")) and refusal in text(table, why)
    monkeypatch.chdir(tmp_path)
    words = ["simulate", "digits_lenet", "--backend", "reference", "--network", NETWORK, "--dry-run"]
    assert cli.main([*words, "--ranks", "4", "--cores", "2", "--mode", "weak"]) == InputError.exit_code
    assert refusal in capsys.readouterr().err


def test_an_asynchronous_server_is_limited_by_its_link(rig: Rig) -> None:
    """With this network a gradient and the parameters take over 2 ms, so 4095 workers wait for 8 s and more."""
    names = "InconsistentParameterServer"
    table, _ = predict(given_times(rig, names), rig, parse_schemes(names), [2, 64], WEAK, Machine(NET))
    few, many = table.entries
    assert few.global_batch == 32 and few.seconds.median < 0.014
    service = 2 * NET.send(LENET_BYTES)
    assert many.seconds.median > 0.95 * 63 * service


def test_what_a_scheme_computes_is_measured(rig: Rig) -> None:
    assert rig.own_seconds(SchemeChoice.parse("QSGD"), 8, 10) > 0
    assert 0 < rig.update_seconds(3) < 1
    with pytest.raises(InputError, match="got a batch of 33; expected at most the recipe's 32"):
        rig.step(33)


def test_the_command_writes_tables_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "simulate",
        "digits_lenet",
        "--ranks",
        "8,4096",
        "--network",
        NETWORK,
        "--backend",
        "reference",
        "--schemes",
        "ConsistentDecentralized,SignSGD",
        "--out",
        str(tmp_path),
        "--dry-run",
    ]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "alpha 1e+03 us" in said and "each rank has its own core" in said and "strong scaling" in said
    folder = tmp_path / "simulate" / "digits_lenet"
    strong, weak = Scaling.read(folder / "strong"), Scaling.read(folder / "weak")
    assert strong is not None and weak is not None and (strong.mode, weak.mode) == (STRONG, WEAK)
    assert [e.ranks for e in strong.entries] == [8, 8] and len(weak.entries) == 4
    assert weak.base.seconds.median > 0 and all(e.seconds.median > weak.base.seconds.median / 2 for e in weak.entries)
    page = (folder / "scaling.html").read_text(encoding="utf-8")
    assert (
        page.count("<svg") == 8
        and "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
        and "4,096" in page
    )
    assert str(folder / "scaling.html") in said


def test_times_of_a_run_are_taken_from_its_folder(tmp_path: Path, rig: Rig) -> None:
    run = ["run", "digits_lenet", "--backend", "reference", "--dry-run", "--quiet", "--out", str(tmp_path)]
    cli.main(run)
    (folder,) = (tmp_path / "digits_lenet").glob("20*")
    durations = simulate._recorded(folder, rig, "digits_lenet")
    assert durations.size >= 1 and (durations > 0).all()
    with pytest.raises(ResultsError, match="got a run of 'digits_lenet'"):
        simulate._recorded(folder, rig, "another")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["resolved"]["recipe"]["batch_size"] = 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ResultsError, match="got steps of 64 samples; expected 32"):
        simulate._recorded(folder, rig, "digits_lenet")
    with pytest.raises(InputError, match="expected those of 8"):
        Compute({32: durations}).trace(8)


def test_labels_of_a_run_and_of_what_was_measured_are_those_of_a_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Busy times are observations in every form, as the run's own page says: heading, table, file, page."""
    run = ["run", "digits_lenet", "--backend", "reference", "--dry-run", "--quiet", "--out", str(tmp_path)]
    cli.main(run)
    (folder,) = (tmp_path / "digits_lenet").glob("20*")
    summary = json.loads((folder / "summary.json").read_text())
    words = [
        "simulate",
        "digits_lenet",
        "--backend",
        "reference",
        "--network",
        NETWORK,
        "--ranks",
        "2",
        "--mode",
        "weak",
    ]
    words += ["--schemes", "ConsistentDecentralized", "--rounds", "5", "--from", str(folder), "--out", str(tmp_path)]
    place = tmp_path / "simulate" / "digits_lenet"
    for of_run, disturbing, known in (
        (["busy machine"], [], ["busy machine"]),
        (["open division"], [], ["open division"]),
        ([], ["other processes took 60 %"], ["busy machine"]),
    ):
        (folder / "summary.json").write_text(json.dumps({**summary, "labels": of_run}))
        monkeypatch.setattr(Rig, "disturbed", lambda _, what=disturbing: what)
        capsys.readouterr()
        assert cli.main(words) == 0
        said, table = capsys.readouterr().out, Scaling.read(place / "weak")
        assert table is not None and table.labels == tuple(known) and f"weak scaling [{known[0]}]" in said
        assert f"[{known[0]}]</h2>" in (place / "scaling.html").read_text()
        point, efficiency = table.entries[0].seconds, table.efficiency(table.entries[0])
        busy = "busy machine" in known
        assert (point.low is None) == (efficiency.low is None) == busy and ("observation" in said) == busy


def test_what_disturbs_measurements_of_a_rig_is_noted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.loads.clear()
    rig.trace(8, 3, 0.1)
    (load,) = rig.loads
    monkeypatch.setattr(rig, "loads", [{**load, "seconds": 2.0, "cpus": 2, "busy": 3.9, "own": 0.4}])
    assert rig.disturbed() == ["other processes took 88 % of its 2 processors"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--ranks": "16,x"}, "expected whole numbers of at least 1"),
        ({"--ranks": "0"}, "expected whole numbers of at least 1"),
        ({"--network": "fast"}, "or: measured"),
        ({"--schemes": "Nobody"}, "got scheme 'Nobody'; expected one of"),
        ({"--schemes": "LocalSGD(often=2)"}, "expected LocalSGD"),
        ({"--schemes": "LocalSGD(2"}, "expected a name, or name(argument=value)"),
        ({"--ranks": "64", "--mode": "strong"}, "none of which can be predicted"),
    ],
)
def test_bad_input_gives_one_error(
    change: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"--ranks": "16", "--network": NETWORK, "--backend": "reference", "--out": str(tmp_path), **change}
    words = [word for pair in options.items() for word in pair]
    assert cli.main(["simulate", "digits_lenet", "--dry-run", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("error") == 1 and "Traceback" not in error


@pytest.mark.mpi
def test_real_ranks_time_steps_and_their_network(rig: Rig) -> None:
    from deep500.scaling.ranks_job import fitted, on_ranks
    from tests.distributed import ranks

    if ranks.missing():
        pytest.skip(str(ranks.missing()))
    net = fitted(on_ranks(2, {"do": "network", "rounds": 5}))
    assert net.alpha + net.beta > 0
    setting = {"recipe": str(find_recipe("digits_lenet")), "overrides": []}
    job = {
        "do": "steps",
        "setting": setting,
        "framework": "reference",
        "global_batch": 9,
        "blocks": 2,
        "block_seconds": 0.01,
        "scheme": "LocalSGD(every=2)",
        "timed": 8,
    }
    times = on_ranks(2, job)
    assert times["workers"] == 2 and len(times["seconds"]) == 2 and times["steps_per_block"] % 2 == 0
    assert len(times["compute"]) == 2 * 2 * times["steps_per_block"] and min(times["compute"]) > 0
    assert times["ranks"]["sent"] == [LENET_BYTES / 2] * 2 and len(times["ranks"]["seconds"]) == 2


def test_the_options_have_help() -> None:
    parser = argparse.ArgumentParser()
    assert callable(simulate.add_command(parser))
    assert "alpha=.." in parser.format_help()


def test_noise_is_taken_out_of_the_times_and_put_under_all_that_ranks_do(rig: Rig) -> None:
    """One rank is as slow as it was measured; of two, whose detours fall apart, each waits for the other's."""
    names, ends = "ConsistentDecentralized", []
    for first in (0, 100):
        ends.append(np.cumsum([1e-4 * (20 if number % 200 == first else 1) for number in range(6000)]))
    noise, compute = Noise(1e-4, [ends]), given_times(rig, names)
    (scheme,) = parse_schemes(names)
    assert noise.dilation == pytest.approx(1.095)
    alone, _ = step_seconds(compute, rig, scheme, 1, 32, Machine(NET, noise=noise))
    assert alone.median == pytest.approx(0.01, rel=0.02)
    both, network = step_seconds(compute, rig, scheme, 2, 64, Machine(NET, noise=noise))
    assert (0.01 / 1.095 + network) * 1.15 < both.median < (0.01 / 1.095 + network) * 1.25


def test_noise_is_measured_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    record = [0.001 * number + (0.0001 if number > 5 else 0) for number in range(1, 11)]
    asked = []
    monkeypatch.setattr(
        simulate, "on_ranks", lambda ranks, job: asked.append((ranks, job)) or {"noise": [[record] * 2]}
    )
    words = ["--network", NETWORK, "--noise", "measured", "--ranks", "4", "--mode", "weak", "--dry-run"]
    words += ["--schemes", "ConsistentDecentralized", "--backend", "reference", "--out", str(tmp_path)]
    assert cli.main(["simulate", "digits_lenet", *words]) == 0
    assert asked == [(2, {"do": "noise"})] and "a second of work takes 1.01 s" in capsys.readouterr().out
