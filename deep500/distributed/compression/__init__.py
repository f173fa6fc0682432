"""Schemes that exchange less than all gradients; :mod:`~deep500.distributed.compression.base` says what they share."""

from deep500.distributed.compression.base import Compression as Compression
from deep500.distributed.compression.base import Encoded as Encoded
from deep500.distributed.compression.powersgd import PowerSGD as PowerSGD
from deep500.distributed.compression.qsgd import QSGD as QSGD
from deep500.distributed.compression.signsgd import SignSGD as SignSGD
from deep500.distributed.compression.sparse import SparseAllreduce as SparseAllreduce
from deep500.distributed.compression.sparse import sparse_all_reduce as sparse_all_reduce
from deep500.distributed.compression.topk import TopK as TopK
