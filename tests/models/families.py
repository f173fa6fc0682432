"""Modules of 60 families through ``as_network``: ``python -m tests.models.families [--only REGEX] [--missing]``.

Each is imported in a process of its own, with its checks, and then compared with the module itself: outputs in float32
and gradients of all parameters in float64, at the example's batch and at another one, texts at another length, too.
What comes is recorded in ``families.json``, from which ``docs/models.md`` has its table. Exit code: 0 all families are
within the bars, 1 some are not, 3 a collection is missing.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import json
import multiprocessing
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from deep500.registry import load_backend, load_importer
from tests.models.architectures.architecture import offline
from tests.models.architectures.families import SHAPES, TIMM, TRANSFORMERS, WORDS

ROOT, FILE = Path(__file__).parents[2], Path(__file__).with_name("families.json")
BACKENDS = ("reference", "pytorch")
BARS = {"forward": 1e-5, "gradient": 1e-8}
LIMIT = 900.0
"""Seconds that a family may take."""
LENGTH, BATCHES = {"example": 12, "other": 17}, {"example": 2, "other": 3}
MOST = 200
"""Letters of a reason."""


def build(family: str) -> Any:
    """The module, with random weights."""
    import torch

    offline()
    torch.manual_seed(0)
    if family in TIMM:
        import timm

        name, _, options = TIMM[family]
        return timm.create_model(name, num_classes=7, **options)
    import transformers

    kind, config, _, options = TRANSFORMERS[family]
    return getattr(transformers, kind)(getattr(transformers, config)(**options))


def inputs(family: str, which: str, dtype: str) -> dict[str, np.ndarray]:
    """Arrays by argument; ``which`` is "example" or "other", in size and in values."""
    rng, batch = np.random.default_rng(len(which)), BATCHES[which]
    if family in TIMM:
        side = TIMM[family][1]
        return {"x": rng.standard_normal((batch, 3, side, side)).astype(dtype)}
    arrays = {}
    for name in TRANSFORMERS[family][2]:
        shape = SHAPES.get(name)
        if name == "input_ids":
            arrays[name] = rng.integers(4, WORDS, (batch, LENGTH[which]))
        elif name == "attention_mask":
            arrays[name] = np.ones((batch, LENGTH[which]), np.int64)
            arrays[name][-1, -3:] = 0
        else:
            assert shape is not None
            frames = (4,) if family == "videomae" else ()
            arrays[name] = rng.standard_normal((batch, *frames, *shape)).astype(dtype)
    return arrays


def measure(family: str) -> dict[str, Any]:
    """What is recorded of a family: errors, or the reason why there are none."""
    import torch

    from tests.models.originals import in_double, with_epsilons_of_float32

    record: dict[str, Any] = {}
    module = _stirred(build(family)).eval()
    wide = with_epsilons_of_float32(copy.deepcopy(module).double())
    try:
        begin = time.process_time()
        record["forward"] = _forward(family, module)
        record["seconds"] = round(time.process_time() - begin, 1)
        torch.set_default_dtype(torch.float64)
        with in_double()():
            record["gradient"] = _gradient(family, wide)
    except Exception as error:  # noqa: BLE001 - the reason is the result
        text = re.sub(r"\S*/(?=[\w-]+\.py)", "", " ".join(f"{type(error).__name__}: {error}".split()))
        record["reason"] = text if len(text) <= MOST else f"{text[:MOST]} ..."
    return record


def _stirred(module: Any) -> Any:
    """Noise in constant parameters: a last layer of zeros would hide what lies before it."""
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return module


def _network(family: str, module: Any, dtype: str) -> Any:
    from deep500.networks import as_network

    example = inputs(family, "example", dtype)
    axes = {name: {1: "length"} for name in ("input_ids", "attention_mask") if name in example}
    return as_network(module, example["x"] if family in TIMM else example, dynamic_axes=axes)


def _fed(network: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip(network.inputs, arrays.values(), strict=True)) if "x" in arrays else arrays


def _called(module: Any, arrays: dict[str, np.ndarray]) -> list[Any]:
    import torch

    result = module(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    if isinstance(result, torch.Tensor):
        return [result]
    values = result.values() if hasattr(result, "values") else result
    return [value for value in values if isinstance(value, torch.Tensor)]


def _forward(family: str, module: Any) -> float:
    """Largest difference of any output from the module's, of the largest value there."""
    import torch

    from tests.tolerances import as_numpy

    network, errors = _network(family, module, "float32"), []
    module.eval()
    for backend in BACKENDS:
        executor = load_backend(backend).from_model(network)
        for which in BATCHES:
            arrays = inputs(family, which, "float32")
            with torch.no_grad():
                results = [result.numpy() for result in _called(module, arrays)]
            outputs = executor.inference(_fed(network, arrays))
            for name, want in zip(network.outputs, results, strict=True):
                got = as_numpy(outputs[name])
                assert got.shape == want.shape, f"got {name} of shape {got.shape}; expected {want.shape}"
                errors.append(float(np.abs(got - want).max() / np.abs(want).max()))
    return max(errors)


