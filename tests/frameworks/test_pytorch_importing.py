"""Modules of PyTorch as networks: PyTorch's own outputs, gradients and statistics, in float64 on the reference."""

from __future__ import annotations

import copy
from collections import Counter
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from deep500.errors import InputError, NetworkError  # noqa: E402
from deep500.frameworks import reference  # noqa: E402
from deep500.frameworks.pytorch import importing  # noqa: E402
from deep500.networks import add_loss, as_network  # noqa: E402
from deep500.networks.objects import fingerprint, seeded  # noqa: E402
from deep500.registry import load_importer  # noqa: E402
from tests.frameworks.gradients import network_gradients  # noqa: E402
from tests.tolerances import as_numpy, assert_close  # noqa: E402

nn = torch.nn
F = torch.nn.functional
pytestmark = pytest.mark.backend("pytorch")


class Residual(nn.Module):
    """Convolutions with normalization, a skip connection, dropout."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4, momentum=0.3)
        self.drop, self.head = nn.Dropout(drop), nn.Linear(4, 5)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(x + self.norm2(self.conv2(x)))
        return self.head(self.drop(F.adaptive_avg_pool2d(x, 1).flatten(1)))


class Recurrent(nn.Module):
    """A recurrent classifier of tokens."""

    def __init__(self, kind: str = "LSTM", layers: int = 2, dropout: float = 0.0, **options: Any) -> None:
        super().__init__()
        self.embed, ways = nn.Embedding(20, 6), 2 if options.get("bidirectional") else 1
        self.cell = getattr(nn, kind)(6, 5, num_layers=layers, dropout=dropout, batch_first=True, **options)
        self.head = nn.Linear(5 * ways, 3)

    def forward(self, tokens):
        return self.head(self.cell(self.embed(tokens))[0][:, -1])


class Block(nn.Module):
    """Causal attention and a feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class SmallGPT(nn.Module):
    """A language model whose output layer shares the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.block, self.norm, self.head = Block(8, 2), nn.LayerNorm(8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.block(x)))


class SmallViT(nn.Module):
    """Patches, a class token, positions, one encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class Two(nn.Module):
    """Two inputs, one frozen parameter, a buffer that is read like a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(5, 6)
        self.a.weight.requires_grad_(False)
        self.register_buffer("mix", torch.randn(6, 6))

    def forward(self, left, right):
        return torch.tanh(self.a(left)) * (self.b(right) @ self.mix)


def frozen_norm() -> Any:
    """Normalization by statistics that stay: its train() leaves it in evaluation."""
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    module[1].running_mean += 0.5
    module[1].train = lambda mode=True: module[1]  # type: ignore[method-assign]
    module[1].training = False
    return module


def real(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape)


TOKENS = np.random.default_rng(0).integers(0, 11, (4, 6))
CASES: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), (real(4, 6),)),
    "residual": (Residual, (real(4, 3, 6, 6),)),
    "lstm": (lambda: Recurrent("LSTM", bidirectional=True), (TOKENS,)),
    "gru": (lambda: Recurrent("GRU", 1), (TOKENS,)),
    "rnn": (lambda: Recurrent("RNN"), (TOKENS,)),
    "gpt": (SmallGPT, (TOKENS,)),
    "vit": (SmallViT, (real(4, 3, 8, 8),)),
    "two inputs": (Two, (real(4, 4), real(4, 5))),
    "frozen statistics": (frozen_norm, (real(4, 4),)),
    "statistics of the batch": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        (real(4, 4),),
    ),
}


@pytest.fixture(params=["tracing", "torch.export"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to convert a module; for the second one the first refuses everything."""
    if request.param == "torch.export":
        pytest.importorskip("onnxscript")

        def refuse(*_: Any) -> None:
            raise NetworkError("refused") from ValueError()

        monkeypatch.setattr(importing, "_export", refuse)
    return request.param


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("route")
def test_outputs_gradients_and_statistics_are_pytorch_s(name: str) -> None:
    torch.manual_seed(1)
    make, arrays = CASES[name]
    hold(make().double(), arrays, name)


