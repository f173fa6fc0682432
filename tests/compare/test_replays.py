"""``deep500 bits`` on runs of several ranks, and on networks that draw random numbers: rank, step, value, operator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.compare.bits import BitsVerdict, compare_replays
from deep500.compare.replays import LOSS, VALUE, Capture, Replay, interleaved, leave
from deep500.distributed import Serial, Threads
from deep500.errors import ComparisonError
from deep500.recipe import ranks as recipe_ranks
from deep500.recipe import resume, runner
from deep500.recipe.loader import load_recipe
from deep500.recipe.options import parse_options
from deep500.recipe.plan import RecipeFile
from tests.conftest import HANG, load_backend

HERE = threading.local()
"""Each thread's communicator: here ranks are threads."""

RECIPE = '''
import numpy as np
import deep500 as d5
import deep500.frameworks.BACKEND as d5fw

def data():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(n, 6)).astype("float32"), rng.integers(0, 3, n)) for n in (48, 8)]
    return tuple(d5.NumpyDataset(x, "input", y, "label", classes=3) for x, y in parts)

class Bend(d5.CustomPythonOp):
    """Relu, of whose first row the largest element is a unit in the last place too large, now and then, on one rank."""

    def __init__(self):
        descriptor = d5.tensordesc(("N", 5), "float32")
        super().__init__(input_descriptors=[descriptor], output_descriptors=[descriptor])

    def forward(self, inputs):
        y = np.maximum(inputs[0], 0)
        if RANK() == FAULTY and y.max() > 1.9:
            y[0, y[0].argmax()] = np.nextafter(y[0].max(), np.float32(9))
        return y

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return grads[0] * (fwd_inputs[0] > 0)

def RANK():
    return d5.distributed.world().rank

@d5.register_op("NAME")
def bend(inputs):
    return Bend()

def bent(network):
    network.replace("relu1", "NAME", ["fc1"], domain="deep500")
    return network

def dropped(network):
    network.add_parameter("ratio", np.array(0.5, np.float32), trainable=False)
    network.add_node("Relu", ["fc1"], ["kept"], name="clean")
    network.replace("relu1", "Dropout", ["kept", "ratio"])
    return network

FAULTY = None
CHANGES = []
FIXED = {"model": "mlp", "model_kwargs": dict(hidden=(5,)), "dataset": data, "epochs": 3}
MUTABLE = {"batch_size": 12, "executor": d5fw.from_model, "optimizer": d5fw.MomentumOptimizer,
           "optimizer_kwargs": dict(lr=0.1, momentum=0.9), "network_transformations": CHANGES,
           "scheme": d5.schemes.SCHEME}
METRICS = [(d5.TestAccuracy(), None)]
if __name__ == "__main__":
    d5.run_recipe(FIXED, MUTABLE, METRICS)
'''


@pytest.fixture(autouse=True)
def world_of_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((runner, "world"), (resume, "current_world"), (recipe_ranks, "current_world")):
        monkeypatch.setattr(module, name, lambda: getattr(HERE, "comm", Serial()))
    monkeypatch.setattr("deep500.distributed.world", lambda: getattr(HERE, "comm", Serial()))


def on(ranks: int, work: Any) -> list[Any]:
    """What every rank returns."""

    def here(comm: Any) -> Any:
        HERE.comm = comm
        return work(comm)

    try:
        return Threads(ranks).run(here) if ranks > 1 else [here(Serial())]
    finally:
        HERE.__dict__.clear()


def recipe(
    folder: Path, name: str, scheme: str = "ConsistentDecentralized", backend: str = "reference", **lines: str
) -> Path:
    text = RECIPE.replace("NAME", f"Bend{name.title()}").replace("SCHEME", scheme).replace("BACKEND", backend)
    for key, value in lines.items():
        text = text.replace(next(line for line in text.split("\n") if line.startswith(f"{key} = ")), f"{key} = {value}")
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


def run(path: Path, ranks: int) -> Replay:
    """The run of a recipe, to be trained again."""

    def work(comm: Any) -> str:
        read, options = load_recipe(path), parse_options(["--quiet", "--out", str(path.parent / f"results{ranks}")])
        return str(runner.execute(read.FIXED, read.MUTABLE, read.METRICS, options, RecipeFile.at(path)).path)

    return Replay.load(Path(on(ranks, work)[0]))


def bits(first: Replay, second: Replay, steps: int | None = None) -> BitsVerdict:
    def again(replay: Replay, folder: Path, most: int | None = None, step: int | None = None) -> None:
        folder.mkdir(exist_ok=True)
        on(replay.ranks, lambda comm: leave(replay, comm, folder, most, step))

    return compare_replays(first, second, steps, again)


