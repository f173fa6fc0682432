"""What may be imported, from where, at what price; and how long files may be. Who imports whom: ``make lint``."""

from __future__ import annotations

import ast
import graphlib
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

import deep500
from deep500.registry import BACKENDS
from tests.conftest import HANG

ROOT = Path(__file__).resolve().parent.parent
# fmt: off
HEAVY = [
    "torch", "tensorflow", "keras", "jax", "jaxlib", "onnxruntime", "mpi4py",  # frameworks: loaded by name, on demand
    "sklearn", "matplotlib", "scipy.stats", "onnx.reference", "PIL", "pooch",  # slow: imported where they are used
]
# fmt: on
CORE = [info.name for info in pkgutil.iter_modules(deep500.__path__) if info.name not in ("frameworks", "custom_ops")]


def run_python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, outside of the checkout's own import state."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=False, cwd=ROOT, **options
    )


def test_import_is_light() -> None:
    """Neither `import deep500` nor its names pull in a framework or a slow library."""
    done = run_python("import deep500, json, sys; deep500.Trainer; print(json.dumps(sorted(sys.modules)))")
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert "deep500.training.trainer" in loaded, "using a name loaded nothing"
    assert not set(HEAVY) & set(loaded)


def test_import_prints_and_warns_nothing() -> None:
    done = run_python("import deep500", env={"PYTHONWARNINGS": "error", "PATH": ""})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bare_frameworks_is_refused() -> None:
    """A second copy of the classes would break isinstance."""
    done = run_python("import frameworks")
    assert done.returncode == 1
    assert "expected 'import deep500.frameworks'" in done.stderr


def test_fallback_without_symlinks(tmp_path: Path) -> None:
    """A checkout whose symlinks did not survive (Windows) finds both folders beside the package."""
    for folder in ("deep500", "frameworks", "custom_ops"):
        for file in (p for p in (ROOT / folder).rglob("*.py*") if p.suffix in (".py", ".pyi")):
            target = tmp_path / file.relative_to(ROOT)
            if not file.relative_to(ROOT).as_posix().startswith(("deep500/frameworks/", "deep500/custom_ops/")):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    for name in ("frameworks", "custom_ops"):
        (tmp_path / "deep500" / name).write_text(f"../{name}")  # what Git leaves where it cannot make a link
    code = "import deep500.frameworks as f, deep500.custom_ops as c; print(f.__file__, c.__file__, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {[str(tmp_path), *_site_packages()]!r}; {code}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / name / "__init__.py") for name in ("frameworks", "custom_ops")]


def _site_packages() -> list[str]:
    """Where installed packages lie (``-S`` leaves them out, together with the path line of an editable install)."""
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


STUB = ROOT / "deep500" / "__init__.pyi"
ONE_LEVEL_DOWN = (
    "data distributed errors measure metrics networks operators optimizers rewriting schedules schemes tasks".split()
)
# fmt: off
HISTORICAL = {  # names of the original Deep500's listings that no page of ours uses
    "CustomCPPOp", "GraphExecutor", "ThreeStepOptimizer", "test_op_forward", "test_op_gradient", "test_training",
}
# fmt: on


def _public() -> list[str]:
    """What the stub lists, which is what type checkers know."""
    imports = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)]
    return sorted(alias.asname or alias.name for node in imports for alias in node.names)


def test_the_face_is_what_the_stub_lists() -> None:
    assert _public() == sorted(deep500.__all__) == sorted(dir(deep500)) and 55 <= len(_public()) <= 67
    modules = [name for name in _public() if inspect.ismodule(getattr(deep500, name))]
    assert modules == ONE_LEVEL_DOWN, "one level down is where the rest is; another module has to be decided"
    with pytest.raises(AttributeError, match="PeakMemory"):
        deep500.PeakMemory  # noqa: B018


def test_every_name_of_the_face_is_used() -> None:
    """Pages, recipes and plugins use it, or the original's listings do; else it belongs one level down."""
    folders = [ROOT / name for name in ("docs", "recipes", "custom_ops")]
    found = [p for folder in folders for p in folder.rglob("*") if p.suffix in (".md", ".py")]
    paths = [ROOT / "README.md", *(p for p in found if not {"_reference", "_build"} & set(p.parts))]  # those are made
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    unused = {name for name in _public() if not re.search(rf"\bd5\.{name}\b", text)}
    assert unused == HISTORICAL


def test_a_name_is_loaded_when_it_is_used() -> None:
    """`import deep500` loads only what loads names; a name loads its module and no framework."""
    done = run_python(
        "import sys, deep500 as d5; before = {m for m in sys.modules if m.startswith('deep500.')}; d5.GPUDevice; "
        "print(sorted(before), 'deep500.devices' in sys.modules, 'onnx' in sys.modules, 'numpy' in sys.modules)"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "['deep500.faces'] True False False"), done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"], ["nonsense"]], ids=" ".join)
def test_the_command_line_loads_a_command_when_it_is_used(words: list[str]) -> None:
    code = f"import sys; from deep500.cli import main; main({words!r}); print('', *sys.modules, sep='\\n')"
    loaded = set(run_python(code).stdout.splitlines())
    assert "deep500.cli" in loaded
    assert not loaded & {*HEAVY, "numpy", "onnx", "scipy", "jinja2", "tqdm", "deep500.networks", "deep500.results"}


