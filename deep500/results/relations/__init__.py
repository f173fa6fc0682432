"""Relations between the facts of a run's folder: their declaration in :mod:`deep500.results.relations.declaring`, and,
by subject, all that are declared."""

from __future__ import annotations

from deep500.results.relations import clocks, figures, launches, networks, setup, training  # noqa: F401 - they declare
from deep500.results.relations.declaring import RELATIONS as RELATIONS
from deep500.results.relations.declaring import findings as findings
from deep500.results.relations.declaring import leaves as leaves
from deep500.results.relations.declaring import matches as matches
from deep500.results.relations.declaring import unjudged as unjudged
