"""A second proof of divided networks: the engine of graph substitutions rewrites the serial graph to the ranks'.

All graphs stand side by side in one e-graph. What collectives give is an axiom: ``AllReduce`` the sum of the ranks'
terms, ``AllGather`` their concatenation, ``ReduceScatter`` and ``AllToAll`` parts of these. The axioms from which the
rules of :mod:`deep500.transformations.substitutions` are proved lead from whole values to pieces and terms, such as
from a product over a divided axis to a sum of products; :func:`layouts` adds what they lack for reshapes and
transpositions of more than two axes. They know nothing of plans, nor of factors.

Where no axiom speaks of an operator, what its rule says is taken for its result, once what it reads is proved to lie
as the rule demands; such nodes are named. (Their attributes and weights are the checker's: it runs before.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from deep500.errors import PlanError
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.operators.registry import DOMAIN
from deep500.transformations.parallel.checking import check_division
from deep500.transformations.parallel.dividing import Division
from deep500.transformations.parallel.rules.movement import groups
from deep500.transformations.parallel.shardings import PARTIAL, R, Sharding, pieces
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.store import INPUT, OPAQUE, StoreValue
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.substitutions.proofs.axioms import ONE, axioms
from deep500.transformations.substitutions.proofs.saturation import LANGUAGE, direction, engine

TERMS = """
(constructor opaque (String i64 T) T) (constructor both (T T) T) (constructor none () T) (constructor zero (String) T)
(rule ((= e (add x (zero s)))) ((union e x))) (rule ((= e (bias a x (zero s)))) ((union e x)))
"""
OUTWARD = {"split": 1, "add": 2, "concat": 3}  # roots of an axiom's sides: rules lead to the higher one
SWAPS = ("1 add commutative", "3 mul commutative")
ROUNDS = 6  # of the rules, until a node is given up


class DivisionProof(NamedTuple):
    """Nodes whose results on the ranks follow from axioms, and those for which a rule was taken at its word."""

    by_axioms: tuple[str, ...]
    by_rules: tuple[str, ...]


def prove_division(division: Division, networks: Sequence[Network]) -> DivisionProof:
    """Prove that the ranks' networks compute together what the serial network does; raises PlanError."""
    check_division(division, networks)
    return SideBySide(division, networks).prove()


