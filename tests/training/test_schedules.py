"""Schedules against torch.optim.lr_scheduler, and that they act from the first step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.events import Event
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler
from deep500.training.optimizers import GradientDescent, MomentumOptimizer
from deep500.training.schedules import (
    CosineSchedule,
    EpochHPSchedule,
    FunctionSchedule,
    HyperparameterSchedule,
    StepHPSchedule,
    StepSchedule,
    TableSchedule,
    WarmUp,
)
from deep500.training.trainer import Trainer
from tests.training.linear import FakeExecutor, linear_network

torch = pytest.importorskip("torch")
lr_scheduler = torch.optim.lr_scheduler
LENGTH, BASE, EPOCHS, BATCHES = 30, 0.4, 5, 3

# fmt: off
SCHEDULES = [  # ours, torch's
    (lambda unit: StepSchedule(4, 0.3, unit=unit), lambda o: lr_scheduler.StepLR(o, 4, 0.3)),
    (lambda unit: CosineSchedule(20, unit=unit), lambda o: _flat_after(lr_scheduler.CosineAnnealingLR(o, 20), 20)),
    (lambda unit: CosineSchedule(LENGTH, 0.01, unit=unit), lambda o: lr_scheduler.CosineAnnealingLR(o, LENGTH, 0.01)),
    (
        lambda unit: TableSchedule({0: BASE, 5: BASE * 0.1, 9: BASE * 0.01}, unit=unit),
        lambda o: lr_scheduler.MultiStepLR(o, [5, 9], 0.1),
    ),
    (lambda unit: FunctionSchedule(lambda t: BASE / (t + 1), unit=unit),
     lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (t + 1))),
    (lambda unit: WarmUp(6, start=0.25, unit=unit), lambda o: lr_scheduler.LinearLR(o, 0.25, 1.0, 6)),
    (
        lambda unit: WarmUp(6, CosineSchedule(LENGTH, unit=unit), start=0.25, unit=unit),
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.CosineAnnealingLR(o, LENGTH), lr_scheduler.LinearLR(o, 0.25, 1.0, 6)]
        ),
    ),
]
# fmt: on


class _flat_after:
    """PyTorch's cosine rises again after its end; ours stays."""

    def __init__(self, scheduler, total):
        self.scheduler, self.total, self.count = scheduler, total, 0

    def step(self):
        self.count += 1
        if self.count <= self.total:
            self.scheduler.step()


def torch_rates(make, count):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=BASE)
    scheduler, rates = make(optimizer), []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


class Record(Event):
    """The hyper-parameter in effect at every step."""

    def __init__(self, name="lr"):
        self.name, self.values = name, []

    def after_batch(self, run):
        self.values.append(getattr(run.optimizer, self.name))


def make_trainer(optimizer=GradientDescent, **options):
    rng = np.random.default_rng(0)
    data = NumpyDataset(rng.normal(size=(24, 4)), "input", rng.integers(0, 3, 24), "label")
    executor = FakeExecutor(linear_network("cross_entropy"))
    sampler = OrderedSampler(data, 8)
    return Trainer(sampler, None, executor, optimizer(executor, "loss", BASE, **options))


def rates_of(schedule, epochs=EPOCHS, **options):
    record = Record(options.pop("name", "lr"))
    make_trainer(**options).run(epochs, [schedule, record])
    return record.values


