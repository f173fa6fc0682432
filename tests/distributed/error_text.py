"""The error that a call raises, as text: ranks cannot hand exceptions to the test that started them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deep500.errors import Deep500Error


def error_text(call: Callable[[], Any]) -> str:
    """Return an error's kind and text; ``nothing`` if there is none."""
    try:
        call()
    except Deep500Error as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
