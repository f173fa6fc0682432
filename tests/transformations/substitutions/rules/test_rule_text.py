"""Rules of one's own: written, proved or refuted, applied; what is not proved says so everywhere."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import deep500 as d5
from deep500 import cli
from deep500.errors import DataError, InputError
from deep500.networks import Network
from deep500.transformations.substitutions import loading, rewriting
from deep500.transformations.substitutions.proofs import validation, verdicts
from deep500.transformations.substitutions.rewriting import apply_rules, prove, rule
from deep500.transformations.substitutions.rules.patterns import canonical
from deep500.transformations.substitutions.rules.rule_file import PatternRule, read, to_line
from deep500.transformations.substitutions.rules.rule_text import from_text, read_text, to_text
from tests.test_cli import error_line
from tests.transformations.substitutions.samples import assert_same, own_activations

pytest.importorskip("egglog")
FACTORED = "(add (matmul x y) (matmul x z)) = (matmul x (add y z))"
IDEMPOTENT = "(relu (relu x)) = (relu x)"
FALSE = "(relu (add x y)) = (add (relu x) (relu y))"
MERGED = "(add (matmul x y) (matmul z w)) = (matmul (concat 1 p x z) (concat 0 p y w)); p = size x 1"


def twice() -> Network:
    """Two products of one matrix, added, and two ReLUs of that."""
    network, rng = Network("twice"), np.random.default_rng(0)
    network.add_input("x", ("N", 16))
    for name in "ab":
        network.add_parameter(f"w{name}", rng.normal(size=(16, 16)).astype("float32") / 4)
        network.add_node("MatMul", ["x", f"w{name}"], [f"p{name}"])
    network.add_node("Add", ["pa", "pb"], ["s"])
    network.add_node("Relu", ["s"], ["r"])
    network.add_node("Relu", ["r"], ["y"])
    network.add_output("y")
    return network


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    twice().to_onnx("m.onnx", opset=17)
    Path("my.txt").write_text(f"# two\nfactored: {FACTORED}\nidempotent: {IDEMPOTENT}  # of relu\n")
    Path("good.txt").write_text(f"factored: {FACTORED}\n")
    Path("false.txt").write_text(f"{FALSE}\n")
    return tmp_path


def test_every_shipped_rule_is_read_back_from_its_text() -> None:
    for shipped in read():
        written = from_text(to_text(shipped))
        assert written.rule.id == shipped.id and not written.reverse


def test_lines_names_and_comments_of_a_text_file(tmp_path: Path) -> None:
    lines = [
        "# a comment\n\nmine: (matmul x y),   # first",
        "  (matmul x z) = (split 0 1 p (matmul x",
        "  (concat 1 p y z))), (split 1 1 p (matmul x (concat 1 p y z)))",
        MERGED,
    ]
    (tmp_path / "r.txt").write_text("\n".join(lines))
    first, second = read_text(tmp_path / "r.txt")
    assert (first.name, first.where, second.where) == ("mine", "r.txt:3", "r.txt:6")
    assert second.name == second.rule.id and second.rule.where == ("p1 = size x1 1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(add x y", "as many brackets"),
        ("(add x y) = (add y x) = z", "left = right"),
        ("(add x y), z = (add y x)", "as many, 1 or 2"),
        ("(addd x y) = (add y x)", "did you mean 'add'"),
        ("(add x) = (add x x)", r"expected \(add operand operand\)"),
        ("(add x y) = (add x z)", "that names all"),
        ("(unary f x) = (unary f f)", "name of its own"),
        ('(unary "swish" x) = (unary "swish" (add x y))', "got activation"),
        ("(add x x) = (add x x)", "two equal sides"),
        ("(add x y) = (add y x); p > 3", "got condition"),
        ("() = (add y x)", "behind each bracket"),
        ('(transpose "a,b" x) = (relu x)', "numbers between quotation marks"),
        ("(relu x) = (relu (relu x)); p = size (addd x) 0", "did you mean"),
        ('(transpose "1,spl0" x1) 0) = (relu x1)', "expected"),
        ("(relu " * 5000 + "x" + ")" * 5000 + " = x", "expected"),
        (f"{'(add x ' * 30}x{')' * 30} = (relu x)", "at most 40 and 10: take the rule apart"),
    ],
)
def test_what_is_no_rule_is_one_line_that_names_the_place(text: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        from_text(text, "my.txt:7")
    assert str(caught.value).startswith("my.txt:7: got")


def test_damaged_rules_are_rules_or_one_line() -> None:
    random, texts = np.random.default_rng(0), [to_text(one) for one in read()[::7]]
    pieces = '( ) " , = ; : x1 4097 -1 add split concat size "3,3" "relu" unary ones + *'.split()
    refused = 0
    for _ in range(300):
        text = str(random.choice(texts))
        for place in random.integers(len(text), size=2):
            text = text[:place] + f" {random.choice(pieces)} " + text[place + int(random.integers(4)) :]
        try:
            from_text(text, "my.txt:1")
        except DataError as error:
            refused += 1
            assert str(error).startswith("my.txt:1: ") and "\n" not in str(error)
    assert refused > 200


@pytest.mark.parametrize(
    ("text", "verdict"), [(MERGED, "proved"), (FACTORED, "proved"), (FALSE, "refuted"), (IDEMPOTENT, "unknown")]
)
def test_verdicts(text: str, verdict: str) -> None:
    (got,) = prove(from_text(text).rule)
    assert got.rule.verdict == verdict
    assert (got.counterexample is not None) == (verdict == "refuted")
    if verdict == "refuted":
        assert "left[" in str(got) and "x1 = [" in str(got)


def test_a_counterexample_is_one() -> None:
    found = prove(from_text(FALSE).rule)[0].counterexample
    assert found is not None and found.index is not None
    x, y = (found.values[name] for name in ("x1", "x2"))
    sides = np.maximum(x, 0) + np.maximum(y, 0), np.maximum(x + y, 0)
    assert {found.left, found.right} == {side[found.index] for side in sides} and found.left != found.right


def test_unknown_rules_are_tried_in_fields_and_on_kernels() -> None:
    (got,) = prove(from_text(IDEMPOTENT).rule)
    ((fitting, equal),) = got.fields
    assert fitting > equal and dict(got.kernels)["reference"] == 0.0  # any polynomial in place of relu is another
    assert "not equal in finite fields" in str(got) and "on reference" in str(got)


def test_sides_that_fit_together_nowhere_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector where a matrix must be: nothing can refute what has no value."""
    monkeypatch.setattr(validation, "TRIALS", 200)
    odd = from_text("(add (gain 0 x b) (gain 0 y b)) = (gain 0 (add x b) y)").rule
    assert not prove(odd)[0].fits and "for no sizes" in str(prove(odd)[0])
    with pytest.raises(DataError, match="for no sizes that were tried"):
        loading.load_rules(odd, unproved=True)


