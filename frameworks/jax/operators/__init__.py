"""All operators of the backend: importing the families fills the table :data:`OPS`."""

from deep500.frameworks.jax.operators.table import OPS as OPS
from deep500.frameworks.jax.operators.table import op as op
from deep500.registry import import_modules

import_modules(__name__)
