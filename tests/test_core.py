"""The values at the bottom of everything: errors, tensor descriptors, devices, events and the registry of backends."""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from deep500 import errors, registry
from deep500.devices import CPUDevice, Device, DeviceWarning, GPUDevice, fall_back, to_device
from deep500.errors import Deep500Error, InputError, MissingBackend, MissingDevice, nearest
from deep500.events import HOOKS, REGIONS, SILENT, Event, Events
from deep500.tensors import TensorDescriptor, dtype_from_onnx, dtype_to_onnx, numpy_dtype, tensordesc

# -- errors -----------------------------------------------------------------------------------------------------------
ERRORS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Deep500Error)]
# fmt: off
BUILT_IN = {
    "NetworkError": ValueError, "UnsupportedOperator": NotImplementedError, "InputError": ValueError,
    "DataError": ValueError, "MissingBackend": ImportError, "MissingDevice": RuntimeError, "RecipeError": ValueError,
    "ResultsError": OSError, "TrainingError": ArithmeticError, "ComparisonError": RuntimeError,
    "CompileError": RuntimeError, "OperatorError": RuntimeError, "EnzymeError": RuntimeError, "CacheError": OSError,
    "MissingEngine": RuntimeError, "CommunicationError": RuntimeError,
    "PlanError": ValueError, "BudgetError": ValueError, "OutOfMemory": MemoryError,
    "UnknownBackend": ImportError, "UnknownDataset": ValueError, "MissingDataset": ValueError,
    "MissingPackage": ImportError,
}
# fmt: on
EXIT_CODES = {
    "UnsupportedOperator": 3,
    "DataError": 3,
    "MissingBackend": 3,
    "MissingPackage": 3,
    "MissingDataset": 3,
    "UnknownBackend": 2,
    "UnknownDataset": 2,
    "MissingDevice": 3,
    "OutOfMemory": 3,
    "TrainingError": 1,
    "ComparisonError": 1,
    "OperatorError": 1,
    "MissingEngine": 3,
    "CommunicationError": 1,
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.__name__)
def test_every_error_is_ours_and_pythons_and_has_an_exit_code(error: type[Deep500Error]) -> None:
    with pytest.raises(Deep500Error, match="got x; expected y") as raised:
        raise error("got x; expected y; do z")
    assert isinstance(raised.value, BUILT_IN.get(error.__name__, Exception))
    assert raised.value.exit_code == EXIT_CODES.get(error.__name__, 2)
    assert error.__doc__


def test_no_error_is_left_out_of_the_table() -> None:
    assert {e.__name__ for e in ERRORS} == {*BUILT_IN, "Deep500Error"}


@pytest.mark.parametrize(
    ("name", "known", "phrase"),
    [
        ("batchsize", ["batch_size", "epochs"], "did you mean 'batch_size'?"),
        ("relu1", ["relu2", "relu3"], "did you mean 'relu3' or 'relu2'?"),
        ("zzz", ["batch_size", "epochs"], "known: 'batch_size', 'epochs'"),
        ("zzz", [], "known: none"),
        ("zzz", [f"{i}" for i in range(30)], "... (30 in all)"),
        (None, ["a"], "known: 'a'"),
    ],
)
def test_nearest_names(name: Any, known: list[str], phrase: str) -> None:
    assert phrase in nearest(name, known)


# -- tensors ----------------------------------------------------------------------------------------------------------
DTYPES = [n for n, number in onnx.TensorProto.DataType.items() if number]


@pytest.mark.parametrize("onnx_name", DTYPES)
def test_dtypes_agree_with_onnx(onnx_name: str) -> None:
    number = onnx.TensorProto.DataType.Value(onnx_name)
    name = dtype_from_onnx(number)
    assert name is not None and dtype_to_onnx(name) == number
    if onnx_name == "STRING":
        assert name == "string" and numpy_dtype(name) == np.dtype(object)
    else:
        assert numpy_dtype(name) == onnx.helper.tensor_dtype_to_np_dtype(number)
        assert dtype_to_onnx(numpy_dtype(name)) == number


def test_dtypes_have_pythons_spellings_and_bad_ones_are_errors() -> None:
    assert dtype_to_onnx(np.float32) == dtype_to_onnx(np.dtype("f4")) == onnx.TensorProto.FLOAT
    assert dtype_to_onnx(np.array(["abc"]).dtype) == dtype_to_onnx(object) == onnx.TensorProto.STRING
    assert dtype_from_onnx(0) is None and dtype_from_onnx(999) is None
    with pytest.raises(InputError, match="did you mean 'float32'"):
        dtype_to_onnx("floot32")
    for odd in (3.5, {"a": 1}, "datetime64[s]", np.dtype("datetime64[s]")):
        with pytest.raises(InputError, match="expected"):
            dtype_to_onnx(odd)


@pytest.mark.parametrize(
    ("shape", "fits", "misfits"),
    [
        (("N", 3), [(1, 3), (8, 3)], [(8, 4), (3,), (1, 3, 1)]),
        ((None, None), [(0, 7)], [(7,)]),
        ((), [()], [(1,)]),
        (None, [(), (1, 2, 3)], []),
    ],
)
def test_descriptors_accept_what_fits(shape: Any, fits: list[tuple[int, ...]], misfits: list[tuple[int, ...]]) -> None:
    descriptor = TensorDescriptor("float32", shape)
    assert all(map(descriptor.accepts, fits)) and not any(map(descriptor.accepts, misfits))


