"""The second route from modules of PyTorch: what tracing refuses or gets wrong, and what it must not lose either."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from deep500.errors import InputError, NetworkError  # noqa: E402
from deep500.frameworks import reference  # noqa: E402
from deep500.frameworks.pytorch import importing  # noqa: E402
from deep500.networks import as_network  # noqa: E402
from tests.conftest import HANG  # noqa: E402
from tests.frameworks.test_pytorch_importing import hold, real  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402

nn = torch.nn
parametrizations = nn.utils.parametrizations
pytestmark = pytest.mark.backend("pytorch")


class Called(nn.Module):
    """A module whose forward is a function of itself and x."""

    def __init__(self, function: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def unpooled(self: Any, x: Any) -> Any:
    pooled, places = nn.functional.max_pool2d(self.conv(x), 2, return_indices=True)
    return nn.functional.max_unpool2d(pooled, places, 2)


def counted(self: Any, x: Any) -> Any:
    """A weight for each of four bins: how mixtures of experts balance their load."""
    y = self.layer(x)
    return y * torch.histc(y.argmax(-1).double(), 4, 0, 3)


def batchwise(self: Any, x: Any) -> Any:
    """A size read as a number, which a trace takes for a constant."""
    return self.layer(x) * float(x.shape[0])


def cut(self: Any, x: Any) -> Any:
    """Everything that cuts gradients."""
    h = self.norm(self.layer(x))
    with torch.no_grad():
        target = self.layer(h) * 2
        other = target + 1
    straight = h + (torch.round(h) - h).detach()
    return self.layer(straight) * target.sigmoid() + other.data


def layer(**parts: Any) -> dict[str, Any]:
    return {"layer": nn.Linear(4, 4), **parts}


CASES: dict[str, Any] = {
    "max_unpool2d": (lambda: Called(unpooled, conv=nn.Conv2d(2, 3, 1)), real(4, 2, 4, 4)),
    "histc": (lambda: Called(counted, **layer()), real(4, 4)),
    "batch as a number": (lambda: Called(batchwise, **layer()), real(4, 4)),
    "gradients that are cut": (lambda: Called(cut, **layer(norm=nn.BatchNorm1d(4, eps=2**-7))), real(4, 4)),
}
for kind in ("matrix_exp", "householder"):
    CASES[kind] = (lambda kind=kind: parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map=kind), real(4, 4))


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first route refuses everything."""

    def refuse(*_: Any) -> None:
        raise NetworkError("refused") from ValueError()

    monkeypatch.setattr(importing, "_export", refuse)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("only")
def test_outputs_gradients_and_statistics_are_pytorch_s(name: str) -> None:
    torch.manual_seed(1)
    make, array = CASES[name]
    hold(make().double(), (array,), name)


@pytest.mark.parametrize("name", ["max_unpool2d", "batch as a number"])
def test_what_tracing_refuses_or_gets_wrong_goes_on_to_the_second_route(name: str) -> None:
    make, array = CASES[name]
    module = make().double()
    got = reference.from_model(as_network(module, array[:2])).inference({"input": array})["output"]
    assert_close(got, module.eval()(torch.from_numpy(array)), "forward")


def test_compiled_modules_are_what_they_wrap() -> None:
    network = as_network(torch.compile(Called(lambda self, x: self.layer(x), **layer()).double()), real(4, 4))
    assert network.trainable() == ["layer.weight", "layer.bias"]


@pytest.mark.usefixtures("only")
def test_what_cuts_gradients_is_a_node() -> None:
    make, array = CASES["gradients that are cut"]
    kinds = [node.op_type for node in as_network(make().double(), array[:1]).nodes]
    assert kinds.count("StopGradient") >= 4 and "BatchNormalization" in kinds


def test_bfloat16_stays_bfloat16() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).bfloat16(), torch.randn(3, 4).bfloat16()
    network = as_network(module, x)
    assert network.inputs["input"].dtype == "bfloat16"
    got = reference.from_model(network).inference({"input": importing.to_array(x)})["output"]
    assert_close(got.astype("float32"), module(x).float(), dtype="bfloat16")


class Writes(nn.Module):
    """Keeps a mean of what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(4))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.centre.mul_(0.9).add_(x.mean(0))
        return (x - self.centre) * float(x.shape[0])


class Nobody(nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x)


@pytest.mark.parametrize(
    ("module", "shape", "kind", "message"),
    [
        (lambda: nn.Linear(4, 4, device="meta"), (2, 4), InputError, "'weight' on the device meta, without values"),
        (Writes, (2, 4), NetworkError, "writes buffer 'centre' in training; expected"),
        (lambda: parametrizations.spectral_norm(nn.Linear(4, 4)), (2, 4), NetworkError, "writes buffer 'param.*_u'"),
        (lambda: nn.InstanceNorm1d(4, track_running_stats=True), (2, 4, 4), NetworkError, "track_running_stats=False"),
        (Nobody, (2, 3, 3), NetworkError, "got UnsupportedOperatorError .*; torch.export got DispatchError .*svd"),
    ],
)
def test_what_both_refuse_is_one_error(module: Any, shape: tuple[int, ...], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        as_network(module(), np.ones(shape, "float32"))
    assert "\n" not in str(caught.value)


QUIET = """
import numpy as np, torch, deep500 as d5
class Nobody(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x)
try:
    d5.networks.as_network(Nobody(), np.ones((2, 3, 3), "float32"))
except d5.errors.NetworkError:
    print("refused")
"""


@pytest.mark.slow
def test_nobody_sees_what_exporters_write() -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUIET], env=dict(os.environ), capture_output=True, check=True, timeout=HANG
    )
    assert (done.stdout, done.stderr) == (b"refused\n", b"")
