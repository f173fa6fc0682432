"""The key ``custom_ops``: plugins that a recipe's network needs, loaded before it is built and recorded by content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from deep500.errors import InputError, RecipeError
from deep500.operators.registry import load_plugin


def load_custom_ops(paths: Sequence[str | Path], base: Path | None) -> list[dict[str, str]]:
    """Load plugins; relative paths are relative to ``base``, the recipe's folder (the current one if None).

    Returns:
        for each its path, as given, and the SHA-256 of its files: what the results record.

    Raises:
        RecipeError: no plugin at that path, or one that cannot be imported.
    """
    facts = []
    for given in paths:
        place = (base or Path()) / Path(given).expanduser()
        if not place.exists():
            raise RecipeError(
                f"custom_ops: got {str(given)!r}, that is {place.absolute()}, where nothing is; expected a plugin's "
                "folder or Python file: correct the path, which is relative to the recipe's file"
            )
        try:
            load_plugin(place)
        except InputError as error:
            raise RecipeError(f"custom_ops: {error}") from error
        facts.append({"path": str(given), "sha256": digest(place)})
    return facts


def digest(place: Path) -> str:
    """SHA-256 over the names and contents of a plugin's files; what Python and editors leave behind does not count."""
    if place.is_file():
        return hashlib.sha256(place.read_bytes()).hexdigest()
    found = hashlib.sha256()
    for file in sorted(place.rglob("*")):
        relative = file.relative_to(place)
        if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in relative.parts):
            content = file.read_bytes()
            found.update(f"{relative.as_posix()}\0{len(content)}\0".encode())
            found.update(content)
    return found.hexdigest()
