"""Graph substitutions: networks rewritten by proved rules into networks that compute the same faster.

``operators`` holds one specification per operator; ``rules`` the pattern language, the file of proved rules, and where
they match; ``graph`` is a network in the rule language, imported, rewritten and written back; ``cost`` prices it and
``search`` rewrites it; ``equivalence`` checks the result. `optimize_network` does all of this. How the rules are made
is the business of `deep500.transformations.workshop.substitutions`, which nothing here imports.
"""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.transformations.substitutions.equivalence import NotEquivalent as NotEquivalent
    from deep500.transformations.substitutions.optimize import optimize_network as optimize_network
    from deep500.transformations.substitutions.optimize import replay_history as replay_history
    from deep500.transformations.substitutions.result import History as History
    from deep500.transformations.substitutions.result import Optimized as Optimized
    from deep500.transformations.substitutions.weights import merged_weights as merged_weights
    from deep500.transformations.substitutions.weights import original_weights as original_weights
    from deep500.transformations.substitutions.weights import weight_places as weight_places

load_when_used(__name__)
