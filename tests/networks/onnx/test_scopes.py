"""Files whose sub-graphs define names that values around them have: ONNX Runtime runs them, so do we."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from onnx import checker, parser

from deep500.networks import Network
from tests.tolerances import assert_close

LOOP = """<ir_version: 8, opset_import: ["" : %d]>
main (float[N,2] x, float[N,2] s) => (float[N,2] y, float[T,N,2] parts) <int64 n = {3}, bool go = {1}> {
    doubled = Add(s, s)
    y, parts = Loop (n, go, doubled) <body = steps (int64 n, bool go, float[N,2] s)
    => (bool more, float[N,2] t, float[N,2] u)
    { more = Identity(go) t = Mul(s, x) u = Add(t, doubled) }>
}"""
NESTED = """<ir_version: 8, opset_import: ["" : %d]>
main (float[2] x) => (float[2] y) <int64 n = {2}, bool go = {1}> {
    y = Loop (n, go, x) <body = outer (int64 i, bool go, float[2] x) => (bool more, float[2] z) {
        more = Identity(go)
        z = Loop (n, go, x) <body = inner (int64 i, bool go, float[2] x) => (bool on, float[2] w)
            { on = Identity(go) k = Cast <to = 1> (i) w = Add(x, k) }>
    }>
}"""
SCAN = """<ir_version: 8, opset_import: ["" : %d]>
main (float[2] s, float[4,2] x) => (float[2] y, float[4,2] rows) {
    y, rows = Scan <num_scan_inputs = 1, body = step (float[2] s, float[2] x) => (float[2] t, float[2] r)
        { t = Add(s, x) r = Mul(s, x) }> (s, x)
}"""
BRANCHES = """<ir_version: 8, opset_import: ["" : %d]>
main (float[2] x) => (float[2] y) <bool c = {0}> {
    y = If (c) <then_branch = t () => (float[2] a) <float[2] x = {1, 2}> { a = Neg(x) },
                else_branch = e () => (float[2] b) { b = Exp(x) }>
}"""


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("text", [LOOP, NESTED, SCAN, BRANCHES], ids=["loop", "nested", "scan", "branches"])
def test_names_that_hide_others_are_renamed(backend: ModuleType, text: str, opset: int) -> None:
    model = parser.parse_model(text % opset)
    checker.check_model(model, full_check=True)
    network = Network.from_onnx(model)
    rng = np.random.default_rng(0)
    feeds = {
        n: rng.standard_normal([3 if s == "N" else s for s in d.shape or ()]).astype("f")
        for n, d in network.inputs.items()
    }
    # not ONNX's reference evaluator: it reads the outer value of a hidden name
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, feeds)
    got = backend.from_model(network).inference(feeds)
    for name, value in zip(network.outputs, want, strict=True):
        assert_close(got[name], value, err_msg=name)
    assert Network.from_onnx(network.to_onnx()) == network
