"""The names that ``import deep500 as d5`` shows. This is the one list of them: type checkers read it, and the package
loads a name from the module that stands here when the name is first used.

What README, documents and recipes use is here; everything else is one level down, in the modules of the first block:
``d5.metrics.PeakMemory``, ``d5.schemes.LocalSGD``, ``d5.schedules.WarmUp``, ``d5.errors.InputError``.
"""

from deep500 import distributed as distributed
from deep500 import errors as errors
from deep500 import measure as measure
from deep500 import metrics as metrics
from deep500 import networks as networks
from deep500 import operators as operators
from deep500 import tasks as tasks
from deep500.compare import compare_frameworks as compare_frameworks
from deep500.compare import compare_models as compare_models
from deep500.devices import CPUDevice as CPUDevice
from deep500.devices import GPUDevice as GPUDevice
from deep500.distributed import DistributedOptimizer as DistributedOptimizer
from deep500.distributed import schemes as schemes
from deep500.events import Event as Event
from deep500.events import StopTraining as StopTraining
from deep500.measure import measured as measured
from deep500.measure import region as region
from deep500.metrics import Metric as Metric
from deep500.metrics import TestAccuracy as TestAccuracy
from deep500.networks import GraphExecutor as GraphExecutor
from deep500.networks import Network as Network
from deep500.networks import add_loss as add_loss
from deep500.operators import CustomCPPOp as CustomCPPOp
from deep500.operators import CustomOp as CustomOp
from deep500.operators import CustomPythonOp as CustomPythonOp
from deep500.operators import check_op_forward as check_op_forward
from deep500.operators import check_op_gradient as check_op_gradient
from deep500.operators import compile_custom_cppop as compile_custom_cppop
from deep500.operators import compile_custom_cppop_inline as compile_custom_cppop_inline
from deep500.operators import load_plugin as load_plugin
from deep500.operators import measure_op as measure_op
from deep500.operators import register_op as register_op
from deep500.operators import test_op_forward as test_op_forward
from deep500.operators import test_op_gradient as test_op_gradient
from deep500.recipe.runner import run_recipe as run_recipe
from deep500.registry import load_backend as load_backend
from deep500.tensors import TensorDescriptor as TensorDescriptor
from deep500.tensors import tensordesc as tensordesc
from deep500.training import data as data
from deep500.training import optimizers as optimizers
from deep500.training import schedules as schedules
from deep500.training.check import test_training as test_training
from deep500.training.clipping import ClipGradientNorm as ClipGradientNorm
from deep500.training.data import Dataset as Dataset
from deep500.training.data import NumpyDataset as NumpyDataset
from deep500.training.data import load_dataset as load_dataset
from deep500.training.data.augmentation import Crop as Crop
from deep500.training.data.augmentation import Cutout as Cutout
from deep500.training.data.augmentation import Flip as Flip
from deep500.training.data.augmentation import Normalize as Normalize
from deep500.training.data.augmentation import Resize as Resize
from deep500.training.data.samplers import BucketSampler as BucketSampler
from deep500.training.data.samplers import ChoiceSampler as ChoiceSampler
from deep500.training.data.samplers import OrderedSampler as OrderedSampler
from deep500.training.data.samplers import Sampler as Sampler
from deep500.training.data.samplers import ShuffleSampler as ShuffleSampler
from deep500.training.optimizers import ThreeStepOptimizer as ThreeStepOptimizer
from deep500.training.optimizers import UpdateRuleOptimizer as UpdateRuleOptimizer
from deep500.training.trainer import Trainer as Trainer
from deep500.transformations.memory_planning import plan_memory as plan_memory
from deep500.transformations.microbatching import microbatch as microbatch
from deep500.transformations.recomputation import CheckpointingPlan as CheckpointingPlan
from deep500.transformations.recomputation import checkpointing_front as checkpointing_front
from deep500.transformations.recomputation import plan_checkpointing as plan_checkpointing
from deep500.transformations.substitutions import optimize_network as optimize_network
from deep500.transformations.substitutions import replay_history as replay_history
from deep500.transformations.substitutions import rewriting as rewriting

__version__: str
