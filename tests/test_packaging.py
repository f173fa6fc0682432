"""The ways to have Deep500: a checkout, an editable install, a wheel; seen from the repository root and elsewhere.

Fresh virtual environments borrow the dependencies of the running one by links, all but Deep500 itself, so that nothing
is downloaded and this checkout cannot be imported by accident.
"""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import deep500
from tests.conftest import HANG
from tests.release import same_times

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ["deep500", "frameworks", "custom_ops", "recipes"]
FILES = ["setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", "constraints.txt"]
RECIPE = "digits_lenet"
WHERE = (
    "import deep500, deep500.frameworks as f, deep500.custom_ops as c; print(deep500.__file__, f.__file__, c.__file__)"
)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command with nothing of this checkout on its path; return what it writes, raise with it if it fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_", "VIRTUAL_ENV", "COV_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))} returned {done.returncode}:\n{done.stdout}"
    return done.stdout


def make_environment(path: Path, borrowed: Path) -> Path:
    """An empty virtual environment that also sees the borrowed packages; returns its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", path, cwd=path.parent)
    python = path / "bin" / "python"
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=path).strip())
    (purelib / "borrowed.pth").write_text(f"{borrowed}\n")
    return python


def install(python: Path, *arguments: str | Path) -> None:
    """``pip install`` into the environment, offline and without dependencies."""
    offline = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    run(python, "-m", "pip", "install", *offline, *arguments, cwd=python.parent)


@pytest.fixture(scope="module")
def borrowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to everything that is installed here, but Deep500."""
    folder = tmp_path_factory.mktemp("borrowed")
    for kind in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(kind)).iterdir():
            if "deep500" not in entry.name and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged, with its symlinks, so that building leaves nothing behind in the repository."""
    folder = tmp_path_factory.mktemp("work") / "checkout"
    for name in SOURCES:
        ignore = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignore)
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    assert (folder / "deep500" / "frameworks").is_symlink()
    return folder


@pytest.fixture(scope="module")
def distributions(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel made *from it*."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, checkout, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(distributions: Path, borrowed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel in it."""
    python = make_environment(tmp_path_factory.mktemp("wheel") / "venv", borrowed)
    install(python, *distributions.glob("*.whl"))
    return python


@pytest.fixture(scope="module")
def editable(checkout: Path, borrowed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with an editable install of the copied checkout."""
    python = make_environment(tmp_path_factory.mktemp("editable") / "venv", borrowed)
    install(python, "--editable", checkout)
    return python


@pytest.fixture(scope="module")
def bare(borrowed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment without Deep500: what runs there was imported from the checkout."""
    return make_environment(tmp_path_factory.mktemp("bare") / "venv", borrowed)


def expected_files() -> set[str]:
    """The files of all packages, by the name under which they are imported."""
    files = set()
    for name in SOURCES:
        prefix = name if name in ("deep500", "recipes") else f"deep500/{name}"
        for path in (ROOT / name).rglob("*"):
            inside = path.relative_to(ROOT / name)
            links = name == "deep500" and inside.parts[0] in ("frameworks", "custom_ops")
            if path.is_file() and not links and "__pycache__" not in inside.parts and path.suffix != ".so":
                files.add(f"{prefix}/{inside.as_posix()}")
    return files


def test_wheel_and_sdist_hold_every_file(distributions: Path) -> None:
    """Real files, with templates, headers and `py.typed`; a folder without `__init__.py` would be missing here."""
    (wheel,) = distributions.glob("*.whl")
    (sdist,) = distributions.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        assert not [m.name for m in archive if m.issym() or m.islnk()], "a link in an archive breaks on Windows"
        in_sdist = {m.name.partition("/")[2] for m in archive if m.isfile()}
    expected = expected_files()
    assert {"deep500/py.typed", "deep500/frameworks/__init__.py", "deep500/custom_ops/__init__.py"} <= expected
    workshop = {name for name in expected if name.startswith("deep500/transformations/workshop/")}
    assert workshop and in_wheel == expected - workshop, "rules are made in a checkout; a wheel holds what runs"
    assert expected <= in_sdist
    assert {"setup.py", "pyproject.toml", "LICENSE", "constraints.txt"} <= in_sdist


def test_wheel_is_the_same_from_a_checkout(checkout: Path, distributions: Path, tmp_path: Path) -> None:
    """Through the symlinks or from the source distribution's real files: the same content."""
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, checkout, cwd=tmp_path)
    checksums = []
    for folder in (tmp_path, distributions):
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            checksums.append({i.filename: i.CRC for i in archive.infolist() if ".dist-info/" not in i.filename})
    assert checksums[0] == checksums[1]


def test_editable_install_is_one_plain_path(checkout: Path, editable: Path) -> None:
    """Static tools read a path line; an import hook they cannot read."""
    (line,) = editable.parent.parent.glob("lib/python*/site-packages/__editable__*deep500*.pth")
    assert line.read_text().strip() == str(checkout)
    assert not list(editable.parent.parent.glob("lib/python*/site-packages/__editable__*finder.py"))


LAYOUTS = [  # who imports, from where, and whose files it must get
    ("bare", "root", "checkout"),
    ("editable", "root", "checkout"),
    ("editable", "elsewhere", "checkout"),
    ("installed", "elsewhere", "environment"),
    ("installed", "root", "checkout"),  # Python looks into the current folder first
]


