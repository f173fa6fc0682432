"""``deep500 compare``: its options, and from words to :func:`compare_frameworks` or :func:`compare_models`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.effort import add_effort, comma_list, effort_of, print_result
from deep500.compare.frameworks import compare_frameworks
from deep500.compare.models import compare_models
from deep500.compare.result import ComparisonResult
from deep500.compare.runs import compare_runs
from deep500.errors import InputError
from deep500.measure.launch_comparison import Floor
from deep500.networks.objects import is_saved_model
from deep500.progress import progress
from deep500.recipe.loader import find_recipe
from deep500.recipe.names import is_own_name, own_object
from deep500.recipe.options import Options
from deep500.results.files import to_json
from deep500.results.record import MANIFEST


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``compare``; returns what executes it."""
    add = parser.add_argument
    add(
        "subject",
        help="a recipe (file or name that 'deep500 list' shows), an ONNX file, a SavedModel's folder, a model of your "
        "own (path.py:Name), or a run's results folder (then another run's after it)",
    )
    add("overrides", nargs="*", metavar="key=value", help="change a MUTABLE key of the recipe, as for 'deep500 run'")
    add("--backend", dest="frameworks", metavar="A,B", help="at least two backends; 'reference' judges if it is named")
    add(
        "--against",
        metavar="WORDS",
        help="recipe: train it beside another one step by step, and tell where their parameters part beyond rounding; "
        "words as for 'deep500 run', such as 'optimizer=NAdamOptimizer' or '--backend jax' ('' with --backend)",
    )
    add(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="train with N seeds in each framework (1); 0: only time steps",
    )
    add_effort(
        parser,
        "steps or inferences per block (0.2 s of them); with --against: all (100)",
        "one round of one step, no training",
    )
    add("--seed", type=int, metavar="S", help="the first seed (the recipe's)")
    add("--batch-sizes", default="1", metavar="1,8", help="ONNX file: batch sizes to time (1)")
    add("--size", action="append", default=[], metavar="NAME=N", help="ONNX file: value of another symbolic size")
    add(
        "--example",
        action="append",
        default=[],
        metavar="2x3x32x32",
        help="model of your own: shape of an input to trace it with, the batch first; 2x12:int64 for another dtype",
    )
    add("--data", type=Path, metavar="DIR", help="the folder with data sets ($DATA_ROOT, ./data)")
    add("--download", action="store_true", help="fetch an absent data set")
    add("--open", action="store_true", help="allow overrides of FIXED keys")
    add(
        "--launch-floor",
        type=float,
        metavar="REL",
        help="two results folders: relative standard deviation between launches of the same work (0.02: 2 %%), where "
        "the folders have too few to show it",
    )
    return execute


def execute(args: argparse.Namespace) -> int:
    """Compare, print the result, return the exit code: 0 if all compute the same, else 1.

    For two results folders: 0 the second is as fast or faster, 1 slower or worse, 2 unresolved, 3 not comparable.
    """
    effort = effort_of(args)
    if (Path(args.subject) / MANIFEST).is_file():
        return _runs(args)
    if args.against is not None:
        return _trajectories(args)
    if args.frameworks is None:
        if args.overrides and "=" not in args.overrides[0]:
            raise InputError(f"got {args.subject!r}, where no finished run is; expected two results folders: name both")
        raise InputError(
            "got no --backend; expected at least two: add --backend pytorch,reference, or name two results folders"
        )
    if args.launch_floor is not None:
        raise InputError("got --launch-floor without two results folders; expected it with them: leave it out")
    with progress("comparing", quiet=args.quiet or args.json, at_once=True):
        result = (_models if _is_model(args.subject) else _frameworks)(args, effort)
    return print_result(args, result)


def _is_model(subject: str) -> bool:
    return subject.endswith(".onnx") or is_saved_model(subject) or is_own_name("model", subject)


