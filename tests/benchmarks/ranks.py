"""Four MPI ranks, one of them skewed: is its clock's offset found, and its slowness?

python -m tests.benchmarks.ranks

The last rank's clock is 200 us ahead and its steps, which sleep (four ranks that spin on fewer cores disturb each other
more than that), take 200 us longer than the others' 800 us. To beat: offsets within 20 us, imbalance within 5 % of
1.0 / 0.85 - 1, ranks found to differ, and their samples not pooled.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.filling import say
from tests.distributed import ranks
from tests.distributed import timing_cases as cases

FIGURES = {
    "offset of a clock that is 200 us ahead": "found to within 20 us",
    "imbalance of a rank that is slower by 200 us": "within 5 % of 1.0 / 0.85 - 1",
    "samples of unlike ranks": "not pooled",
}
OFFSET, IMBALANCE, POOLED = FIGURES


def measured(sync: str, summary: str) -> dict[str, Any]:
    """One launch of four ranks; what rank 0 knows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        arguments = {"sync": sync, "summary": summary, "pretend": False, "samples": 100}
        code, output = ranks.launch(ranks.name_of(cases.skewed), 4, file, arguments)
        if code:
            raise SystemExit(output)
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))[0]
        return result


def main() -> None:
    """Print both figures, by windows and by barriers."""
    reason = ranks.missing()
    if reason is not None:
        raise SystemExit(reason)
    for sync in ("window", "barrier"):
        result = measured(sync, "max")
        if "refused" in result:
            print(f"{sync}: {result['refused']}")
            continue
        truth = [0, 0, 0, cases.SKEW]
        wrong = max(abs(a - b) for a, b in zip(result["offsets"], truth, strict=True)) / 1e3
        off = (1 + result["imbalance"]) / (1.0 / 0.85) - 1
        print(
            f"{sync}: offsets at most {wrong:.1f} us wrong (bound {max(result['errors']) / 1e3:.1f} us), imbalance "
            f"{result['imbalance']:.1%}, {off:+.1%} from the truth\n  {result['text']}"
        )
        if sync == "window":
            say(OFFSET, f"{wrong:.1f} us wrong at most", wrong <= 20)
            say(IMBALANCE, f"{result['imbalance']:.1%}, {off:+.1%} from the truth", abs(off) <= 0.05)
    refused = measured("window", "pooled").get("refused")
    say(POOLED, refused or "pooled", bool(refused))


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
    else:
        main()
