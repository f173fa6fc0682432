"""The rules that the package ships: generated, proved, lifted, tried once more, and written to a file.

Generation runs on several small languages, or *themes*: one language with all operators and kinds of variables would
be too large. To write the file anew, after an operator's specification or an axiom has changed:

    python -m deep500.transformations.workshop.substitutions.library
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from deep500.transformations.substitutions.proofs.pattern_proofs import proved
from deep500.transformations.substitutions.proofs.trials import holds
from deep500.transformations.substitutions.rules.rule_file import SHIPPED, PatternRule, write
from deep500.transformations.workshop.substitutions.candidates import Candidates
from deep500.transformations.workshop.substitutions.enumerate import COUNTS, Enumeration
from deep500.transformations.workshop.substitutions.generate import minimal
from deep500.transformations.workshop.substitutions.independence import independent
from deep500.transformations.workshop.substitutions.lift import lift
from deep500.transformations.workshop.substitutions.menu import CORE, Menu, size
from deep500.transformations.workshop.substitutions.prove import prove
from deep500.transformations.workshop.substitutions.rules import GeneratedRule
from deep500.transformations.workshop.substitutions.terms import Term, Variable, make, term_type, variables
from deep500.transformations.workshop.substitutions.well_typed import mended

ELEMENTWISE = frozenset({"relu", "add", "mul", "scale", "bias", "gain"})
DEPTH = 3
CUTTING = frozenset({"concat", "split"})


@dataclass(frozen=True)
class Theme:
    """One small language.

    Attributes:
        name: for people.
        counts: variables of each kind.
        menu: operators.
        whole: keep what follows from smaller rules, because the way there may cost more than it ends with.
        depth: operators of a side, at most.
        within: operators that a rule must have, all of them; for a language of which only these rules are wanted.
    """

    name: str
    counts: dict[str, int]
    menu: Menu = CORE
    whole: bool = False
    depth: int = DEPTH
    within: frozenset[str] = frozenset()


MATRICES = Menu(ELEMENTWISE | CUTTING | {"matmul", "transpose"})
IMAGES = Menu(ELEMENTWISE | CUTTING | {"conv", "avgpool", "maxpool"})
# fmt: off
THEMES = (
    Theme("published", COUNTS),
    Theme("vectors of matrices", {"x": 1, "w": 2, "u": 2, "s": 1}, MATRICES),
    Theme("vectors of images", {"a": 2, "v": 2, "s": 1}, IMAGES),
    Theme(
        "kernels of one point",
        {"a": 2, "o": 2},
        Menu(
            frozenset({"conv", "enlarge", "add", "concat"}),
            ((3, 3), (1, 1)),
            (("identity_kernel", ("c", "c", 3, 3)), ("identity_kernel", ("c", "c", 1, 1)),
             ("identity_kernel", ("c", 1, 3, 3))),
        ),
        whole=True,
    ),
    Theme(
        "gains of one point",
        {"a": 1, "o": 1, "v": 1},
        Menu(
            frozenset({"conv", "add", "gain"}),
            ((3, 3), (1, 1)),
            (("identity_kernel", ("c", "c", 3, 3)), ("identity_kernel", ("c", "c", 1, 1)),
             ("identity_kernel", ("c", 1, 3, 3))),
        ),
        whole=True,
        depth=4,
        within=frozenset({"conv", "add", "gain", "identity_kernel"}),
    ),
    Theme(
        "gains behind biases",
        {"x": 1, "w": 1, "u": 2},
        Menu(frozenset({"matmul", "bias", "gain", "mul"})),
        whole=True,
        depth=4,
        within=frozenset({"matmul", "bias", "gain", "mul"}),
    ),
    Theme(
        "gains behind biases of images",
        {"a": 1, "o": 1, "v": 2},
        Menu(frozenset({"conv", "bias", "gain", "mul"}), ((1, 1),)),
        whole=True,
        depth=4,
        within=frozenset({"conv", "bias", "gain", "mul"}),
    ),
    Theme("halves of columns", {"y": 1, "w": 2, "u": 2, "s": 1}, MATRICES),
    Theme("halves of rows", {"r": 1, "w": 2, "s": 1}, MATRICES),
    Theme("halves of channels", {"j": 1, "a": 2, "v": 2}, IMAGES),
    Theme("halves of a batch", {"l": 1, "a": 2, "v": 1}, IMAGES),
    Theme("two images", {"i": 2, "g": 2}, Menu(frozenset({"conv", "concat", "add"}))),
    Theme("halves of channels, grouped", {"j": 1, "g": 2}, Menu(CUTTING | {"conv"})),
    Theme("groups", {"m": 1, "f": 2, "s": 1}, Menu(frozenset({"conv", "merge_groups", "add", "scale", "relu"}))),
)
# fmt: on


@dataclass(frozen=True)
class RuleLibrary:
    """Rules of all themes, and how they came about.

    Attributes:
        counts: theme -> stage -> number of rules left.
        rules: proved pattern rules, none a single step of another.
        failed: generated rules of which no general form is proved, and pattern rules that the last trial found wrong.
    """

    counts: dict[str, dict[str, int]]
    rules: list[PatternRule]
    failed: list[GeneratedRule | PatternRule]


def generated(theme: Theme, seed: int = 0) -> tuple[list[GeneratedRule], dict[str, int]]:
    """Proved rules of a theme, those of two outputs last, and counts.

    Raises:
        MissingEngine: egglog is not installed.
    """
    candidates = Candidates(Enumeration(theme.depth, seed, theme.counts, theme.menu))
    single, double = (
        [rule for rule in prove([r for r in rules if theme.within <= operators(r)], seed) if rule.verdict == "proved"]
        for rules in (candidates.rules, candidates.multiple)
    )
    chosen = single if theme.whole else minimal(single)
    more = [rule for rule in prove(joined(single), seed) if rule.verdict == "proved"]
    rules = {rule.id: rule for rule in (*chosen, *double, *more)}
    counts = {"candidates": len(candidates.rules) + len(candidates.multiple), "proved": len(single) + len(double)}
    return list(rules.values()), {**counts, "kept": len(rules)}


def operators(rule: GeneratedRule) -> set[str]:
    """Names of the operators of both sides.

    Example:
        >>> from deep500.transformations.workshop.substitutions.terms import Variable, make
        >>> x = Variable("x", 1)
        >>> sorted(operators(GeneratedRule((make("add", x, x),), (make("mul", x, x),))))
        ['add', 'mul']
    """
    names, todo = set[str](), [*rule.source, *rule.target]
    while todo:
        term = todo.pop()
        if isinstance(term, Term):
            names.add(term.op)
            todo += term.inputs
    return names


def joined(rules: Sequence[GeneratedRule]) -> list[GeneratedRule]:
    """Rules of two outputs: where one side concatenates two terms that share a variable, they are parts of the other.

    Example:
        >>> from deep500.transformations.workshop.substitutions.terms import Variable, make
        >>> w, v, u = (Variable("w", n) for n in (1, 2, 3))
        >>> both = make("concat", make("matmul", w, v), make("matmul", w, u), axis=1)
        >>> merged = make("matmul", w, make("concat", v, u, axis=1))
        >>> [len(rule.source) for rule in joined([GeneratedRule((both,), (merged,))])]
        [2]
    """
    pairs = []
    for rule in rules:
        for (whole,), (other,) in ((rule.source, rule.target), (rule.target, rule.source)):
            if isinstance(whole, Variable) or whole.op != "concat" or isinstance(other, Variable):
                continue
            left, right = whole.inputs
            axis = dict(whole.parameters)["axis"]
            merges = isinstance(left, Term) and isinstance(right, Term) and left != right and other.op != "concat"
            if merges and set(variables(left)) & set(variables(right)):
                cut = size(tuple(shape[axis] for shape in term_type(left)))
                parts = tuple(make("split", other, output=n, axis=axis, cut=cut) for n in (0, 1))
                pairs.append(GeneratedRule((left, right), parts))
    return pairs


def library(
    seed: int = 0, themes: Sequence[Theme] = THEMES, report: Callable[[str], None] | None = None
) -> RuleLibrary:
    """Generate, prove and lift the rules of all themes.

    Args:
        seed: of generation; the rules do not depend on it.
        themes: languages.
        report: called with a line after every theme.

    Raises:
        MissingEngine: egglog is not installed.
    """
    counts: dict[str, dict[str, int]] = {}
    rules: dict[str, PatternRule] = {}
    failed: list[GeneratedRule | PatternRule] = []
    for theme in themes:
        rules_of_theme, counts[theme.name] = generated(theme, seed)
        lifted = lift(rules_of_theme)
        rules.update({rule.id: rule for rule in lifted.rules})
        failed += lifted.failed
        counts[theme.name]["lifted"] = len(lifted.rules)
        if report:
            report(f"{theme.name}: {', '.join(f'{name} {count}' for name, count in counts[theme.name].items())}")
    needed = independent(list(rules.values()))
    fitting, wrong = [], []
    for rule in needed:
        fits = mended(rule)  # a proof says that both sides are equal where they exist, not where they do
        if fits is None or not (fits == rule or proved([fits])[0]) or not holds(fits, seed):
            wrong.append(rule)
        else:
            fitting.append(fits)
    return RuleLibrary(counts, list({rule.id: rule for rule in fitting}.values()), [*failed, *wrong])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the shipped file, or the one named by the first argument."""
    parser = argparse.ArgumentParser(description="generate, prove and lift rules; write the file of those that hold")
    parser.add_argument("file", nargs="?", type=Path, default=SHIPPED, help="the one that Deep500 comes with")
    target = parser.parse_args(arguments).file
    result = library(report=tqdm.write)
    write(result.rules, target)
    tqdm.write(f"{len(result.rules)} rules, written to {target.name}; {len(result.failed)} left out")


if __name__ == "__main__":
    main()
