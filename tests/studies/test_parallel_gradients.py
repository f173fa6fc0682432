"""The study of parallel gradients: physics, all forms one gradient, planted faults are seen, and it prints."""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import InputError, MissingBackend, MissingEngine
from recipes.studies.parallel_gradients import __main__ as study
from recipes.studies.parallel_gradients import building, hydro, launching, measuring, printing, sources
from recipes.studies.parallel_gradients.hydro import Box, BoxPart, ExchangeStruct
from recipes.studies.parallel_gradients.launching import FormPoint
from recipes.studies.parallel_gradients.measuring import Checked, TimedPoint, check

pytestmark = pytest.mark.slow


def library(proxy: str, form: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(building.library(proxy, form)))
    except (MissingEngine, MissingBackend) as error:
        pytest.skip(str(error))


def test_the_blast_is_sedovs_and_energy_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matter is fastest at R(t) = 1.033 (E t^2 / rho)^(1/5) for gamma = 1.4 (Sedov 1959), here to a cell's size."""
    monkeypatch.setattr(hydro, "BACKGROUND", 1e-6)
    part = BoxPart(Box((10, 10, 10), steps=70, regions=1, perturbation=0.0), 0)
    values = part.values(part.start)
    part.primal(library("hydro", "serial"), values)
    position, velocity, energy, time = values
    total = [
        (part.mass * e).sum() + 0.5 * (part.nodal_mass[:, None] * u.reshape(-1, 3) ** 2).sum()
        for u, e in ((part.start[1], part.start[2]), (velocity, energy))
    ]
    assert total[1] == pytest.approx(total[0], rel=1e-12)
    speed = np.linalg.norm(velocity.reshape(-1, 3), axis=1)
    radius = np.linalg.norm(position.reshape(-1, 3)[speed.argmax()])
    expected = 1.033 * (hydro.BLAST * time[0] ** 2) ** 0.2
    assert 0.3 < expected < 0.8 and abs(radius - expected) < 0.06


@pytest.mark.parametrize(
    "proxy, points", [("hydro", [FormPoint("hybrid", 2, 2)]), ("docking", [FormPoint("raja", 1, 2)])]
)
def test_forms_have_one_gradient(proxy: str, points: list[FormPoint]) -> None:
    """The two forms that differ most from the serial one; a full run checks all, on up to 8 ranks."""
    for form in ("serial", *(point.form for point in points)):
        library(proxy, form)
    checked = check(proxy, [FormPoint("serial"), *points], measuring.QUICK[proxy])
    assert [line for each in checked for line in each.wrong] == []
    assert 0 < checked[1].finite_difference < 1e-7


