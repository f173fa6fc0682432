"""The pages of the reference, one per module, written whenever the site is built. By hand: ``reference.py FOLDER``.

What a module exports is documented on the page of the first module of `MODULES` that exports it, and nowhere else.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import deep500
from deep500 import cli
from deep500.registry import BACKENDS, is_installed

MODULES = {
    "Level 0: operators": ["deep500.operators", "deep500.tensors", "deep500.devices"],
    "Level 1: networks": [
        "deep500.networks",
        "deep500.transformations.substitutions",
        "deep500.transformations.substitutions.rewriting",
        "deep500.transformations.recomputation",
        "deep500.transformations.mixed_precision",
    ],
    "Level 2: training": [
        "deep500.training.trainer",
        "deep500.training.statistics",
        "deep500.training.data",
        "deep500.training.data.samplers",
        "deep500.training.data.augmentation",
        "deep500.training.optimizers",
        "deep500.training.schedules",
        "deep500.training.clipping",
        "deep500.training.check",
        "deep500.training.listeners",
        "deep500.training.loggers",
        "deep500.tasks",
    ],
    "Level 3: several processes": ["deep500.distributed", "deep500.distributed.schemes"],
    "Measuring": ["deep500.metrics", "deep500.measure", "deep500.compare", "deep500.race", "deep500.results"],
    "Recipes, events and errors": ["deep500.recipe.runner", "deep500.events", "deep500.errors"],
    "Backends": ["deep500.registry", *(f"deep500.frameworks.{name}" for name in BACKENDS)],
}
"""What is public, in the order of the site."""


def exported(module: ModuleType) -> dict[str, Any]:
    """Names and objects that a module shows: ``__all__``, else its public classes and functions of Deep500."""
    package = Path(str(module.__file__)).name == "__init__.py"
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    return {
        name: value
        for name, value in found.items()
        if str(getattr(value, "__module__", "")).startswith("deep500" if package else module.__name__)
        and callable(value)
        and hasattr(value, "__qualname__")
    }


def entries() -> dict[str, dict[str, list[str]]]:
    """Section -> module -> the names that its page documents."""
    taken: set[int] = set()
    sections: dict[str, dict[str, list[str]]] = {}
    for section, modules in MODULES.items():
        sections[section] = {}
        for name in modules:
            backend = name.removeprefix("deep500.frameworks.")
            if backend in BACKENDS and not is_installed(backend):
                continue
            found = exported(importlib.import_module(name))
            sections[section][name] = [key for key, value in found.items() if id(value) not in taken]
            taken |= {id(value) for value in found.values()}
    return sections


def pages() -> Iterator[tuple[str, str]]:
    """Names of files and their texts."""
    sections = entries()
    places = {
        id(getattr(importlib.import_module(module), name)): f"{module}.{name}"
        for modules in sections.values()
        for module, names in modules.items()
        for name in names
    }
    index = [
        "# Reference",
        "",
        "One page for each module; `import deep500 as d5` shows the names of the table below.",
        "",
    ]
    for section, modules in sections.items():
        index += ["```{toctree}", f":caption: {section}", ":maxdepth: 1", "", *modules, "```", ""]
        for module, names in modules.items():
            rule = ["```{eval-rst}", f".. automodule:: {module}", f"   :members: {', '.join(names)}", "```"]
            yield f"{module}.md", "\n".join([f"# {module}", "", *(rule if names else [about(module)]), ""])
    index += ["```{toctree}", ":caption: Command line", ":maxdepth: 1", "", "commands", "```", ""]
    index += ["## What `import deep500 as d5` shows", "", "| name | is |", "|---|---|"]
    for name in sorted(deep500.__all__, key=str.lower):
        value = getattr(deep500, name)
        where = f"`{value.__name__}`" if isinstance(value, ModuleType) else f"{{py:obj}}`{places.get(id(value), name)}`"
        index.append(f"| `d5.{name}` | {where} |")
    yield "index.md", "\n".join([*index, ""])
    yield "commands.md", commands()


def about(module: str) -> str:
    """The docstring of a module whose names are documented elsewhere."""
    return str(importlib.import_module(module).__doc__)


def commands() -> str:
    """What every command says of itself."""
    lines = ["# Commands", ""]
    for name in cli.COMMANDS:
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
            cli.main([*cli.TWO_WORDS.get(name, name).split(), "--help"])
        lines += [f"## deep500 {cli.TWO_WORDS.get(name, name)}", "", "```text", said.getvalue().rstrip(), "```", ""]
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Write all pages; what has not changed keeps its time, so that Sphinx reads it no second time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
