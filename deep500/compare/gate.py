"""The equivalence gate: do these frameworks compute the same thing? Only then is it worth asking which is faster.

Requirements: same weights and same batches, by digest. Then, in double precision, where frameworks agree to 1e-14 and a
wrong definition does not (in float32 a ReLU that flips hides an error of a percent): outputs in evaluation and training
mode, running statistics, gradients, and the parameters after each of a few steps of the recipe's optimizer. Dropout is
checked by its statistics. Loss curves in the recipe's precision are reported, since they part after a few steps by
rounding alone. A backend without float64 kernels, and a network with a custom operator that takes no float64, is
compared in float32, and the result says so.

For each framework the gate stops at the first thing that differs, since all that follows from it would differ too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deep500.compare import first_difference as locate
from deep500.compare.checks import VACUOUS, Check, GateResult, largest, relative
from deep500.compare.dropout import check_dropout, dropouts, without_dropout
from deep500.compare.subject import Batch, Candidate
from deep500.compare.traces import CURVE, Arrays, Trace, cast, curve, trace
from deep500.errors import Deep500Error, InputError, UnsupportedOperator
from deep500.networks.dtype import to_dtype
from deep500.networks.network import Network
from deep500.progress import stage
from deep500.tensors import digest

JUDGE = "reference"
"""The backend that decides who is right, where it takes part; else the first does."""
SAMPLES = 16
"""Samples per batch in double precision."""
TOLERANCES = {  # what: (float64, float32, TF32); relative to the largest reference value
    "evaluation forward": (1e-10, 1e-5, 2e-2),
    "training forward": (1e-10, 1e-4, 2e-2),
    "running statistics": (1e-10, 1e-4, 2e-2),
    "gradients": (1e-9, 5e-2, 1e-1),  # float32: ReLUs that flip; a smoke test only
    "optimizer": (1e-9, 1e-2, 5e-2),
}
FIRST_LOSS = (1e-4, 2e-2)
"""Tolerances of the curves' first loss, in float32 and in TF32."""
AMPLIFIED = 1e-6
"""Tolerance of parameters without a gradient after steps: rounding, times 1/epsilon in adaptive optimizers."""
NO_DOUBLE = (UnsupportedOperator, NotImplementedError)


@dataclass
class GateCase:
    """One network in one precision: as it is, without randomness, and its batches."""

    network: Network
    plain: Network
    batches: Sequence[Batch]
    loss: str
    column: int

    def tolerance(self, name: str) -> float:
        """Return how much may differ, in this precision."""
        return TOLERANCES[name][self.column]


def check_equivalence(
    network: Network, batches: Sequence[Batch], candidates: Sequence[Candidate], loss: str = "loss"
) -> GateResult:
    """Compare frameworks on one network and the same batches.

    Args:
        network: with its loss, in float32.
        batches: as the recipe delivers them; the first few are used in double precision, 20 for the loss curves.
        candidates: at least two; ``reference`` is the judge if it is among them, else the first.
        loss: name of the scalar.

    Raises:
        InputError: fewer than two candidates, or no batch.
        UnsupportedOperator: a framework cannot run the network at all.
    """
    if len(candidates) < 2 or not batches:
        raise InputError(
            f"got {len(candidates)} frameworks and {len(batches)} batches; expected at least two and one: name more"
        )
    judge = next((candidate for candidate in candidates if candidate.name == JUDGE), candidates[0])
    result = GateResult(judge.name)
    cases = [_case(network, batches, loss, column) for column in (0, 1)]
    if refusal := _refusal(cases[0].network):
        cases = [cases[1], cases[1]]
        result.notes.append(f"compared in float32, since a custom operator takes no float64 ({refusal})")
    stage(f"{judge.name}, which judges")
    truth = trace(judge, cases[0].network, cases[0].plain, cases[0].batches, loss)
    for other in candidates:
        stage(f"checking {other.name}")
        for check in (
            _checks(judge, other, cases, truth, result) if other is not judge else _judge_checks(judge, cases, truth)
        ):
            result.checks.append(check)
            if not check.passed:
                break
    _curves(network, batches, candidates, loss, result)
    return result


def _case(network: Network, batches: Sequence[Batch], loss: str, column: int) -> GateCase:
    dtype = ("float64", "float32")[column]
    whole = any(not isinstance(value.shape[0], str) for value in network.inputs.values() if value.shape)
    copy = to_dtype(network, "float64") if column == 0 else network.copy()
    return GateCase(copy, without_dropout(copy), cast(batches[:4], dtype, None if whole else SAMPLES), loss, column)


