"""One gradient rule per operator, by family; :mod:`deep500.networks.gradients.autodiff` applies them."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used
from deep500.registry import import_modules

if TYPE_CHECKING:
    from deep500.networks.gradients.rules.context import GradContext as GradContext
    from deep500.networks.gradients.rules.context import Value as Value
    from deep500.networks.gradients.rules.registry import FLAT as FLAT
    from deep500.networks.gradients.rules.registry import RULES as RULES
    from deep500.networks.gradients.rules.registry import ZERO as ZERO
    from deep500.networks.gradients.rules.registry import GradientRule as GradientRule
    from deep500.networks.gradients.rules.registry import gradient_rule as gradient_rule

load_when_used(__name__)
import_modules(__name__)
