"""A metric of one's own is one class, in one file; the project's own are asked here for what belongs to each."""

from __future__ import annotations

import html
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import deep500 as d5
from deep500 import metrics
from deep500.metrics import Metric
from tests.recipes.common import quick

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"


class GeneralisationGap(Metric):
    """Training accuracy less test accuracy after the final epoch: how much was learnt by heart."""

    name, unit, direction, kind = "generalisation_gap", "%", "lower", "quality"

    def measure(self, statistics: Any) -> float | None:
        """The difference; None without both accuracies."""
        final = statistics.epochs[-1] if statistics.epochs else None
        if final is None or final.train_accuracy is None or final.test_accuracy is None:
            self.reason = "an epoch with training and test accuracy is needed"
            return None
        self.details = {"train": final.train_accuracy, "test": final.test_accuracy}
        return final.train_accuracy - final.test_accuracy


def test_a_recipe_judges_by_it(tmp_path):
    fixed, mutable, _ = quick("reference")
    words = ["--quiet", "--out", str(tmp_path)]
    result = d5.run_recipe(fixed, mutable, [(GeneralisationGap(), 100.0)], words)
    gap = result["generalisation_gap"]
    assert result and gap.value == gap.details[0]["train"] - gap.details[0]["test"]
    page = html.unescape(re.sub(r"<[^>]+>", " ", Path(result.report).read_text(encoding="utf-8")))
    assert re.search(r"generalisation_gap\s+\S+ %", page)
    assert not d5.run_recipe(fixed, mutable, [(GeneralisationGap(), -100.0)], words)


def own_metrics() -> dict[str, type[Metric]]:
    """Every public metric in the package's modules, by name, without the abstract bases."""
    classes: dict[str, type[Metric]] = {}
    for module in pkgutil.iter_modules(metrics.__path__):
        for name, value in vars(importlib.import_module(f"deep500.metrics.{module.name}")).items():
            if inspect.isclass(value) and issubclass(value, Metric) and not name.startswith("_"):
                classes[value.__name__] = value
    return {name: value for name, value in classes.items() if not inspect.isabstract(value)}


@pytest.mark.parametrize("name", own_metrics())
def test_every_metric_is_exported_and_listed(name):
    metric = own_metrics()[name]
    line = f"from {metric.__module__} import {name} as {name}"
    assert getattr(metrics, name, None) is metric, f"deep500/metrics/__init__.py lacks: {line}"
    assert f"`{name}`" in metrics.__doc__, f"the docstring of deep500/metrics/__init__.py lacks `{name}`"
    unit, summary = getattr(metric, "unit", ""), inspect.getdoc(metric).partition("\n")[0]
    assert re.search(
        rf"^\|[^|]*`{name}\([^|]*\|[^|]*\| {metric.direction} \|", PAGE.read_text("utf-8"), re.MULTILINE
    ), f"docs/metrics.md lacks the row: | `{name}()` | {unit} | {metric.direction} | {summary} | |"
