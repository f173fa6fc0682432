"""Files of optimized networks: versions, metadata, names; what exporters write; what fails on the way."""

from __future__ import annotations

import dataclasses
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from deep500 import cli
from deep500.errors import MissingBackend, UnsupportedOperator
from deep500.measure.statistics import median_interval, paired_ratio
from deep500.networks import Network, add_loss
from deep500.transformations.substitutions import NotEquivalent, command, file_times, optimize
from deep500.transformations.substitutions.cost import Analytic
from deep500.transformations.substitutions.cost.database import Database, Place, PriceRow
from deep500.transformations.substitutions.cost.measured import doubtful
from deep500.transformations.substitutions.cost.ranking import Remeasured, _against_first
from deep500.transformations.substitutions.delivery import KEY
from deep500.transformations.substitutions.report import readable
from deep500.transformations.substitutions.rules.rule_file import read
from tests.benchmarks.exported.models import MODELS
from tests.transformations.substitutions.samples import branches, optimized, saved

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")


class Branches(torch.nn.Module):
    """Three products of one input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(16, 16, bias=False) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return sum(torch.relu(part(x)) for part in self.parts)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the legacy exporter: one symbolic size, two, and float16."""
    folder = tmp_path_factory.mktemp("exports")
    cases = {
        "one": (torch.zeros(2, 16), Branches(), {0: "N"}),
        "two": (torch.zeros(2, 3, 16), Branches(), {0: "N", 1: "T"}),
        "half": (torch.zeros(2, 16).half(), Branches().half(), {0: "N"}),
    }
    for name, (example, module, axes) in cases.items():
        options: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": axes, "y": axes}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter, about itself
            path, options["opset_version"] = folder / f"{name}.onnx", 17
            torch.onnx.export(module.eval(), (example,), path, dynamo=False, **options)
    return folder


