"""All operators of the backend: importing the families fills the table :data:`OPS`."""

from deep500.frameworks.tensorflow.operators import attention as attention
from deep500.frameworks.tensorflow.operators import control as control
from deep500.frameworks.tensorflow.operators import elementwise as elementwise
from deep500.frameworks.tensorflow.operators import imaging as imaging
from deep500.frameworks.tensorflow.operators import movement as movement
from deep500.frameworks.tensorflow.operators import normalization as normalization
from deep500.frameworks.tensorflow.operators import quantization as quantization
from deep500.frameworks.tensorflow.operators import random as random
from deep500.frameworks.tensorflow.operators import recurrent as recurrent
from deep500.frameworks.tensorflow.operators import reductions as reductions
from deep500.frameworks.tensorflow.operators import sequences as sequences
from deep500.frameworks.tensorflow.operators import signals as signals
from deep500.frameworks.tensorflow.operators import strings as strings
from deep500.frameworks.tensorflow.operators import windows as windows
from deep500.frameworks.tensorflow.operators.table import OPS as OPS
from deep500.frameworks.tensorflow.operators.table import NeedsValue as NeedsValue
from deep500.frameworks.tensorflow.operators.table import op as op
