"""One module per family of data sets: its facts, its formats. A new module here is found by itself."""

from deep500.registry import import_modules

import_modules(__name__)
