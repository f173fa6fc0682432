"""Kernels by family; importing this package fills :data:`OPS`."""

from deep500.frameworks.reference.operators.table import OPS as OPS
from deep500.frameworks.reference.operators.table import Random as Random
from deep500.frameworks.reference.operators.table import bind as bind
from deep500.frameworks.reference.operators.table import find as find
from deep500.frameworks.reference.operators.table import op as op
from deep500.registry import import_modules

import_modules(__name__)
