"""Neighbourhoods merged in one move: ACNet blocks and dense mixtures of experts, original beside ours, in turns.

python -m tests.benchmarks.neighbourhoods
python -m tests.benchmarks.neighbourhoods --backends onnxruntime --only ACNet

The first of each kind was known while the moves were written; the others were chosen before they were measured.
"""

from __future__ import annotations

import argparse

import deep500 as d5
from tests.transformations.substitutions.samples import acnet, mixture

FIGURES = {"ACNet blocks, original / ours": ">= 1.7", "dense mixtures of experts, original / ours": ">= 1.4"}

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


def line(name: str, backend: str, budget: float) -> str:
    """One network on one deployment: operators, ratio with its interval, seconds."""
    network = NETWORKS[name]()
    found = d5.optimize_network(network, backend, budget, database=":memory:")
    text = "the same"
    if found.measured is not None and found.chosen is not None:
        ratio = found.measured[found.chosen].ratio
        ends = f" [{1 / ratio.high:.2f}, {1 / ratio.low:.2f}]" if ratio.high and ratio.low else ""
        text = f"{1 / ratio.median:.2f}{ends}"
    return (
        f"{backend:12} {name:38} {len(network.nodes):3} -> {len(found.network.nodes):3}  {text}  {found.seconds:.1f} s"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="onnxruntime,pytorch")
    parser.add_argument("--only", default="", help="networks whose names begin so")
    parser.add_argument("--budget", type=float, default=30.0)
    options = parser.parse_args()
    for backend in options.backends.split(","):
        for name in NETWORKS:
            if name.startswith(options.only):
                print(line(name, backend, options.budget), flush=True)


if __name__ == "__main__":
    main()