def hold(module: Any, arrays: tuple[np.ndarray, ...], name: str) -> None:
    """A module's network has its parameters, outputs, gradients and statistics."""
    before = copy.deepcopy(module.state_dict())
    network = as_network(module, tuple(array[:1] for array in arrays))  # traced with another batch size
    for key, value in module.state_dict().items():
        assert_close(value, before[key], "exact", key)
    assert set(network.trainable()) == {n for n, p in module.named_parameters() if p.requires_grad}
    assert all(described.shape and described.shape[0] == "N" for described in network.inputs.values())

    inputs = dict(zip(network.inputs, arrays, strict=True))
    tensors = [torch.from_numpy(array) for array in arrays]
    (output,) = network.outputs
    with torch.no_grad():
        want = module.eval()(*tensors)
    executor = reference.from_model(add_loss(network, "mean_squared_error"))
    assert_close(executor.inference(inputs, [output])[output], want, "forward", name)

    label = real(*want.shape)
    module.train()
    ((module(*tensors) - torch.from_numpy(label)) ** 2).mean().backward()
    executor.inference_and_backprop({**inputs, "label": label}, "loss")
    state = executor.network.state()
    for key, parameter in module.named_parameters():
        if parameter.requires_grad:
            got = dict(executor.network.gradient("loss"))[key]
            assert_close(executor.network.fetch_tensors([got])[0], parameter.grad, "gradient", f"{name} {key}")
    for key, buffer in module.named_buffers():
        if key in state:
            assert_close(state[key], buffer, "training", key)  # ONNX holds momenta as float32


def test_dropout_and_normalization_follow_the_mode() -> None:
    network = as_network(Residual(0.5), np.zeros((1, 3, 6, 6), "float32"))
    kinds = Counter(node.op_type for node in network.nodes)
    assert (kinds["BatchNormalization"], kinds["Dropout"]) == (2, 1)
    momenta = [n.attributes["momentum"] for n in network.nodes if n.op_type == "BatchNormalization"]
    np.testing.assert_allclose(momenta, [0.9, 0.7], rtol=1e-6)
    executor = reference.from_model(add_loss(network))
    batch = {"input": real(8, 3, 6, 6).astype("float32"), "label": np.zeros(8, "int64")}
    still = [executor.inference(batch, ["loss"])["loss"] for _ in range(2)]
    moving = [executor.inference_and_backprop(batch, "loss")["loss"] for _ in range(2)]
    assert still[0] == still[1] and moving[0] != moving[1]


def test_dropout_between_recurrent_layers_is_kept() -> None:
    network = as_network(Recurrent("LSTM", 3, 0.25), TOKENS)
    drops = [node for node in network.nodes if node.op_type == "Dropout"]
    assert len(drops) == 2 and sum(node.op_type == "LSTM" for node in network.nodes) == 3
    assert all(network.parameters[node.inputs[1]].value == np.float32(0.25) for node in drops)


class Dictionary(nn.Module):
    """Keywords in, a dict with more than tensors out, as transformers' models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)

    def forward(self, ids=None, mask=None):
        states = self.embed(ids) * mask[..., None]
        return {"states": states, "pooled": states.mean(1), "cache": None}


def test_names_are_keywords_and_results_are_named() -> None:
    module = Dictionary()
    example = {"mask": np.ones((2, 6), "float32"), "ids": TOKENS[:2]}
    network = as_network(module, example)
    assert set(network.inputs) == {"ids", "mask"} and network.outputs == ["states", "pooled"]
    got = reference.from_model(network).inference(example)
    want = module(torch.from_numpy(TOKENS[:2]), torch.ones(2, 6))
    assert_close(got["pooled"], want["pooled"], "forward")


class Random(nn.Module):
    """Draws numbers in evaluation, too."""

    def forward(self, x):
        return x * torch.rand_like(x)


class Moody(nn.Module):
    """More results in training than in evaluation."""

    def forward(self, x):
        return (x * 2, x) if self.training else x * 2


class Differences(nn.Module):
    """Functions for which the exporter has no operator, as transformers' masks use them, or none for the last axis."""

    def forward(self, x):
        windows = F.pad(x, (1, 1)).unfold(-1, 3, 1).mean(-1)
        return x.diff(prepend=x[:, :1]) + torch.diff(x, n=2, dim=1, append=x[:, :2]) + (x > 0).cumsum(-1) + windows


def test_what_the_exporter_lacks_is_traced_as_what_it_has() -> None:
    x = real(4, 5)
    got = reference.from_model(as_network(Differences(), x, check=False)).inference({"input": x})
    assert_close(got["output"], Differences()(torch.from_numpy(x)), "forward")


class Digits(nn.Module):
    """Functions whose numbers ONNX's operators, or what the exporter makes of them, hold in float32."""

    def forward(self, x, y):
        activations = F.leaky_relu(x, 0.2) + F.elu(x, 0.3) + F.celu(x, 0.7) + F.selu(x) + F.hardsigmoid(x)
        sums = (
            torch.addmm(y, x, torch.ones_like(x[0]).diag(), beta=0.3, alpha=0.7)
            + torch.addcmul(x, x, y, value=0.3)
            + x.addcdiv(y, y + 9, value=0.7)
        )
        angles = torch.atan2(y, x) + torch.sinc(x) + torch.hypot(x, y) + F.huber_loss(x, y, "none", 0.3)
        norms = F.normalize(x, p=3) + torch.linalg.vector_norm(x, 3, 1, True) + y.norm(p=4) + x.std() * y.var()
        labels = y.argmax(1)
        losses = F.cross_entropy(x, labels, label_smoothing=0.1, ignore_index=2) + F.cross_entropy(x, y.softmax(1))
        return activations, sums, angles, norms, losses + F.kl_div(x, y.softmax(1), reduction="batchmean")


