"""A model's file with some of its nodes replaced: all other parts are copied as they lie there, byte for byte.

Nothing is parsed but names, so that arrays are neither read nor copied, and what a newer ONNX put into the file stays.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import onnx

from deep500.networks.onnx.embedded import Field, Unusual, fields, tag

_GRAPH, _PROPERTY = 7, 14  # of ModelProto
_NODE, _INITIALIZER, _INFO, _ANNOTATION = 1, 5, 13, 14  # of GraphProto
_NAMED = {_INITIALIZER: 8, _INFO: 1, _ANNOTATION: 1}  # where their names are
_BYTES = 2


@dataclass(frozen=True)
class Patch:
    """A change of a file: nodes that stay or are new, and what is left out or added.

    Attributes:
        nodes: all nodes of the graph: places of those that stay, and new ones.
        gone: names of values whose initializers and descriptions are left out.
        tensors: initializers behind those of the file.
        infos: descriptions of values, likewise.
        properties: entries of the metadata; those of the file with the same keys are left out.
    """

    nodes: Sequence[int | onnx.NodeProto]
    gone: Collection[str] = frozenset()
    tensors: Sequence[onnx.TensorProto] = ()
    infos: Sequence[onnx.ValueInfoProto] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def applied(self, data: bytes) -> list[bytes | memoryview]:
        """The bytes of the patched file, piece by piece.

        Args:
            data: the file.

        Raises:
            Unusual: it is not laid out as writers do.

        Example:
            >>> from deep500.networks import create
            >>> data = create("mlp").to_onnx().SerializeToString()
            >>> b"".join(Patch(range(len(create("mlp").nodes))).applied(data)) == data
            True
        """
        file, whole, pieces = io.BytesIO(data), memoryview(data), list[bytes | memoryview]()
        graphs = 0
        for part in fields(file, 0, len(data)):
            if part.number == _GRAPH and part.kind == _BYTES:
                graphs += 1
                inner = list(self._graph(file, whole, part))
                pieces += [tag(_GRAPH, sum(map(len, inner))), *inner]
            elif part.number != _PROPERTY or _text(file, part, 1) not in self.properties:
                pieces.append(whole[part.begin : part.end])
        if graphs != 1:  # protobuf would merge them
            raise Unusual
        entries = [onnx.StringStringEntryProto(key=key, value=value) for key, value in self.properties.items()]
        return [*pieces, *_messages(_PROPERTY, entries)]

    def _graph(self, file: BinaryIO, whole: memoryview, graph: Field) -> Iterator[bytes | memoryview]:
        """The parts of the graph, its nodes where the first of them is."""
        parts = list(fields(file, graph.content, graph.end))
        places = [part for part in parts if part.number == _NODE]
        begun = False
        for part in parts:
            if part.number == _NODE:
                yield from () if begun else self._nodes(whole, places)
                begun = True
            elif part.number not in _NAMED or _text(file, part, _NAMED[part.number]) not in self.gone:
                yield whole[part.begin : part.end]
        yield from () if begun else self._nodes(whole, places)
        yield from _messages(_INITIALIZER, self.tensors)
        yield from _messages(_INFO, self.infos)

    def _nodes(self, whole: memoryview, places: Sequence[Field]) -> Iterator[bytes | memoryview]:
        for node in self.nodes:
            if isinstance(node, int):
                yield whole[places[node].begin : places[node].end]
            else:
                yield from _messages(_NODE, [node])


def _messages(number: int, messages: Sequence[onnx.NodeProto | onnx.TensorProto]) -> Iterator[bytes]:
    for message in messages:
        content = message.SerializeToString()
        yield tag(number, len(content))
        yield content


def _text(file: BinaryIO, part: Field, number: int) -> str:
    """A text within a part; the last one counts, as in protobuf."""
    texts = [inner for inner in fields(file, part.content, part.end) if inner.number == number and inner.kind == _BYTES]
    if not texts:
        return ""
    file.seek(texts[-1].content)
    return file.read(texts[-1].end - texts[-1].content).decode("utf-8", errors="surrogateescape")