def test_proofs_do_not_hang_on_what_a_rule_says_of_itself() -> None:
    forged = dataclasses.replace(from_text(FALSE).rule, verdict="proved", prover="egglog")
    with pytest.raises(DataError, match="which this does not"):
        d5.optimize_network(twice(), rules=forged, measure=False, budget=1)


def test_a_forged_rule_with_a_right_hash_is_refused_at_load(tmp_path: Path) -> None:
    """The line is sound in itself: id, canonical form, specification, verdict; only the mathematics is wrong."""
    forged = PatternRule(*canonical(("(relu (relu x1))",), ("(relu x1)",), ()), "0" * 16)
    false = PatternRule(*canonical(("(matmul x1 x2)",), ("(matmul x2 x1)",), ()), "0" * 16)
    path = tmp_path / "forged.jsonl"
    shipped = [to_line(one) for one in read()[:3]]
    path.write_text("\n".join([*shipped, to_line(false)]) + "\n")
    assert len(read(path)) == 4, "the reader alone takes it"
    with pytest.raises(DataError, match=r"forged\.jsonl: got rule .* which this does not: .*left\["):
        loading.load_rules(path, unproved=True)
    assert forged.verdict == "proved"
    path.write_text("\n".join(shipped) + "\n")
    assert len(loading.load_rules(path)) == 3


