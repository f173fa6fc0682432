"""Where a query of ONNX's Attention must not look, on the arrays of any framework."""

from __future__ import annotations

from typing import Any

from deep500.networks.attributes import Attending


def hidden_places(here: Any, there: Any, lengths: Any, settings: Attending) -> Any:
    """True where a query must not look: ahead, outside its window, beyond the valid keys. None if it may look anywhere.

    Args:
        here: positions of the queries, [..., queries, 1].
        there: positions of the keys, [keys].
        lengths: how many keys are valid, [..., 1, 1]; None: all.
        settings: the operator's attributes.

    Example:
        >>> import numpy as np
        >>> hidden_places(np.arange(2)[:, None], np.arange(3), None, Attending(is_causal=1)).tolist()
        [[False, True, True], [False, False, True]]
    """
    left, right = settings.left_window_size, settings.right_window_size
    rules = [
        there > here if settings.is_causal else None,
        there < here - left if left >= 0 else None,
        there > here + right if right >= 0 else None,
        there >= lengths if lengths is not None else None,
    ]
    hidden = None
    for rule in rules:
        if rule is not None:
            hidden = rule if hidden is None else hidden | rule
    return hidden
