"""Networks from somebody else's generator in five backends: ``python -m tests.fuzz.networks --count 1000 --seed 1``;
with ``--operators`` single nodes, drawn from ONNX's schemas (:mod:`tests.fuzz.operators`).

Each of nnsmith's models runs as it is (against a bare session of ONNX Runtime) and in float64 in training mode, with
every floating input and parameter trainable (backends against each other, and against differences). What nothing
explains is a finding, which is reduced to the smallest graph that still shows it. ``--replay NUMBER`` runs one number.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.fuzz import network_worker
from tests.fuzz.network_bare import Arrays, Outcome
from tests.fuzz.network_judge import Finding, judge_plain, judge_slopes, judge_trained

BACKENDS = ("reference", "pytorch", "onnxruntime", "tensorflow", "jax")
HANG = 600.0
"""Seconds until a process is taken to hang: on a busy machine frameworks take minutes to be imported."""
MOST = 300
"""Questions after which a process is started anew: frameworks keep what they compiled."""


class Worker:
    """A process that answers questions (:data:`tests.fuzz.network_worker.FUNCTIONS`), started again when it dies."""

    def __init__(self, *first: Any) -> None:
        self.first, self.asked, self.deaths = first, 0, 0
        self.process: Any = None

    def send(self, function: str, *arguments: Any) -> None:
        """Ask; :meth:`receive` waits for the answer."""
        if self.process is None or self.asked > MOST:
            self.close()
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=network_worker.answers, args=(theirs, *self.first), daemon=True)
            self.process.start()
            theirs.close()
            self.asked = 0
        self.asked += 1
        self.question = (function, *arguments)
        self.pipe.send((function, arguments))

    def receive(self, again: bool = True) -> Any:
        """The answer, or an outcome that says how the process ended, twice: what it ran before may have killed it."""
        try:
            if self.pipe.poll(HANG):
                return self.pipe.recv()
            text = "hang"
        except (EOFError, OSError):
            self.process.join(10)
            text = f"death by exit code {self.process.exitcode}"
            if again:
                self.close()
                self.deaths += 1
                self.send(*self.question)
                return self.receive(again=False)
        self.close()
        return Outcome("raw", text)

    def ask(self, function: str, *arguments: Any) -> Any:
        self.send(function, *arguments)
        return self.receive()

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


class Bench:
    """The processes, and what they find about a model."""

    def __init__(self, backends: Sequence[str]) -> None:
        self.workers = {backend: Worker(backend) for backend in backends}
        self.helper, self.session = Worker(), Worker()
        self.counts: Counter[str] = Counter()

    def findings(
        self, model: bytes, feeds: Arrays, seed: int, count: Counter[str] | None = None, only: str = ""
    ) -> list[Finding]:
        """All findings of one model; with ``only``, a kind, on the backends that it names."""
        count = Counter() if count is None else count
        backends = [b for b in self.workers if not only or b == "reference" or b in only]
        excused: list[Mapping[str, str]] = []

        def open_() -> Mapping[str, str]:
            if not excused:
                answer = self.helper.ask("undefined", model, feeds)
                excused.append(answer if isinstance(answer, dict) else {})
                count.update(f"left open: {reason}" for reason in set(excused[0].values()))
            return excused[0]

        def trust(noise: float, training: bool) -> Outcome:
            count["disturbed"] += 1
            return self.helper.ask("trust", model, feeds, seed, noise, training)

        def poles() -> bool:
            answer = self.helper.ask("poles", model, feeds, seed)
            count["infinite slopes"] += answer is True
            return answer is True

        session = self.session.ask("bare", model, feeds)
        count[f"bare session {session.how}"] += 1
        answers = self._all(backends, "plain", model, feeds)
        _refusals(count, answers)
        found = judge_plain(session, answers, coarsest(model, feeds), trust, open_)
        trained = self._all(backends, "trained", model, feeds, seed)
        count["trained"] += any(answer.how == "ran" for answer in trained.values())
        _refusals(count, {b: a for b, a in trained.items() if answers[b].how == "ran"}, " in training")
        found += judge_trained(trained, trust, open_, poles)
        if trained.get("reference", Outcome("")).how == "ran" and not open_():
            slopes = judge_slopes(self.helper.ask("slopes", model, feeds, seed))
            met = self.helper.ask("kinks", model, feeds, seed) if slopes else 0
            if isinstance(met, int) and met > 1:
                count["kinks that meet"] += 1
            else:
                found += slopes
        return found

    def _all(self, backends: Sequence[str], function: str, *arguments: Any) -> dict[str, Outcome]:
        for backend in backends:
            self.workers[backend].send(function, *arguments)
        return {backend: self.workers[backend].receive() for backend in backends}

    def close(self) -> None:
        for worker in (*self.workers.values(), self.helper, self.session):
            worker.close()


def _refusals(count: Counter[str], answers: Mapping[str, Outcome], where: str = "") -> None:
    for backend, answer in answers.items():
        count[f"{backend} {answer.how}{where}"] += 1
        if answer.how == "refused":
            count[f"refused by {backend}{where}: {answer.text[:110]}"] += 1


def coarsest(model: bytes, feeds: Arrays) -> str:
    """The least exact floating dtype of a model's values."""
    import onnx

    kinds = {value.dtype.name for value in feeds.values()}
    graph = onnx.load_model_from_string(model).graph
    kinds |= {onnx.helper.tensor_dtype_to_np_dtype(t.data_type).name for t in graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(model)).graph
    values = (*inferred.value_info, *inferred.output)
    kinds |= {onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type).name for v in values}
    return next((kind for kind in ("float16", "float32") if kind in kinds), "float64")


