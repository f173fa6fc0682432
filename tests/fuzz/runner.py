"""Damage a copy, run a command on it within this process, and say what was wrong with how it ended."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deep500 import cli
from deep500.errors import Deep500Error
from deep500.results.verify import seal
from tests.fuzz.mutations import mutate
from tests.fuzz.originals import Original, make, within

HANG = 60.0
"""Seconds after which a command is taken to hang; the slowest takes one."""

# fmt: off
QUERIES = (
    "SELECT * FROM runs", "SELECT * FROM metrics, curve", "SELECT * FROM estimates", "SELECT count(*) FROM curve",
    "ATTACH DATABASE '{outside}/made.db' AS other", "VACUUM INTO '{outside}/made.db'", "PRAGMA journal_mode",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    "SELECT zeroblob(2000000000)", "SELECT printf('%.*c', 2000000000, 'x')", "SELECT randomblob(100), 1e999, x'ff'",
    "SELECT load_extension('x')", "DROP TABLE runs", "CREATE TABLE t (a)", "SELECT 1; SELECT 2", "", "-- nothing",
    "SELECT", "EXPLAIN SELECT 1", "SELECT '\x00'",
)
READS = (
    "report", "report both", "check", "verify", "compare", "compared with", "csv", "mllog", "tensorboard", "mlflow",
    "query",
)
WRITING = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod",
    "shutil.rmtree",
}
# fmt: on


@dataclass
class Case:
    """One damaged copy, the commands that were run on it, and their faults: (kind, command, what)."""

    number: int
    original: str
    done: list[str]
    commands: list[str] = field(default_factory=list)
    faults: list[tuple[str, str, str]] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)


class Hang(BaseException):
    """A command took longer than :data:`HANG`."""


class Watch:
    """Notes what this process writes outside of a folder while it is on; audit hooks stay for ever, so there is one."""

    def __init__(self) -> None:
        self.below: tuple[str, ...] | None = None
        self.found: list[str] = []
        sys.addaudithook(self._event)

    @contextlib.contextmanager
    def on(self, *folders: Path) -> Iterator[list[str]]:
        self.found = []
        self.below = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
        try:
            yield self.found
        finally:
            self.below = None

    def _event(self, event: str, words: tuple[Any, ...]) -> None:
        if self.below is None:
            return
        if event == "open":
            path, _, flags = words
            writes = isinstance(flags, int) and flags & (
                os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            )
            paths = [path] if writes and isinstance(path, (str, bytes)) else []
        elif event == "sqlite3.connect":
            paths = [words[0]] if words[0] != ":memory:" else []
        elif event in WRITING:
            paths = [word for word in words[:2] if isinstance(word, (str, bytes))]
        else:
            return
        for path in paths:
            place = Path(os.fsdecode(path))
            real = place.resolve() if event == "open" else place.parent.resolve() / place.name  # a link itself is moved
            if not f"{real}/".startswith(self.below) and real != Path(os.devnull):
                self.found.append(f"{event} {real}")


def words_of(command: str, run: Path, twin: Path, out: Path, outside: Path, draw: random.Random) -> list[str]:
    """The command line of a command on a results folder."""
    simple = {
        "report": ["report", run, "-o", out / "page.html"],
        "report both": ["report", twin, run, "-o", out / "page.html"],
        "check": ["check", run],
        "verify": ["verify", run],
        "compare": ["compare", run, twin],
        "compared with": ["compare", twin, run],
        "query": ["query", draw.choice(QUERIES).replace("{outside}", str(outside)), "--out", run.parent],
        "resume": ["run", run.parents[2] / "job.py", "--resume", run, "--out", run.parents[1], "--quiet"],
        "resume newest": ["run", run.parents[2] / "job.py", "--resume", "--out", run.parents[1]],
        "package": ["package", run, "-o", out / "run.tar.gz"],
    }
    words = simple.get(command, ["export", run, "--to", command, "-o", out / command])
    return [str(word) for word in words]


class Fuzzer:
    """Cases by number; the same seed and number make the same case.

    Args:
        folder: for originals and copies.
        seed: of all random choices.
        each: commands per damaged folder; None: all of them.
    """

    def __init__(self, folder: Path, seed: int, each: int | None = 1) -> None:
        self.folder, self.seed, self.each = folder, seed, each
        self.originals = make(folder / "originals")
        self.watch = Watch()

    def case(self, number: int) -> Case:
        """Make, run, and clear away one case."""
        draw = random.Random(f"{self.seed}:{number}")
        whole = draw.choices(self.originals, [8, 8, 3, 4, *[1] * (len(self.originals) - 4)])[0]
        place = self.folder / "case"
        outside = place / "outside"
        outside.mkdir(parents=True)
        (outside / "file").write_text("as it was")
        copy = Path(shutil.copytree(whole.base, place / "copy", symlinks=True))
        target = copy / whole.inside
        case = Case(number, whole.name, [])
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            files = _files(target if target.is_dir() else target.parent, whole.inside if whole.load else "", target)
            if files:
                case.done.append(mutate(draw.choice(files), draw, outside))
        if whole.load is not None:
            self._load(case, whole, target, place)
        else:
            self._commands(case, whole, target, place, draw)
        shutil.rmtree(place)
        return case

    def _load(self, case: Case, whole: Original, target: Path, place: Path) -> None:
        def load() -> int:
            assert whole.load is not None
            try:
                whole.load(target)
            except Deep500Error as error:
                sys.stderr.write(f"deep500: error: {error}\n")
                return 2
            return 0

        self._run(case, "load", load, place, outside_only=True)

    def _commands(self, case: Case, whole: Original, run: Path, place: Path, draw: random.Random) -> None:
        if draw.random() < 0.5 and _sealed_again(run):
            case.done.append("sealed again")
        twin = whole.base / whole.inside
        if not (twin / "SHA256SUMS").exists():
            twin = self.originals[1].base / self.originals[1].inside
        known = [*READS, *(["resume"] * 4 + ["resume newest"] if whole.resumes else [])]
        known += ["package"] if "package" in cli.COMMANDS else []
        commands = list(dict.fromkeys(known)) if self.each is None else draw.sample(known, self.each)
        for command in dict.fromkeys(commands):
            out = place / "out"
            out.mkdir(exist_ok=True)
            words = words_of(command, run, twin, out, place / "outside", draw)
            before = None if command.startswith("resume") else _listing(run)
            self._run(case, command, lambda words=words: cli.main(words), place)
            if before is not None and _listing(run) != before:
                case.faults.append(("the folder was changed", command, " ".join(words)))

    def _run(self, case: Case, command: str, act: Callable[[], int], place: Path, outside_only: bool = False) -> None:
        case.commands.append(command)
        before = _listing(place / "outside")
        out, err = io.StringIO(), io.StringIO()
        code: Any = None
        with self.watch.on(place) as written, within(place), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    with _limit():
                        code = act()
                except Hang:
                    case.faults.append(("hang", command, _where()))
                except (Exception, SystemExit) as error:  # noqa: BLE001 - that is what is looked for
                    case.faults.append((f"{type(error).__name__}", command, _where()))
        case.codes[f"{command} {code}"] += 1
        said = err.getvalue()
        if written:
            case.faults.append(("written outside", command, written[0]))
        if _listing(place / "outside") != before:
            case.faults.append(("outside changed", command, ""))
        if code is not None:
            faults = _judged(command, code, out.getvalue(), said)
            case.faults += [(kind, command, what) for kind, what in faults]


def _judged(command: str, code: object, out: str, err: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in err.splitlines() if not line.startswith("deep500: warning: ")]
    if type(code) is not int or not 0 <= code <= 3:
        yield "no exit code", repr(code)
    if "Traceback" in err:
        yield "traceback", err[-2000:]
    elif any(not line.startswith("deep500: error: ") for line in lines) or len(lines) > 1:
        yield "more than one line", err[:300]
    elif lines and len(lines[0]) > 3000:
        yield "a line too long", f"{len(lines[0])} characters: {lines[0][:200]}"
    if "\x1b" in err:
        yield "an escape sequence", repr(err[:200])
    if not out and not err and not command.startswith(("resume", "load")):
        yield "nothing said", command


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _where() -> str:
    return traceback.format_exc()


def _files(folder: Path, only: str, target: Path) -> list[Path]:
    """Regular files to damage: those of the run and the ledger beside it, or the one file; JSON more often."""
    found = [target] if only else [*sorted(folder.rglob("*")), folder.parent / "ledger.jsonl"]
    found = [path for path in found if _small(path) and path.suffix != ".html"]
    return found + 2 * [path for path in found if path.suffix in (".json", ".jsonl")]


def _small(path: Path) -> bool:
    """A regular file that was not made 20 GiB long."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 2**24


