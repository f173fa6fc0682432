"""The examples in the docstrings of metrics and of what they measure with."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import deep500.measure
import deep500.metrics

MODULES = [
    one.name
    for package in (deep500.metrics, deep500.measure)
    for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
] + ["deep500.networks.flops"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name):
    failed, _ = doctest.testmod(importlib.import_module(name), extraglobs={"np": np})
    assert not failed


def test_there_are_examples():
    found = [doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)) for name in MODULES]
    assert sum(bool(one.examples) for tests in found for one in tests) > 20
