"""``compare_models``: inference of any ONNX file in several frameworks, outputs cross-checked, per batch size."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare import first_difference
from deep500.compare.checks import Check, GateResult, relative
from deep500.compare.frameworks import Effort, check_frameworks, write
from deep500.compare.result import ComparisonResult
from deep500.compare.subject import Candidate
from deep500.compare.timing import Team
from deep500.compare.traces import as_arrays
from deep500.errors import ComparisonError
from deep500.keywords import takes
from deep500.measure.environment import describe
from deep500.measure.machine import threads_to_use
from deep500.networks.execution.inputs import batch_symbol, make_inputs
from deep500.networks.network import Network
from deep500.networks.objects import as_network
from deep500.operators.registry import load_plugins
from deep500.recipe.build import digest
from deep500.registry import load_backend

JUDGES = ("reference", "onnxruntime")
"""Which framework is believed, in this order; else the first."""
TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Of the largest value of an output, by its dtype; whole numbers must be equal."""


@dataclass(frozen=True)
class ModelComparison(Effort):
    """The options of :func:`compare_models`.

    Args:
        model: an ONNX file, or whatever else :func:`deep500.networks.as_network` takes; its first symbolic size is the
            batch, if the first input begins with one.
        frameworks: at least two backends; ``reference`` judges if named, else ``onnxruntime``, else the first.
        batch_sizes: to be timed; a model with a batch size of its own has only that one.
        rounds: blocks timed per framework and batch size; 0 times nothing.
        steps: inferences per block; None: as many as take about 0.2 s.
        threads: threads and cores per process; None: ``OMP_NUM_THREADS``, else all that this process may use.
        seed: of the inputs and of the order.
        sizes: values for symbolic sizes other than the batch.
        custom_ops: folders (or files) of the plugins that the model's custom operators need.
        out: folder for results; None writes nothing.
        dry_run: one round of one inference: does it work?
        example: inputs to trace a model of a framework with.
        say: called with a line of text for every stage.
    """

    model: Any
    frameworks: Sequence[str]
    _: KW_ONLY
    batch_sizes: Sequence[int] = (1,)
    seed: int = 0
    sizes: Mapping[str, int] | None = None
    custom_ops: Sequence[str | Path] = ()
    example: Any = None


@takes(ModelComparison)
def compare_models(options: ModelComparison) -> ComparisonResult:
    """Run a model in several frameworks on made-up inputs: do the outputs agree, and which is faster?

    Raises:
        MissingBackend: with the line that installs it.
        UnsupportedOperator: a framework cannot run the model; names every offending node.
        InputError: inputs that cannot be made up, or no plugin at a path of ``custom_ops``.
    """
    plugins = [str(Path(path).expanduser().resolve()) for path in options.custom_ops]
    load_plugins(plugins)
    names, model, seed, say = check_frameworks(options.frameworks), options.model, options.seed, options.say
    rounds, steps = (1, 1) if options.dry_run else (options.rounds, options.steps)
    network = as_network(model, options.example)
    batches: list[int | None] = list(options.batch_sizes) if batch_symbol(network) is not None else [None]
    say(f"checking that {', '.join(names)} compute the same ...")
    gate = check_outputs(network, names, batches, seed, options.sizes)
    labels = ("dry run",) if options.dry_run else ()
    result = ComparisonResult(_name_of(model, network), names, gate, labels=labels, environment=describe(None))
    if gate and rounds:
        settings = {"seed": seed, "sizes": dict(options.sizes or {}), "custom_ops": plugins}
        with (
            _file_of(model, network) as file,
            Team(names, options.threads or threads_to_use(), "inference", {**settings, "model": file}) as team,
        ):
            result.facts = team.facts
            for batch in batches:
                label = "inference" if batch is None else f"inference of {batch}"
                say(f"timing {rounds} rounds: {label} ...")
                result.timings[label] = team.time(rounds, seed, steps, batch=batch)
                result.batch_sizes[label] = batch
            result.memory = team.memory()
    facts = [{"path": path, "sha256": digest(Path(path))} for path in plugins]
    asked = {"batch_sizes": list(options.batch_sizes), "rounds": rounds, "steps": steps, "seed": seed}
    return write(result, options.out, {**asked, "custom_ops": facts})


def _is_file(model: Any) -> bool:
    return isinstance(model, (str, Path)) and Path(model).is_file()


def _name_of(model: Any, network: Network) -> str:
    if isinstance(model, (str, Path)):
        return Path(model).stem
    return re.sub(
        r"\W+", "_", getattr(model, "__name__", network.name if isinstance(model, Network) else type(model).__name__)
    )


@contextmanager
def _file_of(model: Any, network: Network) -> Iterator[str]:
    """The file that workers read: the user's, or one that is written for them."""
    if _is_file(model):
        yield str(Path(model).resolve())
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        network.to_onnx(file)
        yield str(file)


def check_outputs(
    network: Network,
    names: Sequence[str],
    batches: Sequence[int | None],
    seed: int,
    sizes: Mapping[str, int] | None,
    values: Mapping[str, np.ndarray] | None = None,
) -> GateResult:
    """Cross-check every output for every batch size; where one differs, name the first node that does.

    Inputs are made up, unless there are ``values`` for them.
    """
    candidates = {name: Candidate(name, load_backend(name).from_model) for name in names}
    judge = next((name for name in JUDGES if name in names), names[0])
    result, executors = GateResult(judge), {name: candidate.build(network) for name, candidate in candidates.items()}
    if not network.outputs:
        raise ComparisonError("got a model without outputs; expected one at least: add it with add_output()")
    for batch in batches:
        inputs = make_inputs(network, batch, seed, sizes) if values is None else values
        outputs = {name: as_arrays(executor, executor.inference(inputs)) for name, executor in executors.items()}
        for name in names:
            if name != judge:
                check = _check(name, outputs[name], outputs[judge], batch)
                if not check.passed:
                    limit = check.tolerance or 0.0
                    first = first_difference.evaluation(candidates[judge], candidates[name], network, [inputs], limit)
                    check = replace(check, where=f"{check.where}; {first}")
                result.checks.append(check)
        small = [value for value, array in outputs[judge].items() if array.dtype.kind == "f" and not array.any()]
        result.notes += [
            f"output {value!r} is all zeros for these inputs: its agreement says nothing" for value in small
        ]
    return result


def _check(name: str, got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], batch: int | None) -> Check:
    what = "outputs" if batch is None else f"outputs of {batch}"
    apart = {value: relative(got[value], want[value]) for value in want}
    limits = {value: TOLERANCES.get(str(array.dtype), 0.0) for value, array in want.items()}
    worst = max(apart, key=lambda value: apart[value] / (limits[value] or 1e-30))
    wrong = apart[worst] > limits[worst]
    return Check(name, what, apart[worst], limits[worst], not wrong, f"output {worst!r}" if wrong else "")
