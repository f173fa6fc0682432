"""Forty-seven more lies: 22 and 25, of two afternoons, each list written down before a relation was tried on it.

As those of :mod:`tests.results.careful_lies`, which make everything anew that follows from a change. Many say something
that nothing else in a folder determines; :data:`UNKNOWN` names these, as does the page on measuring.
"""

from __future__ import annotations

import copy
import json
import shutil
from itertools import pairwise

import numpy as np

from deep500.results.checkpoint import load_checkpoint, save_checkpoint
from tests.results.careful_lies import lie, of_manifest, of_seeds, of_values

QUALITIES = ("test_loss", "test_accuracy")
SECONDS = ("train_seconds", "test_seconds")


def lines_of(folder):
    """The curve."""
    return [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]


def each(change, *, checkpoints=True):
    """Another curve, line by line; checkpoints stay as they were, or are gone."""

    def apply(folder):
        folder.edit_lines("metrics.jsonl", lambda lines: [change(line) for line in lines] and None)
        if not checkpoints:
            shutil.rmtree(folder.path / "checkpoints")

    return apply


def of_network(change):
    """Another network.json."""
    return lambda folder: folder.edit("network.json", lambda content: change(content) and None)


def of_recipe(**facts):
    """Another word of the resolved recipe."""
    return of_manifest(lambda manifest: manifest["resolved"]["recipe"].update(facts))


def behind(entry, name):
    """The numbers behind a metric."""
    return entry["notes"][name]["details"]


def tuned(folder):
    """The seconds of all tuning are those of the curve."""
    seconds = sum(line["train_seconds"] for line in lines_of(folder))
    folder.edit("summary.json", lambda summary: summary["tuning"].update(seconds=seconds))


# -- the first afternoon -----------------------------------------------------------------------------------------------
def without_last_epoch(folder):
    """The last epoch was never trained: early stopping."""
    last = max(line["epoch"] for line in lines_of(folder))
    folder.edit_lines("metrics.jsonl", lambda lines: [line for line in lines if line["epoch"] != last])
    journal = [json.loads(line) for line in (folder.path / "journal.jsonl").read_text().splitlines()]
    newest = {(line["series"], line["launch"]): line["from"] for line in journal}
    folder.edit_samples(
        lambda block, about: block[:0] if about["from"] == newest[about["series"], about["launch"]] else block
    )
    folder.edit_lines("journal.jsonl", lambda lines: [line for line in lines if line["n"]])
    shutil.rmtree(folder.path / "checkpoints")
    of_seeds(lambda entry: entry.update(stopped_by="early stopping"))(folder)


def as_first_seed(folder):
    """Every seed learns as the first one."""
    lines = lines_of(folder)
    first = {line["epoch"]: line for line in lines if line["seed"] == lines[0]["seed"]}
    names = ("train_loss", "train_accuracy", *QUALITIES)
    each(lambda line: line.update({k: first[line["epoch"]][k] for k in names}), checkpoints=False)(folder)

    def same(seeds):
        for entry in seeds.values():
            entry["final"] = copy.deepcopy(next(iter(seeds.values()))["final"])

    folder.edit("seeds.json", same)


def three_more(line):
    """Three more of the validation data are right."""
    count = line["test_samples"]
    line["test_accuracy"] = 100 * min(count, round(line["test_accuracy"] * count / 100) + 3) / count


def best_as_final(folder):
    """The test data say the same as the best validation."""
    lines = lines_of(folder)

    def change(seeds):
        for seed, entry in seeds.items():
            best = max((line for line in lines if str(line["seed"]) == seed), key=lambda line: line["test_accuracy"])
            entry["final"].update({name: best[name] for name in QUALITIES})

    folder.edit("seeds.json", change)


def winsorised(folder):
    """No step is slower than three of five."""

    def change(block, about):
        block["duration_ns"] = np.minimum(block["duration_ns"], int(np.percentile(block["duration_ns"], 60)))
        return block

    folder.edit_samples(change, ("step",))


def fifth_faster(folder):
    """Steps and epochs took four fifths."""

    def change(block, about):
        block["duration_ns"] = block["duration_ns"] * 4 // 5
        return block

    folder.edit_samples(change, ("step", "epoch"))
    each(lambda line: line.update(train_seconds=line["train_seconds"] * 0.8))(folder)