def run(
    question: tuple[Any, ...],
    numbers: Sequence[int],
    backends: Sequence[str],
    say: Callable[[str], None],
    reduced: bool,
) -> int:
    """Run numbers; what is found is said as it comes. Returns how many models had findings.

    ``question`` is what makes a model of a number: a function of the generator's process, and what it is told besides.
    """
    from tests.fuzz.network_reduce import describe, reduce

    bench, generator = Bench(backends), Worker()
    count: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    first: dict[str, int] = {}
    begin, bad = time.monotonic(), 0
    for number in numbers:
        case = generator.ask(*question, number)
        if isinstance(case, Outcome):
            count[f"no model: {case.text}"] += 1
            continue
        before = set(count)
        found = bench.findings(case.model, case.feeds, number, count)
        first.update(dict.fromkeys(set(count) - before, number))
        bad += bool(found)
        kinds.update({finding.kind for finding in found})
        for kind in dict.fromkeys(finding.kind for finding in found):
            text = next(finding.text for finding in found if finding.kind == kind)
            say(f"{number}: {kind}: {text}{case.words and ' after'}{case.words}")
            if reduced and kinds[kind] <= SHOWN:
                model, feeds = reduce(bench, case.model, case.feeds, number, kind)
                say(describe(model, feeds))
    for worker in (bench, generator):
        worker.close()
    for backend, worker in bench.workers.items():
        count[f"{backend} died"] += worker.deaths
    say(f"{len(numbers)} models, {time.monotonic() - begin:.0f} s")
    for words, times in sorted(count.items()):
        say(f"  {words}: {times}" + (f", first {first[words]}" if words in first else ""))
    say("findings: " + (", ".join(f"{kind}: {n}" for kind, n in kinds.most_common()) or "none"))
    return bad


SHOWN = 3
"""Reduced graphs of one kind of finding; more would say the same."""


def main() -> int:
    """Exit code 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many models (100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N", help="the first number (0)")
    parser.add_argument("--replay", type=int, metavar="N", help="this one alone")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--whole", action="store_true", help="do not reduce what is found")
    parser.add_argument("--operators", action="store_true", help="single nodes, drawn from the schemas of ONNX")
    parser.add_argument("--only", default="", metavar="NAMES", help="with --operators: these, divided by commas")
    words = parser.parse_args()
    os.environ["PYTHONHASHSEED"] = "0"  # nnsmith draws from sets of strings
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    numbers = [words.replay] if words.replay is not None else range(words.first, words.first + words.count)

    def say(text: str) -> None:
        print(text, flush=True)

    question = ("operator_case", words.only, words.seed) if words.operators else ("case", words.seed)
    return int(bool(run(question, numbers, words.backends.split(","), say, not (words.whole or words.operators))))


if __name__ == "__main__":
    sys.exit(main())