def _refusal(network: Network) -> str:
    """Return why a custom operator rules out a network in double precision; empty if it does not."""
    try:
        network.descriptors()
    except Deep500Error as error:
        return _first_line(error)
    return ""


def _judge_checks(judge: Candidate, cases: Sequence[GateCase], truth: Trace) -> Iterator[Check]:
    """Check what the judge itself must satisfy: values that are not vacuous, and parameters that move."""
    sizes = {"evaluation forward": largest(truth.evaluation[0]), "gradients": largest(truth.gradients)}
    for name, size in sizes.items():
        where = (
            "" if size > VACUOUS else f"vacuous: the largest reference value is {size:.1e}; expected above {VACUOUS}"
        )
        yield Check(judge.name, f"size of {name}", None, None, not where, where)
    if truth.steps:
        start = {n: p.value for n, p in cases[0].plain.parameters.items()}
        moved = max(relative(truth.steps[-1][name], start[name]) for name in truth.gradients)
        where = "" if moved else "vacuous: no parameter moved"
        yield Check(judge.name, "size of steps", None, None, not where, where)
    yield from check_dropout(judge, cases[0].network)


def _checks(
    judge: Candidate, other: Candidate, cases: Sequence[GateCase], truth: Trace, result: GateResult
) -> Iterator[Check]:
    yield _weights(other, cases[1])
    case = cases[0]
    try:
        seen = trace(other, case.network, case.plain, case.batches, case.loss, truth)
    except NO_DOUBLE as error:
        case = cases[1]
        executor = other.build(case.network)
        case = replace(case, column=case.column + (executor.precision == "tf32"))
        seen = trace(other, case.network, case.plain, case.batches, case.loss, truth)
        dtype = "float32 by TF32" if executor.precision == "tf32" else "float32"
        result.notes.append(f"{other.name}: compared in {dtype}, since it has no float64 here ({_first_line(error)})")
    yield from _forward(judge, other, case, truth, seen)
    yield _per_value(other, case, "running statistics", truth.statistics, seen.statistics)
    yield _gradients(other, case, truth, seen)
    if truth.steps and seen.steps:
        yield _steps(other, case, truth, seen)
    yield from check_dropout(other, case.network)


def _weights(other: Candidate, case: GateCase) -> Check:
    state = other.build(case.network).network.state()
    want = {name: parameter.value for name, parameter in case.network.parameters.items()}
    wrong = [name for name in want if name not in state or digest({"": state[name]}) != digest({"": want[name]})]
    wrong += sorted(set(state) - set(want))
    return Check(other.name, "weights", None, None, not wrong, f"parameter {wrong[0]!r}" if wrong else "")


def _forward(judge: Candidate, other: Candidate, case: GateCase, truth: Trace, seen: Trace) -> Iterator[Check]:
    name, worst, where = "evaluation forward", 0.0, ""
    for run, (got, want) in enumerate(zip(seen.evaluation, truth.evaluation, strict=True)):
        difference = max(relative(got[value], want[value]) for value in want)
        worst = max(worst, difference)
        if difference > case.tolerance(name):
            batches = [case.batches[number] for number in (0, 1, 0)[: run + 1]]
            where = locate.evaluation(judge, other, case.network, batches, case.tolerance(name))
            where = f"{where}, in run {run + 1}" + (" (the run before agreed: a state is kept)" if run else "")
            break
    yield Check(other.name, name, worst, case.tolerance(name), not where, where)
    name = "training forward"
    worst = max(relative(seen.training[value], truth.training[value]) for value in truth.training)
    if worst > case.tolerance(name):
        where = locate.training(judge, other, case.plain, case.batches[0], case.loss, case.tolerance(name))
    yield Check(other.name, name, worst, case.tolerance(name), not where, where)


def _per_value(other: Candidate, case: GateCase, name: str, want: Arrays, got: Arrays) -> Check:
    apart = {value: relative(got[value], want[value]) for value in want}
    wrong = next((value for value in apart if apart[value] > case.tolerance(name)), None)
    where = "" if wrong is None else f"parameter {locate.reader(case.plain, wrong)[1]}"
    return Check(other.name, name, max(apart.values(), default=0.0), case.tolerance(name), wrong is None, where)


