"""Fifteen held-out exports of timm and transformers in ONNX Runtime: ours beside other people's optimizers of files.

python -m tests.benchmarks.held_out
python -m tests.benchmarks.held_out --only "ghost|distil" --budget 60

The list was written down before any of them was measured. Each is exported by torch.onnx, the older exporter and the
newer one by turns (but T5 by the older: the newer one of PyTorch 2.13 fails at it with symbolic sizes), with random
weights, small enough for some milliseconds; those of words have symbolic sizes, which ``--size`` names. ``deep500
optimize`` writes one file with its default budget, in which the simplifiers that are installed take part as for a user
(*ours*), and one without them (*alone*). Bare sessions with all of ONNX Runtime's optimizations run both, the original
and the others' files in turns, three of each, by the processor's time. Rows go to a file, and a run that was ended goes
on from there. OMP_NUM_THREADS=1 and ``taskset`` say one core.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import torch

from deep500 import cli
from deep500.measure.statistics import Interval
from deep500.transformations.substitutions import simplifiers
from deep500.transformations.workshop.substitutions.experiments import table
from recipes.studies.graph_substitutions.deployments import FLOOR, ORIGINAL, OURS, PEERS, best, mean, ratio
from recipes.studies.graph_substitutions.networks import cell, line
from recipes.studies.graph_substitutions.timing import in_turns
from tests.benchmarks.exported.check import distance, session
from tests.benchmarks.filling import commit_here, say, say_not, say_ratio, with_ends
from tests.models.architectures.architecture import Make, images, noise
from tests.models.architectures.language import LAST, LOGITS, NO_DROPOUT, TEXT, from_transformers
from tests.models.architectures.vision import from_timm
from tests.models.exporting import prepare

FIGURES = {
    "least best of the others / ours over fifteen exports": ">= 0.98",
    "geometric mean of original / ours, above that of the best other": ">= 0.05",
}
LEAST, ABOVE = FIGURES
ALONE, AGAIN, INSTANCES, ROUNDS, TOLERANCE, WORDS = "alone", "original again", 3, 150, 1e-3, 1000
SIZES = {"batch": 1, "sequence": 32}
WIDE = dict(vocab_size=WORDS, max_position_embeddings=128)
BERT = dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=1024, **WIDE, **NO_DROPOUT)


def words(count: int = 2) -> Make:
    """Numbers of words, and a mask that hides none."""
    shape = tuple(SIZES.values())
    return lambda rng: dict(list(zip(TEXT, (rng.integers(1, WORDS, shape), np.ones(shape, int)), strict=True))[:count])


Model = tuple[Callable[[], Any], Make, str]
# fmt: off
MODELS: Mapping[str, Model] = {
    "mobilevit_xxs": (from_timm("mobilevit_xxs"), images(128, 1), "dynamo"),
    "convnext_atto": (from_timm("convnext_atto"), images(128, 1), "legacy"),
    "efficientnet_lite0": (from_timm("efficientnet_lite0"), images(128, 1), "dynamo"),
    "levit_128s": (from_timm("levit_128s"), images(224, 1), "legacy"),
    "regnetx_002": (from_timm("regnetx_002"), images(128, 1), "dynamo"),
    "mobileone_s0": (from_timm("mobileone_s0"), images(128, 1), "legacy"),
    "repvgg_a0": (from_timm("repvgg_a0"), images(128, 1), "dynamo"),
    "swin, three stages": (from_timm("swin_tiny_patch4_window7_224", img_size=112, depths=(2, 2, 2),
                                     num_heads=(2, 4, 8), embed_dim=48), images(112, 1), "legacy"),
    "deit_tiny": (from_timm("deit_tiny_patch16_224", img_size=128), images(128, 1), "dynamo"),
    "ghostnet_050": (from_timm("ghostnet_050"), images(128, 1), "legacy"),
    "distilbert": (from_transformers("DistilBertModel", "DistilBertConfig", LAST, TEXT, dim=256, hidden_dim=1024,
                                     n_layers=3, n_heads=4, **WIDE), words(), "legacy"),
    "albert": (from_transformers("AlbertModel", "AlbertConfig", (*LAST, "pooler_output"), TEXT, embedding_size=64,
                                 **BERT), words(), "dynamo"),
    "gpt2": (from_transformers("GPT2LMHeadModel", "GPT2Config", LOGITS, TEXT[:1], vocab_size=WORDS, n_positions=128,
                               n_embd=256, n_layer=3, n_head=4), words(1), "dynamo"),
    "t5, encoder": (from_transformers("T5EncoderModel", "T5Config", LAST, TEXT, vocab_size=WORDS, d_model=256, d_kv=64,
                                      d_ff=1024, num_layers=3, num_heads=4), words(), "legacy"),
    "wav2vec2": (from_transformers("Wav2Vec2Model", "Wav2Vec2Config", LAST, ("input_values",), hidden_size=192,
                                   num_hidden_layers=3, num_attention_heads=4, intermediate_size=768,
                                   conv_dim=(128,) * 7), noise(input_values=(1, 8000)), "legacy"),
}
# fmt: on
"""Name -> what builds it, its inputs, its exporter."""


def _stem(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def export(name: str, path: Path) -> dict[str, np.ndarray]:
    """Write a model's file; returns inputs for it."""
    build, make, exporter = MODELS[name]
    feeds = make(np.random.default_rng(0))
    tensors = tuple(torch.from_numpy(array) for array in feeds.values())
    torch.manual_seed(0)
    axes = {n: dict(enumerate(SIZES)) for n in feeds if n in TEXT}
    options: dict[str, Any] = {"input_names": list(feeds), "dynamo": exporter == "dynamo", "verbose": False}
    if exporter == "legacy":
        options |= {"dynamic_axes": axes, "opset_version": 17}
    elif axes:
        dims = {axis: torch.export.Dim(size) for axis, size in enumerate(SIZES)}
        options["dynamic_shapes"] = (tuple(dims for _ in tensors),)
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        several = tuple(torch.cat([tensor, tensor.roll(1, -1)]) for tensor in tensors)  # one has no statistics
        torch.onnx.export(prepare(build(), several), tensors, path, **options)
    return feeds


