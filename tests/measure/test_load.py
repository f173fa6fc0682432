"""The load of a machine, read from files of machines that are busy, quiet, throttled, or tell nothing."""

from __future__ import annotations

import pytest

from deep500.measure.advice import BAD, GOOD, UNKNOWN, advise
from deep500.measure.load import TICKS, Roots, disturbances, load_between, quota, read_load, shares, together


def machine(folder, files):
    """A machine of these files below ``/proc`` and ``/sys``."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Roots(folder / "proc", folder / "sys")


def stat(seconds, busy, steal=0.0, cpus=2):
    """``/proc/stat`` after some seconds, of which every processor was busy a part."""
    user, idle, stolen = (int(part * seconds * TICKS) for part in (busy, 1 - busy - steal, steal))
    each = f"{user} 0 0 {idle} 0 0 0 {stolen} 0 0"
    return "".join([f"cpu  {each}\n", *(f"cpu{n} {each}\n" for n in range(cpus)), "procs_running 3\n"])


CPU = "sys/devices/system/cpu"
TUNED = {
    "proc/stat": stat(100, 0.5),
    "proc/loadavg": "0.02 0.1 0.2 1/200 4711\n",
    "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n",
    "proc/vmstat": "pswpin 10\npswpout 20\n",
    "proc/meminfo": "MemTotal: 8000 kB\nSwapTotal: 1000 kB\nSwapFree: 1000 kB\n",
    "proc/self/cgroup": "0::/job\n",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-1\n",
    "sys/fs/cgroup/job/cpu.stat": "usage_usec 5\nnr_periods 10\nnr_throttled 0\nthrottled_usec 0\n",
    "sys/fs/cgroup/job/cpu.max": "max 100000\n",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/class/thermal/thermal_zone0/temp": "45000\n",
    f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "0\n",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "3000000\n",
    f"{CPU}/intel_pstate/no_turbo": "1\n",
    f"{CPU}/cpufreq/boost": "0\n",
    f"{CPU}/smt/active": "0\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
}
"""A machine on which nothing disturbs."""

WORSE = {
    "governor": {f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave\n"},
    "turbo (Intel)": {f"{CPU}/intel_pstate/no_turbo": "0\n"},
    "turbo (others)": {f"{CPU}/cpufreq/boost": "1\n"},
    "two threads per core": {f"{CPU}/smt/active": "1\n"},
    "clock source": {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n"},
    "quota": {"sys/fs/cgroup/job/cpu.max": "50000 100000\n"},
    "swap": {"proc/meminfo": "SwapTotal: 1000 kB\nSwapFree: 10 kB\n"},
    "temperature": {"sys/class/thermal/thermal_zone0/temp": "97000\n"},
    "throttling": {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "12\n"},
    "NUMA": {"sys/devices/system/node/node0/cpulist": "0\n", "sys/devices/system/node/node1/cpulist": "1\n"},
}
"""What one setting makes worse, by what advice is called."""


def reading(folder, at, own, **files):
    """A reading of a machine at a moment."""
    roots = machine(folder, {**TUNED, **files})
    return {**read_load(roots, (0, 1)), "at": at, "own": own}


def between(tmp_path, own=10.0, **after):
    """Ten seconds in which this process used ``own`` seconds of two processors."""
    first = reading(tmp_path / "before", 0.0, 0.0)
    return load_between(first, reading(tmp_path / "after", 10.0, own, **after))


@pytest.mark.parametrize(
    ("after", "own", "said"),
    [
        ({"proc/stat": stat(110, 0.5)}, 10.0, []),
        ({"proc/stat": stat(110, 60 / 110)}, 2.0, ["other processes took 90 % of its 2 processors"]),
        ({"proc/stat": stat(110, 55 / 110, 5 / 110)}, 10.0, ["the hypervisor took 50 % of its processors"]),
        (
            {"sys/fs/cgroup/job/cpu.stat": "throttled_usec 3000000\n", "proc/stat": stat(110, 0.5)},
            10.0,
            ["a quota stopped it for 30 % of the time"],
        ),
        (
            {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "3\n"},
            10.0,
            ["processors were too hot and slowed down 3 times"],
        ),
        ({"proc/vmstat": "pswpin 5000\npswpout 20\n"}, 10.0, ["4990 pages of memory were swapped"]),
    ],
)
def test_what_disturbs_is_said_with_its_size(tmp_path, after, own, said):
    assert disturbances(between(tmp_path, own, **after)) == said


def test_shares_and_states(tmp_path):
    load = between(tmp_path, 5.0, **{"proc/stat": stat(110, 60 / 110), "proc/loadavg": "9.5 1 1 1/1 1\n"})
    part = shares(load)
    assert part["own"] == pytest.approx(0.25) and part["others"] == pytest.approx(0.75, abs=0.01)
    assert (load["load_average"], load["celsius"], load["mhz"], load["running"]) == (9.5, 45.0, 3000.0, 3)


def test_intervals_add_up_and_short_ones_are_not_judged(tmp_path):
    busy = between(tmp_path, 2.0, **{"proc/stat": stat(110, 60 / 110)})
    whole = together([busy, {**busy, "load_average": 7.0}])
    assert whole["seconds"] == 20.0 and whole["busy"] == 2 * busy["busy"] and whole["load_average"] == 7.0
    assert disturbances({**busy, "seconds": 0.2}) is None and together([])["busy"] is None
    assert together([busy, {**busy, "busy": None}])["busy"] is None


def test_a_system_that_tells_nothing_is_not_measured(tmp_path):
    roots = machine(tmp_path, {"proc/version": "another system\n"})
    load = load_between(read_load(roots, (0, 1)), {**read_load(roots, (0, 1)), "at": 1e9})
    assert all(load[name] is None for name in ("busy", "steal", "pressure", "throttled", "swapped_pages", "celsius"))
    assert disturbances(load) == [] and quota(roots) is None
    states = {finding.about: finding.state for finding in advise(roots, seconds=0.0)}
    assert states.pop("quota") == GOOD and set(states.values()) == {UNKNOWN}


def test_the_first_control_groups(tmp_path):
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/job\n",
        "sys/fs/cgroup/cpu/job/cpu.stat": "nr_throttled 3\nthrottled_time 2500000000\n",
        "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
    }
    roots = machine(tmp_path, files)
    assert read_load(roots)["throttled"] == 2.5 and quota(roots) == 1.5


def test_this_machine_can_be_read():
    load = read_load(Roots())
    assert load["cpus"] >= 1 and load["own"] > 0


@pytest.mark.parametrize("about", ["nothing", *WORSE])
def test_advice_is_one_line_per_finding_and_says_what_to_do(tmp_path, about):
    roots = machine(tmp_path, {**TUNED, **WORSE.get(about, {})})
    before = {**read_load(roots), "at": read_load(roots)["at"] - 10.0}
    found = {finding.about: finding for finding in advise(roots, before)}
    bad = [name for name, finding in found.items() if finding.state == BAD]
    assert bad == ([] if about == "nothing" else [about])
    assert all(finding.fix and "\n" not in str(finding) for finding in found.values() if finding.state == BAD)
