"""Files of which a part was rewritten: everything outside of that part is the same bytes, in the same order."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deep500 import cli
from deep500.networks import Network
from deep500.transformations.substitutions import Optimized, delivery, optimize_network
from deep500.transformations.substitutions.delivery import KEY, Source, deliver
from deep500.transformations.substitutions.equivalence import relative_error
from deep500.transformations.substitutions.splicing import Splice

ort = pytest.importorskip("onnxruntime")

WIDTH, PARTS = 8, 3
UNARY = ("Sin", "Erf", "Softplus", "Softmax", "LeakyRelu", "Cos", "Atan", "Sign")
SHARED = ("name", "doc_string", "input", "output", "metadata_props", "quantization_annotation")


class RandomFile:
    """A file of operators that no rule touches, with products of one input somewhere that become one.

    Attributes:
        model: the file.
        inside: outputs of the nodes that may change.
    """

    def __init__(self, seed: int) -> None:
        self.chance, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.arrays, self.count = list[onnx.NodeProto](), list[TensorProto](), 0
        self.inside, self.values = set[str](), ["x"]
        place = self.chance.randrange(4)
        for step in range(6):
            if step == place:
                self._products()
            self._step()
        rows = self.chance.choice(["N", 3])
        outputs = [self.values[-1], *self.chance.sample(self.values[1:-1], self.chance.randrange(2))]
        make = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "a graph",
            [make("x", TensorProto.FLOAT, [rows, WIDTH])],
            [make(name, TensorProto.FLOAT, [rows, WIDTH]) for name in dict.fromkeys(outputs)],
            self.arrays,
            "of random operators",
            [make(name, TensorProto.FLOAT, [rows, WIDTH]) for name in self.values[1:]],
        )
        imports = [helper.make_opsetid("", self.chance.choice([13, 17, 21])), helper.make_opsetid("local", 1)]
        body = [_node("Sin", ["a"], "b"), _node("Max", ["a", "b"], "c")]
        bent = helper.make_function("local", "Bent", ["a"], ["c"], body, imports[:1])
        self.model = helper.make_model(graph, opset_imports=imports, functions=[bent], ir_version=10)
        self.model.producer_name, self.model.doc_string = "somebody", "a model"
        self.model.metadata_props.add(key="author", value="somebody")

    def _fresh(self) -> str:
        self.count += 1
        return f"v/{self.count}:0"

    def _add(self, op_type: str, reads: list[str], **options: Any) -> str:
        name = self._fresh()
        self.nodes.append(_node(op_type, reads, name, doc_string=f"node {self.count}", **options))
        if self.chance.random() < 0.3:
            self.nodes[-1].name = ""  # as some exporters write
        return name

    def _array(self, *shape: int) -> str:
        name = f"array.{len(self.arrays)}"
        self.arrays.append(numpy_helper.from_array(self.rng.normal(size=shape).astype("float32") / 3, name))
        return name

    def _products(self) -> None:
        before = len(self.nodes)
        shared = self._array(WIDTH, WIDTH)
        weights = [shared, *(self._array(WIDTH, WIDTH) for _ in range(PARTS - 1))]
        parts = [self._add("MatMul", [self.values[-1], weight]) for weight in weights]
        total = parts[0]
        for part in parts[1:]:
            total = self._add("Add", [total, part])
        self.values.append(total)
        self.inside |= {name for node in self.nodes[before:] for name in node.output}
        self.values.append(self._add("MatMul", [self._add("Sin", [total]), shared]))  # a weight that branches share

    def _step(self) -> None:
        value, kind = self.values[-1], self.chance.randrange(6)
        if kind == 0:
            name = self._add("Bent", [value], domain="local")
        elif kind == 1:
            constant = self._fresh()
            array = numpy_helper.from_array(self.rng.normal(size=WIDTH).astype("float32"))
            self.nodes.append(helper.make_node("Constant", [], [constant], value=array))
            name = self._add("Max", [value, constant])
        elif kind == 2:
            branches = [
                helper.make_graph(
                    [_node(op, [value], f"{value}/{op}")],
                    op,
                    [],
                    [helper.make_tensor_value_info(f"{value}/{op}", TensorProto.FLOAT, None)],
                )
                for op in ("Sin", "Cos")
            ]
            self.arrays.append(numpy_helper.from_array(np.array(True), f"switch.{self.count}"))
            switch = self.arrays[-1].name
            name = self._add("If", [switch], then_branch=branches[0], else_branch=branches[1])
        elif kind == 3:
            name = self._add("Min", [value, self._add("Cos", [value])])
            self._add("Sin", [value])  # nobody reads it
        else:
            name = self._add(self.chance.choice(UNARY), [value])
        self.values.append(name)


def _node(op_type: str, reads: list[str], output: str, **options: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, reads, [output], f"the {op_type} of {output}", **options)


def deliver_file(path: Path, out: Path, **options: Any) -> tuple[Optimized, str]:
    """A file optimized by formula into another."""
    network = Network.from_onnx(path)
    found = optimize_network(network, "onnxruntime", measure=False, **options)
    return found, deliver(found.network, found.history, Source.read(path, network), out)


def answers(path: Path, rows: int = 3, width: int = WIDTH) -> list[np.ndarray]:
    x = np.random.default_rng(0).normal(size=(rows, width)).astype("float32")
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})


def serialized(messages: Any) -> list[bytes]:
    return [message.SerializeToString(deterministic=True) for message in messages]


def assert_only_inside_changed(before: onnx.ModelProto, after: onnx.ModelProto, inside: set[str]) -> None:
    """All of a file but the nodes that give some values, and arrays that only these read, is there as it was."""
    for field in ("ir_version", "producer_name", "doc_string", "opset_import", "functions", "training_info"):
        assert getattr(before, field) == getattr(after, field), field
    for field in SHARED:
        assert getattr(before.graph, field) == getattr(after.graph, field), field
    assert [p for p in after.metadata_props if p.key != KEY] == list(before.metadata_props)
    outside = [node for node in before.graph.node if inside.isdisjoint(node.output)]
    stay = set(serialized(outside))
    assert [text for text in serialized(after.graph.node) if text in stay] == serialized(outside)
    read = {name for node in outside for name in node.input}
    for field in ("initializer", "value_info"):
        old, new = getattr(before.graph, field), getattr(after.graph, field)
        fixed = [m for m in old if (m.name in read if field == "initializer" else m.name not in inside)]
        names = {message.name for message in fixed}
        assert serialized(m for m in new if m.name in names) == serialized(fixed), field


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 100), marks=pytest.mark.long)])
def test_nothing_outside_of_what_changed_is_touched(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        made = RandomFile(seed)
        onnx.save(made.model, tmp_path / "in.onnx")
        found, words = deliver_file(tmp_path / "in.onnx", tmp_path / "out.onnx", budget=5)
        assert found.chosen and words.startswith("in the file"), words
        after = onnx.load(tmp_path / "out.onnx")
        products = sum(node.op_type in ("MatMul", "Gemm") for node in after.graph.node)
        assert products == 2, "three became one, and one stays"
        assert_only_inside_changed(made.model, after, made.inside)
        for got, expected in zip(answers(tmp_path / "out.onnx"), answers(tmp_path / "in.onnx"), strict=True):
            assert relative_error(got, expected) < 1e-5


def products(*behind: onnx.NodeProto, kind: str = "float32", width: int = WIDTH) -> onnx.ModelProto:
    """Three products of one input and their sum ``s``, with nodes behind."""
    rng, number = np.random.default_rng(0), helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    names = [f"w{n}" for n in range(PARTS)]
    nodes = [_node("MatMul", ["x", name], f"p{name}") for name in names]
    nodes += [_node("Add", ["pw0", "pw1"], "t"), _node("Add", ["t", "pw2"], "s"), *behind]
    rows = helper.make_tensor_value_info("x", number, ["N", width])
    results = [helper.make_tensor_value_info("y", number, ["N", width])]
    arrays = [numpy_helper.from_array(rng.normal(size=(width, width)).astype(kind) / 3, name) for name in names]
    graph = helper.make_graph(nodes, "products", [rows], results, arrays)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def changed(model: onnx.ModelProto, tmp_path: Path, inside: str = "pw0 pw1 pw2 t s") -> onnx.ModelProto:
    """The file after it was optimized; all but the products is as it was, and ONNX Runtime gets the same of it."""
    onnx.save(model, tmp_path / "in.onnx")
    found, words = deliver_file(tmp_path / "in.onnx", tmp_path / "out.onnx", budget=5)
    assert found.chosen and words.startswith("in the file"), words
    after = onnx.load(tmp_path / "out.onnx")
    assert [node.op_type for node in after.graph.node].count("MatMul") == 1
    assert_only_inside_changed(model, after, set(inside.split()))
    kind = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    for rows in (1, 5):
        x = np.random.default_rng(1).normal(size=(rows, WIDTH)).astype(kind)
        got, expected = (ort.InferenceSession(str(tmp_path / f"{n}.onnx")).run(None, {"x": x}) for n in ("out", "in"))
        for one, other in zip(got, expected, strict=True):
            assert relative_error(one, other) < (1e-2 if kind == np.float16 else 1e-5)
    return after


def test_float16(tmp_path: Path) -> None:
    after = changed(products(_node("Erf", ["s"], "y"), kind="float16"), tmp_path)
    assert {tensor.data_type for tensor in after.graph.initializer} == {TensorProto.FLOAT16}


def test_quantization_behind_and_before_what_changes(tmp_path: Path) -> None:
    pair = [
        helper.make_node("QuantizeLinear", ["s", "scale", "zero"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], "dequantize"),
    ]
    model = products(*pair)
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.float32(0.05), "scale"), numpy_helper.from_array(np.int8(0), "zero")]
    )
    annotation = model.graph.quantization_annotation.add(tensor_name="s")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    after = changed(model, tmp_path)
    assert [node.op_type for node in after.graph.node[-2:]] == ["QuantizeLinear", "DequantizeLinear"]


@pytest.mark.parametrize("op_type", ["Trilu", "QuickGelu"])  # one that stays whole when it is read, one taken apart
def test_operators_of_onnx_runtime(op_type: str, tmp_path: Path) -> None:
    after = changed(products(helper.make_node(op_type, ["s"], ["y"], "theirs", domain="com.microsoft")), tmp_path)
    assert (after.graph.node[-1].op_type, after.graph.node[-1].domain) == (op_type, "com.microsoft")


def test_what_is_read_inside_may_be_an_output_too(tmp_path: Path) -> None:
    model = products(_node("Sin", ["s"], "y"))
    model.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, ["N", WIDTH]))
    after = changed(model, tmp_path)
    assert [output.name for output in after.graph.output] == ["y", "s"]


def test_a_constant_that_is_an_input_stays_one(tmp_path: Path) -> None:
    model = products(_node("Sin", ["s"], "y"))
    model.graph.input.append(helper.make_tensor_value_info("w1", TensorProto.FLOAT, [WIDTH, WIDTH]))
    after = changed(model, tmp_path)
    assert "w1" in {value.name for value in after.graph.input} & {tensor.name for tensor in after.graph.initializer}


def test_arrays_beside_the_file_are_not_read_into_it(tmp_path: Path) -> None:
    """Untouched arrays stay where they are; new and large ones go into another file."""
    behind = _node("Erf", ["s"], "e"), _node("MatMul", ["e", "w3"], "m"), _node("Erf", ["m"], "y")
    model = products(*behind, width=40)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((40, 40), "float32"), "w3"))
    onnx.save_model(model, tmp_path / "in.onnx", save_as_external_data=True, location="in.data", size_threshold=0)
    light, expected = onnx.load(tmp_path / "in.onnx", load_external_data=False), answers(tmp_path / "in.onnx", width=40)
    (tmp_path / "elsewhere").mkdir()
    for out in (tmp_path / "elsewhere" / "out.onnx", tmp_path / "out.onnx", tmp_path / "in.onnx"):
        found, words = deliver_file(tmp_path / "in.onnx", out, budget=5)
        assert found.chosen and words.startswith("in the file"), words
        after = onnx.load(out, load_external_data=False)
        assert_only_inside_changed(light, after, set("pw0 pw1 pw2 t s".split()))
        places = {entry.value for t in after.graph.initializer for entry in t.external_data if entry.key == "location"}
        assert len(places) == 2 and "in.data" in places
        assert relative_error(answers(out, width=40)[0], expected[0]) < 1e-5


def test_a_result_that_is_too_large_for_one_message_has_a_file_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(products(_node("Sin", ["s"], "y"), width=40), tmp_path / "in.onnx")
    monkeypatch.setattr(delivery, "MOST_BYTES", 20_000)
    deliver_file(tmp_path / "in.onnx", tmp_path / "out.onnx", budget=5)
    assert len(list(tmp_path.glob("*.data"))) == 1
    got, expected = (answers(tmp_path / f"{name}.onnx", width=40)[0] for name in ("out", "in"))
    assert relative_error(got, expected) < 1e-5


def test_above_two_gib_nothing_is_read_that_need_not_be(tmp_path: Path) -> None:
    model, size = products(_node("Sin", ["s"], "y")), 2**31 + 2**20
    onnx.save_model(model, tmp_path / "in.onnx", save_as_external_data=True, location="in.data", size_threshold=0)
    model = onnx.load(tmp_path / "in.onnx", load_external_data=False)
    start = (tmp_path / "in.data").stat().st_size
    with (tmp_path / "in.data").open("r+b") as file:
        file.truncate(start + size)  # a hole, which takes no room
    huge = model.graph.initializer.add(name="w3", data_type=TensorProto.FLOAT, dims=[size // 4])
    huge.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "in.data"), ("offset", str(start)), ("length", str(size))):
        huge.external_data.add(key=key, value=value)
    (tmp_path / "in.onnx").write_bytes(model.SerializeToString())
    begin = time.process_time()
    words = [str(tmp_path / "in.onnx"), "-o", str(tmp_path / "out.onnx"), "--budget", "0", "--quiet"]
    assert cli.main(["optimize", *words]) == 0
    assert time.process_time() - begin < 1, "reading or copying it would take several seconds"
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "in.onnx").read_bytes()


def test_arrays_that_are_inputs_are_written_anew(tmp_path: Path) -> None:
    """Before IR version 4 every array had to be an input too: the file says a newer one then."""
    model = products(_node("Sin", ["s"], "y"))
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    del model.opset_import[1:]
    model.opset_import[0].version = 8
    onnx.save(model, tmp_path / "in.onnx")
    _, words = deliver_file(tmp_path / "in.onnx", tmp_path / "out.onnx", budget=5)
    assert words.startswith("the file is written anew") and onnx.load(tmp_path / "out.onnx").ir_version >= 4


def test_a_file_that_computes_something_else_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The edited file is read and run; where that fails, the network is written anew."""
    onnx.save(products(_node("Sin", ["s"], "y")), tmp_path / "in.onnx")
    patch = Splice.patch

    def wrong(*words: Any) -> Any:
        planted, large = patch(*words)
        for tensor in planted.tensors:
            tensor.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensor), tensor.name))
        return planted, large

    monkeypatch.setattr(Splice, "patch", wrong)
    _, words = deliver_file(tmp_path / "in.onnx", tmp_path / "out.onnx", budget=5)
    assert words.startswith("the file is written anew: the edited file failed: got relative error"), words
    assert relative_error(answers(tmp_path / "out.onnx")[0], answers(tmp_path / "in.onnx")[0]) < 1e-5