def other_class(content):
    """One confusion is that of another class."""
    values = next(shown for shown in content["exhibits"] if shown["kind"] == "matrix")["values"]
    row, column = next((r, c) for r in range(len(values) - 1) for c in range(len(values)) if c != r and values[r][c])
    values[row][column] -= 1
    values[row + 1][row] += 1


def share(name, seconds):
    """IOShare of other seconds, by another name."""

    def change(entry):
        details = behind(entry, "io_share")
        details[name] = seconds(details.pop("train_seconds"), entry)
        entry["values"]["io_share"] = 100 * details["io"] / details[name]

    return of_seeds(change)


def computing(entry):
    """Most of the waiting for data is said to be computing."""
    details = behind(entry, "timing_breakdown")
    details["forward_backward"] += 0.7 * details["io"]
    details["io"] *= 0.3


def twice_the_operations(entry):
    """Twice the operations, in both metrics that tell of them."""
    for name in ("flop_rate", "roof_share"):
        behind(entry, name)["FLOP_per_sample"] *= 2
        entry["values"][name] *= 2


def others_checkpoint(folder):
    """The second seed's checkpoints are those of the first."""
    first, second = sorted((folder.path / "checkpoints").glob("seed-*"))[:2]
    shutil.rmtree(second)
    shutil.copytree(first, second)


