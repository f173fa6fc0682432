"""Tasks: what a batch, a loss and a quality are. `Task` is the seam, each file beside it an instance."""

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

TASKS: dict[str, type[Task]] = {
    value.name: value
    for value in dict(globals()).values()
    if isinstance(value, type) and issubclass(value, Task) and value is not Task
}
"""Built-in tasks by name: every one that is imported above."""
