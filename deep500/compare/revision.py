"""``--at REV``: the code of another git revision, in a folder of its own for as long as it is measured."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import RecipeError


@dataclass(frozen=True)
class Revision:
    """A revision that is checked out.

    Attributes:
        name: as it was asked for.
        commit: its hash.
        top: the checkout at hand.
        folder: the same checkout at the revision.
    """

    name: str
    commit: str
    top: Path
    folder: Path

    def __str__(self) -> str:
        return f"{self.name} ({self.commit[:12]})"

    def moved(self, path: Path) -> Path:
        """The same place at the revision; what lies outside the checkout stays where it is."""
        whole = path.resolve()
        return self.folder / whole.relative_to(self.top) if whole.is_relative_to(self.top) else path

    def recipe(self, path: Path) -> Path:
        """The recipe's file at the revision; raises RecipeError if it has none."""
        moved = self.moved(path.resolve())
        if not moved.is_file():
            raise RecipeError(
                f"got --at {self.name}, which has no {path.name}; expected a revision with the recipe: name another, "
                "or a recipe outside the checkout, which both sides run as it is"
            )
        return moved


@contextlib.contextmanager
def checked_out(name: str | None, recipe: Path) -> Iterator[Revision | None]:
    """A revision of the git checkout in which a recipe lies, or else the current folder; None without a name.

    Raises:
        RecipeError: there is no checkout, no git, or no such revision.
    """
    if name is None:
        yield None
        return
    top = _top(recipe.resolve().parent) or _top(Path.cwd())
    if top is None:
        raise RecipeError(
            f"got --at {name} outside a git checkout; expected the recipe or the current folder in one: go there"
        )
    commit = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if not commit:
        raise RecipeError(f"got --at {name}; expected a revision that git knows in {top}: see git log")
    with tempfile.TemporaryDirectory(prefix="deep500-at-") as temporary:
        folder = Path(temporary).resolve() / "checkout"
        if _git(top, "worktree", "add", "--detach", "--quiet", str(folder), commit) is None:
            raise RecipeError(
                f"got --at {name}, which git cannot check out; expected 'git worktree add' to work: try it"
            )
        try:
            yield Revision(name, commit, top, folder)
        finally:
            _git(top, "worktree", "remove", "--force", str(folder))


def _top(folder: Path) -> Path | None:
    path = _git(folder, "rev-parse", "--show-toplevel")
    return Path(path).resolve() if path else None


def _git(folder: Path, *words: str) -> str | None:
    """Return what git prints; None where it fails or is not there."""
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
