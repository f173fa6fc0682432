"""Drawn networks divided by drawn wishes, against serial training: ``python -m tests.fuzz.plans``.

A number of a seed is a network, a number of ranks, and either any strategy of any node, or wishes: a limit of memory
(often the least that any plan holds), pins of nodes, of inputs and of parameters, cheap messages, values computed
again; or it is a mesh of data and model. The divided step must have the serial
step's outputs, loss, gradients and running statistics in float64, or be refused by an error of our own in one line.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from typing import Any

import numpy as np

from deep500.distributed import Communicator, SchemeMesh, Threads
from deep500.distributed.rank_runs import RankRun
from deep500.distributed.schemes import DividedNetwork
from deep500.errors import BudgetError, Deep500Error
from deep500.frameworks import reference
from deep500.networks.custom import every_node
from deep500.training.optimizers import GradientDescent
from deep500.transformations.parallel.checking import check_division
from deep500.transformations.parallel.costs import StepCosts
from deep500.transformations.parallel.dividing import Division, StepGraph, part
from deep500.transformations.parallel.joint import JointNetwork, joint_network
from deep500.transformations.parallel.planning import Wishes, parallelize
from deep500.transformations.parallel.recomputing import rank_step
from deep500.transformations.parallel.shardings import R, Sharding, piece
from deep500.transformations.recomputation.rewriting import recomputing
from tests.fuzz.plan_networks import KINDS, Arrays, Case

CLOSE = 1e-9
"""Of the largest element of a value, and of what moves by rounding."""
CHEAP = StepCosts(latency=1e-9, start=1e-9, operation_time=1e-6)


class Refused(Exception):
    """An error of our own, in one line."""


def serial(case: Case) -> Arrays:
    """Outputs, gradients and running statistics of one step."""
    executor = reference.from_model(case.network.copy(), "cpu")
    results = {n: np.array(v) for n, v in executor.inference_and_backprop(case.feeds, "loss").items()}
    pairs = executor.network.gradient("loss")
    values = executor.network.fetch_tensors([gradient for _, gradient in pairs])
    results |= {f"{name}.grad": np.array(v) for (name, _), v in zip(pairs, values, strict=True)}
    return results | {f"{name}.new": np.array(v) for name, v in executor.network.state().items()}


def joined(values: list[np.ndarray], sharding: Sharding) -> np.ndarray:
    """The whole of what the ranks have; what is whole everywhere must be equal bit for bit."""
    if sharding.kind == "S":
        return np.concatenate(values, sharding.axis)
    for value in values[1:]:
        assert np.array_equal(value, values[0], equal_nan=True), "ranks have different wholes"
    return values[0]


def divided(case: Case, division: Division, again: Any = ()) -> Arrays:
    """The same of the ranks' networks, which the checker has passed."""
    ranks, joint = division.graph.ranks, division.graph.joint
    networks = [division.network(rank) for rank in range(ranks)]
    check_division(division, networks)
    like = reference.from_model(case.network.copy(arrays=False), "cpu")

    def work(comm: Communicator) -> Arrays:
        network, live = networks[comm.rank], {}
        for name in (*joint.gradients, *joint.moving):
            live[name] = network.parameter(name).value
        feeds = {n: part(v, division.shardings[n], ranks, comm.rank) for n, v in case.feeds.items()}
        if again:
            step = rank_step(network, joint, "loss")
            network = recomputing(step, [set(region) for region in again]).network
        return {n: np.asarray(v) for n, v in RankRun(network, live, like, comm)({**feeds, **live}).items()}

    met = Threads(ranks).run(work)
    whole = {name: joined([m[name] for m in met], sharding) for name, sharding in division.outputs.items()}
    renamed = {gradient: f"{name}.grad" for name, gradient in joint.gradients.items()}
    renamed |= {update: f"{name}.new" for name, update in joint.updates.items()}
    return {renamed.get(name, name): value for name, value in whole.items()}


