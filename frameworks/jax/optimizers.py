"""The optimizers of all backends, whose rules ``updates.py`` compiles, under the names of this backend's own of old."""

from deep500.training.optimizers import AdaGradOptimizer as AdaGradOptimizer
from deep500.training.optimizers import AdamOptimizer as AdamOptimizer
from deep500.training.optimizers import AdamWOptimizer as AdamWOptimizer
from deep500.training.optimizers import GradientDescent as GradientDescent
from deep500.training.optimizers import MomentumOptimizer as MomentumOptimizer
from deep500.training.optimizers import RMSPropOptimizer as RMSPropOptimizer
from deep500.training.optimizers import UpdateRuleOptimizer

NativeOptimizer = UpdateRuleOptimizer
