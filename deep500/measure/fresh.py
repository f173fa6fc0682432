"""Launches in processes of their own, started anew (``spawn``): nothing is inherited but what is sent."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from typing import Any

from deep500.errors import InputError
from deep500.measure.plan import Plan
from deep500.measure.sampling import Clock, Measurement, measure_launch


def resolve(function: Callable[[], object] | str) -> Callable[[], object]:
    """The function itself, or what ``"module:name"`` means; raises InputError where that is no function.

    Example:
        >>> resolve("gc:collect").__name__
        'collect'
    """
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, ValueError, AttributeError) as error:
        raise InputError(
            f"got {function!r}, which cannot be imported ({error}); expected 'module:name' of a function"
        ) from error
    if not callable(target):
        raise InputError(f"got {function!r}, which is a {type(target).__name__}; expected 'module:name' of a function")
    return target


def in_fresh_processes(
    count: int, function: Callable[[], object] | str, plan: Plan, synchronize: Callable[[], object] | None, clock: Clock
) -> list[Measurement]:
    """Measure a function in several processes, one after the other; see :func:`deep500.measure.measure`.

    Raises:
        InputError: the function cannot be sent, fails in its process, or the process ends.
    """
    try:
        task = pickle.dumps((function, plan, synchronize, clock))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"got a function that cannot be sent to a new process ({error}); expected one of a module, "
            "functools.partial of one, or 'module:name': move it there, or let launches share this process with "
            "Budget(fresh=False)"
        ) from error
    return [_launch(task, number) for number in range(1, count + 1)]


def _launch(task: bytes, number: int) -> Measurement:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, theirs), name=f"launch {number}")
    process.start()
    theirs.close()
    try:
        measurement, problem = ours.recv()
    except EOFError:
        process.join()
        measurement, problem = None, f"its process ended with exit code {process.exitcode}"
    finally:
        process.join()
        ours.close()
    if problem is not None:
        raise InputError(
            f"got launch {number}, which failed: {problem}; expected a function that runs in a new process, from a "
            "script that starts with `if __name__ == '__main__':`: mend it, or use Budget(fresh=False)"
        )
    assert isinstance(measurement, Measurement)
    return measurement


def _work(task: bytes, answer: Any) -> None:
    """Run the task in the new process and send the answer."""
    try:
        function, plan, synchronize, clock = pickle.loads(task)
        answer.send((measure_launch(resolve(function), plan, synchronize, clock), None))
    except Exception as error:  # noqa: BLE001 - any error of the function is reported by the parent
        answer.send((None, f"{type(error).__name__}: {error}"))
