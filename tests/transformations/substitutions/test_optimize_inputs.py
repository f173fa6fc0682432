"""What `optimize_network` should not be given, or seldom is: an error in one sentence, or the right answer."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

import deep500 as d5
from deep500 import registry
from deep500.errors import CacheError, DataError, Deep500Error, InputError, MissingBackend, NetworkError
from deep500.networks import Network, create
from deep500.networks.dtype import to_dtype
from deep500.transformations.substitutions import History, loading
from deep500.transformations.substitutions.equivalence import relative_error
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.rules.matching import Matcher
from deep500.transformations.substitutions.rules.patterns import canonical
from deep500.transformations.substitutions.rules.rule_file import SHIPPED, PatternRule, to_line, write
from deep500.transformations.substitutions.search import backtracking
from deep500.transformations.substitutions.search.moves import apply
from tests.frameworks.compiled import softsign
from tests.networks import custom_operators  # noqa: F401 (registers operators)
from tests.transformations.substitutions.samples import assert_same, branches, images, optimized, run, saved

FLOAT, INT64, BOOL = (oh.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in ("float32", "int64", "bool"))


def one_sentence(error: BaseException) -> str:
    """The words of an error that says what was there, and what should be."""
    text = str(error)
    assert isinstance(error, Deep500Error) and "got" in text and "expected" in text and "\n" not in text, text
    return text


def rule(left: str | tuple[str, ...], right: str | tuple[str, ...], *where: str) -> PatternRule:
    """A rule that claims to be proved."""
    sides = [(side,) if isinstance(side, str) else side for side in (left, right)]
    return PatternRule(*canonical(sides[0], sides[1], where))


MERGE = rule(
    ("(matmul x y)", "(matmul x z)"),
    ("(split 0 1 p (matmul x (concat 1 p y z)))", "(split 1 1 p (matmul x (concat 1 p y z)))"),
    "p = size y 1",
)
WRONG = rule('(add (unary "relu" x) (unary "relu" y))', '(unary "relu" (add x y))')


@d5.register_op("OptimizedAroundSoftsign")
def _(inputs: Sequence[d5.TensorDescriptor]) -> d5.CustomOp:
    """In C++, compiled for the dtype of its input."""
    return softsign(str(inputs[0].dtype))


# -- arguments --------------------------------------------------------------------------------------------------------
ARGUMENTS: list[tuple[dict[str, Any], type[Deep500Error], str]] = [
    ({"budget": -1}, InputError, "got budget -1"),
    ({"budget": float("nan")}, InputError, "got budget nan"),
    ({"budget": "long"}, InputError, "got budget 'long'"),
    ({"alpha": 0.99}, InputError, "got alpha 0.99"),
    ({"alpha": float("nan")}, InputError, "got alpha nan"),
    ({"seed": -1}, InputError, "got seed -1"),
    ({"sizes": {"M": 3}}, InputError, r"got sizes {'M': 3}.*which are N"),
    ({"sizes": {"N": 0}}, InputError, "got sizes {'N': 0}"),
    ({"sizes": {"N": 2.5}}, InputError, "got sizes {'N': 2.5}"),
    ({"backend": "pytroch"}, MissingBackend, "did you mean 'pytorch'"),
    ({"backend": "pytroch", "measure": True}, MissingBackend, "did you mean 'pytorch'"),
    ({"rules": "nowhere.jsonl"}, DataError, "nowhere.jsonl: got no such file"),
]


@pytest.mark.parametrize(("options", "kind", "message"), ARGUMENTS, ids=[str(case[0]) for case in ARGUMENTS])
def test_arguments_that_are_none(options: dict[str, Any], kind: type[Deep500Error], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        optimized(branches("N"), **options)
    one_sentence(caught.value)


def test_what_is_no_network() -> None:
    with pytest.raises(NetworkError, match=r"model\.onnx: got a file that does not exist"):
        optimized("model.onnx")
    with pytest.raises(InputError, match="got int as a model; expected a Network, an ONNX file"):
        optimized(5)


def test_a_message_is_a_model() -> None:
    assert optimized(branches().to_onnx()).chosen == optimized(branches()).chosen


def test_a_backend_that_is_not_installed_can_be_priced_by_formula_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BACKENDS, "absent", ("no_such_framework", "absent"))
    assert optimized(branches(), backend="absent").chosen
    with pytest.raises(MissingBackend, match=r"pip install 'deep500\[absent\]'"):
        optimized(branches(), backend="absent", measure=True, database=":memory:")


def test_a_budget_of_nothing_searches_nothing() -> None:
    result = optimized(branches(), budget=0)
    assert (result.seconds, result.priced, result.before, result.timed_out) == (0, 0, None, False)
    assert "the budget is 0: nothing was searched" in str(result) and "not measured" in str(result)


def test_no_time_returns_the_original() -> None:
    result = optimized(branches(), budget=1e-9)
    assert result.timed_out and result.chosen is None and "ended by the budget" in str(result)


def test_what_was_best_when_time_was_up_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search looks at the clock 90 times, and then it is late: where that is, is the same always."""
    network = create("nasrnn", 1, shape=(1, 6), hidden=6)
    results = []
    for looks in (90, 90, 1_000_000):
        seen = itertools.count()
        clock = lambda seen=seen, looks=looks: 1e9 * (next(seen) > looks)  # noqa: E731
        monkeypatch.setattr(backtracking, "cpu_seconds", clock)
        results.append(optimized(network))
    early, again, whole = results
    assert early.timed_out and not whole.timed_out
    assert early.before is not None and early.after is not None and whole.after is not None
    assert whole.after < early.after < early.before
    assert_same(network, early.network, 1e-5)
    assert saved(d5.replay_history(network, early.history)) == saved(early.network) == saved(again.network)


