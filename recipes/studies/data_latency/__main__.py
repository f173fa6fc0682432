"""Costs of data: nine storages, every decoder, threads and processes, beside DataLoader, tf.data and Grain.

python -m recipes.studies.data_latency --quick
python -m recipes.studies.data_latency --storage "JPEG folder" --decoder Pillow --workers 0,1,2 --json out.json

The same pictures are written in every storage and read by every loader, in processes of their own that take turns, with
the same decoder; without augmentation their pixels must be equal, bit for bit. Exit codes: 0, 1 if a pixel differs or a
sample is lost or doubled, else as ``deep500 run``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from deep500.errors import Deep500Error
from deep500.measure.environment import describe
from deep500.measure.load import load_between, read_load, shares
from deep500.results.files import write_atomic
from recipes.studies.data_latency.decoders import DECODERS, missing
from recipes.studies.data_latency.measuring import LatencyCase, LatencySettings, LatencyStudy
from recipes.studies.data_latency.printing import data, tables, wrong
from recipes.studies.data_latency.storage import ENCODED, NEEDS, write
from recipes.studies.data_latency.systems import LOADERS

FULL, QUICK = {"rounds": 8, "batch": 32, "size": 224, "count": 256}, {"rounds": 2, "batch": 8, "size": 64, "count": 64}


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--storage", action="append", choices=NEEDS, help="only this one; may be repeated")
    add("--decoder", action="append", choices=DECODERS, help="only this one, in every storage; may be repeated")
    add("--loader", action="append", choices=LOADERS, help="only this one; may be repeated")
    add("--workers", default=None, metavar="N,M", help="numbers of workers (0,1,2; quick: 0,2)")
    add("--augment", choices=("no", "yes", "both"), help="random crops and mirror images (both for JPEG folders)")
    add("--rounds", type=int, metavar="N", help="epochs of every loader; from 6 on with intervals (8; quick: 2)")
    add("--quick", action="store_true", help="few small pictures, in some minutes: shows everything, times say little")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    args = parser.parse_args(argv)
    try:
        args.workers = tuple(int(word) for word in (args.workers or ("0,2" if args.quick else "0,1,2")).split(","))
    except ValueError:
        args.workers = (-1,)
    if min(args.workers) < 0 or (args.rounds is not None and args.rounds < 1):
        parser.error("got other --workers or --rounds than whole numbers; expected for instance 0,2 and at least 1")
    return args


def cases(args: argparse.Namespace) -> list[LatencyCase]:
    """All storages by Pillow; JPEG folders with augmentation and by other decoders too, unless options say more."""
    chosen = []
    for storage in args.storage or NEEDS:
        whole = storage == "JPEG folder"
        augment = {"no": (False,), "yes": (True,), "both": (False, True), None: (False, True) if whole else (False,)}
        decoders = args.decoder or (list(DECODERS) if whole else ["Pillow"])
        decoders = decoders if storage in ENCODED else ["Pillow"]
        chosen += [
            LatencyCase(storage, decoder, with_it)
            for decoder in decoders
            for with_it in augment[args.augment]
            if decoder == "Pillow" or args.decoder or not with_it
        ]
    return chosen


def run(args: argparse.Namespace, folder: Path) -> LatencyStudy:
    """Write the pictures and measure every case."""
    sizes = QUICK if args.quick else FULL
    settings = LatencySettings(
        folder,
        **{**sizes, "rounds": args.rounds or sizes["rounds"]},
        workers=args.workers,
        systems=tuple(args.loader or LOADERS),
    )
    chosen = cases(args)
    here = [name for name in dict.fromkeys(case.storage for case in chosen) if not missing_library(name)]
    write(folder, settings.count, settings.size, here)
    with LatencyStudy(settings) as study, tqdm(chosen, file=sys.stderr, disable=None, unit="case") as bar:
        for case in bar:
            bar.set_description(str(case))
            study.run(case)
    return study


def missing_library(storage: str) -> bool:
    """Whether the library of a storage is not installed."""
    from importlib.util import find_spec

    return bool(NEEDS[storage]) and find_spec(NEEDS[storage]) is None


def about(args: argparse.Namespace, load: dict[str, float | None], average: float | None) -> str:
    """Say where and how it was measured."""
    sizes = QUICK if args.quick else FULL
    pictures, rounds = f"{sizes['count']} pictures of {sizes['size']} x {sizes['size']}", args.rounds or sizes["rounds"]
    others = load["others"]
    busy = "unknown" if others is None else f"{100 * others:.0f} %"
    absent = [f"{name} needs {package}" for name, (package, _) in DECODERS.items() if missing(name)]
    parts = [
        f"{datetime.date.today()}, {describe()['cpu']}; {pictures}, batches of {sizes['batch']}, {rounds} rounds",
        f"load average before {average or 0:.1f}, CPUs busy outside of this process (loaders too) {busy} of the time",
        "medians with 95 % intervals; *: too few samples for one",
        f"decoders that are not there: {', '.join(absent) or 'none'}",
    ]
    return "; ".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write; returns the exit code."""
    args = options(argv)
    before = read_load()
    try:
        with tempfile.TemporaryDirectory() as folder:
            study = run(args, Path(folder))
        after = read_load()
        head = about(args, shares(load_between(before, after)), before["load_average"])
        if args.json is not None:
            write_atomic(args.json, json.dumps({"about": head, "results": data(study.results)}, indent=1) + "\n")
    except Deep500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(f"{head}\n\n{tables(study.results, study.control)}")
    print("\n".join(lines := wrong(study.results)), end="\n" if lines else "")
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