def test_what_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A millionth too much in one element; a constant that changed; NaN."""
    right = {
        "gradient0": np.array([1.0, 2.0]),
        "gradient": np.array(3.0),
        "tangent": np.array(3.0),
        "differences": np.array(3.0 + 1e-8),
        "unchanged": np.array(True),
    }
    changes: dict[str, dict[str, object]] = {
        "serial": {},
        "openmp": {"gradient0": np.array([1.0, 2.0 + 1e-6])},
        "raja": {"unchanged": np.array(False)},
        "mpi": {"gradient0": np.array([1.0, np.nan]), "differences": np.array(np.nan)},
        "hybrid": {"tangent": np.array(np.nan)},
    }
    monkeypatch.setattr(measuring, "answer_of", lambda proxy, point, problem: {**right, **changes[point.form]})
    found = {each.point.form: each.wrong for each in check("docking", [FormPoint(form) for form in changes])}
    assert not found["serial"] and not found["hybrid"]
    assert found["openmp"] == ["docking, OpenMP 1: differs from the serial gradient by 5.0e-07"]
    assert found["raja"] == ["docking, RAJA-style 1: changes what is constant"]
    assert len(found["mpi"]) == 2


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_parts_make_the_whole(ranks: int) -> None:
    """Every number counts once, and what one rank sends is what its neighbour expects, in that order."""
    shape = (4, 5, 6)
    parts = [BoxPart(Box(shape, hydro.parts_of(ranks)), rank) for rank in range(ranks)]
    for field, size in enumerate(parts[0].result_sizes):
        counted = np.zeros(size)
        for part in parts:
            np.add.at(counted, part.result_at[field], part.result_owned[field])
        assert (counted == 1).all()
    whole = np.zeros(5 * 6 * 7)
    for part in parts:
        np.add.at(whole, part.nodes, part.nodal_mass * part.result_owned[0][::3])
    assert whole.sum() == pytest.approx(np.prod(shape) / max(shape) ** 3)
    for which, numbers in (("shared", "nodes"), ("borders", "elements")):
        for rank, part in enumerate(parts):
            for other, (sent, received) in neighbours(getattr(part.constants[1], which)).items():
                back_sent, back_received = neighbours(getattr(parts[other].constants[1], which))[rank]
                assert len(sent) == len(back_received) and len(received) == len(back_sent) and len(sent)
                if which == "shared":
                    there = getattr(parts[other], numbers)[back_received]
                    assert (getattr(part, numbers)[sent] == there).all()


def neighbours(exchange: ExchangeStruct) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Of each neighbour, which places are sent and received."""

    def array(address: int, length: int) -> np.ndarray:
        return np.array((ctypes.c_long * length).from_address(address)) if length else np.zeros(0, int)

    n, found = exchange.neighbours, {}
    starts = [array(start, n + 1) for start in (exchange.send_start, exchange.receive_start)]
    lists = [
        array(places, int(start[-1])) for places, start in zip((exchange.send, exchange.receive), starts, strict=True)
    ]
    for i, rank in enumerate(array(exchange.ranks, n)):
        found[int(rank)] = tuple(places[s[i] : s[i + 1]] for places, s in zip(lists, starts, strict=True))
    return found  # type: ignore[return-value]


@pytest.fixture
def timed() -> list[TimedPoint]:
    """Two workers in half the time; the gradient takes three times the primal's, on two ranks four times."""

    def seconds(primal: float, gradient: float) -> dict[str, list[float]]:
        walls = {"primal": [primal] * 8, "gradient": [gradient] * 8}
        clocks = ("", measuring.ALL, measuring.BUSIEST)
        return {f"{part}{clock}": values for part, values in walls.items() for clock in clocks}

    rows = [TimedPoint("hydro", "strong", FormPoint("serial"), seconds(0.1, 0.3))]
    for form in ("openmp", "mpi"):
        rows.append(TimedPoint("hydro", "strong", FormPoint(form), seconds(0.1, 0.3)))
        two = FormPoint("openmp", 1, 2) if form == "openmp" else FormPoint("mpi", 2)
        rows.append(TimedPoint("hydro", "strong", two, seconds(0.05, 0.15 if form == "openmp" else 0.2)))
        rows.append(TimedPoint("hydro", "weak", two, seconds(0.1, 0.3)))
    return rows


