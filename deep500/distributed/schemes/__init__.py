"""How ranks train together: one class per communication scheme, ``d5.schemes`` for users.

``tests/distributed/test_scheme_table.py`` names what a new scheme, here or in ``compression``, still lacks: its line
here, its row in the table of ``docs/distributed.md`` and its row in ``tests/distributed/scheme_table.py``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.distributed.compression.powersgd import PowerSGD as PowerSGD
    from deep500.distributed.compression.qsgd import QSGD as QSGD
    from deep500.distributed.compression.signsgd import SignSGD as SignSGD
    from deep500.distributed.compression.sparse import SparseAllreduce as SparseAllreduce
    from deep500.distributed.compression.topk import TopK as TopK
    from deep500.distributed.optimizer import DistributedOptimizer
    from deep500.distributed.schemes.asynchronous import InconsistentParameterServer as InconsistentParameterServer
    from deep500.distributed.schemes.averaging import LocalSGD as LocalSGD
    from deep500.distributed.schemes.averaging import ModelAverage as ModelAverage
    from deep500.distributed.schemes.diloco import DiLoCo as DiLoCo
    from deep500.distributed.schemes.divided import DividedNetwork as DividedNetwork
    from deep500.distributed.schemes.gossip import ConsistentNeighbors as ConsistentNeighbors
    from deep500.distributed.schemes.gossip import InconsistentDecentralized as InconsistentDecentralized
    from deep500.distributed.schemes.native import DDP as DDP
    from deep500.distributed.schemes.native import FSDP as FSDP
    from deep500.distributed.schemes.native_pipeline import NativePipeline as NativePipeline
    from deep500.distributed.schemes.parameters import ShardedParameters as ShardedParameters
    from deep500.distributed.schemes.pipeline import Pipeline as Pipeline
    from deep500.distributed.schemes.reproducible import ReproducibleDecentralized as ReproducibleDecentralized
    from deep500.distributed.schemes.sharded import ShardedOptimizer as ShardedOptimizer
    from deep500.distributed.schemes.stale import StaleSynchronous as StaleSynchronous
    from deep500.distributed.schemes.synchronous import ConsistentDecentralized as ConsistentDecentralized
    from deep500.distributed.schemes.synchronous import ConsistentParameterServer as ConsistentParameterServer


def by_name() -> dict[str, type[DistributedOptimizer]]:
    """All schemes of this module by their name."""
    module = sys.modules[__name__]
    return {name: getattr(module, name) for name in dir(module) if name != "by_name"}


load_when_used(__name__)
