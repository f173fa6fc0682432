"""Level 3: many processes train one network. Who exchanges arrays: communicators. What they exchange: schemes."""

from deep500.distributed.communicator import ANY as ANY
from deep500.distributed.communicator import Communicator as Communicator
from deep500.distributed.communicator import Serial as Serial
from deep500.distributed.compression import QSGD as QSGD
from deep500.distributed.compression import Compression as Compression
from deep500.distributed.compression import PowerSGD as PowerSGD
from deep500.distributed.compression import SignSGD as SignSGD
from deep500.distributed.compression import SparseAllreduce as SparseAllreduce
from deep500.distributed.compression import TopK as TopK
from deep500.distributed.compression import sparse_all_reduce as sparse_all_reduce
from deep500.distributed.diloco import DiLoCo as DiLoCo
from deep500.distributed.gossip import ConsistentNeighbors as ConsistentNeighbors
from deep500.distributed.gossip import InconsistentDecentralized as InconsistentDecentralized
from deep500.distributed.gossip import matching as matching
from deep500.distributed.mixing import mixing_matrix as mixing_matrix
from deep500.distributed.mixing import second_eigenvalue as second_eigenvalue
from deep500.distributed.optimizer import DistributedOptimizer as DistributedOptimizer
from deep500.distributed.sharded import ShardedOptimizer as ShardedOptimizer
from deep500.distributed.synchronous import ConsistentDecentralized as ConsistentDecentralized
from deep500.distributed.synchronous import ConsistentParameterServer as ConsistentParameterServer
from deep500.distributed.synchronous import LocalSGD as LocalSGD
from deep500.distributed.synchronous import ModelAverage as ModelAverage
from deep500.distributed.threads import Threads as Threads
from deep500.distributed.world import set_world as set_world
from deep500.distributed.world import world as world
