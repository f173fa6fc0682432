"""The cost of checking an imported model: ``python -m tests.benchmarks.import_check [--rounds N] [--only REGEX]``.

Ten modules, five of timm and five of transformers, become networks by ``as_network`` with and without its check, in
turns in random order in one process, on one thread. Printed is the ratio of CPU time of each, by the paired interval,
and the median of the ten. Exit code: 0 met, 1 missed, 3 timm or transformers is not installed.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

from deep500.measure.statistics import median_interval, paired_ratio
from deep500.networks import as_network
from tests.benchmarks.filling import say_ratio
from tests.benchmarks.turns import Work, measure
from tests.models.architectures.architecture import offline

BAR = 2.0
FIGURES = {"import with its check, CPU time over without, median of ten models": "at most 2.0"}
(FIGURE,) = FIGURES
TEXT, WORDS = (2, 64), 1000
SIZES = {"vocab_size": WORDS, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4}


def vision(name: str, side: int) -> tuple[torch.nn.Module, Any]:
    """A model of timm with random weights, and images."""
    import timm

    shape = (2, 3, side, side)
    return timm.create_model(name, num_classes=10), np.random.default_rng(0).standard_normal(shape).astype("float32")


def text(kind: str, config: str, **options: Any) -> tuple[torch.nn.Module, Any]:
    """A model of transformers with random weights, and words."""
    import transformers

    module = getattr(transformers, kind)(getattr(transformers, config)(**options))
    return module, {"input_ids": np.random.default_rng(0).integers(4, WORDS, TEXT)}


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, Any]]] = {
    "resnet50": lambda: vision("resnet50", 96),
    "vit_tiny": lambda: vision("vit_tiny_patch16_224", 224),
    "mobilenetv3_small": lambda: vision("mobilenetv3_small_100", 96),
    "convnext_atto": lambda: vision("convnext_atto", 96),
    "efficientnet_b0": lambda: vision("efficientnet_b0", 96),
    "bert": lambda: text("BertModel", "BertConfig", **SIZES, intermediate_size=512),
    "gpt2": lambda: text("GPT2LMHeadModel", "GPT2Config", vocab_size=WORDS, n_embd=128, n_layer=4, n_head=4),
    "distilbert": lambda: text("DistilBertModel", "DistilBertConfig", vocab_size=WORDS, dim=128, n_layers=4, n_heads=4),
    "llama": lambda: text("LlamaForCausalLM", "LlamaConfig", **SIZES, intermediate_size=384, num_key_value_heads=2),
    "electra": lambda: text("ElectraModel", "ElectraConfig", **SIZES, embedding_size=64, intermediate_size=512),
}
"""Makes a module and its example inputs, by name."""


def contenders(name: str) -> dict[str, Work]:
    """An import without and with its check."""
    torch.manual_seed(0)
    module, example = MODELS[name]()
    return {"without": lambda: as_network(module, example, check=False), "with": lambda: as_network(module, example)}


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="regular expression on the models' names")
    options = parser.parse_args()
    torch.set_num_threads(1)
    offline()
    ratios = {}
    for name in (name for name in MODELS if re.search(options.only, name)):
        try:
            variants = contenders(name)
        except ModuleNotFoundError as error:
            print(f"got no package {error.name!r}; expected it: make models", file=sys.stderr)
            return 3
        times = measure(variants, options.rounds, 1, warm_up=1)
        checked, alone = ([cpu for cpu, _ in times[which]] for which in ("with", "without"))
        ratio = paired_ratio(checked, alone)
        ratios[name] = ratio.median
        print(f"{name:>20}: {statistics.median(alone):.2f} s without; with over without, CPU: {ratio}", flush=True)
    return 0 if say_ratio(FIGURE, median_interval(list(ratios.values())), at_most=BAR) else 1


if __name__ == "__main__":
    sys.exit(main())