def optimized(path: Path, out: Path, budget: float, alone: bool) -> tuple[str, float]:
    """Let the command write a file; returns what it says, and its seconds of processor time."""
    symbols = {size for value in session(path).get_inputs() for size in value.shape}  # exporters fix some sizes
    sizes = [word for name, size in SIZES.items() if name in symbols for word in ("--size", f"{name}={size}")]
    peers = {} if alone else dict(simplifiers.SIMPLIFIERS)
    begin = time.process_time()
    with mock.patch.object(simplifiers, "SIMPLIFIERS", peers), contextlib.redirect_stdout(io.StringIO()) as said:
        code = cli.main(["optimize", str(path), "-o", str(out), "--budget", str(budget), "--quiet", *sizes])
    if code:
        raise RuntimeError(f"exit code {code}")
    return said.getvalue(), time.process_time() - begin


class Sessions:
    """Bare sessions of one file, of which one runs."""

    def __init__(self, path: Path, feeds: Mapping[str, np.ndarray]) -> None:
        self.feeds, self.sessions = dict(feeds), [session(path) for _ in range(INSTANCES)]
        self.now, self._rng = self.sessions[0], np.random.default_rng(path.stat().st_size)

    def turn(self) -> None:
        self.now = self.sessions[int(self._rng.integers(INSTANCES))]

    def __call__(self) -> list[Any]:
        outputs: list[Any] = self.now.run(None, self.feeds)
        return outputs


