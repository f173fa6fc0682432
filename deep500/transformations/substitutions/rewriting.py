"""Rules of one's own: written as two patterns or as two small networks, proved, and applied where they match.

The text form is in `rules.rule_text`, operators and their parameters are those of `operators.specification.operators`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from deep500.errors import InputError
from deep500.networks.network import Network
from deep500.transformations.substitutions.equivalence import Equivalence, check_equivalent
from deep500.transformations.substitutions.graph.importing import Imported, import_network
from deep500.transformations.substitutions.graph.sizes import Size
from deep500.transformations.substitutions.graph.store import INPUT, OPAQUE, StoredGraph, StoreValue
from deep500.transformations.substitutions.graph.writing import export_network
from deep500.transformations.substitutions.loading import Rules, judged, refuse, written_rules
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.own import Activation as Activation
from deep500.transformations.substitutions.operators.own import add_activation as add_activation
from deep500.transformations.substitutions.operators.own import load_activation as load_activation
from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.substitutions.proofs.verdicts import Verdict
from deep500.transformations.substitutions.result import History
from deep500.transformations.substitutions.rules.matching import Match, Matcher
from deep500.transformations.substitutions.rules.patterns import BITS, Pattern
from deep500.transformations.substitutions.rules.rule_file import PatternRule
from deep500.transformations.substitutions.rules.rule_text import ONE, WrittenRule, from_text, to_text, written
from deep500.transformations.substitutions.search.backtracking import State
from deep500.transformations.substitutions.search.moves import AppliedRule, apply, place

MOST = 1000
"""Steps of one application: rules may go in circles."""
Side = str | Path | Network | onnx.ModelProto
"""One side of a rule: a pattern, or a network whose outputs are the rule's."""


def rule(left: Side, right: Side, where: Sequence[str] = ()) -> PatternRule:
    """A rule of two sides; nothing is proved yet: see `prove`.

    Args:
        left, right: patterns such as ``"(matmul x (add y z))"`` (two outputs: ``"(relu x), (relu y)"``), or networks,
            ONNX messages, or ONNX files whose inputs have the same names. Their symbolic sizes are names of sizes;
            fixed ones are not: give every size that may differ a symbol.
        where: conditions on sizes, beyond those that symbols of networks state: ``"p = size x 1"``.

    Raises:
        DataError: no pattern, or sides of which neither gives what the other needs.
        InputError: networks with operators outside of the rule language, or with other inputs on each side.

    Example:
        >>> mine = rule("(add (matmul x y) (matmul x z))", "(matmul x (add y z))")
        >>> str(prove(mine)[0])
        'proved by egglog'
    """
    texts = isinstance(left, str) and left.lstrip().startswith("("), isinstance(right, str)
    if texts[0]:
        if not texts[1]:
            raise InputError(f"got a pattern and {right!r}; expected two patterns or two networks")
        return from_text(f"{left} = {right}{'; ' * bool(where)}{', '.join(where)}").rule
    sides = [_Side(_network(side)) for side in (left, right)]
    if sides[0].inputs != sides[1].inputs:
        raise InputError(
            f"got inputs {sides[0].inputs} and {sides[1].inputs}; expected the same names and sizes on both sides"
        )
    lines = dict.fromkeys([*where, *(line for side in sides for line in side.conditions())])
    return written(sides[0].patterns, sides[1].patterns, list(lines), "", "rule").rule


def _network(side: Any) -> Network:
    if isinstance(side, Network):
        return side
    return Network.from_onnx(side)


class _Side:
    """A network as patterns, one for each output; numbers that stand for symbolic sizes become names again."""

    def __init__(self, network: Network) -> None:
        imported = import_network(network, training=True)
        if network.parameters:
            raise InputError(
                f"got constants {', '.join(network.parameters)}; expected inputs only: name them as inputs"
            )
        self.store = imported.store
        self.inputs = {name: described.shape for name, described in network.inputs.items()}
        self.used: dict[str, None] = {}
        self.opaque = imported.opaque
        self.patterns = [self._pattern(value) for value in imported.graph.outputs]

    def _size(self, number: int) -> str:
        if not isinstance(number, Size):
            if number >= 1 << BITS:
                raise InputError(f"got size {number}; expected one below {1 << BITS}, or a symbol")
            return str(number * ONE)
        if number.symbol is None:
            raise InputError("got a size computed of several; expected a number or a symbol: give it one")
        name = f"size_{number.symbol}"
        self.used.setdefault(name)
        return name

    def _pattern(self, value: StoreValue) -> Pattern:
        node = self.store.node(value)
        if node.op == INPUT:
            return str(node.parameter("name"))
        if node.op == OPAQUE or node.op in ("constant", "reshape"):
            name = dict(node.parameters).get("op_type", node.op)
            raise InputError(f"got operator {name} in a side of a rule; expected operators of the rule language")
        operands = [self._pattern(operand) for operand in node.inputs]
        if node.op in ACTIVATIONS:
            return ["unary", f'"{node.op}"', *operands]
        known = dict(node.parameters)
        words = [self._word(name, known[name]) for name in operator(node.op).parameters]
        if node.op == "split":
            words.insert(0, str(value.output))
        if node.op == "concat":
            words.append(self._size(self.store.shape(node.inputs[0])[known["axis"]]))
        return [node.op, *words, *operands]

    def _word(self, name: str, value: Any) -> str:
        if name in ("cut", "groups"):
            return self._size(value)
        if isinstance(value, tuple):
            return '"' + ",".join(map(str, value)) + '"'
        return f'"{value}"' if isinstance(value, bool) else str(value)

    def conditions(self) -> list[str]:
        """Conditions on the inputs that the symbols in patterns stand for."""
        return [
            f"size_{size} = size {name} {axis}"
            for name, shape in self.inputs.items()
            for axis, size in enumerate(shape or ())
            if isinstance(size, str) and f"size_{size}" in self.used
        ]


