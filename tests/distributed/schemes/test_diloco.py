"""DiLoCo against PyTorch's SGD as outer optimizer, and what it shares with local SGD."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.distributed import Serial, Threads
from deep500.distributed.schemes import DiLoCo, LocalSGD
from deep500.errors import InputError
from deep500.training.optimizers import GradientDescent
from tests.conftest import load_backend
from tests.distributed.scheme_table import (
    STEPS,
    WHOLE,
    SchemeRow,
    batches,
    digest,
    flat,
    make_base,
    network,
    parameters,
    serial,
    train,
)
from tests.training.linear import FakeExecutor, linear_network

torch = pytest.importorskip("torch")


def oracle(sizes: list[int], every: int, steps: int, **outer: Any) -> dict[str, np.ndarray]:
    """The algorithm in one process: inner training by the base optimizer alone, the outer step by torch.optim.SGD."""
    workers = [make_base("reference") for _ in sizes]
    shared = {name: torch.tensor(p.value) for name, p in network().parameters.items()}
    optimizer = torch.optim.SGD(list(shared.values()), **outer)
    data = [batches(sizes, steps, rank) for rank in range(len(sizes))]
    for begin in range(0, steps, every):
        for worker, own in zip(workers, data, strict=True):
            worker.network.load_state({name: value.numpy() for name, value in shared.items()})
            for batch in own[begin : begin + every]:
                worker.step(batch)
        for name, value in shared.items():
            mean = sum(n * parameters(w)[name] for n, w in zip(sizes, workers, strict=True)) / sum(sizes)
            value.grad = value - torch.from_numpy(mean)
        optimizer.step()
    return {name: value.numpy() for name, value in shared.items()}


@pytest.mark.parametrize("backend", ["reference", "pytorch native"])
@pytest.mark.parametrize(
    ("ranks", "every", "outer"),
    [
        (1, 2, {"lr": 0.5, "momentum": 0.9, "nesterov": True}),
        (2, 3, {"lr": 0.7, "momentum": 0.9, "nesterov": True}),
        (3, 2, {"lr": 0.7, "momentum": 0.9, "nesterov": False}),
        (4, 4, {"lr": 1.3, "momentum": 0.5, "nesterov": True}),
        (5, 3, {"lr": 0.7, "momentum": 0.0, "nesterov": False}),
    ],
)
def test_outer_steps_are_those_of_sgd(ranks: int, every: int, outer: dict[str, Any], backend: str) -> None:
    load_backend(backend.removesuffix(" native"))
    sizes, steps = [rank + 2 for rank in range(ranks)], 12
    options = {"outer_lr": outer["lr"], "outer_momentum": outer["momentum"], "nesterov": outer["nesterov"]}
    scheme = SchemeRow("DiLoCo", lambda b, c: DiLoCo(b, c, every=every, **options), "outer", None)
    got = Threads(ranks).run(lambda comm: train(comm, scheme, backend, sizes, steps))
    deviation = np.abs(flat(got[0].parameters[-1]) - flat(oracle(sizes, every, steps, **outer))).max()
    print(f"DiLoCo, {ranks} ranks, every {every}, {outer}: {deviation:.1e} from torch.optim.SGD outside")
    assert deviation < 1e-12
    if ranks > 1:
        assert digest(got[0].parameters[0]) != digest(got[1].parameters[0]), "the steps within a round are not local"
        assert [size for size in got[0].payload if size] == [WHOLE] * (steps // every)


@pytest.mark.parametrize("ranks", [1, 3])
def test_plain_average_is_local_sgd(ranks: int) -> None:
    """Bit for bit, though the outer step is taken."""
    sizes = [rank + 1 for rank in range(ranks)]
    plain = SchemeRow("", lambda b, c: DiLoCo(b, c, every=2, outer_lr=1, outer_momentum=0), "", None)
    local = SchemeRow("", lambda b, c: LocalSGD(b, c, every=2), "", None)
    of_diloco, of_local_sgd = (
        Threads(ranks).run(lambda comm, s=scheme: train(comm, s, "reference", sizes)) for scheme in (plain, local)
    )
    assert [digest(p) for p in of_diloco[0].parameters] == [digest(p) for p in of_local_sgd[0].parameters]
    if ranks == 1:
        assert digest(of_diloco[0].parameters[-1]) == digest(serial(sizes, "reference"))


def test_adam_keeps_its_state_on_each_rank() -> None:
    scheme, sizes = SchemeRow("", lambda b, c: DiLoCo(b, c, every=3), "", None), [2, 3]
    got = Threads(2).run(lambda comm: train(comm, scheme, "reference", sizes, kind="AdamOptimizer", lr=0.01))
    assert digest(got[0].parameters[-1]) == digest(got[1].parameters[-1])
    moments = [{k: v for k, v in outcome.state.items() if k.startswith("exp_avg/")} for outcome in got]
    assert digest(moments[0]) != digest(moments[1])


def test_interrupted_round_goes_on_from_its_begin() -> None:
    """The state holds the parameters at the begin of the round, which the network no longer has."""
    scheme = SchemeRow("", lambda b, c: DiLoCo(b, c, every=4), "", None)
    whole = Threads(2).run(lambda comm: train(comm, scheme, "reference", [2, 3], 8))
    for at in range(1, 8):
        again = Threads(2).run(lambda comm, at=at: train(comm, scheme, "reference", [2, 3], 8, resume_at=at))
        assert [digest(p) for p in whole[1].parameters] == [digest(p) for p in again[1].parameters], at
    assert STEPS < 8  # two whole rounds


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "got every 0; expected an integer of at least 1"),
        ({"outer_lr": 0.0}, "got outer_lr=0.0, outer_momentum=0.9; expected a finite number > 0"),
        ({"outer_lr": float("nan")}, "got outer_lr=nan"),
        ({"outer_momentum": 1.0}, "outer_momentum=1.0; expected"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        DiLoCo(GradientDescent(FakeExecutor(linear_network())), Serial(), **options)
