"""Events: who listens is called, in order; nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from deep500.events import HOOKS, REGIONS, SILENT, Event, Events


class Recorder(Event):
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def after_batch(self, run: Any) -> None:
        self.log.append(run)


def test_only_overridden_hooks_are_called_in_order() -> None:
    log: list[Any] = []
    first, second = Recorder(log), Recorder(log)
    second.after_batch = lambda run: log.append(("own", run))  # type: ignore[method-assign]
    events = Events([first, Event(), second])
    assert [h for h in HOOKS if getattr(events, h)] == ["after_batch"]
    events.emit(events.after_batch, 7)
    assert log == [7, ("own", 7)]
    assert events.listeners[0] is first


def test_there_is_a_hook_before_and_after_every_region() -> None:
    assert len(HOOKS) == 2 * len(REGIONS) == len(set(HOOKS))
    for hook in HOOKS:
        assert getattr(Event(), hook)(None) is None and getattr(SILENT, hook) == ()


def test_misspelt_hooks_are_found() -> None:
    with pytest.raises(AttributeError, match="expected one of before_run"):
        _ = SILENT.after_batches


def test_any_object_with_hooks_may_listen() -> None:
    class Foreign:
        def before_run(self, run: Any) -> None:
            run.append(1)

    events, runs = Events([Foreign()]), []
    events.emit(events.before_run, runs)
    assert runs == [1] and events.after_run == ()
