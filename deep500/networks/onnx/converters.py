"""The common part of importers that need another package to write ONNX: finding it, its errors, its log."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType

from deep500.errors import InputError, MissingBackend, NetworkError


def converter(package: str, models: str, extra: str, otherwise: str) -> ModuleType:
    """The package that converts.

    Args:
        package: its name.
        models: what it converts, for the error.
        extra: of Deep500, that installs it.
        otherwise: what to do without it.

    Raises:
        MissingBackend: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingBackend(
            f"got a model of {models} but no package {package!r}; expected it installed: pip install "
            f"'deep500[{extra}]', or {otherwise}"
        ) from error


@contextlib.contextmanager
def converting(where: str, expected: str, otherwise: str) -> Iterator[None]:
    """Turn what a framework or converter raises into a NetworkError.

    Args:
        where: how the error calls the model.
        expected: of the example inputs, such as "a function that runs".
        otherwise: what to do where that cannot be had.
    """
    try:
        yield
    except (InputError, NetworkError, MissingBackend):
        raise
    except Exception as error:
        line = next(iter(str(error).splitlines()), "")[:300]
        raise NetworkError(
            f"{where}: got {type(error).__name__} ({line}); expected {expected} for the example inputs: correct these "
            f"or the {expected.split()[1]}, or {otherwise}"
        ) from error


@contextlib.contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Silence warnings and the loggers of these packages: converters report their progress there."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def unchanged(*packages: str) -> Iterator[None]:
    """Put public functions and classes of these packages back at the end: some converters leave theirs in their place.

    jax2onnx replaces ``jax.numpy.cumsum`` for the rest of the process by a function that takes fewer arguments.
    """
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in packages and not any(part.startswith("_") for part in name.split("."))
    ]
    before = [(module, dict(vars(module))) for module in modules]
    try:
        yield
    finally:
        for module, values in before:
            for name, value in values.items():
                if callable(value) and vars(module).get(name) is not value:
                    setattr(module, name, value)
