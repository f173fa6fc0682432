"""Whether a change made anything slower or worse: ``python -m tests.benchmarks.commits [--base REV] [--pairs N]``.

Five recipes, of what five of the other programs measure: a training step in PyTorch, JAX and TensorFlow, one with a C++
operator and Enzyme's gradient, and one of two ranks. Each is run as a user would, ``deep500 run RECIPE --at REV``: this
code and that of the revision train the same seeds in turns, quality is judged before speed. Exit code: 0 if none is
slower or worse, else 1; where the pairs did not decide, the text says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.filling import say

FIGURES = {
    "pytorch: time of a step over that of the commit before": "not slower, not worse",
    "jax: time of a step over that of the commit before": "not slower, not worse",
    "tensorflow: time of a step over that of the commit before": "not slower, not worse",
    "operator: time of a step over that of the commit before": "not slower, not worse",
    "ranks: time of a step over that of the commit before": "not slower, not worse",
}
RECIPES = (
    "digits_lenet --open epochs=3",
    "digits_lenet --open epochs=3 --backend jax",
    "digits_lenet --open epochs=3 --backend tensorflow",
    "digits_lenet_mish --open epochs=3",
    "digits_lenet --open epochs=3 --ranks 2",
)
"""Of each figure."""
ROOT = Path(__file__).parents[2]
UNRESOLVED = 2


def compare(words: str, base: str, pairs: int, folder: Path) -> tuple[int, str]:
    """The exit code of a comparison in turns, and its ratio with interval and verdict in a line."""
    recipe, *options = words.split()
    command = ["deep500", "run", f"recipes/{recipe}.py", *options, "--at", base, "--pairs", str(pairs), "--json"]
    command += ["--out", str(folder)]
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(f"got exit code {done.returncode} from {' '.join(command)}: {done.stderr.strip()[-2000:]}")
    facts = json.loads(done.stdout)
    quality = [f"{judged['metric']} {judged['verdict']}" for judged in facts["qualities"]]
    step = next((one for one in facts["series"] if one["series"] == "step"), facts["series"][0])
    ends = "no interval" if step["low"] is None else f"{step['low']:.3f}, {step['high']:.3f}"
    return done.returncode, "; ".join([f"{step['ratio']:.3f} [{ends}]", step["verdict"], *quality])


def main() -> int:
    """Compare, print; 1 if any is slower or worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD^", metavar="REV", help="a git revision (HEAD^)")
    parser.add_argument("--pairs", type=int, default=24, help="of launches at most, of each recipe")
    options = parser.parse_args()
    met = True
    for figure, words in zip(FIGURES, RECIPES, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            code, text = compare(words, options.base, options.pairs, Path(folder))
        met &= say(figure, text, code in (0, UNRESOLVED))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
