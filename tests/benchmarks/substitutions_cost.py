"""Predicted and measured times of whole networks: how far a sum of units is from what a backend does.

python -m tests.benchmarks.substitutions_cost
python -m tests.benchmarks.substitutions_cost --backends pytorch --networks "resnet(depth=8, batch=1)" --limit 0.05

Prices are measured anew unless ``--database`` names a file. ``predicted`` and ``formula`` are the totals of `Measured`
and `Analytic`; ``whole`` is the fastest inference of the same graph, written as a network. Opaque units are in no
total, fusion and layouts of a compiler in none either, and a whole call has its executor's fixed cost: ratios say what
these amount to.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from typing import NamedTuple

from deep500.measure import Budget, Plan, measure
from deep500.networks import Network, create
from deep500.registry import backend_names, is_installed
from deep500.transformations.substitutions.cost import Analytic, Measured
from deep500.transformations.substitutions.cost.timing import Runner
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.store import OPAQUE
from deep500.transformations.substitutions.graph.units import Units
from deep500.transformations.substitutions.graph.writing import export_network
from tests.benchmarks.filling import say_ratio

FIGURES = {"predicted over measured time of whole networks": "no bar"}
(FIGURE,) = FIGURES

NETWORKS = ("mlp(batch=1)", "lenet(batch=1)", "simple_cnn(batch=1)", "resnet(depth=20, batch=1)")


class Prediction(NamedTuple):
    """One network on one backend; times in seconds.

    Attributes:
        units, opaque, keys: units in all, those without a price, and different ones that were measured.
        pricing: what measuring them took.
        predicted, formula: totals of `Measured` and `Analytic`.
        whole: the fastest inference.
    """

    network: str
    backend: str
    units: int
    opaque: int
    keys: int
    pricing: float
    predicted: float
    formula: float
    whole: float

    def __str__(self) -> str:
        times = "".join(f"{1e6 * seconds:11.1f}" for seconds in (self.predicted, self.formula, self.whole))
        ratios = "".join(f"{seconds / self.whole:10.2f}" for seconds in (self.predicted, self.formula))
        counts = f"{self.units:6}{self.opaque:7}{self.keys:5}{self.pricing:8.2f}"
        return f"{self.backend:12}{self.network:28}{counts}{times}{ratios}"


HEAD = (
    f"{'backend':12}{'network':28} units opaque keys pricing   predicted    formula      whole predicted   formula\n"
    f"{'':66}s         us         us         us  / whole   / whole"
)


def build(text: str) -> Network:
    """A zoo network from ``name(option=value, ...)``."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise SystemExit(f"got network {text!r}; expected name(option=value, ...): for instance {NETWORKS[0]!r}")
    return create(
        call.func.id, **{keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
    )


def predict(text: str, backend: str, cost: Measured) -> Prediction:
    """Compare a total with the time of the whole network."""
    imported = import_network(build(text))
    graph = imported.graph
    measured, seconds = cost.measured, cost.seconds
    total = cost.total(graph)
    run = Runner(backend)(export_network(imported, graph))
    whole = measure(run, Plan(budget=Budget(min_n=10, max_n=400, max_s=2.0)))
    return Prediction(
        text,
        backend,
        len(list(Units(graph))),
        sum(unit.kind == OPAQUE for unit in Units(graph)),
        cost.measured - measured,
        cost.seconds - seconds,
        total,
        Analytic(backend).total(graph),
        float(whole.samples.min()),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line per network and backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    installed = [name for name in backend_names() if is_installed(name)]
    parser.add_argument("--backends", nargs="+", default=installed, choices=installed)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--database", default=":memory:")
    parser.add_argument("--limit", type=float, default=0.05, help="seconds per unit")
    chosen = parser.parse_args(arguments)
    print(HEAD)
    ratios = {}
    for backend in chosen.backends:
        cost = Measured(backend, chosen.database, limit=chosen.limit)
        for text in chosen.networks:
            found = predict(text, backend, cost)
            ratios[f"{text}, {backend}"] = found.predicted / found.whole
            print(found, flush=True)
    say_ratio(FIGURE, ratios)


if __name__ == "__main__":
    main()
