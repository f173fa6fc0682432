"""The record of the environment: JSON, complete, and None where nothing is known."""

from __future__ import annotations

import json
import platform
import subprocess

import numpy as np

from deep500.measure import environment


def test_describe_is_json_and_true():
    facts = environment.describe()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["python"] == platform.python_version() and facts["versions"]["numpy"] == np.__version__
    assert facts["cores"] >= 1 and facts["memory_bytes"] > 2**20
    assert set(facts["versions"]) == set(environment.PACKAGES)


def test_unknown_is_none(tmp_path, monkeypatch):
    assert environment.git_state(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))  # no git
    assert environment.git_state() is None


def test_git_state_sees_changes(tmp_path):
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "feat: begin"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    clean = environment.git_state(tmp_path)
    assert clean is not None and len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "new").write_text("x")
    assert environment.git_state(tmp_path) == {"commit": clean["commit"], "dirty": True}


def test_variables_are_recorded(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    variables = environment.describe()["variables"]
    assert variables["OMP_NUM_THREADS"] == "3" and variables["XLA_FLAGS"] is None
