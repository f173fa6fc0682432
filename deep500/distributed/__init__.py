"""Level 3: many processes train one network. Who exchanges arrays: communicators. What they exchange: schemes."""

from typing import TYPE_CHECKING

from deep500.distributed.world import world as world
from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.distributed import schemes as schemes
    from deep500.distributed.clocks import Clock as Clock
    from deep500.distributed.clocks import synchronise as synchronise
    from deep500.distributed.optimizer import DistributedOptimizer as DistributedOptimizer
    from deep500.distributed.schemes.mesh import SchemeMesh as SchemeMesh
    from deep500.distributed.timing import ParallelTiming as ParallelTiming
    from deep500.distributed.timing import parallel as parallel
    from deep500.distributed.transports.communicator import ANY as ANY
    from deep500.distributed.transports.communicator import Communicator as Communicator
    from deep500.distributed.transports.serial import Serial as Serial
    from deep500.distributed.transports.threads import Threads as Threads
    from deep500.distributed.world import current_world as current_world
    from deep500.distributed.world import set_world as set_world

load_when_used(__name__)
