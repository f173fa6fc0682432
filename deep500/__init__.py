"""Deep500: a deep learning meta-framework. ``import deep500 as d5`` shows the names that ``__init__.pyi`` lists, each
loaded when it is first used; no framework is imported."""

from pathlib import Path as _Path

from deep500.faces import load_when_used as _load_when_used

if not (_Path(__file__).parent / "frameworks").is_dir():  # a checkout without symlinks, as on Windows
    __path__.append(str(_Path(__file__).parent.parent))

__version__ = "1.0.0.dev0"

_load_when_used(__name__)
