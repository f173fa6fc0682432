"""Parameter groups: hyper-parameters of their own for some parameters, such as no weight decay on norms and biases.

``optimizer`` is an :class:`~deep500.training.optimizers.base.Optimizer`, which knows groups; they do not know it.

What a group says holds instead of the optimizer's own value. A group's ``lr`` follows the schedule: what the schedule
makes of the optimizer's ``lr``, relative to the one it was made with, the group's rate becomes too, as PyTorch's
schedulers scale every group. Other hyper-parameters of a group stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from deep500.errors import InputError, nearest

PARAMETERS = "parameters"
"""The key of a group that says which parameters are meant."""


class Part(NamedTuple):
    """Parameters that are updated alike: their own hyper-parameters, their names in the network's order, and by how
    many updates they are behind the optimizer."""

    values: dict[str, Any]
    names: tuple[str, ...]
    behind: int = 0


def checked_groups(
    optimizer: Any, groups: Sequence[Mapping[str, Any]] | None, no_decay: str | Collection[str] | None
) -> list[dict[str, Any]]:
    """Groups as a user writes them, values checked; ``no_decay`` is one more group.

    Raises:
        InputError: no list of dicts, no ``parameters``, an unknown hyper-parameter or a value out of its range, or
            weight decay that the optimizer does not have.
    """
    where = type(optimizer).__name__
    declared = [] if groups is None else list(groups)
    if no_decay is not None:
        declared.append({PARAMETERS: no_decay, "weight_decay": 0.0})
    checked = []
    for group in declared:
        if not isinstance(group, Mapping) or PARAMETERS not in group:
            raise InputError(
                f"{where}: got the group {group!r}; expected a dict with {PARAMETERS!r} and hyper-parameters: write "
                "{'parameters': 'backbone.*', 'lr': 0.01}"
            )
        values = {name: optimizer.checked(name, value) for name, value in group.items() if name != PARAMETERS}
        if not values:
            raise InputError(
                f"{where}: got the group {group!r}, which says nothing; expected a hyper-parameter of its own: "
                f"{nearest('lr', optimizer.hyperparameters)}"
            )
        if common := sorted(values.keys() & optimizer.shared):
            raise InputError(
                f"{where}: got {common[0]}={values[common[0]]!r} in a group; expected the same for all parameters, "
                "because it is in sums over steps: give it to the optimizer"
            )
        if "lr" in values and not optimizer.initial["lr"]:
            raise InputError(
                f"{where}: got lr=0 and a group with an lr; expected a rate > 0, in proportion to which schedules move "
                "the group's: give one"
            )
        optimizer.check_together({**optimizer.initial, **values})
        checked.append({PARAMETERS: group[PARAMETERS], **values})
    return checked


def divide(optimizer: Any, groups: Sequence[Mapping[str, Any]]) -> list[Part]:
    """The parameters that the loss depends on, in parts that are updated alike; those without a group come first.

    A parameter may be in several groups that say different things of it, such as a rate and no weight decay.

    Raises:
        InputError: a pattern that fits nothing, or groups that say different values of one hyper-parameter.
    """
    names = optimizer.parameter_names()
    settings: dict[str, dict[str, Any]] = {name: {} for name in names}
    for group in groups:
        from deep500.training.choosing import matching  # here, because most optimizers have no groups

        values = {name: value for name, value in group.items() if name != PARAMETERS}
        for name in matching(f"{type(optimizer).__name__}: group", optimizer.network, group[PARAMETERS]):
            if name not in settings:
                continue  # the loss does not depend on it
            for key, value in values.items():
                if settings[name].get(key, value) != value:
                    raise InputError(
                        f"{type(optimizer).__name__}: got {key}={settings[name][key]!r} and {key}={value!r} for "
                        f"{name!r} from two groups; expected one value: let their patterns not overlap"
                    )
            settings[name].update(values)
    late: Mapping[str, int] = optimizer.counts.late
    parts: dict[tuple[Any, ...], Part] = {(0,): Part({}, ())}
    for name in names:
        behind = late.get(name, 0)
        alike = (behind, *sorted(settings[name].items()))
        part = parts.get(alike, Part(settings[name], (), behind))
        parts[alike] = part._replace(names=(*part.names, name))
    return [part for part in parts.values() if part.names]
