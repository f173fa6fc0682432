"""Nodes that decide where gradients flow. Gradients are nodes here, and a session sees the Identities."""

from __future__ import annotations

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.networks.flow import CUSTOM, STOP
from deep500.operators.registry import DOMAIN


@expansion(STOP, CUSTOM, domain=DOMAIN)
def identities(op: ExpansionEmitter) -> dict[str, str]:
    """An Identity for each output."""
    return {output: op("Identity", value) for output, value in zip(op.node.outputs, op.node.inputs, strict=False)}
