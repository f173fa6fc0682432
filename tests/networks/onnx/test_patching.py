"""Files of which parts are replaced: what is not named stays byte for byte, also where a parser would change it."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper, numpy_helper

from deep500.networks import create
from deep500.networks.onnx.embedded import Unusual, tag
from deep500.networks.onnx.patching import Patch


def test_new_nodes_stand_where_they_are_told_and_names_go() -> None:
    model = create("mlp", shape=(4,), hidden=(3,), classes=2).to_onnx()
    model.metadata_props.add(key="author", value="somebody")
    count, gone = len(model.graph.node), model.graph.initializer[0].name
    node = helper.make_node("Identity", ["input"], ["same"])
    array = numpy_helper.from_array(numpy_helper.to_array(model.graph.initializer[1]), "new")
    info = helper.make_tensor_value_info("same", 1, None)
    patch = Patch([1, node, *range(2, count)], {gone}, [array], [info], {"author": "nobody", "key": "value"})
    after = onnx.load_from_string(b"".join(patch.applied(model.SerializeToString())))
    assert list(after.graph.node) == [model.graph.node[1], node, *model.graph.node[2:]]
    assert list(after.graph.initializer) == [*model.graph.initializer[1:], array]
    assert list(after.graph.value_info) == [*model.graph.value_info, info]
    kept = [(entry.key, entry.value) for entry in model.metadata_props if entry.key != "author"]
    assert [(e.key, e.value) for e in after.metadata_props] == [*kept, ("author", "nobody"), ("key", "value")]


def test_what_onnx_does_not_know_stays_as_it_lies() -> None:
    data = create("mlp", shape=(4,), hidden=(3,), classes=2).to_onnx().SerializeToString()
    strange = tag(900, 3) + b"abc" + data + tag(901, 2) + b"de"
    count = len(onnx.load_from_string(data).graph.node)
    assert b"".join(Patch(range(count)).applied(strange)) == strange


@pytest.mark.parametrize("damage", [lambda data: data + data, lambda data: b"", lambda data: data[:-1]])
def test_files_that_are_laid_out_otherwise_are_refused(damage: object) -> None:
    data = create("mlp", shape=(4,), hidden=(3,), classes=2).to_onnx().SerializeToString()
    with pytest.raises(Unusual):
        Patch(range(3)).applied(damage(data))  # type: ignore[operator]
