"""``deep500 profile``: which node takes my time, in which framework, and what does no node explain?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deep500.errors import InputError
from deep500.networks.execution.inputs import batch_symbol, make_inputs
from deep500.networks.network import Network
from deep500.networks.objects import as_network, is_saved_model
from deep500.profiling.measuring import STEPS, profile_network
from deep500.profiling.page import write_page
from deep500.profiling.profile import Profile
from deep500.profiling.profile_file import as_dict, elsewhere, read_profile, write_profile
from deep500.profiling.table import profile_table
from deep500.profiling.trace import trace_events
from deep500.progress import progress, stage
from deep500.recipe.names import is_own_name, own_object
from deep500.registry import backend_names, is_installed, load_backend
from deep500.results.files import to_json, write_atomic, writing

_Executors = Mapping[str, Callable[[Network], Any]]


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``profile``; returns what executes it."""
    add = parser.add_argument
    add("subject", help="a recipe, an ONNX file, a model of your own (path.py:Name), or a profile.json to show again")
    add("overrides", nargs="*", metavar="key=value", help="change a MUTABLE key of the recipe, as for 'deep500 run'")
    add("--backend", dest="frameworks", metavar="A,B", help="backends to profile in (all that are installed)")
    add("--rounds", type=int, default=STEPS, metavar="N", help=f"profiled steps, each after one without ({STEPS})")
    add("--forward", action="store_true", help="run forward in evaluation mode, do not train")
    add("--unfused", action="store_true", help="let ONNX Runtime and PyTorch run nodes as they are")
    add("--loss", default="loss", metavar="NAME", help="model: the scalar to train on, if it has it (loss)")
    add("--batch", type=int, default=1, metavar="N", help="model: the batch size (1)")
    add("--size", action="append", default=[], metavar="NAME=N", help="model: value of another symbolic size")
    add("--seed", type=int, metavar="S", help="of weights and data (the recipe's)")
    add("--data", type=Path, metavar="DIR", help="the folder with data sets ($DATA_ROOT, ./data)")
    add("--download", action="store_true", help="fetch an absent data set")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="where profile.json, trace.json and profile.html go (results/profile-NAME)",
    )
    add("--dry-run", action="store_true", help="profile one step: does it work?")
    add("--quiet", action="store_true", help="do not say what is being done")
    add("--json", action="store_true", help="print the profile as one JSON object and nothing else")
    return execute


def execute(args: argparse.Namespace) -> int:
    """Profile, or read a profile; print the table and write the files. Returns 0."""
    if args.subject.endswith(".json"):
        return _show(args)
    with progress("profiling", quiet=args.quiet or args.json, at_once=True):
        profile = _profile(args)
    folder = args.out or Path("results") / f"profile-{profile.subject}"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_profile(profile, folder / "profile.json")
    write_atomic(folder / "trace.json", to_json(trace_events(profile)) + "\n")
    write_page(profile, folder / "profile.html")
    text = to_json(as_dict(profile)) if args.json else f"{profile_table(profile)}\n\nresults: {folder}"
    sys.stdout.write(f"{text}\n")
    return 0


def _show(args: argparse.Namespace) -> int:
    if args.frameworks is not None or args.overrides:
        raise InputError(
            f"got {args.frameworks or args.overrides[0]!r} with a profile that was measured before; expected the file "
            "alone, since times of two machines or days do not belong in one table: profile the recipe or model again"
        )
    profile = read_profile(args.subject)
    if args.json:
        sys.stdout.write(to_json(as_dict(profile)) + "\n")
        return 0
    apart = elsewhere(profile)
    note = f"measured on another machine: {apart}\n\n" if apart else ""
    sys.stdout.write(f"{note}{profile_table(profile)}\n")
    return 0


def _profile(args: argparse.Namespace) -> Profile:
    names = _frameworks(args.frameworks)
    if args.subject.endswith(".onnx") or is_saved_model(args.subject) or is_own_name("model", args.subject):
        network, inputs, executors = _model(args, names)
        loss = args.loss if args.loss in network.outputs and not args.forward else None
        subject = network.name if is_own_name("model", args.subject) else Path(args.subject).stem
    else:
        network, inputs, executors = _recipe(args, names)
        loss = None if args.forward else "loss"
        subject = Path(args.subject).stem
    steps = 1 if args.dry_run else args.rounds
    return profile_network(network, inputs, executors, loss=loss, steps=steps, unfused=args.unfused, subject=subject)


def _frameworks(text: str | None) -> list[str]:
    """Names of backends, each of which is there; raises InputError or MissingBackend."""
    names = [name for name in backend_names() if is_installed(name)]
    if text is not None:
        names = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not names:
        raise InputError(f"got --backend {text!r}; expected at least one: name some of {', '.join(backend_names())}")
    for name in names:
        stage(f"loading {name}")
        load_backend(name)
    return names


def _model(args: argparse.Namespace, names: list[str]) -> tuple[Network, dict[str, Any], _Executors]:
    if args.overrides:
        raise InputError(f"got {args.overrides[0]!r} with a model; expected no key=value: use --size NAME=N")
    own_model = is_own_name("model", args.subject)
    network = as_network(own_object("model", args.subject) if own_model else args.subject)
    batch = args.batch if batch_symbol(network) is not None else None
    inputs = make_inputs(network, batch, args.seed or 0, dict(map(_size, args.size)))
    return network, inputs, {name: load_backend(name).from_model for name in names}


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not size.isdecimal() or int(size) < 1:
        raise InputError(f"got --size {text!r}; expected a name and a whole number: such as --size N=8")
    return name, int(size)


def _recipe(args: argparse.Namespace, names: list[str]) -> tuple[Network, dict[str, Any], _Executors]:
    from deep500.compare.subject import Setting, Subject
    from deep500.recipe.loader import find_recipe

    stage("loading the recipe")
    path = str(find_recipe(args.subject))
    setting = Setting(path, tuple(args.overrides), args.seed, args.data and str(args.data), args.download)
    first = Subject.load(setting, names[0])
    subjects = [first, *(Subject.load(setting, name, first.data) for name in names[1:])]
    inputs = dict(first.batches(1)[0])
    return first.network(), inputs, {subject.framework: subject.candidate().build for subject in subjects}
