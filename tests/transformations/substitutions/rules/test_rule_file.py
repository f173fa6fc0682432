"""The file of proved rules: what is shipped, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deep500.errors import DataError
from deep500.transformations.substitutions.rules import rule_file
from deep500.transformations.substitutions.rules.patterns import canonical
from deep500.transformations.substitutions.rules.rule_file import SHIPPED, PatternRule, from_line, read, to_line, write


def test_the_shipped_file_is_current_and_its_bytes_follow_from_its_rules(tmp_path: Path) -> None:
    """If this says that the file is stale, write it anew with the command that the message names."""
    rules = read()
    assert len(rules) > 100 and all(rule.verdict == "proved" for rule in rules)
    write(reversed(rules), tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == SHIPPED.read_bytes()
    assert len({rule.id for rule in rules}) == len(rules)


def test_the_rules_that_matter_are_there() -> None:
    rules = {str(rule) for rule in read()}
    for wanted in (
        "(conv k1 s1 d1 e1 g1 x1 (merge_groups g2 u1 x2)) = (conv k1 s1 d1 e1 g2 x1 x2); g2 = (* g1 u1)",
        "(split 0 1 p1 (matmul x1 (concat 1 p1 x2 x3))), (split 1 1 p1 (matmul x1 (concat 1 p1 x2 x3))) = "
        "(matmul x1 x2), (matmul x1 x3)",
        "(conv k1 s1 d1 e1 g1 x1 (gain 0 x2 x3)) = (gain 1 (conv k1 s1 d1 e1 g1 x1 x2) x3)",
        "(add (matmul x1 x2) (matmul x3 x4)) = (matmul (concat 1 p1 x1 x3) (concat 0 p1 x2 x4)); p1 = size x1 1",
        "(split 0 a1 p1 (unary f1 x1)), (split 1 a1 p1 (unary f1 x1)) = "
        "(unary f1 (split 0 a1 p1 x1)), (unary f1 (split 1 a1 p1 x1))",
    ):
        assert any(wanted in rule for rule in rules), wanted
    small = '"1,1" s1 "0,0,0,0" "1,1"'
    pointwise = [rule for rule in rules if f"(conv {small}" in rule and "enlarge" in rule]
    assert any("(add (conv" in rule for rule in pointwise) and any("(split 0 1" in rule for rule in pointwise)


def _line(**changes: object) -> str:
    rule = PatternRule(*canonical(("(add x1 x2)",), ("(add x2 x1)",), ()), origin="0" * 16)
    return json.dumps({**json.loads(to_line(rule)), **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"specification": "0" * 16}, "under other meanings"),
        ({"id": "0" * 16}, "the line was altered"),
        ({"where": ["p1 = size x1 0"]}, "the line was altered"),
        ({"left": ["(no_operator x1)"]}, "write the file of pattern rules anew"),
        ({"left": None}, "write the file of pattern rules anew"),
        ({"verdict": "unknown"}, "only these are applied"),
        ({"prover": None}, "only these are applied"),
    ],
)
def test_what_is_stale_altered_foreign_or_unproved_is_refused(changes: dict[str, object], said: str) -> None:
    from_line(_line())
    with pytest.raises(DataError, match=said):
        from_line(_line(**changes), "rules.jsonl:1")


def test_files_that_hold_no_rules_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
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
