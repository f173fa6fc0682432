"""The same machine twice is the same fingerprint; a change of one thread is another, and the difference names it."""

from __future__ import annotations

import json

import pytest

from deep500.measure.fingerprint import count_fields, differences, fingerprint, full_environment


@pytest.fixture(scope="module")
def environment():
    return full_environment()


def test_there_are_sixty_facts(environment):
    assert count_fields(environment) >= 60
    json.dumps(environment)


def test_the_same_machine_twice(environment):
    again = full_environment()
    assert differences(environment, again) == {} and fingerprint(environment) == fingerprint(again)
    assert environment["volatile"]["uptime_s"] <= again["volatile"]["uptime_s"]


@pytest.mark.parametrize(
    ("path", "value"),
    [(("threads", "torch"), 77), (("variables", "OMP_NUM_THREADS"), "77"), (("process", "packages"), {"numpy": "0"})],
)
def test_a_change_is_named(environment, path, value):
    changed = json.loads(json.dumps(environment))
    changed[path[0]][path[1]] = value
    assert fingerprint(changed) != fingerprint(environment)
    assert any(name.startswith(".".join(path)) for name in differences(environment, changed))


def test_a_variable_of_this_process_counts(environment, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--made_up")
    assert differences(environment, full_environment())["variables.XLA_FLAGS"][1] == "--made_up"
