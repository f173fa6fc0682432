"""``docs/core.md`` is true: its files exist, their lines are those that it states, and they are in reading order.

A file of the page imports only files before it, or files *below*: those outside of the page from which, however far one
follows their imports (inside functions too, for type checkers only not), one comes to no file that the page has later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from tests.test_rooms import ROOT, imports, modules

PAGE = (ROOT / "docs" / "core.md").read_text(encoding="utf-8")
FILES = re.findall(r"^\| `((?:deep500|frameworks)/\S+\.py)` \|", PAGE, flags=re.MULTILINE)
KNOWN = modules()
MODULE_OF = {path.relative_to(ROOT).as_posix(): name for name, path in KNOWN.items()}


@cache
def imported(module: str) -> frozenset[str]:
    """The modules that a module of the package imports."""
    return frozenset(imports(KNOWN[module], KNOWN))


def looks_ahead(order: list[str], graph: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """For each module that reaches a later one by way of modules outside of the order: the way there."""
    ways = {}
    for place, module in enumerate(order):
        before, queue = {module: ""}, [module]
        for here in queue:  # grows meanwhile
            for there in sorted(set(graph[here]) - before.keys() - set(order[:place])):
                before[there] = here
                queue += [] if there in order else [there]
        if later := before.keys() & set(order[place + 1 :]):
            way = [min(later)]
            while way[-1] != module:
                way.append(before[way[-1]])
            ways[module] = way[::-1]
    return ways


def test_files_exist_and_lines_add_up() -> None:
    stated = re.search(r": (\d+) files, ([\d,]+) lines,", PAGE)
    assert stated is not None and len(set(FILES)) == len(FILES) == int(stated[1])
    lines = sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in FILES)
    assert f"{round(lines, -2):,}" == stated[2], f"docs/core.md: its files have {lines} lines"


def test_nothing_leans_on_what_comes_later() -> None:
    graph = {module: imported(module) for module in KNOWN}
    assert looks_ahead([MODULE_OF[file] for file in FILES], graph) == {}


def test_a_way_ahead_is_found() -> None:
    graph = {"first": ["aside"], "aside": ["below", "deeper"], "deeper": ["second"], "second": ["below"], "below": []}
    assert looks_ahead(["second", "first"], graph) == {}
    assert looks_ahead(["first", "second"], graph) == {"first": ["first", "aside", "deeper", "second"]}


def test_every_call_of_the_step_is_in_its_file() -> None:
    """The chain that ends in the sum over ranks names methods that exist, in files that end as it says."""
    block = re.search(r"^```text\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    calls = re.findall(r"^ *(\S+) +(\S+\.py)", block[1], flags=re.MULTILINE)
    assert len(calls) > 15
    for name, file in calls:
        owners = [path for path in MODULE_OF if path.endswith(f"/{file}")]
        text = "".join((ROOT / path).read_text(encoding="utf-8") for path in owners)
        assert len(owners) == 1 and f"def {name.rpartition('.')[2]}(" in text, (name, file, owners)
        owner = name.rpartition(".")[0]
        assert owner in ("", "exchange") or f"class {owner}" in text, (name, file)
