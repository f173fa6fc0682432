"""Every relation between facts of a run holds in honest runs, and is noticed when one of its facts is changed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from deep500 import metrics as m
from deep500.errors import ResultsError
from deep500.networks import add_loss, create
from deep500.recipe import run_recipe
from deep500.results.division import write_division
from deep500.results.relations import RELATIONS, findings, matches
from deep500.results.rules import RunView
from deep500.results.verify import seal, verify
from deep500.transformations.parallel.planning import Wishes, parallelize
from tests.recipes.common import quick
from tests.results.broken_folders import Folder
from tests.results.careful_lies import LIES
from tests.results.later_lies import LATER, UNKNOWN
from tests.results.mutations import all_leaves, found, is_unknowable, mutated, table

METRICS = [
    (m.TestAccuracy(), 20.0),
    *((m.StepLatency(q), None) for q in (0.5, 0.9)),
    *((kind(), None) for kind in (m.WallTime, m.TrainingTime, m.TimingBreakdown, m.IOShare, m.FlopRate, m.RoofShare)),
    *((kind(), None) for kind in (m.PeakMemory, m.CPUUtilisation, m.EnergyUse, m.CommunicationVolume)),
    (m.TopKAccuracy(3), None),
    (m.OfflineThroughput(32, 64), None),
    (m.Carbon(400, "a round figure"), None),
    (m.Cost({"cpu": 0.05}), None),
]


def honest(out, *argv, backend="reference", **changes):
    """An honest run of every metric."""
    changes = {"epochs": 2, "augmentation": None, "validation_split": 0.1, "metrics": METRICS, **changes}
    return Path(run_recipe(*quick(backend, **changes), argv=[*argv, "--quiet", "--out", str(out)]).path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run that is changed."""
    return honest(tmp_path_factory.mktemp("honest"), "batch_size=64", "--repeat", "2", "--seed", "3")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another honest run, from which values are taken."""
    return honest(tmp_path_factory.mktemp("other"), "--seed", "7", epochs=1)


def twin(folder):
    """Steps of the second launch are those of the first, three per mille apart, and one after the other."""
    rng, first = np.random.default_rng(0), []

    def change(block, about):
        if about["launch"] == 3:
            first.append(block["duration_ns"])
        else:
            jitter = 1 + 0.003 * rng.standard_normal(len(block))
            block["duration_ns"] = first[about["from"] // len(block)] * jitter
        return block

    folder.edit_samples(change, ("step",))


def coarse(folder):
    """Steps of one launch by a clock of whole microseconds."""

    def change(block, about):
        block["duration_ns"] -= block["duration_ns"] % (1000 if about["launch"] == 4 else 1)
        return block

    folder.edit_samples(change, ("step",))


def waiting(folder):
    """Somebody waited all the time, and no CPU worked: as no neighbour of a run of seconds does."""

    def change(lines):
        for line in lines:
            line["load"].update(seconds=5.0, busy=0.1, pressure=4.5)

    folder.edit_lines("metrics.jsonl", change)


def divided(folder):
    """A division that sends more than its plan, by its total alone."""
    network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=2))
    plan = parallelize(network, 2, {"input": (4, 4), "label": (4,)}, wishes=Wishes(pins={"fc1": "n", "fc2": "k"}))
    plan.save(folder.path / "parallel_plan.json")
    write_division(folder.path, plan, plan.explain(network))
    (honest_division,) = (relation for relation in RELATIONS if relation.about == A_DIVISION)
    assert list(honest_division.broken(RunView(folder.path))) == []
    folder.edit("division.json", lambda content: content.update(nbytes=content["nbytes"] + 1))


def cut(folder):
    """The slowest third of the steps took as long as the slowest of the others."""

    def change(block, about):
        block["duration_ns"] = np.minimum(block["duration_ns"], int(np.percentile(block["duration_ns"], 66)))
        return block

    folder.edit_samples(change, ("step",))


def uncounted(folder):
    """Energy by a counter that the machine does not have."""

    def change(seeds):
        for entry in seeds.values():
            entry["notes"]["energy"]["details"].update(sources=["package-7"], watts=40.0)

    folder.edit("seeds.json", change)


A_DIVISION = "a divided network against its plan"
BY_HAND = {
    A_DIVISION: divided,
    "launches against each other": twin,
    "clock of the samples against itself": coarse,
    "counters of energy against the machine's": uncounted,
    "neighbours against pressure": waiting,
    "samples against each other": cut,
}
"""Changes for relations that no single leaf of JSON breaks in a run of milliseconds."""

TRIES = 60
EMPTY = ("ranks", "resumed", "opened", "resolved.opened", "environment.hardware.gpus")
"""Facts that are empty in a closed run of one process on a CPU."""


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.about)
def test_a_relation_holds_and_notices_when_a_fact_of_its_own_is_changed(relation, run, other, tmp_path):
    assert list(relation.broken(RunView(run))) == []
    folder = Folder(run, tmp_path / "copy")
    if relation.about in BY_HAND:
        BY_HAND[relation.about](folder)
        assert list(relation.broken(RunView(folder.path)))
        return
    facts = [fact.partition(":")[::2] for fact in relation.facts]
    known = list(all_leaves(run))
    rng, noticed = random.Random(0), set()
    for file, pattern in facts:
        of_fact = [(f, p, v) for f, p, v in known if f == file and matches(pattern, p[file.endswith("jsonl") :])]
        assert of_fact or pattern in EMPTY or file == "samples", f"{file}:{pattern} leads to nothing"
        before = (folder.path / file).read_bytes() if of_fact else b""
        for _ in range(TRIES if of_fact else 0):
            name, path, value = rng.choice(of_fact)
            mutated(folder.path, other, name, path, value, rng)
            try:
                noticed |= {(file, pattern)} if list(relation.broken(RunView(folder.path))) else set()
            except (ResultsError, KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError):
                continue  # a finding as well, but not what is tried here
            finally:
                (folder.path / file).write_bytes(before)
            if (file, pattern) in noticed:
                break
    assert noticed, "no change of its facts was noticed"


def test_a_sample_of_all_leaves_is_flagged_unless_nothing_determines_them(run, other, tmp_path):
    assert found(run) == found(other) == []
    rng, results = random.Random(1), []
    known = [leaf for leaf in all_leaves(run) if "packages" not in leaf[1]]
    for file, path, value in rng.sample(known, 60):
        folder = Folder(run, tmp_path / "copy")
        mutation = mutated(folder.path, other, file, path, value, rng)
        results.append((mutation, bool(found(folder.path, page=file == "claims.json"))))
        shutil.rmtree(tmp_path / "copy")
    silent = [mutation for mutation, flagged in results if not flagged]
    assert [mutation for mutation in silent if not is_unknowable(mutation)] == [], table(results)
    assert len(silent) <= 12, table(results)


KINDS = {
    "no test data": {"validation_split": None},
    "augmented": {"augmentation": quick("reference")[0].get("augmentation")},
    "smoothed steps": {"batch_size": 50},
}


@pytest.mark.parametrize("kind", KINDS)
def test_honest_runs_raise_no_alarm(kind, tmp_path):
    assert verify(honest(tmp_path, "--repeat", "2", **KINDS[kind])) == []


def test_a_relation_whose_fact_is_gone_is_a_finding(run, tmp_path):
    folder = Folder(run, tmp_path / "copy")
    folder.edit("manifest.json", lambda manifest: manifest.pop("device") and None)
    assert any("cannot be held against each other (KeyError" in problem for problem in findings(RunView(folder.path)))


def share(**details):
    """Another share of waiting, and the numbers that it follows from."""

    def apply(seeds):
        for entry in seeds.values():
            behind = entry["notes"]["io_share"]["details"]
            seconds = behind.pop("train_seconds")
            behind.update({name: to(seconds, entry) for name, to in details.items()})
            entry["values"]["io_share"] = 100 * behind["io"] / behind[next(iter(details))]

    return lambda folder: folder.edit("seeds.json", apply)


def recipe(**facts):
    """Another word of the resolved recipe, and of the data."""
    name = facts.pop("data", None)

    def apply(manifest):
        manifest["resolved"]["recipe"].update(facts)
        for half in manifest["data"].values() if name else ():
            half["name"] = name

    return lambda folder: folder.edit("manifest.json", apply)


def other_row(folder):
    """One sample of the first class is said to be of the second, and taken for the same."""

    def change(content):
        values = next(shown for shown in content["exhibits"] if shown["kind"] == "matrix")["values"]
        place = next(place for place in range(2, 10) if values[0][place])
        values[0][place], values[1][place] = values[0][place] - 1, values[1][place] + 1

    folder.edit("exhibits.json", change)


def twice(folder):
    """Twice the operations, in all metrics that tell of them."""

    def change(seeds):
        for entry in seeds.values():
            for name in ("flop_rate", "roof_share"):
                entry["notes"][name]["details"]["FLOP_per_sample"] *= 2
                entry["values"][name] *= 2

    folder.edit("seeds.json", change)


def halved(folder):
    """Half the peak of memory."""

    def change(seeds):
        for entry in seeds.values():
            entry["values"]["peak_memory_host"] //= 2

    folder.edit("seeds.json", change)


def other_maker(manifest):
    """A CPU of one maker by the name of another's."""
    manifest["environment"]["cpu"] = "AMD EPYC"
    manifest["environment"]["hardware"]["vendor"] = "GenuineIntel"


