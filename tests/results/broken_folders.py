"""Ways to break a results folder so that its seal still fits: each changes a copy of a real run and seals it anew.

The first table is what a reviewer's folders did, the second is more of the kind. Beside each stands who must notice:
ids of rules, or a part of what ``verify`` says.
"""

from __future__ import annotations

import json
import shutil
import zlib

import numpy as np

from deep500.measure.fingerprint import fingerprint
from deep500.report.claims import write_claims
from deep500.report.page import write_report
from deep500.results import Record, ledger
from deep500.results.files import to_json
from deep500.results.record import full_hash
from deep500.results.rules import write_rules
from deep500.results.samples import PAIR
from deep500.results.verify import seal, write_stats


class Folder:
    """A copy of a run with its ledger, to be changed and sealed anew."""

    def __init__(self, source, into):
        into.mkdir(parents=True, exist_ok=True)
        self.path = into / source.name
        shutil.copytree(source, self.path)
        shutil.copy(source.parent / ledger.NAME, into / ledger.NAME)

    def edit(self, name, change):
        """Change the object in a JSON file."""
        content = json.loads((self.path / name).read_text())
        replaced = change(content)
        (self.path / name).write_text(to_json(content if replaced is None else replaced) + "\n")

    def edit_lines(self, name, change, folder=None):
        """Change the list of objects in a file of lines."""
        path = (folder or self.path) / name
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        replaced = change(lines)
        lines = lines if replaced is None else replaced
        path.write_text("".join(to_json(line, indent=None) + "\n" for line in lines))

    def edit_samples(self, change, series=None):
        """Change the samples of all or some series, block by block, with a journal that fits."""
        journal = [json.loads(line) for line in (self.path / "journal.jsonl").read_text().splitlines()]
        files, lines = {}, []
        for block in journal:
            key = f"{block['series']}.{block['launch']}.i64"
            whole = np.frombuffer((self.path / "samples" / key).read_bytes(), PAIR)
            piece = whole[block["from"] : block["from"] + block["n"]].copy()
            if series is None or block["series"] in series:
                piece = change(piece, block)
            begun = files.setdefault(key, [])
            before = sum(map(len, begun))
            begun.append(piece)
            lines.append({**block, "from": before, "n": len(piece), "crc32": zlib.crc32(piece.tobytes())})
        for key, pieces in files.items():
            (self.path / "samples" / key).write_bytes(np.concatenate(pieces).tobytes())
        (self.path / "journal.jsonl").write_text("".join(to_json(line, indent=None) + "\n" for line in lines))

    def chain(self, change):
        """Change the ledger and compute its hashes anew."""

        def apply(entries):
            replaced = change(entries)
            entries, before = entries if replaced is None else replaced, ledger.FIRST
            for number, entry in enumerate(entries):
                entry.update(number=number, before=before)
                entry.pop("hash", None)
                entry["hash"] = before = full_hash(entry)
            return entries

        self.edit_lines(ledger.NAME, apply, self.path.parent)

    def anew(self):
        """Compute statistics, claims, rules and the report from the changed files, as a careful forger does."""
        write_stats(self.path)
        write_claims(self.path)
        write_rules(self.path)
        write_report(Record(self.path))

    def claim(self, **claim):
        """Add a claim of an author."""
        self.edit("claims.json", lambda content: content["claims"].append(claim))
        write_rules(self.path)


# -- changes -----------------------------------------------------------------------------------------------------------
def claim(**fields):
    """One more claim."""
    return lambda folder: folder.claim(**fields)


def manifest(change, anew=False):
    """Another manifest."""

    def apply(folder):
        folder.edit("manifest.json", change)
        if anew:
            folder.anew()

    return apply


def summary(change):
    """Another summary."""
    return lambda folder: folder.edit("summary.json", change)


def metric(number=0, **fields):
    """Other fields of a metric in the summary."""
    return summary(lambda content: content["metrics"][number].update(fields))


def curve(change, anew=False):
    """Other lines of the curve."""

    def apply(folder):
        folder.edit_lines("metrics.jsonl", lambda lines: [change(line) or line for line in lines])
        if anew:
            folder.anew()

    return apply


def samples(change, series=None):
    """Other samples, and everything that follows from them."""

    def apply(folder):
        folder.edit_samples(change, series)
        folder.anew()

    return apply


def both(*changes):
    """One change after the other."""

    def apply(folder):
        for change in changes:
            change(folder)

    return apply


