"""Optimized networks as files: the file that was given, with those nodes exchanged that changed (`splicing`).

Where that cannot be, as at another opset, the network is written anew, with versions, names and texts of the file: a
`Network` is at the newest opset and keeps no metadata, so what a file says about itself is read beside it. An entry in
the metadata says what was done, without a date: the same run gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.measure.environment import describe
from deep500.networks.hashing import content_hash
from deep500.networks.network import Network
from deep500.networks.onnx.dump import write_bytes
from deep500.networks.onnx.embedded import Unusual
from deep500.networks.onnx.opsets import lowest_opset
from deep500.networks.onnx.outside import move_out
from deep500.networks.protos import MOST_BYTES, ir_version_for, tensor_proto
from deep500.transformations.substitutions.equivalence import HALF, LIMIT, difference
from deep500.transformations.substitutions.graph.importing import named, stand_ins
from deep500.transformations.substitutions.graph.store import StoreValue
from deep500.transformations.substitutions.loading import Rules, texts_of
from deep500.transformations.substitutions.optimize import retrace
from deep500.transformations.substitutions.result import History
from deep500.transformations.substitutions.splicing import NotSpliced, Splice

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
        arrays: names of its arrays.
        network: what was read from it; None: results are written anew.
        sizes: numbers for symbolic sizes, with which results are tried.
    """

    path: Path
    model: onnx.ModelProto
    outside: tuple[str, ...]
    data: bytes
    arrays: tuple[str, ...] = ()
    network: Network | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path, network: Network | None = None, sizes: Mapping[str, int] | None = None) -> Source:
        """Read what a file says about itself; its network has been read before, so that it is a sound model."""
        path = Path(path)
        data = path.read_bytes()
        model = onnx.load_model_from_string(data)
        entries = {entry.value for t in model.graph.initializer for entry in t.external_data if entry.key == "location"}
        names = *(t.name for t in model.graph.initializer), *(s.values.name for s in model.graph.sparse_initializer)
        del model.graph.initializer[:], model.graph.sparse_initializer[:]
        return cls(path, model, tuple(sorted(entries)), data, names, network, sizes or {})

    @property
    def opset(self) -> int:
        """Version of ONNX's own operators; 1 where the file names none."""
        return max((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), default=1)

    def numbers(self, network: Network) -> dict[str, int]:
        """Numbers for symbolic sizes: those that were given, else those that stood for them in the search."""
        return {**stand_ins(named(self.network or network), self.sizes), **self.sizes}

    def copy_to(self, path: Path) -> None:
        """The very bytes, and the files beside them where they go elsewhere; errors as `copy_outside`."""
        self.copy_outside(path)
        write_bytes([self.data], path)

    def copy_outside(self, path: Path) -> None:
        """The files that hold its arrays beside another file, unless that is in the same folder.

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


def deliver(
    network: Network,
    history: History,
    source: Source,
    path: str | Path,
    *,
    opset: int | None = None,
    ir_version: int | None = None,
    rules: Rules = None,
) -> str:
    """Write an optimized network as a successor of the file that it was read from; returns words for how.

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
        ...     words = deliver(found.network, found.history, Source.read(file), out)
        ...     out.read_bytes() == file.read_bytes()
        True
    """
    if history.unchanged and opset is None and ir_version is None:
        source.copy_to(Path(path))
        return "the file as it was"
    edits = history.steps and not history.anew and not history.fused
    reason = "attention as one operator needs a newer opset" if history.fused else "that was asked for, or is faster"
    if source.network is not None and edits and opset is None and ir_version is None:
        try:
            return _spliced(network, history, source, Path(path), rules)
        except (NotSpliced, Unusual) as error:
            reason = str(error) or "the file is not laid out as writers do"
    if ir_version is not None and not 3 <= ir_version <= onnx.IR_VERSION:
        raise InputError(f"got IR version {ir_version}; expected 3 to {onnx.IR_VERSION}, what the installed onnx knows")
    _write_anew(network, history, source, Path(path), (opset, ir_version), rules)
    return f"the file is written anew: {reason}"


def _write_anew(
    network: Network,
    history: History,
    source: Source,
    path: Path,
    versions: tuple[int | None, int | None],
    rules: Rules,
) -> None:
    opset, ir_version = versions
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
    again = Network.from_onnx(model)
    if content_hash(again) != content_hash(network):
        check_numbers(network, again, source)
    write_bytes([model.SerializeToString()], path)


def _spliced(network: Network, history: History, source: Source, path: Path, rules: Rules) -> str:
    """Write the source with other nodes where something changed, and try what was written."""
    if source.network is None or source.model.ir_version < 4:
        raise NotSpliced("got an IR version below 4, where arrays are inputs; expected a newer one")
    became = dict[StoreValue, StoreValue]()
    # The search has refused what it was not to take.
    imported, graph = retrace(source.network, history, rules, unproved=True, became=became)
    splice = Splice(imported, graph, became, source.model.graph, source.arrays)
    metadata = {entry.key: entry.value for entry in source.model.metadata_props}
    patch, large = splice.patch(source.opset, metadata, {KEY: _entry(history, rules)})
    outside = onnx.GraphProto()
    most = MOST_BYTES - len(source.data)
    if source.outside or sum(array.nbytes for array in large.values()) > most:
        digest = hashlib.sha256()
        for array in large.values():
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        location = f"weights-{digest.hexdigest()[:16]}.data"  # that of a result under another name stays
        if large:
            write_bytes(move_out(outside, large, list(large), location), path.with_name(location))
    else:
        outside.initializer.extend(tensor_proto(array, name) for name, array in large.items())
    patch = replace(patch, tensors=[*patch.tensors, *outside.initializer])
    source.copy_outside(path)
    tried = path.with_name(f".{path.name}.{os.getpid()}.onnx")
    try:
        write_bytes(patch.applied(source.data), tried)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of doubtful parameters, as when the source was read
            check_numbers(network, Network.from_onnx(tried), source)
        tried.replace(path)
    except NetworkError as error:
        raise NotSpliced(f"the edited file failed: {error}") from error
    finally:
        tried.unlink(missing_ok=True)
    new = sum(not isinstance(node, int) for node in patch.nodes)
    return f"in the file {len(patch.nodes) - new} nodes stay as they were, {new} are new"


def _at(network: Network, source: Source, opset: int | None) -> onnx.ModelProto:
    """The network at the opset that is wanted, else at the source's, else at the lowest above that."""
    if opset is not None:
        return network.to_onnx(opset=opset)
    try:
        return network.to_onnx(opset=source.opset)
    except NetworkError:
        floor = lowest_opset(network.to_onnx().graph, network.descriptors(), source.opset)
        return network.to_onnx(opset=floor)