@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_step_schedules_equal_torchs(number):
    ours, theirs = SCHEDULES[number]
    got = rates_of(ours("step"), LENGTH // BATCHES)
    np.testing.assert_allclose(got, torch_rates(theirs, LENGTH), rtol=1e-12)
    assert len(set(got)) > 1


@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_epoch_schedules_equal_torchs(number):
    ours, theirs = SCHEDULES[number]
    got = rates_of(ours("epoch"), LENGTH)
    np.testing.assert_allclose(got, np.repeat(torch_rates(theirs, LENGTH), BATCHES), rtol=1e-12)


def test_the_entry_of_epoch_0_acts_at_epoch_0():
    assert rates_of(TableSchedule({0: 0.7, 2: 0.3}), 3) == [0.7] * 6 + [0.3] * 3


def test_before_the_first_entry_the_initial_value_holds():
    assert rates_of(TableSchedule([(2, 0.3), (1, 0.2)]), 4) == [BASE] * 3 + [0.2] * 3 + [0.3] * 6


def test_warm_up_in_steps_over_a_decay_in_epochs():
    got = rates_of(WarmUp(4, StepSchedule(1, 0.1), start=0.0), 3)
    want = [BASE * 0.1 ** (s // 3) * min(s / 4, 1.0) for s in range(9)]
    np.testing.assert_allclose(got, want)


def test_warm_up_in_epochs_over_a_schedule_in_steps():
    got = rates_of(WarmUp(2, StepSchedule(1, 0.5, unit="step"), start=0.5, unit="epoch"), 3)
    np.testing.assert_allclose(got, [BASE * 0.5**s * min(0.5 + 0.25 * (s // 3), 1.0) for s in range(9)])


def test_other_parameters_and_bases():
    options = {"optimizer": MomentumOptimizer, "momentum": 0.5, "name": "momentum"}
    assert rates_of(StepSchedule(1, 0.5, parameter="momentum"), 2, **options) == [0.5] * 3 + [0.25] * 3
    assert rates_of(StepSchedule(1, 0.5, base=1.0), 2) == [1.0] * 3 + [0.5] * 3


@pytest.mark.parametrize("historical", [EpochHPSchedule, StepHPSchedule])
def test_historical_names(historical):
    schedule = historical(lr=[(0, 0.1), (1, 0.2)], momentum=lambda position: 0.5 + 0.01 * position)
    assert isinstance(schedule, HyperparameterSchedule)
    lr, momentum = Record(), Record("momentum")
    make_trainer(MomentumOptimizer).run(2, [schedule, lr, momentum])
    positions = [0, 0, 0, 1, 1, 1] if historical is EpochHPSchedule else range(6)
    assert lr.values == [0.1 if p == 0 else 0.2 for p in positions]
    np.testing.assert_allclose(momentum.values, [0.5 + 0.01 * p for p in positions])


def test_a_resumed_run_has_the_same_rates():
    whole = rates_of(CosineSchedule(EPOCHS * BATCHES, unit="step"))
    first, late = make_trainer(), make_trainer()
    first.run(2, [CosineSchedule(EPOCHS * BATCHES, unit="step")])
    late.load_state(first.state())
    record = Record()
    late.run(EPOCHS, [CosineSchedule(EPOCHS * BATCHES, unit="step"), record])
    assert record.values == whole[2 * BATCHES :]


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepSchedule(0),
        lambda: CosineSchedule(0),
        lambda: WarmUp(0),
        lambda: WarmUp(3, start=2.0),
        lambda: StepSchedule(3, unit="hour"),
        lambda: WarmUp(3, StepSchedule(3, parameter="momentum")),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(InputError, match="expected"):
        make()


def test_an_unknown_hyperparameter_is_named():
    with pytest.raises(InputError, match="did you mean 'momentum'"):
        make_trainer(MomentumOptimizer).run(1, [StepSchedule(1, parameter="momentun")])


def test_a_value_out_of_range_is_refused_when_it_comes():
    with pytest.raises(InputError, match="lr=-0"):
        make_trainer().run(1, [FunctionSchedule(lambda step: -0.1)])


def test_cosine_ends_at_its_minimum():
    schedule = CosineSchedule(10, 0.05)
    assert math.isclose(schedule.value(10, BASE), 0.05) and schedule.value(500, BASE) == schedule.value(10, BASE)


def test_a_schedule_listens_to_one_hook_only():
    from deep500.events import Events

    epoch, step = Events([StepSchedule(1)]), Events([StepSchedule(1, unit="step")])
    assert epoch.before_epoch and not epoch.before_batch and step.before_batch and not step.before_epoch