CONSISTENT = {
    "io_share: train_seconds of": share(train_seconds=lambda seconds, entry: entry["wall_seconds"]),
    "io_share: training of": share(training=lambda seconds, entry: 20 * entry["wall_seconds"]),
    "momentum of the checkpoint": recipe(optimizer_kwargs={"lr": 0.1, "momentum": 0.8}),
    "which has no dampening": recipe(optimizer="deep500.training.optimizers.adam:AdamOptimizer", optimizer_kwargs={}),
    "checkpoints: of seed 3 (none)": lambda folder: shutil.rmtree(folder.path / "checkpoints"),
    "a run keeps the newest 1 epochs": recipe(keep_checkpoints=1),
    "samples of class 0; the data": other_row,
    "operations of a sample by roof_share": twice,
    "peak_memory_host of seed 3 is": halved,
    "the CPU": lambda folder: folder.edit("manifest.json", other_maker),
    "the ledger has the run": lambda folder: folder.edit(
        "manifest.json", lambda m: m.update(started="2025" + m["started"][4:])
    ),
    "the network of the recipe": recipe(model="resnet"),
    "the train data of the recipe": recipe(data="MNIST"),
    "device cpu:1; asked for was": lambda folder: folder.edit(
        "manifest.json", lambda m: m["device"].update(used="cpu:1")
    ),
}
"""Lies that agree with all that stands beside them, and what notices them elsewhere in the folder."""


