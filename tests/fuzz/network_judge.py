"""Which differences between runs of a model are findings: what neither disturbed runs nor ONNX's open ends explain.

A result is trusted as far as it moves when every value of the network is disturbed by as much as its dtype rounds:
cancellation, ties, steps and kinks explain themselves that way, and only where they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tests.fuzz.network_bare import Arrays, Outcome

ROUNDING = {"float16": 2.0**-10, "float32": 2.0**-22, "float64": 2.0**-48}
"""How much every value is disturbed, relative; exponential functions and sums round more than once."""
SLACK = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-10}
"""Differences, as a share of the largest number of an output, for which nothing is disturbed."""
BARE = {"float64": 1e-6}
"""ONNX Runtime's kernels of Erf and Resize compute float64 no better."""
FLOOR = 1e-10
"""Rest of numbers of the order of one that cancel."""
GRADIENT = 1e-8
"""The bar for gradients, as a share of the largest."""
TIMES = 20.0
"""A result may be as many times as far away as it moved in the disturbed runs."""


LOSS = "loss of outputs"
"""Name of what training runs add: the sum of all outputs, each element with a weight."""


class Finding(NamedTuple):
    """Something unexplained: ``kind`` is what stays the same while the model is reduced."""

    kind: str
    text: str


Trust = Callable[[float, bool], Outcome]
Excused = Callable[[], Mapping[str, str]]


def differs(got: np.ndarray, want: np.ndarray, moved: np.ndarray | None, slack: float) -> str:
    """Where and by how much two results differ more than is explained; empty where they do not."""
    if got.shape != want.shape:
        return f"shape {got.shape} for {want.shape}"
    if not got.size:
        return ""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        distance = np.where(np.isnan(distance), np.inf, distance)
        limit = slack * scale + FLOOR * (slack > 0) if got.dtype.kind == "f" else 0.0
        over = distance > limit + (0.0 if moved is None else np.minimum(TIMES * moved, np.inf))
    if moved is not None:
        over &= ~np.isinf(moved) & ~(np.isinf(a) & (TIMES * moved >= np.abs(b)))
    if not over.any():
        return ""
    worst = np.unravel_index(np.argmax(np.where(over, distance, -1)), got.shape)
    return f"{over.sum()} of {got.size} elements, worst at {tuple(map(int, worst))}: {got[worst]} for {want[worst]}"


def _slack(value: np.ndarray, coarsest: str) -> float:
    return SLACK[coarsest] if value.dtype.kind == "f" else 0.0


def judge_plain(
    session: Outcome, answers: Mapping[str, Outcome], coarsest: str, trust: Trust, excused: Excused
) -> list[Finding]:
    """Findings of the runs in the model's own dtypes.

    Args:
        session: the bare session's.
        answers: by backend.
        coarsest: of the floating dtypes of the model.
        trust: (noise, training) -> the reference in float64, disturbed.
        excused: outputs that depend on what ONNX leaves open.
    """
    findings = _raw(answers, "raw error")
    ran = {backend: answer for backend, answer in answers.items() if answer.how == "ran"}
    names = sorted({name for answer in ran.values() for name in answer.outputs})
    base = session.outputs if session.how == "ran" else next(iter(ran.values())).outputs if ran else {}
    slacks = {name: _slack(base[name], coarsest) for name in names}
    doubted = [n for n in names if any(differs(a.outputs[n], base[n], None, slacks[n]) for a in ran.values())]
    for backend, name in itertools.product(ran if session.how == "ran" else (), names):
        got, want = ran[backend].outputs[name].dtype, base[name].dtype
        if got != want:
            findings.append(Finding(f"dtype:{backend}", f"{name}: {got} for {want}"))
    if not doubted:
        return findings
    open_ = excused()
    known, coarse = trust(ROUNDING[coarsest], False), None
    for name in doubted:
        if name in open_ or known.how != "ran":
            continue
        truth, moved = known.outputs[name]
        wrong = {b: differs(a.outputs[name], truth, moved, slacks[name]) for b, a in ran.items()}
        if session.how == "ran":
            wrong["bare session"] = differs(base[name], truth, moved, BARE.get(coarsest, slacks[name]))
            if wrong["bare session"] and coarsest in BARE:  # less exact, and what follows amplifies it
                truth, moved = (coarse := coarse or trust(BARE[coarsest], False)).outputs[name]
                wrong["bare session"] = differs(base[name], truth, moved, BARE[coarsest])
        wrong = {backend: text for backend, text in wrong.items() if text}
        if set(wrong) == {"bare session"} and session.text:  # ONNX's reference: it has faults of its own
            continue
        if wrong:
            findings.append(Finding(f"forward:{','.join(wrong)}", f"{name}: {wrong}"))
    return findings


