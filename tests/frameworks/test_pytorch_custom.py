"""Custom operators in PyTorch: autograd, torch.library, torch.compile, the compiled operators' short way, networks."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import deep500 as d5  # noqa: E402
import deep500.frameworks.pytorch as d5fw  # noqa: E402
from deep500.errors import InputError, OperatorError, UnsupportedOperator  # noqa: E402
from deep500.frameworks.pytorch import gpu  # noqa: E402
from deep500.tensors import TensorDescriptor  # noqa: E402
from tests.frameworks.compiled import Product  # noqa: E402
from tests.frameworks.torch_operators import CHOOSE, Cube, Marked, MulAdd, compile_cube, random  # noqa: E402

pytestmark = pytest.mark.backend("pytorch")
SCRIPT_IS_DEPRECATED = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
"""PyTorch's own, of make_dual."""

Function = Any  # of tensors, with attributes


@pytest.fixture(scope="module")
def choose() -> Function:
    inputs = [d5.tensordesc(("N", "M"), "float64"), d5.tensordesc(("N",), "int64")]
    outputs = [d5.tensordesc(("N",), "float64"), d5.tensordesc((), "int64")]
    return d5fw.custom_op(d5.compile_custom_cppop_inline("choose", CHOOSE, inputs, outputs))


@pytest.fixture(params=["python", "compiled"])
def cube(request: pytest.FixtureRequest) -> Function:
    """The cube in float64."""
    function = d5fw.custom_op(Cube() if request.param == "python" else compile_cube("float64"))
    assert function.implementation == {"python": "library", "compiled": "builtin"}[request.param]
    return function


# -- forward and gradient ---------------------------------------------------------------------------------------------
def test_forward_and_gradient(cube: Function) -> None:
    for x in (random(3, 4), random(4, 3).T, random(8)[::2], random(1, 4).expand(3, 4), random()):
        torch.testing.assert_close(cube(x), x**3)
        torch.testing.assert_close(cube(x.detach()), (x**3).detach())
    assert torch.autograd.gradcheck(cube, (random(3, 2),))
    for shape in ((3,), ()):
        x = random(*shape)
        cube(x).sum().backward()  # the gradient that comes in has strides of 0
        torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_several_inputs_and_outputs() -> None:
    function = d5fw.custom_op(MulAdd())
    x, w = random(3), random(3)
    assert torch.autograd.gradcheck(function, (x, w))
    function(x, w)[1].sum().backward()  # no gradient flows into the first output
    assert torch.equal(w.grad, torch.ones(3, dtype=torch.float64))


def test_integers_and_zero_copies(choose: Function) -> None:
    x, which = random(3, 4), torch.tensor([1, 0, 3])
    y, place = choose(x, which)
    assert torch.allclose(y, x.gather(1, which[:, None])[:, 0].exp())
    assert place.item() == x.data_ptr() and not place.requires_grad
    assert choose(x.detach(), which)[1].item() == x.data_ptr()
    assert choose(x.T.contiguous().T, which)[1].item() != x.data_ptr()
    assert torch.autograd.gradcheck(lambda x: choose(x, which)[0], (x,))
    seen: list[int] = []

    class Seen(d5.CustomPythonOp):
        def forward(self, inputs: Any) -> Any:
            seen.append(inputs[0].ctypes.data)
            return 2 * inputs[0]

    d5fw.custom_op(Seen())(x.detach())
    assert seen[-1] == x.data_ptr()


def test_only_wanted_gradients_are_computed() -> None:
    op = compile_cube("float64", inactive=[0], gradient="backward")
    x = random(3)
    w = random(3)
    (d5fw.custom_op(op)(x) * w).sum().backward()
    assert x.grad is None or not x.grad.any()
    assert torch.allclose(w.grad, x**3)
    (gradient,) = d5fw.custom_op(op).library.backward([x.detach()], [x.detach()], [x.detach()], [True])
    assert not gradient.any()


def test_aliases_of_inputs_are_copied() -> None:
    class Same(Cube):
        def forward(self, inputs: Any) -> Any:
            return [inputs[0], inputs[0][::-1], inputs[0].T]

    x = random(2, 3, grad=False)
    for y, want in zip(d5fw.custom_op(Same())(x), (x, x.flip(0), x.T), strict=True):
        assert torch.equal(y, want) and y.data_ptr() != x.data_ptr() and y.is_contiguous()


