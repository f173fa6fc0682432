"""Every page that the project writes, measured in a real browser: nothing is cut, too wide, or unreadable."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.compare import page as frameworks
from deep500.compare.bits import BitsVerdict, _judged
from deep500.compare.bits_page import write_page as bits
from deep500.compare.checks import Check, GateResult
from deep500.compare.report import render_runs
from deep500.compare.reproduction import Answer
from deep500.compare.result import ComparisonResult
from deep500.compare.review_page import write_page as review
from deep500.compare.timing import Timing, control_name
from deep500.compare.trajectories import AGAIN, OTHER, ROUNDING, Distances, TrajectoryComparison
from deep500.frameworks.reference import from_model
from deep500.measure.comparison import FASTER, SLOWER, compare_all
from deep500.measure.environment import describe
from deep500.measure.statistics import paired_ratio
from deep500.networks import add_loss, create
from deep500.pages import rendering
from deep500.profiling import profile_network
from deep500.profiling import write_page as profile
from deep500.race import standing
from deep500.race.sweep_command import PAGE as SWEEP
from deep500.race.sweep_command import write_result
from deep500.race.sweeping import RecipeSweep, SweepOptions, axis_of, cells_of
from deep500.report import recomputation
from deep500.report.claims import write_claims
from deep500.report.leaderboard import leaderboard
from deep500.results.exhibits import add_exhibits
from deep500.results.network import write_network
from deep500.results.rules import write_rules
from deep500.scaling import page as scaling
from deep500.transformations.substitutions import optimize_network
from deep500.transformations.substitutions.report import page as optimized
from recipes.studies.graph_substitutions.page import write_page as study
from tests.race.common import Curves, race
from tests.results.browser import DARK, needs_browser, probe
from tests.results.report_cases import finished
from tests.results.test_recomputation import measured as planned
from tests.results.test_scaling import RANKED, STRONG, WEAK

TEMPLATES = Path(rendering.__file__).parent / "templates"
GEOMETRY = """<script>
addEventListener("load", () => {
  const found = [], edge = document.documentElement.clientWidth;
  document.querySelectorAll("details").forEach((details) => { details.open = true; });
  const say = (what, element) => found.push(what + ": " + element.outerHTML.slice(0, 90));
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest(".wide, .scroll, pre, svg, .skip, .side")) continue;
    if (element.getBoundingClientRect().right > edge + 1) say("wider than the window", element);
    if (element.clientWidth && element.scrollWidth > element.clientWidth + 1) say("text runs out", element);
  }
  for (const wide of edge < 500 ? document.querySelectorAll(".wide:has(> table:not(.matrix))") : [])
    if (wide.scrollWidth > wide.clientWidth + 1) say("a table to be pushed aside", wide);
  for (const svg of document.querySelectorAll("svg")) {
    const card = (svg.closest("figure, .side > div") || svg).getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    for (const [text, box] of texts) {
      if (!box.width) continue;
      const size = parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width
        / (svg.viewBox.baseVal.width || svg.getBoundingClientRect().width);
      if (size < 7.5 || size > 19) say("text of " + size.toFixed(1) + " px", text);
      const inside = box.left >= card.left - 1 && box.right <= card.right + 1 && box.top >= card.top - 1;
      if (!svg.closest(".side") && !(inside && box.bottom <= card.bottom + 1)) say("text is cut", text);
    }
    texts.forEach(([text, a], place) => texts.slice(place + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > 0.4 * Math.min(a.height, b.height)) say("on " + other.textContent, text);
    }));
  }
  const texts = document.querySelectorAll("svg text").length;
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const light = (colors) => {  // of colours laid over each other
    colors.forEach((color) => { pen.fillStyle = color; pen.fillRect(0, 0, 1, 1); });
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
      .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  };
  const seen = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("svg, script, .skip")) continue;
    const grounds = [], style = getComputedStyle(element);
    for (let at = element; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
    const key = [...grounds, style.color].join();
    if (seen.has(key)) continue;
    seen.add(key);
    const [a, b] = [light(["#fff", ...grounds]), light(["#fff", ...grounds, style.color])].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) say("contrast " + ((a + 0.05) / (b + 0.05)).toFixed(1), element);
  }
  const dark = light([getComputedStyle(document.body).backgroundColor]) < 0.2;
  parent.postMessage(JSON.stringify({ found, texts, pairs: seen.size, dark, width: innerWidth }), "*");
});
</script>"""


def _run(folder):
    record = finished(folder / "runs", labels=["stand-in data"])
    STRONG.write(record.path)
    RANKED.write(record.path)
    planned().write(record.path)
    write_network(record.path, add_loss(create("resnet", depth=14)), 32)
    about = {"kind": "lines", "title": "How long does it take as more arrive?", "x_axis": "rate", "y_axis": "time"}
    names = ("first token, median", "first token, p90", "last token, median", "last token, p90")
    add_exhibits(record.path, 0, [{**about, "lines": {name: [[1.0, 2.0], [n, 3.0]] for n, name in enumerate(names)}}])
    write_claims(record.path)
    write_rules(record.path)
    return record


def _report(folder):
    path = folder / "report.html"
    path.write_text(render_runs([_run(folder).path]), encoding="utf-8")
    return path


def _comparison(folder):
    path = folder / "comparison.html"
    rows = [{}, {"scale": 0.5}, {"scale": 0.7, "recipe": "longer-name"}, {"seeds": 2}]
    runs = [finished(folder / "runs", labels=["stand-in data"], **row) for row in rows]
    path.write_text(render_runs([run.path for run in runs]), encoding="utf-8")
    return path


def _scaling(folder):
    tables = [(STRONG, {("ring all-reduce", 1024): "not known"}), (WEAK, {})]
    return scaling.write_page(folder / "scaling.html", "Scaling of a recipe", ["what it is", "where it ran"], tables)


def _recomputation(folder):
    return recomputation.write_page(folder / "memory.html", "Recomputation", ["two cores"], {"lenet": planned()})


def _optimized(folder):
    path = folder / "optimized.html"
    path.write_text(optimized(optimize_network(create("nasrnn", hidden=8), measure=False, budget=1)), encoding="utf-8")
    return path


def _study(folder):
    table = "\n".join("  ".join(f"{column:>12}" for column in range(14)) for _ in range(6))
    return study(folder / "study.html", "Substitutions", ["two cores"], {"E2": table})


def _frameworks(folder):
    """Three frameworks of which one is faster than both others, which are not told apart; two seeds each."""
    rng, names = np.random.default_rng(0), ["pytorch", "reference", "onnxruntime"]
    scale = {"pytorch": 1.0, "reference": 1.01, "onnxruntime": 0.5, control_name("pytorch"): 1.0}
    samples = {name: list(factor * 4e-3 * (1 + 0.05 * rng.random(12))) for name, factor in scale.items()}
    control = paired_ratio(samples[control_name("pytorch")], samples["pytorch"])
    pairs = compare_all({name: samples[name] for name in names}, control)
    timing = Timing(samples, dict.fromkeys(samples, 5), {name: [0] * 12 for name in samples}, control, pairs)
    checks = [Check(name, "gradients", 2e-16, 1e-9, True) for name in names]
    gate = GateResult("reference", checks, {name: {"loss": [2.3, 2.2, 2.1]} for name in names}, ["a note"])
    run = {"seed": 0, "accuracy": 91.0, "accuracies": [80.0, 91.0], "target": 90.0, "time_to_target": 1.5}
    fact = {"device": "cpu", "weights": "0" * 64, "threads": {"cores": 1}}
    result = ComparisonResult(
        "digits_lenet",
        names,
        gate,
        {"training step": timing},
        {"training step": 32},
        {name: {"peak": 2**28, "before": 2**27} for name in names},
        {name: [run, {**run, "seed": 1, "accuracies": [78.0, 92.0]}] for name in names},
        dict.fromkeys(names, fact),
        ("stand-in data",),
        describe(),
    )
    return frameworks.write_page(result, folder)


def _differing(folder):
    """Frameworks that do not compute the same: nothing was timed."""
    checks = [Check("pytorch", "gradients", 0.5, 1e-9, False, "parameter 'fc1.weight' after step 1")]
    result = ComparisonResult("digits_lenet", ["reference", "pytorch"], GateResult("reference", checks))
    return frameworks.write_page(result, folder)


def _profile(folder):
    network = add_loss(create("lenet"))
    inputs = {"input": np.ones((2, 3, 32, 32), np.float32), "label": np.zeros(2, np.int64)}
    return profile(profile_network(network, inputs, {"reference": from_model}, steps=1), folder / "profile.html")


def _race(folder):
    one = race(folder / "race")
    one.run(lambda line: None, Curves(2, {"c": 0.5, "b": 1.2}, missing=0.02))
    standing.write_standing(one)
    return folder / "race" / standing.PAGE


def _sweep(folder):
    words = ("batch_size=64,128", "optimizer_kwargs.lr=0.01,0.1")
    axes = [axis_of(word) for word in words]
    sweep = RecipeSweep(folder, SweepOptions("job.py", words), axes, cells_of(axes, None, 0))
    quality = {"name": "test_accuracy", "unit": "%", "direction": "higher"}
    for number, cell in enumerate(sweep.cells):
        fell, values = ("diverged", []) if number == 2 else ("", [90.0 + number, 91.0 + number])
        known = {"words": list(cell), "values": values, "reason": fell, "run": f"results/job/{number}", "seeds": 2}
        sweep.records[number] = {**known, "quality": quality, "metrics": [], "warnings": []}
    write_result(sweep)
    return folder / SWEEP


def _trajectory(folder):
    rng, distances = np.random.default_rng(0), {}
    start = {"fc1.weight": np.ones(4, "float32"), "fc1.bias": np.ones(2, "float32")}
    for side, size in ((AGAIN, 0.0), (ROUNDING, 1e-7), (OTHER, 1e-3)):
        distances[side] = Distances(losses=[None, *(2.0 / step for step in range(1, 9))], same_batches=8)
        for step in range(9):
            moved = {name: value + np.float32(size * step * rng.random()) for name, value in start.items()}
            distances[side].add(moved, start)
    sides = ("job optimizer=AdamOptimizer", "job optimizer=NAdamOptimizer")
    result = TrajectoryComparison(sides, 8, [0.1 * step for step in range(9)], distances[OTHER].losses, distances)
    result.judge()
    return result.write(folder)


def _bits(folder):
    """Two sides that part in the third of eight things."""
    start = np.ones((2, 3), np.float32)
    names = [
        f"forward, value 'a_rather_long_name.of/a/layer{n}' of node 'a_rather_long_name.of/a/layer{n}' (Gemm)"
        for n in range(8)
    ]
    parting, growth = _judged(
        [(name, None, start, start + np.float32(1e-6 * max(0, n - 1))) for n, name in enumerate(names)], 3
    )
    return bits(BitsVerdict(parting, 3, "2 steps before", ["a note"], growth), folder, "one and two")


def _review(folder):
    answers = [
        Answer(True, "the seal"),
        Answer(False, "seed 0 parts in epoch 2"),
        Answer(None, "times, second is this"),
    ]
    runs = [finished(folder / name) for name in ("package", "again")]
    return review(answers, folder / "review.html", *(run.path for run in runs))


PAGES = {
    "bits": _bits,
    "review": _review,
    "sweep": _sweep,
    "trajectory": _trajectory,
    "profile": _profile,
    "race": _race,
    "report": _report,
    "frameworks": _frameworks,
    "differing": _differing,
    "comparison": _comparison,
    "scaling": _scaling,
    "recomputation": _recomputation,
    "optimized": _optimized,
    "study": _study,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page of each kind, made once, and the templates that were asked for meanwhile."""
    pages, calls, get = {}, set(), jinja2.Environment.get_template

    def noted(environment, name, *more):
        calls.add(name)
        return get(environment, name, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "get_template", noted)
        for name, make in PAGES.items():
            pages[name] = make(tmp_path_factory.mktemp(name))
    return pages, calls


