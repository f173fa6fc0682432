"""The cases of ``python -m tests.gpu``: functions that raise where something is wrong and return what they measured."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from deep500.networks import Network, add_loss, create
from tests.frameworks.test_zoo_gradients import ZOO, case

OPTIMIZERS = (
    "GradientDescent",
    "MomentumOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AdaGradOptimizer",
    "RMSPropOptimizer",
)
Facts = dict[str, Any]


class Case(NamedTuple):
    """A case: its part, its function, and whether it can run on the stand-in."""

    part: int
    function: Callable[[bool], Facts]
    fake: bool = False


@contextlib.contextmanager
def _card(fake: bool) -> Iterator[None]:
    if not fake:
        yield
        return
    from tests.gpu.standin import a_card

    with a_card():
        yield


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _distance(got: Any, want: Any) -> float:
    """Of lists of arrays: the largest difference over an array's largest value, or a millionth of the largest of all,
    since what is 0 by mathematics (the gradient of a key's bias) is rounding here and there."""
    got, want = [_array(x) for x in got], [_array(x) for x in want]
    sizes = [float(np.abs(x).max(initial=0)) for x in want]
    floor = 1e-6 * max(sizes, default=0.0) or 1e-30
    apart = [
        float(np.abs(a - b).max(initial=0)) / max(size, floor) for a, b, size in zip(got, want, sizes, strict=True)
    ]
    return max(apart, default=0.0)


def _program(*command: str) -> Callable[[bool], Facts]:
    def run(fake: bool) -> Facts:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr).strip().splitlines()[-1])
        return {"said": done.stdout.strip().splitlines()[-1][:120].replace("|", "/")}

    return run


def _energy(fake: bool) -> Facts:
    from deep500.measure.energy import find_sources

    sources, reason = find_sources()
    if "gpu:0" not in [source.name for source in sources]:
        raise RuntimeError(f"no counter of gpu:0 ({reason})")
    return {"sources": " ".join(source.name for source in sources)}


def _zoo(name: str, backend: str, fake: bool) -> Facts:
    """The card against the processor in float64; float32 with TF32 and without is measured on a card."""
    from deep500.networks import to_dtype
    from deep500.registry import load_backend

    network, feeds, _ = case(name)
    module = load_backend(backend)
    facts: Facts = {}
    settings = [("float64", "ieee"), *([] if fake else [("float32", "ieee"), ("float32", "tf32")])]
    for dtype, precision in settings:
        made = to_dtype(network, dtype)
        given = {n: v.astype(dtype) if v.dtype.kind == "f" else v for n, v in feeds.items()}
        plain = module.from_model(made)
        plain.inference_and_backprop(given)
        names = [f"{p}.grad" for p in made.trainable()]
        want = [_array(x) for x in plain.network.fetch_tensors(names)]
        with _card(fake):
            executor = module.from_model(made, "gpu", strict=True, precision=precision)
            executor.inference_and_backprop(given)
            got = [_array(x) for x in executor.network.fetch_tensors(names)]
        worst = _distance(got, want)
        facts[f"{dtype} {precision}"] = f"{worst:.1e}"
        if dtype == "float64" and worst > 1e-9:
            raise AssertionError(f"gradients differ by {worst:.1e}; expected 1e-9")
    return facts


def _optimizer(name: str, fake: bool) -> Facts:
    """Five steps, with the state saved and loaded after the third."""
    from deep500.frameworks import pytorch

    network = add_loss(create("mlp", shape=(4,), classes=3))
    feeds = {"input": np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4), "label": np.array([0, 2])}

    def train(device: str) -> list[np.ndarray]:
        executor = pytorch.from_model(network, device, strict=True)
        optimizer = getattr(pytorch, name)(executor)
        for step in range(5):
            optimizer.step(feeds)
            if step == 2:
                optimizer.load_state_dict(optimizer.state_dict())
        return [_array(x) for x in executor.network.fetch_tensors(network.trainable())]

    want = train("cpu")
    with _card(fake):
        got = train("gpu")
    worst = _distance(got, want)
    if worst > 1e-3:
        raise AssertionError(f"parameters differ by {worst:.1e}; expected 1e-3")
    return {"distance": f"{worst:.1e}"}


def _recomputation(fake: bool) -> Facts:
    """A step under a plan on the card: the gradients of a step without one, within its budget."""
    import deep500 as d5
    from deep500.frameworks import pytorch

    network, make = _resnet20()
    feeds = make(16)
    executor = pytorch.from_model(network, "gpu", strict=True, deterministic=True)
    names = [f"{p}.grad" for p in network.trainable()]
    executor.inference_and_backprop(feeds)
    want = [_array(x) for x in executor.network.fetch_tensors(names)]
    before = executor.step_memory(feeds)
    plan = d5.plan_checkpointing(executor, budget=0.7, inputs=feeds)
    executor.set_checkpointing(plan)
    executor.inference_and_backprop(feeds)
    worst = _distance(executor.network.fetch_tensors(names), want)
    held = executor.step_memory(feeds) / before
    if worst > 1e-4 or held > 0.7:
        raise AssertionError(f"gradients differ by {worst:.1e}, the share held is {held:.2f}; expected 1e-4 and .7")
    return {"distance": f"{worst:.1e}", "share held": f"{held:.2f}"}