def _sealed_again(run: Path) -> bool:
    """Seal a damaged folder, as who forges it would; not where it has no seal, or cannot be sealed."""
    if not run.is_dir() or not (run / "SHA256SUMS").is_file():
        return False
    if not all(_small(path) for path in run.rglob("*") if path.is_file()):
        return False
    try:
        seal(run)
    except Deep500Error:
        return False
    return True


def _listing(folder: Path) -> list[tuple[bytes, int, int, int]]:
    """Everything below a folder, with what changes when it is written to; names may be no text."""
    found, todo = [], [os.fsencode(folder)]
    while todo:
        for entry in os.scandir(todo.pop()):
            info = entry.stat(follow_symlinks=False)
            is_folder = entry.is_dir(follow_symlinks=False)
            todo += [entry.path] if is_folder else []
            found.append(
                (entry.path, info.st_mode, 0 if is_folder else info.st_size, 0 if is_folder else info.st_mtime_ns)
            )
    return sorted(found)


def run(folder: Path, seed: int, numbers: Sequence[int], each: int | None, say: Callable[[str], object]) -> list[Case]:
    """Run cases; those with faults are said as they come, and returned with the others."""
    fuzzer, cases, begin, spent = Fuzzer(folder, seed, each), [], time.monotonic(), time.process_time()
    for count, number in enumerate(numbers, 1):
        case = fuzzer.case(number)
        cases.append(case)
        for kind, command, what in case.faults:
            say(f"{number}: {kind} in {command} of {case.original} after {', '.join(case.done)}\n{what}\n")
        if count % 500 == 0:
            say(f"{count} damaged, {sum(bool(c.faults) for c in cases)} with faults\n")
    wall, cpu = time.monotonic() - begin, time.process_time() - spent
    faults = Counter(kind for case in cases for kind, _, _ in case.faults)
    codes: Counter[str] = sum((case.codes for case in cases), Counter())
    commands = sum(len(case.commands) for case in cases)
    say(f"{len(cases)} damaged, {commands} commands, {wall:.1f} s, {cpu / max(1, len(cases)):.4f} CPU s each\n")
    say("exit codes: " + ", ".join(f"{name}: {n}" for name, n in sorted(codes.items())) + "\n")
    say("faults: " + (", ".join(f"{kind}: {n}" for kind, n in faults.most_common()) or "none") + "\n")
    return cases