@pytest.mark.parametrize("words", CONSISTENT)
def test_a_lie_that_is_consistent_where_it_stands_is_noticed(words, run, tmp_path):
    folder = Folder(run, tmp_path / "copy")
    CONSISTENT[words](folder)
    assert any(
        words in problem or words in problem.replace(" of seed 3", "") for problem in findings(RunView(folder.path))
    )


def without_schema(file):
    del (content := json.loads(file.read_text()))["schema"]
    file.write_text(json.dumps(content))


FORMS = {
    "gone": lambda file: file.unlink(),
    "another object": lambda file: file.write_text("{}"),
    "cut": lambda file: file.write_text(file.read_text()[:-3]),
    "without schema": without_schema,
}


WAYS = [
    *((name, way) for name in ("rules.json", "network.json") for way in FORMS),
    *((name, way) for name in ("metrics.jsonl", "journal.jsonl") for way in ("gone", "another object", "cut")),
    ("report.html", "gone"),
]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_file_that_is_not_what_its_schema_says_is_a_finding(name, way, run, tmp_path):
    folder = Folder(run, tmp_path / "copy")
    FORMS[way](folder.path / name)
    seal(folder.path)
    assert verify(folder.path)


SILENT = ("a twin with jitter", "no warm-up", "memory below that of the interpreter", "nobody waited for a CPU")
"""Of the lies that were written down first, those that are not noticed."""


@pytest.mark.slow
def test_four_of_five_careful_lies_are_flagged(tmp_path):
    source = honest(tmp_path / "source", "--repeat", "3", "--seed", "0", epochs=3)
    assert found(source) == []
    silent = []
    for number, (name, change) in enumerate(LIES.items()):
        folder = Folder(source, tmp_path / str(number))
        change(folder)
        seal(folder.path)
        silent += [] if found(folder.path) else [name]
    assert len(LIES) == 25 and set(silent) <= set(SILENT)


@pytest.mark.long
def test_later_lies_are_flagged_where_something_tells_of_them(tmp_path):
    source = honest(tmp_path / "source", "batch_size=64", "--repeat", "3", "--seed", "3", epochs=3)
    silent = set()
    for number, (name, change) in enumerate(LATER.items()):
        folder = Folder(source, tmp_path / str(number))
        change(folder)
        seal(folder.path)
        silent |= set() if found(folder.path) else {name}
    assert len(LATER) == 47 and silent <= set(UNKNOWN)
