"""Optimizers written once for all frameworks, and the base classes for more.

The table in ``docs/training.md`` says which variant each of them is. For one's own: `UpdateRuleOptimizer` needs an
`update_rule` only, `ThreeStepOptimizer` has all three steps, `Optimizer` is the base of both and of native ones;
`hyperparameter` declares a default with a range.
"""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.training.optimizers.accelegrad import AcceleGradOptimizer as AcceleGradOptimizer
    from deep500.training.optimizers.adafactor import AdafactorOptimizer as AdafactorOptimizer
    from deep500.training.optimizers.adam import AdamOptimizer as AdamOptimizer
    from deep500.training.optimizers.adam import AdamWOptimizer as AdamWOptimizer
    from deep500.training.optimizers.adaptive import AdaGradOptimizer as AdaGradOptimizer
    from deep500.training.optimizers.adaptive import RMSPropOptimizer as RMSPropOptimizer
    from deep500.training.optimizers.ademamix import AdEMAMixOptimizer as AdEMAMixOptimizer
    from deep500.training.optimizers.amsgrad import AMSGradOptimizer as AMSGradOptimizer
    from deep500.training.optimizers.base import Optimizer as Optimizer
    from deep500.training.optimizers.base import ThreeStepOptimizer as ThreeStepOptimizer
    from deep500.training.optimizers.base import UpdateRuleOptimizer as UpdateRuleOptimizer
    from deep500.training.optimizers.descent import GradientDescent as GradientDescent
    from deep500.training.optimizers.descent import MomentumOptimizer as MomentumOptimizer
    from deep500.training.optimizers.hyperparameters import hyperparameter as hyperparameter
    from deep500.training.optimizers.lamb import LAMBOptimizer as LAMBOptimizer
    from deep500.training.optimizers.lars import LARSOptimizer as LARSOptimizer
    from deep500.training.optimizers.lion import LionOptimizer as LionOptimizer
    from deep500.training.optimizers.masking import cautious as cautious
    from deep500.training.optimizers.muon import MuonOptimizer as MuonOptimizer
    from deep500.training.optimizers.nadam import NAdamOptimizer as NAdamOptimizer
    from deep500.training.optimizers.nadam_algoperf import AlgoPerfNAdamOptimizer as AlgoPerfNAdamOptimizer
    from deep500.training.optimizers.nadam_algoperf import NAdamWOptimizer as NAdamWOptimizer
    from deep500.training.optimizers.prodigy import ProdigyOptimizer as ProdigyOptimizer
    from deep500.training.optimizers.schedule_free import ScheduleFree as ScheduleFree
    from deep500.training.optimizers.schedule_free import ScheduleFreeAdamWOptimizer as ScheduleFreeAdamWOptimizer
    from deep500.training.optimizers.schedule_free import ScheduleFreeSGDOptimizer as ScheduleFreeSGDOptimizer
    from deep500.training.optimizers.slow_weights import lookahead as lookahead
    from deep500.training.optimizers.soap import SOAPOptimizer as SOAPOptimizer

load_when_used(__name__)
