"""A page about one optimized network: what was measured, rules in readable form, and both graphs side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from markupsafe import Markup, escape

from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.pages.rendering import render_page
from deep500.transformations.substitutions.loading import Rules, texts_of
from deep500.transformations.substitutions.result import Optimized, write_text
from deep500.transformations.substitutions.rules.patterns import Pattern, arguments, parse
from deep500.transformations.substitutions.rules.rule_file import PatternRule

BOX, GAP, ROW = 132, 12, 52  # width of a node, between two, and from one layer to the next (pixels)
ACROSS = 4  # nodes in a line of the picture: a wider layer takes several, and both pictures fit side by side
MOST = 400  # nodes that are drawn: more are a wall, not a picture
INFIX = {"add": "+", "mul": "*", "scale": "*", "shift": "+", "matmul": "@", "gain": "*", "bias": "+"}


def readable(rule: PatternRule) -> str:
    """A rule as one writes mathematics, sizes and settings left out.

    Example:
        >>> readable(PatternRule(("(add (matmul x1 x2) (matmul x1 x3))",), ("(matmul x1 (add x2 x3))",)))
        '(x1 @ x2) + (x1 @ x3) = x1 @ (x2 + x3)'
    """
    return " = ".join(", ".join(_text(parse(text), True) for text in side) for side in (rule.left, rule.right))


def _text(pattern: Pattern, outermost: bool = False) -> str:
    if isinstance(pattern, str):
        return pattern
    op, (names, words, operands) = pattern[0], arguments(pattern)
    inner = [_text(operand) for operand in operands]
    if op in INFIX:
        text = f" {INFIX[op]} ".join(inner)
        return text if outermost else f"({text})"
    if op == "concat":
        return f"[{', '.join(_text(operand, True) for operand in operands)}]"
    shown = {"function": 0, "output": 0, "axis": 1}
    settings = [word.strip('"') for name, word in zip(names, words, strict=False) if name in shown]
    return f"{op}({', '.join([*(_text(operand, True) for operand in operands), *settings])})"


def layers(network: Graph) -> list[list[Node]]:
    """Nodes by the longest way from the inputs; within a layer near what they read.

    Example:
        >>> from deep500.networks import create
        >>> [[node.op_type for node in layer] for layer in layers(create("mlp"))][:2]
        [['Flatten'], ['Gemm']]
    """
    depth: dict[str, int] = {}
    column: dict[str, float] = {}
    rows: list[list[Node]] = []
    for node in network.nodes:
        read = [network.producer(name) for name in node.reads]
        row = max((depth[producer.name] + 1 for producer in read if producer is not None), default=0)
        depth[node.name] = row
        rows.extend([] for _ in range(row + 1 - len(rows)))
        rows[row].append(node)
    for nodes in rows:
        for node in nodes:
            above = [column[producer.name] for producer in map(network.producer, node.reads) if producer is not None]
            column[node.name] = sum(above) / len(above) if above else float(len(column))
        nodes.sort(key=lambda node: column[node.name])  # stable: ties stay in the network's order
        column.update({node.name: float(place) for place, node in enumerate(nodes)})
    return rows


def picture(network: Graph, changed: Collection[str]) -> Markup:
    """A network as SVG, layer under layer; nodes whose names are in ``changed`` are of class ``changed``.

    Example:
        >>> from deep500.networks import create
        >>> picture(create("mlp"), ["Gemm_output"]).count("<rect")
        6
    """
    if len(network.nodes) > MOST:
        return Markup("<p>{} operators: more than the {} that are drawn.</p>").format(len(network.nodes), MOST)
    rows = [row[first : first + ACROSS] for row in layers(network) for first in range(0, len(row), ACROSS)]
    width = max((len(row) for row in rows), default=1) * (BOX + GAP)
    place, boxes, lines = {}, [], []
    for depth, row in enumerate(rows):
        left = (width - len(row) * (BOX + GAP)) / 2
        for number, node in enumerate(row):
            x, y = left + number * (BOX + GAP), depth * ROW + GAP
            place[node.name] = (x + BOX / 2, y)
            kind = ' class="changed"' if node.name in changed else ""
            boxes.append(
                f'<g{kind}><title>{escape(str(node))}</title><rect x="{x:g}" y="{y:g}" width="{BOX}" height="28" '
                f'rx="4"/><text x="{x + BOX / 2:g}" y="{y + 18:g}" text-anchor="middle" '
                f'font-size="13">{escape(node.op_type[:20])}</text></g>'
            )
    for node in network.nodes:
        for producer in {m.name: m for m in map(network.producer, node.reads) if m is not None}.values():
            (x1, y1), (x2, y2) = place[producer.name], place[node.name]
            lines.append(f'<line x1="{x1:g}" y1="{y1 + 28:g}" x2="{x2:g}" y2="{y2:g}"/>')
    height = len(rows) * ROW + GAP
    return Markup(
        f'<svg role="img" aria-label="{escape(network.name)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{"".join(lines)}{"".join(boxes)}</svg>'
    )


def page(result: Optimized, rules: Rules = None) -> str:
    """The page, complete in itself.

    Args:
        result: what `optimize_network` returned.
        rules: the rule file that it was made with.

    Example:
        >>> from deep500.networks import create
        >>> from deep500.transformations.substitutions import optimize_network
        >>> text = page(optimize_network(create("nasrnn", hidden=8), measure=False))
        >>> text.count('<svg role="img"'), "Rules applied" in text
        (2, True)
    """
    known = {name: rule for name, (rule, _) in texts_of(rules).items()}
    used = Counter(step.rule[:16] for step in result.history.steps)
    before, after = ({_look(node) for node in net.nodes} for net in (result.original, result.network))
    sides = ((result.original, after, "Before"), (result.network, before, "After"))
    return render_page(
        "optimized.html.j2",
        name=result.original.name,
        backend=result.backend,
        answered=_answer(result),
        faster=result.chosen is not None,
        unproved=result.history.unproved,
        rules=[(n, readable(known[rule]), rule, rule in result.history.unproved) for rule, n in used.most_common()],
        sides=[
            (title, len(net.nodes), picture(net, {node.name for node in net.nodes if _look(node) not in other}))
            for net, other, title in sides
        ],
        text=str(result),
    )


def _answer(result: Optimized) -> str:
    """Say in a sentence what came of it."""
    if result.chosen is None:
        return f"The network stays as it was: {result.reason}."
    sizes = f"{len(result.original.nodes)} operators became {len(result.network.nodes)}"
    if result.measured is None:
        return f"{sizes}; their times were not measured."
    ratio = result.measured[result.chosen].ratio
    ends = "" if ratio.low is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"{sizes}, in {ratio.median:.3f}{ends} of the original's time."


def _look(node: Node) -> tuple[object, ...]:
    """Identity of a node in both graphs: its name and its operator; names stay where values do."""
    return node.op_type, node.name


def save_page(result: Optimized, path: str | Path, rules: Rules = None) -> None:
    """Write the page; InputError where that cannot be."""
    write_text(page(result, rules), path)
