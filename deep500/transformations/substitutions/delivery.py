"""Optimized networks as files: versions, names and texts of the file that was given; its bytes where nothing changed.

A `Network` is at the newest opset and keeps no metadata, so what a file says about itself is read beside it and written
again behind it. An entry in the metadata says what was done, without a date: the same run gives the same bytes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from deep500.errors import InputError, NetworkError
from deep500.measure.environment import describe
from deep500.networks.hashing import content_hash
from deep500.networks.network import Network
from deep500.networks.onnx.dump import write_bytes
from deep500.networks.onnx.opsets import lowest_opset
from deep500.networks.protos import ir_version_for
from deep500.transformations.substitutions.equivalence import LIMIT, difference
from deep500.transformations.substitutions.graph.importing import named
from deep500.transformations.substitutions.loading import Rules, texts_of
from deep500.transformations.substitutions.result import History

KEY = "deep500.optimized"
"""Key of the metadata under which an optimized file says what was done to it."""


@dataclass(frozen=True)
class Source:
    """A file that was given.

    Attributes:
        path: where it is.
        model: all of it but the arrays.
        outside: files beside it that hold its arrays.
        data: its bytes, kept because the result may be written over them.
    """

    path: Path
    model: onnx.ModelProto
    outside: tuple[str, ...]
    data: bytes

    @classmethod
    def read(cls, path: str | Path) -> Source:
        """Read what a file says about itself; its network has been read before, so that it is a sound model."""
        path = Path(path)
        data = path.read_bytes()
        model = onnx.load_model_from_string(data)
        entries = {entry.value for t in model.graph.initializer for entry in t.external_data if entry.key == "location"}
        del model.graph.initializer[:], model.graph.sparse_initializer[:]
        return cls(path, model, tuple(sorted(entries)), data)

    @property
    def opset(self) -> int:
        """Version of ONNX's own operators; 1 where the file names none."""
        return max((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), default=1)

    def copy_to(self, path: Path) -> None:
        """The very bytes, and the files beside them where they go elsewhere.

        Raises:
            InputError: another file has the name of one of those.
            NetworkError: it cannot be written.
        """
        if path.resolve().parent != self.path.resolve().parent:
            for name in self.outside:
                old, new = self.path.parent / name, path.parent / name
                if new.exists() and new.read_bytes() != old.read_bytes():
                    raise InputError(f"got {new}, which is not {old}; expected no such file: name another folder")
                if not new.exists():
                    new.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(old, new)
        write_bytes([self.data], path)


def deliver(
    network: Network,
    history: History,
    source: Source,
    path: str | Path,
    *,
    opset: int | None = None,
    ir_version: int | None = None,
    rules: Rules = None,
) -> None:
    """Write an optimized network as a successor of the file that it was read from.

    Args:
        network: the result.
        history: how it came about; where it says that nothing changed, the bytes are the source's.
        source: the file that was read.
        path: where to write.
        opset: version of ONNX's operators; the source's if None, or the lowest above it that the result allows.
        ir_version: likewise of the format; what goes with a raised opset where that is more.
        rules: the rule file of the history.

    Raises:
        NetworkError: an opset that some operator cannot be converted to, or a file that cannot be written.
        InputError: an IR version that does not exist, or that ONNX's checker refuses for this model.

    Example:
        >>> import tempfile
        >>> from deep500.networks import create
        >>> from deep500.transformations.substitutions import optimize_network
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file, out = Path(folder) / "in.onnx", Path(folder) / "out.onnx"
        ...     _ = create("mlp").to_onnx(file, opset=17)
        ...     found = optimize_network(Network.from_onnx(file), budget=0)
        ...     deliver(found.network, found.history, Source.read(file), out)
        ...     out.read_bytes() == file.read_bytes()
        True
    """
    if history.unchanged and opset is None and ir_version is None:
        return source.copy_to(Path(path))
    if ir_version is not None and not 3 <= ir_version <= onnx.IR_VERSION:
        raise InputError(f"got IR version {ir_version}; expected 3 to {onnx.IR_VERSION}, what the installed onnx knows")
    model = _at(network, source, opset)
    version = next(o.version for o in model.opset_import if o.domain == "")
    usual = source.model.ir_version if version <= source.opset else ir_version_for(model.opset_import)
    # below version 4 every array had to be an input as well
    model.ir_version = ir_version or max(4, source.model.ir_version, usual)
    _describe(model, source.model)
    entry = None if history.unchanged else _entry(history, rules)
    _metadata(model, source.model, entry)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise InputError(
            f"got opset {version} and IR version {model.ir_version}, which ONNX refuses ({error})"
        ) from error
    _check_conversion(network, model)
    write_bytes([model.SerializeToString()], Path(path))
    return None