class SideBySide:
    """The serial graph and those of the ranks in one e-graph."""

    def __init__(self, division: Division, networks: Sequence[Network]) -> None:
        self.division, self.graph, self.networks = division, division.graph, networks
        self.ranks = range(len(networks))
        self.nodes = [{node.name: node for node in network.nodes} for network in networks]
        imported = import_network(self._together(), training=True)
        self.values, self.store = imported.values, imported.store
        egraph = engine()
        self.run = lambda text: egraph.run_program(*egraph.parse_program(text))
        for text in (LANGUAGE, TERMS, *outward(), *dict.fromkeys(self._layouts())):
            self.run(text)
        for number, node in enumerate(self.store.nodes):
            for output, shape in enumerate(node.shapes):
                value = StoreValue(number, output)
                self.run(f"(let {name_of(value)} {self._text(value)})")
                for axis, size in enumerate(shape):
                    self.run(f"(set (size {name_of(value)} {axis}) {size * ONE})")
        for left, right in self._facts():
            self.run(f"(union {left} {right})")

    def prove(self) -> DivisionProof:
        """Node by node in the order of the serial graph; raises PlanError."""
        by_axioms, by_rules = [], []
        for node in self.graph.nodes:
            strategy = self.division.chosen[node.name]
            goals = list(self._results(node.outputs, strategy.outputs, [self._writes(node, r) for r in self.ranks]))
            if self._equal(goals):
                by_axioms.append(node.name)
                continue
            read = [list(nodes[node.name].inputs) for nodes in self.nodes]
            whole = ["" if index in dict(strategy.sizes) else name for index, name in enumerate(node.inputs)]
            if not self._equal(list(self._results(whole, strategy.inputs, read))):
                raise PlanError(
                    f"node {node.name!r} ({node.op_type}): got ranks of which neither what it writes nor what it reads "
                    f"is proved to be the serial network's; expected {strategy.name!r}: divide the network again"
                )
            for left, right in goals:
                self.run(f"(union {left} {right})")
            by_rules.append(node.name)
        for name, sharding in self.division.outputs.items():
            if not self._equal(list(self._results([name], [sharding], [[name]] * len(self.networks)))):
                raise PlanError(f"got output {name!r}, which is not proved to be the serial network's as {sharding}")
        return DivisionProof(tuple(by_axioms), tuple(by_rules))

    # -- the graphs -----------------------------------------------------------------------------------------------
    def _together(self) -> Network:
        """All nodes that compute as one network; what a rank is given by others, or cuts out, is an input of it."""
        together, graph = Network("side by side"), self.graph
        for name in graph.sources:
            if name in graph.constants:
                together.add_parameter(name, graph.constants[name], trainable=False)
            else:
                together.add_input(name, graph.shapes[name], graph.dtypes[name])
        for node in graph.nodes:
            together.insert(node)
        for rank, network in enumerate(self.networks):
            described, given = network.descriptors(), self._given(rank)
            for name in network.parameters.keys() - set(graph.sources):
                together.add_parameter(f"{rank}/{name}", network.parameter(name).value, trainable=False)
            for name in [*graph.sources, *(name for node in given for name in node.writes)]:
                if (here := self._named(name, rank)) != name:
                    together.add_input(here, described[name].shape, described[name].dtype or "float32")
            for node in network.nodes:
                if node not in given:
                    inputs = tuple(name and self._named(name, rank) for name in node.inputs)
                    outputs = tuple(name and self._named(name, rank) for name in node.outputs)
                    together.insert(replace(node, name=f"{rank}/{node.name}", inputs=inputs, outputs=outputs))
        return together

    def _given(self, rank: int) -> list[Node]:
        """A rank's nodes that communicate, cut a piece out, or let a value pass on one rank."""
        between = [node for node in self.networks[rank].nodes if node.name not in self.graph.by_name]
        return [node for node in between if node.domain == DOMAIN or node.op_type in ("Slice", "Where")]

    def _named(self, value: str, rank: int) -> str:
        whole = value in self.graph.sources and self.division.shardings[value] == R
        return value if whole else f"{rank}/{value}"

    def _writes(self, node: Node, rank: int) -> list[str]:
        """The first output of a rank's node, with its weight."""
        outputs, share = list(self.nodes[rank][node.name].outputs), self.nodes[rank].get(f"{node.name}:share")
        return outputs if share is None else [share.outputs[0], *outputs[1:]]

    # -- terms ----------------------------------------------------------------------------------------------------
    def _text(self, value: StoreValue) -> str:
        node = self.store.node(value)
        operands = [name_of(operand) for operand in node.inputs]
        if node.op in (INPUT, "constant"):
            return f'(V "{value.node}")'
        if node.op == OPAQUE:
            return f'(opaque "{node.parameter("digest")}" {value.output} {reduce(both, operands, "(none)")})'
        if node.op in ACTIVATIONS:
            return f'(unary "{node.op}" {operands[0]})'
        known = dict(node.parameters)
        if node.op == "reshape":
            return f"(reshape {layout_word(node.op, self.store.shape(node.inputs[0]), known['shape'])} {operands[0]})"
        words = [word(name, known[name]) for name in operator(node.op).parameters]
        if node.op == "split":
            words.insert(0, str(value.output))
        if node.op == "concat":
            words.append(str(ONE * self.store.shape(node.inputs[0])[known["axis"]]))
        return f"({' '.join([node.op, *words, *operands])})"

    def _layouts(self) -> Iterator[str]:
        """Axioms of the layouts that these graphs have."""
        for node in self.store.nodes:
            if node.op in ("reshape", "transpose"):
                about, shape = dict(node.parameters), self.store.shape(node.inputs[0])
                yield from layouts(node.op, shape, about["shape" if node.op == "reshape" else "perm"], len(self.ranks))

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Sources on the ranks, and results of collectives, as pairs of equal terms."""
        for name in self.graph.sources:
            if self.division.shardings[name] != R:
                yield from self._results([name], [self.division.shardings[name]], [[name]] * len(self.networks))
        for rank in self.ranks:
            for node in self._given(rank):
                yield self._term(node.outputs[0], rank), self._given_by(node, rank)

    def _given_by(self, node: Node, rank: int) -> str:
        network, about = self.networks[rank], node.attributes
        if node.op_type == "Where":
            here = bool(network.parameter(node.inputs[0]).value)
            return self._term(node.inputs[1], rank) if here else f'(zero "{network.descriptors()[node.outputs[0]]}")'
        if node.op_type == "Slice":
            start, stop, axis = (int(network.parameter(name).value.item()) for name in node.inputs[1:4])
            sizes = pieces((network.descriptors()[node.inputs[0]].shape or ())[axis], len(self.networks))
            number = list(accumulate(sizes)).index(stop)
            assert sum(sizes[:number]) == start
            return part(self._term(node.inputs[0], rank), axis, sizes, number)
        terms = [self._term(self.nodes[r][node.name].inputs[0], r) for r in self.ranks]
        whole = combined(Sharding("P", 0, about.get("reduction", "sum")), terms)
        if node.op_type in ("AllGather", "AllToAll"):
            gather = "gather_" if node.op_type == "AllToAll" else ""
            whole = joined(terms, about[f"{gather}axis"], about[f"{gather}sizes"])
        if node.op_type in ("ReduceScatter", "AllToAll"):
            return part(whole, about["axis"], about["sizes"], about["rank"])
        return whole

    def _term(self, value: str, rank: int) -> str:
        return name_of(self.values[self._named(value, rank)])

    def _results(
        self, names: Sequence[str], shardings: Sequence[Sharding], ranks: Sequence[Sequence[str]]
    ) -> Iterator[tuple[str, str]]:
        """Pairs of terms that are equal if the ranks' values stand for the serial ones in these shardings."""
        for index, (name, sharding) in enumerate(zip(names, shardings, strict=True)):
            if not name:
                continue
            whole, here = name_of(self.values[name]), [self._term(ranks[r][index], r) for r in self.ranks]
            if sharding.kind == "S":
                sizes = pieces(self.graph.shapes[name][sharding.axis], len(here))
                yield from ((part(whole, sharding.axis, sizes, r), term) for r, term in enumerate(here))
            elif sharding == R:
                yield from ((whole, term) for term in here)
            else:
                yield whole, combined(sharding, here)

    def _equal(self, goals: Sequence[tuple[str, str]]) -> bool:
        """Whether pairs of terms are equal, by some rounds of the rules."""
        for side in (side for goal in goals for side in goal if not side.startswith("$")):
            self.run(side)
        for number in range(ROUNDS + 1):
            if number:
                self.run("(run-schedule (saturate (run sizes)) (run))")
            try:
                self.run(f"(check {' '.join(f'(= {left} {right})' for left, right in goals)})")
            except Exception as error:
                if "Check failed" not in str(error):
                    raise
            else:
                return True
        return False


