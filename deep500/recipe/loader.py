"""Find and load recipe files: by path, or by the name of one in the ``recipes`` package; nothing else imports them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from deep500.errors import MissingBackend, RecipeError, nearest
from deep500.recipe.names import RECIPE_MODULE
from deep500.registry import BACKENDS

HALVES = ("FIXED", "MUTABLE", "METRICS")
"""What a recipe file defines."""


@dataclass(frozen=True)
class Listed:
    """A recipe file that was found, with the first line of its docstring."""

    name: str
    path: Path
    summary: str


def recipe_folders() -> list[Path]:
    """Where recipes are looked for by name: ``recipes`` beside this package, and in the current folder."""
    beside = Path(__file__).resolve().parents[2] / "recipes"
    folders = [beside, Path("recipes").resolve()]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def list_recipes() -> list[Listed]:
    """All recipes that can be run by name; files are parsed, not imported."""
    found: dict[str, Listed] = {}
    for folder in recipe_folders():
        for path in sorted(folder.glob("*.py")):
            listed = _listed(path)
            if listed is not None:
                found.setdefault(listed.name, listed)
    return list(found.values())


def _listed(path: Path) -> Listed | None:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    targets = {
        t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)
    }
    if not targets.issuperset(HALVES):
        return None
    return Listed(path.stem, path, (ast.get_docstring(tree) or "").strip().partition("\n")[0])


def find_recipe(name: str) -> Path:
    """The file of a recipe given by path or by name; raises RecipeError with the nearest name."""
    path = Path(name)
    if path.is_file():
        return path
    known = {one.name: one.path for one in list_recipes()}
    if name not in known:
        raise RecipeError(f"got recipe {name!r}; expected a file or one of the known recipes; {nearest(name, known)}")
    return known[name]


def raise_missing(error: ModuleNotFoundError) -> None:
    """Raise MissingBackend with the line that installs it if the module that was not found is a backend's framework."""
    for name, (module, extra) in BACKENDS.items():
        if error.name == module:
            raise MissingBackend(
                f"got a recipe for backend {name!r} but no {module!r}; expected it to be installed: "
                f"pip install 'deep500[{extra}]'"
            ) from error


def load_recipe(path: Path) -> ModuleType:
    """Import a recipe file under a name of its own; raises RecipeError unless it defines FIXED, MUTABLE and METRICS.

    Errors of Deep500, such as a missing backend, pass through; what else goes wrong in the user's file keeps its
    traceback, which the user needs.
    """
    spec = importlib.util.spec_from_file_location(RECIPE_MODULE + path.stem, path)
    if spec is None or spec.loader is None:
        raise RecipeError(f"got {path}; expected a Python file; give its name the ending .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise_missing(error)
        raise
    missing = [name for name in HALVES if not hasattr(module, name)]
    if missing:
        raise RecipeError(f"{path}: got no {missing[0]}; expected {', '.join(HALVES)} at module level; define them")
    return module