FACES = sorted(
    {path.resolve() for path in ROOT.glob("*/**/__init__.py") if "load_when_used(__name__)" in path.read_text()}
)


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.parent.relative_to(ROOT).as_posix())
def test_every_name_of_a_face_is_there(path: Path) -> None:
    """Each loads, and none is hidden by a module of the package, which importing it would put in the name's place."""
    parts = path.parent.relative_to(ROOT).parts
    package = ".".join(parts if parts[0] == "deep500" else ("deep500", *parts))
    if package.startswith("deep500.frameworks."):
        pytest.importorskip(BACKENDS[parts[-1]][0])
    module = importlib.import_module(package)
    modules = {info.name for info in pkgutil.iter_modules(module.__path__)}
    for name in dir(module):
        importlib.import_module(f"{package}.{name}") if name in modules else None
        value = getattr(module, name)
        face_of_modules = package in ("deep500", "deep500.distributed")
        assert inspect.ismodule(value) == (face_of_modules and name in ONE_LEVEL_DOWN), name


def test_public_names_exist_and_are_documented() -> None:
    missing = [name for name in _public() if not hasattr(deep500, name)]
    assert not missing, f"in deep500.__all__ but not there: {missing}"
    own = [getattr(deep500, name) for name in _public()]
    documented = [x for x in own if inspect.isclass(x) or inspect.isfunction(x) or inspect.ismodule(x)]
    bare = [x.__name__ for x in documented if not (x.__doc__ or "").strip()]
    assert not bare, f"public names without a docstring: {bare}"


@pytest.mark.parametrize("module", CORE)
def test_core_modules_import_without_frameworks(module: str) -> None:
    """Each core package imports with every framework made unimportable: none is needed, not even indirectly."""
    block = f"import sys; sys.modules.update(dict.fromkeys({HEAVY[:7]!r}))"
    done = run_python(f"{block}; import deep500.{module}")
    assert done.returncode == 0, done.stderr


def _modules() -> list[Path]:
    paths = (path for folder in ("deep500", "frameworks", "custom_ops") for path in (ROOT / folder).rglob("*.py"))
    return sorted({path.resolve() for path in paths})


def test_inside_nobody_imports_the_package_root() -> None:
    """`import deep500` inside the package would hide upward imports from the import rules."""
    imports = []
    for path in _modules():
        if path.parent == ROOT / "deep500" and path.name in ("__init__.py", "cli.py"):  # the root, and the top layer
            continue
        if (ROOT / "custom_ops") in path.parents:  # plugins are written as users write theirs: import deep500 as d5
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import) and any(alias.name == "deep500" for alias in node.names):
                imports.append(f"{path.relative_to(ROOT)}:{node.lineno}")
            elif isinstance(node, ast.ImportFrom) and node.module == "deep500":
                imports += [f"{path.relative_to(ROOT)}:{node.lineno}" for a in node.names if not _is_module(a.name)]
    assert not imports, f"import from the defining module instead: {imports}"


def _is_module(name: str) -> bool:
    return name == "__version__" or importlib.util.find_spec(f"deep500.{name}") is not None


def test_files_and_functions_stay_short() -> None:
    """No file above 600 lines, no function above 60, its docstring included."""
    long = []
    for path in _modules():
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 600:
            long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > 60:
                    long.append(f"{path.relative_to(ROOT)}: {node.name}() has {length} lines")
    assert not long, f"split these: {long}"


MOST_PARAMETERS = 8
TABLES = {"fused", "expansion"}
LONG_SIGNATURES = {
    # What users type, most of it by keyword: type checkers and editors read it here, and not through an object.
    "deep500/training/data/files.py: __init__",
    "deep500/training/trainer.py: __init__",
}


def test_functions_have_few_parameters() -> None:
    """More are the fields of a dataclass (``deep500.keywords.takes``); ONNX's attributes do not count."""
    long = set()
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_table_function(node):
                args = node.args
                names = {arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)} - {"self", "cls"}
                if len(names) > MOST_PARAMETERS:
                    long.add(f"{path.relative_to(ROOT)}: {node.name}")
    assert long == LONG_SIGNATURES, "make one object of what belongs together"


def _is_table_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the signature of a function is that of ONNX operators, which its decorator reads."""
    calls = [decorator.func for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    return any(isinstance(name, ast.Name) and name.id in TABLES for name in calls)


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """What each module imports of the package: inside functions and for type checkers too, plugged-in folders too."""
    graph = grimp.build_graph("deep500", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_import_circles(imports: dict[str, set[str]]) -> None:
    """Neither among files nor, at any depth, among the folders and files of one folder."""
    assert len(imports) > 400 and "deep500.frameworks.reference.executor" in imports, "modules are missing"
    edges = {(a, b) for a, imported in imports.items() for b in imported}
    circles = _circles(edges)
    for package in {module.rpartition(".")[0] for module in imports} - {""}:
        depth = package.count(".") + 2  # parts of the name of something directly in the package
        inside = [pair for pair in edges if all(module.startswith(f"{package}.") for module in pair)]
        circles |= _circles({(_first_parts(a, depth), _first_parts(b, depth)) for a, b in inside})
    assert not circles, (
        f"import circles: {sorted(circles)}; put what both need below them, or hand it in as an argument"
    )


def _first_parts(module: str, depth: int) -> str:
    return ".".join(module.split(".")[:depth])


def _circles(edges: set[tuple[str, str]]) -> set[str]:
    """One of the circles in a graph, if there are any."""
    graph: dict[str, set[str]] = {}
    for importer, imported in edges:
        if importer != imported:
            graph.setdefault(importer, set()).add(imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return {" <- ".join(error.args[1])}
    return set()
