"""The names that ``import deep500 as d5`` shows. This is the one list of them: type checkers read it, and the package
loads a name from the module that stands here when the name is first used.

What README, documents and recipes use is here; everything else is one level down, in the modules of the first block:
``d5.metrics.PeakMemory``, ``d5.schemes.LocalSGD``, ``d5.schedules.WarmUp``, ``d5.errors.InputError``.
"""

from . import distributed as distributed
from . import errors as errors
from . import measure as measure
from . import metrics as metrics
from . import networks as networks
from . import operators as operators
from .compare import compare_frameworks as compare_frameworks
from .compare import compare_models as compare_models
from .devices import CPUDevice as CPUDevice
from .devices import GPUDevice as GPUDevice
from .distributed import DistributedOptimizer as DistributedOptimizer
from .distributed import schemes as schemes
from .events import Event as Event
from .events import StopTraining as StopTraining
from .measure import measured as measured
from .measure import region as region
from .metrics import Metric as Metric
from .metrics import TestAccuracy as TestAccuracy
from .networks import GraphExecutor as GraphExecutor
from .networks import Network as Network
from .networks import add_loss as add_loss
from .operators import CustomCPPOp as CustomCPPOp
from .operators import CustomOp as CustomOp
from .operators import CustomPythonOp as CustomPythonOp
from .operators import check_op_forward as check_op_forward
from .operators import check_op_gradient as check_op_gradient
from .operators import compile_custom_cppop as compile_custom_cppop
from .operators import compile_custom_cppop_inline as compile_custom_cppop_inline
from .operators import load_plugin as load_plugin
from .operators import measure_op as measure_op
from .operators import register_op as register_op
from .operators import test_op_forward as test_op_forward
from .operators import test_op_gradient as test_op_gradient
from .recipe import run_recipe as run_recipe
from .registry import load_backend as load_backend
from .tensors import TensorDescriptor as TensorDescriptor
from .tensors import tensordesc as tensordesc
from .training import data as data
from .training import optimizers as optimizers
from .training import schedules as schedules
from .training.check import test_training as test_training
from .training.clipping import ClipGradientNorm as ClipGradientNorm
from .training.data import Dataset as Dataset
from .training.data import NumpyDataset as NumpyDataset
from .training.data import load_dataset as load_dataset
from .training.data.augmentation import Crop as Crop
from .training.data.augmentation import Cutout as Cutout
from .training.data.augmentation import Flip as Flip
from .training.data.augmentation import Normalize as Normalize
from .training.data.augmentation import Resize as Resize
from .training.data.samplers import BucketSampler as BucketSampler
from .training.data.samplers import ChoiceSampler as ChoiceSampler
from .training.data.samplers import OrderedSampler as OrderedSampler
from .training.data.samplers import Sampler as Sampler
from .training.data.samplers import ShuffleSampler as ShuffleSampler
from .training.optimizers import ThreeStepOptimizer as ThreeStepOptimizer
from .training.optimizers import UpdateRuleOptimizer as UpdateRuleOptimizer
from .training.trainer import Trainer as Trainer
from .transformations.recomputation import CheckpointingPlan as CheckpointingPlan
from .transformations.recomputation import checkpointing_front as checkpointing_front
from .transformations.recomputation import plan_checkpointing as plan_checkpointing
from .transformations.substitutions import optimize_network as optimize_network
from .transformations.substitutions import replay_history as replay_history

__version__: str