# -- what PyTorch asks of an operator ---------------------------------------------------------------------------------
def test_opcheck(cube: Function, choose: Function) -> None:
    x, which = random(3, 4), torch.tensor([1, 0, 3])
    torch.library.opcheck(cube.library.forward, ([x],))
    torch.library.opcheck(cube.library.backward, ([x.detach()], [x.detach()], [x.detach()], [True]))
    y, place = (t.detach() for t in choose(x, which))
    given = ([torch.ones_like(y), place], [x.detach(), which], [y, place])
    torch.library.opcheck(choose.library.backward, (*given, [True, False]))
    muladd = d5fw.custom_op(MulAdd()).library
    torch.library.opcheck(muladd.forward, ([x, x.detach()],))


def test_compile_without_graph_break(cube: Function) -> None:
    def work(x: Any, w: Any) -> Any:
        return (cube(x @ w).sin() * 2).sum()

    x, w = random(5, 3), random(3, 2)
    fast = torch.compile(work, fullgraph=True, backend="aot_eager")
    want = torch.autograd.grad(work(x, w), (x, w))
    got = torch.autograd.grad(fast(x, w), (x, w))
    assert all(torch.allclose(a, b) for a, b in zip(got, want, strict=True))


def test_dynamic_sizes_are_compiled_once(choose: Function) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    fast = torch.compile(lambda x, which: choose(x, which)[0] + 1, fullgraph=True, dynamic=True, backend=counter)
    for rows in (3, 5, 7):
        x, which = random(rows, 4, grad=False), torch.arange(rows) % 4
        assert torch.equal(fast(x, which), choose(x, which)[0] + 1)
    assert counter.frame_count == 1


def test_sizes_that_only_infer_knows_are_compiled_one_by_one() -> None:
    def same(inputs: Any) -> Any:  # as the plugins do it: what is not a number is not known
        return [TensorDescriptor("float64", tuple(d if isinstance(d, int) else None for d in inputs[0].shape))]

    function = d5fw.custom_op(compile_cube("float64", infer=same))
    fast = torch.compile(lambda x: function(x) + 1, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 5):
        x = random(rows, 2, grad=False)
        torch.testing.assert_close(fast(x), x**3 + 1)


def test_fake_tensors_and_modes_are_seen(cube: Function) -> None:
    meta = cube(torch.empty(2, 3, dtype=torch.float64, device="meta"))
    assert (meta.shape, meta.device.type) == ((2, 3), "meta")

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = random(3, grad=False)
    seen: list[str] = []
    cube(x)
    with Record():
        y = cube(x)
    assert any(name.startswith("deep500.") and "ube" in name for name in seen)
    assert torch.allclose(y, x**3)


def test_number_with_a_pending_sign(cube: Function) -> None:
    x = torch.tensor([1 + 2j], dtype=torch.complex128).conj().imag  # stored as +2
    assert x.is_neg() and [cube(x).item() for _ in range(2)] == [-8, -8]


def test_subclasses_keep_their_class(cube: Function) -> None:
    x = random(3, grad=False).as_subclass(Marked)
    assert [type(cube(x)) for _ in range(2)] == [Marked, Marked]


@SCRIPT_IS_DEPRECATED
def test_transformations_of_torch_func(cube: Function) -> None:
    x, w = random(3), random(3, grad=False)
    cube(x)
    gradient = torch.func.grad(lambda w: (cube(x) * w).sum())(w)  # around it, not through it
    torch.testing.assert_close(gradient.detach(), x.detach() ** 3)
    torch.testing.assert_close(torch.func.grad(lambda w: cube(w).sum())(w), 3 * w**2)
    many = torch.stack([w, 2 * w])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(lambda w: cube(w).sum()))(many), 3 * many**2)
    torch.testing.assert_close(torch.func.vmap(cube)(many), many**3)
    torch.testing.assert_close(torch.func.jacrev(cube)(w), torch.diag(3 * w**2))
    with pytest.raises(UnsupportedOperator, match=r"got tangents of forward mode.*gradient='enzyme'"):
        torch.func.jvp(cube, (w,), (w,))


