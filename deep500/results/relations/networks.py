"""Facts of a run's network: nodes against totals, the recipe and a checkpoint; a division against its plan."""

from __future__ import annotations

from collections.abc import Iterator

from deep500.results.division import read_division
from deep500.results.files import read_json
from deep500.results.network import NETWORK, read_network
from deep500.results.relations.declaring import relates, short
from deep500.results.rules.view import RunView

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
    if len(nodes) > network["count"]:
        yield f"{NETWORK}: {len(nodes)} nodes are listed of {network['count']}"
    for kind in ("parameters", "fixed"):
        listed = sum(node[kind] for node in nodes)
        if listed != network[kind] and (listed > network[kind] or len(nodes) == network["count"]):
            yield f"{NETWORK}: {short(network[kind])} {kind}; its nodes have {short(listed)}"


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
