"""Tasks: what a batch, a loss and a quality are. `Task` is the seam, each file beside it an instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deep500.faces import NamedParts, load_when_used

if TYPE_CHECKING:
    from deep500.tasks.alphabet import Alphabet as Alphabet
    from deep500.tasks.classification import Classification as Classification
    from deep500.tasks.control import DeepQLearning as DeepQLearning
    from deep500.tasks.control import ProximalPolicyOptimization as ProximalPolicyOptimization
    from deep500.tasks.detection import Detection as Detection
    from deep500.tasks.language_modelling import LanguageModelling as LanguageModelling
    from deep500.tasks.regression import Regression as Regression
    from deep500.tasks.task import Quality as Quality
    from deep500.tasks.task import Task as Task
    from deep500.tasks.transcription import Transcription as Transcription
    from deep500.tasks.transduction import Transduction as Transduction

_HERE = "deep500.tasks"
TASKS: Mapping[str, type[Task]] = NamedParts(
    {
        "classification": f"{_HERE}.classification:Classification",
        "dqn": f"{_HERE}.control:DeepQLearning",
        "ppo": f"{_HERE}.control:ProximalPolicyOptimization",
        "detection": f"{_HERE}.detection:Detection",
        "language_modelling": f"{_HERE}.language_modelling:LanguageModelling",
        "regression": f"{_HERE}.regression:Regression",
        "transcription": f"{_HERE}.transcription:Transcription",
        "transduction": f"{_HERE}.transduction:Transduction",
    }
)
"""Built-in tasks by name, each loaded when it is looked up."""

__all__ = ["TASKS"]

load_when_used(__name__)
