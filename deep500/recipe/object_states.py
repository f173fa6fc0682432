"""Attributes of the user's own objects in a recipe: no seed goes on from those of another, and a checkpoint has them.

A gradient transform that remembers norms, a listener that waits for better losses, an augmentation that counts: their
numbers, texts, arrays and generators are stored with every epoch, and each seed begins with those of the first.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import random
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from deep500.errors import ResultsError
from deep500.training.unsaved import image

ONES = ("gradient_modifier", "gradient_transform")
LISTS = ("augmentation", "preprocessing")
"""Keys whose objects belong to a seed; listeners that are objects, and no classes, may collect over seeds."""

LARGEST = 2**23
"""Characters of an object's state that a checkpoint takes; of what holds larger arrays only changes are noted."""


_SAMPLED = 2**12
"""Elements of such an array by which a change shows."""


class Unstorable(Exception):
    """A value that no checkpoint takes."""


class ObjectStates:
    """Attributes of objects that are not Deep500's own.

    Args:
        values: a recipe's.

    Example:
        >>> def count(batch, rng): count.seen += 1; return batch
        >>> count.seen = 0; states = ObjectStates({"augmentation": [count]})
        >>> _ = count({}, None); state = states.state(); states.begin(), count.seen
        ([], 0)
        >>> states.load(state), count.seen
        ([], 1)
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.objects: dict[str, Any] = {}
        self.first: dict[str, dict[str, Any]] = {}
        self.of_seed: set[str] = set()
        self.add({key: values[key] for key in ONES if values.get(key) is not None})
        for key in (*LISTS, "events"):
            self.add({f"{key}[{n}]": o for n, o in enumerate(values.get(key, ())) if not isinstance(o, type)})

    def add(self, objects: Mapping[str, Any], of_seed: bool = False) -> None:
        """Look after objects, by their places in the recipe, from now on, or until the next seed begins."""
        self.of_seed.update(objects if of_seed else ())
        for place, value in objects.items():
            owner = value.__self__ if isinstance(value, types.MethodType) else value
            if not type(owner).__module__.startswith("deep500.") and hasattr(owner, "__dict__"):
                self.objects[place] = owner
                self.first[place] = {name: _packed(value) for name, value in vars(owner).items()}

    def begin(self) -> list[str]:
        """Give a seed's objects what they held at first; returns what other objects bring along from an earlier seed.

        Raises:
            ResultsError: an attribute has changed, and was no number, text, array, generator or list of these.
        """
        brought = []
        for place in self.of_seed:
            self.objects.pop(place, None)
        self.of_seed.clear()
        for place, owner in self.objects.items():
            changed = self._changed(place)
            if place.startswith("events") and changed:
                brought.append(
                    f"{place}: got {type(owner).__name__}, whose {_listed(changed)} the seed before has changed; "
                    "expected a listener of each seed's own, unless it only collects: give the class"
                )
            elif not place.startswith("events"):
                for name in changed:
                    self._set(place, owner, name, self.first[place].get(name))
        return brought

    def _changed(self, place: str) -> list[str]:
        now, first = vars(self.objects[place]), self.first[place]
        names = sorted(now.keys() | first.keys())
        return [n for n in names if (_packed(now[n]) if n in now else None) != first.get(n)]

    @staticmethod
    def _set(place: str, owner: Any, name: str, packed: Any) -> None:
        if packed is None:
            vars(owner).pop(name, None)
        elif "image" in packed:
            raise ResultsError(
                f"{place}: got {type(owner).__name__}, whose {name!r} the seed before has changed and that cannot be "
                "made anew; expected numbers, texts, arrays, generators and lists of these: make it in the class, or "
                "train one seed at a time"
            )
        else:
            vars(owner)[name] = unpack(packed["value"])

    def state(self) -> dict[str, Any]:
        """Changed attributes, for :meth:`load`: by place and name, as JSON."""
        states = {}
        for place, owner in self.objects.items():
            packed = {name: _packed(vars(owner)[name]) for name in self._changed(place) if name in vars(owner)}
            if len(json.dumps(packed)) > LARGEST:
                packed = {name: {"image": "large"} for name in packed}
            if packed:
                states[place] = {name: {"lost": True} if "image" in value else value for name, value in packed.items()}
        return states

    def load(self, state: Mapping[str, Any]) -> list[str]:
        """Give objects what they held in a checkpoint; returns what could not be stored, as sentences."""
        lost = []
        for place, attributes in state.items():
            owner = self.objects.get(place)
            if owner is None:
                continue
            absent = [name for name, packed in attributes.items() if "lost" in packed]
            for name in attributes.keys() - absent:
                vars(owner)[name] = unpack(attributes[name]["value"])
            if absent:
                lost.append(
                    f"{place}: {type(owner).__name__} begins anew with {_listed(absent)}, which no checkpoint has, so "
                    "that this run may differ from one that was not stopped; numbers, texts, arrays, generators and "
                    "lists of these would be stored"
                )
        return lost


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def _packed(value: Any) -> dict[str, Any]:
    """A value as JSON, or ``{"image": ...}`` by which a change of it shows."""
    try:
        return {"value": pack(value)}
    except Unstorable:
        ours = type(value).__module__.startswith("deep500.")  # as a run that a listener holds, which knows its state
        return {"image": "" if ours else hashlib.sha256(repr(image(value, 2, _SAMPLED)).encode()).hexdigest()}


def pack(value: Any) -> Any:
    """Numbers, texts, arrays and tensors, generators of random numbers, and containers of these, as JSON.

    Raises:
        Unstorable: it holds anything else.

    Example:
        >>> unpack(pack({"norms": [1.5, 2.0], 3: (np.arange(2), None)}))
        {'norms': [1.5, 2.0], 3: (array([0, 1]), None)}
    """
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        return value if abs(value) < 2**53 else {"int": str(value)}
    if kind is list:
        return [pack(element) for element in value]
    if _SEQUENCES.get(kind.__name__) is kind:
        more, elements = {"most": value.maxlen} if kind is deque else {}, [pack(element) for element in value]
        return {kind.__name__: sorted(elements, key=json.dumps) if kind in (set, frozenset) else elements, **more}
    if _MAPPINGS.get(kind.__name__) is kind:
        more = {"factory": _factory(value)} if kind is defaultdict else {}
        return {kind.__name__: [[pack(key), pack(element)] for key, element in value.items()], **more}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufcSU" and value.nbytes < LARGEST // 2:
        content = base64.b64encode(np.asarray(value, order="C").tobytes()).decode()
        scalar = {"scalar": True} if isinstance(value, np.generic) else {}
        return {"array": content, "dtype": value.dtype.str, "shape": list(value.shape), **scalar}
    if (source := _SOURCES.get(kind.__module__.partition(".")[0])) and kind.__name__ in _TENSORS:
        if "cpu" in str(value.device).lower():
            return {source: pack(np.asarray(value.detach() if source == "torch" else value))}
    if kind is np.random.Generator:
        return {"generator": pack(value.bit_generator.state)}
    if kind is random.Random:
        return {"random": pack(value.getstate())}
    raise Unstorable(kind.__name__)


_TENSORS = ("ArrayImpl", "EagerTensor", "Tensor")
_SOURCES = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "tensorflow": "tensorflow"}
_MAKERS = {"torch": "torch:from_numpy", "jax": "jax.numpy:asarray", "tensorflow": "tensorflow:constant"}
"""Frameworks' tensors on the CPU, and what makes one of an array."""