def test_tables_page_and_picture(
    timed: list[TimedPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checked = [Checked("hydro", FormPoint("serial"), 0.0, 1e-16, 1e-10, True)]
    monkeypatch.setattr(study, "run", lambda chosen: (checked, timed))
    files = {name: tmp_path / f"a.{ending}" for name, ending in (("json", "json"), ("plot", "svg"), ("page", "md"))}
    words = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    assert study.main(words) == 0
    out = capsys.readouterr().out
    assert "gradient/primal: worst 4 [4, 4] (hydro, strong, MPI 2); bar 11.7 (published worst): met" in out
    assert "wall clock: least 0.75 [0.75, 0.75] (hydro, MPI 2); bar 0.9: missed" in out
    assert out[out.index("checked") :].strip() in files["page"].read_text()
    assert "<svg" in files["plot"].read_text()
    assert len(json.loads(files["json"].read_text())["timed"]) == len(timed)
    wrong = [replace(checked[0], difference=1e-6)]
    monkeypatch.setattr(study, "run", lambda chosen: (wrong, []))
    assert study.main(["--no-times"]) == 1
    assert "WRONG: hydro, serial: differs from the serial gradient by 1.0e-06" in capsys.readouterr().out


def test_efficiency_of_known_times(timed: list[TimedPoint]) -> None:
    by_title = {(each.mode, each.point.title): each for each in timed}
    two = by_title["strong", "MPI 2"]
    base = measuring.base_of(two, timed)
    assert base.point == FormPoint("mpi")
    assert measuring.efficiency(two, base, "primal") == pytest.approx([1.0] * 8)
    assert measuring.efficiency(two, base, "gradient") == pytest.approx([0.75] * 8)
    weak = by_title["weak", "OpenMP 2"]
    assert measuring.efficiency(weak, measuring.base_of(weak, timed), "primal") == pytest.approx([1.0] * 8)
    assert printing.relative_efficiency(two, base).median == pytest.approx(0.75)
    assert measuring.grown("hydro", {"shape": [4, 4, 4]}, 3) == {"shape": [4, 4, 12]}


def test_a_missing_engine_and_a_failing_launch_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launching, "library", lambda proxy, form: Path("/nowhere/hydro.so"))
    assert study.main(["--no-times", "--proxy", "docking"]) != 0
    assert "error: docking, serial: got exit code 1; expected an answer" in capfd.readouterr().err
    monkeypatch.undo()
    monkeypatch.setenv("DEEP500_ENZYME", "/nowhere/LLVMEnzyme-22.so")
    assert study.main(["--no-times"]) == MissingEngine.exit_code
    assert capfd.readouterr().err.startswith("error: got DEEP500_ENZYME=/nowhere")


@pytest.mark.parametrize(
    "words, said",
    [
        (["--rounds", "0"], "--rounds 0"),
        (["--proxy", "weather"], "weather"),
        (["--json", "no/a"], "--json no/a"),
        (["--plot", "a.txt"], "--plot a.txt"),
        (["--no-times", "--plot", "a.png"], "--no-times with"),
    ],
)
def test_bad_options(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        study.options(words)
    assert end.value.code == 2 and said in capsys.readouterr().err


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lulesh.cc").write_text("int main() {}\n")
    with pytest.raises(InputError, match=r"without lulesh-init.cc; expected a checkout of LULESH 2.0 or miniBUDE"):
        sources.report_sources([tmp_path])


FIELDS = {
    "nodes": "x y z xd yd zd xdd ydd zdd fx fy fz nodalMass".split(),
    "elements": "e p q v ql qq volo vnew delv vdov arealg ss elemMass".split(),
    "numbers": "time deltatime dtcourant dthydro dtfixed dtmax stoptime deltatimemultlb deltatimemultub".split(),
}
LOOKS_LIKE_LULESH = """#include <cmath>
#include <vector>
typedef double Real_t; typedef int Index_t;
struct Domain {
  Index_t nodes, elements; %s
  Domain(int, int, int, int, Index_t n, int, int, int, int) : nodes(n + 1), elements(n) { %s }
  Index_t numNode() { return nodes; }
  Index_t numElem() { return elements; }
  %s
};
"""
STEP_OF_IT = """#include "lulesh.h"
static void TimeIncrement(Domain &domain) { domain.time() += domain.deltatime(); }
static void LagrangeLeapFrog(Domain &domain) {
  for (Index_t k = 0; k < domain.numElem(); ++k) {
    const Real_t inside = k %% 2 ? domain.e(k) : -domain.e(k) - 1;
    Real_t sound = inside;
    if (sound <= 1e-3) sound = 3e-2; else sound = sqrt(sound);
    domain.e(k) += 1e-2 * sound * domain.x(k) * domain.v(k);
    domain.x(k) += %s * domain.e(k) * domain.xd(k + 1);
  }
}
int main() { return 0; }
"""


THREADED_STEP = """#include "lulesh.h"
#if _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads() { return 1; }
static int omp_get_thread_num() { return 0; }
#endif
static void TimeIncrement(Domain &domain) { domain.time() += domain.deltatime(); }
static void Least(Domain &domain, Index_t length, Real_t &least) {
  const Index_t threads = omp_get_max_threads();
  Real_t least_per_thread[threads];
#pragma omp parallel firstprivate(length)
   {
      Real_t least_tmp = least;
      Index_t thread_num = omp_get_thread_num();
#pragma omp for
      for (Index_t i = 0 ; i < length ; ++i) {
        if (domain.e(i) * domain.v(i) < least_tmp) least_tmp = domain.e(i) * domain.v(i);
      }
      least_per_thread[thread_num] = least_tmp;
   }
  for (Index_t i = 1; i < threads; ++i)
    if (least_per_thread[i] < least_per_thread[0]) least_per_thread[0] = least_per_thread[i];
  least = least_per_thread[0];
}
static void LagrangeLeapFrog(Domain &domain) {
  Index_t count = domain.numElem();
  std::vector<Real_t> room(count);
  Real_t *work = room.data();
#pragma omp parallel
  {
#pragma omp for nowait firstprivate(count)
    for (Index_t i = 0; i < count; ++i) work[i] = domain.e(i) * domain.e(i) * domain.v(i);
#pragma omp for firstprivate(count)
    for (Index_t i = 0; i < count; ++i)
      if (work[i] > 0.5) work[i] = sqrt(work[i]);
  }
  Real_t least = 1e20;
  Least(domain, count, least);
#pragma omp parallel for firstprivate(count)
  for (Index_t i = 0; i < count; ++i) domain.e(i) += 1e-2 * least * work[i] * domain.x(i);
}
int main() { return 0; }
"""


def stand_in(folder: Path, step: str) -> None:
    """A checkout with LULESH's names, and this for a time step."""
    vectors = [(name, part) for part in ("nodes", "elements") for name in FIELDS[part]]
    members = "".join(f"std::vector<Real_t> m_{name}; " for name, _ in vectors)
    members += "".join(f"Real_t m_{name} = 1e-3; " for name in FIELDS["numbers"])
    made = "".join(f"m_{name}.assign({size}, 1); " for name, size in vectors)
    access = "".join(f"Real_t &{name}(Index_t i) {{ return m_{name}[i]; }} " for name, _ in vectors)
    access += "".join(f"Real_t &{name}() {{ return m_{name}; }} " for name in FIELDS["numbers"])
    (folder / "lulesh.h").write_text(LOOKS_LIKE_LULESH % (members, made, access))
    for name in sources.FILES:
        (folder / name).write_text('#include "lulesh.h"\n')
    (folder / "lulesh.cc").write_text(step)


def gradients_agree(checkout: Path, size: int, steps: int) -> None:
    """Serial and with threads, against central differences and each other."""
    serial = sources.in_a_process(sources.build(checkout, False), size, steps, 1, 1)
    threaded = [sources.in_a_process(sources.build(checkout, True), size, steps, 1, count) for count in (1, 2, 4)]
    expected = np.array(serial["gradient"])
    for found in (serial, *threaded):
        assert found["error"] < 1e-6
        np.testing.assert_allclose(found["gradient"], expected, rtol=0, atol=1e-10 * abs(expected).max())


def test_a_checkout_is_differentiated_with_threads(tmp_path: Path) -> None:
    """A stand-in with what LULESH has in its regions: several loops, pointers, and each thread's least number."""
    library("docking", "serial")
    stand_in(tmp_path, THREADED_STEP)
    gradients_agree(tmp_path, 7, 2)


def test_lulesh_is_differentiated_with_threads() -> None:
    """The real one, where $DEEP500_LULESH has its checkout: twenty steps, after which the engine alone is wrong."""
    checkout = os.environ.get("DEEP500_LULESH")
    if not checkout:
        pytest.skip("no checkout: DEEP500_LULESH=PATH")
    library("docking", "serial")
    gradients_agree(Path(checkout), 8, 20)


@pytest.mark.long
def test_a_checkout_is_differentiated_with_roots_in_their_branches(tmp_path: Path) -> None:
    """A stand-in with LULESH's names: half of its elements would take the root of a negative number."""
    try:
        building.library("docking", "serial")
    except MissingEngine as error:
        pytest.skip(str(error))
    stand_in(tmp_path, STEP_OF_IT % "1e-3")
    found = sources.measure(str(sources.build(tmp_path, False)), 4, 3, 1)
    assert found["error"] < 1e-6
