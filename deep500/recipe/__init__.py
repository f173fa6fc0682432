"""Recipes: fixed definitions + mutable definitions + acceptable metrics = one benchmark run."""

import lazy_loader as _lazy_loader

__getattr__, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)  # "deep500 --help" needs no run's modules
