"""Races of training algorithms over several tasks, and sweeps of one recipe: who is faster, and how sure is that?"""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.race.judging import detectable as detectable
    from deep500.race.judging import judge as judge
    from deep500.race.running import Race as Race
    from deep500.race.running import RaceOptions as RaceOptions
    from deep500.race.scores import StudyTable as StudyTable
    from deep500.race.scores import TrialTime as TrialTime
    from deep500.race.scores import fastest as fastest
    from deep500.race.submissions import Submission as Submission
    from deep500.race.submissions import choices as choices
    from deep500.race.submissions import loguniform as loguniform
    from deep500.race.submissions import uniform as uniform
    from deep500.race.workloads import Workload as Workload

load_when_used(__name__)