def outward() -> Iterator[str]:
    """The axioms as rules that lead outward only, so that nothing goes round."""
    for axiom in axioms():
        left, right = (OUTWARD.get(side.split()[0].strip("("), 0) for side in (axiom.left, axiom.right))
        forth = axiom.name in SWAPS or left < right or left == OUTWARD["split"]
        sides = (axiom.left, axiom.right) if forth else (axiom.right, axiom.left)
        rule = direction(*sides, axiom.where, present="" if forth else axiom.present)
        if rule is not None and (forth or left > right):
            yield rule


class Layout(NamedTuple):
    """An axiom: what moves elements of an array that is cut moves those of its pieces.

    Attributes:
        op, about: ``"reshape"`` with the new shape, or ``"transpose"`` with the permutation.
        shape: of the array, which is cut at ``cut`` along ``axis``.
        to, cut_to: where the result is cut.
        pieces: the same of both pieces: their shapes, and what ``about`` is for them.
    """

    op: str
    about: tuple[int, ...]
    shape: tuple[int, ...]
    axis: int
    cut: int
    to: int
    cut_to: int
    pieces: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def __str__(self) -> str:
        first, second = (
            f"({self.op} {layout_word(self.op, *piece)} {x})" for piece, x in zip(self.pieces, "xy", strict=True)
        )
        whole = f"({self.op} {layout_word(self.op, self.shape, self.about)} (concat {self.axis} {self.cut * ONE} x y))"
        return f"(rule ((= e {whole})) ((union e (concat {self.to} {self.cut_to * ONE} {first} {second}))))"


