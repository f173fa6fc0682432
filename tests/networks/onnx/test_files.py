"""ONNX files on disk: bad ones are refused with their name, data is read inside the folder only, writing is atomic."""

from __future__ import annotations

import json
import random
import resource
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from deep500.errors import NetworkError
from deep500.networks import Network
from tests.networks.onnx.test_round_trip import DATA, affine


# -- bad files --------------------------------------------------------------------------------------------------------
def _resnet_bytes() -> bytes:
    return (DATA / "light" / "light_resnet50.onnx").read_bytes()


def _with(change: Callable[[onnx.ModelProto], object]) -> bytes:
    proto = affine()
    change(proto)
    return proto.SerializeToString()


# fmt: off
BAD_FILES: list[tuple[str, Callable[[], bytes], str]] = [
    ("empty", lambda: b"", "neither version nor graph"),
    ("random", lambda: random.Random(0).randbytes(5000), "complete ONNX model"),
    ("text", lambda: b"hello, this is not a network", "complete ONNX model"),
    ("truncated", lambda: _resnet_bytes()[:20000], ""),
    ("newer opset", lambda: _with(lambda m: setattr(m.opset_import[0], "version", 99)), "opset 99; expected at most"),
    ("newer IR", lambda: _with(lambda m: setattr(m, "ir_version", 77)), "IR version 77; expected at most"),
    ("no version", lambda: _with(lambda m: m.ClearField("ir_version")), "neither version nor graph"),
    ("no opset", lambda: _with(lambda m: m.ClearField("opset_import")), "opset"),
    ("unknown operator", lambda: _with(lambda m: setattr(m.graph.node[0], "op_type", "Gemmm")), "Gemmm"),
    ("missing value", lambda: _with(lambda m: m.graph.initializer.pop()), "b"),
    ("output that nothing writes", lambda: _with(lambda m: setattr(m.graph.output[0], "name", "yy")), "yy"),
    ("wrong amount of data", lambda: _with(lambda m: m.graph.initializer[0].dims.append(7)), ""),
    ("unknown dtype", lambda: _with(lambda m: setattr(m.graph.initializer[0], "data_type", 99)), ""),
    ("value written twice", lambda: _with(lambda m: m.graph.node.append(m.graph.node[0])), ""),
    ("unsorted", lambda: _with(lambda m: (m.graph.node.insert(0, helper.make_node("Relu", ["y"], ["z"])))), ""),
    ("bad text", lambda: affine().SerializeToString().replace(b"Gemm", b"\xff\xfemm"), ""),
    ("bad metadata", lambda: _with(lambda m: helper.set_model_props(m, {"deep500.constants": "{"})), "metadata"),
    ("other metadata", lambda: _with(lambda m: helper.set_model_props(m, {"deep500.constants": "3"})), "list of names"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), [b[1:] for b in BAD_FILES], ids=[b[0] for b in BAD_FILES])
def test_bad_files_are_refused_with_their_name(tmp_path: Path, content: Callable[[], bytes], message: str) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content())
    with pytest.raises(NetworkError) as raised:
        Network.from_onnx(path)
    text = str(raised.value)
    assert text.startswith(f"{path}: ") and "expected" in text and message in text and "\n" not in text
    with pytest.raises(NetworkError):
        Network.from_onnx(path.read_bytes())


def test_bad_text_in_the_names_of_a_graph_and_its_sizes_is_dropped() -> None:
    content = affine().SerializeToString().replace(b"small", b"sm\xfdll")
    network = Network.from_onnx(content.replace(b"\x12\x01N", b"\x12\x01\xfd"))
    assert network.name == "network" and network.inputs["x"].shape == (None, 3)
    assert Network.from_onnx(network.to_onnx()) == network