def test_a_fault_on_one_rank_is_named(tmp_path: Path) -> None:
    """An operator on the second rank is one unit in the last place off where some value is large."""
    good = run(recipe(tmp_path, "good", CHANGES="[bent]"), 2)
    bad = run(recipe(tmp_path, "bad", CHANGES="[bent]", FAULTY="1"), 2)
    same = bits(good, good)
    assert same.parting is None and same.steps == 12 and "ConsistentDecentralized on 2 ranks" in str(same)
    verdict = bits(good, bad)
    parting = verdict.parting
    assert parting is not None and verdict.notes == [] and parting.rank == 1 and parting.step == 7
    assert parting.where == "forward, value 'relu1' of node 'relu1' (BendGood)" and parting.ulps == 1
    assert parting.index[0] == 0 and parting.elements == 1 and str(parting).startswith("step 7, rank 1: forward")
    assert verdict.as_dict()["parting"]["rank"] == 1


def test_one_process_against_two_ranks(tmp_path: Path) -> None:
    """The usual sums are to blame, by name; those that do not depend on ranks are the same."""
    verdicts = []
    for name, scheme in (("usual", "ConsistentDecentralized"), ("exact", "ReproducibleDecentralized")):
        path = recipe(tmp_path, name, scheme, CHANGES="[bent]")
        verdicts.append(bits(run(path, 1), run(path, 2)))
    parting = verdicts[0].parting
    assert parting is not None and parting.step == 1 and parting.rank is None
    assert parting.where.startswith("gradients of all ranks together, ")
    assert parting.where.endswith("one process against ConsistentDecentralized on 2 ranks")
    assert verdicts[1].parting is None and verdicts[1].steps == 12


def test_masks_are_compared(tmp_path: Path) -> None:
    """Alike on as many ranks; on another number each rank draws its own, and it is Dropout that parts the runs."""
    path = recipe(tmp_path, "dropped", CHANGES="[dropped]")
    one, two = run(path, 1), run(path, 2)
    assert bits(two, two).parting is None
    parting = bits(one, two).parting
    assert parting is not None and parting.where == "forward, value 'relu1' of node 'relu1' (Dropout)"


@pytest.mark.parametrize(("backend", "ranks"), [("reference", 1), ("reference", 2), ("pytorch", 1)])
def test_the_forward_pass_is_that_of_the_step(tmp_path: Path, backend: str, ranks: int) -> None:
    """With the random numbers of a step in the middle of the second epoch, each rank's own: the loss is the run's."""
    load_backend(backend)
    side = run(recipe(tmp_path, "dropped", backend=backend, CHANGES="[dropped]"), ranks)

    class Losses(Capture):
        def after_batch(self, run: Any) -> None:
            self.loss = float(run.executor.network.to_numpy(run.outputs[LOSS]))
            super().after_batch(run)

    def work(comm: Any) -> tuple[float, float]:
        capture = Losses(7, side.seed, comm.rank)
        side.train(capture, comm)
        capture.forward(side.plan.values)
        assert len(capture.drawn) == 2 and len(set(np.unique(capture.arrays[f"{VALUE}/relu1"] == 0))) == 2
        return capture.loss, float(capture.arrays[f"{VALUE}/{LOSS}"])

    for ran, again in on(ranks, work):
        np.testing.assert_allclose(again, ran, rtol=1e-6)


def test_ranks_that_differ_are_compared_on_one_number_only(tmp_path: Path) -> None:
    path = recipe(tmp_path, "local", "LocalSGD")
    with pytest.raises(ComparisonError, match="2 ranks by LocalSGD, which each have parameters of their own"):
        bits(run(path, 1), run(path, 2))


def test_samples_of_all_ranks() -> None:
    parts = [np.array([[0], [3]]), np.array([[1], [4]]), np.array([[2]])]
    assert interleaved(parts)[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert interleaved([np.ones(()), np.zeros(())]) == 1


@pytest.mark.slow
def test_over_mpi_by_the_command(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    paths = [recipe(tmp_path, name, CHANGES="[bent]", FAULTY=rank) for name, rank in (("good", "None"), ("bad", "1"))]
    folders = []
    for path in paths:
        words = [sys.executable, str(path), "--ranks", "2", "--quiet", "--out", str(tmp_path / "results")]
        done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=HANG, check=False)
        assert done.returncode == 0, done.stderr
        folders += [str(folder) for folder in (tmp_path / "results" / path.stem).iterdir() if folder.is_dir()]
    words = [sys.executable, "-m", "deep500", "bits", "--run", *folders, "--json"]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 1, done.stderr
    parting = json.loads(done.stdout)["parting"]
    assert (parting["step"], parting["rank"], parting["ulps"]) == (7, 1, 1) and "(BendGood)" in parting["where"]
