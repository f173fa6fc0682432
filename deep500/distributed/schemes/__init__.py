"""How ranks train together: one class per communication scheme, ``d5.schemes`` for users."""

from typing import Any


def __getattr__(name: str) -> Any:
    from deep500 import distributed

    if name.startswith("_") or name not in vars(distributed):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return vars(distributed)[name]