def test_numbers_keep_all_their_digits() -> None:
    x, y = real(4, 4), real(4, 4, 1)[..., 0]
    module = Digits()
    got = reference.from_model(as_network(module, (x, y), check=False)).inference({"x": x, "y": y})
    for name, want in zip(got, module(torch.from_numpy(x), torch.from_numpy(y)), strict=True):
        np.testing.assert_allclose(got[name], want.numpy(), 1e-13, 1e-13, err_msg=name)


def test_a_parameter_that_the_network_does_not_train_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    export = importing._export

    def renamed(*args: Any) -> Any:
        proto = export(*args)
        for names in (node.input for node in proto.graph.node):
            names[:] = ["another" if name == "2.weight" else name for name in names]
        next(array for array in proto.graph.initializer if array.name == "2.weight").name = "another"
        return proto

    monkeypatch.setattr(importing, "_export", renamed)
    monkeypatch.setattr(importing, "_export_otherwise", renamed)
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    with pytest.raises(NetworkError, match=r"gradient of parameter '2\.weight' is up to"):
        as_network(module, real(4, 4))
    assert "2.weight" not in as_network(module, real(4, 4), trainable="0.*").trainable()


class Unconvertible(nn.Module):
    """An operator that the exporter does not know."""

    def forward(self, x):
        return torch.linalg.svdvals(x)


@pytest.mark.parametrize(
    ("module", "example", "kind", "message"),
    [
        (nn.Linear(4, 3), None, InputError, "got Linear without example inputs; expected arrays"),
        (
            nn.Linear(4, 3),
            np.zeros((2, 5), "float32"),
            NetworkError,
            "expected a module that runs for its example inputs",
        ),
        (nn.Linear(4, 3), np.float32(1), InputError, "'input': got float32; expected an array with the batch"),
        (
            Random(),
            np.ones((2, 3), "float32"),
            NetworkError,
            r"test_pytorch_importing.py:\d+: got a draw in evaluation, too",
        ),
        (Moody(), np.ones((2, 3), "float32"), NetworkError, "got 2 results in training and 1 in evaluation"),
        (
            Unconvertible(),
            np.ones((2, 3, 3), "float32"),
            NetworkError,
            "expected a module that converts .*'native': True",
        ),
        (
            nn.BatchNorm1d(3, momentum=None),
            np.ones((2, 3), "float32"),
            NetworkError,
            "momentum=None; expected a number",
        ),
        (torch.ones(3), np.ones(3), InputError, "got Tensor as a model; expected a torch.nn.Module"),
    ],
)
def test_what_cannot_be_converted_is_one_error(module: Any, example: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        as_network(module, example)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projected_states_are_refused_by_name() -> None:
    with pytest.raises(NetworkError, match="with proj_size=2; expected states of the hidden size"):
        as_network(nn.LSTM(3, 4, proj_size=2, batch_first=True), np.ones((2, 5, 3), "float32"))


def test_a_class_is_made_from_the_seed() -> None:
    example = np.zeros((1, 3, 6, 6), "float32")
    state = torch.random.get_rng_state()
    first, again, other = (as_network(Residual, example, seed=seed) for seed in (1, 1, 2))
    assert_close(torch.random.get_rng_state(), state, "exact")
    assert first.content_hash() == again.content_hash() != other.content_hash()
    with seeded(1):
        module = Residual()
    assert first.content_hash() == as_network(module, example).content_hash()


def test_a_fingerprint_is_of_names_and_values() -> None:
    module = nn.Linear(4, 3)
    before = fingerprint(module)
    assert before == fingerprint(copy.deepcopy(module)) and fingerprint(nn.Linear) is None
    with torch.no_grad():
        module.bias[0] += 1
    assert fingerprint(module) != before


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["Bert", "GPT2", "Llama"])
def test_models_of_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
    sizes |= {} if name == "GPT2" else {"intermediate_size": 24}
    drops = {"Bert": ["hidden_dropout_prob", "attention_probs_dropout_prob"]}.get(name, [])
    drops += ["resid_pdrop", "embd_pdrop", "attn_pdrop"] if name == "GPT2" else []
    config = getattr(transformers, f"{name}Config")(**sizes, **dict.fromkeys(drops, 0.0))
    torch.manual_seed(0)
    module = getattr(transformers, f"{name}ForSequenceClassification")(config)
    arrays = {"input_ids": 1 + np.arange(24).reshape(3, 8) % 20}
    network = as_network(module, arrays)
    assert set(network.trainable()) == {name for name, _ in module.named_parameters()}
    want = module.train()(torch.from_numpy(arrays["input_ids"])).logits
    label = real(*want.shape).astype("float32")
    ((want - torch.from_numpy(label)) ** 2).mean().backward()
    executor = reference.from_model(add_loss(network, "mean_squared_error"))
    assert_close(executor.inference(arrays, ["output"])["output"], want, "forward")
    executor.inference_and_backprop({**arrays, "label": label}, "loss")
    gradients = dict(executor.network.gradient("loss"))
    for key, parameter in module.named_parameters():
        assert_close(executor.network.fetch_tensors([gradients[key]])[0], parameter.grad, "gradient", key)


