"""``deep500 verify DIR``: are these the bytes that were written, and do the figures follow from the samples?

A finished run is *sealed*: ``SHA256SUMS`` holds the checksum of every file (``sha256sum -c SHA256SUMS`` checks it too).
The seal shows accidents and careless edits. Everything that follows from other files is computed again, and files that
speak of the same thing must agree, so who changes one figure must change all that hangs on it and seal anew.

Who changes all of it consistently, raw samples included, is not found out here: that takes a signature
(:mod:`deep500.results.signing`) by somebody else than the author of the change, or an anchor outside: the head of the
ledger, which every report prints, kept where it cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import ResultsError
from deep500.reading import read_bytes
from deep500.results import consistency, recomputed
from deep500.results.files import read_json
from deep500.results.record import MANIFEST, SUMMARY
from deep500.results.relations import RELATIONS, findings, unjudged
from deep500.results.rules import CLAIMS, RULES_FILE, RunView
from deep500.results.sealing import SIGNATURE as SIGNATURE
from deep500.results.sealing import SUMS as SUMS
from deep500.results.sealing import digest_of_file, sealed_files, stats_of
from deep500.results.sealing import seal as seal
from deep500.results.sealing import write_stats as write_stats
from deep500.results.stats import SCHEMA, STATS


@dataclass(frozen=True)
class FolderCheck:
    """One thing that is computed again or compared: what it is, what must be there for it, and what it has to leave out
    although it is possible, in words."""

    about: str
    problems: Callable[[RunView], list[str]]
    possible: Callable[[RunView], bool]
    lacking: Callable[[RunView], str] = lambda run: ""


def _timed(run: RunView) -> bool:
    timed = any(line.get("train_seconds") is not None for line in run.curve)
    return timed and "step" in (run.manifest.get("series") or {})


def _has_checkpoint(run: RunView) -> bool:
    return len(consistency.without_checkpoint(run)) < len({line["seed"] for line in run.curve})


def _unwitnessed(run: RunView) -> str:
    seeds = consistency.without_checkpoint(run)
    return f"of seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" if seeds else ""


CHECKS = (
    FolderCheck("statistics from samples", lambda run: _recomputed(run.path), lambda run: run.has(STATS)),
    FolderCheck("values of seeds from the curve", recomputed.seed_problems, lambda run: bool(run.seeds and run.curve)),
    FolderCheck("summary from seeds", recomputed.summary_problems, lambda run: bool(run.seeds) and run.has(SUMMARY)),
    FolderCheck("claims from statistics and samples", recomputed.claim_problems, lambda run: run.has(CLAIMS)),
    FolderCheck("rules from all of these", recomputed.rule_problems, lambda run: run.has(RULES_FILE)),
    FolderCheck("samples against the curve and their clocks", consistency.sample_problems, _timed),
    FolderCheck("steps against epochs and batches", consistency.curve_problems, lambda run: bool(run.curve)),
    FolderCheck("curve against checkpoints", consistency.checkpoint_problems, _has_checkpoint, _unwitnessed),
    FolderCheck(f"{len(RELATIONS)} relations between facts", findings, lambda run: run.is_of_recipe),
    FolderCheck("run against the ledger beside it", consistency.ledger_problems, lambda run: bool(run.ledger)),
)
"""Work of :func:`examine` besides comparing checksums."""

SEALED = ("raw samples", "losses and accuracies of the curve", "facts of the environment", "digests of data")
"""Facts that follow from nothing else, and are as their author sealed them."""


@dataclass(frozen=True)
class Examined:
    """The findings of :func:`examine`.

    Attributes:
        problems: everything that is wrong, in words; empty when nothing is.
        recomputed: what was computed again or compared.
        absent: what could not be, since the folder does not hold what it takes.
        unjudged: metrics of the author's own, whose values only the author's code computes.
        older: relations between facts that the folder's older format does not have.
    """

    problems: tuple[str, ...]
    recomputed: tuple[str, ...]
    absent: tuple[str, ...]
    unjudged: tuple[str, ...] = ()
    older: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"as it was sealed; checked anew: {', '.join(self.recomputed) or 'nothing but checksums'}"
        remarks = "".join(f"; {remark}" for remark in self.remarks)
        return f"{text}{remarks}; sealed only: {', '.join(SEALED)}"

    @property
    def remarks(self) -> list[str]:
        """Checks that were left out and metrics that were not judged, in words."""
        gone = [f"NOT checked, files are missing: {', '.join(self.absent)}"] if self.absent else []
        metrics = f"NOT judged, since the author's own code computes them: {', '.join(self.unjudged)}"
        gone += [f"{metrics}; --replay, or a review with --run, does"] if self.unjudged else []
        facts = f"NOT judged, since the folder is of an older format without these facts: {', '.join(self.older)}"
        return [*gone, *([facts] if self.older else [])]


def verify(path: Path) -> list[str]:
    """Everything that is wrong with a sealed results folder, in words; empty when nothing is. See :func:`examine`."""
    return list(examine(path).problems)


def examine(path: Path, more: Sequence[FolderCheck] = ()) -> Examined:
    """Compare checksums, compute again what follows from other files, and hold files against each other.

    Args:
        path: results folder of a finished run.
        more: checks beyond :data:`CHECKS`, of rooms above this one.

    Raises:
        ResultsError: the folder is no results folder, or was never sealed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "manifest.json").write_text("{}")
        ...     write_stats(Path(folder)); seal(Path(folder))
        ...     examine(Path(folder)).problems, examine(Path(folder)).recomputed
        ((), ('statistics from samples',))
    """
    problems = _unsealed(path)
    if problems:
        return Examined(tuple(problems), (), tuple(check.about for check in (*CHECKS, *more)))
    run = RunView(path)
    done: list[str] = []
    absent: list[str] = []
    for check in (*CHECKS, *more):
        try:
            possible = check.possible(run)
            problems += check.problems(run) if possible else []
        except ResultsError as error:
            possible, problems = True, [*problems, str(error)]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:  # altered files hold anything
            what = f"{type(error).__name__}: {str(error)[:80]}"
            possible, problems = True, [*problems, f"{check.about}: cannot be computed again ({what})"]
        (done if possible else absent).append(check.about)
        absent += [f"{check.about} {seeds}"] if possible and (seeds := check.lacking(run)) else []
    if not run.is_of_recipe:
        return Examined(tuple(problems), tuple(done), ())
    metrics, older = recomputed.own_metrics(run.manifest), unjudged(run)
    return Examined(tuple(problems), tuple(done), tuple(absent), tuple(metrics), tuple(older))


def _unsealed(path: Path) -> list[str]:
    """Return where files are not those of the seal."""
    if not (path / MANIFEST).is_file() or not (path / SUMS).is_file():
        raise ResultsError(
            f"{path}: got no {MANIFEST} or no {SUMS}; expected the folder of a finished run: name one, or finish it "
            "with --resume"
        )
    listed: dict[str, str] = {}
    problems: list[str] = []
    text = read_bytes(path / SUMS).decode("utf-8", errors="replace")
    for line in text.splitlines():
        digest, gap, name = line.partition("  ")
        if len(digest) != 64 or not gap or not name or name in listed:
            problems.append(f"{SUMS}: a line is not what was written: {line[:80]!r}")
        else:
            listed[name] = digest
    if text and not text.endswith("\n"):
        problems.append(f"{SUMS}: the last line is cut short")
    try:
        present = set(sealed_files(path))
    except ResultsError as error:
        return [*problems, str(error)]
    problems += [f"{name}: missing" for name in sorted(listed.keys() - present)]
    problems += [f"{name}: not there when the run was sealed" for name in sorted(present - listed.keys())]
    problems += _altered(path, {name: listed[name] for name in sorted(present & listed.keys())})
    return problems


def _altered(path: Path, listed: Mapping[str, str]) -> Iterator[str]:
    for name, digest in listed.items():
        try:
            if digest_of_file(path / name) != digest:
                yield f"{name}: altered"
        except ResultsError as error:
            yield f"{name}: altered ({error})"


def _recomputed(path: Path) -> list[str]:
    """Check that ``stats.json`` is, byte for byte, what follows from the samples."""
    if not (path / STATS).is_file():
        return []
    try:
        fresh = stats_of(path)
    except ResultsError as error:
        return [str(error)]
    same = fresh.encode("utf-8") == read_bytes(path / STATS)
    written = read_json(path / STATS).get("schema") if not same else SCHEMA
    if written != SCHEMA:
        return [f"{STATS}: got schema {written!r}; expected {SCHEMA!r}: use the version of Deep500 that wrote it"]
    return [] if same else [f"{STATS}: got figures that do not follow from the samples; expected {STATS} as computed"]
