"""What all tests share: the choice of backends, one thread, deterministic Hypothesis, files in temporary folders.

``DEEP500_TEST_BACKENDS=reference,pytorch`` names the backends under test, and then a missing one is a failure. Without
the variable every known backend is tested where its framework is installed, and skipped with the reason elsewhere.
``DEEP500_TEST_LONG=1`` adds the tests marked ``long``. Kinds of tests (``unit``, ``process``, ...) are derived, see
tests/kinds.py. Tests may run in several processes at once (``pytest -n 2 --dist worksteal``); those that start ranks,
which wait for each other by spinning, do so one at a time.
"""

from __future__ import annotations

import fcntl
import gc
import os
import re
import signal
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

# Before any numerical library starts its threads: on small arrays one thread is faster, and sums keep their order.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
    os.environ[_variable] = "1"
os.environ["MPLBACKEND"] = "Agg"
# Dozens of tests start interpreters, and each would compile the same modules again where writing them is switched off.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
if not _WORKER:  # made once, before workers start; they inherit its name
    _SESSION = tempfile.TemporaryDirectory(prefix="deep500-tests-")
    os.environ["DEEP500_TEST_SESSION"] = _SESSION.name
SESSION = Path(os.environ["DEEP500_TEST_SESSION"])
"""A folder for the length of the whole run, which all of its processes share."""
# Many tests compile the same few networks. One cache per process: JAX does not write its files in one step.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(SESSION / f"jax-{_WORKER}")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import hypothesis
import numpy as np
import pytest

from deep500 import registry
from deep500.measure import load
from tests import kinds, share, workshop

_WANTED = [name.strip() for name in os.environ.get("DEEP500_TEST_BACKENDS", "").split(",") if name.strip()]
_LONG = bool(os.environ.get("DEEP500_TEST_LONG"))
HANG = 3600.0
"""Seconds after which a process is taken to hang: a safeguard only, on the slowest machine no test comes near it."""
_OF_ONE_BACKEND = re.compile(r"^pytestmark = pytest\.mark\.backend\((.*)\)$", re.MULTILINE)

hypothesis.settings.register_profile("local", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def load_backend(name: str) -> ModuleType:
    """The backend's module; where it is not installed: a failure if it was asked for by name, else a skip."""
    if _WANTED and name not in _WANTED:
        pytest.skip(f"backend {name!r} is not among DEEP500_TEST_BACKENDS={','.join(_WANTED)}")
    if not registry.is_installed(name):
        if _WANTED:
            pytest.fail(f"backend {name!r} is named in DEEP500_TEST_BACKENDS but is not installed", pytrace=False)
        pytest.skip(f"backend {name!r} is not installed")
    module = registry.load_backend(name)
    _one_torch_thread()
    return module


def _one_torch_thread() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a misspelt backend at once, which would silently test nothing; heed Ctrl-C, which tests send."""
    unknown = sorted(set(_WANTED) - set(registry.backend_names()))
    if unknown:
        known = ", ".join(registry.backend_names())
        raise pytest.UsageError(f"got DEEP500_TEST_BACKENDS with {', '.join(unknown)}; expected some of: {known}")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in jobs that a shell has put into the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _LONG and not _WORKER:
        config.pluginmanager.register(workshop.Outcomes())


def _shares(config: pytest.Config) -> bool:
    """Whether this is a run of the whole suite, which takes a commit's share of rows and dear tests."""
    return not (_LONG or config.option.keyword or config.option.file_or_dir)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is left to other commits."""
    return [share.headline()] if _shares(config) else []


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files whose backend is not under test: to import them would load its framework."""
    if _WANTED and collection_path.suffix == ".py":
        marked = _OF_ONE_BACKEND.search(collection_path.read_text(encoding="utf-8"))
        if marked and not set(re.findall(r'"(\w+)"', marked[1])) <= set(_WANTED):
            return True
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the markers that are derived."""
    kinds.mark(item)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is other commits', skip what is for `make test-long`, and the workshop while it is unchanged."""
    if _shares(config):
        left = share.left_out(items, share.commit())
        config.hook.pytest_deselected(items=left)
        gone = set(map(id, left))
        items[:] = [item for item in items if id(item) not in gone]
    skips = {} if _LONG else {"long": "only repeats, or takes long: DEEP500_TEST_LONG=1 (make test-long) runs it"}
    passed = workshop.reason_to_skip()
    if passed and not _LONG:
        skips["workshop"] = passed
    for item in items:
        for kind, reason in skips.items():
            if item.get_closest_marker(kind):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """What the imports of all tests left is never garbage: the collector need not look at it after every few tests."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Nor is what a file's tests loaded and left. With frameworks among it, one look at all of that takes seconds."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """One test with ranks at a time: two times four ranks that spin on two cores would stop each other."""
    if not _WORKER or not (item.get_closest_marker("mpi") or "on_ranks" in getattr(item, "fixturenames", ())):
        return (yield)
    with (SESSION / "ranks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Honour the markers ``backend(name)`` and ``gpu``."""
    for marker in item.iter_markers("backend"):
        for name in marker.args:
            load_backend(name)
    _one_torch_thread()
    if item.get_closest_marker("gpu"):
        torch = pytest.importorskip("torch", reason="needs a CUDA device, and torch to find one")
        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session", params=_WANTED or registry.backend_names())
def backend_name(request: pytest.FixtureRequest) -> str:
    """The name of each backend under test in turn."""
    load_backend(request.param)
    return request.param


@pytest.fixture(scope="session")
def backend(backend_name: str) -> ModuleType:
    """The module of each backend under test in turn."""
    return load_backend(backend_name)


@pytest.fixture(scope="session")
def numbers(request: pytest.FixtureRequest) -> Callable[[int], range]:
    """``numbers(count)``: those below ``count`` that this run takes, in a run of the whole suite a commit's piece."""
    return lambda count: share.numbers(count, share.commit()) if _shares(request.config) else range(count)


@pytest.fixture(autouse=True)
def _own_random_numbers(request: pytest.FixtureRequest) -> None:
    """A module's ``RNG`` starts anew for every test, from the test's name: the order of tests changes no number."""
    generator = getattr(request.module, "RNG", None)
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = np.random.PCG64(zlib.crc32(request.node.name.encode())).state


@pytest.fixture(scope="session", autouse=True)
def _no_neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs in this process are told nothing of the machine's load: what they say does not depend on who else computes.

    Tests of the load itself bring files of their own.
    """
    nothing = tmp_path_factory.mktemp("no-kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "ROOTS", load.Roots(nothing / "proc", nothing / "sys"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _isolated_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test sees the data sets of the machine it runs on; those that need files put them below ``tmp_path``."""
    empty: Path = tmp_path_factory.mktemp("no-data")
    os.environ["DATA_ROOT"] = str(empty / "data")
    os.environ["KERAS_HOME"] = str(empty / "keras")
