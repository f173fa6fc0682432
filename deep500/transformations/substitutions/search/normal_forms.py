"""All linear branches between one value and one sum or concatenation, brought to one normal form in a single move.

An ACNet block is a sum of convolutions of several kernels, each with its normalization: none of the steps that make one
convolution of it pays by itself, since a larger kernel costs more until it is merged. So a whole neighbourhood is
rewritten by a fixed order of proved rules, whatever the steps cost, and the form is taken where it costs less as a
whole: gains and scales go into weights, biases behind sums, kernels grow to those beside them, and what reads alike
becomes one. The steps are ordinary moves of the history, and replay as all others do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

from deep500.transformations.substitutions.graph.store import StoredGraph, StoreNode, StoreValue
from deep500.transformations.substitutions.rules.matching import Match, Matcher
from deep500.transformations.substitutions.rules.rule_file import PatternRule
from deep500.transformations.substitutions.rules.rule_text import from_text
from deep500.transformations.substitutions.search.moves import AppliedRule, apply, place

LINEAR = frozenset({"add", "bias", "gain", "scale", "conv", "matmul", "avgpool", "concat"})
"""Operators that a neighbourhood is made of."""
JOINING = frozenset({"add", "concat"})
BEHIND = frozenset({"bias", "gain", "scale"})
"""Operators behind a sum that belong to it."""
CONV = "(conv k s d e g x {})"
_ONE, _THREE = '"1,1" "1,1" "0,0,0,0" "1,1" g', '"3,3" "1,1" "1,1,1,1" "1,1" g'
_WHOLE = "p = size x 1, p = size (identity_kernel q) 0"
FOLD = (
    f"(gain 1 {CONV.format('w')} v) = {CONV.format('(gain 0 w v)')}",
    "(gain a (bias a x b) c) = (bias a (gain a x c) (mul b c))",
    "(gain a (gain a x b) c) = (gain a x (mul b c))",
    "(gain 1 (matmul x w) v) = (matmul x (gain 1 w v))",
    "(gain 0 (matmul x w) v) = (matmul (gain 0 x v) w)",
    f"(scale {CONV.format('w')} v) = {CONV.format('(scale w v)')}",
    "(scale (bias a x b) v) = (bias a (scale x v) (scale b v))",
    "(scale (matmul x w) v) = (matmul x (scale w v))",
    "(add (bias a x b) y) = (bias a (add x y) b)",
    "(concat a p (bias a x b) (bias a y c)) = (bias a (concat a p x y) (concat 0 p b c)); p = size x a, p = size b 0",
)
"""Vectors and numbers go into weights and behind sums, from left to right."""
ENLARGE = tuple(
    f'(conv "{kernel}" s "{pads}" "1,1" g x w) = (conv "3,3" s "1,1,1,1" "1,1" g x (enlarge "{kernel}" "3,3" w))'
    for kernel, pads in (("1,1", "0,0,0,0"), ("1,3", "0,1,0,1"), ("3,1", "1,0,1,0"))
)
"""Kernels grow, where another kernel reads the same."""
MERGE = (
    f"(add {CONV.format('w')} {CONV.format('v')}) = {CONV.format('(add w v)')}",
    *(
        line
        for conv in (f"(conv {_ONE} x {{}})", f"(conv {_THREE} x {{}})")
        for line in (
            f"(add {conv.format('w')} x) = {conv.format('(add (identity_kernel q) w)')}; {_WHOLE}",
            f"(add {conv.format('w')} (gain 1 x v)) = "
            f"{conv.format('(add (gain 0 (identity_kernel q) v) w)')}; {_WHOLE}",
        )
    ),
    f'(add (avgpool "3,3" "1,1" "1,1,1,1" "True" x) (conv {_THREE} x w)) = (conv {_THREE} x (add (pool_kernel q) w)); '
    "g = size x 1, g = size (pool_kernel q) 0",
    "(concat 1 p (conv k s d e 4097 x w) (conv k s d e 4097 x v)) = (conv k s d e 4097 x (concat 0 p w v))",
    "(add (matmul x w) (matmul x v)) = (matmul x (add w v))",
    "(add (matmul x w) (matmul y w)) = (matmul (add x y) w)",
    "(add (matmul x w) (matmul y v)) = (matmul (concat 1 p x y) (concat 0 p w v)); p = size x 1",
    "(concat 1 p (matmul x w) (matmul x v)) = (matmul x (concat 1 p w v))",
    "(add (gain a x b) (gain a x c)) = (gain a x (add b c))",
)
"""Branches become one."""
REORDER = ("(add (add x y) z) = (add (add x z) y)",)
"""For branches that are not neighbours in a sum."""
MOST = 400
"""Steps of one neighbourhood."""


@functools.cache
def _directed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the rules, each from left to right."""
    written = [from_text(text) for text in texts]
    return tuple(f"{rule.rule.id}{'<' if rule.reverse else '>'}" for rule in written)