def test_who_stops_a_search_gets_what_was_best() -> None:
    network, results = create("nasrnn", 1, shape=(1, 6), hidden=6), []
    for looks in (400, 400):
        seen = itertools.count()
        results.append(optimized(network, stop=lambda seen=seen, looks=looks: next(seen) > looks))
    early, again = results
    assert early.timed_out and early.after is not None and early.before is not None and early.after < early.before
    assert early.equivalence is not None and saved(early.network) == saved(again.network)


# -- rules ------------------------------------------------------------------------------------------------------------
def altered(**changes: Any) -> str:
    return json.dumps({**json.loads(to_line(MERGE)), **changes})


FILES = {
    "empty": ("", "got an empty file"),
    "no JSON": ("matmul is associative\n", "write the file of pattern rules anew"),
    "another format": ('{"srcOp": [{"type": 3}], "dstOp": []}\n', "write the file of pattern rules anew"),
    "no operator": (altered(left=["(frobnicate x)"]), "write the file of pattern rules anew"),
    "unproved": (altered(verdict="unknown"), "got verdict 'unknown'"),
    "refuted": (altered(verdict="refuted", prover="sampling"), "got verdict 'refuted'"),
    "without a prover": (altered(prover=None), "by None; expected a proved rule"),
    "stale": (altered(specification="0" * 16), "proved under other meanings of its operators"),
    "altered": (altered(where=[]), "the line was altered"),
    "half a line": (to_line(MERGE)[:-20], "write the file of pattern rules anew"),
    "bytes": ("\x00\xff\x1b[31m", "write the file of pattern rules anew"),
}


@pytest.mark.parametrize("name", list(FILES))
def test_rule_files_that_are_refused(name: str, tmp_path: Path) -> None:
    text, message = FILES[name]
    path = tmp_path / "rules.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        optimized(branches(), rules=path)
    assert "rules.jsonl" in one_sentence(caught.value)
    with pytest.raises(DataError, match=message):
        d5.replay_history(branches(), optimized(branches()).history, path)