def layout_axioms(op: str, shape: tuple[int, ...], about: tuple[int, ...], ranks: int) -> Iterator[Layout]:
    """Where an axis may be cut that stays, or stays the outermost of those that it is regrouped with."""
    before, after = groups(shape, about) if op == "reshape" else (list(range(len(shape))), list(about))
    for axis, label in enumerate(before):
        ends = list(accumulate(pieces(shape[axis], ranks)))
        if label is None or label not in after or shape[axis] < ranks:
            continue
        to, scale = after.index(label), 1.0
        if op == "reshape":
            scale = about[to] / shape[axis]
            if any(end * about[to] % shape[axis] for end in ends):
                continue
        for cut, end in pairwise(ends):  # of the first pieces together, the last one

            def of(count: int, axis: int = axis, to: int = to, scale: float = scale) -> Any:
                resized = (*about[:to], round(count * scale), *about[to + 1 :]) if op == "reshape" else about
                return (*shape[:axis], count, *shape[axis + 1 :]), resized

            here, changed = of(end)
            yield Layout(op, changed, here, axis, cut, to, round(cut * scale), (of(cut), of(end - cut)))


def layouts(op: str, shape: tuple[int, ...], about: tuple[int, ...], ranks: int) -> Iterator[str]:
    """The same as rules; terms of a sum are moved one by one."""
    yield from map(str, layout_axioms(op, shape, about, ranks))
    head = f"{op} {layout_word(op, shape, about)}"
    yield f"(rule ((= e ({head} (add x y)))) ((union e (add ({head} x) ({head} y)))))"


def layout_word(op: str, shape: tuple[int, ...], about: tuple[int, ...]) -> str:
    """A transposition is its permutation; a reshape holds for one shape before it."""
    numbers = ",".join(map(str, about))
    return f'"{",".join(map(str, shape))}>{numbers}"' if op == "reshape" else f'"{numbers}"'


def name_of(value: StoreValue) -> str:
    return f"$n{value.node}_{value.output}"


def word(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value * ONE if name in ("cut", "groups") else value)
    return '"' + (",".join(map(str, value)) if isinstance(value, tuple) else str(value)) + '"'


def both(left: str, right: str) -> str:
    return f"(both {left} {right})"


def combined(sharding: Sharding, terms: Sequence[str]) -> str:
    """Terms of a sum as the sum; others as something that no axiom knows."""
    if sharding == PARTIAL:
        return reduce(lambda left, right: f"(add {left} {right})", terms)
    return f'(opaque "{sharding}" 0 {reduce(both, terms)})'


def joined(terms: Sequence[str], axis: int, sizes: Sequence[int]) -> str:
    whole = terms[0]
    for term, end in zip(terms[1:], accumulate(sizes), strict=False):
        whole = f"(concat {axis} {end * ONE} {whole} {term})"
    return whole


def part(whole: str, axis: int, sizes: Sequence[int], number: int) -> str:
    """A piece of an axis: later ones are cut off from behind, as concatenations nest."""
    ends = [ONE * end for end in accumulate(sizes)]
    for end in ends[number:-1][::-1]:
        whole = f"(split 0 {axis} {end} {whole})"
    return f"(split 1 {axis} {ends[number - 1]} {whole})" if number else whole
