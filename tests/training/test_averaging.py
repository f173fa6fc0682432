"""Averages of weights against PyTorch's, in every backend; averages of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500 import cli
from deep500.distributed import Serial
from deep500.distributed.schemes import ModelAverage
from deep500.errors import InputError, ResultsError
from deep500.results.averaging import average_checkpoints
from deep500.results.checkpoint import save_checkpoint
from deep500.training import optimizers as d5
from deep500.training.averaging import WeightAverage
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler
from deep500.training.trainer import Trainer
from tests.conftest import load_backend
from tests.tolerances import as_numpy
from tests.training.linear import FakeExecutor, linear_network, regression_batches

torch = pytest.importorskip("torch")


def test_it_is_torchs_averaged_model(backend_name: str) -> None:
    """Trained side by side; ``use_buffers=False`` is the default there."""
    module = load_backend(backend_name)
    executor = module.from_model(linear_network(), "cpu")
    optimizer, average = module.GradientDescent(executor, lr=0.1), WeightAverage(executor, 0.9)
    start = linear_network().parameters
    theirs = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.tensor(p.value)) for name, p in start.items()})
    ema = torch.optim.swa_utils.AveragedModel(theirs, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    descent = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for batch in regression_batches(12):
        optimizer.step(batch)
        average.update()
        descent.zero_grad()
        x, label = torch.from_numpy(batch["input"]), torch.from_numpy(batch["label"])
        ((x @ theirs["w"] + theirs["b"] - label) ** 2).mean().backward()
        descent.step()
        ema.update_parameters(theirs)
    own = {name: as_numpy(value) for name, value in executor.network.state().items()}
    with average.evaluation():
        averaged = {name: as_numpy(value) for name, value in executor.network.state().items()}
    for name in start:
        want = ema.module[name].detach().numpy()
        np.testing.assert_allclose(averaged[name], want, rtol=1e-12, atol=1e-13, err_msg=name)
        assert np.abs(averaged[name] - own[name]).max() > 1e-3
        np.testing.assert_array_equal(as_numpy(executor.network.state()[name]), own[name])  # given back, bit by bit
    other = WeightAverage(executor, 0.9)
    other.load_state(average.state())
    other.apply()
    assert other.count == 12
    for name in start:
        np.testing.assert_array_equal(as_numpy(executor.network.state()[name]), averaged[name])


def trainer_of(ema: float | None) -> Trainer:
    data = regression_batches(1)[0]
    dataset = NumpyDataset(data["input"], labels=data["label"])
    executor = FakeExecutor(linear_network())
    sampler = OrderedSampler(dataset, 2)
    return Trainer(sampler, OrderedSampler(dataset, 4), executor, d5.GradientDescent(executor, lr=0.3), ema=ema)


def test_a_validation_judges_the_average_and_a_state_has_it() -> None:
    plain, averaged, resumed = trainer_of(None), trainer_of(0.5), trainer_of(0.5)
    for trainer in (plain, averaged):
        trainer.run(2, [])
    for a, b in zip(plain.statistics.epochs, averaged.statistics.epochs, strict=True):
        assert a.train_loss == b.train_loss and a.test_loss != b.test_loss
    resumed.run(1, [])
    state, fresh = resumed.state(), trainer_of(0.5)
    assert {"ema/count", "ema/weight/w", "ema/weight/b"} <= state["arrays"].keys()
    fresh.load_state(state)
    fresh.run(2, [])
    assert [e.test_loss for e in fresh.statistics.epochs] == [e.test_loss for e in averaged.statistics.epochs]


@pytest.mark.parametrize("decay", [0, 1, 1.5, -0.1, True, "0.9"])
def test_a_decay_is_between_0_and_1(decay: Any) -> None:
    with pytest.raises(InputError, match="ema="):
        WeightAverage(FakeExecutor(linear_network()), decay)


def test_ranks_that_differ_are_refused() -> None:
    executor = FakeExecutor(linear_network())
    optimizer = ModelAverage(d5.GradientDescent(executor), Serial())
    type(optimizer).consistent, before = False, type(optimizer).consistent
    try:
        sampler = OrderedSampler(NumpyDataset(np.ones((4, 4)), labels=np.ones((4, 3))), 2)
        with pytest.raises(InputError, match="ModelAverage"):
            Trainer(sampler, None, executor, optimizer, ema=0.5)
    finally:
        type(optimizer).consistent = before


def checkpoints(folder: Path) -> list[dict[str, np.ndarray]]:
    rng, states = np.random.default_rng(0), []
    for epoch in (1, 2, 3):
        arrays = {"w": rng.normal(size=(2, 3)).astype("float32"), "n": np.array(epoch)}
        states.append(arrays)
        stored = {f"network/{name}": array for name, array in arrays.items()}
        save_checkpoint(folder, epoch, {"arrays": {**stored, "optimizer/step": np.array(1)}, "values": {}}, keep=5)
    return states


def test_the_averages_that_judged_are_written(tmp_path: Path) -> None:
    trainer = trainer_of(0.5)
    trainer.run(2, [])
    save_checkpoint(tmp_path, 2, trainer.state(), keep=2)
    with trainer.judged():
        judged = {name: np.array(array) for name, array in trainer.executor.network.state().items()}
    written, raw = average_checkpoints(tmp_path, ema=True), average_checkpoints(tmp_path)
    for name, array in judged.items():
        np.testing.assert_array_equal(written[name], array)
        assert (raw[name] != array).all()
    checkpoints(tmp_path / "plain")
    with pytest.raises(ResultsError, match="got no moving averages"):
        average_checkpoints(tmp_path / "plain", ema=True)


def test_the_mean_of_the_last_checkpoints(tmp_path: Path, capsys: Any) -> None:
    from safetensors.numpy import load_file

    folder = tmp_path / "run" / "checkpoints" / "seed-0"
    states = checkpoints(folder)
    got = average_checkpoints(folder, 2)
    np.testing.assert_allclose(got["w"], np.mean([states[1]["w"], states[2]["w"]], axis=0), rtol=1e-6)
    assert got.keys() == {"w", "n"} and got["w"].dtype == np.float32 and got["n"] == 3
    np.testing.assert_array_equal(average_checkpoints(folder, 1)["w"], states[2]["w"])
    written = tmp_path / "mean.safetensors"
    assert cli.main(["publish", "average", str(tmp_path / "run"), "--last", "2", "-o", str(written)]) == 0
    np.testing.assert_array_equal(load_file(written)["w"], got["w"])
    assert "2 arrays" in capsys.readouterr().out
    with pytest.raises(ResultsError, match="keep_checkpoints=4"):
        average_checkpoints(folder, 4)
    assert cli.main(["publish", "average", str(tmp_path / "nothing"), "-o", str(written)]) == 2