def test_one_bad_line_spoils_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.jsonl"
    lines = SHIPPED.read_text(encoding="utf-8").splitlines()[:5]
    path.write_text("\n".join([*lines, altered(verdict="unknown")]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"rules.jsonl:6: got verdict 'unknown'"):
        optimized(branches(), rules=path)


def test_rules_that_apply_nowhere(tmp_path: Path) -> None:
    write([MERGE], tmp_path / "rules.jsonl")
    network = branches(count=1)
    result = optimized(network, rules=tmp_path / "rules.jsonl")
    assert result.chosen is None and saved(result.network) == saved(network) and not result.timed_out


@pytest.mark.parametrize("training", [False, True])
def test_a_wrong_rule_that_claims_to_be_proved_is_caught(
    training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At load; and were it not, by the check."""
    write([WRONG], tmp_path / "rules.jsonl")
    with pytest.raises(DataError, match="which this does not"):
        optimized(branches(), rules=tmp_path / "rules.jsonl", training=training)
    monkeypatch.setattr(loading, "refuse", lambda *_: None)
    result = optimized(branches(), rules=tmp_path / "rules.jsonl", training=training)
    assert result.chosen is None and "failed: NotEquivalent: got relative errors" in result.reason
    assert saved(result.network) == saved(branches()) and "keep the original and report this" in str(result)


def test_what_would_make_a_cycle_is_left_alone(tmp_path: Path) -> None:
    """The second product reads what the first makes: the two cannot be one, though the rule's pattern fits."""
    network = Network("cycle")
    network.add_input("x", (4, 4))
    network.add_parameter("w", np.eye(4, dtype="float32") + 1)
    network.add_node("MatMul", ["x", "w"], ["first"])
    network.add_node("Softmax", ["first"], ["weights"])
    network.add_node("MatMul", ["x", "weights"], ["y"])
    network.add_output("y")
    imported = import_network(network)
    matches = list(Matcher([MERGE]).matches(imported.graph))
    assert matches and all(apply(imported.graph, match) is None for match in matches)
    write([MERGE], tmp_path / "rules.jsonl")
    result = optimized(network, rules=tmp_path / "rules.jsonl")
    assert [node.op_type for node in result.network.nodes].count("MatMul") == 2
    assert_same(network, result.network, 1e-6)


# -- histories --------------------------------------------------------------------------------------------------------
def test_histories_of_something_else(tmp_path: Path) -> None:
    history = optimized(branches()).history
    with pytest.raises(InputError, match="optimize the network anew") as caught:
        d5.replay_history(images(), history)
    one_sentence(caught.value)
    path = tmp_path / "history.json"
    history.save(path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "specification": "f" * 16}))
    with pytest.raises(InputError, match=r"under f{16}, which the history is of"):
        d5.replay_history(branches(), History.load(path))
    path.write_text(json.dumps({**document, "steps": [["0123456789abcdef>0", ["00.0"]]]}))
    with pytest.raises(Deep500Error, match="step 0 of 1: got no place where rule 0123456789abcdef>0 applies"):
        d5.replay_history(branches(), History.load(path))
    with pytest.raises(InputError, match="while writing"):
        history.save(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-30],
        lambda text: "",
        lambda text: "[]",
        lambda text: '{"format": "something"}',
        lambda text: text.replace('"steps"', '"stops"'),
        lambda text: text.replace('"steps"', '"x": 1, "steps"'),
        lambda text: json.dumps({**json.loads(text), "sizes": {"N": "many"}}),
        lambda text: json.dumps({**json.loads(text), "saturated": None}),
        lambda text: json.dumps({**json.loads(text), "steps": 3}),
    ],
)
def test_damaged_histories(damage: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(damage(optimized(branches()).history.to_json()))
    with pytest.raises(DataError, match="name a file that 'deep500 optimize --history' wrote") as caught:
        History.load(path)
    one_sentence(caught.value)


def test_absent_histories(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.json"):
        History.load(tmp_path / "nowhere.json")


# -- prices -----------------------------------------------------------------------------------------------------------
def test_databases_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    path.write_bytes(b"these are no prices" * 100)
    with pytest.raises(CacheError, match="delete the file") as caught:
        d5.optimize_network(branches(), database=path)
    one_sentence(caught.value)
    assert path.read_bytes().startswith(b"these are"), "a foreign file is not overwritten"
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE photographs (name TEXT)")
    connection.close()
    with pytest.raises(CacheError, match="1 tables"):
        d5.optimize_network(branches(), database=other)


# -- networks ---------------------------------------------------------------------------------------------------------
def odd(build: Callable[[Network], Any]) -> Network:
    """A network of one (2, 3) input ``x`` and what ``build`` does to it."""
    network = Network("odd")
    network.add_input("x", (2, 3))
    build(network)
    return network


def outputs(network: Network, *names: str) -> None:
    for name in names:
        network.add_output(name)


def through(op_type: str, *outs: str) -> Callable[[Network], None]:
    def build(network: Network) -> None:
        network.add_node(op_type, ["x"], ["y"])
        outputs(network, *outs)

    return build


ODD = {
    "nothing at all": Network("empty"),
    "no outputs": odd(through("Relu")),
    "an input as output": odd(lambda n: outputs(n, "x")),
    "an input as output that is read": odd(through("Relu", "x", "y")),
    "a parameter as output": odd(lambda n: (n.add_parameter("w", np.ones(3, "float32")), outputs(n, "w", "x"))),
}


@pytest.mark.parametrize("name", list(ODD))
def test_networks_with_little_in_them(name: str) -> None:
    network = ODD[name]
    result = optimized(network)
    assert result.network.inputs == network.inputs and result.network.outputs == network.outputs
    if network.outputs:
        assert_same(network, result.network, 0)
        written = d5.replay_history(network, History.from_search(import_network(network), _nothing(network)))
        assert_same(network, written, 0)


def _nothing(network: Network) -> Any:
    return SimpleNamespace(history=(), fused=False)


@pytest.mark.parametrize("shapes", [((0, 4), (4, 3)), ((2, 4), (4, 0)), ((2, 0), (0, 3))])
def test_sizes_of_zero(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    network = Network("zero")
    network.add_input("x", shapes[0])
    for name in ("w", "v"):
        network.add_parameter(name, np.ones(shapes[1], "float32"))
        network.add_node("MatMul", ["x", name], [f"product_{name}"])
    network.add_node("Add", ["product_w", "product_v"], ["y"])
    network.add_output("y")
    assert_same(network, optimized(network).network, 0)


def test_bfloat16_is_left_alone() -> None:
    """Rules hold in exact arithmetic, and rounding of such numbers would show."""
    network = to_dtype(branches(), "bfloat16")
    result = optimized(network)
    assert result.chosen is None and saved(result.network) == saved(network)


def test_whole_numbers_are_left_alone() -> None:
    network = Network("int8")
    network.add_input("x", (2, 2), "int8")
    network.add_parameter("w", np.array([[1, 2], [3, 4]], "int8"), trainable=False)
    for name in ("y", "z"):
        network.add_node("MatMulInteger", ["x", "w"], [name], name=name)
        network.add_output(name)
    result = optimized(network)
    assert result.chosen is None and saved(result.network) == saved(network)
    assert_same(network, result.network, 0)


def test_opaque_operators_are_optimized_around() -> None:
    network = branches()
    network.add_node("LpNormalization", ["y"], ["length"], p=1)
    network.add_node("Einsum", ["length", "y"], ["e"], equation="ij,kj->ik")
    network.add_output("e")
    result = optimized(network)
    kinds = [node.op_type for node in result.network.nodes]
    assert result.chosen and kinds.count("MatMul") == 1 and {"LpNormalization", "Einsum"} <= set(kinds)
    assert_same(network, result.network, 1e-6)


@pytest.mark.parametrize("training", [False, True])
def test_custom_operators_are_optimized_around(training: bool) -> None:
    network = branches()
    network.add_node("TestLeakyRelu", ["y"], ["z"], domain="deep500", alpha=0.3)
    network.add_node("TestSinCos", ["z"], ["sine", "cosine"], domain="deep500")
    network.add_node("MatMul", ["sine", "w0"], ["last"])
    network.add_node("ReduceMean", ["last"], ["loss"], keepdims=0)
    for name in ("cosine", "last", "loss"):
        network.add_output(name)
    result = optimized(network, training=training)
    assert result.chosen and {"TestLeakyRelu", "TestSinCos"} < {node.op_type for node in result.network.nodes}
    assert_same(network, result.network, 1e-6)
    assert result.equivalence is not None and (result.equivalence.gradients is not None) == training


@pytest.mark.parametrize("training", [False, True])
def test_compiled_operators_are_optimized_around(training: bool) -> None:
    network = branches()
    network.add_node("OptimizedAroundSoftsign", ["y"], ["z"], domain="deep500")
    network.add_node("ReduceMean", ["z"], ["loss"], keepdims=0)
    network.add_output("loss")
    result = optimized(network, training=training)
    assert result.chosen and "OptimizedAroundSoftsign" in {node.op_type for node in result.network.nodes}
    assert_same(network, result.network, 1e-6)
    assert result.equivalence is not None and (result.equivalence.gradients is not None) == training


def test_an_unknown_operator_is_named() -> None:
    network = branches()
    network.add_node("Strange", ["y"], ["z"], name="mystery", domain="elsewhere")
    network.add_output("z")
    result = optimized(network)
    assert result.chosen is None and "failed: UnsupportedOperator" in result.reason
    assert "elsewhere.Strange" in result.reason and "mystery" in result.reason


def info(name: str, kind: int, shape: list[int]) -> Any:
    return oh.make_tensor_value_info(name, kind, shape)


def with_loop(network: Network) -> None:
    nodes = [
        oh.make_node("Identity", ["c"], ["c_out"]),
        oh.make_node("MatMul", ["v", "w0"], ["product"]),
        oh.make_node("Add", ["product", "act1"], ["v_out"]),
    ]
    body = oh.make_graph(
        nodes,
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("v", FLOAT, [4, 16])],
        [info("c_out", BOOL, []), info("v_out", FLOAT, [4, 16])],
    )
    network.add_parameter("count", np.array(3), trainable=False)
    network.add_node("Loop", ["count", "", "y"], ["looped"], body=body)
    network.add_output("looped")


def with_if(network: Network) -> None:
    def branch(op: str) -> Any:
        node = oh.make_node(op, ["product0", "act1"], [f"{op}_out"])
        return oh.make_graph([node], op, [], [info(f"{op}_out", FLOAT, [4, 16])])

    network.add_input("flag", (), "bool")
    network.add_node("If", ["flag"], ["chosen"], then_branch=branch("Add"), else_branch=branch("Sub"))
    network.add_output("chosen")


def with_scan(network: Network) -> None:
    nodes = [oh.make_node("Add", ["s", "e"], ["s_out"]), oh.make_node("Mul", ["s_out", "w_row"], ["e_out"])]
    body = oh.make_graph(
        nodes,
        "body",
        [info("s", FLOAT, [16]), info("e", FLOAT, [16])],
        [info("s_out", FLOAT, [16]), info("e_out", FLOAT, [16])],
    )
    network.add_parameter("w_row", np.linspace(-1, 1, 16, dtype="float32"))
    network.add_parameter("start", np.zeros(16, "float32"))
    network.add_node("Scan", ["start", "y"], ["state", "scanned"], body=body, num_scan_inputs=1)
    network.add_output("scanned")


@pytest.mark.parametrize("add", [with_loop, with_if, with_scan])
def test_bodies_stay_and_see_what_they_saw(add: Callable[[Network], None]) -> None:
    network = branches()
    add(network)
    result = optimized(network)
    assert result.chosen and [node.op_type for node in result.network.nodes].count("MatMul") == 1
    assert_same(network, result.network, 1e-5)


def test_sizes_that_only_a_run_tells() -> None:
    network = branches()
    network.add_node("NonZero", ["y"], ["where"])
    network.add_node("Cast", ["where"], ["cast"], to=FLOAT)
    network.add_node("Relu", ["cast"], ["z"])
    network.add_output("z")
    result = optimized(network)
    assert result.chosen
    assert_same(network, result.network, 1e-6)


def test_several_symbolic_sizes() -> None:
    network = Network("two")
    network.add_input("a", ("N", 4))
    network.add_input("b", ("M", 4))
    for name, value in (("w", 1.0), ("v", -2.0)):
        network.add_parameter(name, np.full((4, 4), value, "float32"))
        network.add_node("MatMul", ["a", name], [f"a{name}"])
        network.add_node("MatMul", ["b", name], [f"b{name}"])
    network.add_node("Concat", ["aw", "bw"], ["first"], axis=0)
    network.add_node("Concat", ["av", "bv"], ["second"], axis=0)
    network.add_node("Add", ["first", "second"], ["y"])
    network.add_output("y")
    result = optimized(network)
    assert result.chosen
    for n, m in ((1, 1), (3, 5), (7, 2)):
        assert_same(network, result.network, 1e-6, N=n, M=m)
    assert result.network.inputs == network.inputs


def test_an_unknown_rank_is_left_alone() -> None:
    network = Network("ranks")
    network.add_input("x", None)
    network.add_node("Relu", ["x"], ["y"])
    network.add_output("y")
    assert optimized(network).chosen is None
    with pytest.raises(InputError, match=r"input 'x': got float32\[\?\]; expected numbers of a known rank"):
        optimized(network, measure=True, database=":memory:")


def quarters(batch: int | str) -> Network:
    """Branches that need a batch of a multiple of 4."""
    network = branches(batch)
    network.add_parameter("shape", np.array([-1, 4, 16]), trainable=False)
    network.add_node("Reshape", ["y", "shape"], ["grouped"])
    network.add_output("grouped")
    return network


def test_batches_of_a_multiple_need_a_number() -> None:
    result = optimized(quarters("N"), sizes={"N": 8})
    assert result.chosen
    for size in (4, 8, 20):
        assert_same(quarters("N"), result.network, 1e-6, N=size)
    refused = optimized(quarters("N"))
    assert refused.chosen is None and "'Reshape_grouped' (Reshape): got float" in refused.reason
    assert d5.optimize_network(quarters("N"), sizes={"N": 8}, budget=10.0, database=":memory:").measured is not None


def test_sizes_on_the_way_that_look_like_the_batch() -> None:
    """The number that stands for N divides none of the declared sizes, yet sizes in between may be multiples of it."""
    network = Network("coincidence")
    network.add_input("x", ("N", 3, 12, 12))
    number = import_network(network).sizes["N"]
    kernel = 12 - 2 * number + 1  # leaves images of 2 N x 2 N
    rng = np.random.default_rng(0)
    for name in ("w", "v"):
        network.add_parameter(name, rng.normal(size=(4, 3, kernel, kernel)).astype("float32"))
        network.add_node("Conv", ["x", name], [f"image_{name}"])
        network.add_node("Relu", [f"image_{name}"], [f"act_{name}"])
    network.add_node("Add", ["act_w", "act_v"], ["sum"])
    network.add_node("Flatten", ["sum"], ["y"])
    network.add_output("y")
    assert import_network(network).sizes["N"] == number and network.descriptors()["sum"].shape == ("N", 4, 10, 10)
    result = optimized(network)
    for size in (1, 4):
        assert_same(network, result.network, 1e-5, N=size)


def test_weights_that_are_not_finite() -> None:
    network = branches()
    values = network.parameters["w1"].value.copy()
    values[0, 0], values[1, 1] = np.inf, np.nan
    network.set_parameter("w1", values)
    result = optimized(network)
    want, got = run(network)["y"], run(result.network)["y"]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    assert not np.isfinite(want).all()


def test_what_is_no_number_on_one_side_is_infinitely_far() -> None:
    ones, inf, nan = np.ones(2), np.array([np.inf, 1.0]), np.array([np.nan, 1.0])
    for got, expected in itertools.permutations((ones, inf, nan), 2):
        assert relative_error(got, expected) == float("inf")
    for both in (ones, inf, nan):
        assert relative_error(both, both) == 0.0
    assert relative_error(inf, -inf) == float("inf")