def _gradients(other: Candidate, case: GateCase, truth: Trace, seen: Trace) -> Check:
    """Relative to the largest of a parameter, and not below a millionth of the largest of all: before a batch
    normalisation the gradient of a bias is zero, and what is computed of it is rounding."""
    floor = largest(truth.gradients) * 1e-6
    missing = sorted(set(truth.gradients) ^ set(seen.gradients))
    if missing:
        return Check(other.name, "gradients", None, None, False, f"only one has that of {missing[0]!r}")
    apart = {}
    for name, want in truth.gradients.items():
        apart[name] = relative(seen.gradients[name], want, max(float(np.abs(want).max(initial=0)), floor) or None)
    limit = case.tolerance("gradients")
    wrong = [name for name in apart if apart[name] > limit]
    where = ""
    if wrong:  # backward runs from the end: the last node is where it begins to differ
        last = max(wrong, key=lambda name: locate.reader(case.plain, name)[0])
        where = (
            f"first gradient of {locate.reader(case.plain, last)[1]}, by {apart[last]:.1e}{_factor(last, truth, seen)}"
        )
    return Check(other.name, "gradients", max(apart.values(), default=0.0), limit, not wrong, where)


def _factor(name: str, truth: Trace, seen: Trace) -> str:
    """Report a gradient that is a multiple of the other: a sum instead of a mean, a sign."""
    got, want = seen.gradients[name].ravel(), truth.gradients[name].ravel()
    place = int(np.abs(want).argmax())
    factor = float(got[place] / want[place]) if want[place] else 0.0
    same = factor and relative(got, factor * want) < 1e-6
    return f" (it is {factor:.6g} times the judge's)" if same else " (it is zero)" if not got.any() else ""


def _steps(other: Candidate, case: GateCase, truth: Trace, seen: Trace) -> Check:
    name, worst = "optimizer", 0.0
    limit = case.tolerance(name)
    lenient = _amplified(truth)
    for step, (got, want) in enumerate(zip(seen.steps, truth.steps, strict=True), 1):
        apart = {value: relative(got[value], want[value]) for value in want}
        worst = max(worst, *apart.values())
        limits = {value: max(limit, AMPLIFIED if value in lenient else 0.0) for value in want}
        wrong = next((value for value in apart if apart[value] > limits[value]), None)
        if wrong is not None:
            remark = " (the step before agreed: its memory, or a state of the network)" if step > 1 else ""
            where = f"parameter {locate.reader(case.plain, wrong)[1]}, after step {step}{remark}, by {apart[wrong]:.1e}"
            return Check(other.name, name, worst, limit, False, where)
    return Check(other.name, name, worst, limit, True)


def _amplified(truth: Trace) -> set[str]:
    """Parameters whose gradient is zero up to rounding (a bias before a batch normalisation, say), which an adaptive
    optimizer divides by itself, and the running statistics that they shift."""
    floor = largest(truth.gradients) * 1e-12
    idle = {name for name, gradient in truth.gradients.items() if np.abs(gradient).max(initial=0) < floor}
    return idle | set(truth.statistics) if idle else set()


def _curves(
    network: Network, batches: Sequence[Batch], candidates: Sequence[Candidate], loss: str, result: GateResult
) -> None:
    """Loss and gradient norm over the first steps, reported; only the first loss is judged: later ones round."""
    failed = {check.framework for check in result.checks if not check.passed}
    rounded = set()
    for candidate in candidates:
        stage(f"loss curve of {candidate.name}")
        if candidate.name not in failed and candidate.optimizer is not None:
            executor = candidate.build(network)
            rounded |= {candidate.name} if executor.precision == "tf32" else set()
            result.curves[candidate.name] = curve(executor, candidate.optimizer(executor), batches[:CURVE], loss)
    want = result.curves.get(result.judge)
    for name, got in result.curves.items():
        if want is not None and name != result.judge:
            apart = [relative(np.array(g), np.array(w)) for g, w in zip(got["loss"], want["loss"], strict=True)]
            where = f"{apart[0]:.1e} at step 1, {max(apart):.1e} at most in {len(apart)} steps"
            limit = FIRST_LOSS[bool(rounded & {name, result.judge})]
            same = apart[0] <= limit or bool(dropouts(network))  # masks differ, and so do losses
            result.checks.append(Check(name, "loss curve (float32)", max(apart), None, same, where))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:160] if str(error) else type(error).__name__