_SEQUENCES: dict[str, Any] = {kind.__name__: kind for kind in (tuple, set, frozenset, deque)}
_MAPPINGS: dict[str, Any] = {kind.__name__: kind for kind in (dict, OrderedDict, Counter, defaultdict)}
_FACTORIES = {kind.__name__: kind for kind in (int, float, list, dict, set)}


def _factory(mapping: Any) -> str:
    name = getattr(mapping.default_factory, "__name__", "")
    if _FACTORIES.get(name) is not mapping.default_factory:
        raise Unstorable(name)
    return name


def unpack(packed: Any) -> Any:
    """The value that :func:`pack` was given."""
    if isinstance(packed, list):
        return [unpack(element) for element in packed]
    if not isinstance(packed, dict):
        return packed
    kind, content = next(iter(packed.items()))
    if kind == "int":
        return int(content)
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "array":
        array = np.frombuffer(base64.b64decode(content), packed["dtype"]).reshape(packed["shape"]).copy()
        return array[()] if "scalar" in packed else array
    if kind in _MAKERS:
        module, _, function = _MAKERS[kind].partition(":")
        return getattr(importlib.import_module(module), function)(unpack(content))
    if kind == "generator":
        state = unpack(content)
        generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
        generator.bit_generator.state = state
        return generator
    if kind == "random":
        numbers = random.Random()
        numbers.setstate(unpack(content))
        return numbers
    if kind == "deque":
        return deque(unpack(content), packed["most"])
    if kind == "defaultdict":
        return defaultdict(_FACTORIES[packed["factory"]], map(unpack, content))
    if kind in _MAPPINGS:
        return _MAPPINGS[kind](dict(map(unpack, content)))
    return _SEQUENCES[kind](map(unpack, content))
