"""Facts of a run's network: nodes against totals, the recipe and a checkpoint; a division against its plan."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from inspect import signature
from math import prod

from deep500.results.checkpoint import list_checkpoints
from deep500.results.division import read_division
from deep500.results.files import read_json
from deep500.results.network import MOST_NODES, NETWORK, read_network
from deep500.results.relations.declaring import relates, short
from deep500.results.relations.figures import measured
from deep500.results.rules.view import RunView
from deep500.training import optimizers

N = f"{NETWORK}:"


@relates(
    "the network against the sum of its nodes and the recipe's batch",
    *(N + name for name in ("count", "parameters", "fixed", "batch", "nodes.*.parameters", "nodes.*.fixed")),
    "manifest.json:resolved.recipe.batch_size",
)
def _nodes(run: RunView) -> Iterator[str]:
    network = read_network(run.path)
    if network is None:
        return
    asked = run.manifest["resolved"]["recipe"]["batch_size"]
    if network["batch"] != asked:
        yield f"{NETWORK}: sizes of a batch of {network['batch']}; the recipe's are of {asked}"
    nodes = network["nodes"]
    if len(nodes) != min(network["count"], MOST_NODES):
        yield f"{NETWORK}: {len(nodes)} nodes are listed of {network['count']}"
    for kind in ("parameters", "fixed"):
        listed = sum(node[kind] for node in nodes)
        if listed != network[kind] and (listed > network[kind] or len(nodes) == network["count"]):
            yield f"{NETWORK}: {short(network[kind])} {kind}; its nodes have {short(listed)}"


PRODUCTS = ("Attention", "Conv", "ConvTranspose", "GRU", "Gemm", "LSTM", "MatMul", "RNN")


@relates(
    "operations of a sample against the network's, and these against its sizes",
    N + "nodes.*.operations",
    "seeds.json:*.values",
    "seeds.json:*.notes",
)
def _operations(run: RunView) -> Iterator[str]:
    """A step takes a product once forward and at most three times backward (twice without strides), anything else at
    most seven times; what depends on no input, or has no batch, is computed once for all samples."""
    network = read_network(run.path)
    if network is None or network["count"] > len(network["nodes"]):
        return
    low, high, depends, batch = 0.0, 0.0, list[bool](), network["batch"]
    for node in network["nodes"]:
        depends.append(any(isinstance(read, str) or depends[read] for read in node["reads"]))
        count, shape, weights = node["operations"], node["shape"], node["parameters"] + node["fixed"]
        if count is None:
            high = float("inf")
            continue
        if node["operator"] in ("Conv", "Gemm") and weights > (channels := shape[1]):
            places = prod(shape) / channels
            if not 2 * (weights - channels) * places <= count <= 2 * weights * places:
                yield f"{NETWORK}: {count} operations of {node['name']}: {weights} weights at {places:g} places"
        low += count / batch if depends[-1] else 0.0
        of_each = depends[-1] and (batch in shape or not shape)
        high += (4 if node["operator"] in PRODUCTS else 8) * count / (batch if of_each else 1)
    for seed, _, name, value, details, reason in measured(run, "Flops", "FlopRate", "RoofShare"):
        counted = details.get("FLOP_per_sample", value if name.endswith("_flops") else None)
        of_items = run.manifest["task"]["sample"] == "sample"
        if of_items and counted is not None and not reason and not low * (1 - 1e-9) <= counted <= high:
            got = f"{short(counted)} operations of a sample by {name} of seed {seed}"
            yield f"seeds.json: {got}; the network's nodes allow {low:.6g} to {high:.6g}"


@relates("the network against a checkpoint's arrays", N + "parameters", N + "fixed")
def _trained(run: RunView) -> Iterator[str]:
    network, manifest = read_network(run.path), run.manifest
    if network is None or manifest["ranks"] != 1 or not run.has("checkpoints"):
        return
    for seed in manifest["seeds"][:1]:
        checkpoint = run.newest_checkpoint(seed)
        arrays = {} if checkpoint is None else checkpoint["arrays"]
        saved = [a for name, a in arrays.items() if name.startswith("network/") and a.dtype.kind not in "iub"]
        numbers, declared = sum(array.size for array in saved), network["parameters"] + network["fixed"]
        if checkpoint is not None and numbers < declared:  # it may hold what no node reads
            yield f"{NETWORK}: {declared} parameters; the newest checkpoint holds {numbers}"


R = "manifest.json:resolved.recipe."


@relates(
    "checkpoints that a run keeps",
    R + "keep_checkpoints",
    "metrics.jsonl:epoch",
    "metrics.jsonl:seed",
    "metrics.jsonl:clock.steps",
)
def _saved(run: RunView) -> Iterator[str]:
    """They are the second witness of the curve: without them losses and accuracies are their author's word."""
    keep, gone = run.manifest["resolved"]["recipe"]["keep_checkpoints"], []
    for seed in run.manifest["seeds"]:
        lines = [line for line in run.curve if line["seed"] == seed]
        files = list_checkpoints(run.path / "checkpoints" / f"seed-{seed}")
        there = [int(path.stem.partition("-")[2]) for path in files]
        if there[-1:] != [line["epoch"] for line in lines[-1:]] or len(there) > keep:
            gone.append(f"{seed} ({', '.join(map(str, there)) or 'none'})")
        elif (checkpoint := run.newest_checkpoint(seed)) is not None:
            values, steps = checkpoint["values"], sum(line["clock"]["steps"] for line in lines)
            got = values["seed"], checkpoint["epoch"], values["epoch"], values["step"]
            if got != (seed, there[-1], there[-1], steps):
                expected = f"seed {seed} after {there[-1]} epochs and {steps} steps"
                yield f"checkpoints: {expected}; it is of seed {got[0]} after {got[2]} epochs and {got[3]} steps"
    if gone:
        yield f"checkpoints: of seed {', '.join(gone)}; a run keeps the newest {keep} epochs, which vouch for its curve"


