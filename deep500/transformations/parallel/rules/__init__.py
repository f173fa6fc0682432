"""Rules: which factors an operator has. A new rule is one function; tests judge it against the serial operator."""

from deep500.transformations.parallel.rules import contractions, elementwise, movement, reductions, windows
from deep500.transformations.parallel.rules.registry import SHARDING_RULES, sharding_rule

__all__ = ["SHARDING_RULES", "contractions", "elementwise", "movement", "reductions", "sharding_rule", "windows"]
