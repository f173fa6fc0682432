"""The setup of a run: the words it was begun with, the plan, the data, the device and the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deep500.measure.fingerprint import fingerprint
from deep500.results.consistency import own_sampler
from deep500.results.files import read_json, read_lines
from deep500.results.formats import FILES
from deep500.results.network import NETWORK
from deep500.results.ranks import is_of_rank
from deep500.results.record import FORMAT, REPORT, SCHEMA
from deep500.results.relations.declaring import is_older, relates, short
from deep500.results.rules.view import RunView
from deep500.results.stats import SCHEMA as STATS_SCHEMA
from deep500.results.stats import STATS, declared_series

M = "manifest.json:"
PACKAGE_OF = {"pytorch": ("torch",), "jax": ("jax",), "tensorflow": ("tensorflow", "tensorflow-cpu")}
"""Packages that a backend computes with, by the names of ``environment.versions``; any of them will do."""

FRAMEWORKS = "deep500.frameworks."
OPTIONS = {"--repeat", "--seed", "--ranks", "--backend", "--framework", "--device"}


def options_of(argv: list[str]) -> tuple[dict[str, str], dict[str, str], set[str]]:
    """Options with a value, ``key=value`` words and flags of a command line.

    Example:
        >>> options_of(["batch_size=64", "--repeat", "2", "--open"])
        ({'--repeat': '2'}, {'batch_size': '64'}, {'--open'})
    """
    valued, words, flags = {}, {}, set()
    for word, after in zip(argv, [*argv, ""][1:], strict=True):
        name, equals, text = word.partition("=")
        if word in OPTIONS:
            valued[word] = after
        elif word.startswith("--"):
            flags.add(word)
        elif equals:
            words[name] = text
    return valued, words, flags


@relates("command line against seeds, backend and device", M + "argv", M + "resolved.seeds", M + "dry_run", M + "ranks")
def _options(run: RunView) -> Iterator[str]:
    manifest, (valued, _, flags) = run.manifest, options_of(run.manifest["argv"])
    seeds = manifest["resolved"]["seeds"]
    count = valued.get("--repeat", "1")
    facts = [
        ("seeds", len(seeds), int(count) if count.isdigit() else len(seeds)),
        ("seeds in a row", seeds, list(range(seeds[0], seeds[0] + len(seeds)))),
        ("first seed", seeds[0], int(valued.get("--seed", seeds[0]))),
        ("dry run", manifest["dry_run"], "--dry-run" in flags),
        ("backend", manifest["backend"], valued.get("--backend", valued.get("--framework", manifest["backend"]))),
    ]
    if not manifest["resumed"] and "--ranks" in valued:
        facts.append(("ranks", manifest["ranks"], int(valued["--ranks"])))
    for what, got, expected in facts:
        if got != expected:
            yield f"manifest.json: {what} {short(got)}; argv asks for {short(expected)}"


@relates("command line against the resolved recipe", M + "argv", M + "resolved.recipe", M + "dry_run")
def _words(run: RunView) -> Iterator[str]:
    recipe, (_, words, _) = run.manifest["resolved"]["recipe"], options_of(run.manifest["argv"])
    if run.manifest["dry_run"]:
        words.pop("epochs", None)  # it has one, whatever is asked for
    for name, text in words.items():
        value: Any = recipe
        for part in name.split("."):
            value = value[int(part)] if isinstance(value, list) else value.get(part)
        try:
            asked = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            asked = text
        plain = isinstance(asked, (int, float)) and isinstance(value, (int, float, str, type(None)))
        if plain and value not in (asked, text):
            yield f"manifest.json: {name} is {short(value)}; argv asks for {text}"


@relates("division against what was opened", M + "opened", M + "division", M + "resolved.opened", M + "argv")
def _division(run: RunView) -> Iterator[str]:
    manifest, (_, words, flags) = run.manifest, options_of(run.manifest["argv"])
    opened = manifest["opened"]
    if (manifest["division"] == "open") != bool(opened) or manifest["division"] not in ("open", "closed"):
        yield f"manifest.json: division {short(manifest['division'])} with {len(opened)} opened keys"
    if opened != manifest["resolved"]["opened"]:
        yield f"manifest.json: opened {short(opened)}; the resolved recipe says {short(manifest['resolved']['opened'])}"
    named = {key.partition(".")[0] for key in (*words, *(flag[2:] for flag in flags))}
    unasked = [key for key in opened if words and key.partition("=")[0].partition(".")[0] not in named]
    if opened and ("--open" not in flags or unasked):
        yield f"manifest.json: {short(unasked or opened)} opened; argv does not open it"


@relates(
    "seeds of all files", M + "seeds", M + "resolved.seeds", "seeds.json:", "metrics.jsonl:seed", "summary.json:seeds"
)
def _seeds(run: RunView) -> Iterator[str]:
    seeds, asked = run.manifest["seeds"], run.manifest["resolved"]["seeds"]
    if len(set(seeds)) < len(seeds):
        yield f"manifest.json: seeds {seeds} are not all different"
    if run.has("seeds.json") and sorted(run.seeds) != sorted({str(seed) for seed in seeds}):
        yield f"seeds.json: seeds {', '.join(sorted(run.seeds))}; manifest.json has {seeds}"
    trained = list(dict.fromkeys(line["seed"] for line in run.curve))
    if sorted(trained) != sorted(set(seeds)):
        yield f"metrics.jsonl: seeds {trained}; manifest.json has {seeds}"
    ended = (run.manifest.get("turns") or {}).get("ended")
    if seeds[: len(asked)] != asked and not (ended == len(seeds) and asked[:ended] == seeds):
        yield f"manifest.json: seeds {seeds}; the recipe asks for {asked}"
    if run.manifest["resolved"]["recipe"]["seed"] != asked[0]:
        yield f"manifest.json: first seed {asked[0]}; the recipe has {run.manifest['resolved']['recipe']['seed']}"


@relates("plan of the samples against that of every run", M + "series")
def _plan(run: RunView) -> Iterator[str]:
    expected = declared_series(run.manifest["resolved"]["recipe"]["batch_size"])
    declared = {name: facts for name, facts in run.manifest["series"].items() if not is_of_rank(name)}
    reworded = {"meaning": ""} if is_older(run) else {}
    for name in sorted(expected.keys() | declared.keys()):
        if {**declared.get(name, {}), **reworded} != {**expected.get(name, {}), **reworded}:
            yield f"manifest.json: series {name} has a plan of its own; every run has {short(expected.get(name))}"


@relates("backend, executor and packages", M + "backend", M + "resolved.recipe.executor", M + "environment.versions")
def _backend(run: RunView) -> Iterator[str]:
    manifest = run.manifest
    backend, executor = manifest["backend"], str(manifest["resolved"]["recipe"]["executor"])
    if executor.startswith(FRAMEWORKS) and executor[len(FRAMEWORKS) :].partition(":")[0].split(".")[0] != backend:
        yield f"manifest.json: backend {short(backend)} with the executor {executor}"
    versions = manifest["environment"]["versions"]
    packages = PACKAGE_OF.get(backend, ())
    if packages and all(versions.get(name) is None for name in packages):
        yield f"manifest.json: backend {short(backend)} without {' or '.join(packages)} in the environment"


@relates("device against GPUs and backend", M + "device", M + "environment.hardware.gpus", M + "numerics.float32")
def _device(run: RunView) -> Iterator[str]:
    manifest = run.manifest
    asked, used, gpus = (
        manifest["device"]["asked"],
        manifest["device"]["used"],
        manifest["environment"]["hardware"]["gpus"],
    )
    kind, _, number = used.partition(":")
    if kind not in ("cpu", "gpu"):
        yield f"manifest.json: device {short(used)} is neither cpu nor gpu"
    if kind == "gpu" and (manifest["backend"] == "reference" or int(number or 0) >= len(gpus or ())):
        there = f"the environment has {len(gpus or ())} GPUs, the backend is {manifest['backend']}"
        yield f"manifest.json: device {used}; {there}"
    if asked is not None and str(asked).partition(":")[0] != kind and not manifest["warnings"]:
        yield f"manifest.json: device {used} instead of {asked}, and no warning says why"
    resolved = manifest["resolved"]["recipe"]["executor_kwargs"].get("device")
    if resolved != asked:
        yield f"manifest.json: device {short(asked)} asked for; the recipe has {short(resolved)}"
    if kind == "cpu" and int(number or 0) != int(str(asked or "").partition(":")[2] or 0):
        yield f"manifest.json: device {used}; asked for was {short(asked)}, the first"
    if kind == "cpu" and manifest["numerics"]["float32"] not in (None, "ieee"):
        yield f"manifest.json: float32 as {manifest['numerics']['float32']} on a CPU"


@relates("environment against its hash", M + "environment", M + "environment_sha256", always=True)
def _hash(run: RunView) -> Iterator[str]:
    environment, written = run.manifest.get("environment"), run.manifest.get("environment_sha256")
    fresh = fingerprint(environment) if environment else ""
    if fresh and written is not None and fresh != written:
        yield f"manifest.json: the environment has the hash {fresh[:12]}; environment_sha256 is {written[:12]}"


@relates("versions against installed packages", M + "environment.versions", M + "environment.process.packages")
def _versions(run: RunView) -> Iterator[str]:
    environment = run.manifest["environment"]
    packages = {_plain(name): version for name, version in environment["process"]["packages"].items()}
    for name, version in environment["versions"].items():
        if packages and differs_in_words(version, packages.get(_plain(name))):
            yield f"manifest.json: {name} {version} in versions; the packages have {packages.get(_plain(name))}"


def differs_in_words(version: str | None, installed: str | None) -> bool:
    """Whether two versions of a package are not the same; one that the list does not know is not compared."""
    return version is not None and installed is not None and version != installed


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@relates(
    "cores, affinity and memory",
    *(
        M + "environment." + name
        for name in (
            "cores",
            "usable_cores",
            "process.affinity",
            "memory_bytes",
            "volatile.available_bytes",
            "volatile.mhz",
            "kernel.release",
            "os",
        )
    ),
    M + "load.cpus",
    "metrics.jsonl:load.cpus",
    "summary.json:load.cpus",
)
def _machine(run: RunView) -> Iterator[str]:
    environment, loads = run.manifest["environment"], _loads(run)
    cores, usable, affinity = environment["cores"], environment["usable_cores"], environment["process"]["affinity"]
    volatile = environment["volatile"]
    if affinity is not None and usable is not None and len(affinity) != usable:
        yield f"manifest.json: {usable} usable cores; the affinity has {len(affinity)}"
    if None not in (cores, usable) and usable > cores:
        yield f"manifest.json: {usable} usable cores of {cores}"
    counted = [cpus for cpus in loads if usable is not None and cpus != usable]
    if counted and not run.manifest["resumed"]:
        yield f"load of {short(counted[0])} CPUs; the environment has {usable} usable ones"
    mhz = volatile["mhz"]
    if mhz and cores and len(mhz) != cores:
        yield f"manifest.json: clocks of {len(mhz)} CPUs; the environment has {cores}"
    memory, free = environment["memory_bytes"], volatile["available_bytes"]
    if None not in (memory, free) and free > memory:
        yield f"manifest.json: {free} bytes of memory free of {memory}"
    vendor, cpu = environment["hardware"]["vendor"], environment["cpu"] or ""
    if vendor in MAKERS and any(name in cpu for maker, name in MAKERS.items() if maker != vendor):
        yield f"manifest.json: the CPU {short(cpu)} of {vendor}"
    release = environment["kernel"]["release"]
    if release and release not in environment["os"]:
        yield f"manifest.json: kernel {release} in {environment['os']}"
    averages, average = volatile["load_average"], run.manifest["load"]["load_average"]
    if averages and average is not None and abs(averages[0] - average) > 0.5 + 0.2 * average:
        yield f"manifest.json: load averages of {averages[0]:.4g} and {average:.4g} at the same moment"


SCHEMAS = {
    "manifest.json": SCHEMA,
    "summary.json": "deep500-summary-1",
    "rules.json": "deep500-rules-1",
    STATS: STATS_SCHEMA,
}
MAKERS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}


def _loads(run: RunView) -> list[Any]:
    return [part["cpus"] for part in (run.manifest["load"], *(line["load"] for line in run.curve), run.summary["load"])]


@relates("threads of the process against its environment", M + "processes.each", M + "environment.variables")
def _threads(run: RunView) -> Iterator[str]:
    variables, first = run.manifest["environment"]["variables"], (run.manifest["processes"]["each"] or [{}])[0]
    for name, value in (first.get("threads") or {}).items():
        if name in variables and variables[name] != value:
            there = short(variables[name])
            yield f"manifest.json: {name} is {short(value)} of the process and {there} of the environment"


@relates(
    "ranks against processes",
    M + "ranks",
    M + "processes.count",
    M + "processes.each",
    M + "processes.transport",
    "metrics.jsonl:ranks",
)
def _ranks(run: RunView) -> Iterator[str]:
    ranks, processes = run.manifest["ranks"], run.manifest["processes"]
    if not ranks == processes["count"] == len(processes["each"]):
        yield f"manifest.json: {ranks} ranks, {processes['count']} processes, facts of {len(processes['each'])}"
    if (ranks == 1) != (processes["transport"] == "serial"):
        yield f"manifest.json: {ranks} ranks over the transport {short(processes['transport'])}"
    if not run.manifest["resumed"]:
        for line in run.curve:
            counted = len(line.get("ranks") or (None,))
            if counted != ranks:
                yield f"metrics.jsonl: seed {line['seed']}, epoch {line['epoch']}: {counted} ranks of {ranks}"


HELD_OUT = re.compile(r"(?:trained on|held out for \w+): (\d+) of (\d+)")
DIGEST = re.compile(r"[0-9a-f]{64}")


@relates(
    "data of the halves",
    *(M + "data.*." + name for name in ("length", "name", "shape", "classes", "digest", "provenance")),
    always=True,
)
def _data(run: RunView) -> Iterator[str]:
    halves: Mapping[str, Any] = run.manifest.get("data") or {}
    train, validation = ((halves.get(half) or {}).get("digest") for half in ("train", "validation"))
    if train and train == validation:
        yield "manifest.json: training and validation data have the same digest"
    wholes = set()
    for name, half in halves.items():
        if half.get("digest") and not half["stand_in"] and not DIGEST.fullmatch(half["digest"]):
            yield f"manifest.json: the digest of {name} data is none: {short(half['digest'])}"
        split = HELD_OUT.search(half["provenance"])
        if split and int(split[1]) != half["length"]:
            yield f"manifest.json: {half['length']} samples of {name} data; its provenance has {split[1]}"
        wholes |= {int(split[2])} if split else set()
    held_out = [half["length"] for half in halves.values() if HELD_OUT.search(half["provenance"])]
    if len(wholes) > 1 or (len(held_out) == 2 and wholes != {sum(held_out)}):
        yield f"manifest.json: {held_out} samples are not the {sorted(wholes)} that were split"
    for fact in ("shape", "classes", "stand_in", "name"):
        values = {short(half.get(fact)) for half in halves.values()}
        if len(values) > 1:
            yield f"manifest.json: {fact} of training and held-out data differ: {', '.join(sorted(values))}"


@relates("test data against what was tested", M + "data.test.length", "seeds.json:*.final.test_samples", M + "batches")
def _tested(run: RunView) -> Iterator[str]:
    manifest, recipe = run.manifest, run.manifest["resolved"]["recipe"]
    if manifest["dry_run"] or manifest["task"]["sample"] != "sample":
        return
    test = manifest["data"].get("test")
    for seed, entry in run.seeds.items():
        tested = (entry.get("final") or {}).get("test_samples")
        if test and tested is not None and tested != test["length"]:
            yield f"seeds.json: {tested} samples tested with seed {seed}; the test data have {test['length']}"
    for line in run.curve:
        tested, length = line.get("test_samples"), manifest["data"]["validation"]["length"]
        if tested is not None and tested != length:
            yield f"metrics.jsonl: seed {line['seed']}, epoch {line['epoch']}: {tested} samples validated of {length}"
    size, length = recipe["batch_size"], manifest["data"]["train"]["length"]
    if own_sampler(run) or not size or manifest["batches"] is None:
        return
    if manifest["batches"] not in (length // size, -(-length // size)):
        yield f"manifest.json: {manifest['batches']} batches of {size} from {length} samples"


@relates(
    "format against the facts that came with it",
    M + "format",
    "metrics.jsonl:clock.listening_seconds",
    M + "data.*.label_counts",
)
def _format(run: RunView) -> Iterator[str]:
    clocked = all("listening_seconds" in line["clock"] for line in run.curve)
    newest = FORMAT if all("label_counts" in half for half in run.manifest["data"].values()) else 1 + clocked
    got = run.manifest.get("format", 1)
    if got > FORMAT or got < 1 or (got < newest and not run.manifest["resumed"]):
        yield f"manifest.json: format {got}; the folder has facts of format {newest}"


@relates(
    "files of the run against their formats",
    M + "schema",
    "summary.json:schema",
    "rules.json:schema",
    "stats.json:schema",
)
def _files(run: RunView) -> Iterator[str]:
    """Each is read to its end; lines that a crash may cut short are whole in a run that came to its end."""
    for name in (REPORT, "rules.json", *(() if is_older(run) else (NETWORK,))):
        if not run.has(name):
            yield f"{name}: missing; every run that ended has it"
    for name in (name for name in FILES if run.has(name)):
        if name.endswith(".json"):
            got = read_json(run.path / name).get("schema")
            if name in SCHEMAS and got != SCHEMAS[name]:
                yield f"{name}: schema {short(got)}; this version writes {SCHEMAS[name]}"
        elif read_lines(run.path / name) and not (run.path / name).read_bytes().endswith(b"\n"):
            yield f"{name}: its last line is cut short"


@relates("names of the run", M + "recipe", M + "recipe_file")
def _names(run: RunView) -> Iterator[str]:
    manifest = run.manifest
    file = re.split(r"[\\/]", manifest["recipe_file"] or "")[-1].rpartition(".")[0]
    if file and file != manifest["recipe"]:
        yield f"manifest.json: recipe {short(manifest['recipe'])} of the file {manifest['recipe_file']}"
    sha = manifest["recipe_sha256"]
    if sha is not None and not DIGEST.fullmatch(sha):
        yield f"manifest.json: recipe_sha256 is no digest: {short(sha)}"