def _runs(args: argparse.Namespace) -> int:
    if len(args.overrides) != 1 or args.frameworks is not None:
        raise InputError(
            f"got one results folder and {args.overrides}; expected exactly one more: deep500 compare A B, where B is "
            "judged against A"
        )
    floor = None if args.launch_floor is None else Floor(args.launch_floor)
    with progress("comparing runs", quiet=args.quiet or args.json):
        comparison = compare_runs(Path(args.subject), Path(args.overrides[0]), floor=floor)
    sys.stdout.write((to_json(comparison.as_dict()) if args.json else str(comparison)) + "\n")
    return comparison.exit_code


def _trajectories(args: argparse.Namespace) -> int:
    """Tell where two trainings part; returns 1 if they do."""
    from deep500.compare.against import base_of
    from deep500.compare.trajectories import STEPS, compare_trajectories

    backends = comma_list(args.frameworks or "")
    if len(backends) not in (0, 2) or _is_model(args.subject):
        raise InputError(
            f"got --against with {args.subject!r} and {len(backends)} frameworks; expected a recipe, and none or two "
            "of them, one for each side: name the base first"
        )
    options = Options(
        args.overrides,
        framework=backends[0] if backends else None,
        seed=args.seed,
        open=args.open,
        data=args.data,
        out=args.out,
    )
    options.download, path = args.download, find_recipe(args.subject)
    other = base_of(path, options, args.against)
    if backends:
        other[1].framework = backends[1]
    with progress("comparing trajectories", quiet=args.quiet or args.json, at_once=True):
        result = compare_trajectories((path, options), other, args.steps or STEPS)
    page = result.write(args.out / f"trajectory-{path.stem}")
    sys.stdout.write(
        to_json({**result.as_dict(), "page": str(page)}) + "\n" if args.json else f"{result}\n\npage: {page}\n"
    )
    return 0 if result.parts is None else 1


def _frameworks(args: argparse.Namespace, effort: Mapping[str, Any]) -> ComparisonResult:
    if args.custom_op:
        raise InputError(
            f"got --custom-op {args.custom_op[0]!r} with a recipe; expected it with an ONNX file: recipes name their "
            "plugins themselves, as 'custom_ops': [...]"
        )
    return compare_frameworks(
        args.subject,
        comma_list(args.frameworks),
        overrides=args.overrides,
        repeat=args.repeat,
        seed=args.seed,
        data=args.data,
        download=args.download,
        open=args.open,
        **effort,
    )


def _models(args: argparse.Namespace, effort: Mapping[str, Any]) -> ComparisonResult:
    if args.overrides:
        raise InputError(f"got {args.overrides[0]!r} with an ONNX file; expected no key=value: use --size NAME=N")
    return compare_models(
        own_object("model", args.subject) if is_own_name("model", args.subject) else args.subject,
        comma_list(args.frameworks),
        batch_sizes=[_whole("--batch-sizes", number) for number in comma_list(args.batch_sizes)],
        seed=args.seed or 0,
        sizes=dict(_size(text) for text in args.size),
        custom_ops=args.custom_op,
        example=tuple(_example(text) for text in args.example) or None,
        **effort,
    )


def _example(text: str) -> np.ndarray:
    """Random numbers of a shape such as 2x3x32x32, zeros and ones where another dtype follows a colon."""
    shape, _, dtype = text.partition(":")
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape) or dtype not in ("", "float32", "float64", "int32", "int64"):
        raise InputError(f"got --example {text!r}; expected sizes and a dtype: such as 2x3x32x32 or 2x12:int64")
    rng, sizes = np.random.default_rng(0), [int(size) for size in shape.split("x")]
    values = rng.integers(0, 2, sizes) if dtype.startswith("int") else rng.standard_normal(sizes)
    return values.astype(dtype or "float32")


def _whole(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"got {option} {text!r}; expected whole numbers of at least 1: such as {option} 1,8")
    return int(text)


def _size(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    return name, _whole(f"--size {name}", number)
