"""The options that every recipe takes, whether started as a script or with ``deep500 run``."""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from deep500.errors import RecipeError, nearest
from deep500.guard import DEBUG

# fmt: off
RUN_DEFINING = (
    "framework", "ranks", "repeat", "budget", "precision", "device", "seed", "dry_run", "strict", "open", "download",
    "data",
)
# fmt: on
"""Options that are part of what is run; ``--resume`` takes them from the manifest."""

TURNS = "turns"
"""The manifest's entry for a run whose launches took turns with another's: the name of the comparison, and its side."""

AUTO = "auto"
"""``--repeat`` until the intervals are tight, see :mod:`deep500.recipe.repetition`."""


MOST_RANKS = 1024
"""Processes that one machine is asked for at most."""

PAIRS, MOST_PAIRS = 24, 60
"""Pairs at most, if not told otherwise, and with ``--pairs auto``: a comparison ends when it is decided."""


@dataclass
class Options:
    """Parsed options; defaults mean "not given"."""

    overrides: list[str]
    framework: str | None = None
    ranks: int | None = None
    repeat: int | str = 1
    budget: float | None = None
    precision: float | None = None
    device: str | None = None
    seed: int | None = None
    dry_run: bool = False
    out: Path = Path("results")
    resume: str | None = None
    resume_or_start: bool = False
    strict: bool = False
    open: bool = False
    download: bool = False
    data: Path | None = None
    quiet: bool = False
    json: bool = False
    log: list[str] = field(default_factory=list)
    list_mutable: bool = False
    stop_after: int | None = None
    turns: str | None = None
    end: bool = False
    launch: Path | None = None
    name: str | None = None
    tags: list[str] = field(default_factory=list)

    def defining(self) -> list[str]:
        """Overrides and options that define the run, as words that parse to the same again."""
        words = list(self.overrides)
        for name in RUN_DEFINING:
            value, flag = getattr(self, name), "--" + {"framework": "backend"}.get(name, name).replace("_", "-")
            if value is True:
                words.append(flag)
            elif value is not None and value is not False and not (name == "repeat" and value == 1):
                words += [flag, str(value)]
        return words


def turns_of(options: Options) -> dict[str, dict[str, Any]]:
    """The manifest's entry :data:`TURNS`; empty for a run that is on its own.

    Seeds that are ``apart`` were not trained in turns with the other side, because one of the two was stopped.

    Example:
        >>> turns_of(parse_options(["--in-turns", "1f00:first:3,7"]))
        {'turns': {'id': '1f00', 'side': 'first', 'apart': [3, 7]}}
    """
    name, side, apart = f"{options.turns or ''}::".split(":")[:3]
    return (
        {TURNS: {"id": name, "side": side, "apart": [int(seed) for seed in apart.split(",") if seed]}} if name else {}
    )