@pytest.mark.parametrize("seed", range(20))
def test_any_damage_is_a_network_error_or_none(seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(affine().SerializeToString())
    for _ in range(rng.randint(1, 4)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    try:
        str(Network.from_onnx(bytes(content[: rng.choice((len(content), rng.randrange(len(content))))])))
    except NetworkError as error:
        assert "expected" in str(error)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="does not exist"):
        Network.from_onnx(tmp_path / "none.onnx")
    with pytest.raises(NetworkError, match="a directory"):
        Network.from_onnx(tmp_path)


# -- external data ----------------------------------------------------------------------------------------------------
def external(folder: Path, location: str, name: str = "m.onnx") -> Path:
    """A model whose weight lies at ``location``, written by hand as an attacker would."""
    proto = affine()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "24")):
        tensor.external_data.add(key=key, value=value)
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_inside_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(np.arange(6, dtype="float32").tobytes())
    network = Network.from_onnx(external(tmp_path, "sub/w.bin"))
    np.testing.assert_array_equal(network.parameters["w"].value, np.arange(6).reshape(3, 2))
    assert network == Network.from_onnx(affine())


@pytest.mark.parametrize(
    "kind", ["absolute", "parent", "parent in the middle", "link", "linked folder", "missing", "short", "circle", "nul"]
)
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, kind: str) -> None:
    folder, outside = tmp_path / "model", tmp_path / "secret.bin"
    (folder / "sub").mkdir(parents=True)
    outside.write_bytes(bytes(24))
    (folder / "link.bin").symlink_to(outside)
    (folder / "way").symlink_to(tmp_path)
    (folder / "short.bin").write_bytes(bytes(5))
    (folder / "circle").symlink_to(folder / "circle")
    location = {
        "absolute": str(outside),
        "parent": "../secret.bin",
        "parent in the middle": "sub/../../secret.bin",
        "link": "link.bin",
        "linked folder": "way/secret.bin",
        "missing": "none.bin",
        "short": "short.bin",
        "circle": "circle/w.bin",
        "nul": "w\0.bin",
    }[kind]
    path = external(folder, location)
    with pytest.raises(NetworkError) as raised:
        Network.from_onnx(path)
    text = str(raised.value)
    assert str(path) in text and "expected" in text
    assert repr(location)[1:-1] in text or kind == "short"


def test_external_data_without_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="pass the path"):
        Network.from_onnx(external(tmp_path, "w.bin").read_bytes())


# -- writing ----------------------------------------------------------------------------------------------------------
def test_files_are_written_whole_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    network = Network.from_onnx(affine())
    proto = network.to_onnx(path)
    assert Network.from_onnx(path) == network and Network.from_onnx(proto) == network
    (tmp_path / "other").hardlink_to(path)
    before = path.read_bytes()
    network.remove_output("y")
    network.add_output("x")
    network.to_onnx(str(path))
    assert Network.from_onnx(path) == network
    assert (tmp_path / "other").read_bytes() == before, "the old file is replaced, not written over"
    (tmp_path / "other").unlink()
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
    onnx.checker.check_model(str(path), full_check=True)
    assert json.loads({p.key: p.value for p in proto.metadata_props}["deep500.constants"]) == []


def test_a_folder_that_is_missing_or_a_file_that_is_a_folder_is_named(tmp_path: Path) -> None:
    network = Network.from_onnx(affine())
    for path in (tmp_path / "none" / "net.onnx", tmp_path):
        with pytest.raises(NetworkError, match="a file that can be written") as raised:
            network.to_onnx(path)
        assert str(path) in str(raised.value)
    assert not [p for p in tmp_path.parent.iterdir() if p.name.endswith(".tmp")]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on file sizes stands in for the full disk: both fail in the middle of writing."""
    import signal

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the limit would cut modules imported meanwhile

    path = tmp_path / "net.onnx"
    path.write_bytes(b"old")
    network = Network.from_onnx(affine())
    network.add_parameter("big", np.zeros(100_000, "float32"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(NetworkError, match=r"net\.onnx: got 'File too large'"):
            network.to_onnx(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_written_files_have_ordinary_permissions(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain", tmp_path / "net.onnx"
    plain.touch()
    Network.from_onnx(affine()).to_onnx(path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_equal_parts_of_old_files_are_counted() -> None:
    """Before opset 18 a Split needed neither sizes nor their number; now it is one or the other."""
    x, *y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "a", "b", "c"))
    x.type.tensor_type.shape.dim.add().dim_value = 6
    graph = onnx.helper.make_graph([onnx.helper.make_node("Split", ["x"], ["a", "b", "c"])], "g", [x], y)
    for opset in (13, 17):
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
        (node,) = Network.from_onnx(model).nodes
        assert node.attribute("num_outputs") == 3 or len(node.inputs) == 2