def measure(name: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one model, as a row."""
    stem = _stem(name)
    files = {ORIGINAL: folder / f"{stem}.onnx"}
    row: dict[str, Any] = {"network": name, "deployment": "onnxruntime", "absent": {}, "said": {}, "seconds": {}}
    feeds = export(name, files[ORIGINAL])
    for which in (OURS, ALONE):
        files[which] = folder / f"{stem}-{which}.onnx"
        if which == ALONE and form(row["said"][OURS]) not in PEERS:  # without the others the same had won
            files[which].write_bytes(files[OURS].read_bytes())
            continue
        said = optimized(files[ORIGINAL], files[which], args.budget, which == ALONE)
        row["said"][which], row["seconds"][which] = said
    for which, optimize in PEERS.items():
        if find_spec(which) is None:
            row["absent"][which] = "not installed"
            continue
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
                warnings.simplefilter("ignore")
                model = optimize(onnx.load(files[ORIGINAL]))
            path = folder / f"{stem}-{which}.onnx"
            onnx.save(model, path)
            session(path)
            files[which] = path
        except Exception as error:  # noqa: BLE001  # each has its own
            row["absent"][which] = f"failed: {line(error)}"
    row["nodes"] = {which: len(onnx.load(path).graph.node) for which, path in files.items()}
    return row | timed(files, feeds, args.seconds) | {"date": datetime.now().astimezone().isoformat(timespec="minutes")}


def timed(files: Mapping[str, Path], feeds: Mapping[str, np.ndarray], seconds: float) -> dict[str, Any]:
    """Times of all files in turns; what is another's bytes is run once, and what is wrong has its error."""
    known, same, runs = dict[bytes, str](), dict[str, str](), dict[str, Sessions]()
    for which, path in files.items():
        twin = known.setdefault(path.read_bytes(), which)
        if twin == which:
            runs[which] = Sessions(path, feeds)
        else:
            same[which] = twin
    runs[AGAIN] = Sessions(files[ORIGINAL], feeds)  # how far sessions of one file lie apart, the first from the last
    expected = runs[ORIGINAL]()
    apart = {which: max(map(distance, run(), expected)) for which, run in runs.items()}
    load = os.getloadavg()[0]
    samples = in_turns(runs, seconds, "cpu", 0, ROUNDS).samples
    times = {which: list(map(float, values)) for which, values in samples.items()}
    return {"same": same, "samples": times, "difference": apart, "failed": {}, "load": load}


def form(said: str) -> str:
    """Which form of a file the command wrote."""
    if "the file is written anew" in said:
        return "anew"
    other = re.search(r"the file is (\w+)'s", said)
    edited = re.search(r"in the file (\d+) nodes stay as they were, (\d+) are new", said)
    return other[1] if other else f"edited: {edited[1]} stay, {edited[2]} new" if edited else "as it was"


def as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table and the means."""
    peers = others_in(rows)
    head = (
        "held out, onnxruntime",
        "nodes",
        "original ms",
        OURS,
        ALONE,
        *peers,
        AGAIN,
        "best of others / ours",
        "written",
        "s",
    )
    cells = []
    for row in rows:
        first = f"{1e3 * float(np.median(row['samples'][ORIGINAL])):.3g}" if row["samples"] else "-"
        shown = []
        for which in (OURS, ALONE, *peers, AGAIN):
            gain = ratio(row, ORIGINAL, which)
            same = "the same" if row["same"].get(which) == ORIGINAL else None
            shown.append(same or (row["absent"].get(which, "-").partition(":")[0] if gain is None else cell(gain)))
        beside = ratio(row, best(row), OURS)
        nodes = f"{row['nodes'][ORIGINAL]} -> {row['nodes'][OURS]}"
        least = "-" if beside is None else f"{cell(beside)} ({best(row)})"
        seconds = f"{row['seconds'][OURS]:.0f}"
        cells.append((row["network"], nodes, first, *shown, least, form(row["said"][OURS]), seconds))
    gains = {which: mean_of(rows, which) for which in (OURS, ALONE, *peers)}
    means = ", ".join(f"{which} {cell(gain)}" for which, gain in gains.items() if gain is not None)
    lines = [table(head, cells), f"geometric means of original / this over {len(rows)}: {means}"]
    wrong = [
        f"WRONG: {row['network']}, {which}: {apart:.1e}"
        for row in rows
        for which, apart in row["difference"].items()
        if not apart <= TOLERANCE
    ]
    return "\n".join([*lines, *wrong])


def say_figures(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Both; whether both bars are met."""
    beside = {
        row["network"]: found.median if found.low is None else found
        for row in rows
        if (found := ratio(row, best(row), OURS)) is not None
    }
    met = say_ratio(LEAST, beside, at_least=FLOOR)
    ours, others = mean_of(rows, OURS), [mean_of(rows, which) for which in others_in(rows)]
    other = max((gain for gain in others if gain is not None), key=lambda gain: gain.median, default=None)
    if ours is None or other is None:
        say_not(ABOVE, "no other optimizer wrote a file")
        return met
    text = f"{ours.median - other.median:.3g}: {with_ends(ours)}, best other {with_ends(other)}, {len(rows)} exports"
    return say(ABOVE, text, ours.median - other.median >= 0.05) and met


def others_in(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Other optimizers that wrote a file."""
    return [which for which in PEERS if any(which in row["nodes"] for row in rows)]


def mean_of(rows: Sequence[Mapping[str, Any]], which: str) -> Interval | None:
    """The geometric mean of original over a tool's."""
    return mean([_as_original(row, which) for row in rows], which)


def _as_original(row: Mapping[str, Any], which: str) -> Mapping[str, Any]:
    """A row in which a tool that made nothing counts as the original, which its user keeps."""
    return row if which in row["nodes"] else {**row, "same": {**row["same"], which: ORIGINAL}}


def main() -> int:
    """Measure what is not in the file of rows yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="models whose names it matches")
    parser.add_argument("--budget", type=float, default=30.0, metavar="S", help="seconds for each (30)")
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S", help="of timing for each, about (6)")
    parser.add_argument("--folder", type=Path, help="of files and rows (one of this commit's in build/held_out)")
    parser.add_argument("--export", action="store_true", help="write the files and measure nothing")
    options = parser.parse_args()
    options.folder = options.folder or Path("build/held_out") / commit_here()
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "rows.jsonl"
    rows = [json.loads(text) for text in kept.read_text().splitlines()] if kept.is_file() else []
    names = [name for name in MODELS if re.search(options.only, name)]
    for name in names:
        if options.export:
            export(name, options.folder / f"{_stem(name)}.onnx")
        elif name not in {row["network"] for row in rows}:
            rows.append(measure(name, options.folder, options))
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(as_text(rows[-1:]), file=sys.stderr, flush=True)
    rows = sorted((row for row in rows if row["network"] in names), key=lambda row: names.index(row["network"]))
    text = as_text(rows) if rows else ""
    print(text)
    met = not rows or say_figures(rows)
    return 1 if "WRONG" in text or not met else 0


if __name__ == "__main__":
    sys.exit(main())