@relates(
    "training against its checkpoints",
    *(R + name for name in ("optimizer", "optimizer_kwargs", "batch_size")),
    "manifest.json:data.train.length",
)
def _setting(run: RunView) -> Iterator[str]:
    """An optimizer and a sampler have the numbers that the recipe gives them, unless a schedule sets them."""
    manifest, recipe = run.manifest, run.manifest["resolved"]["recipe"]
    if manifest["ranks"] != 1 or manifest["resumed"] or not run.has("checkpoints"):
        return
    asked = {**recipe["optimizer_kwargs"], "samples": manifest["data"]["train"]["length"]}
    asked |= {"batch_size": recipe["batch_size"]}
    module, _, name = recipe["optimizer"].rpartition(":")
    kind = getattr(optimizers, name, None) if not module or module.startswith(optimizers.__name__) else None
    for seed in manifest["seeds"]:
        if (checkpoint := run.newest_checkpoint(seed)) is None:
            continue
        values = checkpoint["values"]
        numbers, sampler = values["hyperparameters"], values["sampler"]
        strange = sorted(set(numbers) - set(signature(kind).parameters)) if kind is not None else []
        if strange:
            yield f"manifest.json: {name}, which has no {', '.join(strange)}; the checkpoint of seed {seed} has"
        saved = {**numbers, **{field: sampler[field] for field in ("batch_size", "samples") if field in sampler}}
        for field, expected in asked.items():
            scheduled = f'"{field}"' in json.dumps([recipe["schedule"], recipe["groups"], recipe["events"]])
            if type(expected) in (int, float) and field in saved and not scheduled and saved[field] != expected:
                got = f"{field} of the checkpoint of seed {seed} is {short(saved[field])}"
                yield f"manifest.json: {short(expected)}; {got}"


@relates(
    "names of network and data against the recipe",
    N + "name",
    R + "model",
    R + "dataset",
    "manifest.json:data.train.name",
)
def _called(run: RunView) -> Iterator[str]:
    manifest, network = run.manifest, read_network(run.path)
    recipe = manifest["resolved"]["recipe"]
    names = {half: facts["name"] for half, facts in manifest["data"].items()} if manifest["data"] else {}
    pairs = [(f"the {half} data", recipe["dataset"], name) for half, name in names.items()]
    if network is not None and not recipe["network_transformations"]:
        pairs.append(("the network", recipe["model"], network["name"]))
    for what, asked, got in pairs:
        if isinstance(asked, str) and re.fullmatch(r"\w+", asked) and got != asked:
            yield f"manifest.json: {what} of the recipe is {short(asked)}; {short(got)} was there"


@relates("a divided network against its plan", "division.json:nbytes", "division.json:ranks", "division.json:nodes")
def _divided(run: RunView) -> Iterator[str]:
    division = read_division(run.path)
    if division is None:
        return
    plan = read_json(run.path / "parallel_plan.json")
    for name in ("ranks", "seconds", "nbytes", "memory"):
        if division[name] != plan[name]:
            yield f"division.json: {name} {short(division[name])}; the plan has {short(plan[name])}"
    chosen = {node["node"]: node["strategy"] for node in division["nodes"] if node["operator"]}
    for node, strategy in plan["strategies"].items():
        if chosen.get(node) != strategy:
            yield f"division.json: node {short(node)} by {short(chosen.get(node))}; the plan says {short(strategy)}"
    sent = sum(node["nbytes"] for node in division["nodes"])
    if sent != division["nbytes"]:
        yield f"division.json: {sent} bytes sent before nodes; {division['nbytes']} in all"
