"""Optimizers written once for all frameworks, and the base classes for more."""

from deep500.training.optimizers.accelegrad import AcceleGradOptimizer as AcceleGradOptimizer
from deep500.training.optimizers.adam import AdamOptimizer as AdamOptimizer
from deep500.training.optimizers.adam import AdamWOptimizer as AdamWOptimizer
from deep500.training.optimizers.adaptive import AdaGradOptimizer as AdaGradOptimizer
from deep500.training.optimizers.adaptive import RMSPropOptimizer as RMSPropOptimizer
from deep500.training.optimizers.base import Optimizer as Optimizer
from deep500.training.optimizers.base import ThreeStepOptimizer as ThreeStepOptimizer
from deep500.training.optimizers.base import UpdateRuleOptimizer as UpdateRuleOptimizer
from deep500.training.optimizers.descent import GradientDescent as GradientDescent
from deep500.training.optimizers.descent import MomentumOptimizer as MomentumOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter as hyperparameter
