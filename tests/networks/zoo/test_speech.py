"""Models of speech against PyTorch's own modules with the same weights; frames behind an item's end are not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import NetworkError
from deep500.networks import create
from tests.tolerances import as_numpy, assert_close

RNG = np.random.default_rng(5)
LENGTHS = np.array([9, 4, 1])
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("conv1d", dict(width=8, layers=2)),
    ("conv1d_ctc", dict(width=8, layers=3, kernel=3)),
    ("conv1d_ctc", dict(width=8, layers=2, stride=2, norm=False)),
    ("bigru", dict(width=6)),
]


def inputs(noise: float = 0.0) -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).normal(size=(3, 9, 5)).astype(np.float32)
    x[np.arange(9) >= LENGTHS[:, None]] = noise
    return {"input": x, "input_length": LENGTHS}


def torch_model(name: str, options: dict[str, Any], weights: dict[str, np.ndarray], x: Any, length: int) -> Any:
    """The model, module by module, on one item alone."""
    import torch
    import torch.nn.functional as F

    w = {key: torch.tensor(value) for key, value in weights.items()}
    if name == "bigru":
        module = torch.nn.GRU(5, options["width"], bidirectional=True, batch_first=True)
        rzn = lambda v: torch.cat([v.chunk(3)[i] for i in (1, 0, 2)])  # noqa: E731 - ONNX has z r h
        with torch.no_grad():
            for d, end in enumerate(("", "_reverse")):
                for part, value in (
                    ("weight_ih", w["gru.weight_ih"][d]),
                    ("weight_hh", w["gru.weight_hh"][d]),
                    ("bias_ih", w["gru.bias"][d].chunk(2)[0]),
                    ("bias_hh", w["gru.bias"][d].chunk(2)[1]),
                ):
                    getattr(module, f"{part}_l0{end}").copy_(rzn(value))
        _, last = module(x[:, :length])
        return F.linear(last.transpose(0, 1).flatten(1), w["fc.weight"], w["fc.bias"])
    y = x[:, :length].transpose(1, 2)
    residual = name == "conv1d_ctc"
    for layer in range(1, options["layers"] + 1):
        conv = f"conv{layer}"
        kernel = w[f"{conv}.weight"]
        stride = options.get("stride", 1) if layer == 1 else 1
        z = F.conv1d(y, kernel, w[f"{conv}.bias"], stride=stride, padding=kernel.shape[2] // 2)
        if f"{conv}.norm.weight" in w:
            state = [w[f"{conv}.norm.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
            z = F.batch_norm(z, *state)
        y = y + F.relu(z) if residual and layer > 1 else F.relu(z)
    if not residual:
        return F.linear(y.mean(2), w["fc.weight"], w["fc.bias"])
    return F.conv1d(y, w["fc.weight"], w["fc.bias"]).transpose(1, 2)


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_models_are_pytorchs_on_every_item_by_itself(backend, name, options):
    torch = pytest.importorskip("torch")
    network = create(name, classes=4, shape=(9, 5), lengths=True, **options)
    for key, parameter in network.parameters.items():
        if parameter.value.dtype == np.float32 and parameter.value.ndim:
            network.set_parameter(
                key, (0.5 * RNG.normal(size=parameter.value.shape) ** 2 + 0.1).astype(np.float32) * 0.3
            )
    feeds = inputs(noise=3.0)
    got = backend.from_model(network).inference(feeds)
    weights = {key: p.value for key, p in network.parameters.items()}
    for item, length in enumerate(LENGTHS):
        want = torch_model(name, options, weights, torch.tensor(feeds["input"][item : item + 1]), int(length))[
            0
        ].detach()
        ours = as_numpy(got["output"])[item]
        assert_close(ours[: len(want)] if want.ndim == 2 else ours, want)
    if "stride" in options:
        assert as_numpy(got["output_length"]).tolist() == [5, 2, 1]


def test_without_lengths_all_frames_count():
    from deep500.frameworks.reference import Executor

    for name, options in MODELS:
        bare, with_lengths = (create(name, classes=4, shape=(9, 5), lengths=flag, **options) for flag in (False, True))
        assert list(bare.inputs) == ["input"]
        x = RNG.normal(size=(2, 9, 5)).astype(np.float32)
        full = {"input": x, "input_length": np.array([9, 9])}
        assert_close(Executor(bare).inference({"input": x})["output"], Executor(with_lengths).inference(full)["output"])


def test_sizes_that_have_no_meaning_are_refused():
    with pytest.raises(NetworkError, match="got kernel 4; expected an odd one"):
        create("conv1d", shape=(9, 5), kernel=4)
    with pytest.raises(NetworkError, match="expected \\(frames, features\\)"):
        create("bigru", shape=(9,))
