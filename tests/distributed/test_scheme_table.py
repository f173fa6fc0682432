"""Every row of the table of schemes: right for 1 to 5 ranks with unequal shares, on threads and on MPI."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.distributed import DistributedOptimizer, Threads, compression, schemes
from deep500.distributed.schemes import ModelAverage
from deep500.errors import InputError
from deep500.training.clipping import ClipGradientNorm
from tests.conftest import load_backend
from tests.distributed.scheme_table import (
    BY_NAME,
    QSGD_CHUNK,
    QSGD_LEVELS,
    RANKS_DIFFER,
    SCHEMES,
    STEPS,
    Outcome,
    SchemeRow,
    batches,
    digest,
    digest_and_weights,
    flat,
    make_base,
    parameters,
    serial,
    train,
)

ROOT = Path(__file__).parents[2]
BACKENDS = ["reference", "pytorch", "pytorch native"]
EACH = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)


def run(scheme: SchemeRow, backend: str, sizes: list[int], seed: int | None = None, **options: Any) -> list[Outcome]:
    load_backend(backend.removesuffix(" native"))
    if backend.endswith(" native") and not scheme.native:
        pytest.skip("takes three-step optimizers only")
    return Threads(len(sizes), seed).run(lambda comm: train(comm, scheme, backend, sizes, **options))


def deviation(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> float:
    return float(np.abs(flat(first) - flat(second)).max())


def mean_gradients(outcomes: list[Outcome], sizes: list[int]) -> list[np.ndarray]:
    """Per step the mean of what the ranks had before the exchange, by their shares."""
    return [
        sum(
            size / sum(sizes) * flat(outcome.local[step]) for outcome, size in zip(outcomes, sizes, strict=True) if size
        )
        for step in range(STEPS)
    ]


def check_serial(outcomes: list[Outcome], sizes: list[int], scheme: SchemeRow, backend: str) -> None:
    want = serial(sizes, backend)
    got = outcomes[0].parameters[-1]
    if len(sizes) == 1 and not outcomes[0].payload[0]:  # nothing was exchanged
        assert digest(got) == digest(want), "one rank differs from plain training"
    assert deviation(got, want) < 1e-12


def check_average(outcomes: list[Outcome], sizes: list[int], scheme: SchemeRow, backend: str) -> None:
    want = run(SchemeRow("ModelAverage", ModelAverage, "serial", None), backend, sizes)
    assert digest(outcomes[0].parameters[-1]) == digest(want[0].parameters[-1])


def check_conserved(outcomes: list[Outcome], sizes: list[int], scheme: SchemeRow, backend: str) -> None:
    means = mean_gradients(outcomes, sizes)
    applied = [flat(gradients) for gradients in outcomes[0].applied]
    owed = sum(flat(outcome.residuals) for outcome in outcomes)
    assert np.abs(sum(applied) + owed - sum(means)).max() < 1e-13
    assert min(np.abs(a - m).max() for a, m in zip(applied, means, strict=True)) > 1e-3, "nothing was compressed"


def check_bounded(outcomes: list[Outcome], sizes: list[int], scheme: SchemeRow, backend: str) -> None:
    for step in range(STEPS):
        bound, mean, applied = np.zeros(0), np.zeros(0), in_order(outcomes[0].applied[step])
        for outcome, size in zip(outcomes, sizes, strict=True):
            own = size / sum(sizes) * in_order(outcome.local[step]) if size else np.zeros_like(applied)
            mean = own + (mean if mean.size else 0)
            chunks = np.split(own, range(QSGD_CHUNK, own.size, QSGD_CHUNK))
            bound = np.concatenate([np.full(c.size, np.linalg.norm(c)) for c in chunks]) + (bound if bound.size else 0)
        error = np.abs(applied - mean)
        assert (error <= bound / QSGD_LEVELS * (1 + 1e-12)).all()
        assert error.max() > 1e-3, "nothing was compressed"


def in_order(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays.values()])


def check_outer(outcomes: list[Outcome], sizes: list[int], scheme: SchemeRow, backend: str) -> None:
    """Against an oracle in test_diloco.py; here only what all schemes share."""


def defined_schemes() -> dict[str, type[DistributedOptimizer]]:
    """All schemes that some module of the two folders defines; base classes and what a name hides by _ left out."""
    defined = {}
    for package in (schemes, compression):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, kind in vars(importlib.import_module(info.name)).items():
                own = inspect.isclass(kind) and kind.__module__ == info.name and issubclass(kind, DistributedOptimizer)
                if own and not inspect.isabstract(kind):
                    defined[name] = kind
    return defined


def missing_places(names: Iterable[str]) -> list[str]:
    """What a scheme still lacks of all that belongs to it besides its own file."""
    text = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.partition("| scheme |")[2].partition("\n\n")[0].splitlines()[2:]]
    documented = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    tested = {row.name.partition("-")[0] for row in [*SCHEMES, *RANKS_DIFFER]}
    places = {
        "a line in deep500/distributed/schemes/__init__.py": set(schemes.by_name()),
        "a row in the table of docs/distributed.md": documented,
        "a row in tests/distributed/scheme_table.py": tested,
    }
    missing = [f"{name}: add {place}" for place, present in places.items() for name in sorted(set(names) - present)]
    return missing + [
        f"{name}: not a scheme, {place}" for place, there in places.items() for name in there - set(names)
    ]


def test_every_scheme_is_exported_documented_and_in_the_table() -> None:
    defined = defined_schemes()
    assert not missing_places(defined)
    undeclared = [name for name, kind in defined.items() if kind.waits is None]
    assert not undeclared, f"declare waits in {undeclared}"
    assert len(missing_places([*defined, "Another"])) == 3


CHECKS: dict[str, Callable[..., None]] = {
    "serial": check_serial,
    "average": check_average,
    "conserved": check_conserved,
    "bounded": check_bounded,
    "outer": check_outer,
}


@EACH
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("backend", BACKENDS)
def test_scheme_is_what_it_says(scheme: SchemeRow, ranks: int, backend: str) -> None:
    sizes = [rank + 2 for rank in range(ranks)]
    outcomes = run(scheme, backend, sizes)
    CHECKS[scheme.check](outcomes, sizes, scheme, backend)
    assert deviation(outcomes[0].parameters[-1], outcomes[0].parameters[0]) > 1e-3, "the parameters did not move"
    every = 2 if scheme.check == "outer" else 1
    for step in range(every - 1, STEPS, every):
        assert len({digest(outcome.parameters[step]) for outcome in outcomes}) == 1, (
            f"replicas differ after step {step}"
        )
    if scheme.payload is not None:
        assert {sum(outcome.payload) for outcome in outcomes} == {STEPS * scheme.payload(ranks)}


@pytest.mark.parametrize("name", ["ConsistentParameterServer", "DiLoCo-2", "ShardedOptimizer", "TopK", "PowerSGD"])
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "onnxruntime"])
def test_schemes_take_tensors_of_every_backend(name: str, backend: str) -> None:
    """One scheme for each way in which tensors pass: gradients, parameters, shares of both."""
    scheme, sizes = BY_NAME[name], [2, 3]
    backend += " native" * scheme.native
    outcomes = run(scheme, backend, sizes)
    CHECKS[scheme.check](outcomes, sizes, scheme, backend)
    assert digest(outcomes[0].parameters[-1]) == digest(outcomes[1].parameters[-1])


@EACH
def test_rank_without_samples_takes_part(scheme: SchemeRow) -> None:
    sizes = [3, 0, 2]
    outcomes = run(scheme, "reference", sizes)
    CHECKS[scheme.check](outcomes, sizes, scheme, "reference")
    assert len({digest(outcome.parameters[-1]) for outcome in outcomes}) == 1


@EACH
@pytest.mark.parametrize("backend", ["reference", "pytorch native"])
def test_resumed_training_has_the_same_bits(scheme: SchemeRow, backend: str) -> None:
    sizes = [1, 2, 3]
    undisturbed = run(scheme, backend, sizes)
    resumed = run(scheme, backend, sizes, seed=7, resume_at=3)  # and the ranks take turns in another order
    for straight, interrupted in zip(undisturbed, resumed, strict=True):
        assert [digest(step) for step in straight.parameters] == [digest(step) for step in interrupted.parameters]
        assert digest(straight.state) == digest(interrupted.state)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_schemes_on_mpi(ranks: int, on_ranks: Callable[..., list[Any]]) -> None:
    results = on_ranks(digest_and_weights, ranks, backend="reference")
    want = Threads(ranks).run(lambda comm: digest_and_weights(comm, "reference"))[0]
    for name in BY_NAME:
        assert len({result[name][0] for result in results}) == 1, f"{name}: replicas differ"
        assert np.abs(np.array(results[0][name][1]) - want[name][1]).max() < 1e-12, name
        assert results[0][name][2] == want[name][2], name


def nothing(names: Any, gradients: Any) -> list[Any]:
    return [0 * gradient for gradient in gradients]


@pytest.mark.parametrize(
    "scheme",
    [row for row in SCHEMES + RANKS_DIFFER if "native" not in row.check and "asyn" not in row.check],
    ids=lambda scheme: scheme.name,
)
def test_gradients_are_modified_in_every_scheme_or_refused(scheme: SchemeRow) -> None:
    """Scaled to nothing, gradient descent must stand still."""

    def work(comm: Any) -> tuple[str, bool]:
        base = make_base("reference", kind="GradientDescent", gradient_transform=nothing)
        before = parameters(base)
        try:
            optimizer = scheme.make(base, comm)
            optimizer.step(batches([3, 4], 1, comm.rank)[0])
        except InputError as error:
            return str(error), True
        with optimizer.evaluation():
            return "", deviation(parameters(base), before) < 1e-14

    for refusal, still in Threads(2).run(work):
        assert still and (not refusal or "gradient_transform" in refusal), refusal


class ByHand(DistributedOptimizer):
    """As the guide has it: the step applies the rule itself."""

    def step(self, inputs: Any) -> Any:
        base = self.base_optimizer
        outputs = base.backprop(inputs)
        for name, gradient_name in self.network.gradient(base.loss):
            value, gradient = self.network.fetch_tensors([name, gradient_name])
            self.network.feed_tensor(name, base.update_rule(self.communication.mean(gradient), value, name))
        return outputs


@pytest.mark.parametrize(
    "scheme",
    [row for row in SCHEMES + RANKS_DIFFER if "native" not in row.check and "asyn" not in row.check],
    ids=lambda scheme: scheme.name,
)
def test_clipping_reaches_every_scheme(scheme: SchemeRow) -> None:
    """Also those that have parts of gradients, and clip them themselves: at this norm hardly anything moves."""

    def work(comm: Any) -> float:
        base = make_base("reference", kind="GradientDescent", gradient_transform=ClipGradientNorm(1e-9))
        before, optimizer = parameters(base), scheme.make(base, comm)
        shares = [7, 0] if scheme.name == "Pipeline" else [3, 4]  # the first rank hands them on
        optimizer.step(batches(shares, 1, comm.rank)[0])
        with optimizer.evaluation():
            return deviation(parameters(base), before)

    assert max(Threads(2).run(work)) < 1e-8


@pytest.mark.parametrize("option", ["gradient_modifier", "gradient_transform"])
def test_a_step_that_applies_the_rule_itself_cannot_modify_gradients(option: str) -> None:
    scheme = ByHand(make_base("reference", **{option: nothing}))
    with pytest.raises(
        InputError, match=rf"got ByHand, whose step applies update_rule itself, with {option}; .*apply_"
    ):
        scheme.step(batches([3])[0])
    ByHand(make_base("reference")).step(batches([3])[0])
