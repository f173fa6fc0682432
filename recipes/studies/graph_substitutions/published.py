"""Figures that others published, printed beside ours as context: other machines, versions and details of networks.

TASO: Jia et al., SOSP 2019, with the chart of its repository (NVIDIA V100, batch 1). Tensat: Yang et al., MLSys 2021,
whose comparison with TASO ran on an NVIDIA T4.
"""

from __future__ import annotations

from typing import NamedTuple


class PublishedSearch(NamedTuple):
    """One network in Tensat's comparison: seconds of search, and the gain over the original in percent."""

    taso_seconds: float
    tensat_seconds: float
    taso_gain: float
    tensat_gain: float


SEARCH = {
    "bert": PublishedSearch(13.6, 1.4, 8.5, 9.2),
    "resnext50": PublishedSearch(25.3, 0.7, 5.5, 8.8),
    "nasnet_a": PublishedSearch(1226.0, 10.6, 1.9, 7.3),
    "nasrnn": PublishedSearch(177.3, 0.5, 45.4, 68.9),
    "inception_v3": PublishedSearch(68.6, 5.1, 6.3, 10.0),
    "squeezenet": PublishedSearch(16.4, 0.3, 6.7, 24.5),
}

V100 = {  # milliseconds; no figures there for ResNet-50 (which the paper calls on a par) and NasRNN
    "inception_v3": {"TensorFlow": 9.4, "XLA": 8.8, "TensorRT": 5.5, "TASO": 5.0},
    "squeezenet": {"TensorFlow": 2.6, "XLA": 2.75, "TensorRT": 0.94, "TASO": 0.74},
    "nasnet_a": {"TensorFlow": 11.1, "XLA": 11.4, "TensorRT": 10.4, "TASO": 8.1},
    "resnext50": {"TensorFlow": 19.8, "XLA": 29.6, "TensorRT": 12.8, "TASO": 4.1},
    "bert": {"TensorFlow": 2.0, "XLA": 2.2, "TensorRT": 1.8, "TASO": 1.2},
}

GROUPS = {1: 0.2690, 2: 0.1496, 4: 0.1244, 8: 0.1119, 16: 0.1667, 32: 0.3039}
"""Figure 9 of TASO: groups -> milliseconds of one convolution of 512 channels in 28x28 on a V100."""

LAYOUT = {"substitution only": (3.675, 12), "layout only": (3.169, 12), "sequential": (3.157, 12), "joint": (2.772, 9)}
"""Figure 10 of TASO: milliseconds, and the layers of BERT in the artifact's file for it: the last has fewer."""
