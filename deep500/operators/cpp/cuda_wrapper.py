"""The part of a wrapper that is CUDA's: exports that take device pointers and a stream, and calls through copies.

``d500_forward_cuda(instance, inputs, outputs, stream)`` and ``d500_backward_cuda(instance, grads, inputs, outputs,
input_grads, stream)`` take pointers on the device and return before the work is done, as CUDA does. ``d500_forward``
and ``d500_backward`` take pointers on the host, like those of every operator: they call the class's ``forward`` and
``backward`` where it has them, else they copy to the device and back.
"""

from __future__ import annotations

from collections.abc import Mapping

from deep500.operators.cpp.spec import CPP_TYPES, BuildSpec

GROUPS = {
    "forward": (("const void *const *", "inputs"), ("void *const *", "outputs")),
    "backward": (
        ("const void *const *", "grads"),
        ("const void *const *", "inputs"),
        ("const void *const *", "outputs"),
        ("void *const *", "input_grads"),
    ),
}
"""Arrays of pointers that each export takes; the last is written to."""


def cuda_checks(types: Mapping[str, str]) -> str:
    """The checks of ``forward_cuda``, which must be there, and ``backward_cuda``, from the arguments' types."""
    checks = []
    for method, needed in (("forward", "true"), ("backward", "d500_detail::has_backward_cuda<d500_op>::value")):
        checks.append(f"""
typedef d500_detail::list<{types[method]}, cudaStream_t> d500_{method}_cuda_arguments;
static_assert(sizeof(d500_detail::{method}_cuda_check<d500_op,
    !{needed} || d500_detail::{method}_cuda_takes<d500_op, d500_{method}_cuda_arguments>::value,
    d500_detail::{method}_cuda_of<d500_op>::type>), "");
""")
    return "".join(checks)


def cuda_source(spec: BuildSpec, method: str, arguments: str) -> str:
    """The exports of one method.

    Args:
        method: ``forward`` or ``backward``.
        arguments: casts from the arrays of pointers to what the method takes.
    """
    groups = GROUPS[method]
    taken = ", ".join(f"{kind}{name}" for kind, name in groups)
    names = ", ".join(name for _, name in groups)
    return f"""
template <class Op>
static int d500_start_{method}(d500_detail::instance<Op> &held, {taken}, cudaStream_t stream) {{
  if constexpr (d500_detail::has_{method}_cuda<Op>::value)
    return d500_detail::launched([&] {{ return held.op->{method}_cuda({arguments}, stream); }});
  else  // there is no gradient to ask for, or it is on the processor only
    throw std::runtime_error("it has no {method}_cuda");
}}

template <class Op> static int d500_run_{method}(void *instance, {taken}) {{
  return d500_detail::guarded("{method}", [&] {{
    auto &held = d500_detail::opened<Op>(instance);
    if constexpr (d500_detail::{method}_takes<Op, d500_{method}_arguments>::value) {{
      return d500_scratched(*held.op, [&](auto... scratch) {{ return held.op->{method}({arguments}, scratch...); }});
    }} else {{
      d500_detail::device_arrays device;
{_copies(spec, method)}
    }}
  }});
}}

D500_API int d500_{method}(void *instance, {taken}) {{ return d500_run_{method}<d500_op>(instance, {names}); }}

D500_API int d500_{method}_cuda(void *instance, {taken}, void *stream) {{
  return d500_detail::guarded("{method}_cuda", [&] {{
    auto &held = d500_detail::opened<d500_op>(instance);
    return d500_start_{method}<d500_op>(held, {names}, static_cast<cudaStream_t>(stream));
  }});
}}
"""


def _copies(spec: BuildSpec, method: str) -> str:
    """Device copies of every array, the call, and the copies back."""
    first = len(spec.inputs)
    bytes_of = {
        "inputs": [f"sizeof({CPP_TYPES[t]}) * held.counts[{i}]" for i, t in enumerate(spec.inputs)],
        "outputs": [f"sizeof({CPP_TYPES[t]}) * held.counts[{first + i}]" for i, t in enumerate(spec.outputs)],
    }
    bytes_of |= {"grads": bytes_of["outputs"], "input_grads": bytes_of["inputs"]}
    *read, (_, written) = GROUPS[method]
    lines = []
    for kind, name in GROUPS[method]:
        source = "nullptr" if name == written else f"{name}[{{}}]"
        made = ", ".join(f"device.add({size}, {source.format(i)})" for i, size in enumerate(bytes_of[name]))
        lines.append(f"{kind.removesuffix('*').rstrip()} device_{name}[] = {{{made}}};")
    passed = ", ".join(f"device_{name}" for _, name in (*read, GROUPS[method][-1]))
    lines.append(f"const int status = d500_start_{method}<Op>(held, {passed}, nullptr);")
    for i, size in enumerate(bytes_of[written]):
        lines.append(f"d500_detail::device_arrays::fetch({written}[{i}], device_{written}[{i}], {size});")
    return "\n".join(f"      {line}" for line in [*lines, "return status;"])