def wishes_of(draw: random.Random, case: Case, joint: JointNetwork, ranks: int) -> Wishes:
    """Wishes that the plan is asked for."""
    graph, pins = StepGraph(joint, ranks), dict[str, str]()
    share = draw.choice((0.0, 0.0, 0.03, 0.1, 0.3))
    for node in graph.nodes:
        if draw.random() < share:
            pins[node.name] = draw.choice(graph.strategies[node.name]).name
    for name in graph.sources:
        if draw.random() < share / 2:
            pins[name] = str(draw.choice(graph.source_shardings(name)))
    memory = draw.choice((None, 0.9, 0.6, 0.0, 0.0))
    held = sum(p.value.nbytes for p in case.network.parameters.values())
    return Wishes(
        None if memory is None else int(4 * held * memory),
        pins,
        draw.choice((None, None, None, 0.95)),
        model=draw.choice((CHEAP, CHEAP, Wishes().model)),
    )


def plan_of(case: Case, ranks: int, wishes: Wishes) -> Any:
    """A plan; where memory is too little, that of the least memory."""
    shapes = {name: value.shape for name, value in case.feeds.items()}
    try:
        return parallelize(case.network, ranks, shapes, wishes=wishes)
    except BudgetError as error:
        if wishes.memory is None or not error.smallest or "bytes a rank" not in str(error):
            raise
        least = Wishes(error.smallest, wishes.pins, wishes.recompute, model=wishes.model)
        return parallelize(case.network, ranks, shapes, wishes=least)


def arbitrary(draw: random.Random, joint: JointNetwork, ranks: int) -> Division:
    """Any strategy of any node, not those alone that a planner takes; where none leads from one to another, none."""
    graph = StepGraph(joint, ranks)
    sources = {name: draw.choice(graph.source_shardings(name)) for name in graph.sources}
    chosen = {node.name: draw.choice(graph.strategies[node.name]) for node in graph.nodes}
    tied, odd = graph.tied(), {""}
    while odd:
        left = dict(sources)
        for node in graph.nodes:
            left.update(zip(node.outputs, chosen[node.name].outputs, strict=True))
        read = [(node.name, value, s) for node in graph.nodes for value, s in chosen[node.name].reads(node)]
        read += [("", name, sources[tied[name]] if name in tied else R) for name in graph.network.outputs]
        odd = set()
        for reader, value, sharding in read:
            if graph.conversion(value, left[value], sharding) is None:
                producer = graph.network.producer(value)
                odd |= {reader, "" if producer is None else producer.name} - {""}
        chosen.update({name: graph.strategies[name][0] for name in odd})
    return Division(graph, sources, {name: strategy.name for name, strategy in chosen.items()})


def differs(expected: Arrays, got: Arrays, names: Any) -> str:
    """The first value that is another."""
    largest = max((float(np.abs(v).max()) for n, v in expected.items() if n.endswith(".grad") and v.size), default=0.0)
    for name in names:
        a, b = expected[name], got[name]
        if a.shape != b.shape:
            return f"{name} of shape {b.shape}; expected {a.shape}"
        scale = largest if name.endswith(".grad") else float(np.abs(a).max()) if a.size else 0.0
        if a.size and not np.allclose(a, b, rtol=CLOSE, atol=CLOSE * scale + 1e-12, equal_nan=True):
            return f"{name} is off by {float(np.abs(a - b).max()):.3g} of {scale:.3g}"
    return ""


def moves(case: Case, expected: Arrays) -> bool:
    """Return whether rounding alone changes the serial step: a tie, or a number that others cancel to."""
    for seed in range(4):
        rng, network = np.random.default_rng(seed), case.network.copy()
        for name in network.trainable():
            value = network.parameter(name).value
            network.set_parameter(name, value * (1 + 1e-13 * rng.normal(size=value.shape)), trainable=True)
        feeds = {
            n: v * (1 + 1e-13 * rng.normal(size=v.shape)) if v.dtype.kind == "f" else v for n, v in case.feeds.items()
        }
        if differs(expected, serial(Case(network, feeds, "")), expected):
            return True
    return False


