"""A page about one optimized network: what was measured, rules in readable form, and both graphs side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from html import escape
from pathlib import Path

from deep500.errors import InputError
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.transformations.substitutions.loading import Rules, texts_of
from deep500.transformations.substitutions.result import Optimized
from deep500.transformations.substitutions.rules.patterns import Pattern, arguments, parse
from deep500.transformations.substitutions.rules.rule_file import PatternRule

BOX, GAP, ROW = 132, 12, 52  # width of a node, between two, and from one layer to the next (pixels)
MOST = 400  # nodes that are drawn: more are a wall, not a picture
INFIX = {"add": "+", "mul": "*", "scale": "*", "shift": "+", "matmul": "@", "gain": "*", "bias": "+"}
KEPT, CHANGED = "#e8e8e8", "#ffd58a"
STYLE = "body{font:14px sans-serif;margin:24px}.side{display:flex;gap:32px;overflow:auto}pre,code{background:#f4f4f4}"


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


def picture(network: Graph, changed: Collection[str]) -> str:
    """A network as SVG, layer under layer; nodes whose names are in ``changed`` are coloured.

    Example:
        >>> from deep500.networks import create
        >>> picture(create("mlp"), ["Gemm_output"]).count("<rect")
        6
    """
    if len(network.nodes) > MOST:
        return f"<p>{len(network.nodes)} operators: more than the {MOST} that are drawn.</p>"
    rows = layers(network)
    width = max((len(row) for row in rows), default=1) * (BOX + GAP)
    place, boxes, lines = {}, [], []
    for depth, row in enumerate(rows):
        left = (width - len(row) * (BOX + GAP)) / 2
        for number, node in enumerate(row):
            x, y = left + number * (BOX + GAP), depth * ROW + GAP
            place[node.name] = (x + BOX / 2, y)
            fill = CHANGED if node.name in changed else KEPT
            boxes.append(
                f'<g><title>{escape(str(node))}</title><rect x="{x:g}" y="{y:g}" width="{BOX}" height="28" rx="4" '
                f'fill="{fill}" stroke="#666"/><text x="{x + BOX / 2:g}" y="{y + 18:g}" text-anchor="middle" '
                f'font-size="12">{escape(node.op_type[:20])}</text></g>'
            )
    for node in network.nodes:
        for producer in {m.name: m for m in map(network.producer, node.reads) if m is not None}.values():
            (x1, y1), (x2, y2) = place[producer.name], place[node.name]
            lines.append(f'<line x1="{x1:g}" y1="{y1 + 28:g}" x2="{x2:g}" y2="{y2:g}" stroke="#999"/>')
    height = len(rows) * ROW + GAP
    return (
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
        >>> text.count("<svg"), "Rules applied" in text
        (2, True)
    """
    known = {name: rule for name, (rule, _) in texts_of(rules).items()}
    notes = dict.fromkeys(result.history.unproved, " <b>not proved</b>")
    used = Counter(step.rule[:16] for step in result.history.steps)
    items = "".join(
        f"<tr><td>{times}</td><td><code>{escape(readable(known[rule]))}</code></td>"
        f"<td>{rule}{notes.get(rule, '')}</td></tr>"
        for rule, times in used.most_common()
    )
    table = f"<table><tr><th>times</th><th>rule</th><th>id</th></tr>{items}</table>" if items else "<p>none</p>"
    before, after = ({_look(node) for node in net.nodes} for net in (result.original, result.network))
    sides = ((result.original, after, "before"), (result.network, before, "after"))
    pictures = "".join(
        f"<div><h2>{title}: {len(net.nodes)} operators</h2>"
        f"{picture(net, {node.name for node in net.nodes if _look(node) not in other})}</div>"
        for net, other, title in sides
    )
    name = escape(result.original.name)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>{STYLE}</style></head>'
        f"<body><h1>{name}, optimized for {escape(result.backend)}</h1><pre>{escape(str(result))}</pre>"
        f"<h2>Rules applied</h2>{table}<p>Coloured: operators that are in one of the two graphs only.</p>"
        f'<div class="side">{pictures}</div></body></html>\n'
    )


def _look(node: Node) -> tuple[object, ...]:
    """Identity of a node in both graphs: its name and its operator; names stay where values do."""
    return node.op_type, node.name


def save_page(result: Optimized, path: str | Path, rules: Rules = None) -> None:
    """Write the page; InputError where that cannot be."""
    try:
        Path(path).write_text(page(result, rules), encoding="utf-8")
    except OSError as problem:
        raise InputError(
            f"got {problem.strerror or problem} while writing {path}; expected a folder that can be written"
        ) from problem
