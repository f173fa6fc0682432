"""Find recipes and studies, and load recipe files: by path, or by name; nothing else imports them."""

from __future__ import annotations

import ast
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from deep500.errors import MissingBackend, MissingPackage, RecipeError, nearest
from deep500.loading import RECIPE_MODULE, load_file
from deep500.recipe.written import content_of, is_written, load_written
from deep500.registry import BACKENDS, BUILT_IN, explaining_missing, is_installed, load_backend, standing_in

HALVES = ("FIXED", "MUTABLE", "METRICS")
"""Names that a recipe file defines."""


@dataclass(frozen=True)
class Listed:
    """A recipe's file or a study's folder, with the first line of its docstring."""

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
    recipes: dict[str, Listed] = {}
    for folder in recipe_folders():
        for path in sorted(path for path in folder.iterdir() if path.suffix == ".py" or is_written(path)):
            listed = _listed_data(path) if is_written(path) else _listed(path)
            if listed is not None:
                recipes.setdefault(listed.name, listed)
    return list(recipes.values())


def _listed_data(path: Path) -> Listed | None:
    """A recipe in TOML, YAML or JSON; None where the file is something else."""
    try:
        return Listed(path.stem, path, str(content_of(path).get("about", "")).strip().partition("\n")[0])
    except (RecipeError, MissingPackage):
        return None


def _listed(path: Path) -> Listed | None:
    tree = _parse(path)
    if tree is None:
        return None
    targets = {
        t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)
    }
    if not targets.issuperset(HALVES):
        return None
    return Listed(path.stem, path, _first_line(tree))


def _parse(path: Path) -> ast.Module | None:
    """A file's syntax; None where it has none."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def _first_line(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").strip().partition("\n")[0]


def list_studies() -> list[Listed]:
    """All studies, programs in a folder ``recipes/studies/<name>``; files are parsed, not imported."""
    studies: dict[str, Listed] = {}
    for folder in recipe_folders():
        for program in sorted(folder.glob("studies/*/__main__.py")):
            about = _parse(program.with_name("__init__.py"))
            name, path = program.parent.name, program.parent
            studies.setdefault(name, Listed(name, path, "" if about is None else _first_line(about)))
    return list(studies.values())


def find_recipe(name: str) -> Path:
    """The file of a recipe given by path or by name; raises RecipeError with the nearest name."""
    path = Path(name)
    if path.is_file():
        return path
    if path.exists() or path.is_symlink():
        kind = "a folder" if path.is_dir() else "a link to nothing" if not path.exists() else "no regular file"
        raise RecipeError(f"got recipe {name!r}, which is {kind}; expected a file, or a name that 'deep500 list' shows")
    known = {recipe.name: recipe.path for recipe in list_recipes()}
    if name not in known:
        beside = nearest(path.name, [file.name for file in path.parent.glob(f"*{path.suffix}")] if path.suffix else [])
        here = [name + ending for ending in (".py", ".toml") if Path(name + ending).is_file()]
        beside = f"did you mean {here[0]!r}?" if here else beside
        if beside.startswith("did"):  # a file was meant
            raise RecipeError(f"got recipe {name!r}; expected a file: {beside}")
        raise RecipeError(
            f"got recipe {name!r}; expected a file or one of the known recipes; {nearest(Path(name).stem, known)}"
        )
    return known[name]


def load_recipe(path: Path, framework: str | None = None) -> ModuleType:
    """Import a recipe file under a name of its own; raises RecipeError unless it defines FIXED, MUTABLE and METRICS.

    Errors of Deep500, such as a missing backend, pass through; what else goes wrong in the user's file keeps its
    traceback, which the user needs.

    Args:
        path: the file.
        framework: the backend that will run it, if not the recipe's own. The recipe's own need not be installed then.
    """
    try:
        with _instead_of_absent(framework):
            if is_written(path):
                return load_written(path, framework)
            with explaining_missing():
                module = load_file(path, RECIPE_MODULE + path.stem)
    except MissingBackend as error:
        if framework is not None:
            raise
        raise MissingBackend(f"{error}; or run the recipe in NumPy: add --backend reference") from None
    missing = [name for name in HALVES if not hasattr(module, name)]
    if missing:
        raise RecipeError(f"{path}: got no {missing[0]}; expected {', '.join(HALVES)} at module level; define them")
    return module


def _instead_of_absent(framework: str | None) -> AbstractContextManager[None]:
    """While a file is loaded, backends that are not installed are the one that will run it.

    ``--backend`` exchanges every object of theirs for its namesake there anyway.
    """
    if framework is None:
        return nullcontext()
    absent = [BUILT_IN + name for name in BACKENDS if not is_installed(name) and name != framework]
    return standing_in(load_backend(framework), absent)
