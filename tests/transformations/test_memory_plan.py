"""Memory plans as files: what is read is what was saved; other networks and other files are refused."""

from __future__ import annotations

import json

import pytest

from deep500.errors import PlanError
from deep500.transformations.memory_plan import load_memory_plan
from deep500.transformations.memory_planning import plan_memory
from tests.transformations.test_memory_planning import BATCH, network_of


def test_a_plan_is_saved_and_read(tmp_path):
    plan = plan_memory(network_of("lenet"), 0.92, batch=BATCH)
    assert load_memory_plan(plan.save(tmp_path / "plan.json")) == plan
    with pytest.raises(PlanError, match="for which the memory plan was made"):
        plan.apply(network_of("mlp"))
    (tmp_path / "plan.json").write_text(json.dumps({"parts": 3}))
    with pytest.raises(PlanError, match="got no memory plan"):
        load_memory_plan(tmp_path / "plan.json")