class LinearFile:
    """A file of what rules rewrite: products, sums, biases, parts; all of it may change.

    Attributes:
        model: the file; inputs ``x`` and ``z``.
    """

    def __init__(self, seed: int) -> None:
        self.chance, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.arrays = list[onnx.NodeProto](), list[TensorProto]()
        self.values, self.known = [("x", 4), ("z", 4)], dict[tuple[int, ...], list[str]]()
        for _ in range(self.chance.randrange(8, 22)):
            self._step(*self.chance.choice(self.values[-6:]))
        results = dict([self.values[-1], *self.chance.sample(self.values[2:], 2)])
        make = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "linear",
            [make(name, TensorProto.FLOAT, ["N", 4]) for name in "xz"],
            [make(name, TensorProto.FLOAT, ["N", width]) for name, width in results.items()],
            self.arrays,
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _add(self, op_type: str, reads: list[str], width: int, count: int = 1, **options: Any) -> str:
        outputs = [f"t{len(self.nodes)}.{n}" for n in range(count)]
        self.nodes.append(helper.make_node(op_type, reads, outputs, **options))
        self.values += [(output, width) for output in outputs] if width else []
        return outputs[0]

    def _array(self, *shape: int) -> str:
        """A weight of a shape, often one that others read too."""
        names = self.known.setdefault(shape, [])
        if not names or self.chance.random() < 0.6:
            names.append(f"a{len(self.arrays)}.weight")
            array = self.rng.normal(size=shape).astype("float32") / 2
            self.arrays.append(numpy_helper.from_array(array, names[-1]))
        return self.chance.choice(names)

    def _step(self, value: str, width: int) -> None:
        alike = [name for name, other in self.values if other == width]
        kind = self.chance.choice("mmmmabcrtisv" if width == 4 else "mmmmabsrti")
        if kind == "m":
            after = self.chance.choice([4, 8])
            self._add("MatMul", [value, self._array(width, after)], after)
        elif kind in "ab":
            self._add("Add", [value, self._array(width) if kind == "b" else self.chance.choice(alike)], width)
        elif kind == "c":
            self._add("Concat", [value, self.chance.choice(alike)], 8, axis=1)
        elif kind == "s" and width == 8:
            self._add("Split", [value], 4, 2, axis=1)
        elif kind == "t":
            self._add("Transpose", [self._add("Transpose", [value], 0)], width, perm=[1, 0])
        elif kind == "v":
            self._add("Sum", [value, self.chance.choice(alike), self.chance.choice(alike)], width)
        elif kind == "i":
            self._add("Identity", [value], width)
        elif kind == "r":
            self._add(self.chance.choice(["Relu", "Tanh"]), [value], width)
        else:
            self._add("Mul", [value, self._array(self.chance.choice([1, width]))], width)


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 400), marks=pytest.mark.long)])
def test_files_of_which_much_changes_are_edited_and_compute_the_same(seeds: range, tmp_path: Path) -> None:
    """No file is written anew; each is run by ONNX Runtime as well."""
    x = {name: np.random.default_rng(0).normal(size=(3, 4)).astype("float32") for name in "xz"}
    ways, options = set[str](), ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # which loses values of seed 227
    options.log_severity_level = 3
    for seed in seeds:
        model = LinearFile(seed).model
        onnx.save(model, tmp_path / "in.onnx")
        _, words = deliver_file(tmp_path / "in.onnx", tmp_path / "out.onnx", budget=5)
        ways.add(words[:11])
        after = onnx.load(tmp_path / "out.onnx")
        assert (after.graph.input, after.graph.output) == (model.graph.input, model.graph.output)
        sessions = (ort.InferenceSession(str(tmp_path / f"{name}.onnx"), options) for name in ("out", "in"))
        for got, expected in zip(*(session.run(None, x) for session in sessions), strict=True):
            assert relative_error(got, expected) < 1e-5, f"seed {seed}"
    assert "in the file" in ways <= {"in the file", "the file as"}


