"""Lifting generated rules to patterns, and the file of pattern rules (lifting needs egglog)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from deep500.errors import DataError
from deep500.transformations.substitutions.rules import rule_file
from deep500.transformations.substitutions.rules.patterns import canonical
from deep500.transformations.substitutions.rules.rule_file import SHIPPED, PatternRule, from_line, read, to_line, write
from deep500.transformations.workshop.substitutions.library import THEMES, generated, holds, joined
from deep500.transformations.workshop.substitutions.lift import Form, lift
from deep500.transformations.workshop.substitutions.menu import conv_parameters
from deep500.transformations.workshop.substitutions.pattern_proofs import independent, proved
from deep500.transformations.workshop.substitutions.rules import Rule
from deep500.transformations.workshop.substitutions.terms import SYMBOLS, Expression, Sizes, Variable, make

W, V, U = (Variable("w", n) for n in (1, 2, 3))
X, Y = (Variable("x", n) for n in (1, 2))
P, J, A, B, G = Variable("i", 1), Variable("i", 2), Variable("a", 1), Variable("a", 2), Variable("g", 1)
C = Sizes(SYMBOLS["c"])


def _conv(image: Expression, kernel: Expression, groups: object = 1) -> Expression:
    return make("conv", image, kernel, **conv_parameters((3, 3), groups))


def _lifted(left: Expression, right: Expression) -> PatternRule:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    found = lift([Rule((left,), (right,))])
    assert not found.failed
    return found.rules[0]


# fmt: off
LIFTED = {
    "any activation and axis": (
        (make("concat", make("relu", W), make("relu", V), axis=0), make("relu", make("concat", W, V, axis=0))),
        "(concat a1 p1 (unary f1 x1) (unary f1 x2)) = (unary f1 (concat a1 p1 x1 x2))",
    ),
    "any permutation": (
        (make("relu", make("transpose", W, perm=(1, 0))), make("transpose", make("relu", W), perm=(1, 0))),
        "(transpose t1 (unary f1 x1)) = (unary f1 (transpose t1 x1))",
    ),
    "any window, one group": (
        (make("concat", _conv(P, A), _conv(P, B), axis=1), _conv(P, make("concat", A, B, axis=0))),
        "(concat 1 p1 (conv k1 s1 d1 e1 4097 x1 x2) (conv k1 s1 d1 e1 4097 x1 x3)) = "
        "(conv k1 s1 d1 e1 4097 x1 (concat 0 p1 x2 x3))",
    ),
    "any groups, stride one where two images meet": (
        (make("add", _conv(P, G, C), _conv(J, G, C)), _conv(make("add", P, J), G, C)),
        '(add (conv k1 "1,1" d1 e1 g1 x1 x2) (conv k1 "1,1" d1 e1 g1 x3 x2)) = '
        '(conv k1 "1,1" d1 e1 g1 (add x1 x3) x2)',
    ),
    "a cut that one side must be told": (
        (make("add", make("matmul", X, W), make("matmul", Y, V)),
         make("matmul", make("concat", X, Y, axis=1), make("concat", W, V, axis=0))),
        "(add (matmul x1 x2) (matmul x3 x4)) = (matmul (concat 1 p1 x1 x3) (concat 0 p1 x2 x4)); p1 = size x1 1",
    ),
    "sizes of square operands told apart": (
        (make("concat", make("concat", W, V, axis=0), U, axis=0),
         make("concat", W, make("concat", V, U, axis=0), axis=0)),
        "(concat a1 p1 (concat a1 p2 x1 x2) x3) = (concat a1 p2 x1 (concat a1 p3 x2 x3)); "
        "p3 = size x2 a1, p1 = (+ p2 p3)",
    ),
}
# fmt: on


@pytest.mark.parametrize("name", LIFTED)
def test_a_rule_becomes_as_general_as_the_axioms_prove(name: str) -> None:
    sides, wanted = LIFTED[name]
    found = _lifted(*sides)
    assert str(found) == wanted
    assert (found.verdict, found.prover, found.origin) == ("proved", "egglog", Rule((sides[0],), (sides[1],)).id)


def test_grouped_convolutions_keep_the_conditions_they_need() -> None:
    """Groups side by side need kernels of equal sizes: no condition can go, and without them nothing is proved."""
    merged = _conv(make("concat", P, J, axis=1), make("concat", G, Variable("g", 2), axis=0), Sizes((4, 6)))
    found = _lifted(make("concat", _conv(P, G, C), _conv(J, Variable("g", 2), C), axis=1), merged)
    assert any("(+" in line for line in found.where) and len(found.where) > 3
    assert proved([found]) == [True]
    for line in found.where:
        fewer = dataclasses.replace(found, where=tuple(one for one in found.where if one != line))
        assert proved([fewer]) == [False] or line.startswith("p")


def test_what_is_false_is_not_proved_and_fails_its_trial() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    # fmt: off
    wrong = [
        PatternRule(("(matmul x1 x2)",), ("(matmul x2 x1)",)),
        PatternRule(("(unary f1 (add x1 x2))",), ("(add (unary f1 x1) (unary f1 x2))",)),
        PatternRule(("(concat 1 p1 (conv k1 s1 d1 e1 g1 x1 x2) (conv k1 s1 d1 e1 g1 x1 x3))",),
                    ("(conv k1 s1 d1 e1 g1 x1 (concat 0 p1 x2 x3))",)),
        PatternRule(("(add (conv k1 s1 d1 e1 g1 x1 x2) (conv k1 s1 d1 e1 g1 x3 x4))",),
                    ("(conv k1 s1 d1 e1 g1 (concat 1 p1 x1 x3) (concat 1 p1 x2 x4))",), ("p1 = size x1 1",)),
    ]
    # fmt: on
    assert proved(wrong) == [False] * len(wrong)
    assert [holds(rule) for rule in wrong[:3]] == [False] * 3  # the sizes that tell the last one are drawn too rarely


def test_a_rule_that_nothing_proves_is_reported() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    wrong = Rule((make("matmul", W, V),), (make("matmul", V, W),))
    found = lift([wrong])
    assert (found.rules, found.failed) == ([], [wrong])


def test_concatenations_of_what_shares_an_input_are_rules_of_two_outputs() -> None:
    both = make("concat", make("matmul", W, V), make("matmul", W, U), axis=1)
    merged = make("matmul", W, make("concat", V, U, axis=1))
    (pair,) = joined([Rule((both,), (merged,))])
    (found,) = lift([pair]).rules if pytest.importorskip("egglog") else ()
    assert len(found.left) == 2 and not found.where
    apart = make("concat", make("matmul", W, V), make("matmul", X, U), axis=0)
    assert joined([Rule((apart,), (merged,))]) == []


def test_an_instance_of_another_rule_goes() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    general = PatternRule(("(concat a1 p1 (unary f1 x1) (unary f1 x2))",), ("(unary f1 (concat a1 p1 x1 x2))",))
    special = PatternRule(("(concat 0 p1 (unary f1 x1) (unary f1 x1))",), ("(unary f1 (concat 0 p1 x1 x1))",))
    other = PatternRule(("(add (scale x1 x2) (scale x3 x2))",), ("(scale (add x1 x3) x2)",))
    assert set(independent([special, general, other])) == {general, other}


def test_names_order_and_sides_do_not_change_a_rule() -> None:
    one = canonical(("(add (matmul u v) (matmul u w))",), ("(matmul u (add v w))",), ())
    assert one == canonical(("(matmul a (add c b))",), ("(add (matmul a b) (matmul a c))",), ())
    assert one != canonical(("(matmul a (add c b))",), ("(add (matmul a b) (matmul c a))",), ())


def test_literals_that_may_vary_are_slots_and_others_are_not() -> None:
    form = Form(Rule((make("concat", make("bias", W, Variable("u", 1), axis=1), V, axis=0),), (W,)))
    assert [slot.parameter for slot in form.slots] == []  # two axes: neither may be any axis
    form = Form(Rule((make("relu", make("transpose", W, perm=(1, 0))),), (W,)))
    assert sorted(slot.parameter for slot in form.slots) == ["function", "perm"]


# -- the file -------------------------------------------------------------------------------------------------------
def test_the_shipped_file_is_current_and_its_bytes_follow_from_its_rules(tmp_path: Path) -> None:
    """If this says that the file is stale, write it anew with the command that the message names."""
    found = read()
    assert len(found) > 100 and all(rule.verdict == "proved" for rule in found)
    write(reversed(found), tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == SHIPPED.read_bytes()
    assert len({rule.id for rule in found}) == len(found)


def test_shipped_rules_are_still_proved_from_the_axioms() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    assert all(proved(read()))


@pytest.mark.parametrize("name", ["groups", "kernels of one point"])
def test_generating_a_theme_anew_gives_its_shipped_rules(name: str) -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    theme = next(one for one in THEMES if one.name == name)
    rules = generated(theme, seed=3)[0]  # another seed than the file's: the rules do not depend on it
    lifted = {to_line(rule) for rule in lift(rules).rules}
    origins = {rule.id for rule in rules}
    shipped = {to_line(rule) for rule in read() if rule.origin in origins}
    assert shipped and shipped <= lifted


def test_the_rules_that_matter_are_there() -> None:
    found = {str(rule) for rule in read()}
    for wanted in (
        "(conv k1 s1 d1 e1 g1 x1 (merge_groups g2 u1 x2)) = (conv k1 s1 d1 e1 g2 x1 x2); g2 = (* g1 u1)",
        "(split 0 1 p1 (matmul x1 (concat 1 p1 x2 x3))), (split 1 1 p1 (matmul x1 (concat 1 p1 x2 x3))) = "
        "(matmul x1 x2), (matmul x1 x3)",
        "(conv k1 s1 d1 e1 g1 x1 (gain 0 x2 x3)) = (gain 1 (conv k1 s1 d1 e1 g1 x1 x2) x3)",
        "(add (matmul x1 x2) (matmul x3 x4)) = (matmul (concat 1 p1 x1 x3) (concat 0 p1 x2 x4)); p1 = size x1 1",
        "(split 0 a1 p1 (unary f1 x1)), (split 1 a1 p1 (unary f1 x1)) = "
        "(unary f1 (split 0 a1 p1 x1)), (unary f1 (split 1 a1 p1 x1))",
    ):
        assert any(wanted in one for one in found), wanted
    small = '"1,1" s1 "0,0,0,0" "1,1"'
    pointwise = [one for one in found if f"(conv {small}" in one and "enlarge" in one]
    assert any("(add (conv" in one for one in pointwise) and any("(split 0 1" in one for one in pointwise)


def _line(**changes: object) -> str:
    rule = PatternRule(*canonical(("(add x1 x2)",), ("(add x2 x1)",), ()), origin="0" * 16)
    return json.dumps({**json.loads(to_line(rule)), **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"specification": "0" * 16}, "under other meanings"),
        ({"id": "0" * 16}, "the line was altered"),
        ({"where": ["p1 = size x1 0"]}, "the line was altered"),
        ({"left": ["(no_operator x1)"]}, "expected a pattern rule in JSON"),
        ({"left": None}, "expected a pattern rule in JSON"),
        ({"verdict": "unknown"}, "only these are applied"),
        ({"prover": None}, "only these are applied"),
    ],
)
def test_what_is_stale_altered_foreign_or_unproved_is_refused(changes: dict[str, object], said: str) -> None:
    from_line(_line())
    with pytest.raises(DataError, match=said):
        from_line(_line(**changes), "rules.jsonl:1")


def test_files_that_hold_no_rules_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="empty file"):
        read(tmp_path / "empty.jsonl")
    (tmp_path / "foreign.jsonl").write_bytes(b"\x08\x01\xff\x00\n")
    with pytest.raises(DataError, match=r"foreign\.jsonl:1"):
        read(tmp_path / "foreign.jsonl")


def test_new_specifications_say_how_to_write_the_file_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_file, "specification_hash", lambda: "f" * 16)
    with pytest.raises(DataError, match=r"python -m deep500\.transformations\.workshop\.substitutions\.library"):
        read()
