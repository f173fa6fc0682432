"""Neighbourhoods merged in one move: ACNet blocks and dense mixtures of experts, original beside ours, in turns.

python -m tests.benchmarks.neighbourhoods
python -m tests.benchmarks.neighbourhoods --backends onnxruntime --only ACNet

The first of each kind was known while the moves were written; the others were chosen before they were measured.
"""

from __future__ import annotations

import argparse

import deep500 as d5
from deep500.measure.statistics import Interval
from tests.benchmarks.filling import say_ratio, with_ends
from tests.benchmarks.turns import inverse
from tests.transformations.substitutions.samples import acnet, mixture

FIGURES = {"ACNet blocks, original / ours": ">= 1.7", "dense mixtures of experts, original / ours": ">= 1.4"}
ACNET, MIXTURE = FIGURES

NETWORKS = {
    "ACNet, 3 blocks": acnet,
    "ACNet, held out: identity": lambda: acnet(4, 24, 20, identity=True),
    "ACNet, held out: biases, strides": lambda: acnet(2, 48, 14, bias=True, smaller=(0,)),
    "ACNet, held out: no norm": lambda: acnet(3, 32, 28, ((1, 1), (3, 3), (3, 1)), norm=False),
    "mixture, 8 experts": mixture,
    "mixture, held out: 6 wide": lambda: mixture(6, 48, 96, 4),
    "mixture, held out: tanh, 1 row": lambda: mixture(8, 64, 64, 1, function="Tanh"),
    "mixture, held out: 2 layers, no biases": lambda: mixture(4, 128, 32, 16, layers=2, bias=False),
}


def gain(name: str, backend: str, budget: float) -> Interval:
    """Original over ours of one network on one deployment, printed with nodes and seconds; 1 where it is the same."""
    network = NETWORKS[name]()
    found = d5.optimize_network(network, backend, budget, database=":memory:")
    ratio = Interval(1.0, 1.0, 1.0, 0)
    if found.measured is not None and found.chosen is not None:
        ratio = inverse(found.measured[found.chosen].ratio)
    nodes = f"{len(network.nodes):3} -> {len(found.network.nodes):3}"
    print(f"{backend:12} {name:38} {nodes}  {with_ends(ratio)}  {found.seconds:.1f} s", flush=True)
    return ratio


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="onnxruntime,pytorch")
    parser.add_argument("--only", default="", help="networks whose names begin so")
    parser.add_argument("--budget", type=float, default=30.0)
    options = parser.parse_args()
    names = [name for name in NETWORKS if name.startswith(options.only)]
    gains = {f"{name}, {key}": gain(name, key, options.budget) for key in options.backends.split(",") for name in names}
    met = True
    for figure, kind, bar in ((ACNET, "ACNet", 1.7), (MIXTURE, "mixture", 1.4)):
        ratios = {key: ratio for key, ratio in gains.items() if key.startswith(kind)}
        met &= not ratios or say_ratio(figure, ratios, at_least=bar)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
