"""Functions of one object of options: users see keywords, in the signature, the docstring and what is refused."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import KW_ONLY, dataclass

import pytest

import deep500 as d5
from deep500.keywords import takes


@dataclass(frozen=True)
class Options:
    """The options.

    Args:
        first: a number.
        second: another,
            on two lines.

    More words.
    """

    first: int
    _: KW_ONLY
    second: int = 2


@takes(Options)
def total(options: Options) -> int:
    """Add.

    More of this.

    Returns:
        the sum.
    """
    return options.first + options.second


def test_keywords_become_the_object() -> None:
    assert (total(1), total(1, second=5), total(first=3)) == (3, 6, 5)
    assert str(inspect.signature(total)) == "(first: 'int', *, second: 'int' = 2) -> 'int'"
    assert pickle.loads(pickle.dumps(total)) is total
    for call in (total, lambda: total(1, 2), lambda: total(1, third=3)):  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            call()


def test_help_describes_the_options() -> None:
    arguments = "Args:\n    first: a number.\n    second: another,\n        on two lines."
    assert inspect.getdoc(total) == f"Add.\n\nMore of this.\n\n{arguments}\n\nReturns:\n    the sum."
    for function in (d5.compile_custom_cppop, d5.compare_frameworks, d5.compare_models, d5.optimize_network):
        described = inspect.getdoc(function) or ""
        for name in inspect.signature(function).parameters:
            assert f"{name}:" in described or f"{name}, " in described or f"; {name}:" in described, (function, name)