def drop_slowest(block, about):
    """Without the slowest fifth of the steps."""
    most = np.sort(block["duration_ns"])[-max(1, len(block) // 5)]
    return block[block["duration_ns"] < most]


def divided(by, starts=False):
    """Durations, and if wanted their starts, divided."""

    def change(block, about):
        block["duration_ns"] //= by
        if starts:
            block["start_ns"] //= by
        return block

    return change


def seconds_divided(line, by=10):
    """The curve's times, to go with samples that were divided."""
    for name in ("train_seconds", "test_seconds"):
        line[name] /= by


def untold(folder, runs=40):
    """The ledger has forty runs before this one, the summary tells of one."""
    folder.chain(lambda entries: [{"run": f"run-{n}", "at": "then"} for n in range(runs)] + entries)

    def tell(content):
        entries = [json.loads(line) for line in (folder.path.parent / ledger.NAME).read_text().splitlines()]
        content["ledger"] = {"entry": runs, "entries": len(entries), "head": entries[-1]["hash"]}

    folder.edit("summary.json", tell)
    folder.anew()


def without_entry(folder):
    """A ledger that never had this run."""
    folder.chain(lambda entries: [{**entry, "run": "another", "configuration_sha256": "0" * 64} for entry in entries])


def one_seed_many_times(folder):
    """Every seed is the first one, under another number."""

    def change(lines):
        first = {line["epoch"]: line for line in lines if line["seed"] == lines[0]["seed"]}
        return [{**first[line["epoch"]], "seed": line["seed"]} for line in lines]

    folder.edit_lines("metrics.jsonl", change)
    folder.edit("seeds.json", lambda seeds: {name: next(iter(seeds.values())) for name in seeds})
    shutil.rmtree(folder.path / "checkpoints")
    folder.anew()


def same_samples(folder):
    """The samples of the first launch, for every launch."""
    for launch in (1, 2):
        shutil.copy(folder.path / "samples" / "step.0.i64", folder.path / "samples" / f"step.{launch}.i64")
    folder.edit_samples(lambda block, about: block)
    folder.anew()


def stop_early(folder):
    """Two of many epochs, under a rule that was written afterwards."""
    planned = lambda m: (m["resolved"]["recipe"].update(epochs=50), m.update(stopping_rule="until it was good"))  # noqa: E731
    folder.edit("manifest.json", lambda m: (planned(m), None)[1])
    folder.anew()


def take_out(*names):
    """Parts taken out of the breakdown, in the claims and behind the metric."""

    def apply(folder):
        def cut(content):
            for claimed in content["claims"]:
                if claimed["type"] == "breakdown":
                    claimed["parts"] = {n: s for n, s in claimed["parts"].items() if n not in names}
                    claimed["wall"] = sum(claimed["parts"].values())

        folder.edit("claims.json", cut)
        write_rules(folder.path)

    return apply


def take_out_of_metric(*names):
    """The same, down to the details of the metric in the summary and the seeds, and everything made of them anew."""

    def apply(folder):
        def cut(details):
            for name in names:
                details.pop(name, None)

        def of_summary(content):
            for measured in content["metrics"]:
                if measured["name"] == "timing_breakdown":
                    for details in measured["details"]:
                        cut(details)

        folder.edit("summary.json", of_summary)
        folder.edit(
            "seeds.json", lambda s: [cut(e["notes"]["timing_breakdown"]["details"]) for e in s.values()] and None
        )
        folder.anew()

    return apply


def environment(change, fix_hash=False):
    """Another environment, with its own hash if wanted."""

    def apply(folder):
        def both_of(content):
            change(content["environment"])
            if fix_hash:
                content["environment_sha256"] = fingerprint(content["environment"])

        folder.edit("manifest.json", both_of)
        write_rules(folder.path)

    return apply


ROWS = [
    {"processes": 1, "seconds": 8.0, "global_batch": 64, "quality": 95.0, "quality_low": 94.0},
    {"processes": 4, "seconds": 1.2, "global_batch": 64, "quality": 95.0, "quality_low": 94.0},
]
RATE = {"flops": 1e9, "counted_flops": 2e9, "seconds": 2.0, "bound": 4e9}
SLOWER = [1.2, 1.4]
BASE = {"kind": "serial-best", "seconds": 8.0}

# fmt: off
REVIEWERS = {
    "accuracy of 99.9 in the summary, against the curve": (
        metric(value=99.9, values=[99.9] * 3), "summary.json: value"),
    "accuracy of 99.9 in the seeds, too": (both(
        lambda f: f.edit("seeds.json", lambda s: [e["values"].update(test_accuracy=99.9) for e in s.values()] and None),
        metric(value=99.9, values=[99.9] * 3, low=99.9, high=99.9)), "follows from metrics.jsonl"),
    "slowest fifth of the steps dropped": (samples(drop_slowest, ("step",)), "steps; 3 epochs have"),
    "slowest fifth dropped, in the curve, too": (both(
        lambda f: f.edit_lines("metrics.jsonl", lambda ls: [
            line["clock"].update(steps=9) for line in ls] and None),
        samples(drop_slowest, ("step",))), "the run has 11 batches"),
    "times of steps divided by ten": (both(curve(seconds_divided), samples(divided(10))), "F5"),
    "times and starts divided by ten": (both(curve(seconds_divided), samples(divided(10, True))), "follows from"),
    "training data are test data": (manifest(
        lambda m: m["data"]["validation"].update(digest=m["data"]["train"]["digest"]), True), "F2"),
    "input and output taken out of the breakdown": (take_out("io"), "does not follow"),
    "validation taken out of the breakdown": (take_out("validation"), "does not follow"),
    # all but updates: of a run of so few milliseconds input and validation alone are within what F5 allows
    "most taken out of the metric, and all made anew": (
        take_out_of_metric("io", "validation", "forward_backward", "other"), "F5"),
    "eight launches of one seed": (one_seed_many_times, "R5"),
    "the samples of one launch, thrice": (same_samples, "to the nanosecond"),
    "empty environment": (environment(lambda e: e.clear(), True), "R9"),
    "environment of nulls": (environment(lambda e: e.update(dict.fromkeys(e)), True), "R9"),
    "stale hash of the environment": (environment(lambda e: e.update(cpu="a faster one")), "R9"),
    "forty tuning runs untold": (untold, "F3"),
    "ledger without this run": (without_entry, "F3"),
    "no ledger": (lambda f: (f.path.parent / ledger.NAME).unlink(), "F3"),
    "claim of a speed-up": (claim(type="speed-up", value=3.0), "D1"),
    "claim that it outperforms": (claim(type="outperforms", by="us"), "D1"),
    "misspelt field": (claim(type="speedup", value=3.0, base=BASE, flavour="x"), "D1"),
    "faster with 1.2 to 1.4 times the time": (claim(
        type="comparison", verdict="faster", p=0.001, corrected=True, effect=SLOWER, margin=0.02), "R7"),
    "slower with half the time": (claim(
        type="comparison", verdict="slower", p=0.001, corrected=True, effect=[0.5, 0.6], margin=0.02), "R7"),
    "speed-up as a metric": (metric(1, name="speedup"), "R1"),
    "bar that is cut although from zero": (claim(
        type="plot", kind="bar", x="categorical", from_zero=True, axis=[90, 100], n=9), "R12"),
    "bar whose axis is not told": (claim(type="plot", kind="bar", x="categorical", from_zero=True, n=9), "R12"),
    "better than linear scaling": (claim(
        type="scaling", rows=ROWS, bounds=["ideal"], labels=["strong"]), "R11"),
    "peak whose precision is not told": (claim(type="rate", **RATE, dtype="float32"), "F7"),
    "peak in another precision": (claim(type="rate", **RATE, dtype="float16", peak_dtype="float32"), "F7"),
    "three of fifty epochs under a free text": (stop_early, "F10"),
    "claims emptied": (lambda f: (f.edit("claims.json", lambda c: c["claims"].clear()), write_rules(f.path)), "D1"),
    "claims removed": (lambda f: ((f.path / "claims.json").unlink(), write_rules(f.path)), "D1"),
    "speed of another configuration": (lambda f: (f.edit("claims.json", lambda c: [
        x.update(config_sha256="aa") for x in c["claims"] if x["type"] == "headline"] and None),
        write_rules(f.path)), "F8"),
    "another recipe file": (manifest(lambda m: m.update(recipe_sha256="1" * 64), True), "configuration_sha256"),
}
"""What a reviewer's folders did; rules and ``verify`` used to pass 32 of 34."""


def plot_moved(folder):
    """A plot of the report drawn otherwise, in the page alone."""
    page = folder.path / "report.html"
    page.write_text(page.read_text().replace("PASSED", "PASSED WITH DISTINCTION", 1))


def lines_of_seed(seed, **fields):
    """Other fields in all lines of one seed."""
    return curve(lambda line: line.update(fields) if line["seed"] == seed else None)


def rule_says(name, **fields):
    """Another finding in ``rules.json``."""
    return lambda folder: folder.edit("rules.json", lambda content: content["rules"][name].update(fields))


def swap_clock(line):
    """A wall time in which the parts do not fit."""
    line["clock"]["wall_seconds"] = 0.5 * line["train_seconds"]


def shuffle(block, about):
    """Steps in another order, slow ones last, each at the time of another."""
    block["duration_ns"] = np.sort(block["duration_ns"])
    return block


def overlap(block, about):
    """Steps that begin before the last one ended."""
    block["start_ns"] = block["start_ns"][0] + (block["start_ns"] - block["start_ns"][0]) // 4
    return block


def estimates(change):
    """Other estimates of the steps."""

    def apply(content):
        for estimate in content["series"]["step"]["estimates"]:
            change(estimate)

    return lambda folder: folder.edit("stats.json", apply)


def busy(line):
    """Nine of ten parts of both processors went to others, for two seconds an epoch."""
    line["load"].update(seconds=2.0, cpus=2, busy=3.9, own=0.2)


def no_tail(folder):
    """A plan without the tails, and statistics to match."""
    folder.edit("manifest.json", lambda m: m["series"]["step"]["plan"].update(
        targets=[t for t in m["series"]["step"]["plan"]["targets"] if t["q"] == 0.5]))
    folder.anew()


def entry_renamed(folder):
    """The run's own entry is said to be another's."""
    folder.chain(lambda entries: entries[0].update(run="another"))


def exchange_entries(folder):
    """An entry of the ledger that was another when the run ended."""
    folder.chain(lambda entries: entries[0].update(at="earlier"))


def remove_entries(folder):
    """The runs before it are taken out of the ledger, whose chain is made anew."""
    untold(folder)
    folder.edit("summary.json", lambda content: content["tuning"].update(runs=41))
    folder.chain(lambda entries: entries[-1:])


def remove_seed(folder):
    """The worst seed was never there."""
    folder.edit("manifest.json", lambda m: m.update(seeds=m["seeds"][:-1]))
    folder.edit("seeds.json", lambda s: {k: v for k, v in list(s.items())[:-1]})
    folder.edit_lines("metrics.jsonl", lambda lines: [line for line in lines if line["seed"] != 2])
    folder.edit("summary.json", lambda c: c.update(seeds=[0, 1]))


OWN = {
    "another verdict": (metric(verdict="PASSED", target=99.0), "summary.json: target"),
    "a lower target": (metric(target=1.0), "summary.json: target"),
    "a metric left out": (summary(lambda c: c["metrics"].pop(0) and None), "no test_accuracy"),
    "a metric added": (summary(
        lambda c: c["metrics"].append({**c["metrics"][0], "name": "top_1_accuracy"})), "no metric"),
    "a verdict over all that is not": (summary(lambda c: c.update(verdict="PASSED with honours")), "verdict"),
    "labels taken off": (both(manifest(lambda m: m["data"]["train"].update(stand_in=True)), lambda f: f.anew()), "F6"),
    "an observation called a result": (metric(standing="result"), "R5"),
    "direction turned": (metric(direction="lower"), "summary.json: direction"),
    "one value of a seed better": (lambda f: f.edit(
        "seeds.json", lambda s: s["1"]["values"].update(test_accuracy=99.0)), "follows from metrics.jsonl"),
    "training time of a seed shorter": (lambda f: f.edit(
        "seeds.json", lambda s: s["1"]["values"].update(training_time=1e-3)), "follows from metrics.jsonl"),
    "curve better, checkpoints as they were": (curve(
        lambda line: line.update(test_accuracy=99.0), True), "its checkpoint has another"),
    "loss lower": (lines_of_seed(1, train_loss=0.001), "its checkpoint has another"),
    "an epoch twice": (lambda f: f.edit_lines("metrics.jsonl", lambda ls: [ls[0], *ls]), "epochs of seed"),
    "last epoch left out": (lambda f: f.edit_lines("metrics.jsonl", lambda ls: ls[:-1]), "F10"),
    "a seed left out": (remove_seed, "R2"),
    "seeds twice": (manifest(lambda m: m.update(seeds=[0, 0, 1])), "not all different"),
    "more samples than there are": (curve(lambda line: line.update(train_samples=10**6), True), "samples in"),
    "samples of smaller batches": (curve(lambda line: line.update(train_samples=700), True), "samples in"),
    "parts longer than the clock": (curve(swap_clock, True), "that passed"),
    "steps sorted": (samples(shuffle, ("step",)), "ends after the next one has begun"),
    "steps that overlap": (samples(overlap, ("step",)), "ends after the next one has begun"),
    "steps longer than their epoch": (samples(divided(3), ("epoch",)), "metrics.jsonl"),
    "validation shorter": (samples(divided(3), ("validation",)), "validation has other times"),
    "validation not recorded": (both(
        lambda f: f.edit_samples(lambda b, a: b[:0], ("validation",)), lambda f: f.anew()), "validation"),
    "an estimate moved": (estimates(lambda e: e.update(value=0.5 * e["value"])), "stats.json"),
    "an interval narrowed": (estimates(lambda e: e["ci"].update(low=e["value"], high=e["value"])), "stats.json"),
    "a standing raised": (estimates(lambda e: e.update(standing="result")), "stats.json"),
    "tails not planned": (no_tail, "R8"),
    "percentile that the samples do not have": (claim(type="percentile", series="step", q=0.9, value=1e-9), "R8"),
    "percentile of no series": (claim(type="percentile", series="made up", q=0.5, value=1.0), "R8"),
    "rules said to hold": (both(
        manifest(lambda m: m["data"].clear()), lambda f: write_rules(f.path),
        rule_says("F6", status="pass")), "rules.json"),
    "a rule invented": (lambda f: f.edit(
        "rules.json", lambda c: c["rules"].update(R99=dict.fromkeys(("rule", "status", "reason", "fix"), "pass"))),
        "is no rule"),
    "no data": (both(manifest(lambda m: m.update(data={})), lambda f: write_rules(f.path)), "F6"),
    "no digests": (manifest(lambda m: [half.pop("digest") for half in m["data"].values()] and None, True), "F2"),
    "no seeds file": (lambda f: (f.path / "seeds.json").unlink(), "R2"),
    "no load": (curve(lambda line: line.pop("load") and None, True), "D2"),
    "busy, and results": (both(curve(busy), estimates(lambda e: e.update(standing="result"))), "D2"),
    "entry of the ledger exchanged": (exchange_entries, "another head"),
    "entry of the ledger renamed": (entry_renamed, "another head"),
    "runs before it taken out of the ledger": (remove_entries, "ledger"),
    "chain broken": (lambda f: f.edit_lines(
        ledger.NAME, lambda es: es[0].update(argv=["--seed", "7"]), f.path.parent), "F3"),
    "other options": (manifest(lambda m: m.update(argv=["--repeat", "9"]), True), "argv"),
    "recipe changed": (manifest(lambda m: m["resolved"]["recipe"].update(batch_size=64), True), "configuration_sha256"),
    "open division called closed": (manifest(lambda m: m.update(opened=["batch_size=64"]), True), "labels"),
    "dry run called a run": (manifest(lambda m: m.update(dry_run=True), True), "summary.json"),
    "page that says more": (plot_moved, "report.html"),
    "speed-up without its time": (claim(type="speedup", value=3.0, base={"kind": "serial-best"}), "R1"),
    "speed-up that the times do not give": (claim(type="speedup", value=9.0, seconds=4.0, base=BASE), "R1"),
    "speed-up over something else": (claim(type="speedup", value=2.0, base={"kind": "other", "seconds": 1.0}), "R1"),
    "speed-up beyond its processes": (claim(type="speedup", value=9.0, processes=4, base=BASE), "R11"),
    "equivalent, twice as slow": (claim(
        type="comparison", verdict="equivalent", p=0.5, corrected=True, effect=[1.9, 2.1], margin=0.02), "R7"),
    "a ratio that the samples do not have": (claim(
        type="comparison", verdict="faster", p=0.001, corrected=True, effect=[0.5, 0.6], margin=0.02,
        series=["epoch", "step"]), "R7"),
    "baseline without hardware": (claim(
        type="baseline", measures=["time_to_accuracy", "final_accuracy", "cost"]), "F4"),
    "breakdown of a shorter time": (claim(type="breakdown", of="run", parts={"steps": 1e-3}, wall=1e-3), "F5"),
    "number that is none": (claim(type="speedup", value="three", base=BASE), "D1"),
    "interval upside down": (claim(
        type="comparison", verdict="faster", p=0.001, corrected=True, effect=[0.9, 0.5], margin=0.02), "D1"),
    "claim without a type": (claim(value=3.0), "D1"),
}
"""More of the kind."""
# fmt: on


def resealed(folder):
    """Seal a changed folder."""
    seal(folder.path)
    return folder.path
