"""Twenty-five lies, written down before the relations of :mod:`deep500.results.relations` were.

Each changes a copy of an honest run of every metric, makes all that follows from the change anew as a careful forger
does (values of seeds, summary, statistics, claims, rules, page, hash of the environment, ledger), and seals. None of
them may be used to tune a relation: they measure what relations find that were made for something else.
"""

from __future__ import annotations

import json
import shutil

import numpy as np

from deep500.measure.fingerprint import fingerprint
from deep500.results import recomputed
from deep500.results.files import to_json
from deep500.results.record import configuration_hash
from deep500.results.rules import RunView
from deep500.results.verdict import overall


def forge(folder):
    """Make everything anew that follows from other files, down to the ledger."""

    def environment(manifest):
        if manifest.get("environment"):
            manifest["environment_sha256"] = fingerprint(manifest["environment"])

    folder.edit("manifest.json", environment)
    run = RunView(folder.path)
    metrics = [pair for pair in recomputed._declared(run) if not isinstance(pair[1], recomputed.Declared)]
    seeds = run.seeds
    for seed, entry in seeds.items():
        lines = [line for line in run.curve if str(line["seed"]) == seed]
        statistics = recomputed.statistics_of(lines, entry.get("final"))
        entry["values"].update({facts["name"]: metric.measure(statistics) for facts, metric in metrics})
    (folder.path / "seeds.json").write_text(to_json(seeds) + "\n")
    run = RunView(folder.path)
    results = [recomputed._judged(run, facts, metric) for facts, metric in recomputed._declared(run)]

    def summarise(summary):
        summary.update(metrics=[result.as_dict() for result in results])
        summary.update(seeds=run.manifest["seeds"], verdict=overall(results), labels=recomputed._labels(run))

    folder.edit("summary.json", summarise)

    def enter(entries):
        entries[-1].update(
            argv=run.manifest["argv"],
            configuration_sha256=configuration_hash(run.manifest),
            environment_sha256=run.manifest["environment_sha256"],
        )

    folder.chain(enter)
    ledger = [json.loads(line) for line in (folder.path.parent / "ledger.jsonl").read_text().splitlines()]
    folder.edit("summary.json", lambda s: s["ledger"].update(head=ledger[s["ledger"]["entries"] - 1]["hash"]))
    folder.anew()


def lie(*changes):
    """Apply changes, then make anew what follows."""

    def apply(folder):
        for change in changes:
            change(folder)
        forge(folder)

    return apply


def of_manifest(change):
    """Another manifest."""
    return lambda folder: folder.edit("manifest.json", lambda content: change(content) and None)


def of_curve(change):
    """Other lines of the curve; checkpoints, which would tell, are gone."""

    def apply(folder):
        folder.edit_lines("metrics.jsonl", lambda lines: [change(line) for line in lines] and None)
        shutil.rmtree(folder.path / "checkpoints", ignore_errors=True)

    return apply


def of_values(name, change, **details):
    """Another value of a metric, and of what is behind it, in every seed."""

    def apply(seeds):
        for entry in seeds.values():
            value = change(entry["values"][name]) if callable(change) else change
            entry["values"][name] = value
            note = entry.setdefault("notes", {}).setdefault(name, {"reason": "", "details": {}})
            note["details"].update({key: to(note["details"].get(key)) for key, to in details.items()})
            if value is not None:
                note["reason"] = ""

    return lambda folder: folder.edit("seeds.json", apply)


def of_seeds(change):
    """Other entries of seeds.json."""
    return lambda folder: folder.edit("seeds.json", lambda seeds: [change(entry) for entry in seeds.values()] and None)


def of_summary(change):
    """Another summary; applied last, since it is made anew."""

    def apply(folder):
        forge(folder)
        folder.edit("summary.json", lambda content: change(content) and None)
        folder.anew()

    return apply


def without_last_seed(folder):
    """The last seed was never there, and nobody asked for it, but for the words on the command line."""
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    last = lines[-1]["seed"]
    folder.edit_lines("metrics.jsonl", lambda ls: [line for line in ls if line["seed"] != last])
    folder.edit("seeds.json", lambda seeds: {name: entry for name, entry in seeds.items() if name != str(last)})
    folder.edit_lines("journal.jsonl", lambda ls: [line for line in ls if line["launch"] != last])
    for file in (folder.path / "samples").glob(f"*.{last}.i64"):
        file.unlink()
    shutil.rmtree(folder.path / "checkpoints" / f"seed-{last}", ignore_errors=True)

    def shorten(manifest):
        manifest["seeds"].remove(last)
        manifest["resolved"]["seeds"].remove(last)

    folder.edit("manifest.json", shorten)


