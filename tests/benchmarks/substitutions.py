"""E1, E5 and E6: substitutions generated, proved, and their axioms validated, beside the figures of a peer.

python -m tests.benchmarks.substitutions
python -m tests.benchmarks.substitutions --solver 60 --exhaustive --axioms
python -m tests.benchmarks.substitutions --depth 2 --peer PATH/peer-substitutions.jsonl --rules /tmp/rules.jsonl

``--peer`` names a list of another generator's rules, one JSON object a line (source, target, outputs, provable); it is
only compared with: a rule of it is implied if equality saturation proves it from our proved rules alone. Without it
the coverage is "not measured".
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.workshop.substitutions import experiments
from deep500.transformations.workshop.substitutions.menu import conv_parameters, size
from deep500.transformations.workshop.substitutions.rewrites import rule_rewrites
from deep500.transformations.workshop.substitutions.rules import Rule, write
from deep500.transformations.workshop.substitutions.saturation import saturate
from deep500.transformations.workshop.substitutions.terms import (
    SYMBOLS,
    Expression,
    Sizes,
    Term,
    Variable,
    make,
    term_type,
)
from tests.benchmarks.filling import say

FIGURES = {"rules generated, proved, their axioms validated": "no bar"}
(FIGURE,) = FIGURES

KINDS = "xxxwwwiiiaaadddeeegs"  # of the peer's variables 1 to 20
CONSTANT_SHAPES = {
    "constant_pool": ("pool_kernel", ("c", 1, 3, 3)),
    "constant_iconv": ("identity_kernel", ("c", "c", 3, 3)),
    "constant_imm": ("identity", ("k", "k")),
    "constant_one": ("ones", ("b", "c", "h", "v")),
}
PLAIN = {"matmul": "matmul", "ew_add": "add", "ew_mul": "mul", "mul": "scale", "relu": "relu"}
WINDOW = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}


def variable(number: int) -> Variable:
    """A peer's variable in our kinds."""
    kind = KINDS[number - 1]
    return Variable(kind, number - KINDS.index(kind))


def cut(term: Expression, axis: int) -> Any:
    """Where the peer splits: its operators carry the position of the last concatenation along."""
    if isinstance(term, Variable):
        raise ShapeMismatch(f"got a split of {term}; expected a concatenation inside; nothing to do")
    if term.op == "concat" and dict(term.parameters)["axis"] == axis:
        return size(tuple(shape[axis] for shape in term_type(term.inputs[0])))
    if term.op == "transpose":
        return cut(term.inputs[0], 1 - axis)
    if term.op == "matmul":
        return cut(term.inputs[axis], axis)
    if term.op == "conv":
        return cut(term.inputs[axis], 0)
    try:
        return cut(term.inputs[0], axis)
    except ShapeMismatch:
        return cut(term.inputs[-1], axis)


