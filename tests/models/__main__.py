"""Real architectures in every backend: ``python -m tests.models [--backend NAME ...] [--only REGEX] [--gradients]``.

At least ten architectures of torchvision, timm and transformers, with random weights, are exported to ONNX, loaded, and
run in every backend that is installed; the answers must be ONNX Runtime's to 1e-4 of the largest value, and its own
those of the module that was exported (where the backend is ONNX Runtime, only that says something). With
``--gradients``, gradients in float64 are compared with the reference backend's emitted ones instead. What is not
installed is skipped with the reason. Exit code: 0 all agree, 1 some do not, 3 nothing could be compared.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from deep500.registry import backend_names, is_installed
from tests.models.compare import (
    BAR,
    GRADIENT_BAR,
    Row,
    compare,
    compare_gradients,
    gradients,
    load,
    relative_difference,
    runtime_answer,
    training_copy,
)
from tests.models.sources import HOW_TO_INSTALL, SOURCES, Export, Source, export

TRAINED = (
    "resnet18",
    "mobilenet_v3_small",
    "squeezenet1_1",
    "shufflenet_v2_x0_5",
    "vit_tiny_patch16_224",
    "bert",
    "gpt2",
    "llama",
)
"""Small enough to be differentiated by the reference backend."""


def exports(sources: list[Source], folder: Path | None, keep_modes: bool) -> Iterator[Export]:
    """The files one by one; a model whose packages are missing is said and left out."""
    for source in sources:
        try:
            yield export(source, folder, keep_modes and not source.dynamo)
        except ModuleNotFoundError as error:
            print(f"{source.name:22} skipped: no package {error.name!r} ({source.collection}): {HOW_TO_INSTALL}")


def show(row: Row) -> None:
    """One line of the table."""
    numbers = [f"{v:9.1e}" if v is not None else f"{'-':>9}" for v in (row.difference,)]
    numbers += [f"{v:8.2f}" if v is not None else f"{'-':>8}" for v in (row.build_seconds, row.run_seconds)]
    reason = f"  {row.reason[:400]}" if row.reason else ""
    print(f"{row.model:22} {row.nodes:5} {row.backend:12} {' '.join(numbers)}  {row.verdict}{reason}", flush=True)


def rows(options: argparse.Namespace, backends: list[str]) -> Iterator[Row]:
    """Everything that is asked for."""
    wanted = [s for s in SOURCES if re.search(options.only, s.name)]
    if options.gradients:
        wanted = [s for s in wanted if s.name in TRAINED]
    for exported in exports(wanted, options.folder, options.gradients):
        if options.gradients:
            emitted = gradients(training_copy(exported.path), "reference", exported.inputs)
            yield from (compare_gradients(exported.name, exported.path, exported.inputs, emitted, b) for b in backends)
        else:
            want = runtime_answer(exported.path, exported.inputs)
            yield judge_exporter(exported, want)
            yield from (compare(exported.name, exported.path, exported.inputs, want, b) for b in backends)
        load.cache_clear()


def judge_exporter(exported: Export, want: list[np.ndarray]) -> Row:
    """How far ONNX Runtime is from the module that the file came from: what no backend can be blamed for."""
    difference = max(relative_difference(w, g) for w, g in zip(want, exported.expected, strict=True))
    return Row(exported.name, 0, "(exporter)", "agrees" if difference <= BAR else "WRONG", difference)


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", action="append", choices=backend_names(), help="may be repeated; all if left out")
    parser.add_argument("--only", default="", help="regular expression on the models' names")
    parser.add_argument("--gradients", action="store_true", help="gradients in float64 instead of outputs")
    parser.add_argument("--folder", type=Path, help="where the exported files are kept")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of the exporters and collections, about themselves
    torch.set_num_threads(1)
    if not is_installed("onnxruntime"):
        print("got no package 'onnxruntime'; expected the one whose answers count: pip install onnxruntime")
        return 3
    backends = []
    for name in options.backend or backend_names():
        if not is_installed(name):
            print(f"backend {name} skipped: not installed")
        elif not (options.gradients and name == "reference"):
            backends.append(name)
    print(f"{'model':22} nodes {'backend':12} {'diff':>9} {'build s':>8} {'run s':>8}")
    done = []
    for row in rows(options, backends):
        show(row)
        done.append(row)
    bar = f"{GRADIENT_BAR:g} of the norm" if options.gradients else f"{BAR:g} of the largest value"
    for backend in backends:
        verdicts = Counter(row.verdict for row in done if row.backend == backend)
        print(f"{backend}: {verdicts['agrees']} of {verdicts.total()} agree to {bar}; {dict(verdicts)}")
    if not done:
        return 3
    return 0 if all(row.good for row in done) else 1


if __name__ == "__main__":
    sys.exit(main())