def judge(case: Case, draw: random.Random) -> str:
    """Say what is wrong; empty if nothing is. Raises Refused."""
    ranks = draw.choice((2, 2, 3))
    try:
        expected = serial(case)
        joint = joint_network(case.network, {n: v.shape for n, v in case.feeds.items()})
    except Deep500Error as error:
        raise Refused(f"no step: {_line(error)}") from error
    if any(node.is_random for node in every_node(joint.network.nodes)):
        raise Refused("no step: it draws")
    if not all(np.isfinite(v).all() for v in expected.values() if v.dtype.kind == "f"):
        raise Refused("no step: not finite")
    if draw.random() < 0.1 and _rows(case) and (trained := meshed(case, draw)) is not None:
        want = {n: v for n, v in expected.items() if n.endswith(".grad")}
        text = differs(want, trained, want)
        return "" if not text or moves(case, expected) else f"mesh: {text}"
    if draw.random() < 0.5:
        got = divided(case, arbitrary(draw, joint, ranks))
    else:
        wishes = wishes_of(draw, case, joint, ranks)
        try:
            plan = plan_of(case, ranks, wishes)
        except Deep500Error as error:
            raise Refused(_line(error)) from error
        got = divided(case, plan.division(case.network), plan.again)
    text = differs(expected, got, got)
    return text if text and not moves(case, expected) else ""


def _line(error: Exception) -> str:
    assert "\n" not in str(error), f"an error of several lines: {error}"
    return f"{type(error).__name__}: {str(error)[:70]}"


def _rows(case: Case) -> bool:
    """Return whether all inputs have rows of the batch."""
    shapes = [about.shape or () for about in case.network.inputs.values()]
    return bool(shapes) and all(shape and isinstance(shape[0], str) for shape in shapes)


def meshed(case: Case, draw: random.Random) -> Arrays | None:
    """Gradients of two groups of two ranks that have all rows each: the mean is that of one."""
    mesh = SchemeMesh({"data": 2, "model": 2}, lambda o, c: DividedNetwork(o, c, costs=CHEAP))
    rows = next(iter(case.feeds.values())).shape[0]

    def work(comm: Communicator) -> Arrays:
        executor = reference.from_model(case.network.copy(), "cpu")
        scheme = mesh(GradientDescent(executor, "loss", lr=1.0), comm)
        where = piece(rows, 2, comm.rank % 2)
        scheme.step({name: value[where] for name, value in case.feeds.items()})
        with scheme.evaluation():
            names = list(case.network.trainable())
            values = scheme.arrays(scheme.network.fetch_tensors(names))
            pairs = zip(names, values, strict=True)
            return {f"{n}.grad": case.network.parameter(n).value - np.array(v) for n, v in pairs}

    return Threads(4).run(work)[0]


def main() -> int:
    """Exit code 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["drawn"])
    parser.add_argument("--seconds", type=float, default=1e9, help="no further number after so many")
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    count, begin, wrong, ran = Counter[str](), time.monotonic(), 0, 0
    for number in range(words.first, words.first + words.count):
        if time.monotonic() - begin > words.seconds:
            break
        ran += 1
        draw = random.Random(f"{words.seed}:{number}")
        kind, fault, made = words.kinds[number % len(words.kinds)], "", None
        try:
            made = KINDS[kind](draw)
            if made is None:
                count[f"{kind}: nothing to train"] += 1
                continue
            fault = judge(made, draw)
            count[f"{kind}: equal"] += not fault
        except Refused as error:
            count[f"{kind}: refused"] += 1
            count[f"  {error}"] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            last = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__} {str(error)[:300]} at {last.filename.rpartition('/')[2]}:{last.lineno}"
        if fault:
            wrong += 1
            print(f"{number} {kind} ({made.words if made else 'no network'}): {fault}", flush=True)
    print(f"{ran} plans of seed {words.seed}, {time.monotonic() - begin:.0f} s; findings: {wrong or 'none'}")
    for text, times in sorted(count.items()):
        print(f"  {text}: {times}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
