"""Costs of graphs: `Analytic` by formula, the same everywhere, and `Measured` by timing what a backend does."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.transformations.substitutions.cost.analytic import Analytic as Analytic
    from deep500.transformations.substitutions.cost.deployments import Deployment as Deployment
    from deep500.transformations.substitutions.cost.deployments import deployment as deployment
    from deep500.transformations.substitutions.cost.deployments import deployment_names as deployment_names
    from deep500.transformations.substitutions.cost.measured import Measured as Measured
    from deep500.transformations.substitutions.cost.model import CostModel as CostModel
    from deep500.transformations.substitutions.cost.model import OutOfTime as OutOfTime
    from deep500.transformations.substitutions.cost.ranking import Remeasured as Remeasured
    from deep500.transformations.substitutions.cost.ranking import remeasure as remeasure
    from deep500.transformations.substitutions.cost.work import work_hash as work_hash

load_when_used(__name__)
