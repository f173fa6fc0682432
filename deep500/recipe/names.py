"""The third step from a recipe to a plan: objects take the places of names.

A built-in is named by its name, on the command line. What a user wrote is named ``path.py:Name`` or ``module:Name``, in
recipes, in ``key=value`` words and in the options of other commands.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from deep500.errors import RecipeError, nearest
from deep500.loading import module_of
from deep500.recipe.calls import accepts
from deep500.recipe.describing import digest_of
from deep500.recipe.plan import RunPlan
from deep500.recipe.schema import KEYS
from deep500.registry import backend_of, explaining_missing, load_backend

HOMES = {
    "optimizer": "deep500.training.optimizers",
    "scheme": "deep500.distributed.schemes",
    "train_sampler": "deep500.training.data.samplers",
    "validation_sampler": "deep500.training.data.samplers",
}
"""Where the built-ins of a key are, besides those of a backend."""

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_OWN = re.compile(rf"(?P<place>.+\.py|{_DOTTED}):(?P<name>{_DOTTED})")


def load_names(plan: RunPlan) -> RunPlan:
    """Put what is named into the places of the names, in METRICS too, and note the files of the user's.

    Raises:
        RecipeError: there is no such name.
    """
    values = plan.values
    for key, old in plan.words.items():
        if not is_own_name(key, values[key]):
            values[key] = resolve_name(key, values[key], old)
    for key, about in KEYS.items():
        if about.named and key in values:
            value = values[key]
            several = isinstance(value, (list, tuple))
            values[key] = type(value)(_loaded(plan, key, v) for v in value) if several else _loaded(plan, key, value)
    if isinstance(plan.metrics, (list, tuple)):
        plan.metrics = [
            (_loaded(plan, "METRICS", entry[0]), *entry[1:])
            if isinstance(entry, (list, tuple)) and entry
            else _loaded(plan, "METRICS", entry)
            for entry in plan.metrics
        ]
    _leave_out(plan)
    return plan


def _loaded(plan: RunPlan, key: str, value: Any) -> Any:
    if not is_own_name(key, value):
        return value
    module, loaded = _load(key, value, plan.folder)
    plan.sources.append({"key": key, "name": value, "sha256": digest_of(module)})
    called = key == "METRICS" or KEYS[key].call
    if not called or not isinstance(loaded, type):
        return loaded
    try:
        with contextlib.suppress(ValueError):  # some built-in classes have no signature
            inspect.signature(loaded).bind()
    except TypeError as error:
        raise RecipeError(
            f"got {key}={value}, with '{error}'; expected a class made of nothing: give defaults"
        ) from error
    return loaded()


def _leave_out(plan: RunPlan) -> None:
    """Take keywords of the recipe's from ``<key>_kwargs`` where a class from the command line does not know them.

    A recipe writes them for its own class: ``momentum`` means nothing to ``optimizer=AdamOptimizer``. Those that the
    command line itself gives stay, to be refused if they are wrong.
    """
    values = plan.values
    for change in plan.overrides:
        name = f"{change.key}_kwargs"
        typed = [other for other in plan.overrides if other.key == name]
        if change.path or not values.get(name) or not KEYS[change.key].companions or not all(o.path for o in typed):
            continue
        chosen, stay = values[change.key], {other.path[0] for other in typed}
        known = getattr(chosen, "hyperparameters", None)
        odd = [
            word
            for word in values[name]
            if word not in stay and not (accepts(chosen, word) if known is None else word in known)
        ]
        if odd:
            values[name] = {word: value for word, value in values[name].items() if word not in odd}
            rest = ", ".join(f"{word}={value}" for word, value in values[name].items()) or "nothing"
            plan.left_out.append(
                f"{change}: {', '.join(odd)} of the recipe's {name} left out, not known to it; kept: {rest}"
            )


def resolve_name(key: str, name: str, old: Any, folder: Path | None = None) -> Any:
    """The object that a name typed on the command line stands for, of a key that holds a callable.

    A name of the user's own is loaded, see :func:`own_object`. Any other is looked up in the backend of the present
    value, then where the key's built-ins are. Names of the zoo, of data sets and of tasks stay text.

    Raises:
        RecipeError: there is no such name.
    """
    if is_own_name(key, name):
        return own_object(key, name, folder)
    if key in ("model", "dataset", "task"):
        return name
    source = backend_of(old)
    return namesake(key, name, None if source is None else load_backend(source), f"{key}={name}")


def namesake(key: str, name: str, backend: ModuleType | None, what: str) -> Any:
    """The object of a name: a backend's, or the built-in of the core, which runs on every backend, if it has none.

    Raises:
        RecipeError: there is none, with the nearest names.
    """
    home = importlib.import_module(HOMES.get(key, "deep500"))
    module = home if backend is None or (hasattr(home, name) and not hasattr(backend, name)) else backend
    public = list(getattr(module, "__all__", [n for n in dir(module) if not n.startswith("_")]))
    if name not in public:
        raise RecipeError(f"got {what}; expected a name in {module.__name__}: {nearest(name, public)}")
    return getattr(module, name)


def is_own_name(key: str, text: Any) -> bool:
    """Whether a value names something of the user's own, as ``path.py:Name`` or ``module:Name``.

    Example:
        >>> is_own_name("optimizer", "mine.py:Sign"), is_own_name("dataset", "imagefolder:photos")
        (True, False)
    """
    built_in = key == "dataset" and str(text).startswith("imagefolder:")
    return isinstance(text, str) and not built_in and _OWN.fullmatch(text) is not None


def own_object(key: str, text: str, folder: Path | None = None) -> Any:
    """The object that ``path.py:Name`` or ``module:Name`` names; its file is loaded once per process.

    Args:
        key: of the recipe, for the message.
        text: the name, for which :func:`is_own_name` holds.
        folder: of the recipe, where a relative path is looked for first; then in the current folder.

    Raises:
        RecipeError: no such file, module or name. What goes wrong in the user's file keeps its traceback.
    """
    return _load(key, text, folder)[1]


def _load(key: str, text: str, folder: Path | None) -> tuple[ModuleType, Any]:
    match = _OWN.fullmatch(text)
    assert match is not None
    place, what = match["place"], f"{key}={text}"
    module = _file(place, what, folder) if place.endswith(".py") else _import(place, what)
    value: Any = module
    for part in match["name"].split("."):
        if not hasattr(value, part):
            public = [known for known in vars(value) if not known.startswith("_")]
            raise RecipeError(f"got {what}; expected a name in {place}: {nearest(part, public)}")
        value = getattr(value, part)
    return module, value


def _file(place: str, what: str, folder: Path | None) -> ModuleType:
    folders = [Path() if folder is None else folder, Path()]
    paths = [path for path in (directory / Path(place).expanduser() for directory in folders) if path.is_file()]
    if not paths:
        near = sorted({path.name for directory in folders for path in directory.glob("*.py")})
        raise RecipeError(
            f"got {what}; expected the file {place} in the recipe's folder or the current one; "
            f"{nearest(place, near) if near else 'write it there'}"
        )
    with explaining_missing():
        return module_of(paths[0].resolve())


def _import(name: str, what: str) -> ModuleType:
    try:
        with explaining_missing():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports one that is not
        raise RecipeError(
            f"got {what}; expected a module that Python finds, {error.name!r} is none; install it, or name its file: "
            "path.py:Name"
        ) from error