def test_descriptors_say_what_they_know() -> None:
    assert tensordesc((2, 3)).size == 6 and tensordesc((2, 3)).is_static and tensordesc(()).size == 1
    assert tensordesc(("N", 3)).size is None and not tensordesc(("N", 3)).is_static
    assert TensorDescriptor(None, None).size is None and not TensorDescriptor().is_static
    printed = [str(d) for d in (tensordesc(("N", None, 3), "int8"), TensorDescriptor(None, None), tensordesc(()))]
    assert printed == ["int8[Nx?x3]", "?[?]", "float32[]"]
    assert tensordesc((1,)) == TensorDescriptor("float32", (1,)) and hash(tensordesc((1,)))


# -- devices ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "want"),
    [(None, CPUDevice()), ("cpu", CPUDevice()), ("gpu", GPUDevice()), ("cuda:2", GPUDevice(2)), (GPUDevice(1),) * 2],
)
def test_devices_by_name(given: Any, want: Device) -> None:
    assert to_device(given) == want


@pytest.mark.parametrize("given", ["tpu", "gpu:x", "gpu:-1", "", 3, "cpu:0:1"])
def test_bad_devices_are_errors(given: Any) -> None:
    with pytest.raises(InputError, match=r"expected 'cpu', 'gpu' or 'gpu:<number>'"):
        to_device(given)


def test_a_missing_gpu_falls_back_with_a_warning_or_is_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fall_back(CPUDevice(), 0) == CPUDevice()
        assert fall_back(GPUDevice(1), 2) == GPUDevice(1)
    with pytest.warns(DeviceWarning, match="got device gpu:1; expected one that this backend sees, which is one GPU"):
        assert fall_back(GPUDevice(1), 1) == CPUDevice()
    with pytest.raises(MissingDevice, match="--device cpu"):
        fall_back(GPUDevice(), 0, strict=True)


# -- events -----------------------------------------------------------------------------------------------------------
class Recorder(Event):
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def after_batch(self, run: Any) -> None:
        self.log.append(run)


def test_only_overridden_hooks_are_called_in_order() -> None:
    log: list[Any] = []
    first, second = Recorder(log), Recorder(log)
    second.after_batch = lambda run: log.append(("own", run))  # type: ignore[method-assign]
    events = Events([first, Event(), second])
    assert [h for h in HOOKS if getattr(events, h)] == ["after_batch"]
    events.emit(events.after_batch, 7)
    assert log == [7, ("own", 7)]
    assert events.listeners[0] is first


def test_there_is_a_hook_before_and_after_every_region() -> None:
    assert len(HOOKS) == 2 * len(REGIONS) == len(set(HOOKS))
    for hook in HOOKS:
        assert getattr(Event(), hook)(None) is None and getattr(SILENT, hook) == ()


def test_misspelt_hooks_are_found() -> None:
    with pytest.raises(AttributeError, match="expected one of before_run"):
        _ = SILENT.after_batches


def test_any_object_with_hooks_may_listen() -> None:
    class Foreign:
        def before_run(self, run: Any) -> None:
            run.append(1)

    events, runs = Events([Foreign()]), []
    events.emit(events.before_run, runs)
    assert runs == [1] and events.after_run == ()


# -- registry ---------------------------------------------------------------------------------------------------------
class Entry:
    """Looks like an entry point of an installed package."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def load(self) -> Any:
        return self.value


def test_backends_of_others_are_found_but_do_not_hide_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(from_model=lambda network, device: None)
    theirs = Entry("mine", module)
    monkeypatch.setattr(registry, "entry_points", lambda group: [theirs, Entry("reference", None)])
    assert registry.backend_names()[: len(registry.BACKENDS)] == list(registry.BACKENDS)
    assert "mine" in registry.backend_names() and registry.backend_names().count("reference") == 1
    assert registry.load_backend("mine") is module
    assert registry.load_backend("reference").__name__ == "deep500.frameworks.reference"


def test_unknown_backends_offer_the_nearest_name() -> None:
    with pytest.raises(MissingBackend, match="did you mean 'pytorch'"):
        registry.load_backend("pytorhc")


def test_an_absent_framework_gives_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BACKENDS, "absent", ("no_such_package", "absent"))

    def fail(name: str) -> None:
        raise ModuleNotFoundError(name, name="no_such_package")

    monkeypatch.setattr(registry.importlib, "import_module", fail)
    assert not registry.is_installed("absent")
    with pytest.raises(MissingBackend, match=r"pip install 'deep500\[absent\]'"):
        registry.load_backend("absent")


@pytest.mark.parametrize(
    ("backend", "package"),
    [("pytorch", "torch"), ("jax", "jax"), ("tensorflow", "tensorflow"), ("onnxruntime", "onnxruntime")],
)
def test_importing_a_backend_without_its_framework_gives_the_install_line(backend: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import deep500.frameworks.{backend}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install 'deep500[{backend}]'" in done.stderr.splitlines()[-1]


def test_a_broken_framework_raises_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("of torch's own", name="something_inside")

    monkeypatch.setattr(registry.importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="of torch's own") as raised:
        registry.load_backend("pytorch")
    assert not isinstance(raised.value, Deep500Error)


def test_looking_for_backends_imports_none() -> None:
    code = (
        "import sys; from deep500 import registry; registry.backend_names(); registry.is_installed('pytorch'); "
        "assert not {'torch', 'deep500.frameworks.reference'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