@pytest.mark.parametrize(("who", "where", "whose"), LAYOUTS)
def test_imports_in_every_layout(
    who: str, where: str, whose: str, checkout: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python: Path = request.getfixturevalue(who)
    home = checkout if whose == "checkout" else python.parent.parent
    for file in run(python, "-c", WHERE, cwd=checkout if where == "root" else tmp_path).split():
        assert Path(file).is_relative_to(home), f"{file} is not below {home}"


def test_metadata(installed: Path, tmp_path: Path) -> None:
    """Version, licence and console script; the version stands in one file only."""
    code = "from importlib.metadata import metadata as m; d = m('deep500'); print(d['Version'], d['License'])"
    assert run(installed, "-c", code, cwd=tmp_path).split() == [deep500.__version__, "BSD-3-Clause"]
    assert "usage: deep500" in run(installed.parent / "deep500", "--help", cwd=tmp_path)


def normal(distribution: str) -> str:
    """A distribution's name as packages are compared by: ``tensorflow_cpu`` is ``tensorflow-cpu``."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def third_party_imports(path: Path, known: Mapping[str, list[str]]) -> set[str]:
    """The distributions (by their normal names) that a file imports, anywhere in it."""
    distributions = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for top in {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names):
            distributions |= {normal(distribution) for distribution in known.get(top, [])}
    return distributions - {"deep500"}


EXTRA_OF = {  # the files that may import what an extra brings
    ("transports", "mpi.py"): "mpi",
    ("parallel_gradients", "worker.py"): "mpi",
    ("measure", "callbacks.py"): "test",  # only who trains with transformers calls it
    ("measure", "regression.py"): "stats",
    ("results", "export_tensorboard.py"): "tensorboard",
    ("proofs", "saturation.py"): "substitutions",
    ("proofs", "solver.py"): "substitutions",
    ("substitutions", "saturation.py"): "substitutions",
    ("tasks", "environments.py"): "control",
    ("tasks", "tokens.py"): "data",
    ("data", "audio.py"): "data",
    ("data", "text.py"): "data",
    ("data_latency", "storage.py"): "data",
    ("data_latency", "worker.py"): "data",
    ("formats", "arrow.py"): "data",
    ("formats", "hdf5.py"): "data",
    ("formats", "huggingface.py"): "data",
    ("formats", "lightning.py"): "data",
}


def test_every_import_is_a_declared_requirement(distributions: Path) -> None:
    """What the package imports directly it requires directly, in the core or in the backend's own extra."""
    (wheel,) = distributions.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    declared: dict[str, set[str]] = {}
    for line in re.findall(r"^Requires-Dist: (.+)$", text, flags=re.MULTILINE):
        extra = re.search(r"extra == [\"']([\w-]+)[\"']", line)
        declared.setdefault(extra[1] if extra else "", set()).add(normal(re.match(r"[\w.-]+", line)[0]))
    known = packages_distributions()
    missing = {}
    for folder in SOURCES:
        for path in (p for p in (ROOT / folder).rglob("*.py") if p.resolve() == p):
            inside = path.relative_to(ROOT).parts
            allowed = declared[""] | declared.get(inside[1] if folder == "frameworks" else "", set())
            allowed |= declared.get(EXTRA_OF.get(inside[-2:], ""), set())
            allowed |= (
                declared["pytorch"] | declared["jax"] | declared["tensorflow"] if folder == "recipes" else set()
            )  # a recipe is for one backend or more
            if undeclared := third_party_imports(path, known) - allowed:
                missing[str(path.relative_to(ROOT))] = sorted(undeclared)
    assert not missing, f"declare in setup.py and pin in constraints.txt: {missing}"


RUNS = [  # the same recipe by every door; {root} is the copied checkout
    ("bare", "root", ["python", "-m", f"recipes.{RECIPE}"]),
    ("editable", "elsewhere", ["python", f"{{root}}/recipes/{RECIPE}.py"]),
    ("installed", "elsewhere", ["python", "-m", f"recipes.{RECIPE}"]),
    ("installed", "root", ["python", f"recipes/{RECIPE}.py"]),
    ("installed", "elsewhere", ["deep500", "run", f"{{root}}/recipes/{RECIPE}.py"]),
]


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize(("who", "where", "command"), RUNS)
@pytest.mark.slow
def test_recipe_dry_run(
    who: str, where: str, command: list[str], checkout: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    program, *arguments = (part.format(root=checkout) for part in command)
    python: Path = request.getfixturevalue(who)
    folder = checkout if where == "root" else tmp_path
    text = run(python.parent / program, *arguments, "--dry-run", "--out", tmp_path / "out", cwd=folder)
    assert "test_accuracy" in text.lower().replace(" ", "_"), text
    assert list((tmp_path / "out").rglob("manifest.json")), text


def test_a_source_distribution_has_the_same_bytes_whenever_it_is_built(tmp_path: Path) -> None:
    texts = {"b/two.py": b"2", "b/one.py": b"1"}
    files = []
    for moment, names in ((1, sorted(texts)), (2, sorted(texts, reverse=True))):
        files.append(tmp_path / f"{moment}.tar.gz")
        with tarfile.open(files[-1], "w:gz") as archive:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uid = 1, moment, moment
                archive.addfile(member, io.BytesIO(texts[name]))
        same_times(files[-1], 86400)
    assert files[0].read_bytes() == files[1].read_bytes()
    with tarfile.open(files[0]) as archive:
        assert {m.name: archive.extractfile(m).read() for m in archive} == texts  # type: ignore[union-attr]
