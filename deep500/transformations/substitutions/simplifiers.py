"""Other people's optimizers of ONNX files, where they are installed: what they make of a file competes with ours."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec

import onnx

from deep500.errors import Deep500Error, NetworkError
from deep500.networks.network import Network
from deep500.networks.onnx.dump import first_line
from deep500.networks.protos import MOST_BYTES
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.delivery import Source, check_numbers
from deep500.transformations.substitutions.equivalence import outputs


def _onnxsim(model: onnx.ModelProto) -> onnx.ModelProto:
    simplify = import_module("onnxsim").simplify
    # Newer ones try a proof by Z3 besides, for most of a minute; results are checked here in any case.
    options = {"certify": False} if "certify" in inspect.signature(simplify).parameters else {}
    simplified, sound = simplify(model, **options)
    if not sound:
        raise NetworkError("got a file that fails onnxsim's own check; expected one that passes it")
    result: onnx.ModelProto = simplified
    return result


SIMPLIFIERS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "onnxsim": _onnxsim,
    "onnxslim": lambda model: import_module("onnxslim").slim(model),
    "onnxscript": lambda model: import_module("onnxscript.optimizer").optimize(model),
}
"""Package -> what it makes of a model."""


def simplified(source: Source, failed: dict[str, str], seconds: float = math.inf) -> dict[str, bytes]:
    """Results of the installed simplifiers for a file, where it computes the same.

    Args:
        source: the file, with the network that was read from it.
        failed: receives why a result was left out; what is not installed is not named.
        seconds: of CPU time, after which no further one begins.
    """
    results, begin = dict[str, bytes](), cpu_seconds()
    outside = sum((source.path.parent / name).stat().st_size for name in source.outside)
    for name, simplify in SIMPLIFIERS.items():
        if source.network is None or find_spec(name) is None:
            continue
        if cpu_seconds() - begin > seconds:
            failed[name] = f"got {cpu_seconds() - begin:.0f} s taken by the others; expected at most {seconds:.3g}"
            continue
        if len(source.data) + outside > MOST_BYTES:
            failed[name] = "got a model above 2 GiB; expected one that is a single message"
            continue
        try:
            # None of them says a word where one JSON object is expected.
            with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
                warnings.simplefilter("ignore")
                data = simplify(onnx.load(str(source.path))).SerializeToString()
                again = Network.from_onnx(data)
            if (dict(again.inputs), list(again.outputs)) != (dict(source.network.inputs), list(source.network.outputs)):
                raise NetworkError("got other inputs or outputs; expected the file's")
            check_numbers(source.network, again, source)
            _check_sizes(source.network, again, source)
        except Exception as error:  # noqa: BLE001  # each has its own
            failed[name] = f"{type(error).__name__}: {first_line(error)}"
            continue
        if data != source.data:
            results[name] = data
    return results


def _check_sizes(network: Network, again: Network, source: Source) -> None:
    """Try other numbers for symbolic sizes, at which the file runs: who wrote the new one may have fixed some.

    Raises:
        NetworkError: it computes something else, or refuses what the file takes.
    """
    first = source.numbers(network)
    for times, more in ((0, 1), (1, 1), (2, 3)) if first else ():
        sizes = {name: times * size + more for name, size in first.items()}
        try:
            outputs(network, sizes, 0)
        except Deep500Error:
            continue  # a batch of a multiple of four, say
        check_numbers(network, again, source, sizes)
