"""Diffusion, graphs, sequences and other shapes of models: diffusers, torch_geometric, and modules of torch's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.architectures.architecture import Architecture, Inputs, noise, offline


def _unet() -> Any:
    from torch import nn

    offline()
    from diffusers import UNet2DConditionModel

    class Noise(nn.Module):
        """The predicted noise alone."""

        def __init__(self) -> None:
            super().__init__()
            self.model = UNet2DConditionModel(
                sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=32, attention_head_dim=8,
                norm_num_groups=8,
            )  # fmt: skip

        def forward(self, sample: Any, timestep: Any, words: Any) -> Any:
            return self.model(sample, timestep, encoder_hidden_states=words, return_dict=False)[0]

    return Noise()


def _unet_inputs(rng: np.random.Generator) -> Inputs:
    made = noise(sample=(2, 4, 16, 16), words=(2, 7, 32))(rng)
    return {"sample": made["sample"], "timestep": np.array([7, 401]), "words": made["words"]}


def _autoencoder() -> Any:
    from torch import nn

    offline()
    from diffusers import AutoencoderKL

    class Roundtrip(nn.Module):
        """To the mean of the code and back."""

        def __init__(self) -> None:
            super().__init__()
            self.model = AutoencoderKL(
                down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, sample_size=32,
            )  # fmt: skip

        def forward(self, images: Any) -> Any:
            return self.model.decode(self.model.encode(images).latent_dist.mean, return_dict=False)[0]

    return Roundtrip()


def _graph(kind: str) -> Any:
    def build() -> Any:
        import torch
        from torch import nn

        offline()
        import torch_geometric.nn as graphs

        class Graph(nn.Module):
            """Two layers that pass messages along edges."""

            def __init__(self) -> None:
                super().__init__()
                if kind == "gat":
                    self.first, self.second = graphs.GATv2Conv(8, 8, heads=2), graphs.GATv2Conv(16, 4)
                else:
                    self.first = graphs.SAGEConv(8, 16, aggr="max")
                    self.second = graphs.SAGEConv(16, 4, aggr="mean")

            def forward(self, nodes: Any, edges: Any) -> Any:
                return self.second(torch.relu(self.first(nodes, edges)), edges)

        return Graph()

    return build


def _graph_inputs(rng: np.random.Generator) -> Inputs:
    """Thirty nodes in a ring with ninety edges more, drawn by chance."""
    ring = np.stack([np.arange(30), (np.arange(30) + 1) % 30])
    edges = np.concatenate([ring, rng.integers(0, 30, (2, 90))], 1)
    return {"nodes": rng.standard_normal((30, 8)).astype(np.float32), "edges": edges}


def _tagger() -> Any:
    from torch import nn

    class Tagger(nn.Module):
        """Words, a bidirectional LSTM of two layers, a GRU, tags."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.lstm = nn.Embedding(200, 32), nn.LSTM(32, 24, 2, batch_first=True, bidirectional=True)
            self.gru, self.tags = nn.GRU(48, 16, batch_first=True), nn.Linear(16, 9)

        def forward(self, words: Any) -> Any:
            return self.tags(self.gru(self.lstm(self.words(words))[0])[0])

    return Tagger()


def _recommender() -> Any:
    import torch
    from torch import nn

    class Recommender(nn.Module):
        """Sums of embeddings, products of pairs, dense layers (DLRM, Naumov et al. 2019)."""

        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(4))
            self.bottom = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(26, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

        def forward(self, numbers: Any, categories: Any) -> Any:
            dense = self.bottom(numbers)
            vectors = [table(categories[:, i]).sum(1) for i, table in enumerate(self.tables)]
            stacked = torch.stack([dense, *vectors], 1)
            products = stacked @ stacked.transpose(1, 2)
            upper = torch.triu_indices(5, 5, 1)
            return self.top(torch.cat([dense, products[:, upper[0], upper[1]]], 1))

    return Recommender()


def _recommender_inputs(rng: np.random.Generator) -> Inputs:
    return {"numbers": rng.standard_normal((16, 6)).astype(np.float32), "categories": rng.integers(0, 50, (16, 4, 3))}


def _generator() -> Any:
    from torch import nn

    def up(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        nn.ConvTranspose2d(32, 64, 4, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *up(64, 32), *up(32, 16),
        nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


def _waves() -> Any:
    import torch
    from torch import nn

    class Waves(nn.Module):
        """Sines of sines: an image as a function of its coordinates (SIREN, Sitzmann et al. 2020)."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 64), nn.Linear(64, 64), nn.Linear(64, 3)])

        def forward(self, places: Any) -> Any:
            first, second, last = self.layers
            return last(torch.sin(second(torch.sin(30 * first(places)))))

    return Waves()


def _warp() -> Any:
    import torch
    from torch import nn

    class Warp(nn.Module):
        """A small network turns and shifts the image that another one reads (Jaderberg et al. 2015)."""

        def __init__(self) -> None:
            super().__init__()
            self.look = nn.Sequential(nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
            self.where = nn.Linear(128, 6)
            self.read = nn.Sequential(
                nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
            )

        def forward(self, images: Any) -> Any:
            still = torch.tensor([[1.0, 0, 0], [0, 1, 0]], dtype=images.dtype)
            turn = still + 0.3 * self.where(self.look(images)).view(-1, 2, 3)
            grid = nn.functional.affine_grid(turn, list(images.shape), align_corners=False)
            return self.read(nn.functional.grid_sample(images, grid, align_corners=False))

    return Warp()


STRUCTURES = (
    Architecture(
        "diffusion_unet", "diffusers", "diffusion UNet, group norm, cross attention", _unet, _unet_inputs, "dynamo"
    ),
    Architecture(
        "autoencoder", "diffusers", "latent code of images", _autoencoder, noise(images=(2, 3, 32, 32)), "dynamo"
    ),
    Architecture(
        "gat", "torch_geometric", "graph network, attention along edges", _graph("gat"), _graph_inputs, "dynamo"
    ),
    Architecture(
        "graphsage", "torch_geometric", "graph network, largest message", _graph("sage"), _graph_inputs, "dynamo"
    ),
    Architecture(
        "lstm_tagger", "torch", "bidirectional LSTM, GRU", _tagger, lambda rng: {"words": rng.integers(0, 200, (4, 20))}
    ),
    Architecture("dlrm", "torch", "recommender, embeddings", _recommender, _recommender_inputs),
    Architecture("dcgan", "torch", "generator, transposed convolutions", _generator, noise(code=(8, 32, 1, 1))),
    Architecture("siren", "torch", "coordinates to colours, sines", _waves, noise(places=(64, 2))),
    Architecture(
        "spatial_transformer",
        "torch",
        "images sampled at computed places",
        _warp,
        noise(images=(4, 3, 32, 32)),
        "dynamo",
    ),
)
