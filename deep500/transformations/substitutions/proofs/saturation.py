"""Equality saturation with egglog: all goals in one e-graph, axioms or rules as rewrites both ways.

Willsey et al., egg (POPL 2021); Zhang et al., egglog (PLDI 2023). Optional: ``pip install 'deep500[substitutions]'``.
Saturation proves; it never refutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from deep500.errors import MissingEngine
from deep500.transformations.substitutions.proofs.axioms import Axiom

LANGUAGE = """
(datatype T (V String)
  (matmul T T) (add T T) (mul T T) (scale T T) (shift T T) (bias i64 T T) (gain i64 T T) (unary String T)
  (concat i64 i64 T T) (split i64 i64 i64 T) (transpose String T) (reshape String T)
  (conv String String String String i64 T T) (enlarge String String T) (merge_groups i64 i64 T)
  (avgpool String String String String T) (maxpool String String String T) (batchnorm String T T T T T)
  (ones String) (identity String) (pool_kernel String) (identity_kernel String))
(relation goal (i64 T T))
(relation start (T))
(relation proved (i64))
(ruleset load)
(ruleset late)
(ruleset goals)
(rule ((goal n x x)) ((proved n)) :ruleset goals)
(function size (T i64) i64 :merge old)
(ruleset sizes)
(rule ((= e (unary f x)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
(rule ((= e (add x y)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
(rule ((= e (mul x y)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
(rule ((= e (scale x y)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
(rule ((= e (bias b x y)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
(rule ((= e (gain b x y)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
(rule ((= e (matmul x y)) (= n (size x 0)) (= m (size y 1))) ((set (size e 0) n) (set (size e 1) m)) :ruleset sizes)
(rule ((= e (transpose "1,0" x)) (= n (size x 0)) (= m (size x 1))) ((set (size e 1) n) (set (size e 0) m))
  :ruleset sizes)
(rule ((= e (concat a p x y)) (= m (size y a))) ((set (size e a) (+ p m))) :ruleset sizes)
(rule ((= e (concat a p x y)) (= n (size x b)) (!= a b)) ((set (size e b) n)) :ruleset sizes)
(rule ((= e (split 0 a p x))) ((set (size e a) p)) :ruleset sizes)
(rule ((= e (split o a p x)) (= n (size x b)) (!= a b)) ((set (size e b) n)) :ruleset sizes)
(rule ((= e (merge_groups g u x)) (= n (size x 0))) ((set (size e 0) n)) :ruleset sizes)
(rule ((= e (conv k s d l g x w)) (= n (size x 0)) (= m (size w 0))) ((set (size e 0) n) (set (size e 1) m))
  :ruleset sizes)
(rule ((= e (enlarge k l x)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
(rule ((= e (avgpool k s d c x)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
(rule ((= e (maxpool k s d x)) (= n (size x a))) ((set (size e a) n)) :ruleset sizes)
"""
NAME = re.compile(r"(?<![\"\w/,])[a-z]\d*(?![\w\"])")


def engine() -> Any:
    """A new e-graph.

    Raises:
        MissingEngine: egglog is not installed.
    """
    try:
        from egglog.bindings import EGraph  # type: ignore[import-not-found, unused-ignore]
    except ImportError as problem:
        raise MissingEngine(
            "got no egglog; expected it for equality saturation; run: pip install 'deep500[substitutions]'"
        ) from problem
    return EGraph()


def _names(pattern: str) -> set[str]:
    return set(NAME.findall(re.sub(r'"[^"]*"', "", pattern)))


def direction(left: str, right: str, where: Sequence[str], needed: bool = False, present: str = "") -> str | None:
    """One egglog rule that rewrites left to right; None where the right names what nothing defines.

    With ``needed`` a definition is used only where its name is not bound; otherwise it is a condition as well. With
    ``present`` that must be somewhere, and names what it can.
    """
    if " " not in left and not present:  # a bare variable matches everything
        return None
    bound, facts = _names(left) | _names(present), [f"(= result {left})"] if " " in left else []
    facts += [f"(= present {present})"] * bool(present)
    result = "result" if " " in left else left
    for line in where:
        name, definition = (part.strip() for part in line.split("=", 1))
        body = f"({definition})" if definition.startswith("size") else definition
        if needed and (name in bound or name not in _names(right)):
            continue
        if _names(body) <= bound:
            facts.append(f"(= {name} {body})")
            bound.add(name)
    if not _names(right) <= bound:
        return None
    return f"(rule ({' '.join(facts)}) ((union {result} {right})))"


def rewrites(axioms: Iterable[Axiom]) -> list[str]:
    """Both directions of every axiom, as far as each side, or what must be present, names what the other needs."""
    texts = []
    for axiom in axioms:
        forth = direction(axiom.left, axiom.right, axiom.where)
        back = direction(axiom.right, axiom.left, axiom.where, present=axiom.present)
        texts += [rewrite for rewrite in (forth, back) if rewrite]
    return texts


def saturate_loaded(
    loads: Sequence[str], rules: Sequence[str], iterations: int = 5, limit: int = 2_000_000, late: Sequence[str] = ()
) -> list[int | None]:
    """For every goal the iteration that proved it, or None; goals share one e-graph.

    Args:
        loads: the goals: egglog rules without premises that make ``(goal number left right)``.
        rules: egglog rules (`rewrites`).
        iterations: rounds of all rules.
        limit: stop when the e-graph holds more tuples than this.
        late: likewise, of ruleset ``late``, loaded after the iterations: terms that may be met and not be started from.

    Raises:
        MissingEngine: egglog is not installed.
    """
    graph = engine()
    run = lambda text: graph.run_program(*graph.parse_program(text))  # noqa: E731
    for text in (LANGUAGE, *rules, *loads, *late, "(run load 1)"):
        run(text)  # one at a time: the parser's time grows with the square of a text's length
    proved_in: list[int | None] = [None] * max(len(loads), len(late))
    for iteration in range(iterations + 1):
        if iteration:
            run("(run-schedule (saturate (run sizes)) (run))")
        if iteration == iterations:
            run("(run late 1)")
        run("(run goals 1)")
        for number in _proved(run):
            if proved_in[number] is None:
                proved_in[number] = iteration
        if None not in proved_in or _tuples(run) > limit:
            break
    return proved_in


def _proved(run: Any) -> list[int]:
    return [
        int(number) for number in re.findall(r"\bproved (\d+)", _joined_text(run("(print-function proved 1000000)")))
    ]


def _tuples(run: Any) -> int:
    return sum(int(count) for count in re.findall(r" (\d+)\)", _joined_text(run("(print-size)"))))


def _joined_text(outputs: Any) -> str:
    return " ".join(str(output) for output in outputs)
