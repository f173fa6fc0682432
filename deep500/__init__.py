"""Deep500: a deep learning meta-framework. ``import deep500 as d5`` gives the public names."""

from pathlib import Path as _Path

if not (_Path(__file__).parent / "frameworks").is_dir():  # a checkout without symlinks, as on Windows
    __path__.append(str(_Path(__file__).parent.parent))

__version__ = "1.0.0.dev0"
