"""Recipes as TOML, YAML or JSON, for programs that write them: the same keys and checks, names instead of objects.

::

    about = "LeNet on scanned digits"
    backend = "pytorch"

    [fixed]
    model = "lenet"
    dataset = "digits"
    epochs = 20

    [mutable]
    batch_size = 32
    optimizer = "MomentumOptimizer"
    optimizer_kwargs = { lr = 0.05, momentum = 0.9 }
    schedule = { CosineSchedule = { total = 20 } }

    [[metrics]]
    metric = "TestAccuracy"
    target = 97

``backend`` gives the executor where neither half names one. A class is named as on the command line; an object is its
class's name, or a table of one entry: the name, and the keywords that make it, which may be such tables themselves:
``{ WarmUp = { steps = 100, schedule = { CosineSchedule = { total = 20 } } } }``. ``path.py:Name`` is the user's own.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from deep500.errors import RecipeError, nearest
from deep500.loading import RECIPE_MODULE
from deep500.recipe.names import is_own_name, resolve_name
from deep500.recipe.schema import KEYS
from deep500.registry import BACKENDS, is_installed, load_backend, load_package

PARTS = ("about", "backend", "fixed", "mutable", "metrics")
CLASSES = ("optimizer", "scheme", "train_sampler", "validation_sampler", "executor")
"""Keys whose value is a class or function."""

HOMES = {
    "schedule": ("deep500.training.schedules",),
    "preprocessing": ("deep500",),
    "augmentation": ("deep500",),
    "gradient_modifier": ("deep500",),
    "gradient_transform": ("deep500",),
    "events": ("deep500.training.listeners", "deep500"),
    "metrics": ("deep500.metrics", "deep500"),
}
"""Where the built-in classes of keys are whose value is an object."""


def _toml(text: str) -> Any:
    name = "tomllib" if importlib.util.find_spec("tomllib") else "tomli"  # in the standard library from Python 3.11 on
    return load_package(name, "recipes", "to read recipes in TOML").loads(text)


def _yaml(text: str) -> Any:
    yaml = load_package("yaml", "recipes", "to read recipes in YAML")

    class Once(yaml.SafeLoader):  # type: ignore[name-defined]
        """YAML has the last of a key given twice, where TOML refuses."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            """Return a table, merged with those that ``<<`` names; raises ValueError for a key written twice."""
            merge = "tag:yaml.org,2002:merge"
            _once([(self.construct_object(key, True), None) for key, _ in node.value if key.tag != merge])
            return dict(super().construct_mapping(node, deep))

    return yaml.load(text, Once)


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"the key {twice!r} twice in one table")
    return dict(pairs)


READERS: dict[str, Callable[[str], Any]] = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml, ".json": _json}


def is_written(path: Path) -> bool:
    """Whether a recipe is data, by the ending of its name."""
    return path.suffix.lower() in READERS


def read_written(path: Path) -> Any:
    """The value in a file of TOML, YAML or JSON.

    Raises:
        RecipeError: the file is none of these.
        MissingPackage: there is no reader for it.
    """
    reader = READERS[path.suffix.lower()]
    try:
        return reader(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path}: got {error}; expected {path.suffix[1:].upper()}: mend the file") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        raise RecipeError(f"{path}: got {' '.join(str(error).split())}; expected YAML: mend the file") from error


def content_of(path: Path) -> dict[str, Any]:
    """The content of a recipe's file; raises RecipeError where that is no recipe, MissingPackage without a reader."""
    content = read_written(path)
    if not isinstance(content, dict):
        raise RecipeError(f"{path}: got {type(content).__name__}; expected {', '.join(PARTS)}: write them")
    wrong = next((name for name in content if name not in PARTS), None)
    if wrong is not None:
        raise RecipeError(f"{path}: got {wrong!r}; expected {', '.join(PARTS)}: {nearest(str(wrong), PARTS)}")
    for name, kind in (("fixed", dict), ("mutable", dict), ("metrics", list)):
        if not isinstance(content.get(name), kind):
            shown = type(content[name]).__name__ if name in content else f"no {name!r}"
            raise RecipeError(f"{path}: got {shown} for {name!r}; expected a {'table' if kind is dict else 'list'}")
    return content


def load_written(path: Path, framework: str | None = None) -> ModuleType:
    """A module with FIXED, MUTABLE and METRICS, as a recipe in Python defines them.

    ``framework`` is the backend that will run it, which serves where that of the file is not installed.

    Raises:
        RecipeError: no such name or key, with the file, the key and the nearest names.
    """
    content = content_of(path)
    module = ModuleType(RECIPE_MODULE + path.stem, str(content.get("about", "")))
    module.__file__ = str(path)
    backend = content.get("backend")
    if backend in BACKENDS and framework is not None and not is_installed(str(backend)):
        backend = framework
    executor = None if backend is None else load_backend(str(backend), path.parent).from_model
    halves = [dict(content[half]) for half in ("fixed", "mutable")]
    if executor is not None and not any("executor" in half for half in halves):
        halves[1]["executor"] = executor
    for half in halves:
        for key, value in half.items():
            half[key] = _value(path, key, value, executor)
    metrics = [_metric(path, entry) for entry in content["metrics"]]
    vars(module).update(FIXED=halves[0], MUTABLE=halves[1], METRICS=metrics)
    return module


def _value(path: Path, key: str, value: Any, executor: Any) -> Any:
    if key not in KEYS or not KEYS[key].named or (isinstance(value, str) and is_own_name(key, value)):
        return value
    if key in CLASSES and isinstance(value, str):
        try:
            return resolve_name(key, value, executor)
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}") from error
    if key in HOMES:
        return (
            [_instance(path, key, item) for item in value] if isinstance(value, list) else _instance(path, key, value)
        )
    return value


def _instance(path: Path, key: str, value: Any) -> Any:
    """The object that ``Name`` or ``{Name: keywords}`` stands for; a keyword may be such a table, too."""
    name, keywords = next(iter(value.items())) if isinstance(value, Mapping) and len(value) == 1 else (value, {})
    if not isinstance(name, str) or not isinstance(keywords, Mapping):
        raise RecipeError(f"{path}: got {key} = {value!r}; expected a name, or a table of one entry: name = keywords")
    if is_own_name(key, name):
        return name
    known: dict[str, Any] = {}
    for home in HOMES[key]:
        module = importlib.import_module(home)
        known |= {n: getattr(module, n) for n in dir(module) if n[:1].isupper() and n not in known}
    if name not in known:
        raise RecipeError(f"{path}: got {key} = {name!r}; expected a class: {nearest(name, known)}")
    tables = {keyword: value for keyword, value in keywords.items() if isinstance(value, Mapping) and len(value) == 1}
    nested = {keyword: _instance(path, key, value) for keyword, value in tables.items() if value.keys() <= known.keys()}
    try:
        return known[name](**{**keywords, **nested})
    except TypeError as error:
        raise RecipeError(f"{path}: got {key} = {name} with {dict(keywords)}; {error}: mend its keywords") from error


def _metric(path: Path, entry: Any) -> tuple[Any, Any]:
    if not isinstance(entry, Mapping) or "metric" not in entry or not {"metric", "target"}.issuperset(entry):
        raise RecipeError(f"{path}: got {entry!r} among metrics; expected metric = NAME and, if any, target = NUMBER")
    return _instance(path, "metrics", entry["metric"]), entry.get("target")
