"""The files that a run leaves behind: the results folder, checkpoints and verdicts."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.results.record import Record as Record
    from deep500.results.verdict import FAILED as FAILED
    from deep500.results.verdict import PASSED as PASSED
    from deep500.results.verdict import UNJUDGED as UNJUDGED
    from deep500.results.verdict import Circumstances as Circumstances
    from deep500.results.verdict import MetricResult as MetricResult
    from deep500.results.verdict import RecipeResult as RecipeResult
    from deep500.results.verdict import SeedNotes as SeedNotes
    from deep500.results.verdict import judge as judge
    from deep500.results.verdict import overall as overall

load_when_used(__name__)
