"""Unroll LSTM, GRU and RNN over a sequence length that is known, into operators that have gradient rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deep500.networks.graph import Network
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor

Unroller = Callable[[Network, Node, Mapping[str, TensorDescriptor]], "dict[str, str] | None"]

UNROLLERS: dict[str, Unroller] = {}
