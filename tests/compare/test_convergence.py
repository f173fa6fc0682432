"""The command that holds a run against reference runs: interpolated samples, a verdict, an exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from deep500 import cli
from deep500.results.convergence import AS_FAST, FASTER, compare_convergence
from tests.results.test_convergence import run


def test_folders_are_compared_by_interpolated_samples(tmp_path, capsys):
    slow = run(tmp_path / "a", 32, [3000, 3100, 3200, 3150]), run(tmp_path / "b", 64, [3600, 3500, 3550])
    fast, alike = run(tmp_path / "c", 48, [1500, 1550, 1600]), run(tmp_path / "d", 48, [3300, 3250, 3400])
    found = compare_convergence(fast, slow)
    assert found.verdict == FASTER and found.batch_sizes == (48, (32, 64)) and found.seeds == (3, (4, 3))
    geometric = stats.gmean([1500, 1550, 1600]) / np.sqrt(
        stats.gmean([3000, 3100, 3200, 3150]) * stats.gmean([3600, 3500, 3550])
    )
    assert found.ratio == pytest.approx(geometric)
    assert compare_convergence(alike, slow).verdict == AS_FAST
    words = ["--references", *map(str, slow)]
    assert cli.main(["publish", "check", str(fast), *words]) == 1 and "something differs" in capsys.readouterr().out
    assert cli.main(["publish", "check", str(alike), *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == AS_FAST