def test_shipped_rules_are_proved_again_where_they_come_in_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the list of what is shipped, the provers alone decide."""
    some = tuple(read()[::20])
    monkeypatch.setattr(verdicts, "shipped_ids", frozenset)
    assert {verdict.rule.verdict for verdict in verdicts.judge(some, thorough=False)} == {"proved"}


def test_two_networks_are_a_rule() -> None:
    def side(*nodes: tuple[str, list[str], str, dict[str, int]]) -> Network:
        network = Network("side")
        for name, shape in {"x": ("N", "P"), "y": ("P", "M"), "z": ("N", "Q"), "w": ("Q", "M")}.items():
            network.add_input(name, shape)
        for op_type, reads, writes, settings in nodes:
            network.add_node(op_type, reads, [writes], **settings)
        network.add_output("o")
        return network

    left = side(("MatMul", ["x", "y"], "a", {}), ("MatMul", ["z", "w"], "b", {}), ("Add", ["a", "b"], "o", {}))
    columns = ("Concat", ["x", "z"], "a", {"axis": 1})
    right = side(columns, ("Concat", ["y", "w"], "b", {"axis": 0}), ("MatMul", ["a", "b"], "o", {}))
    made = rule(left, right)
    assert prove(made)[0].rule.verdict == "proved" and set(made.where) == {"p1 = size x1 1", "p1 = size x2 0"}
    with pytest.raises(InputError, match="operator Softmax"):
        rule(side(("Softmax", ["x"], "o", {})), side(("Relu", ["x"], "o", {})))
    other = Network("other")
    other.add_input("x", ("N", "P"))
    other.add_node("Relu", ["x"], ["o"])
    other.add_output("o")
    with pytest.raises(InputError, match="the same names and sizes"):
        rule(left, other)


def test_rules_are_applied_from_left_to_right(monkeypatch: pytest.MonkeyPatch) -> None:
    network = twice()
    applied = apply_rules(network, from_text(FACTORED).rule)
    assert [node.op_type for node in applied.network.nodes] == ["MatMul", "Relu", "Relu"]
    assert_same(network, applied.network, 1e-6, N=3)
    monkeypatch.setattr(rewriting, "MOST", 0)
    with pytest.raises(InputError, match="no end after 0 steps"):
        apply_rules(network, from_text(FACTORED).rule)


def test_direction_is_as_written_also_where_the_canonical_form_turns_it(tmp_path: Path) -> None:
    left, right = "(matmul x (matmul y z))", "(matmul (matmul x y) z)"
    forward, backward = (from_text(f"{a} = {b}") for a, b in ((left, right), (right, left)))
    assert forward.rule.id == backward.rule.id and forward.reverse != backward.reverse


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tools", "rules", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(read())
    assert cli.main(["tools", "rules", "prove", "my.txt"]) == 1
    out = capsys.readouterr().out
    assert "factored: proved by egglog" in out and "1 proved, 0 refuted, 1 unknown" in out
    assert cli.main(["tools", "rules", "prove", "good.txt"]) == 0
    assert cli.main(["tools", "rules", "show", "factored", "my.txt"]) == 0
    out = capsys.readouterr().out
    assert "(x1 @ x2) + (x1 @ x3) = x1 @ (x2 + x3)" in out and "proved by egglog" in out
    assert cli.main(["tools", "rules", "apply", "good.txt", "m.onnx", "-o", "o.onnx"]) == 0
    out = capsys.readouterr().out
    assert "5 -> 3 operators" in out and "in the file 2 nodes stay as they were, 1 are new" in out
    model = onnx.load("o.onnx")
    assert model.opset_import[0].version == 17 and len(model.graph.node) == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["prove"], 2, "expected deep500 tools rules prove FILE"),
        (["apply", "good.txt", "m.onnx"], 2, "apply RULES MODEL -o OUT"),
        (["show", "none"], 2, "'deep500 tools rules list'"),
        (["apply", "my.txt", "m.onnx", "-o", "o.onnx"], 3, "--unproved"),
        (["apply", "false.txt", "m.onnx", "-o", "o.onnx", "--unproved"], 3, "which this does not"),
        (["prove", "gone.txt"], 3, "no such file"),
        (["prove", "good.txt", "--operator", "abs.py"], 2, "path.py:Name"),
    ],
)
def test_wrong_words_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    assert cli.main(["tools", "rules", *words]) == code
    assert said in error_line(capsys)
    assert not Path("o.onnx").exists()


def test_what_is_not_proved_says_so_in_every_result(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", "m.onnx", "--backend", "reference", "--rules", "my.txt"]
    formula = ["--no-measure", "--history", "h.json", "--report", "p.html"]
    assert cli.main([*words, "-o", "o.onnx", *formula]) == 3
    assert "--unproved" in error_line(capsys) and not Path("o.onnx").exists()
    assert cli.main([*words, "-o", "o.onnx", *formula, "--unproved"]) == 0
    id_ = from_text(IDEMPOTENT).rule.id
    said = f"NOT PROVED: rules {id_} were applied without a proof"
    assert said in capsys.readouterr().out and json.loads(Path("h.json").read_text())["unproved"] == [id_]
    assert said in Path("p.html").read_text() and "<b>not proved</b>" in Path("p.html").read_text()
    entry = {p.key: p.value for p in onnx.load("o.onnx").metadata_props}["deep500.optimized"]
    assert json.loads(entry)["unproved"] == [id_]
    replay = [*words, "-o", "again.onnx", "--replay", "h.json"]
    assert cli.main(replay) == 3 and "--unproved" in error_line(capsys)
    assert cli.main([*replay, "--unproved"]) == 0 and said in capsys.readouterr().out
    assert Path("again.onnx").read_bytes() == Path("o.onnx").read_bytes()


@pytest.fixture
def own_process() -> Iterator[None]:
    with own_activations():
        yield


ABSOLUTE = """
import numpy as np
from deep500.transformations.substitutions.operators.own import Activation

