"""Sizes that follow from numbers: constants, symbols, and what is neither."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.networks import Network


@pytest.mark.parametrize("end", [1, 2, 3, 8, 512, 5000, 2**40])
def test_a_size_that_is_cut_off_is_neither_a_constant_nor_a_symbol(end: int) -> None:
    """Batches of one are there always; two may be more than there are, and 512 less."""
    network = Network("cut")
    network.add_input("x", ("N", 4))
    for name, number in (("begin", 0), ("end", end), ("axis", 0)):
        network.add_parameter(name, np.array([number]), trainable=False)
    network.add_node("Slice", ["x", "begin", "end", "axis"], ["y"])
    network.add_output("y")
    assert network.descriptors()["y"].shape == ({1: 1, 2**40: "N"}.get(end), 4)