def prove(rules: Rules) -> list[Verdict]:
    """Judge rules: proved, refuted with numbers, or unknown and tried (finite fields, kernels).

    Args:
        rules: a file, a rule, or several.

    Raises:
        DataError: a file is absent or holds no rules.
        MissingEngine: egglog is not installed.

    Example:
        >>> prove(rule("(relu (add x y))", "(add (relu x) (relu y))"))[0].rule.verdict
        'refuted'
    """
    return judged(tuple(candidate.rule for candidate in written_rules(rules)), thorough=True)


@dataclass(frozen=True)
class Applied:
    """A network with rules applied.

    Attributes:
        network: the result.
        history: the steps; ``history.unproved`` names rules that nobody proved.
        equivalence: how far the result is from what was given; None where nothing changed.
    """

    network: Network
    history: History
    equivalence: Equivalence | None

    def __str__(self) -> str:
        lines = [f"{len(self.history.steps)} steps"]
        if self.equivalence is not None:
            lines.append(f"checked: {self.equivalence}")
        if self.history.unproved:
            lines.append(f"NOT PROVED: rules {', '.join(self.history.unproved)} were applied without a proof")
        return "\n".join(lines)


def apply_rules(network: Network, rules: Rules, unproved: bool = False, seed: int = 0) -> Applied:
    """Apply rules from left to right, wherever they match, until none does; nothing is priced.

    Args:
        network: stays as it is.
        rules: which, see :func:`~deep500.optimize_network`.
        unproved: take rules that are neither proved nor refuted, too.
        seed: of the inputs for the check.

    Raises:
        DataError: a rule that may not be applied.
        InputError: a rule that cannot be applied from left to right, or rules that go on for ever.
        NotEquivalent: the result computes something else.

    Example:
        >>> from deep500.networks import create
        >>> network = create("mlp", batch=2)
        >>> swapped = rule("(relu (bias 1 x b))", "(bias 1 (relu x) b)")
        >>> apply_rules(network, swapped, unproved=True)
        Traceback (most recent call last):
        deep500.errors.DataError: ...
    """
    rules_written = written_rules(rules)
    verdicts = judged(tuple(candidate.rule for candidate in rules_written))
    for candidate, verdict in zip(rules_written, verdicts, strict=True):
        refuse(candidate, verdict, unproved)
    matcher = _forward(rules_written, [verdict.rule for verdict in verdicts])
    imported = import_network(network)
    graph, steps = _everywhere(imported, matcher)
    history = History.from_search(imported, State(graph, 0.0, tuple(steps)), matcher.unproved)
    if not steps:
        return Applied(network.copy(), History(history.network, history.specification, False, {}, unchanged=True), None)
    rewritten = export_network(imported, graph)
    return Applied(rewritten, history, check_equivalent(imported, graph, rewritten, seed))


def _forward(rules: Sequence[WrittenRule], decided: Sequence[PatternRule]) -> Matcher:
    """A matcher for rules from what was written left to what was written right."""
    matcher = Matcher(decided)
    reverse = {candidate.rule.id: candidate.reverse for candidate in rules}
    forward = [directed.name for directed in matcher.directed if directed.reverse == reverse[directed.rule.id]]
    missing = [candidate for candidate in rules if not any(name.startswith(candidate.rule.id) for name in forward)]
    if missing:
        candidate = missing[0]
        raise InputError(
            f"{candidate.where}: got rule {candidate.name}, {to_text(candidate.rule)}, whose left does not give what "
            "the right needs; expected one that can be applied from left to right: swap its sides, or search with "
            "'deep500 optimize'"
        )
    return Matcher(decided, only=forward)


def _everywhere(imported: Imported, matcher: Matcher) -> tuple[StoredGraph, list[AppliedRule]]:
    graph, steps = imported.graph, list[AppliedRule]()
    seen = {graph.outputs}
    while True:
        change: tuple[Match, StoredGraph] | None = None
        for match in matcher.matches(graph):
            new = apply(graph, match)
            if new is not None and new.outputs not in seen:  # rules may undo each other
                change = match, new
                break
        if change is None:
            return graph, steps
        if len(steps) == MOST:
            raise InputError(f"got no end after {MOST} steps; expected rules that end: leave out those that grow")
        match, new = change
        steps.append(AppliedRule(match.rule, place(graph.store, match)))
        seen.add(new.outputs)
        graph = new


def one_rule(rules: Rules, name: str) -> WrittenRule:
    """The rule with a name, an id, or an id that begins so.

    Raises:
        InputError: none, or several.
    """
    known = written_rules(rules)
    matching = [rule for rule in known if rule.name == name or (len(name) >= 4 and rule.rule.id.startswith(name))]
    if len(matching) != 1:
        raise InputError(
            f"got rule {name!r}, which {len(matching)} of {len(known)} rules are called; expected a name, or an id by "
            "its first letters (four at least): see 'deep500 tools rules list'"
        )
    return matching[0]