def _nccl(fake: bool) -> Facts:
    """One rank under torchrun, whose sums and broadcasts pass through nccl on its card; gloo on the stand-in."""
    code = (
        "import numpy as np; from deep500.frameworks.pytorch.distributed import TorchDistributed;"
        f"comm = TorchDistributed(backend='{'gloo' if fake else 'nccl'}');"
        "print('sum', float(comm.all_reduce(np.arange(6.0)).sum())); comm.close()"
    )
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "--no-python")
    return _program(*launcher, sys.executable, "-c", code)(fake)


def _resnet20() -> tuple[Network, Callable[[int], Facts]]:
    network = add_loss(create("resnet", shape=(3, 32, 32), depth=20, classes=10))
    rng = np.random.default_rng(0)
    return network, lambda n: {
        "input": rng.normal(size=(n, 3, 32, 32)).astype("float32"),
        "label": rng.integers(0, 10, n),
    }


def _speed(batch: int, precision: str, compile: bool, fake: bool) -> Facts:
    """A training step of ResNet-20 against the same module in a loop by hand, in turns; peak memory."""
    import torch

    from deep500.frameworks import pytorch

    network, make = _resnet20()
    executor = pytorch.from_model(network, "gpu", strict=True, precision=precision, compile=compile)
    feeds = {name: torch.from_numpy(array).cuda() for name, array in make(batch).items()}
    module = executor.module if not compile else torch.compile(executor.module)
    outputs = list(network.outputs)

    def ours() -> None:
        executor.inference_and_backprop(feeds)

    def bare() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        module(*feeds.values())[outputs.index("loss")].backward()

    taken: dict[Callable[[], None], list[float]] = {ours: [], bare: []}
    for turn in range(33):
        for function, seconds in taken.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            function()
            torch.cuda.synchronize()
            if turn >= 3:
                seconds.append(time.perf_counter() - begin)
    ratios = sorted(a / b for a, b in zip(taken[ours], taken[bare], strict=True))
    return {
        "ratio": f"{statistics.median(ratios):.3f} ({ratios[3]:.3f} to {ratios[-4]:.3f})",
        "ms": f"{1e3 * statistics.median(taken[ours]):.2f}",
        "MiB per step": f"{executor.step_memory(feeds) / 2**20:.1f}",
    }


def _resnet44(fake: bool) -> Facts:
    """Steps per second at batch 128, and joules per step."""
    from deep500.frameworks import pytorch
    from deep500.measure.energy import EnergyMeter

    network = add_loss(create("resnet", shape=(3, 32, 32), depth=44, classes=10))
    executor = pytorch.from_model(network, "gpu", strict=True)
    optimizer = pytorch.MomentumOptimizer(executor)
    rng = np.random.default_rng(0)
    array = rng.normal(size=(128, 3, 32, 32)).astype("float32")
    feeds = {"input": array, "label": rng.integers(0, 10, 128)}
    for _ in range(5):
        optimizer.step(feeds)
    executor.synchronize()
    steps, begin = 0, time.perf_counter()
    with EnergyMeter() as meter:
        while time.perf_counter() - begin < 3:
            optimizer.step(feeds)
            steps += 1
            if steps % 10 == 0:
                executor.synchronize()
        executor.synchronize()
    seconds = time.perf_counter() - begin
    return {"steps per second": f"{steps / seconds:.1f}", "energy": meter.energy, "steps": steps}


def _pytest(*arguments: str) -> Callable[[bool], Facts]:
    options = ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default"]
    return _program(sys.executable, "-m", "pytest", *options, *arguments)


def _cases() -> dict[str, Case]:
    def judged(backend: str) -> Callable[[bool], Facts]:
        options = ["--check", "--backend", backend, "--device", "gpu", "--sample", "300"]
        return _program(sys.executable, "-m", "tests.conformance", *options)

    cases = {
        "driver": Case(1, _program("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")),
        "nvcc": Case(1, _program("nvcc", "--version")),
        "energy counter": Case(1, _energy),
        "tests marked gpu": Case(1, _pytest("tests/frameworks/test_pytorch.py", "-m", "gpu")),
        "operators in CUDA": Case(1, _pytest("tests/operators/cpp/test_cuda.py")),
        "conformance of pytorch": Case(1, judged("pytorch")),
    }
    for name in ZOO:
        cases[f"zoo {name} pytorch"] = Case(2, partial(_zoo, name, "pytorch"), True)
        cases[f"zoo {name} jax"] = Case(2, partial(_zoo, name, "jax"))
    for name in OPTIMIZERS:
        cases[f"optimizer {name}"] = Case(2, partial(_optimizer, name), True)
    for batch in (1, 32, 256):
        for precision in ("ieee", "tf32"):
            cases[f"speed batch {batch} {precision}"] = Case(2, partial(_speed, batch, precision, False))
    cases["speed batch 32 ieee compiled"] = Case(2, partial(_speed, 32, "ieee", True))
    cases["resnet44 batch 128"] = Case(2, _resnet44)
    recipe = (sys.executable, "-m", "deep500", "run", "digits_lenet", "--device", "gpu", "--strict")
    cases["digits_lenet reaches its 97 %"] = Case(2, _program(*recipe))
    longer = [*recipe[:3], "run", "digits32_resnet20", *recipe[5:], "--open", "epochs=3"]
    cases["digits32_resnet20 for three epochs"] = Case(2, _program(*longer))
    cases["recomputation plan"] = Case(2, _recomputation)
    cases["one rank over nccl"] = Case(2, _nccl, True)
    cases["conformance of jax"] = Case(3, judged("jax"))
    return cases


CASES = _cases()


def run(name: str, fake: bool) -> Facts:
    """Run one case; what it returns can be written as JSON."""
    return {key: str(value) for key, value in CASES[name].function(fake).items()}
