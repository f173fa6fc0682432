"""Comparison of frameworks: the equivalence gate first, then timing in turns, then words with evidence."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.compare.checks import Check as Check
    from deep500.compare.checks import GateResult as GateResult
    from deep500.compare.frameworks import compare_frameworks as compare_frameworks
    from deep500.compare.gate import check_equivalence as check_equivalence
    from deep500.compare.models import compare_models as compare_models
    from deep500.compare.operators import compare_operator as compare_operator
    from deep500.compare.result import ComparisonResult as ComparisonResult
    from deep500.compare.subject import Candidate as Candidate

load_when_used(__name__)
