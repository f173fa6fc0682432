"""D1-D3: rules of our own: claims that can be judged, a quiet machine, learning no faster than references."""

from __future__ import annotations

from deep500.errors import ResultsError
from deep500.measure.load import disturbances
from deep500.measure.standing import OBSERVATION
from deep500.results.claims import BY
from deep500.results.quiet import load_of_run
from deep500.results.rules.claim_types import problems_of
from deep500.results.rules.view import CLAIMS, RuleFinding, RunView, failed, missing, not_applicable, passed


def d1_known_claims(run: RunView) -> RuleFinding:
    """Every claim is of a known type with known fields, and what the report shows is claimed."""
    wrong = [problem for claim in run.all_claims for problem in problems_of(claim)]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return failed(f"{wrong[0]}{more}", "write it as deep500.results.rules.claim_types has it")
    own_claims = [claim for claim in run.sound_claims if claim.get("by") == BY]
    if run.is_finished and run.series and not own_claims:
        return missing("what the report shows is not claimed", f"keep {CLAIMS} as the run wrote it")
    if not run.all_claims and not run.is_finished:
        return not_applicable("nothing is claimed")
    return passed(f"{len(run.all_claims)} claims can be judged")


def d2_quiet_or_observed(run: RunView) -> RuleFinding:
    """Times are results only if other processes, quotas, heat and swapping left the machine to the run."""
    if not run.is_of_recipe or not run.curve:
        return not_applicable("no training was timed")
    load = load_of_run(run.curve, run.manifest)
    if load is None or load["seconds"] <= 0:
        return missing("how busy the machine was is not recorded", "record it: run the recipe with this version")
    disturbing = disturbances(load)
    if disturbing is None:
        return not_applicable(f"{load['seconds']:.2g} s are too short to tell how busy the machine was")
    if not disturbing:
        known = load["busy"] is not None
        return passed("the machine was quiet" if known else "not measured: the kernel does not tell how busy it was")
    causes = "; ".join(disturbing)
    fix = "run it again on a quiet machine, see deep500 tools env --check; until then call its times observations"
    called = [
        f"{name} q{estimate['q']:g}"
        for name, stat in run.series.items()
        for estimate in stat["estimates"]
        if estimate.get("standing") != OBSERVATION
    ]
    if called:
        return failed(f"the machine was busy ({causes}), and results are claimed: {', '.join(called[:4])}", fix)
    return passed(f"the machine was busy ({causes}), and times are called observations")


def d3_no_faster_than_references(run: RunView) -> RuleFinding:
    """A run needs no fewer samples to its target than the references that its recipe carries."""
    carried = ((run.manifest.get("resolved") or {}).get("recipe") or {}).get("references")
    if not carried:
        return not_applicable("its recipe carries no references")
    from deep500.results.convergence import FASTER, by_recipe

    try:
        result = by_recipe(carried, run.manifest, run.curve, run.is_finished)
    except ResultsError as error:
        return not_applicable(str(error))
    return failed(f"{result}", "look at data, model, evaluation") if result.verdict == FASTER else passed(f"{result}")