class Distances(nn.Module):
    """Functions that the exporter lacks in float64, or computes without an epsilon or a subgradient."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.temperature = nn.Linear(4, 4), nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        y = self.head(x)
        masked = F.scaled_dot_product_attention(
            query=y[:, None, None], key=x[:, None, None], value=y[:, None, None], attn_mask=y[:, None, None, :1]
        )
        near = F.pairwise_distance(y, x) + F.pairwise_distance(y, y) + torch.cdist(y, y).sum(1)
        # of x: in float64, too, PyTorch's own gradient of hardsigmoid has the digits of float32
        return masked.flatten(1) * F.hardsigmoid(x) + (self.temperature * 0.7 + 0.1).exp() * near[:, None]


def test_float64_stays_float64_and_epsilons_stay() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    module = Distances().double()
    network = as_network(module, x)
    read = {name for node in network.nodes if node.op_type != "Dropout" for name in node.inputs}
    assert "float32" not in {p.value.dtype.name for name, p in network.parameters.items() if name in read}
    module(torch.from_numpy(x)).sum().backward()
    want = {name: parameter.grad.numpy() for name, parameter in module.named_parameters()}
    assert_close(
        reference.from_model(network).inference({"input": x})["output"], module(torch.from_numpy(x)), "forward"
    )
    got = network_gradients(reference, network, {"input": x}, [np.ones((3, 4))])
    for name, gradient in want.items():
        assert_close(got[name], gradient, "gradient")


@pytest.mark.parametrize("moves", [True, False])
def test_gradients_that_rounding_moves_are_no_other_gradients(moves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of many layers in float32: what the module's own are off by themselves explains a distance."""
    own = importing._Call.differentiate

    def noisy(self: Any, inputs: Any, cotangents: Any) -> Any:
        shift = 0.05 * (np.sin(1e9 * float(next(iter(inputs.values())).sum())) if moves else 1.0)
        return {name: gradient * np.float32(1 + shift) for name, gradient in own(self, inputs, cotangents).items()}

    monkeypatch.setattr(importing._Call, "differentiate", noisy)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    if moves:
        assert as_network(nn.Linear(4, 3), x).trainable() == ["weight", "bias"]
    else:
        with pytest.raises(NetworkError, match=r"whose gradient of parameter .* is up to 4\.8e-02"):
            as_network(nn.Linear(4, 3), x)


class Experts(nn.Module):
    """A mixture whose rows are sorted by expert, as transformers computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(8, 4), nn.Linear(8, 3)
        self.weight = nn.Parameter(torch.randn(4, 8, 8) * 0.3)

    def forward(self, x):
        gate, expert = self.gate(x).softmax(-1).max(-1)
        expert, order = torch.sort(expert, stable=True)
        ends = torch.histc(expert.float(), bins=4, min=0, max=3).cumsum(0, dtype=torch.int32)
        y = F.grouped_mm(x[order], self.weight, offs=ends)
        return self.head(torch.zeros_like(y).index_copy(0, order, y) * gate[:, None])


def test_experts_by_sorted_rows_are_carried(backend: ModuleType) -> None:
    torch.manual_seed(0)
    module, rng = Experts(), np.random.default_rng(0)
    network = as_network(module, rng.normal(size=(5, 8)).astype("float32"))
    x = rng.normal(size=(16, 8)).astype("float32")
    want = module(torch.from_numpy(x))
    executor = backend.from_model(network)
    assert_close(as_numpy(executor.inference({"input": x})["output"]), want, "forward")
    want.sum().backward()
    got = network_gradients(backend, network, {"input": x}, [np.ones((16, 3), "float32")])
    for name, parameter in module.named_parameters():
        assert_close(got[name], parameter.grad, "gradient", name)


def test_counts_are_those_of_histc() -> None:
    x = torch.tensor([0.0, 0.4, 1.0, 2.9, 3.0, 3.1, -0.1, 1.0])
    functions = load_importer("pytorch", "importing_functions")
    for bins, low, high in ((4, 0, 3), (3, 0, 3), (7, -1, 2)):
        assert_close(functions._histc(None, x, bins, low, high), torch.histc(x, bins, low, high), "forward")