@needs_browser
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_or_unreadable(made, name, tmp_path):
    page = made[0][name]
    for width, scheme in ((1400, ()), (390, (DARK,))):
        findings = probe(tmp_path, page, GEOMETRY, width, *scheme)
        assert findings["found"] == [], f"{width} pixels"
        assert findings["dark"] == bool(scheme) and findings["pairs"] > 2
        assert findings["texts"] or name in ("study", "differing")
    text = re.sub(r"<(script|style|svg)\b.*?</\1>|<[^>]*>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.search(r"\bNone\b|\bnan\b|\bundefined\b", text) and str(page.parent) not in text


def test_every_page_kind_is_a_row(made):
    """Each template that extends the frame has a row above, and each page of one thing begins with an answer."""
    pages, calls = made
    wanted = {file.name for file in TEMPLATES.glob("*.html.j2") if '{%- extends "base' in file.read_text("utf-8")}
    assert wanted and wanted <= calls
    for name in pages.keys() - {"comparison"}:
        text = pages[name].read_text(encoding="utf-8").partition("<main")[2]
        assert text.index('class="verdict') < text.index("<h2"), name


def test_places_are_shared_where_intervals_overlap(tmp_path):
    """Six seeds of 93 to 93.5 thrice; two seeds have no interval, and no place."""
    text = _comparison(tmp_path).read_text(encoding="utf-8")
    board = text.partition('id="leaderboard"')[2].partition("</section>")[0]
    assert re.findall(r'data-head="place">(\w+)<', board) == ["1", "1", "1", "none"]
    assert "longer-name" in board and board.count("observation") >= 1


def test_runs_on_other_data_are_no_rivals():
    """Nor are losses of other tasks: an interval that is better than all others is no first place among them."""
    interval = {"direction": "lower", "unit": "", "value": 0.2, "interval": (0.1, 0.3)}

    def view(digest="1", loss="cross_entropy", name="test_loss", **metric):
        data = {"validation": {"name": "digits", "digest": digest}}
        about = {"data": data, "resolved": {"recipe": {"task": None, "loss": loss}}}
        return {"manifest": about, "metrics": [{"name": name, **interval, **metric}]}

    best = {"value": 0.01, "interval": (0.005, 0.015)}
    for other in ({"digest": "2"}, {"loss": "mean_squared_error"}):
        board = leaderboard([view(), view(**other, **best), view(value=0.9, interval=(0.8, 1.0))])
        assert [(row["number"], row["place"]) for row in board["rows"]] == [(1, 1), (3, 2), (2, None)]
        assert board["unlike"] == 1
    board = leaderboard([view(name="test_accuracy"), view(name="test_accuracy", loss="mean_squared_error", **best)])
    assert [row["place"] for row in board["rows"]] == [1, 2] and board["unlike"] == 0


def test_the_answer_stands_first(tmp_path):
    """Which framework wins, over whom, and that the others are not told apart; or what differs, and no times."""
    text = _frameworks(tmp_path).read_text(encoding="utf-8")
    head = text.partition("</section>")[0]
    assert "All 3 frameworks compute the same, judged by reference." in head and "stand-in data" in head
    assert re.search(
        r"onnxruntime is faster than every other one, 0\.\d{3} \[0\.\d{3}, 0\.\d{3}\] of the time of", head
    )
    assert text.count('data-head="verdict"') == 3 and "Do they learn alike?" in text
    text = _differing(tmp_path).read_text(encoding="utf-8")
    assert "pytorch does not compute the same, so nothing was timed" in text and "fc1.weight" in text
    assert "Which is faster?" not in text


@given(
    speeds=st.lists(st.sampled_from([0.9, 1.0, 1.004, 1.1, 2.0]), min_size=2, max_size=4),
    noise=st.sampled_from([0.002, 0.05, 0.3]),
    seed=st.integers(0, 999),
)
@settings(max_examples=40, deadline=None)
def test_the_sentence_about_times_never_says_more_than_the_pairs(speeds, noise, seed):
    """A winner beats each other one; nobody is called slower without having lost; equals lost to nobody."""
    rng = np.random.default_rng(seed)
    samples = {f"n{i}": list(1e-3 * speed * (1 + noise * rng.random(15))) for i, speed in enumerate(speeds)}
    control = paired_ratio([1.0] * 15, [1.0] * 15)
    timing = Timing(samples, {}, {}, control, compare_all(samples, control))
    result = ComparisonResult(
        "x", list(samples), GateResult("a", [Check("a", "x", None, None, True)]), {"step": timing}
    )
    sentence = frameworks.answer(result)[1].removeprefix("Step: ").removesuffix(".")
    decided = [pair for pair in timing.comparisons if pair.verdict in (FASTER, SLOWER)]
    lost = {pair.second if pair.verdict == FASTER else pair.first for pair in decided}
    wins = [pair.first if pair.verdict == FASTER else pair.second for pair in decided]
    winner = next((name for name in samples if wins.count(name) == len(samples) - 1), None)
    if winner is not None:
        assert sentence.startswith(f"{winner} is faster than every other one, 0.")
        return
    assert "faster than every other one" not in sentence
    front, _, slower = sentence.partition("; slower than another: ")
    assert set(slower.split(", ") if slower else ()) == lost
    if not front.startswith("none"):
        assert set(re.match(r"[n0-9, ]+[0-9]", front)[0].split(", ")) == set(samples) - lost
