"""Every module's test is found by its name or in tests/where.py, and every line there is needed and true."""

from __future__ import annotations

from tests import where


def test_every_module_has_its_test() -> None:
    modules = where.modules()
    assert len(modules) > 400
    lost = {module: where.by_name(module) for module in modules if where.test_of(module) is None}
    assert not lost, f"expected these tests, or lines in tests/where.py: {lost}"
    absent = {test for module in modules if not (where.ROOT / (test := str(where.test_of(module)))).is_file()}
    assert not absent, f"got names of tests that do not exist: {absent}"


def test_every_line_of_the_table_has_a_module() -> None:
    used = {where.line_of(module) for module in where.modules() if where.test_of(module) != where.by_name(module)}
    idle = [(folder, names) for folder, lines in where.TABLE.items() for names in lines if (folder, names) not in used]
    assert not idle, f"got lines that no module needs: {idle}"


def test_names_before_the_table() -> None:
    assert where.by_name("deep500/recipe/schema.py") == "tests/recipes/test_schema.py"
    assert where.test_of("frameworks/pytorch/native.py") == "tests/frameworks/test_pytorch_native.py"
    assert where.test_of("frameworks/jax/operators/flow.py") == "tests/conformance/test_conformance.py"
    assert where.test_of("deep500/compare/unheard/of.py") is None