def check_numbers(network: Network, again: Network, source: Source, sizes: Mapping[str, int] | None = None) -> None:
    """Run what was read from a new file beside the network, with numbers for symbolic sizes.

    Raises:
        NetworkError: it computes something else.
        UnsupportedOperator: neither the reference nor ONNX Runtime runs it.
    """
    half = "float16" in {d.dtype for d in network.descriptors().values()}
    sizes, most = sizes or source.numbers(network), HALF if half else LIMIT
    try:
        error = difference(network, again, sizes, 0)
    except UnsupportedOperator:
        error = difference(network, again, sizes, 0, "onnxruntime")
    if not error <= most:
        raise NetworkError(
            f"got relative error {error:.3g} in the new file; expected at most {most:g}: choose a higher --opset"
        )


def _describe(model: onnx.ModelProto, source: onnx.ModelProto) -> None:
    """Producer, versions and texts of the source; nodes keep theirs where name and operator are the same."""
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(model, name, getattr(source, name))
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
    entry |= {"fused": True} if history.fused else {}
    return json.dumps({**entry, **({"unproved": list(history.unproved)} if history.unproved else {})})


def _metadata(model: onnx.ModelProto, source: onnx.ModelProto, entry: str | None) -> None:
    after = {p.key: p.value for p in model.metadata_props}
    before = {p.key: p.value for p in source.metadata_props}
    onnx.helper.set_model_props(model, {**before, **after, **({KEY: entry} if entry is not None else {})})