ABS = Activation("{name}", "{op}", np.abs, axioms=("({name} ({name} x)) = ({name} x)",))
WRONG = Activation("{name}wrong", "Ceil", np.ceil, axioms=("({name}wrong x) = (relu x)",))
"""


def test_an_activation_of_ones_own_from_outside(
    folder: Path, capsys: pytest.CaptureFixture[str], own_process: None
) -> None:
    Path("absolute.py").write_text(ABSOLUTE.format(name="abs", op="Abs"))
    Path("abs.txt").write_text("(abs (abs (abs x))) = (abs x)\n")
    network = Network("three")
    network.add_input("x", ("N", 4))
    for n, (source, target) in enumerate([("x", "a"), ("a", "b"), ("b", "y")]):
        network.add_node("Abs", [source], [target], name=f"abs{n}")
    network.add_output("y")
    network.to_onnx("abs.onnx")
    mine = ["--operator", "absolute.py:ABS"]
    assert cli.main(["tools", "rules", "prove", "abs.txt", *mine]) == 0
    assert "proved by egglog, from axioms of abs" in capsys.readouterr().out
    assert cli.main(["tools", "rules", "apply", "abs.txt", "abs.onnx", "-o", "o.onnx", *mine]) == 0
    assert "3 -> 1 operators" in capsys.readouterr().out
    words = ["optimize", "abs.onnx", "-o", "p.onnx", "--rules", "abs.txt", "--no-measure", "--backend", "reference"]
    assert cli.main([*words, *mine]) == 0 and "3 -> 1 operators" in capsys.readouterr().out
    assert cli.main(["tools", "rules", "prove", "abs.txt", "--operator", "absolute.py:WRONG"]) == 3
    assert "axiom 0 of abswrong" in error_line(capsys)
    assert cli.main(["tools", "rules", "list", "--operator", "absolute.py:NONE"]) == 2
    assert "expected an Activation in absolute.py" in error_line(capsys)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(transpose t (transpose t x)) = x", "t1 = ("),  # true of matrices, and of all but cycles of three axes
        ('(split 0 1 p (conv "1,1" "1,1" "0,0,0,0" "1,1" g x w)) = (conv "1,1" "1,1" "0,0,0,0" "1,1" g x w)', "shape"),
        ('(relu (unary "tanh" x)) = (unary "tanh" (relu x))', ""),  # true
        ('(unary "tanh" (relu x)) = (relu x)', "left["),
        ('(mul (unary "relu" x) (ones q)) = (unary "relu" x)', ""),
    ],
)
def test_rules_are_refuted_where_they_fail(text: str, shown: str) -> None:
    verdict = prove(from_text(text).rule)[0]
    assert (verdict.rule.verdict == "refuted") == bool(shown) and shown in str(verdict), verdict


def test_groups_of_two_and_more_are_tried() -> None:
    """A rule that holds for one group only: sizes that fit several are drawn often enough to see it."""
    one = "x (concat 0 p w v))"
    wrong = f"(conv k s d e g {one} = (concat 1 p (conv k s d e g x w) (conv k s d e g x v))"
    verdict = prove(from_text(wrong).rule)[0]
    assert verdict.rule.verdict == "refuted" and verdict.counterexample is not None
    assert verdict.counterexample.parameters["g1"] > 1


def test_a_function_is_held_against_the_operators_kernels(own_process: None) -> None:
    with pytest.raises(InputError, match="kernel in reference, Floor, gives"):
        rewriting.add_activation(rewriting.Activation("floor", "Floor", lambda x: x))  # equal on all integers
    additive = "(floor (add x y)) = (add (floor x) (floor y))"
    rewriting.add_activation(rewriting.Activation("floor", "Floor", np.floor, axioms=(additive,)))
    with pytest.raises(DataError, match=r"axiom 0 of floor: .*expected one that holds"):
        prove(from_text("(floor (floor (floor x))) = (floor x)").rule)


def test_extreme_numbers_refute_what_moderate_ones_do_not(own_process: None) -> None:
    def clipped(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.where(np.abs(x) < 1e-5, 0.0, x)

    rewriting.add_activation(rewriting.Activation("shrink", "Shrink", clipped, {"lambd": 1e-5}))
    verdict = prove(from_text("(shrink (scale x s)) = (scale (shrink x) s)").rule)[0]
    assert verdict.rule.verdict == "refuted"