def translate(op: dict[str, Any], inputs: list[Expression], output: int) -> Term:
    """One operator of the peer in our language; a fused activation becomes an operator of its own."""
    name, parameters = op["op"], op["params"]
    if name in PLAIN:
        return make(PLAIN[name], *inputs)
    if name in CONSTANT_SHAPES:
        ours, shape = CONSTANT_SHAPES[name]
        return make(ours, shape=tuple(Sizes(SYMBOLS[d]) if isinstance(d, str) else d for d in shape))
    if name == "concat":
        return make("concat", *inputs, axis=parameters["axis"])
    if name == "split":
        return make("split", *inputs, output=output, axis=parameters["axis"], cut=cut(inputs[0], parameters["axis"]))
    if name == "transpose":
        return make("transpose", *inputs, perm=(1, 0))
    if name == "enlarge":
        source = term_type(inputs[0])[0][2:]
        return make("enlarge", *inputs, source=source, target=(3, 3))
    if name.startswith("pool2d"):
        extra = {"count_padding": True} if name.endswith("avg") else {}
        return make("avgpool" if extra else "maxpool", *inputs, **WINDOW, **extra)
    groups = size(tuple(a[1] // b[1] for a, b in zip(*map(term_type, inputs), strict=True)))
    convolution = make("conv", *inputs, **conv_parameters((parameters["kernel_h"], parameters["kernel_w"]), groups))
    return make("relu", convolution) if parameters["acti"] == 2 else convolution


def side(operations: list[dict[str, Any]], outputs: list[list[int]]) -> list[Expression]:
    """The terms of some outputs of a list of operators."""
    built: list[tuple[dict[str, Any], list[Expression]]] = []

    def term(index: int, output: int) -> Expression:
        return translate(*built[index], output)

    for op in operations:
        inputs = [variable(operand["var"]) if isinstance(operand, dict) else term(*operand) for operand in op["inputs"]]
        built.append((op, inputs))
    terms = [term(*place) for place in outputs]
    for built_term in terms:
        term_type(built_term)
    return terms


def coverage(path: Path, rules: list[Rule], iterations: int, batch: int) -> None:
    """Print how many of the peer's rules ours imply, of the provable and of the others."""
    goals, owner, provable, foreign = [], [], {}, []
    for line in path.read_text(encoding="utf-8").splitlines():
        peer = json.loads(line)
        provable[peer["id"]] = peer["provable"]
        try:
            sides = [
                side(peer[name], [pair[n] for pair in peer["outputs"]]) for n, name in ((0, "source"), (1, "target"))
            ]
        except ShapeMismatch:
            foreign.append(peer["id"])
            continue
        goals += list(zip(*sides, strict=True))
        owner += [peer["id"]] * len(sides[0])
    rewrites, start, proved = rule_rewrites(rules), time.process_time(), []
    for first in range(0, len(goals), batch):
        proved += saturate(goals[first : first + batch], rewrites, iterations)
    unproved = {rule for rule, iteration in zip(owner, proved, strict=True) if iteration is None}
    missed = unproved | set(foreign)
    for wanted in (True, False):
        ids = [rule for rule, flag in provable.items() if flag is wanted]
        implied = [rule for rule in ids if rule not in missed]
        print(f"peer's {'provable' if wanted else 'unprovable'} rules implied: {len(implied)} of {len(ids)}")
        print(f"  {'missed' if wanted else 'implied'}: {sorted(set(ids) - set(implied)) if wanted else implied}")
    print(f"not of one shape in our environments: {foreign}; CPU {time.process_time() - start:.2f} s")


def main() -> None:
    """Generate, and print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=3, help="greatest number of operators of a side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer", type=Path, help="another generator's rules, to compare with")
    parser.add_argument("--solver", type=int, default=0, metavar="N", help="give Z3 a sample of N rules as well")
    parser.add_argument("--exhaustive", action="store_true", help="all combinations of sizes 1 to 4: minutes")
    parser.add_argument(
        "--axioms", action="store_true", help="redundancy, small sizes by symbols, real kernels: minutes"
    )
    parser.add_argument("--rules", type=Path, help="where to write the rules")
    arguments = parser.parse_args()
    generated = experiments.generation(arguments.depth, arguments.seed)
    results, verdicts = generated.outcome, Counter(rule.verdict for rule in generated.outcome.open)
    print(f"{generated}\nnot proved: {dict(verdicts)}\n", flush=True)
    everything = [*results.rules, *results.multiple, *results.open]
    verified = experiments.verification(everything, arguments.seed, sample=arguments.solver)
    validated = experiments.validation(arguments.exhaustive, arguments.seed)
    print(f"{verified}\n\n{validated}\n", flush=True)
    said = f"{len(results.rules) + len(results.multiple)} rules of up to {arguments.depth} operators"
    said += f" in {generated.seconds:.0f} s; {verified.verdicts.get('proved', 0)} of {len(everything)} proved"
    say(FIGURE, f"{said}; {len(validated.failures)} of {len(validated.combinations)} axioms wrong")
    if arguments.axioms:
        for table in (experiments.redundancy(), experiments.symbols(), experiments.real_kernels(seed=arguments.seed)):
            print(f"{table}\n", flush=True)
    else:
        print("redundancy, symbols and real kernels: not measured (no --axioms)")
    if arguments.rules:
        write([*results.rules, *results.multiple], arguments.rules)
    if arguments.peer:
        coverage(arguments.peer, results.rules, iterations=4, batch=1000)
    else:
        print("peer's rules implied: not measured (no --peer)")


if __name__ == "__main__":
    main()