@SCRIPT_IS_DEPRECATED
def test_forward_mode_and_hessians_of_torch_func() -> None:
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

    x, w, v, u = (random(3, grad=False) for _ in range(4))
    function = d5fw.custom_op(Product())

    def own(x: Any, w: Any) -> Any:
        return torch.sin(function(x, w)[0])

    def plain(x: Any, w: Any) -> Any:
        return torch.sin(x**3 * w)

    torch.testing.assert_close(jvp(own, (x, w), (v, u)), jvp(plain, (x, w), (v, u)))
    for transform in (
        lambda f: jacfwd(f, (0, 1))(x, w),
        lambda f: hessian(lambda *a: f(*a).sum(), (0, 1))(x, w),
        lambda f: jacrev(jacrev(lambda *a: f(*a).sum(), (0, 1)), (0, 1))(x, w),
        lambda f: grad(lambda x: jvp(lambda x: f(x, w).sum(), (x,), (v,))[1])(x),  # reverse over forward
        lambda f: vmap(lambda x: jvp(lambda x: f(x, w), (x,), (v,))[1])(torch.stack([x, u])),
    ):
        torch.testing.assert_close(transform(own), transform(plain))
    with pytest.raises(UnsupportedOperator, match="at most forward mode over reverse mode"):
        jacfwd(jacfwd(own))(x, w)


@SCRIPT_IS_DEPRECATED
@pytest.mark.parametrize("kind", ["hvp", "vhp", "jvp", "hessian"])
def test_products_of_torch_autograd_functional(kind: str) -> None:
    """They differentiate a gradient along what arrives at it, which without derivatives there is zero, unsaid."""
    product = getattr(torch.autograd.functional, kind)
    x, w, v, u = (random(3, grad=False) for _ in range(4))
    function = d5fw.custom_op(Product())
    along = () if kind == "hessian" else ((v, u),)
    total = (lambda f: f) if kind == "jvp" else (lambda f: lambda *a: f(*a).sum())
    got = product(total(lambda x, w: torch.sin(function(x, w)[0])), (x, w), *along)
    torch.testing.assert_close(got, product(total(lambda x, w: torch.sin(x**3 * w)), (x, w), *along))


