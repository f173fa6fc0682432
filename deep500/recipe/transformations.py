"""The key ``network_transformations``: functions network -> network, applied one after the other before training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deep500.errors import RecipeError
from deep500.networks.execution.inputs import batch_symbol
from deep500.networks.network import Network
from deep500.recipe.describing import describe
from deep500.registry import backend_of

SUBSTITUTIONS = "substitutions"
COMMAND = "deep500 optimize MODEL.onnx --training -o OUT.onnx"
LIMIT = 100.0
"""Seconds of search; what is not found by then would differ from machine to machine, so it is an error.

The search gets three times as much, for it ends by the clock too when a third of its budget brought nothing better.
"""


def transformed(network: Network, values: Mapping[str, Any]) -> Network:
    """The network after the recipe's transformations.

    ``"substitutions"`` is :func:`deep500.optimize_network` with ``training=True``, priced by formula for the recipe's
    backend and batch size: it is the same on every rank, for every seed and in a resumed run.

    Raises:
        RecipeError: a callable that returns no network, or one whose inputs or outputs have other names; a search that
            does not end within `LIMIT` seconds.
    """
    for transformation in values["network_transformations"]:
        new = _substituted(network, values) if transformation == SUBSTITUTIONS else transformation(network)
        new = getattr(new, "network", new)
        if not isinstance(new, Network):
            raise RecipeError(
                f"network_transformations: got {type(new).__name__} from {describe(transformation)}; expected a "
                "deep500 Network"
            )
        for what in ("inputs", "outputs"):
            if list(getattr(new, what)) != list(getattr(network, what)):
                raise RecipeError(
                    f"network_transformations: got {what} {list(getattr(new, what))} from {describe(transformation)}; "
                    f"expected {list(getattr(network, what))}, which data and loss are known by: keep their names"
                )
        network = new
    return network


def _substituted(network: Network, values: Mapping[str, Any]) -> Network:
    from deep500.transformations.substitutions import optimize_network  # a tenth of what a run loads, for few runs

    symbol = batch_symbol(network)
    sizes = {} if symbol is None else {symbol: values["batch_size"]}
    backend = backend_of(values["executor"])
    if backend is None:
        raise RecipeError(
            f"network_transformations: got {SUBSTITUTIONS!r} with executor {describe(values['executor'])}; expected "
            "one of a backend, whose prices decide: give d5fw.from_model, and what it takes in executor_kwargs"
        )
    optimized = optimize_network(network, backend, 3 * LIMIT, training=True, measure=False, sizes=sizes)
    if optimized.timed_out or optimized.seconds > LIMIT:
        raise RecipeError(
            f"network_transformations: got no end of the search within {LIMIT:g} s; expected one, so that the result "
            f"is the same everywhere; optimize the model beforehand ({COMMAND}) and name the file as the model"
        )
    return optimized.network
