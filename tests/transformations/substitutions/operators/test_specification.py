"""Every operator specification: its shape rule, its two evaluators and its ONNX form say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, checker, helper
from onnx.reference import ReferenceEvaluator

from deep500.transformations.substitutions.operators import own, specification
from deep500.transformations.substitutions.operators.arithmetic import Real
from deep500.transformations.substitutions.operators.specification import (
    OPSET,
    ShapeMismatch,
    meaning,
    operator,
    operators,
    specification_hash,
)
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.substitutions.rules import rule_file

CONV = {"strides": (1, 1), "dilations": (1, 1), "groups": 1}
# fmt: off
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("matmul", [(2, 3), (3, 4)], {}),
    ("matmul", [(5, 2, 3), (5, 3, 4)], {}),
    ("add", [(2, 3), (2, 3)], {}),
    ("mul", [(2, 3, 2, 2), (2, 3, 2, 2)], {}),
    ("shift", [(2, 3), ()], {}),
    ("scale", [(2, 3, 1, 2), ()], {}),
    ("bias", [(2, 3, 1, 2), (3,)], {"axis": 1}),
    ("bias", [(2, 3), (3,)], {"axis": 1}),
    ("gain", [(2, 3, 1, 2), (2,)], {"axis": 0}),
    ("relu", [(3, 4)], {}),
    ("sigmoid", [(3, 4)], {}),
    ("tanh", [(3, 4)], {}),
    ("gelu", [(3, 4)], {}),
    ("concat", [(2, 3), (2, 4)], {"axis": 1}),
    ("concat", [(2, 3, 1, 1), (5, 3, 1, 1)], {"axis": 0}),
    ("split", [(2, 7)], {"axis": 1, "cut": 3}),
    ("split", [(4, 2, 3, 3)], {"axis": 0, "cut": 1}),
    ("transpose", [(2, 3, 4)], {"perm": (2, 0, 1)}),
    ("reshape", [(2, 6)], {"shape": (3, 2, 2)}),
    ("conv", [(2, 3, 5, 4), (4, 3, 3, 3)], {**CONV, "kernel": (3, 3), "pads": (1, 1, 1, 1)}),
    ("conv", [(2, 4, 5, 4), (6, 2, 1, 3)], {**CONV, "kernel": (1, 3), "pads": (0, 1, 0, 1), "groups": 2}),
    ("conv", [(1, 4, 7, 6), (4, 1, 3, 2)],
     {"kernel": (3, 2), "strides": (2, 1), "pads": (2, 0, 1, 1), "dilations": (2, 3), "groups": 4}),
    ("enlarge", [(4, 2, 1, 3)], {"source": (1, 3), "target": (3, 5)}),
    ("merge_groups", [(8, 2, 3, 1)], {"groups": 4, "factor": 2}),
    ("merge_groups", [(6, 2, 1, 1)], {"groups": 3, "factor": 3}),
    ("avgpool", [(2, 3, 5, 4)], {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "count_padding": True}),
    ("avgpool", [(2, 3, 5, 4)], {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1), "count_padding": False}),
    ("maxpool", [(2, 3, 5, 4)], {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ("batchnorm", [(2, 3, 2, 2), (3,), (3,), (3,), (3,)], {"epsilon": 1e-5}),
    ("ones", [], {"shape": (2, 3)}),
    ("identity", [], {"shape": (3, 3)}),
    ("pool_kernel", [], {"shape": (4, 1, 3, 3)}),
    ("identity_kernel", [], {"shape": (2, 2, 3, 1)}),
]
# fmt: on
LINEAR = (
    "matmul",
    "add",
    "mul",
    "shift",
    "scale",
    "bias",
    "gain",
    "concat",
    "split",
    "transpose",
    "reshape",
    "conv",
    "enlarge",
    "merge_groups",
    "ones",
    "identity",
    "identity_kernel",
)


def _arrays(shapes: list[tuple[int, ...]], seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(1, 50, (1, *shape)).astype(np.float64) for shape in shapes]


def _name(case: Any) -> str:
    return str(case[0])


def test_every_operator_has_a_case() -> None:
    """Those of users apart, which documented code may have entered into this process."""
    assert {name for name, *_ in CASES} == set(operators()) - set(own.OWN)


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_onnx_form_computes_what_the_evaluator_computes(case: Any) -> None:
    name, shapes, parameters = case
    spec, inputs = operator(name), [array / 7 - 3 * (name != "batchnorm") for array in _arrays(shapes)]
    expected = spec.evaluate(Real(), inputs, parameters)
    assert tuple(array.shape[1:] for array in expected) == spec.infer(shapes, parameters)
    names, outputs = [f"x{n}" for n in range(len(shapes))], [f"y{n}" for n in range(spec.outputs)]
    nodes = spec.onnx(names, outputs, {**parameters, "dtype": "float64"}, shapes)
    double = TensorProto.DOUBLE
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, double, s) for n, s in zip(names, shapes, strict=True)],
        [
            helper.make_tensor_value_info(n, double, s)
            for n, s in zip(outputs, spec.infer(shapes, parameters), strict=True)
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    checker.check_model(model, full_check=True)
    computed = ReferenceEvaluator(model).run(None, {n: array[0] for n, array in zip(names, inputs, strict=True)})
    for ours, theirs in zip(expected, computed, strict=True):
        tolerance = 1e-5 if name == "gelu" else 1e-12  # the reference evaluator's own error function is float32
        np.testing.assert_allclose(ours[0], theirs, rtol=tolerance, atol=1e-12 if name != "gelu" else 1e-7)


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("case", [case for case in CASES if case[0] in LINEAR], ids=_name)
def test_integer_evaluator_is_the_real_one_modulo_a_prime(case: Any, prime: int) -> None:
    name, shapes, parameters = case
    inputs = _arrays(shapes, 1)
    for whole, residue in zip(
        operator(name).evaluate(Real(), inputs, parameters),
        operator(name).evaluate(Prime(prime), inputs, parameters),
        strict=True,
    ):
        np.testing.assert_array_equal(whole % prime, residue)


def test_average_divides_in_the_field() -> None:
    parameters = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "count_padding": False}
    inputs = _arrays([(1, 1, 3, 3)])
    real = operator("avgpool").evaluate(Real(), inputs, parameters)[0]
    field = operator("avgpool").evaluate(Prime(PRIMES[0]), inputs, parameters)[0]
    np.testing.assert_array_equal(np.round(real * 36) % PRIMES[0], field * 36 % PRIMES[0])  # 36: counts are 4, 6, 9


def test_residues_stay_exact_for_large_values() -> None:
    prime = PRIMES[0]
    generator = np.random.default_rng(3)
    left, right = (generator.integers(0, prime, (4, 300, 300)) for _ in range(2))
    exact = (left.astype(object)[0] @ right.astype(object)[0]) % prime
    outputs = Prime(prime).matmul(left.astype(np.float64), right.astype(np.float64))[0]
    np.testing.assert_array_equal(exact.astype(np.float64), outputs)


def test_padding_is_no_zero_to_a_maximum() -> None:
    field, parameters = Prime(PRIMES[0]), {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}
    image = np.arange(1.0, 17.0).reshape(1, 1, 1, 4, 4)
    inner = {**parameters, "pads": (0, 0, 0, 0)}
    padded = operator("maxpool").evaluate(field, [np.pad(image, [(0, 0)] * 3 + [(1, 1)] * 2)], inner)[0]
    assert not np.array_equal(operator("maxpool").evaluate(field, [image], parameters)[0], padded)


@pytest.mark.parametrize(
    ("name", "shapes", "parameters", "said"),
    [
        ("matmul", [(2, 3), (2, 3)], {}, "expected \\(..., m, k\\)"),
        ("add", [(2, 3), (1, 3)], {}, "broadcasting"),
        ("scale", [(2, 3), (1,)], {}, "a scalar"),
        ("concat", [(2, 3), (3, 4)], {"axis": 0}, "differ on that axis only"),
        ("split", [(2, 3)], {"axis": 1, "cut": 3}, "greater than the cut"),
        ("conv", [(1, 4, 5, 5), (3, 2, 3, 3)], {**CONV, "kernel": (3, 3), "pads": (1,) * 4, "groups": 2}, "groups"),
        ("enlarge", [(1, 1, 2, 2)], {"source": (2, 2), "target": (3, 3)}, "odd kernels"),
        ("merge_groups", [(6, 1, 3, 3)], {"groups": 6, "factor": 4}, "factor of the groups"),
        ("matmul", [(2, 3)], {}, "got 1 inputs"),
        ("concat", [(2, 3), (2, 3)], {"axes": 1}, "parameters"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name: str, shapes: Any, parameters: Any, said: str) -> None:
    with pytest.raises(ShapeMismatch, match=said):
        operator(name).infer(shapes, parameters)


def test_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="'matmul'"):
        operator("matmull")


def test_merged_groups_convolve_to_the_same() -> None:
    """Four groups, and two groups of the merged kernel; likewise an identity kernel of two groups."""
    image, kernel = _arrays([(2, 8, 4, 4), (8, 2, 3, 3)])
    parameters = {**CONV, "kernel": (3, 3), "pads": (1, 1, 1, 1)}
    (merged,) = operator("merge_groups").evaluate(Real(), [kernel], {"groups": 4, "factor": 2})
    (expected,) = operator("conv").evaluate(Real(), [image, kernel], {**parameters, "groups": 4})
    (outputs,) = operator("conv").evaluate(Real(), [image, merged], {**parameters, "groups": 2})
    np.testing.assert_array_equal(outputs, expected)
    (identity,) = operator("identity_kernel").evaluate(Real(), [], {"shape": (8, 4, 3, 3)})
    (same,) = operator("conv").evaluate(Real(), [image, identity], {**parameters, "groups": 2})
    np.testing.assert_array_equal(same, image)


ROOM = Path(specification.__file__).parent
SOURCES = [ROOM / f"{name}.py" for name in ("arithmetic", *specification.MODULES)]
RELAID = [
    ("from deep500", "# moved\nfrom deep500"),
    ("import Operator, ", "import NetworkError, Operator, "),
    ('"""Matrix', '"""Better said: matrix'),
    ('helper.make_node("MatMul", inputs, outputs)', "helper.make_node(\n    'MatMul',\n    inputs, (outputs))"),
    (") -> tuple[Shape, ...]:", "):"),
]
CHANGED = [
    ("numbers.matmul(*inputs)", "numbers.matmul(*inputs[::-1])"),
    ("left[:-2] == right[:-2]", "left[:-2] != right[:-2]"),
    (">= 2", ">= 3"),
    ('"MatMul"', '"Gemm"'),
    ('Operator("matmul", 2', 'Operator("matmul", 3'),
    ("_evaluate, _onnx)", "_evaluate, _onnx, commutative=True)"),
]


@pytest.mark.parametrize(("old", "new"), RELAID)
def test_layout_comments_docstrings_annotations_and_imports_have_no_meaning(old: str, new: str) -> None:
    source = (ROOM / "matrix.py").read_text()
    assert old in source and meaning(source.replace(old, new)) == meaning(source)


@pytest.mark.parametrize(("old", "new"), CHANGED)
def test_formulas_shape_rules_and_onnx_forms_have_meaning(old: str, new: str) -> None:
    source = (ROOM / "matrix.py").read_text()
    assert old in source and meaning(source.replace(old, new)) != meaning(source)


@pytest.mark.parametrize("changed", SOURCES, ids=lambda path: path.stem)
def test_hash_sees_every_specification(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_text

    def planted(path: Path, *args: Any, **kwargs: Any) -> str:
        return read(path, *args, **kwargs) + "\nplanted = 1\n" * (path == changed)

    before = specification_hash.__wrapped__()
    monkeypatch.setattr(Path, "read_text", planted)
    assert len(before) == 16 and specification_hash.__wrapped__() != before


def test_shipped_rules_hold_under_the_specifications_of_today() -> None:
    lines = rule_file.SHIPPED.read_text().splitlines()
    assert {json.loads(line)["specification"] for line in lines} == {specification_hash()}