@SCRIPT_IS_DEPRECATED
def test_a_third_derivative_is_refused_where_it_is_read() -> None:
    x, w = random(3), random(3)
    function = d5fw.custom_op(Product())
    (first,) = torch.autograd.grad(function(x, w)[0].sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    torch.testing.assert_close(second, 6 * x * w)
    with pytest.raises(UnsupportedOperator, match="or a third derivative"):
        torch.autograd.grad(second.sum(), x)


def test_inference_mode_and_empty_tensors(cube: Function) -> None:
    with torch.inference_mode():
        assert cube(random(2, grad=False)).is_inference()
    x = random(0, 3)
    cube(x).sum().backward()
    assert x.grad.shape == (0, 3)


# -- what goes wrong --------------------------------------------------------------------------------------------------
def test_wrong_calls(cube: Function, choose: Function) -> None:
    if cube.implementation == "builtin":
        with pytest.raises(InputError, match="got dtype float32; expected float64"):
            cube(torch.zeros(3))
        with pytest.raises(InputError, match="got 2 inputs; expected 1"):
            cube(random(2), random(2))
    for wrong in (1.5, None, np.zeros(3)):
        with pytest.raises(InputError, match="expected a tensor"):
            cube(wrong)
    with pytest.raises(InputError, match=r"got int64\[4\]; expected int64\[N\]"):
        choose(random(3, 4), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(OperatorError, match="no such column"):
        choose(random(3, 4), torch.tensor([0, 9, 0]))
    elsewhere = torch.empty(2, device="meta")
    with pytest.raises(InputError, match=r"got tensors on meta; expected the processor's: move them with .cpu\(\)"):
        gpu.common_device(cube.op, [elsewhere])
    with pytest.raises(InputError, match="got tensors on cpu, meta; expected all on one device"):
        gpu.common_device(cube.op, [elsewhere, torch.empty(2)])
    with pytest.raises(InputError, match="expected a CustomOp"):
        d5fw.custom_op(torch.tanh)


def test_wrong_calls_of_the_gradient(choose: Function) -> None:
    x, which = random(3, 4, grad=False), torch.tensor([1, 0, 3])
    y, place = choose(x, which)
    good: list[Any] = [[torch.ones_like(y), place], [x, which], [y, place], [True, False]]
    assert len(choose.library.backward(*good)) == 1
    for group, what in ((0, "output gradient 0"), (2, "output 0")):
        for wrong in (random(2, grad=False), torch.ones(3)):
            bad = [[wrong, place] if i == group else tensors for i, tensors in enumerate(good)]
            with pytest.raises(InputError, match=f"{what}: got float.*; expected float64"):
                choose.library.backward(*bad)


@pytest.mark.gpu
def test_gpu_tensors_are_refused(cube: Function) -> None:
    with pytest.raises(InputError, match=r"got tensors on cuda:0; expected the processor's"):
        cube(random(3).cuda())


def test_no_gradient() -> None:
    class Forward(d5.CustomPythonOp):
        def forward(self, inputs: Any) -> Any:
            return 2 * inputs[0]

    functions = [d5fw.custom_op(Forward()), d5fw.custom_op(compile_cube("float64", gradient=None))]
    for function in functions:
        y = function(random(3))
        with pytest.raises(UnsupportedOperator, match="expected one that has a backward"):
            y.sum().backward()


def test_outputs_whose_size_depends_on_values() -> None:
    class Positive(d5.CustomPythonOp):
        def forward(self, inputs: Any) -> Any:
            return inputs[0][inputs[0] > 0]

    x = torch.tensor([1.0, -1.0, 2.0])
    with pytest.raises(InputError, match=r"got output 0 of float32 \(2,\) from forward; expected float32\[3\]"):
        d5fw.custom_op(Positive())(x)
    described = Positive()
    described.output_descriptors = (d5.tensordesc((None,)),)
    assert d5fw.custom_op(described)(x).tolist() == [1, 2]
    with pytest.raises(UnsupportedOperator, match="got outputs of unknown size for float32"):
        d5fw.custom_op(described)(x.to("meta"))


@SCRIPT_IS_DEPRECATED
def test_second_gradients_and_forward_mode(cube: Function) -> None:
    x = random(3)
    (first,) = torch.autograd.grad(cube(x).sum(), x, create_graph=True)
    with pytest.raises(UnsupportedOperator, match="gradient of its gradient"):
        first.sum().backward()

    class Twice(Cube):  # what operators have whose gradient Enzyme made
        signature: ClassVar = {"jvp": True, "hvp": True}

        def jvp(self, inputs: Any, tangents: Any) -> Any:
            return [self.forward(inputs)], [3 * inputs[0] ** 2 * tangents[0]]

        def hvp(self, grads: Any, inputs: Any, tangents: Any) -> Any:
            return [6 * grads[0] * inputs[0] * tangents[0]]

    assert torch.autograd.gradgradcheck(d5fw.custom_op(Twice()), (x,))
    assert torch.autograd.gradcheck(d5fw.custom_op(Twice()), (x,), check_forward_ad=True)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
        with pytest.raises(UnsupportedOperator, match="got tangents of forward mode"):
            cube(dual)
        torch.testing.assert_close(cube(x.detach()), x.detach() ** 3)


# -- torch functions as operators -------------------------------------------------------------------------------------
def test_native_functions() -> None:
    op = d5fw.custom_op_from_native(torch.nn.functional.embedding)
    which, table = np.array([2, 0, 2]), np.random.default_rng(0).normal(size=(3, 4))
    assert np.array_equal(op(which, table), table[which])
    inputs = [d5.tensordesc((3,), "int64"), d5.tensordesc((3, 4), "float64")]
    assert [str(d) for d in op.infer(inputs)] == ["float64[3x4]"]
    none, grad = op.backward([np.ones((3, 4))], [which, table], [table[which]])
    assert none is None and grad[:, 0].tolist() == [1, 0, 2]
    layer = torch.nn.Linear(4, 2, dtype=torch.float64)
    assert d5.check_op_gradient(d5fw.custom_op_from_native(layer), [table]).ok
    x = torch.from_numpy(table)
    assert torch.equal(d5fw.custom_op(d5fw.custom_op_from_native(layer))(x), layer(x))
    assert str(d5fw.desc_from_tensor(torch.zeros(2, 3, dtype=torch.bfloat16))) == "bfloat16[2x3]"


def test_why_the_compiler_derived_no_more_is_said() -> None:
    """A build leaves out what its check refuses, with the reason; a cure that was followed already is none."""

    class First(Cube):
        signature: ClassVar = {"jvp": False, "no_jvp": "NaN at an extreme input", "hvp": False}

    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(
        UnsupportedOperator, match=r"tangents of forward mode.*derived none \(NaN at an extreme input\)$"
    ):
        torch.func.jvp(d5fw.custom_op(First()), (x.detach(),), (x.detach(),))
    with pytest.raises(
        UnsupportedOperator, match=r"gradient of its gradient.*derived none \(NaN at an extreme input\)$"
    ):
        torch.autograd.functional.hessian(lambda x: d5fw.custom_op(First())(x).sum(), x)
