"""Generated C++ operators with derived gradients: ``python -m tests.fuzz.programs --count 3000 --seed 0 --resume``.

Each program is built without the check and, unless that is refused, in one of the other ways; what builds is judged at
many sizes against a tape that is compiled from the same source by itself, for six at once
(:mod:`tests.fuzz.program_judge`). A wrong number without a word is *silent*; such programs, and those that are refused
for a new reason, are reduced to the blocks to blame. ``--replay NUMBER`` runs one in all ways.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import deep500 as d5
from deep500.operators.enzyme import build, pipeline
from deep500.operators.enzyme.pipeline import BuildOptions, differentiate
from tests.fuzz.program_blocks import KINDS
from tests.fuzz.program_judge import Judge, Oracle
from tests.fuzz.program_source import GROUP, Program, operator, program

MODES: dict[str, dict[str, Any]] = {
    "unchecked": {"check": False},
    "float64": {},
    "fast_math": {"fast_math": True},
    "float32": {},
}
OTHERS = ("float64", "fast_math", "float64", "float32")
"""The ways in which groups are built beside the first, in turn: a float32 that is checked needs its twin in float64."""
HANG = 7200.0
"""Seconds until a build and its calls are taken to hang, on a machine that may be busy with other things."""
PATIENCE = 12.0
"""CPU seconds for Enzyme, a tenth of what users give it: on a Hessian it may not end."""
WRONG = ("silent", "warned", "died", "hang")
NAMED = re.compile(r"C\+\+ operator '\w+': |\bp\d+(?:_\d+)?(?:_\w+)?")

Outcome = dict[str, Any]
"""How a program ended in one mode: ``how`` it did, the ``text``, CPU ``seconds`` that its build took."""


def examine(p: Program, mode: str, folder: Path, seed: int, group: Sequence[Program] = ()) -> Outcome:
    """Build an operator of this program and judge it, in this process, which may die of it.

    The tape of its group serves each of them.
    """
    build.BuildOptions = partial(BuildOptions, timeout=HANG)  # type: ignore[assignment, misc]
    pipeline.differentiate, pipeline.PATIENCE = _differentiate, HANG / PATIENCE
    form, dtype = p.form, "float32" if mode == "float32" else "float64"
    rows = d5.TensorDescriptor(dtype, (1, "N"))
    inputs = [rows] * (1 + form.weighted) + [d5.TensorDescriptor("int64", ("N",))] * form.indexed
    oracle, begin = Oracle(group if p in group else [p], folder), _spent()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            op = d5.compile_custom_cppop_inline(
                "generated",
                operator("generated", [p]),
                inputs,
                [rows],
                gradient="enzyme",
                openmp=form.openmp,
                **MODES[mode],
            )
        except d5.errors.CompileError as error:
            how = "broken" if "does not compile" in str(error) else "refused"
            return {"how": how, "text": str(error), "seconds": _spent() - begin}
    seconds = _spent() - begin
    judge = Judge(op, oracle, [p], dtype)
    try:
        judge.run(seed)
    except d5.errors.Deep500Error as error:
        return {"how": "refused", "text": f"at a call: {error}", "seconds": seconds}
    how, text = "right" if judge.judged[p.name] else "open", judge.said.get(p.name, "")
    if text:
        how = "warned" if any("never came" in str(w.message) for w in caught) else "silent"
    left_out = {name: why for name, why in op.signature.items() if name in ("no_jvp", "no_hvp")}
    return {"how": how, "text": text, "seconds": seconds, **left_out}


def _differentiate(engine: Any, clang: Any, ir: Path, options: BuildOptions) -> tuple[int, str, str]:
    """Enzyme with less patience; what the compiler takes on a busy machine is its own affair."""
    return differentiate(engine, clang, ir, replace(options, timeout=PATIENCE))


def _spent() -> float:
    """CPU seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


