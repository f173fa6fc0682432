"""Graph substitutions: rewrite rules of networks, generated from operator specifications and proved from axioms.

``operators`` holds one specification per operator; ``generate`` finds candidate rules by evaluating all small
expressions in finite fields; ``axioms`` and ``prove`` decide which of them hold; ``lift`` makes them general and
``library`` writes the file of rules that `optimize_network` loads. ``graph`` is a network in the rule language,
``cost`` prices it, ``search`` rewrites it.
"""

from deep500.transformations.substitutions.equivalence import NotEquivalent as NotEquivalent
from deep500.transformations.substitutions.optimize import optimize_network as optimize_network
from deep500.transformations.substitutions.optimize import replay_history as replay_history
from deep500.transformations.substitutions.result import History as History
from deep500.transformations.substitutions.result import Optimized as Optimized