def _at(network: Network, source: Source, opset: int | None) -> onnx.ModelProto:
    """The network at the opset that is wanted, else at the source's, else at the lowest above that."""
    if opset is not None:
        return network.to_onnx(opset=opset)
    try:
        return network.to_onnx(opset=source.opset)
    except NetworkError:
        floor = lowest_opset(network.to_onnx().graph, network.descriptors(), source.opset)
        return network.to_onnx(opset=floor)


def _check_conversion(network: Network, model: onnx.ModelProto) -> None:
    """A converted file is read again and, where its nodes are others, run beside the network."""
    again = Network.from_onnx(model)
    if content_hash(again) == content_hash(network):
        return
    sizes = {size: 2 for d in named(network).inputs.values() for size in d.shape or () if isinstance(size, str)}
    error = difference(network, again, sizes, 0)
    if not error <= LIMIT:
        raise NetworkError(
            f"got relative error {error:.3g} after conversion to another opset; expected at most {LIMIT:g}: "
            "choose a higher --opset"
        )


def _describe(model: onnx.ModelProto, source: onnx.ModelProto) -> None:
    """Producer, versions and texts of the source; nodes keep theirs where name and operator are the same."""
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(model, field, getattr(source, field))
    model.graph.name, model.graph.doc_string = source.graph.name, source.graph.doc_string
    model.graph.metadata_props.extend(source.graph.metadata_props)
    versions = {o.domain: o.version for o in source.opset_import}
    for imported in model.opset_import:
        if imported.domain not in ("", "ai.onnx"):
            imported.version = versions.get(imported.domain, imported.version)
    _texts(model.graph.node, {(n.name, n.op_type): n for n in source.graph.node}, lambda n: (n.name, n.op_type))
    for values, known in ((model.graph.input, source.graph.input), (model.graph.output, source.graph.output)):
        _texts(values, {v.name: v for v in known}, lambda v: v.name)


def _texts(messages: Iterable[Any], known: Mapping[Any, Any], key: Any) -> None:
    for message in messages:
        before = known.get(key(message))
        if before is not None:
            message.doc_string = before.doc_string
            message.metadata_props.extend(before.metadata_props)


def _entry(history: History, rules: Rules) -> str:
    """Record of what was done: version, rules in readable form with how often, whether parameters were left alone."""
    texts = {name: str(rule) for name, (rule, _) in texts_of(rules).items()}
    used: dict[str, int] = {}
    for step in history.steps:
        used[step.rule[:16]] = used.get(step.rule[:16], 0) + 1
    done = [{"rule": rule, "times": times, "text": texts[rule]} for rule, times in sorted(used.items())]
    entry = {"deep500": describe()["versions"]["deep500"], "rules": done, "training": history.training}
    return json.dumps({**entry, **({"unproved": list(history.unproved)} if history.unproved else {})})


def _metadata(model: onnx.ModelProto, source: onnx.ModelProto, entry: str | None) -> None:
    after = {p.key: p.value for p in model.metadata_props}
    before = {p.key: p.value for p in source.metadata_props}
    onnx.helper.set_model_props(model, {**before, **after, **({KEY: entry} if entry is not None else {})})