class Bench:
    """Runs :func:`examine` in processes of their own; ``folder`` is for what they make."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.blamed = folder, seed, Counter[tuple[str, str]]()
        self.group: list[Program] = []

    def apart(self, p: Program, mode: str) -> Outcome:
        """The outcome of a program."""
        context = multiprocessing.get_context("fork")
        theirs = context.Queue()

        def run() -> None:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                theirs.put(examine(p, mode, self.folder, self.seed, self.group))
            except SyntaxError as error:
                theirs.put({"how": "broken", "text": str(error), "seconds": 0.0})

        process = context.Process(target=run)
        process.start()
        deadline = time.monotonic() + HANG
        outcome: Outcome | None = None
        hangs = True
        try:
            while outcome is None and time.monotonic() < deadline:
                if not theirs.empty():
                    outcome = theirs.get()
                elif not process.is_alive() and theirs.empty():
                    hangs = False
                    break
                else:
                    time.sleep(0.05)
        finally:  # also where this program is ended
            if process.is_alive() and outcome is None:
                os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
        if outcome is not None:
            return outcome
        text = "no end" if hangs else f"exit code {process.exitcode}"
        return {"how": "hang" if hangs else "died", "text": text, "seconds": 0.0}

    def reduced(self, whole: Program, mode: str, outcome: Outcome) -> Program:
        """The program of the fewest blocks that ends in the same way; what was seen before is not built again."""
        count, why = len(whole.blocks), _reason(outcome)
        for n in range(count if why else 0):
            if self.blamed[whole.blocks[n][0], why]:
                return whole.reduced((n,))
        for size in range(1, count):
            for numbers in itertools.combinations(range(count), size):
                smaller = whole.reduced(numbers)
                again = self.apart(smaller, mode)
                if again["how"] == outcome["how"] and _reason(again) == why:
                    self.blamed.update({(kind, why) for kind, _ in smaller.blocks if size == 1})
                    return smaller
        return whole


def _reason(outcome: Outcome) -> str:
    """Why a program was refused, in few words that others share; "" for numbers."""
    if outcome["how"] != "refused":
        return ""
    text = NAMED.sub("", outcome["text"])
    if "not that of forward" in text:
        return "the check: a gradient that is not that of forward"
    first, _, rest = text.partition("\n")
    advice = re.search(r"what to change: ([^\n]*)", rest)
    return (advice[1] if advice else first)[:110]


def ways(number: int) -> list[str]:
    """The modes in which a group is built: always without the check, and one other in turn."""
    return ["unchecked", OTHERS[number // GROUP % len(OTHERS)]]


def run(
    seed: int,
    numbers: Sequence[int],
    bench: Bench,
    say: Callable[[str], None],
    modes: Sequence[str] = (),
    end: float = float("inf"),
) -> Iterator[dict[str, Any]]:
    """Run numbers; yields a record of each program in each mode. What is wrong is said as it comes.

    No group is started once the monotonic clock shows ``end``.
    """
    for _, group in itertools.groupby(numbers, lambda number: number // GROUP):
        if time.monotonic() > end:
            return
        bench.group = programs = [program(seed, number) for number in group]
        for mode in modes or ways(int(programs[0].name[1:])):
            ended = {}
            for p in programs:
                ended[p.name] = outcome = bench.apart(p, mode)
                blamed = bench.reduced(p, mode, outcome) if outcome["how"] in (*WRONG, "refused") else p
                if outcome["how"] in (*WRONG, "broken"):
                    say(f"{p.name[1:]} {mode} {outcome['how']}: {outcome['text']}\n{blamed.text()}")
                yield {
                    "number": int(p.name[1:]),
                    "mode": mode,
                    "kinds": [kind for kind, _ in p.blocks],
                    "blamed": [kind for kind, _ in blamed.blocks],
                    "reason": _reason(outcome),
                    **outcome,
                }
            programs = [p for p in programs if modes or ended[p.name]["how"] != "refused"]


def table(records: Iterable[dict[str, Any]]) -> str:
    """How programs ended: in each mode, for each kind of blocks, and why they were refused."""
    records = list(records)
    modes: dict[str, Counter[str]] = defaultdict(Counter)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: dict[str, list[float]] = defaultdict(list)
    reasons: Counter[str] = Counter()
    for record in records:
        modes[record["mode"]][record["how"]] += 1
        seconds[record["mode"]].append(record["seconds"])
        for kind in set(record["kinds"]):
            blamed = kind in record["blamed"] or record["how"] in ("right", "open")
            kinds[kind]["programs"] += 1
            kinds[kind][record["how"] if blamed else "beside"] += 1
        if record["how"] == "refused":
            reasons[f"{' + '.join(sorted(record['blamed']))}: {record['reason']}"] += 1
    lines = ["| built | programs | right | refused | silent | other | seconds of CPU each |", "|---|" + "---|" * 6]
    for mode, count in modes.items():
        other = sum(count.values()) - count["right"] - count["refused"] - count["silent"]
        mean = sum(seconds[mode]) / len(seconds[mode])
        words = [mode, sum(count.values()), count["right"], count["refused"], count["silent"], other, f"{mean:.1f}"]
        lines.append(f"| {' | '.join(map(str, words))} |")
    lines += ["", "| kind of block | built | right | refused | silent | other |", "|---|" + "---|" * 5]
    for kind in (name for name in KINDS if name in kinds):
        count = kinds[kind]
        other = sum(count[how] for how in ("open", "warned", "died", "hang", "broken"))
        words = [kind, count["programs"] - count["beside"], count["right"], count["refused"], count["silent"], other]
        lines.append(f"| {' | '.join(map(str, words))} |")
    return "\n".join([*lines, "", *(f"{n:4d} refused: {why}" for why, n in reasons.most_common())])


def main() -> int:
    """Exit code 1 where a program was wrong without a word, or worse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="how many programs (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N", help="the first number (0)")
    parser.add_argument("--replay", type=int, metavar="N", help="this one alone, in all modes, with its source")
    parser.add_argument("--modes", default="", help=f"of {','.join(MODES)}; the first and one other if left out")
    parser.add_argument("--resume", action="store_true", help="go on where the file of records ends")
    parser.add_argument("--records", type=Path, help="that file (results/programs-SEED.jsonl)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no group after so many")
    words = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was begun ends too
    from deep500.operators.enzyme.engine import find_engine

    os.environ["DEEP500_ENZYME"] = str(find_engine().path)
    records = words.records or Path("results") / f"programs-{words.seed}.jsonl"
    records.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in records.read_text().splitlines()] if words.resume and records.exists() else []
    done, numbers = {record["number"] for record in known}, range(words.first, words.first + words.count)
    if words.replay is not None:
        numbers, known, done = range(words.replay, words.replay + 1), [], set()
        print(operator("generated", [program(words.seed, words.replay)]))
    modes = words.modes.split(",") if words.modes else list(MODES) if words.replay is not None else []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deep500-fuzz-") as folder, records.open("a" if done else "w") as file:
        os.environ["DEEP500_CACHE"] = str(Path(folder) / "cache")
        bench = Bench(Path(folder), words.seed)
        left = [n for n in numbers if n not in done]
        for record in run(words.seed, left, bench, partial(print, flush=True), modes, begin + words.seconds):
            known.append(record)
            file.write(json.dumps(record) + "\n")
            file.flush()
    print(table(known))
    print(f"{time.monotonic() - begin:.0f} s, {_spent():.0f} of CPU")
    return int(any(record["how"] in (*WRONG, "broken") for record in known))


if __name__ == "__main__":
    sys.exit(main())
