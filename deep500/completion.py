"""Words that the shell offers after a press of tab: commands, options, recipes, keys, frameworks, by argcomplete.

``pip install 'deep500[completion]'``; in the shell's start-up file: ``eval "$(register-python-argcomplete deep500)"``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deep500.registry import backend_names, load_package

WANTED = "_ARGCOMPLETE"
"""The variable by which a shell asks."""


def offer(
    commands: Iterable[str],
    groups: Mapping[str, Iterable[str]],
    parser_of: Callable[[str], tuple[argparse.ArgumentParser, Any]],
) -> None:
    """Answer the shell and leave the process.

    Args:
        commands: names that may follow ``deep500``.
        groups: those of them that are followed by another name, and by which.
        parser_of: the options of one of them; asked for that one which is typed, since the others' modules are not
            needed.
    """
    argcomplete = load_package("argcomplete", "completion", "to complete what is typed")
    words = os.environ["COMP_LINE"].split()
    while len(words) > 2 and words[1] in groups:
        _forget_command(words[1])
        commands = groups[words.pop(1)]
    parser = argparse.ArgumentParser("deep500", allow_abbrev=False)
    parser.add_argument("command", choices=list(commands))
    if len(words) > 1 and words[1] in set(commands):
        parser = parser_of(words[1])[0]
        for action in parser._actions:
            if action.dest in COMPLETERS:
                action.completer = COMPLETERS[action.dest]  # type: ignore[attr-defined]
        _forget_command(words[1])
    argcomplete.autocomplete(parser, always_complete_options=False)


def _forget_command(command: str) -> None:
    """``deep500 run X`` is for the parser of ``run`` what ``run X`` is for a program of that name."""
    line, place = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    cut = line.index(command)
    os.environ["COMP_LINE"], os.environ["COMP_POINT"] = line[cut:], str(place - cut)


def _recipes(prefix: str, **_: Any) -> list[str]:
    from deep500.recipe.loader import list_recipes

    return [recipe.name for recipe in list_recipes() if recipe.name.startswith(prefix)]


def _overrides(prefix: str, **_: Any) -> list[str]:
    """Keys of recipes, and the values of those that have a list of names."""
    from deep500.recipe.schema import BASES

    key, equals, typed = prefix.partition("=")
    if not equals:
        return [f"{name}=" for name in BASES if name.startswith(prefix)]
    return [f"{key}={name}" for name in VALUES.get(key, list)() if name.startswith(typed)]


def _logs(prefix: str, **_: Any) -> list[str]:
    from deep500.training.loggers import CLIENTS

    return [kind for kind in CLIENTS if kind.startswith(prefix)]


def _models() -> list[str]:
    from deep500.networks.zoo import model_names

    return list(model_names())


def _datasets() -> list[str]:
    from deep500.training.data import dataset_names

    return list(dataset_names())


def _optimizers() -> list[str]:
    from deep500.training import optimizers

    return [name for name in dir(optimizers) if name[:1].isupper()]


VALUES = {"model": _models, "dataset": _datasets, "optimizer": _optimizers}
COMPLETERS: dict[str, Callable[..., list[str]]] = {
    "recipe": _recipes,
    "overrides": _overrides,
    "log": _logs,
    "framework": lambda prefix, **_: [name for name in backend_names() if name.startswith(prefix)],
}
