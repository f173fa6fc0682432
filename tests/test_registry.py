"""The registry of backends: those of others, absent frameworks, broken ones."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from deep500 import registry
from deep500.errors import Deep500Error, MissingBackend


class Entry:
    """Looks like an entry point of an installed package."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def load(self) -> Any:
        return self.value


def test_backends_of_others_are_found_but_do_not_hide_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(from_model=lambda network, device: None)
    theirs = Entry("mine", module)
    monkeypatch.setattr(registry, "entry_points", lambda group: [theirs, Entry("reference", None)])
    assert registry.backend_names()[: len(registry.BACKENDS)] == list(registry.BACKENDS)
    assert "mine" in registry.backend_names() and registry.backend_names().count("reference") == 1
    assert registry.load_backend("mine") is module
    assert registry.load_backend("reference").__name__ == "deep500.frameworks.reference"


def test_unknown_backends_offer_the_nearest_name() -> None:
    with pytest.raises(MissingBackend, match="did you mean 'pytorch'"):
        registry.load_backend("pytorhc")


def test_an_absent_framework_gives_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BACKENDS, "absent", ("no_such_package", "absent"))

    def fail(name: str) -> None:
        raise ModuleNotFoundError(name, name="no_such_package")

    monkeypatch.setattr(registry.importlib, "import_module", fail)
    assert not registry.is_installed("absent")
    with pytest.raises(MissingBackend, match=r"pip install 'deep500\[absent\]'"):
        registry.load_backend("absent")


@pytest.mark.parametrize(
    ("backend", "package"),
    [("pytorch", "torch"), ("jax", "jax"), ("tensorflow", "tensorflow"), ("onnxruntime", "onnxruntime")],
)
def test_importing_a_backend_without_its_framework_gives_the_install_line(backend: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import deep500.frameworks.{backend}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install 'deep500[{backend}]'" in done.stderr.splitlines()[-1]


def test_a_broken_framework_raises_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("of torch's own", name="something_inside")

    monkeypatch.setattr(registry.importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="of torch's own") as raised:
        registry.load_backend("pytorch")
    assert not isinstance(raised.value, Deep500Error)


def test_looking_for_backends_imports_none() -> None:
    code = (
        "import sys; from deep500 import registry; registry.backend_names(); registry.is_installed('pytorch'); "
        "assert not {'torch', 'deep500.frameworks.reference'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
