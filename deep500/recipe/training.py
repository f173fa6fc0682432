"""The keys of a recipe that say how it trains: precision, pieces of a batch, frozen parameters, groups, averages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deep500.errors import RecipeError
from deep500.networks.network import Network
from deep500.training.choosing import freeze
from deep500.training.loss_scaling import LossScaling
from deep500.transformations.mixed_precision import PRECISIONS, mixed_precision

OF_OPTIMIZER = ("gradient_modifier", "gradient_transform", "groups", "no_decay")
"""Keys that are keywords of every optimizer, passed on where the recipe gives them."""


def precision(value: Any) -> str | None:
    """What is expected instead of a value of ``precision``; None if it is fine, as in the functions below."""
    return None if value is None or value in PRECISIONS else " or ".join(map(repr, [*PRECISIONS, None]))


def decay(value: Any) -> str | None:
    """Of ``ema``."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1
    return None if value is None or fits else "a number between 0 and 1, such as 0.999"


def names(value: Any) -> str | None:
    """Of ``freeze`` and ``no_decay``."""
    several = isinstance(value, (list, tuple)) and all(isinstance(name, str) and name for name in value)
    return None if value is None or (isinstance(value, str) and value) or several else "names or patterns"


def groups(value: Any) -> str | None:
    """Of ``groups``."""
    fits = isinstance(value, (list, tuple)) and all(isinstance(g, Mapping) and "parameters" in g for g in value)
    return None if fits else "a list of dicts with 'parameters' and hyper-parameters"


def shaped(network: Network, values: Mapping[str, Any]) -> Network:
    """The network with its frozen parameters, in the recipe's precision.

    Raises:
        InputError: a pattern that fits nothing, or a network in which nothing can run in 16 bits.
        RecipeError: keys that do not go together.
    """
    if values["checkpointing"] is not None and (values["accumulate"] > 1 or values["precision"] == "f16"):
        what = "accumulate" if values["accumulate"] > 1 else "precision"
        raise RecipeError(
            f"got checkpointing with {what}={values[what]!r}; expected one of them, as a plan holds for one batch size "
            "and one unscaled loss: use precision='bf16', or leave one of them out"
        )
    if values["freeze"]:
        freeze(network, values["freeze"])
    return network if values["precision"] is None else mixed_precision(network, values["precision"])


def optimizer_keywords(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the recipe's keys add to the keywords of its optimizer."""
    given = {name: values[name] for name in OF_OPTIMIZER if values[name]}
    return {**given, "accumulate": values["accumulate"]} if values["accumulate"] > 1 else given


def training_facts(values: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """What a manifest says of these keys beside their values: what patterns stand for. Nothing if none is used."""
    network, base = optimizer.network, getattr(optimizer, "base_optimizer", optimizer)
    facts: dict[str, Any] = {}
    if values["precision"] is not None:
        scaling: LossScaling | None = optimizer.loss_scaling
        facts["precision"] = {"name": values["precision"], "loss_scale": None if scaling is None else scaling.scale}
    if values["freeze"]:
        facts["trained"] = network.trainable()
    if base.groups:
        facts["groups"] = [{**part.values, "parameters": list(part.names)} for part in base.parts()]
    return {"training": facts} if facts else {}