def judge_trained(
    answers: Mapping[str, Outcome], trust: Trust, excused: Excused, poles: Callable[[], bool]
) -> list[Finding]:
    """Findings of the training runs in float64: outputs and gradients of backends against the reference's.

    Args:
        answers, trust, excused: as for :func:`judge_plain`.
        poles: says whether a slope is infinite, or no number.
    """
    findings = _raw(answers, "raw error in training")
    ran = {backend: answer for backend, answer in answers.items() if answer.how == "ran"}
    if "reference" not in ran:
        return findings
    base = ran["reference"]
    parts: dict[str, tuple[Callable[[Outcome], Arrays], float]] = {
        "training forward": (lambda outcome: outcome.outputs, 1e-9),
        "gradient": (lambda outcome: outcome.gradients, GRADIENT),
    }
    known: Outcome | None = None
    for part, (read, slack) in parts.items():
        for name, want in read(base).items():
            odd = [b for b, a in ran.items() if differs(read(a)[name], want, None, slack)]
            if not odd or (excused() and (part == "gradient" or name in {*excused(), LOSS})):
                continue
            known = known or trust(ROUNDING["float64"], True)
            truth, moved = read(known)[name] if known.how == "ran" else (want, None)
            wrong = {b: differs(_at_poles(read(ran[b])[name], truth, part, poles), truth, moved, slack) for b in odd}
            wrong = {backend: text for backend, text in wrong.items() if text}
            if wrong:
                findings.append(Finding(f"{part}:{','.join(wrong)}", f"{name}: {wrong}"))
    return findings


def _at_poles(got: np.ndarray, want: np.ndarray, part: str, poles: Callable[[], bool]) -> np.ndarray:
    """Where a slope is infinite or no number, 0 times it is 0 or NaN, as frameworks like it: then as wanted."""
    if part != "gradient" or got.shape != want.shape or np.isfinite([got, want]).all() or not poles():
        return got
    return np.where(np.isfinite(got) & np.isfinite(want), got, want)


def judge_slopes(slopes: Outcome) -> list[Finding]:
    """A finding where central differences agree with each other and not with the gradient."""
    if slopes.how == "raw":
        return [Finding("raw error in training:reference", slopes.text)]
    findings = []
    for direction, ((gradient, *differences), (_, *errors), (_, *bends)) in slopes.outputs.items():
        values = np.array(differences)
        if not np.isfinite([gradient, *differences]).all():
            continue
        gap = np.abs(values - gradient)
        if (gap <= 1e-5 * np.maximum(np.abs(values), abs(gradient)) + 10 * np.array(errors)).any():
            continue
        among = np.abs(np.diff(values[1:])) - 10 * np.array(errors[2:])
        if (among > 0.05 * gap[1:-1]).any():
            continue  # a kink, a step or a pole lies within the steps
        if (gap <= 0.51 * np.array(bends) + 10 * np.array(errors)).all():
            continue  # the point itself is a kink, and the gradient lies between the slopes of its sides
        findings.append(
            Finding("differences", f"{direction}: the reference's gradient says {gradient}, differences {differences}")
        )
    return findings


def _raw(answers: Mapping[str, Outcome], where: str) -> list[Finding]:
    return [Finding(f"{where}:{b}:{a.text.partition(':')[0]}", a.text) for b, a in answers.items() if a.how == "raw"]