@pytest.fixture
def model(exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    monkeypatch.chdir(tmp_path)
    for file in exports.iterdir():
        shutil.copy(file, tmp_path)
    return onnx.load("one.onnx")


def run(name: str = "out.onnx", dtype: str = "float32", *shape: int) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=shape or (5, 16)).astype(dtype)
    return ort.InferenceSession(name, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def optimize_file(name: str, *words: str) -> int:
    return cli.main(["optimize", name, "-o", "out.onnx", "--no-measure", *words])


def operators(name: str = "out.onnx") -> list[str]:
    return [node.op_type for node in onnx.load(name).graph.node]


def behind(model: onnx.ModelProto, *nodes: onnx.NodeProto) -> None:
    """Nodes from ``before`` to the output, behind all others."""
    output = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["before" if name == output else name for name in node.output]
    model.graph.node.extend(nodes)


# -- versions ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("opset", "ir"), [(13, 8), (15, 9), (17, 10), (20, 9), (21, 10)])
def test_opset_and_ir_version_stay_and_onnxruntime_opens_the_file(opset: int, ir: int, model: onnx.ModelProto) -> None:
    model.ir_version, model.opset_import[0].version = ir, opset
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx") == 0
    written = onnx.load("out.onnx")
    assert (written.opset_import[0].version, written.ir_version) == (opset, ir) and operators().count("MatMul") == 1
    np.testing.assert_allclose(run(), run("in.onnx"), rtol=1e-5, atol=1e-6)


def test_what_stays_is_the_same_bytes(model: onnx.ModelProto) -> None:
    model.metadata_props.add(key="author", value="somebody")
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx", "--budget", "0") == 0
    assert Path("out.onnx").read_bytes() == Path("in.onnx").read_bytes()
    assert optimize_file("in.onnx", "--budget", "0", "--opset", "21", "--ir-version", "10") == 0
    written = onnx.load("out.onnx")
    assert (written.opset_import[0].version, written.ir_version) == (21, 10) and KEY not in str(written.metadata_props)


def test_external_data_go_with_the_bytes(model: onnx.ModelProto) -> None:
    onnx.save_model(model, "in.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    Path("other").mkdir()
    assert cli.main(["optimize", "in.onnx", "-o", "other/out.onnx", "--budget", "0", "--no-measure"]) == 0
    np.testing.assert_array_equal(run("other/out.onnx"), run("in.onnx"))
    Path("other/weights.bin").write_bytes(b"somebody else's")
    assert cli.main(["optimize", "in.onnx", "-o", "other/out.onnx", "--budget", "0", "--no-measure"]) == 2


def test_external_data_of_a_file_that_changes_are_in_the_result(model: onnx.ModelProto) -> None:
    onnx.save_model(model, "in.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    expected = run("in.onnx")
    assert cli.main(["optimize", "in.onnx", "-o", "out.onnx", "--no-measure", "--backend", "reference"]) == 0
    assert KEY in str(onnx.load("out.onnx").metadata_props), "something changed"
    Path("weights.bin").unlink()
    np.testing.assert_allclose(run("out.onnx"), expected, rtol=1e-4, atol=1e-5)


def test_the_lowest_opset_that_the_result_allows() -> None:
    network = branches()
    assert network.to_onnx().opset_import[0].version == 21 and network.to_onnx(opset=13).ir_version == 7
    network.add_node("Gelu", "y", "z")
    network.add_output("z")
    assert network.to_onnx(opset=20).opset_import[0].version == 20
    assert Network.from_onnx(network.to_onnx()) == network


def test_versions_that_do_not_exist(model: onnx.ModelProto, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize_file("one.onnx", "--opset", "99") == 2 and "got opset 99" in capsys.readouterr().err
    assert optimize_file("one.onnx", "--ir-version", "99") == 2 and "got IR version 99" in capsys.readouterr().err
    assert not Path("out.onnx").exists()


# -- metadata ---------------------------------------------------------------------------------------------------------
def test_what_a_file_says_about_itself_stays(model: onnx.ModelProto) -> None:
    model.producer_version, model.domain, model.model_version, model.doc_string = "7", "org.example", 3, "a model"
    model.metadata_props.add(key="author", value="somebody")
    last = model.graph.node[-1]
    last.doc_string, model.graph.input[0].doc_string, model.graph.doc_string = "the sum", "rows", "a graph"
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx", "--history", "h.json") == 0
    written = onnx.load("out.onnx")
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        assert getattr(written, field) == getattr(model, field), field
    props = {entry.key: entry.value for entry in written.metadata_props}
    assert props["author"] == "somebody" and '"times": ' in props[KEY] and "matmul" in props[KEY]
    assert (written.graph.name, written.graph.doc_string) == (model.graph.name, "a graph")
    assert written.graph.input[0].doc_string == "rows"
    assert [node.doc_string for node in written.graph.node if node.name == last.name] == ["the sum"]
    assert cli.main(["optimize", "in.onnx", "-o", "again.onnx", "--replay", "h.json"]) == 0
    assert Path("again.onnx").read_bytes() == Path("out.onnx").read_bytes()


# -- what exporters write ---------------------------------------------------------------------------------------------
def test_two_symbolic_sizes(model: onnx.ModelProto) -> None:
    assert optimize_file("two.onnx") == 0 and operators().count("MatMul") == 1
    for shape in ((1, 1, 16), (5, 7, 16), (2, 3, 16)):
        np.testing.assert_allclose(run("out.onnx", "float32", *shape), run("two.onnx", "float32", *shape), rtol=1e-5)


def test_sizes_without_names(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx") == 0 and operators().count("MatMul") == 1
    np.testing.assert_allclose(run(), run("in.onnx"), rtol=1e-5, atol=1e-6)


def test_float16(model: onnx.ModelProto) -> None:
    assert optimize_file("half.onnx") == 0 and operators().count("MatMul") == 1
    np.testing.assert_allclose(run("out.onnx", "float16"), run("half.onnx", "float16"), rtol=2e-2, atol=1e-2)


def test_quantization_behind_a_rewrite(model: onnx.ModelProto) -> None:
    arrays = {"scale": np.float32(0.05), "zero": np.int8(0)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    quantize = helper.make_node("QuantizeLinear", ["before", "scale", "zero"], ["q"])
    behind(model, quantize, helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]))
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx") == 0 and operators().count("MatMul") == 1
    np.testing.assert_allclose(run(), run("in.onnx"), atol=1e-6)


def test_operators_of_other_domains(model: onnx.ModelProto, capsys: pytest.CaptureFixture[str]) -> None:
    behind(model, helper.make_node("Trilu", ["before"], ["y"], domain="com.microsoft"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx") == 0 and operators().count("MatMul") == 1
    assert "in their own precision, on onnxruntime" in capsys.readouterr().out
    np.testing.assert_allclose(run(), run("in.onnx"), rtol=1e-5, atol=1e-6)
    model.graph.node[-1].domain = model.opset_import[-1].domain = "nobody.knows"
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx") == 0 and "failed: UnsupportedOperator" in capsys.readouterr().out
    assert Path("out.onnx").read_bytes() == Path("in.onnx").read_bytes(), "what nobody can check stays"


FORMS = ("edited", "written anew", "onnxscript")


@pytest.mark.parametrize(("first", "again"), [*((form, form) for form in FORMS), (None, None), ("edited", None)])
def test_the_fastest_form_that_is_faster_than_the_file_is_written(
    first: str | None,
    again: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file is read with its fused operators taken apart; what is faster than that may be slower than the file.

    What is faster in some sessions only is not faster.
    """
    fastest = again
    monkeypatch.chdir(tmp_path)
    MODELS["onnx runtime's operators"](Path("in.onnx"))
    model = onnx.load("in.onnx")
    model.doc_string = "simplified"

    def simplified(_: Any, failed: dict[str, str], seconds: float) -> dict[str, bytes]:
        failed["onnxsim"] = "no such operator"
        assert 0 < seconds <= file_times.OTHERS * 30, "a share of what the search left"
        return {"onnxscript": model.SerializeToString()}

    monkeypatch.setattr(file_times, "simplified", simplified)
    monkeypatch.setattr(file_times, "INSTANCES", 2)
    asked: list[list[str]] = []

    def in_turns(functions: dict[str, Any], *_: Any, **__: Any) -> Any:
        assert all("y" in run() for run in functions.values()), "every form runs"
        assert {len(run.runs) for run in functions.values()} == {2}, "one would tell where it lies"
        asked.append(list(functions))
        winner = first if len(asked) == 1 else again
        fast, slow = np.linspace(1.0, 1.1, 30), np.linspace(1.9, 2.2, 30)
        return against_first(
            {"file": np.full(30, 2.0), **{n: fast if n == winner else slow for n in functions if n != "file"}}
        )

    monkeypatch.setattr(file_times, "in_turns", in_turns)

    def optimize_network(network: Network, _: str, budget: float, **__: Any) -> Any:
        assert budget == 30 * (1 - command.FILES), "the forms are within the budget as well"
        return claimed(network)

    monkeypatch.setattr(command, "optimize_network", optimize_network)
    assert cli.main(["optimize", "in.onnx", "-o", "out.onnx"]) == 0
    assert asked == [["file", *FORMS], *([["file", first]] if first else [])]
    said, written = capsys.readouterr().out, onnx.load("out.onnx")
    same = Path("out.onnx").read_bytes() == Path("in.onnx").read_bytes()
    assert same == (fastest is None) == ("but not than the file" in said)
    assert "onnxsim took no part: no such operator" in said
    assert (written.doc_string == "simplified") == (fastest == "onnxscript") == ("the file is onnxscript's" in said)
    assert ("nodes stay as they were" in said) == (fastest == "edited")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "out.onnx"], "nothing else is left"


def against_first(samples: dict[str, Any]) -> Remeasured:
    """What timing would say of samples."""
    intervals = {name: median_interval(taken) for name, taken in samples.items()}
    control = paired_ratio(samples["file"], samples["file"])
    return Remeasured(intervals, _against_first(samples, control, 0.01), control, 30)


def claimed(network: Network) -> Any:
    """A result that says it is faster than what was read."""
    found = optimized(network, backend="onnxruntime")
    assert found.chosen is not None
    return dataclasses.replace(found, measured={found.chosen: "measured elsewhere"})


def test_training_with_a_parameter_that_does_not_reach_the_loss() -> None:
    network = add_loss(branches(), "mean_squared_error", label="target")
    network.add_parameter("head", np.ones((16, 3), "float32"))
    network.add_node("MatMul", ["y", "head"], ["second"])
    network.add_output("second")
    result = optimized(network, training=True)
    assert result.chosen and result.equivalence is not None and result.equivalence.gradients is not None


# -- constants, failures, prices --------------------------------------------------------------------------------------
def test_constants_that_agree_after_rounding_only_are_two() -> None:
    from deep500.transformations.substitutions.graph.store import Store

    store, third = Store(), np.float64(1) / 3
    first = store.constant(np.float32(third), third)
    assert first != store.constant(np.float32(third)) and first == store.constant(np.float32(third), third)
    assert store.constant(np.float32(0.5)) == store.constant(np.float32(0.5), np.float64(0.5))


@pytest.mark.parametrize("error", [NotEquivalent, UnsupportedOperator])
def test_after_a_candidate_that_fails_comes_the_next(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    check, calls = optimize.check_equivalent, []

    def fails_once(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise error("as planned")
        return check(*arguments)

    monkeypatch.setattr(optimize, "check_equivalent", fails_once)
    result = optimized(branches())
    assert result.chosen == "candidate 2" and result.reason == f"candidate 1 failed: {error.__name__}: as planned"


def test_when_all_fail_the_original_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise NotEquivalent("as planned")

    monkeypatch.setattr(optimize, "check_equivalent", fails)
    network = branches()
    result = optimized(network)
    assert result.chosen is None and saved(result.network) == saved(network) and "as planned" in str(result)


def test_prices_that_are_doubtful_are_replaced() -> None:
    database, place = Database(":memory:"), Place("reference", "1", "m", "cpu", 1)
    busy, quiet = PriceRow(1e-3, 6e-4, 30, "2026-01-01"), PriceRow(5e-4, 1e-6, 30, "2026-01-02")
    assert doubtful(busy) and not doubtful(quiet)
    database.add(place, "relu", busy)
    assert database.add(place, "relu", quiet) == busy, "what is stored first stays"
    assert database.add(place, "relu", quiet, replace=True) == quiet == database.load(place)["relu"]


# -- the page ---------------------------------------------------------------------------------------------------------
def test_the_page_shows_both_graphs_and_readable_rules(model: onnx.ModelProto) -> None:
    assert optimize_file("one.onnx", "--report", "page.html") == 0
    text = Path("page.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 2 and "@" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text), "it loads nothing"
    count = len(model.graph.node) + len(operators())
    assert text.count("<rect") <= count and 'class="changed"' in text and "<g>" in text
    assert optimize_file("one.onnx", "--report", "same.html", "--budget", "0") == 0
    same = Path("same.html").read_text(encoding="utf-8")
    assert 'class="changed"' not in same and "The network stays as it was" in same


def test_rules_are_readable() -> None:
    texts = [readable(rule) for rule in read()]
    assert all(" = " in text and "(matmul" not in text and "(conv " not in text for text in texts)
    assert "[x1 @ x2, x1 @ x3] = x1 @ [x2, x3]" in texts


# -- bad input --------------------------------------------------------------------------------------------------------
def test_a_weight_that_two_nodes_share(model: onnx.ModelProto) -> None:
    first, *others = [node for node in model.graph.node if node.op_type == "MatMul"]
    others[0].input[1] = first.input[1]
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx") == 0
    np.testing.assert_allclose(run(), run("in.onnx"), rtol=1e-5, atol=1e-6)


def test_an_initializer_that_is_also_an_input(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(info)
    onnx.save(model, "in.onnx")
    assert optimize_file("in.onnx", "--budget", "0") == 0
    assert Path("out.onnx").read_bytes() == Path("in.onnx").read_bytes()


def test_a_price_store_that_cannot_be_written(model: onnx.ModelProto, capsys: pytest.CaptureFixture[str]) -> None:
    Path("costs").mkdir()
    words = ["optimize", "one.onnx", "-o", "out.onnx", "--database", "costs", "--size", "N=2", "--budget", "1"]
    words += ["--backend", "reference"]
    assert cli.main(words) == 2 and "cost database" in capsys.readouterr().err
    assert not Path("out.onnx").exists()


def test_a_backend_that_disappears_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise MissingBackend("got no backend; expected it as before")

    monkeypatch.setattr(optimize, "Measured", lambda backend, *_, **__: Analytic(backend))
    monkeypatch.setattr(optimize, "remeasure", gone)
    network = branches()
    result = optimized(network, measure=True)
    assert result.chosen is None and "original failed: MissingBackend" in result.reason
    assert saved(result.network) == saved(network)
