"""Variants of workloads that nobody tuned for: another width, split or augmentation, drawn when tuning has ended.

Every study takes the settings of its fastest trial to each variant, once. A study that missed its target has none to
take, and misses there too. Variants follow from the race's seed and from what its workloads and submissions are, so
that who changes a submission draws anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deep500.errors import RecipeError
from deep500.race.course import Heat
from deep500.race.scores import StudyTable, TrialTime, scores
from deep500.race.submissions import Submission
from deep500.race.sweeping import axis_of
from deep500.race.workloads import Workload
from deep500.results.files import to_json
from deep500.results.record import full_hash


@dataclass(frozen=True)
class HeldOutVariant:
    """A workload that differs by one word from one of the race.

    Attributes:
        base: name of the workload that was tuned on.
        word: ``key=value``, which it has instead or in addition.
        workload: with its own name, target and budget of the base.
    """

    base: str
    word: str
    workload: Workload


def variants_of(workload: Workload) -> list[HeldOutVariant]:
    """Return all variants of a workload, in the order of its words.

    Raises:
        RecipeError: a range instead of values.

    Example:
        >>> job = Workload("digits_lenet", 90, 1, 10, 1, ("batch_size=64",), variants=("batch_size=32,16", "epochs=3"))
        >>> [(one.workload.title, one.workload.words) for one in variants_of(job)]
        [('digits_lenet+1', ('batch_size=32',)), ('digits_lenet+2', ('batch_size=16',)), \
('digits_lenet+3', ('batch_size=64', 'epochs=3'))]
    """
    axes = [axis_of(text) for text in workload.variants]
    bare = next((axis.key for axis in axes if not axis.values), None)
    if bare is not None:
        raise RecipeError(f"workload {workload.title!r}: got a range of {bare} in variants; expected values: add :3")
    variants = []
    for number, (key, value) in enumerate(((axis.key, value) for axis in axes for value in axis.values), 1):
        others = [word for word in workload.words if word.partition("=")[0] != key]
        words = *others, f"{key}={value}"
        variant = replace(workload, words=words, name=f"{workload.title}+{number}", variants=())
        variants.append(HeldOutVariant(workload.title, words[-1], variant))
    return variants


def draw_variants(
    workloads: Sequence[Workload], submissions: Sequence[Submission], count: int, seed: int
) -> list[HeldOutVariant]:
    """Draw variants without repetition, of each workload in turn.

    Args:
        workloads: of the race.
        submissions: of the race; others draw others.
        count: how many.
        seed: of the race.

    Raises:
        RecipeError: there are fewer.
    """
    every = [variants_of(workload) for workload in workloads]
    most = sum(map(len, every))
    if count > most:
        raise RecipeError(
            f"got --held-out {count}; expected at most {most}, the variants that the suite has: draw fewer"
        )
    facts = [[entry.facts() for entry in entries] for entries in (workloads, submissions)]
    rng = np.random.default_rng([seed, int(full_hash(json.loads(to_json(facts)))[:16], 16)])
    shuffled = [[variants[place] for place in rng.permutation(len(variants))] for variants in every]
    order = rng.permutation(len(shuffled))
    rounds = (shuffled[place][turn : turn + 1] for turn in range(most) for place in order)
    return [variant for drawn in rounds for variant in drawn][:count]


def held_out_course(
    variants: Sequence[HeldOutVariant],
    submissions: Sequence[Submission],
    tuned: Iterable[TrialTime],
    studies: int,
    seed: int,
) -> list[Heat]:
    """Return the trials on variants, in random order as :func:`~deep500.race.course.course` has it.

    Args:
        variants: that were drawn.
        submissions: of the race.
        tuned: outcomes of all trials on its workloads; the first of a study's fastest ones lends its settings.
        studies: of the race.
        seed: of the order.
    """
    best: dict[tuple[str, str, int], TrialTime] = {}
    for trial in sorted(tuned, key=lambda trial: (trial.seconds, trial.trial)):
        if np.isfinite(trial.seconds):
            best.setdefault((trial.submission, trial.workload, trial.study), trial)
    rng, order = np.random.default_rng([seed, 1]), list[Heat]()
    groups = [(variant, study) for variant in variants for study in range(studies)]
    for place in rng.permutation(len(groups)):
        variant, study = groups[place]
        for number in rng.permutation(len(submissions)):
            lent = best.get((submissions[number].name, variant.base, study))
            if lent is not None:
                order.append(Heat(lent.submission, variant.workload.title, study, lent.trial))
    return order


def does_it_hold(tuned: Mapping[str, float], there: StudyTable) -> str:
    """Say whether the first in the score of the tuned workloads is the first on the variants.

    Example:
        >>> there = StudyTable(("a", "b"), ("w+1",), np.array([[[1.0]], [[2.0]]]))
        >>> does_it_hold({"a": 0.9, "b": 0.8}, there)
        'a, first in the score of the tuned workloads, is first on the variants as well: 1.000, the next one 0.667.'
    """
    values = scores(there)
    first = max(tuned, key=lambda name: tuned[name])
    others = [value for name, value in values.items() if name != first]
    if not tuned[first] or not max(values.values()):
        where = "on the variants" if tuned[first] else "in the score of the tuned workloads"
        return f"No submission is first {where}: none reached a target in the median of its studies."
    begin, mine, best = f"{first}, first in the score of the tuned workloads,", values[first], max(others)
    if mine > best:
        return f"{begin} is first on the variants as well: {mine:.3f}, the next one {best:.3f}."
    if mine == best:
        return f"{begin} shares the first place on the variants: {mine:.3f}."
    rival = max(values, key=lambda name: values[name])
    return f"{begin} is not first on the variants: {mine:.3f}, {rival} {best:.3f}."
