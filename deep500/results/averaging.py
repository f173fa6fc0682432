"""The mean of the weights of several checkpoints of a run, often better than the last ones of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from deep500.errors import ResultsError
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.results.command import add_json, say_written
from deep500.results.files import write_atomic

PREFIX, AVERAGES = "network/", "ema/weight/"


def average_checkpoints(
    checkpoints: str | Path | Sequence[str | Path], last: int | None = None, ema: bool = False
) -> dict[str, np.ndarray]:
    """The mean of the newest checkpoints, parameter by parameter, for ``executor.network.load_state``.

    As Vaswani et al. 2017 (arXiv 1706.03762, section 6.1) averaged the last 5 or 20 checkpoints; Izmailov et al. 2018
    (arXiv 1803.05407) say why it helps, and that statistics of batch normalization are better computed again: their
    means are taken here. Sums are in float64; what is no floating-point number is that of the newest checkpoint.

    Args:
        checkpoints: a folder of them, such as ``results/job/<run>/checkpoints/seed-0``, or their paths, oldest first.
        last: how many of the newest; all if None. A run keeps 2 unless its recipe says ``keep_checkpoints``.
        ema: take the moving averages by which the run's validations judged (its key ``ema``) instead of the weights
            that train; running statistics are the network's.

    Raises:
        ResultsError: fewer checkpoints than asked for, a damaged one, one without moving averages, or checkpoints of
            different networks.
    """
    folder = checkpoints if isinstance(checkpoints, (str, Path)) else None
    paths = list_checkpoints(Path(folder)) if folder is not None else [Path(path) for path in checkpoints]  # type: ignore[union-attr]
    count = len(paths) if last is None else last
    if not 1 <= count <= len(paths):
        raise ResultsError(
            f"got {len(paths)} checkpoints{'' if folder is None else f' in {folder}'}; expected at least "
            f"{max(count, 1)}: ask for fewer, or train with keep_checkpoints={max(count, 1)}"
        )
    paths = paths[-count:]
    sums: dict[str, np.ndarray] = {}
    for path in paths:
        stored = load_checkpoint(path)["arrays"]
        arrays = _below(stored, PREFIX)
        if ema and not _below(stored, AVERAGES):
            raise ResultsError(
                f"{path}: got no moving averages; expected those of a run with the key ema: leave it out"
            )
        arrays |= _below(stored, AVERAGES) if ema else {}
        if sums and {n: a.shape for n, a in arrays.items()} != {n: a.shape for n, a in sums.items()}:
            raise ResultsError(
                f"{path}: got other parameters than in {paths[0]}; expected checkpoints of one network: name those"
            )
        for name, array in arrays.items():
            floating = array.dtype.kind not in "biu"
            sums[name] = sums.get(name, 0.0) + array.astype(np.float64) if floating else array
    newest = arrays
    return {
        name: array if newest[name].dtype.kind in "biu" else (array / len(paths)).astype(newest[name].dtype)
        for name, array in sums.items()
    }


def _below(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def add_average(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``average``; returns what executes it."""
    parser.add_argument("folder", type=Path, help="results folder of a run")
    parser.add_argument("--last", type=int, metavar="K", help="how many of the newest checkpoints (all that are kept)")
    parser.add_argument(
        "--ema",
        action="store_true",
        help="of the moving averages of a run with the key ema; with --last 1 those that judged it",
    )
    parser.add_argument("--seed", type=int, default=None, help="of which seed (the run's first)")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="safetensors file to write")
    add_json(parser)
    return _average


def _average(args: argparse.Namespace) -> int:
    from safetensors.numpy import save

    seeds = sorted((args.folder / "checkpoints").glob("seed-*"), key=lambda place: (len(place.name), place.name))
    chosen = [path for path in seeds if args.seed is None or path.name == f"seed-{args.seed}"]
    if not chosen:
        raise ResultsError(
            f"{args.folder}: got no checkpoints{'' if args.seed is None else f' of seed {args.seed}'}; expected a "
            f"results folder with some of {[path.name for path in seeds] or 'a seed'}: name another"
        )
    folder = chosen[0] / "rank-0" if (chosen[0] / "rank-0").is_dir() else chosen[0]
    arrays = average_checkpoints(folder, args.last, args.ema)
    write_atomic(args.out, save({name: np.array(array, order="C") for name, array in arrays.items()}))
    kind = "the moving averages of " if args.ema else ""
    text = f"{args.out}: {len(arrays)} arrays, the mean of {kind}{args.last or 'all kept'} checkpoints"
    say_written(args, args.out, text=text)
    return 0