def test_a_bias_that_a_product_before_a_sum_takes_in_is_not_added_twice(tmp_path: Path) -> None:
    """The sum's product is written with the bias behind the sum, so its value is not the one that the file names."""
    nodes = [
        _node("Tanh", ["x"], "r"),
        _node("MatMul", ["x", "w0"], "p"),
        _node("MatMul", ["p", "w1"], "q"),
        _node("Add", ["q", "b"], "t"),
        _node("Add", ["t", "r"], "y"),
    ]
    model = products()
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.ones(WIDTH, "float32"), "b"))
    onnx.save(model, tmp_path / "in.onnx")
    found, words = deliver_file(tmp_path / "in.onnx", tmp_path / "out.onnx", budget=5)
    assert found.chosen and words.startswith("in the file")
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["Tanh", "Gemm", "Add"]
    assert relative_error(answers(tmp_path / "out.onnx")[0], answers(tmp_path / "in.onnx")[0]) < 1e-5


def rewritten(tmp_path: Path, *nodes: onnx.NodeProto) -> list[str]:
    """Operators of the edited file of some nodes that read x and w0 to w2; it computes the same."""
    model = products()
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, tmp_path / "in.onnx")
    found, words = deliver_file(tmp_path / "in.onnx", tmp_path / "out.onnx", budget=5)
    assert found.chosen and words.startswith("in the file"), words
    assert relative_error(answers(tmp_path / "out.onnx")[0], answers(tmp_path / "in.onnx")[0]) < 1e-5
    return [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node]


