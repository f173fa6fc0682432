"""How fast an ONNX file becomes an executor: ``python -m tests.benchmarks.import_speed [--rounds N] [--file MODEL]``.

A file is read and built for PyTorch by Deep500, against ``onnx2torch.convert`` on the same file, which gives an
``nn.Module`` that runs as well. The files: torchvision's ResNet-50 as PyTorch exports it, and that of our zoo. The two
take turns in random order in one process, on one thread; the bar is a ratio below 1 of CPU time, by the upper bound of
the paired interval. Both answers are compared with ONNX Runtime's first.
Exit code: 0 met, 1 missed, 3 onnx2torch or torchvision is not installed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import deep500.frameworks.pytorch as d5fw
from deep500.measure.statistics import Interval, median_interval, paired_ratio
from deep500.networks import create
from tests.benchmarks.filling import say_ratio
from tests.benchmarks.turns import Times, Work, measure
from tests.models.architectures.architecture import Architecture, images, import_torchvision
from tests.models.architectures.vision import from_torchvision
from tests.models.compare import BAR, relative_difference, runtime_answer
from tests.models.exported import export

FIGURES = {"from an ONNX file to something that runs, CPU time over onnx2torch": "below 1, by the upper bound"}
(FIGURE,) = FIGURES

OPSET = 17
"""The newest that onnx2torch 1.5.15 has converters for, for all operators of a ResNet."""

HOW_TO_INSTALL = "pip install --no-deps torchvision==0.28.0 onnx2torch (in an environment of its own, beside torch)"


def files(folder: Path) -> list[Path]:
    """ResNet-50 of torchvision as PyTorch exports it, and ours, of an opset that onnx2torch reads."""
    ours = folder / "resnet50-of-our-zoo.onnx"
    create("resnet50").to_onnx(ours, opset=OPSET)
    theirs = Architecture("resnet50", "torchvision", "", from_torchvision("resnet50"), images(160, 2), symbolic=True)
    return [export(theirs, folder).path, ours]


def contenders(path: Path) -> dict[str, Work]:
    """The two ways from a file to something that runs."""
    import onnx2torch

    return {"deep500": lambda: d5fw.from_onnx(path), "onnx2torch": lambda: onnx2torch.convert(path)}


def check(path: Path, variants: dict[str, Work]) -> None:
    """Raise AssertionError unless what both build gives ONNX Runtime's answer."""
    (described,) = onnx.load(path, load_external_data=False).graph.input
    sizes = [dim.dim_value or 2 for dim in described.type.tensor_type.shape.dim]
    image = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    (want,) = runtime_answer(path, {described.name: image})
    executor: Any = variants["deep500"]()
    module: Any = variants["onnx2torch"]()
    with torch.no_grad():
        theirs = module.eval()(torch.from_numpy(image)).numpy()
    (ours,) = executor.inference({described.name: image}).values()
    for name, got in (("deep500", ours.numpy()), ("onnx2torch", theirs)):
        difference = relative_difference(got, want)
        assert difference <= BAR, f"{name} differs from ONNX Runtime by {difference:.1e}"
        print(f"{name}: output within {difference:.1e} of ONNX Runtime's")


def report(path: Path, times: Times) -> Interval:
    """Print medians and ratios; returns that of CPU time."""
    print(f"{path.name}: from file to runnable, torch {torch.__version__}, 1 thread")
    ratios = {}
    for clock, column in (("CPU", 0), ("wall", 1)):
        seconds = {name: [pair[column] for pair in pairs] for name, pairs in times.items()}
        for name, values in seconds.items():
            print(f"  {clock:>4}, {name:>10}: {median_interval(values)} s")
        ratios[clock] = paired_ratio(seconds["deep500"], seconds["onnx2torch"])
        print(f"  {clock:>4}, deep500 / onnx2torch: {ratios[clock]}")
    return ratios["CPU"]


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--file", type=Path, help="another ONNX file with one input, in an opset that onnx2torch reads")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            import_torchvision()
            for path in [options.file] if options.file else files(Path(folder)):
                variants = contenders(path)
                check(path, variants)
                ratios[path.stem] = report(path, measure(variants, options.rounds, 1))
        except ModuleNotFoundError as error:
            print(f"got no package {error.name!r}; expected it installed: {HOW_TO_INSTALL}", file=sys.stderr)
            return 3
    return 0 if say_ratio(FIGURE, ratios, at_most=1) else 1


if __name__ == "__main__":
    sys.exit(main())