FIRST = {
    "last epoch gone, early stopping said": lie(without_last_epoch),
    "every seed learns as the first": lie(as_first_seed),
    "three more right in every validation": lie(each(three_more, checkpoints=False)),
    "test data say what the best validation said": lie(best_as_final),
    "slow steps cut to the 60th percentile": lie(winsorised),
    "training a fifth faster": lie(fifth_faster),
    "a confusion is of another class": lie(lambda folder: folder.edit("exhibits.json", other_class)),
    "share of the wall time": lie(share("train_seconds", lambda seconds, entry: entry["wall_seconds"])),
    "share of twenty times the training, by the old name": lie(share("training", lambda seconds, entry: 20 * seconds)),
    "waiting for data is said to be computing": lie(of_seeds(computing)),
    "twice the operations": lie(of_seeds(twice_the_operations)),
    "a checkpoint of another seed": lie(others_checkpoint),
    "another learning rate": lie(of_recipe(optimizer_kwargs={"lr": 0.2, "momentum": 0.5})),
    "another optimizer": lie(of_recipe(optimizer="AdamOptimizer")),
    "another network": lie(of_recipe(model="resnet20")),
    "half the memory": lie(of_values("peak_memory_host", lambda value: value // 2)),
    "another data set by name": lie(of_manifest(lambda m: [half.update(name="MNIST") for half in m["data"].values()])),
    "trained on twice the samples": lie(
        of_manifest(lambda m: m["data"]["train"].update(length=2 * m["data"]["train"]["length"]))
    ),
    "no pending changes in git": lie(
        of_manifest(lambda m: m["environment"]["git"].update(dirty=False, commit="0" * 40))
    ),
    "another CPU": lie(of_manifest(lambda m: m["environment"].update(cpu="Intel Xeon Phi"))),
    "another framework": lie(of_manifest(lambda m: m.update(backend="pytorch"))),
    "rank one of two": lie(of_manifest(lambda m: m.update(ranks=2))),
}


# -- the second afternoon ----------------------------------------------------------------------------------------------
def of_checkpoints(change):
    """Change the curve that checkpoints hold, in which epochs are counted from 0."""

    def apply(folder):
        for path in sorted((folder.path / "checkpoints").glob("*/*.safetensors")):
            state = load_checkpoint(path)
            change(state["values"])
            save_checkpoint(path.parent, state["epoch"], state, 5)

    return apply


def good_validation(folder):
    """The second validation of every seed is as good as the third."""

    def change(lines):
        for line, after in pairwise(lines):
            if line["epoch"] == 2 and line["seed"] == after["seed"]:
                line.update({name: after[name] for name in QUALITIES})

    folder.edit_lines("metrics.jsonl", change)


def without_last_seed(folder):
    """The last seed was never there, nor asked for."""
    last = lines_of(folder)[-1]["seed"]
    folder.edit_lines("metrics.jsonl", lambda lines: [line for line in lines if line["seed"] != last])
    folder.edit("seeds.json", lambda seeds: {name: entry for name, entry in seeds.items() if name != str(last)})
    folder.edit_lines("journal.jsonl", lambda lines: [line for line in lines if line["launch"] != last])
    for file in (folder.path / "samples").glob(f"*.{last}.i64"):
        file.unlink()
    shutil.rmtree(folder.path / "checkpoints" / f"seed-{last}")

    def shorten(manifest):
        manifest["seeds"].remove(last)
        manifest["resolved"]["seeds"].remove(last)
        manifest["argv"] = ["2" if word == "3" else word for word in manifest["argv"][:3]] + manifest["argv"][3:]

    folder.edit("manifest.json", shorten)
    tuned(folder)


def without_first_epoch(folder):
    """The first epoch was never there: it learns faster."""
    folder.edit_lines(
        "metrics.jsonl", lambda lines: [{**line, "epoch": line["epoch"] - 1} for line in lines if line["epoch"] > 1]
    )
    folder.edit_samples(lambda block, about: block if about["from"] else block[:0])
    folder.edit_lines("journal.jsonl", lambda lines: [line for line in lines if line["n"]])
    of_recipe(epochs=2)(folder)
    for path in sorted((folder.path / "checkpoints").glob("*/*")):
        path.rename(path.with_name(f"epoch-{int(path.stem.split('-')[1]) - 1}.safetensors"))
    lines = lines_of(folder)

    def change(seeds):
        for seed, entry in seeds.items():
            mine = [line for line in lines if str(line["seed"]) == seed]
            seconds = sum(line["train_seconds"] for line in mine)
            for name in ("flop_rate", "roof_share"):
                details = behind(entry, name)
                details.update(samples=sum(line["train_samples"] for line in mine), seconds=seconds)
                rate = details["FLOP_per_sample"] * details["samples"] / seconds
                entry["values"][name] = 100 * rate / details["roof_FLOP/s"] if name == "roof_share" else rate
            details = behind(entry, "io_share")
            details.update(train_seconds=seconds, io=details["io"] * 2 / 3)
            entry["values"]["io_share"] = 100 * details["io"] / seconds

    folder.edit("seeds.json", change)
    tuned(folder)


def exchanged(line):
    """Exchange the values of training and validation."""
    trained, tested = line["train_accuracy"], line["test_accuracy"]
    line["train_loss"], line["test_loss"] = line["test_loss"], line["train_loss"]
    for name, value in (("train", tested), ("test", trained)):
        count = line[f"{name}_samples"]
        line[f"{name}_accuracy"] = 100 * round(value * count / 100) / count


def all_faster(folder, by=0.8):
    """Every duration of every file is four fifths."""

    def change(block, about):
        for name in ("duration_ns", "start_ns"):
            block[name] = (block[name] * by).astype(np.int64)
        return block

    folder.edit_samples(change)
    began = lines_of(folder)[0]["clock"]["began"]

    def of_line(line):
        clock, load = line["clock"], line["load"]
        line.update({name: line[name] * by for name in SECONDS})
        clock.update({name: clock[name] * by for name in ("wall_seconds", "listening_seconds")})
        clock["began"] = began + (clock["began"] - began) * by
        load.update({name: load[name] * by for name in ("seconds", "busy", "own", "pressure", "steal") if load[name]})

    each(of_line)(folder)
    parts = ("seconds", "cpu_seconds", "io", "train_seconds", "forward_backward", "update", "validation", "other")

    def of_entry(entry):
        entry["wall_seconds"] *= by
        entry["final"]["test_seconds"] *= by
        for note in entry["notes"].values():
            known = note["details"]
            known.update({name: known[name] * by for name in (*parts, "time") if known.get(name)})
        values = entry["values"]
        values.update({name: values[name] / by for name in ("flop_rate", "roof_share", "offline_throughput")})
        values.update({name: values[name] * by for name in ("wall_time", "timing_breakdown", "cost")})
        for name in ("step_latency_p50", "step_latency_p90"):
            known = behind(entry, name)
            known.update({end: known[end] * by for end in ("low", "high") if known.get(end)})
            values[name] = values[name] and values[name] * by

    of_seeds(of_entry)(folder)
    tuned(folder)

    def of_state(values):
        for epoch in values["statistics"]["epochs"]:
            epoch.update({name: epoch[name] * by for name in SECONDS})

    of_checkpoints(of_state)(folder)


def watts(entry):
    """Forty watts of a counter that nobody has."""
    for name in ("energy", "carbon"):
        entry["notes"][name]["reason"] = ""
        behind(entry, name).update(watts=40.0, sources=["rapl"])
    energy, carbon = behind(entry, "energy"), behind(entry, "carbon")
    entry["values"]["energy"] = 40 * energy["seconds"]
    carbon["J"] = 40 * carbon["seconds"]
    entry["values"]["carbon"] = carbon["J"] / 3.6e6 * carbon["g_per_kWh"]


def price(entry):
    """A tenth of the price."""
    details = behind(entry, "cost")
    details.update(per_hour=details["per_hour"] / 10, time=details["time"] / 10)
    entry["values"]["cost"] /= 10


def threads(manifest):
    """Twelve threads."""
    manifest["environment"]["variables"]["OMP_NUM_THREADS"] = "12"
    manifest["processes"]["each"][0].setdefault("threads", {})["OMP_NUM_THREADS"] = "12"


def versions(manifest):
    """Another Deep500 and another Python."""
    environment = manifest["environment"]
    environment["versions"]["deep500"], environment["python"] = "1.4.0", "3.13.1"
    packages = environment["process"]["packages"]
    packages.update({name: "1.4.0" for name in packages if name.lower() == "deep500"})


def code(manifest):
    """Another commit, another recipe file."""
    manifest["environment"]["git"]["commit"] = "3f786850e387550fdab836ed7e6dc881de23001b"
    manifest["recipe_sha256"] = "ab" * 32


def larger(folder):
    """A machine of twice the cores and memory."""

    def change(manifest):
        environment = manifest["environment"]
        cores = 2 * environment["usable_cores"]
        environment.update(cores=cores, usable_cores=cores, memory_bytes=2 * environment["memory_bytes"])
        environment["process"]["affinity"] = list(range(cores))
        environment["volatile"]["mhz"] *= 2
        manifest["load"]["cpus"] = cores

    of_manifest(change)(folder)
    cores = json.loads((folder.path / "manifest.json").read_text())["environment"]["cores"]
    each(lambda line: line["load"].update(cpus=cores))(folder)
    folder.edit("summary.json", lambda summary: summary["load"].update(cpus=cores))

    def halve(entry):
        behind(entry, "cpu_utilisation")["processors"] = cores
        entry["values"]["cpu_utilisation"] /= 2

    of_seeds(halve)(folder)


def larger_batch(manifest):
    """A batch of 128."""
    manifest["resolved"]["recipe"]["batch_size"] = 128
    manifest["argv"][0] = "batch_size=128"


def renamed(folder):
    """Seeds 3, 4, 5 are 0, 1, 2."""
    folder.edit_lines("metrics.jsonl", lambda lines: [line.update(seed=line["seed"] - 3) for line in lines] and None)
    folder.edit("seeds.json", lambda seeds: {str(int(seed) - 3): entry for seed, entry in seeds.items()})
    folder.edit_lines("journal.jsonl", lambda ls: [line.update(launch=line["launch"] - 3) for line in ls] and None)
    for path in sorted((folder.path / "samples").glob("*.i64")):
        series, launch, ending = path.name.split(".")
        path.rename(path.with_name(f"{series}.{int(launch) - 3}.{ending}"))
    for path in sorted((folder.path / "checkpoints").glob("seed-*")):
        path.rename(path.with_name(f"seed-{int(path.name[5:]) - 3}"))

    def change(manifest):
        manifest["seeds"], manifest["resolved"]["seeds"] = [0, 1, 2], [0, 1, 2]
        manifest["resolved"]["recipe"]["seed"], manifest["argv"][-1] = 0, "0"

    of_manifest(change)(folder)
    folder.edit("exhibits.json", lambda content: content.update(seed=content["seed"] - 3))


def throughput(entry):
    """Twice the throughput of inference."""
    behind(entry, "offline_throughput")["samples"] *= 2
    entry["values"]["offline_throughput"] *= 2


def latencies(entry):
    """Latencies of a fifth of a millisecond."""
    for name in ("step_latency_p50", "step_latency_p90"):
        entry["notes"][name]["reason"] = ""
        behind(entry, name).update(low=0.00018, high=0.00022, n_eff=55.0)
        entry["values"][name] = 0.0002


def half_the_parameters(network):
    """Half the parameters, node by node."""
    network["parameters"] //= 2
    for node in network["nodes"]:
        node["parameters"] //= 2


def no_slow_steps(folder):
    """Steps above one and a half medians are the median."""

    def change(block, about):
        median = int(np.median(block["duration_ns"]))
        block["duration_ns"][block["duration_ns"] > 1.5 * median] = median
        return block

    folder.edit_samples(change, ("step",))


def a_year_earlier(folder):
    """Every date is a year earlier."""

    def back(date):
        return f"{int(date[:4]) - 1}{date[4:]}"

    of_manifest(lambda m: m.update(started=back(m["started"])))(folder)
    folder.edit("summary.json", lambda summary: summary.update(finished=back(summary["finished"])))
    each(lambda line: line["clock"].update(began=line["clock"]["began"] - 365 * 86_400))(folder)
    folder.chain(lambda entries: [entry.update(at=back(entry["at"])) for entry in entries] and None)


def monotone(folder):
    """No loss of validation ever grows."""

    def change(lines):
        least = {}
        for line in lines:
            least[line["seed"]] = min(least.get(line["seed"], np.inf), 0.97 * line["test_loss"])
            line["test_loss"] = least[line["seed"]]

    folder.edit_lines("metrics.jsonl", change)


def nobody_else(folder):
    """No other process worked."""
    each(lambda line: line["load"].update(busy=line["load"]["own"]))(folder)
    before = json.loads((folder.path / "manifest.json").read_text())["load"]

    def change(summary):
        load = summary["load"]
        load["busy"] = before["busy"] and before["busy"] + load["own"] - before["own"] + 0.02

    folder.edit("summary.json", change)


def older_checkpoints(folder):
    """The newest checkpoint is the one before it."""
    for seed in (folder.path / "checkpoints").iterdir():
        before, newest = sorted(seed.iterdir())
        shutil.copy(before, newest)


SECOND = {
    "a validation is as good as the next one": lie(good_validation),
    "a seed left out everywhere": lie(without_last_seed),
    "the first epoch left out": lie(without_first_epoch),
    "training and validation exchanged": lie(each(exchanged)),
    "every duration four fifths": lie(all_faster),
    "watts of no counter": lie(of_seeds(watts)),
    "a tenth of the price": lie(of_seeds(price)),
    "twelve threads": lie(of_manifest(threads)),
    "a target just under what was reached": lie(of_manifest(lambda m: m["resolved"]["metrics"][0].update(target=60.0))),
    "other versions": lie(of_manifest(versions)),
    "another commit and recipe file": lie(of_manifest(code)),
    "a larger machine": lie(larger),
    "a batch of 128": lie(of_manifest(larger_batch), of_network(lambda network: network.update(batch=128))),
    "seeds of other numbers": lie(renamed),
    "twice the throughput of inference": lie(of_seeds(throughput)),
    "lower latencies": lie(of_seeds(latencies)),
    "half the parameters": lie(of_network(half_the_parameters)),
    "slow steps are the median": lie(no_slow_steps),
    "a year earlier": lie(a_year_earlier),
    "top 3 is always right": lie(of_values("top_3_accuracy", 100.0)),
    "no loss grows": lie(monotone),
    "a final loss a fifth lower": lie(
        of_seeds(lambda entry: entry["final"].update(test_loss=0.8 * entry["final"]["test_loss"]))
    ),
    "nobody else worked": lie(nobody_else),
    "float64": lie(of_manifest(lambda m: m.update(dtype="float64"))),
    "checkpoints of an older epoch": lie(older_checkpoints),
}

LATER = {**FIRST, **SECOND}
UNKNOWN = (
    *("waiting for data is said to be computing", "no pending changes in git", "another CPU"),
    *("a seed left out everywhere", "a tenth of the price", "twelve threads", "a target just under what was reached"),
    *("other versions", "another commit and recipe file", "a larger machine", "twice the throughput of inference"),
    *("top 3 is always right", "a final loss a fifth lower", "nobody else worked", "every duration four fifths"),
)
"""Those of which nothing else in a folder tells, at least in a run of milliseconds."""