def _gradient(family: str, module: Any) -> float:
    """Norm of the difference from autograd's gradients over all parameters, of their norm."""
    import torch

    from tests.frameworks.gradients import network_gradients

    network, errors = _network(family, module, "float64"), []
    for which in BATCHES:
        arrays = inputs(family, which, "float64")
        module.train().zero_grad()
        with load_importer("pytorch", "importing_chance").still(module):
            results = _called(module, arrays)
        rng = np.random.default_rng(1)
        cotangents = [rng.standard_normal(tuple(result.shape)) for result in results]
        terms = [(y * torch.from_numpy(c)).sum() for y, c in zip(results, cotangents, strict=True) if y.requires_grad]
        sum(terms).backward()
        want = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
        norm = np.sqrt(sum((array**2).sum() for array in want.values()))
        for backend in BACKENDS:
            got = network_gradients(load_backend(backend), network, _fed(network, arrays), cotangents)
            missing = [n for n, array in want.items() if n not in got and np.abs(array).max() > 0]
            assert not missing, f"got no gradient of {missing[0]}"
            apart = sum(((got[n] - array) ** 2).sum() for n, array in want.items() if n in got)
            errors.append(float(np.sqrt(apart) / norm))
    return max(errors)


# -- the record --------------------------------------------------------------------------------------------------------
def read() -> dict[str, Any]:
    """What is recorded, by family."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def within(record: dict[str, Any]) -> bool:
    """Whether a family is within the bars."""
    return all(record.get(name, np.inf) <= bar for name, bar in BARS.items())


def section(records: dict[str, Any]) -> str:
    """The part of docs/models.md."""
    lines = [
        "## Families",
        "",
        "PyTorch's own objects through `as_network`, small and with random weights: outputs in float32 and gradients "
        "of all parameters in float64 against the module's, in `reference` and `pytorch`, the larger error of both; at "
        "the example's batch and at another one, texts at another length, too (`dynamic_axes`). Bars: 1e-5 and 1e-8. "
        "Written by `python -m tests.models.families`.",
        "",
        f"{sum(map(within, records.values()))} of {len(TIMM) + len(TRANSFORMERS)} are within the bars. Measured at "
        "commits "
        f"{', '.join(sorted({record['commit'] for record in records.values()}))}.",
        "",
        "| family | from | forward | gradient |",
        "| --- | --- | ---: | ---: |",
    ]
    for family in (*TIMM, *TRANSFORMERS):
        record = records.get(family, {"reason": "not measured"})
        cells = [f"{record[name]:.0e}" if name in record else "-" for name in BARS]
        if "reason" in record:
            cells[-1] = record["reason"].replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| `{family}` | {'timm' if family in TIMM else 'transformers'} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def run(family: str) -> dict[str, Any]:
    """Measure a family in a process of its own, which has this one's packages already."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=lambda: sender.send(measure(family)), daemon=True)
    process.start()
    sender.close()
    try:
        record = receiver.recv() if receiver.poll(LIMIT) else {"reason": f"took longer than {LIMIT:.0f} s"}
    except EOFError:
        process.join()
        record = {"reason": f"process ended with {process.exitcode}"}
    process.kill()
    process.join()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {**record, "commit": commit.stdout.strip()}


FORK = multiprocessing.get_context("fork")


def main() -> int:
    """Parse, run, record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="regular expression on the families' names")
    parser.add_argument("--missing", action="store_true", help="only what has no record within the bars")
    args = parser.parse_args()
    for collection in ("timm", "transformers"):
        if importlib.util.find_spec(collection) is None:
            print(f"got no package {collection!r}; expected it: make models")
            return 3
    offline()
    load_backend("pytorch")
    importlib.import_module("timm")
    records = read()
    for family in (*TIMM, *TRANSFORMERS):
        if re.search(args.only, family) and not (args.missing and within(records.get(family, {}))):
            records[family] = run(family)
            print(family, records[family], flush=True)
            text = ",\n".join(f'"{name}": {json.dumps(records[name])}' for name in sorted(records))
            FILE.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    return 0 if all(within(records.get(family, {})) for family in (*TIMM, *TRANSFORMERS)) else 1


if __name__ == "__main__":
    sys.exit(main())
