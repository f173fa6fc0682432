"""Sections of a chain chosen together: the best of all covers, never worse than one means alone, with a bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.errors import BudgetError, PlanError
from deep500.transformations.recomputation.chain import Mode, Stage, optimal_chain, simulate_chain
from deep500.transformations.recomputation.joint import ChainSection, choose_sections, peak_of, sections_of

SIZES = st.integers(0, 20)
STAGES = st.builds(
    lambda output, extra, f, b, over, back: Stage("s", output, (Mode(f, b, output + extra, over, back),), f, over),
    *(SIZES, SIZES, st.integers(1, 9), st.integers(1, 9), st.integers(0, 4), st.integers(0, 4)),
)


def covers(sections, count, first=0):
    """Every way to cover a chain."""
    if first == count:
        yield ()
    for section in sections:
        if section.first == first:
            yield from ((section, *rest) for rest in covers(sections, count, section.last + 1))


@st.composite
def random_sections(draw):
    count = draw(st.integers(1, 4))
    spans = [(s, s) for s in range(count)] + draw(
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).map(sorted).map(tuple), max_size=8)
    )
    sections = [
        ChainSection(*span, 1, (), draw(st.integers(1, 30)), draw(SIZES), draw(SIZES), draw(SIZES)) for span in spans
    ]
    return count, sections, draw(st.integers(1, 60))


@settings(max_examples=100, deadline=None)
@given(case=random_sections())
def test_the_choice_is_the_best_of_all_covers(case):
    count, sections, budget = case
    every = list(covers(sections, count))
    times = [sum(section.time for section in cover) for cover in every if peak_of(cover) <= budget]
    if times:
        choice = choose_sections(sections, budget)
        assert choice.time == min(times) and choice.peak <= budget + 1e-6
        assert choice.bound == pytest.approx(choice.time, rel=1e-6)
    else:
        with pytest.raises(BudgetError) as caught:
            choose_sections(sections, budget)
        assert caught.value.smallest == min(peak_of(cover) for cover in every)


@settings(max_examples=50, deadline=None)
@given(chain=st.lists(STAGES, min_size=2, max_size=7), share=st.floats(0.3, 1.0), price=st.floats(1.0, 1.3))
def test_together_is_never_worse_than_either_alone(chain, share, price):
    full = simulate_chain(chain, tuple(optimal_chain(chain, 1.0).plan)).peak
    budget = max(int(share * full), 1)
    sections = sections_of(chain, [True] * len(chain), {2: price, 4: price**2}, budget)
    pieces_alone = [s.time for s in sections if (s.first, s.last) == (0, len(chain) - 1) and peak_of([s]) <= budget]
    try:
        choice = choose_sections(sections, budget)
    except BudgetError:
        assert not pieces_alone
        return
    assert choice.time <= choice.bound * (1 + 1e-6) + 1e-9
    assert all(choice.time <= time * (1 + 1e-9) for time in pieces_alone)
    plan = tuple(element for section in choice.sections for element in section.plan)
    if all(section.pieces == 1 for section in choice.sections):
        assert simulate_chain(chain, plan).peak <= budget + 1e-6
        assert simulate_chain(chain, plan).time == pytest.approx(choice.time)
    try:
        alone = optimal_chain(chain, budget, slots=120)
    except BudgetError:
        return
    if alone.method == "optimal":
        assert choice.time <= alone.outcome.time + 1e-9


def test_sections_that_leave_a_stage_out_are_refused():
    with pytest.raises(PlanError, match="do not cover 2 stages"):
        choose_sections([ChainSection(1, 1, 1, (), 1.0, 1, 1, 1)], 10)
