"""Streams of random numbers of executors that take turns with one generator."""

from __future__ import annotations

import pytest

from tests.conftest import load_backend

load_backend("pytorch")
import torch  # noqa: E402 - an optional backend

from deep500.frameworks.pytorch.chance import Stream  # noqa: E402

pytestmark = pytest.mark.backend("pytorch")


def drawn(stream: Stream, count: int) -> list[float]:
    stream.take()
    return torch.rand(count, dtype=torch.float64).tolist()


def test_each_goes_on_where_it_stopped() -> None:
    streams = [Stream(torch.device("cpu")) for _ in range(3)]
    alone = []
    for number, stream in enumerate(streams):
        stream.seed(number)
        alone.append(drawn(stream, 4))
    assert len({*alone[0], *alone[1], *alone[2]}) == 12
    for number, stream in enumerate(streams):
        stream.seed(number)
    together: list[list[float]] = [[], [], []]
    for number in (2, 0, 0, 1, 2, 1, 1, 0, 2, 0, 1, 2):
        together[number].extend(drawn(streams[number], 1))
    assert together == alone


def test_what_draws_by_itself_stays_as_it_was() -> None:
    """Numbers that a program draws between the runs of one executor are of the same generator, as they were."""
    stream = Stream(torch.device("cpu"))
    assert not stream.seeded
    stream.seed(5)
    between = [drawn(stream, 1), torch.rand(1, dtype=torch.float64).tolist(), drawn(stream, 1)]
    torch.manual_seed(5)
    assert [number for part in between for number in part] == torch.rand(3, dtype=torch.float64).tolist()


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    streams = [Stream(torch.device("cuda", 0)) for _ in range(2)]
    for number, stream in enumerate(streams):
        stream.seed(number)
    first = torch.rand(2, device="cuda").tolist()
    streams[0].take()
    torch.rand(2, device="cuda")
    streams[1].seed(1)
    assert torch.rand(2, device="cuda").tolist() == first