class _Nothing(argparse.Action):
    """An option that is read elsewhere: :func:`deep500.guard.guarded` looks for it itself."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **{**more, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS})

    def __call__(self, *_: Any) -> None:
        pass


RENAMED = {
    "--framework": "--backend",
    "--frameworks": "--backend",
    "--output": "--out",
    "--results": "--out",
    "--steps": "--rounds",
}
"""Options that had another name before; each goes with the next version."""


class Parser(argparse.ArgumentParser):
    """argparse that raises instead of leaving the process, so that one place decides exit codes."""

    def renewed(self, words: Sequence[str]) -> list[str]:
        """Return words with the present names of options, and warn of those that had others."""
        known, new = self._option_string_actions, list(words)
        for place, word in enumerate(words):
            option, equals, value = word.partition("=")
            name = RENAMED.get(option)
            if name in known and option not in known:
                new[place] = f"{name}{equals}{value}"
                warn_renamed(option, name)
        return new

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.add_argument(DEBUG, action=_Nothing, nargs=0, help="show whole tracebacks")

    def error(self, message: str) -> NoReturn:
        cure = self._meant(message.removeprefix("unrecognized arguments: ")) if "unrecognized" in message else ""
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message, re.DOTALL)
        if choice:
            cure = nearest(choice[1], re.findall(r"[\w-]+", choice[2]))
            message = message[: choice.start()] + f"invalid choice: {choice[1]!r}"
        raise RecipeError(
            f"got a wrong command line: {message}; expected options of {self.prog}; {cure or 'see --help'}"
        )

    def _meant(self, words: str) -> str:
        """The cure for an option that there is not: one like it, or a word ``key=value`` of a recipe."""
        option, _, value = words.replace("=", " ", 1).partition(" ")
        close = difflib.get_close_matches(option, self._option_string_actions, n=1, cutoff=0.75)
        if close:
            return f"did you mean {close[0]}?"
        if not any(action.dest == "overrides" for action in self._actions) or not option.startswith("--"):
            return ""
        from deep500.recipe.schema import BASES  # loads what help does without

        key, value = option[2:].replace("-", "_"), value.partition(" ")[0] or "VALUE"
        if key in BASES:
            return f"a key of the recipe is a word: {key}={value}"
        return f"keys of the recipe are words, such as batch_size=128 or optimizer_kwargs.lr=0.05: {key}={value}?"


def warn_renamed(old: str, new: str) -> None:
    """Say on stderr that a name is another now."""
    sys.stderr.write(f"deep500: warning: {old} is {new} now; the old name goes with the next version\n")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a recipe on a parser."""
    add = parser.add_argument
    # fmt: off
    add("overrides", nargs="*", metavar="key=value",
        help="change a MUTABLE key, e.g. batch_size=128 optimizer_kwargs.lr=0.05")
    add("--backend", dest="framework", metavar="NAME",
        help="run on another backend: every object of one is exchanged for its namesake")
    add("--ranks", type=_at_least(1, MOST_RANKS), metavar="P",
        help="train on P processes of this machine (batch_size stays that of all together); on a cluster use mpirun, "
        "srun or torchrun around the same command instead")
    add("--repeat", type=_repetitions, default=1, metavar="N",
        help="train with N seeds; judge the median, report the spread. From six on each is a process of its own, in "
        "random order. auto: one seed more, until the intervals over seeds of every judged metric and of the step time "
        "are tight, or --budget ends")
    add("--budget", type=float, metavar="SECONDS", help="with --repeat auto: most seconds of training, over all seeds")
    add("--precision", type=float, metavar="REL", help="with --repeat auto: tight means within this part (0.05)")
    add("--device", metavar="D", help="cpu, gpu or gpu:<number>")
    add("--seed", type=_at_least(0, 2**63 - 1), metavar="S", help="the (first) seed")
    add("--dry-run", action="store_true", help="two batches of everything, no verdict")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="where results go (./results)")
    add("--resume", nargs="?", const="", metavar="DIR", help="go on with an unfinished run: DIR, or the newest")
    add("--resume-or-start", action="store_true",
        help="go on with the newest unfinished run of the same recipe and words, else begin one: for schedulers that "
        "start a job again")
    add("--stop-after", type=_at_least(1), metavar="SEEDS",
        help="train at most this many seeds now; --resume goes on with the next, in a process of its own")
    # the next two are said by 'deep500 run A --against B' to its launches
    add("--in-turns", dest="turns", metavar="NAME:SIDE:APART", help=argparse.SUPPRESS)
    add("--end", action="store_true", help=argparse.SUPPRESS)
    add("--launch", type=Path, help=argparse.SUPPRESS)  # by --repeat, to each: where to write the folder of the run
    add("--strict", action="store_true", help="missing hardware or data is an error, not a fall-back")
    add("--open", action="store_true", help="allow changes to FIXED keys; the report says so")
    add("--download", action="store_true", help="fetch an absent data set")
    add("--data", type=Path, metavar="DIR", help="the folder with data sets ($DATA_ROOT, ./data)")
    add("--name", type=_title, metavar="NAME", help="what pages and 'deep500 query' call the run")
    add("--tag", dest="tags", type=_word, action="append", default=[], metavar="WORD",
        help="a word to find the run by in 'deep500 query', and on pages; may be given several times")
    add("--quiet", action="store_true", help="print the verdict only")
    add("--json", action="store_true", help="print the summary as one JSON object and nothing else")
    add("--log", action="append", default=[], metavar="WHERE",
        help="log epochs and loss while training: csv and tensorboard (files below ./logs), mlflow, wandb (as their "
        "clients are set up); may be given several times")
    add("--list-mutable", action="store_true", help="list what may be changed, and stop")
    # fmt: on


def add_against(parser: argparse.ArgumentParser) -> None:
    """Declare what ``deep500 run`` takes beside the options of every recipe."""
    add = parser.add_argument_group("two sides in turns").add_argument
    add(
        "--against",
        metavar="WORDS",
        help="judge this run against another, launch by launch in turns: words that are added for that one, such as "
        "'batch_size=64 --backend jax', or another recipe and words; '' is the run itself",
    )
    add("--at", metavar="REV", help="the other run is of the code of this git revision")
    add(
        "--pairs",
        type=_pairs,
        metavar="N",
        help=f"launches of each side at most ({PAIRS}; auto: {MOST_PAIRS}), each with its own seed: no further ones "
        "are made as soon as they decide",
    )
    add("--control", action="store_true", help="a third launch in each turn, of the other run again (A/A)")