class NormalForms:
    """Neighbourhoods of a graph, and their normal forms.

    Args:
        rules: those that may be applied; what is not among them is left out.

    Example:
        >>> from deep500.networks import create
        >>> from deep500.transformations.substitutions.graph.importing import import_network
        >>> from deep500.transformations.substitutions.rules.rule_file import read
        >>> graph = import_network(create("repvgg", 1, shape=(3, 8, 8), widths=(4,), blocks=(1,))).graph
        >>> forms = NormalForms(read())
        >>> root = forms.roots(graph)[-1]
        >>> steps = list(forms.normalize(graph, root))
        >>> [sum(graph.store.nodes[n].op == "conv" for n in state.nodes()) for state in (graph, steps[-1][0])]
        [4, 3]
    """

    def __init__(self, rules: Sequence[PatternRule]) -> None:
        phases = (_directed(texts) for texts in (FOLD, ENLARGE, MERGE, REORDER))
        self.fold, self.enlarge, self.merge, self.reorder = (Matcher(rules, only=set(names)) for names in phases)

    def roots(self, graph: StoredGraph) -> list[StoreValue]:
        """Sums and concatenations that end a neighbourhood, those behind others first.

        Biases and gains behind a sum belong to it; another sum or product that reads it alone makes it part of a larger
        neighbourhood.
        """
        store, users = graph.store, graph.users()
        chosen = dict[StoreValue, None]()
        for number in reversed(graph.nodes()):
            if store.nodes[number].op in JOINING and not store.nodes[number].constant:
                root = StoreValue(number)
                while len(readers := users[root]) == 1 and readers[0] >= 0 and store.nodes[readers[0]].op in BEHIND:
                    root = StoreValue(readers[0])
                if len(readers) != 1 or readers[0] < 0 or store.nodes[readers[0]].op not in JOINING:
                    chosen.setdefault(root)
        return list(chosen)

    def region(self, graph: StoredGraph, root: StoreValue) -> list[int]:
        """Nodes from a root down through linear operators that nothing outside reads."""
        store, users = graph.store, graph.users()
        if root not in users:
            return []  # what was made of another neighbourhood took it in
        inside, todo = {root.node}, [root.node]
        while todo:
            for value in store.nodes[todo.pop()].inputs:
                node = store.node(value)
                if value.node in inside or node.constant or node.op not in LINEAR:
                    continue
                if all(reader in inside for reader in users[value]):
                    inside.add(value.node)
                    todo.append(value.node)
        return sorted(inside)

    def apart(self, graph: StoredGraph, root: StoreValue) -> list[str]:
        """Branches of one value that no rule joins, in words."""
        store, among = graph.store, self.region(graph, root)
        texts = []
        for node in (store.nodes[number] for number in among):
            terms = [store.node(value) for value in node.inputs] if node.op in JOINING else []
            if all(term.op == "conv" for term in terms) and len({term.inputs[0] for term in terms}) == 1:
                kernels = [dict(term.parameters)["kernel"] for term in terms]
                texts.append(f"convolutions of one image, kernels {kernels}: no rule joins them")
        return texts

    def normalize(self, graph: StoredGraph, root: StoreValue) -> Iterator[tuple[StoredGraph, AppliedRule]]:
        """The graphs on the way from a neighbourhood to its normal form, with the steps.

        Each step looks at the nodes of the neighbourhood alone, and makes it smaller, or moves something that never
        moves back, so that there are as many steps as nodes, up to a factor.
        """
        seen = {graph.outputs}
        for _ in range(MOST):
            moves = self._moves(graph, root, self.region(graph, root))
            move = next((move for move in moves if move[1].outputs not in seen), None)
            if move is None:
                return
            match, new, root = move
            step = AppliedRule(match.rule, place(graph.store, match))
            graph = new
            seen.add(graph.outputs)
            yield graph, step

    def _moves(
        self, graph: StoredGraph, root: StoreValue, among: list[int]
    ) -> Iterator[tuple[Match, StoredGraph, StoreValue]]:
        """Moves that can be made next, the best first: the graph, and where the neighbourhood's root is then."""
        for matcher in (self.fold, self.merge, self.enlarge):
            for match in matcher.matches(graph, among=among):
                if matcher is not self.enlarge or _beside_another(graph, match, among):
                    if after := self._after(graph, match, root):
                        yield match, *after
        for match in self.reorder.matches(graph, among=among):
            after = self._after(graph, match, root)
            # Merging in the new order is the next step, so what is not followed by one is no step.
            if after and any(True for _ in self.merge.matches(after[0], among=self.region(*after))):
                yield match, *after

    def _after(self, graph: StoredGraph, match: Match, root: StoreValue) -> tuple[StoredGraph, StoreValue] | None:
        """The graph after a match, and the root's place in it."""
        # The root is followed through the replacement as one more output.
        probe = StoredGraph(graph.store, (*graph.outputs, root))
        new = apply(probe, match)
        return None if new is None else (StoredGraph(graph.store, new.outputs[:-1]), new.outputs[-1])


def _beside_another(graph: StoredGraph, match: Match, among: Iterable[int]) -> bool:
    """Return whether another kernel in the neighbourhood convolves the same image with the same strides."""
    store = graph.store
    node = store.node(match.sites[0])

    def looks(other: StoreNode) -> bool:
        same = all(other.parameter(name) == node.parameter(name) for name in ("strides", "groups", "dilations"))
        return same and other.inputs[0] == node.inputs[0] and other.parameter("kernel") != node.parameter("kernel")

    return any(store.nodes[number].op == "conv" and looks(store.nodes[number]) for number in among)
