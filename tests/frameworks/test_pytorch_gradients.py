"""What cuts or changes gradients in modules of PyTorch: carried as its own autograd has it, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from deep500.errors import NetworkError, UnsupportedOperator  # noqa: E402
from deep500.networks import as_network  # noqa: E402
from deep500.registry import load_importer  # noqa: E402
from tests.conftest import load_backend  # noqa: E402
from tests.frameworks.gradients import hold_page, hold_to  # noqa: E402
from tests.frameworks.torch_idioms import IDIOMS  # noqa: E402
from tests.frameworks.torch_probes import CARRIED, PROBES, RANDOM, RULELESS  # noqa: E402
from tests.tolerances import as_numpy  # noqa: E402

pytestmark = [
    pytest.mark.backend("pytorch"),
    pytest.mark.filterwarnings("ignore:.*(weight_norm|quantization).*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*:DeprecationWarning"),
]
TABLE = {row: PROBES.get(row, {}) | IDIOMS.get(row, {}) for row in (*PROBES, *IDIOMS)}
ROWS = [(f"{row}: {name}", *values) for row, probes in TABLE.items() for name, values in probes.items()]
EVERYWHERE = (
    "detach",
    "no_grad",
    "VQ-VAE",
    "wav2vec 2",
    "several",
    "none",
    "padding",
    "BYOL",
    "CRF",
    "DINO",
    "NeRF",
    "GFNet",
    "VOLO",
)
"""Probes that run in every backend."""


def check(make: Any, arrays: tuple[np.ndarray, ...], backends: list[Any]) -> None:
    """Raise AssertionError unless every parameter's gradient is that of the module's own autograd."""
    torch.manual_seed(1)
    module = make().double()
    network = as_network(module, tuple(array[:2] for array in arrays))
    generator = np.random.default_rng(5)
    module.train()
    with load_importer("pytorch", "importing_chance").still(module):
        result = module(*map(torch.from_numpy, arrays))
    results = result if isinstance(result, tuple) else (result,)
    cotangents = [generator.standard_normal(tuple(y.shape)) for y in results]
    sum((y * torch.from_numpy(c)).sum() for y, c in zip(results, cotangents, strict=True)).backward()
    want = {name: p.grad for name, p in module.named_parameters() if p.requires_grad}
    hold_to(network, backends, arrays, cotangents, want)


@pytest.mark.parametrize(("name", "make", "arrays", "error"), ROWS, ids=[row[0] for row in ROWS])
def test_gradients_are_the_module_s_or_an_error_names_why(name: str, make: Any, arrays: Any, error: str) -> None:
    if error == CARRIED:
        check(make, arrays, [load_backend("reference"), load_backend("pytorch")])
        return
    if error == RULELESS:
        check(make, arrays, [load_backend("pytorch")])
        with pytest.raises(UnsupportedOperator, match=error):
            check(make, arrays, [load_backend("reference")])
        return
    torch.manual_seed(1)
    with pytest.raises(NetworkError, match=error):
        as_network(make().double(), tuple(array[:2] for array in arrays))


@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_backend_has_the_same_gradients(backend: Any, name: str) -> None:
    make, arrays, _ = next(probes[name] for probes in TABLE.values() if name in probes)
    if name == "wav2vec 2" and backend.__name__.endswith("onnxruntime"):
        with pytest.raises(UnsupportedOperator, match="RandomUniformLike"):  # of float64
            check(make, arrays, [backend])
    else:
        check(make, arrays, [backend])


def test_the_page_lists_every_row_with_what_happens() -> None:
    hold_page(TABLE, [CARRIED, RULELESS])


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_random_in_training_is_drawn_there_alone(backend: Any, name: str) -> None:
    """Shares and spreads of 2,000 samples; five standard errors are allowed."""
    torch.manual_seed(1)
    module = RANDOM[name]()
    network = as_network(module, np.random.default_rng(0).normal(size=(2, 4)).astype("float32"))
    (output,) = network.outputs
    network.add_node("ReduceSum", output, "loss", keepdims=0)
    network.add_output("loss")
    x = np.random.default_rng(1).normal(size=(2000, 4)).astype("float32")
    plain = module.eval()(torch.from_numpy(x)).detach().numpy()
    executor = backend.from_model(network, "cpu")
    np.testing.assert_allclose(as_numpy(executor.inference({"input": x})[output]), plain, 1e-5, 1e-6)
    first, second = (as_numpy(executor.inference_and_backprop({"input": x}, "loss")[output]) for _ in range(2))
    assert (first != second).any()
    if "noise" in name:
        noise = first - plain
        assert abs(noise.mean()) < 0.006 and abs(noise.std() - 0.1) < 0.005
        return
    dropped = first == 0
    scale = 1 if name == "unscaled depth" else 4 / 3
    np.testing.assert_allclose(first[~dropped], scale * plain[~dropped], 1e-5, 1e-6)
    assert abs(dropped[:, 0].mean() - 0.25) < 0.05
    assert (dropped == dropped[:, :1]).all() or name == "drawn by bernoulli"  # whole samples