def twin(folder):
    """The steps of the second seed are those of the first, with a jitter of 0.3 %."""
    kept, rng = {}, np.random.default_rng(0)

    def change(block, about):
        kept.setdefault(about["launch"], []).append(block)
        if about["launch"] == 1:
            first = kept[0][len(kept[1]) - 1]
            jittered = first["duration_ns"] * (1 + 0.003 * rng.standard_normal(len(first)))
            room = np.append(np.diff(block["start_ns"]), block["duration_ns"][-1])
            block["duration_ns"] = np.minimum(jittered, room)
        return block

    folder.edit_samples(change, ("step",))


def rounded(folder):
    """Steps of the second seed by a clock of whole ten microseconds."""

    def change(block, about):
        if about["launch"] == 1:
            block["duration_ns"] -= block["duration_ns"] % 10_000
        return block

    folder.edit_samples(change, ("step",))


def better_confusions(folder):
    """The matrix of what is taken for what has half of its errors on the diagonal."""

    def change(content):
        matrix = next(e for e in content["exhibits"] if e["kind"] == "matrix")["values"]
        for row, values in enumerate(matrix):
            moved = [value // 2 if column != row else 0 for column, value in enumerate(values)]
            matrix[row] = [v - m for v, m in zip(values, moved, strict=True)]
            matrix[row][row] += sum(moved)

    folder.edit("exhibits.json", change)


def smooth_warm_up(folder):
    """The first steps of every seed take no longer than the usual one."""

    def change(block, about):
        if not about["from"]:
            block["duration_ns"][:5] = np.minimum(block["duration_ns"][:5], np.median(block["duration_ns"]))
        return block

    folder.edit_samples(change, ("step",))


# fmt: off
LIES = {
    "a seed forgotten, but for argv": lie(without_last_seed),
    "a word of the command line that the resolved recipe does not follow": lie(of_manifest(
        lambda m: m.update(argv=[*m["argv"], "batch_size=64"]))),
    "a GPU that the machine does not have": lie(of_manifest(
        lambda m: m["device"].update(asked="gpu:0", used="gpu:0"))),
    "twelve joules without a counter": lie(of_values("energy", 12.0)),
    "carbon of no energy": lie(of_values("carbon", 0.5)),
    "accuracy a tenth of a point better": lie(of_curve(
        lambda line: line.update(test_accuracy=line["test_accuracy"] + 0.1))),
    "top three below top one": lie(of_values("top_3_accuracy", 20.0)),
    "cost halved": lie(of_values("cost", lambda v: v / 2)),
    "wall time below training time": lie(of_values("wall_time", lambda v: v / 3)),
    "run that ended before it began": lie(of_summary(lambda s: s.update(finished="2024-02-29T12:00:00+00:00"))),
    "run that began a year ago": lie(of_manifest(lambda m: m.update(started="2025" + m["started"][4:]))),
    "sixty-four cores": lie(of_manifest(lambda m: m["environment"].update(cores=64, usable_cores=64))),
    "a plan's own idea of steady": lie(of_manifest(
        lambda m: [facts["plan"].update(alpha=1e-8, max_fraction=0.01) for facts in m["series"].values()])),
    "a twin with jitter": lie(twin),
    "a launch by a coarser clock": lie(rounded),
    "loss near nothing at a poor accuracy": lie(of_curve(lambda line: line.update(test_loss=0.001))),
    "another numpy than is installed": lie(of_manifest(lambda m: m["environment"]["versions"].update(numpy="9.9"))),
    "more threads than the process had": lie(of_manifest(
        lambda m: m["processes"]["each"][0]["threads"].update(OMP_NUM_THREADS="8"))),
    "p90 of a latency from nowhere": lie(of_values("step_latency_p90", 1e-4, low=lambda v: 9e-5, high=lambda v: 2e-4)),
    "time of all tuning a tenth": lie(of_summary(lambda s: s["tuning"].update(seconds=s["tuning"]["seconds"] / 10))),
    "a larger test set": lie(of_manifest(lambda m: m["data"]["test"].update(length=10_000))),
    "better confusions": lie(better_confusions),
    "no warm-up": lie(smooth_warm_up),
    "memory below that of the interpreter": lie(of_values("peak_memory_host", 1e5)),
    "nobody waited for a CPU": lie(of_curve(lambda line: line["load"].update(busy=line["load"]["own"] / 3))),
}
# fmt: on
