"""The fingerprint of a setup: one hash over everything that is not volatile, and the differences between two setups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deep500.measure import machine
from deep500.measure.environment import describe

VOLATILE = "volatile"
"""Key of the facts that never repeat, which the hash leaves out."""


def full_environment(folder: str | Path | None = None) -> dict[str, Any]:
    """Everything that is known of the setup: :func:`deep500.measure.environment.describe` and the machine's details.

    Args:
        folder: whose git state is recorded.

    Example:
        >>> count_fields(full_environment()) >= 60
        True
    """
    return {
        **describe(folder),
        "hardware": machine.hardware(),
        "kernel": machine.kernel(),
        "process": machine.process(),
        VOLATILE: machine.volatile(),
    }


def fingerprint(environment: Mapping[str, Any]) -> str:
    """SHA-256 of the environment's canonical JSON, without what is volatile."""
    stable = {key: value for key, value in environment.items() if key != VOLATILE}
    text = json.dumps(stable, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs between two environments, by dotted name; what is volatile is left out.

    Example:
        >>> differences({"threads": {"torch": 1}}, {"threads": {"torch": 2}})
        {'threads.torch': (1, 2)}
    """
    a, b = dict(_flat(first)), dict(_flat(second))
    return {name: (a.get(name), b.get(name)) for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)}


def count_fields(environment: Mapping[str, Any]) -> int:
    """Return the number of facts in an environment, installed packages counted as one."""
    return len({name for name, _ in _flat(environment) if not name.startswith("process.packages.")}) + 1


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if not prefix and key == VOLATILE:
            continue
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item
