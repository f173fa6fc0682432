"""ONNX Runtime under a checkpointing plan: nodes run twice and in order, by its profile; memory, by the system's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from deep500.networks import Network, add_loss, create
from deep500.tensors import numpy_dtype
from deep500.transformations.recomputation import plan_network, planned_step
from deep500.transformations.recomputation.training_step import live_bytes
from tests.conftest import load_backend
from tests.networks import custom_operators  # noqa: F401 - registers the operators
from tests.tolerances import assert_close
from tests.transformations.recomputation.test_execution import everything_again, train
from tests.transformations.recomputation.test_rewriting import inputs_of

pytestmark = pytest.mark.backend("onnxruntime")


def profiled_step(net: Network, plan: Any, batch: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What ONNX Runtime says of each node that it ran in one training step, in order."""
    ort = load_backend("onnxruntime")
    from deep500.frameworks.onnxruntime import executor as module

    make = module.session_options

    def profiling(*args: Any, **choices: Any) -> Any:
        made = make(*args, **choices)
        made.enable_profiling, made.profile_file_prefix = True, str(folder / "profile")
        made.optimized_model_filepath = str(folder / "model.onnx")
        return made

    executor = ort.from_model(net)
    monkeypatch.setattr(module, "session_options", profiling)
    executor.set_checkpointing(plan)
    executor.inference_and_backprop(inputs_of(net, batch))
    file = executor._trainings["loss"].program.session.end_profiling()
    events = [e for e in json.loads(Path(file).read_text()) if e["name"].endswith("_kernel_time")]
    return [{"name": e["name"].removesuffix("_kernel_time"), **e["args"]} for e in events]


@pytest.mark.parametrize(("name", "options", "share"), [("resnet", {"depth": 20}, 0.6), ("transformer", {}, 0.8)])
def test_what_runs_and_what_is_held_is_what_was_planned(
    name: str, options: dict[str, Any], share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its own profile: every repeated node, and the most bytes between the first use of a value and the last."""
    net, batch = add_loss(create(name, **options)), 8
    plan = plan_network(net, share, batch)
    _, again = planned_step(net, plan)
    ran = profiled_step(net, plan, batch, tmp_path, monkeypatch)
    names = [event["name"] for event in ran]
    copies = {node.name for node in again.network.nodes if node.name.startswith("again/")}
    written_out = {n for n in copies if again.network.node(n).op_type == "BatchNormalization"}
    assert len(copies) == len(again.repeated) > 5
    assert copies - written_out <= set(names)
    sizes: dict[str, int] = {}
    nodes = {node.name: node for node in onnx.load(tmp_path / "model.onnx", load_external_data=False).graph.node}
    for event in ran:
        values = [value for value in nodes[event["name"]].output if value]
        for value, described in zip(values, event["output_type_shape"], strict=True):
            ((dtype, shape),) = described.items()
            sizes[value] = int(np.prod(shape)) * numpy_dtype({"float": "float32"}.get(dtype, dtype)).itemsize
    held = max(live_bytes([_Ran(nodes[name]) for name in names], sizes, lasting=again.network.outputs))  # type: ignore
    assert held <= 1.01 * plan.predicted_peak
    assert held >= 0.9 * plan.predicted_peak


class _Ran:
    """A node that ran, as :func:`live_bytes` reads nodes."""

    def __init__(self, proto: onnx.NodeProto) -> None:
        self.reads, self.writes = ([value for value in side if value] for side in (proto.input, proto.output))


SCRIPT = """
import sys
import numpy as np
import deep500.frameworks.onnxruntime as ort
from deep500.networks import add_loss, create
from deep500.transformations.recomputation import plan_network

net = add_loss(create("resnet", depth=20))
executor = ort.from_model(net, threads=1)
if sys.argv[1] == "planned":
    executor.set_checkpointing(plan_network(net, 0.5, 64))
rng = np.random.default_rng(0)
inputs = {"input": rng.standard_normal((64, 3, 32, 32)).astype("float32"), "label": rng.integers(0, 10, 64)}
executor._training("loss")
status = lambda name: int(open("/proc/self/status").read().split(name + ":")[1].split()[0]) * 1024
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
executor.inference_and_backprop(inputs)
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peak memory of a process is read as Linux has it"
)
def test_a_fresh_process_needs_less_memory() -> None:
    """Resident memory of one step, kernels' own needs and the allocator's waste included."""
    load_backend("onnxruntime")

    def peak(mode: str) -> int:
        run = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True)
        return int(run.stdout)

    free, planned = peak("free"), peak("planned")
    assert 0 < planned < 0.7 * free  # 75 MB of 185 MB


def test_custom_operators_run_once_and_change_nothing() -> None:
    """Sessions between them follow the plan's order; Dropout draws the same in whichever session it is."""
    net = Network("custom")
    net.add_input("x", ("N", 6))
    value = "x"
    for i in range(3):
        net.add_parameter(f"w{i}", np.full((6, 6), 0.1, "float32"))
        net.add_node("MatMul", [value, f"w{i}"], [f"b{i}/product"])
        net.add_node("Tanh", [f"b{i}/product"], [f"b{i}/tanh"])
        net.add_node("Dropout", [f"b{i}/tanh"], [f"b{i}/dropped"])
        net.add_node("TestLeakyRelu", [f"b{i}/dropped"], [f"b{i}/leaky"], domain="deep500")
        net.add_node("Exp", [f"b{i}/leaky"], [f"b{i}/out"])
        value = f"b{i}/out"
    net.add_node("ReduceMean", [value], ["loss"], keepdims=0)
    net.add_output("loss")
    ort = load_backend("onnxruntime")
    free, planned = ort.from_model(net), ort.from_model(net)
    planned.set_checkpointing(everything_again(net, 4))
    inputs = inputs_of(net, 4)
    want, got = (train(executor, "momentum", inputs) for executor in (free, planned))
    assert want.keys() == got.keys() and "w0.grad" in want and np.any(want["w0.grad"])
    for name in want:
        assert_close(got[name], want[name], "exact", name)
    operators = [node.name for node in planned_step(net, planned.checkpointing)[1].network.nodes if node.domain]
    assert not any(name.startswith("again/") for name in operators)