@dataclass(frozen=True)
class Against:
    """The other side of a run that is judged, which was asked for beside the options of a recipe."""

    against: str | None
    at: str | None
    pairs: int | str | None
    control: bool

    @classmethod
    def taken_from(cls, args: argparse.Namespace) -> Against:
        """Take its options out of a parsed command line."""
        asked = cls(args.against, args.at, args.pairs, args.control)
        del args.against, args.at, args.pairs, args.control
        return asked

    @property
    def nothing(self) -> bool:
        """Return whether this is an ordinary run; raises RecipeError for options that need another one beside them."""
        if self.against is None and self.at is None:
            if self.pairs is not None or self.control:
                word = "--control" if self.pairs is None else f"--pairs {self.pairs}"
                raise RecipeError(f"got {word} without another run; expected --against or --at beside it: add one")
            return True
        return False


def _at_least(least: int, most: int | None = None):  # type: ignore[no-untyped-def]
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"got {value}, expected at least {least}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"got {value}, expected at most {most}")
        return value

    number.__name__ = "integer"  # argparse puts it into its message
    return number


def _title(text: str) -> str:
    if not 0 < len(text) <= 80 or not text.isprintable() or text != text.strip():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected 1 to 80 characters on one line")
    return text


def _word(text: str) -> str:
    if "," in text or " " in text:  # tables and other tools have the tags of a run in one text
        raise argparse.ArgumentTypeError(f"got {text!r}, expected one word without commas: give --tag once for each")
    return _title(text)


def _pairs(text: str) -> int | str:
    return AUTO if text == AUTO else int(text)


def _repetitions(text: str) -> int | str:
    return AUTO if text == AUTO else _at_least(1)(text)


_repetitions.__name__ = "integer (or auto)"  # argparse puts it into its message


def _check_repetition(options: Options) -> None:
    """Raise RecipeError where --repeat, --budget and --precision do not go together."""
    budget, precision = options.budget, options.precision
    if options.repeat != AUTO and (budget is not None or precision is not None):
        word = "--budget" if budget is not None else "--precision"
        raise RecipeError(f"got {word} with --repeat {options.repeat}; expected it with --repeat auto: add that")
    if options.repeat == AUTO and budget is None:
        raise RecipeError(
            "got --repeat auto without a budget; expected the most seconds that training may take: add --budget SECONDS"
        )
    if budget is not None and not 0 < budget < math.inf:
        raise RecipeError(f"got --budget {budget:g}; expected a positive number of seconds")
    if precision is not None and not 0 < precision < 1:
        raise RecipeError(f"got --precision {precision:g}; expected a part of the value between 0 and 1, such as 0.05")


def parse_options(argv: Sequence[str], program: str = "recipe", description: str | None = None) -> Options:
    """Parse a recipe's command line; raises RecipeError (``--help`` prints and leaves).

    Example:
        >>> parse_options(["batch_size=8", "--seed", "3"]).seed
        3
    """
    parser = Parser(prog=program, description=description, allow_abbrev=False)
    add_options(parser)
    return take_options(parser.parse_intermixed_args(parser.renewed(argv)))


def take_options(args: argparse.Namespace) -> Options:
    """Options from what a parser with :func:`add_options` made of a command line."""
    options = Options(**vars(args))
    if options.resume and "=" in options.resume and not Path(options.resume).is_dir():
        options.overrides.append(options.resume)  # "--resume batch_size=8": the word after it is no folder
        options.resume = ""
    twice = [key for key, count in Counter(word.partition("=")[0] for word in options.overrides).items() if count > 1]
    if twice:
        raise RecipeError(f"got the key {twice[0]!r} more than once; expected each once: leave out all but one")
    keys = [word.partition("=")[0] for word in options.overrides]
    inner = next((key for key in keys for whole in keys if key.startswith(f"{whole}.")), None)
    if inner is not None:
        raise RecipeError(f"got {inner!r} and the whole that it is in; expected the part or the whole: leave one out")
    _check_repetition(options)
    if options.data is not None and not options.data.is_dir() and not options.download:
        raise RecipeError(f"got --data {options.data}; expected a folder with data sets: name one, or add --download")
    return options
