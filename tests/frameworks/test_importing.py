"""The door for users' models where converters are missing, and what it needs of the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError, MissingBackend
from deep500.networks import as_network
from deep500.networks.objects import is_model
from deep500.registry import framework_of, load_importer
from tests.conftest import HANG, load_backend


def keras_model() -> Any:
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


@pytest.mark.parametrize(
    ("framework", "converter", "make"),
    [
        ("tensorflow", "tf2onnx", keras_model),
        ("jax", "jax2onnx", lambda: (lambda p, x: x @ p["w"], {"w": np.ones((4, 3), "float32")})),
    ],
)
def test_a_missing_converter_is_named_with_its_extra(
    framework: str, converter: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_backend(framework)
    monkeypatch.setitem(sys.modules, converter, None)
    extra = (
        rf"'{converter}'; expected it installed: pip install 'deep500\[import-{framework}\]', or export an ONNX file"
    )
    with pytest.raises(MissingBackend, match=extra):
        as_network(make(), np.zeros((1, 4), "float32"))


def test_what_is_no_model() -> None:
    assert framework_of([1]) is None and not is_model(3) and not is_model((len, 3)) and is_model((len, {}))
    with pytest.raises(InputError, match="got list as a model; expected a Network, an ONNX file"):
        as_network([1])
    with pytest.raises(InputError, match=r"got int from int\(\); expected a model"):
        as_network(int)


CHECK = """
import sys, deep500 as d5
import deep500.frameworks.reference
sys.modules["deep500.frameworks.pytorch"] = deep500.frameworks.reference  # as a worker for another framework has it
import numpy as np, torch
network = d5.networks.as_network(torch.nn.Linear(4, 3), np.zeros((1, 4), "float32"))
assert network.trainable() == ["weight", "bias"]
assert not [name for name in sys.modules if name.startswith("deep500.frameworks.pytorch.") and "importing" not in name]
assert "tensorflow" not in sys.modules and "jax" not in sys.modules
"""


def test_converting_loads_no_backend_of_its_own() -> None:
    load_backend("pytorch")
    subprocess.run([sys.executable, "-c", CHECK], check=True, timeout=HANG)


def test_importers_are_the_modules_that_python_imports() -> None:
    load_backend("pytorch")
    import deep500.frameworks.pytorch.importing as usual

    assert load_importer("pytorch") is usual