def test_what_the_file_computes_of_constants_is_computed_once(tmp_path: Path) -> None:
    """New nodes read an array, not the nodes of the file that would compute it in every run."""
    kinds = rewritten(
        tmp_path,
        _node("Mul", ["w0", "w1"], "w"),
        _node("Sin", ["x"], "z"),
        _node("MatMul", ["x", "w"], "p"),
        _node("MatMul", ["z", "w"], "q"),
        _node("Add", ["p", "q"], "y"),
    )
    assert sorted(kinds) == ["Add", "MatMul", "Sin"]


def test_a_product_of_the_file_is_not_read_for_one_with_a_bias(tmp_path: Path) -> None:
    """The file's product q would still be made, but the new sum reads one that takes the bias in."""
    vectors = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.linspace(1, last, WIDTH, dtype="f")))
        for name, last in (("b", 2), ("v", 3), ("u", 4))
    ]
    nodes = [_node("Tanh", ["x"], "e"), _node("MatMul", ["x", "w0"], "q"), _node("Add", ["q", "b"], "t")]
    nodes += [_node("Mul", ["e", "v"], "g"), _node("Mul", ["e", "u"], "h")]
    nodes += [_node("Add", ["t", "g"], "s"), _node("Add", ["s", "h"], "y")]
    kinds = rewritten(tmp_path, *vectors, *nodes)
    assert sorted(kinds) == ["Add", "Constant", "Gemm", "Mul", "Tanh"]
