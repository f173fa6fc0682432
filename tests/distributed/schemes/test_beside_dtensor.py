"""Steps that PyTorch's DTensor (2.13, two ranks, gloo) gets wrong or refuses, as a divided network: serial training.

* Convolution, 4 x 4 by stride 4, its input split along its width: DTensor's result, and the input's gradient, claim to
  be whole and twice as wide as they are, and the weight's gradient is wrong (PyTorch's issue 191926); no error.
* Cross entropy on a batch that the ranks do not divide, with labels that are ignored: refused.
* LSTM: refused ("got mixed torch.Tensor and DTensor").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.distributed import Communicator, Threads
from deep500.distributed.schemes import DividedNetwork
from deep500.errors import PlanError
from deep500.networks import Network, add_loss, create
from deep500.networks.dtype import to_dtype
from deep500.training.optimizers import MomentumOptimizer
from tests.conftest import load_backend

pytestmark = pytest.mark.backend("reference")
STEPS = 2


def convolution() -> tuple[Network, dict[str, np.ndarray]]:
    rng, network = np.random.default_rng(0), Network("patches")
    network.add_input("image", ("N", 3, 8, 16), "float64")
    network.add_input("label", ("N",), "int64")
    network.add_parameter("conv.weight", rng.normal(size=(4, 3, 4, 4)))
    network.add_parameter("conv.bias", rng.normal(size=4))
    network.add_node("Conv", ["image", "conv.weight", "conv.bias"], ["patches"], "conv", strides=[4, 4])
    network.add_node("Flatten", ["patches"], ["flat"], "flat")
    network.add_parameter("fc.weight", rng.normal(size=(32, 3)))
    network.add_node("MatMul", ["flat", "fc.weight"], ["output"], "fc")
    network.add_output("output")
    return add_loss(network), {"image": rng.normal(size=(4, 3, 8, 16)), "label": np.array([0, 2, 1, 2])}


def ignoring() -> tuple[Network, dict[str, np.ndarray]]:
    rng, network = np.random.default_rng(1), Network("ignoring")
    network.add_input("input", ("N", 6), "float64")
    network.add_input("label", ("N",), "int64")
    network.add_parameter("fc.weight", rng.normal(size=(6, 4)))
    network.add_node("MatMul", ["input", "fc.weight"], ["output"], "fc")
    network.add_parameter("weights", np.array([1.0, 0.5, 2.0, 3.0]), trainable=False)
    network.add_node(
        "SoftmaxCrossEntropyLoss", ["output", "label", "weights"], ["loss"], "loss", reduction="mean", ignore_index=-1
    )
    network.add_output("output")
    network.add_output("loss")
    return network, {"input": rng.normal(size=(5, 6)), "label": np.array([3, -1, 0, 2, -1])}


def recurrent() -> tuple[Network, dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    network = add_loss(create("lstm_language_model", shape=(3,), classes=8, width=8, embedding=6))
    return to_dtype(network, "float64"), {name: rng.integers(0, 8, (5, 3)) for name in ("input", "label")}


def trained(network: Network, batch: dict[str, np.ndarray], ranks: int, pins: dict[str, str]) -> list[Any]:
    def work(comm: Communicator) -> Any:
        executor = load_backend("reference").from_model(network)
        scheme = DividedNetwork(MomentumOptimizer(executor, lr=0.1), comm, pins=pins)
        mine = {name: np.array_split(array, comm.size)[comm.rank] for name, array in batch.items()}
        losses = [float(np.asarray(scheme.step(mine)["loss"])) for _ in range(STEPS)]
        return scheme.network.state(), losses, scheme.explain()

    return Threads(ranks).run(work)


CASES = {
    "convolution along its width": (convolution, {"image": "S3"}),
    "cross entropy of five samples": (ignoring, {"fc": "m", "input": "S0", "label": "S0"}),
    "LSTM": (recurrent, {"input": "S0", "label": "S0"}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_what_dtensor_cannot_is_serial_training(case: str, ranks: int) -> None:
    make, pins = CASES[case]
    network, batch = make()
    serial, losses, _ = trained(network, batch, 1, {})[0]
    begin = {name: p.value for name, p in network.parameters.items() if p.trainable}
    assert all(np.abs(serial[name] - value).max() > 1e-5 for name, value in begin.items()), "nothing was trained"
    for state, theirs, rows in trained(network, batch, ranks, pins):
        assert max(np.abs(state[name] - serial[name]).max() for name in serial) < 1e-12
        np.testing.assert_allclose(theirs, losses, rtol=1e-12)
        assert sum(row.nbytes for row in rows) > 0
    if case.startswith("convolution"):
        assert any("image: AllGather S3 -> R" in row.collectives and row.node == "conv" for row in rows)


def test_a_convolution_is_not_split_in_space_but_says_so() -> None:
    network, batch = convolution()
    with pytest.raises(PlanError, match=r"got a pin of 'conv' to 'w' on 2 ranks; expected one of replicate, n, c, m, "):
        trained(network, batch, 2, {"conv": "w"})
