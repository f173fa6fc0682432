"""The gradient section of an Enzyme operator's C++ text: ``d500_backward``, ``d500_jvp`` and ``d500_hvp``.

Enzyme's rules for buffers are kept here, so that no other file needs to know them: the shadow of an input is added to
and must start at zero; the shadow of an output is used up, so it is a private copy; an output's own buffer must be real
although what is written to it is not used. Scratch space has a shadow too. Integers and inactive inputs have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep500.errors import InputError
from deep500.operators.cpp.spec import CPP_TYPES, FLOATING, TENSOR_TYPES, BuildSpec
from deep500.operators.enzyme.loops import PROMISE


@dataclass(frozen=True)
class Tensor:
    """One argument of forward: C++ type, place among inputs or outputs, place in the instance's counts."""

    kind: str
    index: int
    count: str
    active: bool


SORTING = """
#if defined(_LIBCPP___ALGORITHM_SORT_H)
// libc++ keeps std::sort of numbers in its library, where Enzyme does not see it; with an order of its own it is a
// template.
namespace std { inline namespace _LIBCPP_ABI_NAMESPACE {
template <class Less, class Place> void __sort(Place first, Place last, Less) {
  std::sort(first, last, [](const auto &a, const auto &b) { return a < b; });
}
template void __sort<__less<float> &, float *>(float *, float *, __less<float> &);
template void __sort<__less<double> &, double *>(double *, double *, __less<double> &);
} }
#endif
"""


def gradient_source(spec: BuildSpec, fields: Mapping[str, Any]) -> str:
    """C++ that defines the exports of derivatives and the signature, to follow ``d500_primal`` of the same operator.

    The macros ``D500_NO_JVP`` and ``D500_NO_HVP`` leave tensor out; their text, which JSON can hold, says why.

    Args:
        spec: the operator; ``inactive`` names inputs without a gradient, integers need not be named.
        fields: what the signature says of forward.

    Raises:
        InputError: no input, or no output, could have a gradient.
    """
    x = [Tensor(CPP_TYPES[t], i, f"n[{i}]", is_active(spec, i)) for i, t in enumerate(spec.inputs)]
    first = len(x)
    y = [Tensor(CPP_TYPES[t], i, f"n[{first + i}]", t in FLOATING) for i, t in enumerate(spec.outputs)]
    if not any(tensor.active for tensor in x) or not any(tensor.active for tensor in y):
        raise InputError(
            f"C++ operator {spec.name!r}: got gradient='enzyme' with inputs {spec.inputs} (inactive: {spec.inactive}) "
            f"and outputs {spec.outputs}; expected a floating-point input and output that are active: use gradient=None"
        )
    scratch = CPP_TYPES[spec.dtype]
    parts = [
        '#include "deep500/enzyme.h"',
        *([SORTING] if _sorts(spec) else []),
        _part(x, y),
        _surrogate(x, y),
        *(_reverse(x, y, scratch, has, knows) for has in (False, True) for knows in (False, True)),
    ]
    optional = [_optional("jvp", _jvp(x, y, scratch)), _optional("hvp", _hvp(x, y, scratch))]
    backward = [_backward(x, y, scratch), _export_of_backward(x, y, [*spec.inputs, *spec.outputs], spec.openmp)]
    return "\n".join([*parts, *backward, *optional, _signature(spec, fields), ""])


def _sorts(spec: BuildSpec) -> bool:
    """Whether the operator's source speaks of sorting: others need not wait until that is compiled."""
    paths = [Path(path) for path in (*([spec.file] if spec.file else []), *spec.other_files)]
    paths = [path for path in paths if path.suffix not in (".o", ".a", ".so")]
    texts = [spec.source or "", *(path.read_text(encoding="utf-8", errors="replace") for path in paths)]
    return any("sort" in text for text in texts)


def _signature(spec: BuildSpec, fields: Mapping[str, Any]) -> str:
    known = json.dumps(json.dumps({**fields, "backward": True, "check": spec.check})[:-1])
    return f"""
D500_API const char *d500_signature(void) {{ return {known} D500_HAS_JVP D500_HAS_HVP "}}"; }}"""


def _export_of_backward(x: list[Tensor], y: list[Tensor], types: Sequence[str], openmp: bool) -> str:
    """The export of the gradient. That of an element-wise operator is taken element by element."""
    arguments = ", ".join(
        [
            *(f"static_cast<const {t.kind} *>(inputs[{t.index}])" for t in x),
            *(f"dx{i}" for i, _, _ in _active(x)),
            *(f"static_cast<const {kind} *>(grads[{i}])" for i, kind, _ in _active(y)),
            *(f"static_cast<const {t.kind} *>(outputs[{t.index}])" for t in y),
        ]
    )
    taken = "\n    ".join(
        f"auto *const dx{i} = wanted[{i}] ? static_cast<{kind} *>(wanted[{i}]) : space.take<{kind}>(n[0]);"
        for i, kind, _ in _active(x)
    )
    room = " + ".join(f"(wanted[{i}] ? 0 : d500_detail::room<{kind}>(n[0]))" for i, kind, _ in _active(x))
    return f"""
{_reverse_each(x, y, types)}
template <class Op> static int d500_backward_by_element(void *instance, const void *const *grads,
    const void *const *inputs, const void *const *outputs, void *const *wanted) {{
  const std::size_t *const n = static_cast<d500_detail::instance<Op> *>(instance)->counts.data();
  for (int t = 0; t < {len(x) + len(y)}; ++t)
    if (n[t] != n[0]) return d500_run_backward<Op>(instance, grads, inputs, outputs, wanted);
  return d500_detail::guarded("backward", [&] {{
    d500_detail::require(grads, n + {len(x)}, {len(y)}, "output gradient");
    d500_detail::require(inputs, n, {len(x)}, "input");
    if (d500_detail::stands_in<Op>::value) d500_detail::require(outputs, n + {len(x)}, {len(y)}, "output");
    d500_detail::workspace space({room});
    {taken}
    d500_reverse_each<Op>(n[0], {arguments});
  }});
}}
D500_API int d500_backward(void *instance, const void *const *grads, const void *const *inputs,
                           const void *const *outputs, void *const *wanted) {{
  if constexpr (d500_detail::is_elementwise<d500_op>::value && !d500_detail::has_scratch<d500_op>::value &&
                {"false" if openmp else "true"}) {{  // threads would each get too little
    if (instance) return d500_backward_by_element<d500_op>(instance, grads, inputs, outputs, wanted);
  }}
  return d500_run_backward<d500_op>(instance, grads, inputs, outputs, wanted);
}}"""


def _reverse_each(x: list[Tensor], y: list[Tensor], types: Sequence[str]) -> str:
    """The function that takes each element by itself, with an operator of that size, made here.

    Shadows must be set to zero and copied before, which for whole arrays would double the way to memory and back; those
    of one element are registers. The loop is not Enzyme's, and becomes vector code.
    """
    active_x, active_y = [t for t in x if t.active], [t for t in y if t.active]
    parameters = [
        *(f"const {t.kind} *__restrict__ x{t.index}" for t in x),
        *(f"{t.kind} *__restrict__ dx{t.index}" for t in active_x),
        *(f"const {t.kind} *__restrict__ dy{t.index}" for t in active_y),
        *(f"const {t.kind} *__restrict__ known{t.index}" for t in y),
    ]
    local = [
        *(f"{t.kind} sx{t.index}[1] = {{}};" for t in active_x),
        *(f"{t.kind} sy{t.index}[1];" for t in y),
        *(f"{t.kind} sdy{t.index}[1] = {{dy{t.index}[i]}};" for t in active_y),
    ]
    read = [f"enzyme_dup, x{t.index} + i, sx{t.index}" if t.active else f"enzyme_const, x{t.index} + i" for t in x]
    known = [f"enzyme_const, known{t.index} + i" for t in y]
    written = [f"enzyme_dupnoneed, sy{t.index}, sdy{t.index}" if t.active else f"enzyme_const, sy{t.index}" for t in y]
    back = "\n    ".join(f"dx{t.index}[i] = *sx{t.index};" for t in active_x)
    tensors = ", ".join(f"{{deep500::{TENSOR_TYPES[t]}, deep500::TORD_IRRELEVANT, 1, size}}" for t in types)
    return f"""
template <class Op> __attribute__((noinline)) static void d500_reverse_each(std::size_t n, {", ".join(parameters)}) {{
  uint32_t size[1] = {{1}};
  deep500::tensor_t made_of[] = {{{tensors}}};
  Op *const op = d500_factory<Op, deep500::tensor_t>::make(made_of, {len(x)}, made_of + {len(x)}, {len(y)});
  for (std::size_t i = 0; i < n; ++i) {{
    {" ".join(local)}
    if constexpr (d500_detail::stands_in<Op>::value)
      __enzyme_autodiff<void>((void *)d500_surrogate<Op>, D500_ZEROS enzyme_const, op,
                              {", ".join([*read, *known, *written])});
    else
      __enzyme_autodiff<void>((void *)d500_primal<Op>, D500_ZEROS enzyme_const, op, {", ".join([*read, *written])});
    {back}
  }}
  delete op;
}}"""


def _optional(name: str, source: str) -> str:
    """A derivative that a macro leaves out."""
    return f"""
#ifdef D500_NO_{name.upper()}
#define D500_HAS_{name.upper()} ", \\"{name}\\": false, \\"no_{name}\\": \\"" D500_NO_{name.upper()} "\\""
#else
#define D500_HAS_{name.upper()} ", \\"{name}\\": true"
{source}
#endif"""


def is_active(spec: BuildSpec, index: int) -> bool:
    """Whether an input gets a gradient."""
    return spec.inputs[index] in FLOATING and index not in spec.inactive


def _reverse(x: list[Tensor], y: list[Tensor], scratch: str, has: bool, knows: bool) -> str:
    """A function around the reverse pass: of forward, or of the surrogate that ``knows`` forward's results.

    That of forward is what the Hessian-vector product differentiates once more. It is not inlined: within a try block
    the call would become an invoke, which Enzyme does not look for.
    """
    taken = ["Op *op"]
    for name, tensors, const in (("x", x, "const "), ("y", y, "")):
        for tensor in tensors:
            taken.append(f"{const}{tensor.kind} *__restrict__ {name}{tensor.index}")
            mark = f" __attribute__((align_value(alignof({tensor.kind}))))" if name == "y" else ""
            taken += [f"{tensor.kind} *__restrict__{mark} d{name}{tensor.index}"] * tensor.active
    passed = [*_pairs("x", "dx", x), *_pairs("y", "dy", y, "enzyme_dupnoneed")]
    if knows:
        taken += [f"const {t.kind} *__restrict__ known{t.index}" for t in y]
        # in a surrogate's signature they stand between inputs and outputs
        passed[len(x) : len(x)] = [f"enzyme_const, known{t.index}" for t in y]
    if has:
        taken += [f"{scratch} *__restrict__ s", f"{scratch} *__restrict__ ds"]
        passed.append("enzyme_dup, s, ds")
    kinds = f"<Op, {scratch} *>" if has else "<Op>"
    arguments = ", ".join(passed)
    part, whole = ("d500_surrogate_part", "d500_surrogate") if knows else ("d500_part", "d500_primal")
    return f"""
template <class Op> __attribute__((noinline)) static void {_name(has, knows)}({", ".join(taken)}) {{
  if constexpr (d500_detail::has_parts<Op>::value) {{
    const std::size_t parts = op->parts();
    for (std::size_t part = 0; part < parts; ++part)
      __enzyme_autodiff<void>((void *){part}{kinds}, D500_ZEROS enzyme_const, op, enzyme_const, part, {arguments});
  }} else {{
    __enzyme_autodiff<void>((void *){whole}{kinds}, D500_ZEROS enzyme_const, op, {arguments});
  }}
}}"""


def _part(x: list[Tensor], y: list[Tensor]) -> str:
    """One part of forward as a plain function: what the next overwrites need not be kept."""
    taken = [f"const {t.kind} *__restrict__ x{t.index}" for t in x]
    taken += [f"{t.kind} *__restrict__ y{t.index}" for t in y]
    names = ", ".join([*(f"x{t.index}" for t in x), *(f"y{t.index}" for t in y)])
    return f"""
template <class Op, class... S>
static void d500_part(Op *op, std::size_t number, {", ".join(taken)}, S __restrict__... scratch) {{
  op->part(number, {names}, scratch...);
}}"""


def _surrogate(x: list[Tensor], y: list[Tensor]) -> str:
    """The operator's surrogate as plain functions, whole and in parts."""
    taken = [f"const {t.kind} *__restrict__ x{t.index}" for t in x]
    taken += [f"const {t.kind} *__restrict__ known{t.index}" for t in y]
    taken += [f"{t.kind} *__restrict__ y{t.index}" for t in y]
    names = ", ".join([*(f"x{t.index}" for t in x), *(f"known{t.index}" for t in y), *(f"y{t.index}" for t in y)])
    return f"""
template <class Op, class... S> static void d500_surrogate(Op *op, {", ".join(taken)}, S __restrict__... scratch) {{
  op->surrogate({names}, scratch...);
}}
template <class Op, class... S>
static void d500_surrogate_part(Op *op, std::size_t number, {", ".join(taken)}, S __restrict__... scratch) {{
  op->surrogate_part(number, {names}, scratch...);
}}"""


def _name(has_scratch: bool, knows: bool = False) -> str:
    return f"d500_reverse{'_known' * knows}{'_with_scratch' * has_scratch}"


def _pairs(name: str, shadow: str, tensors: Iterable[Tensor], word: str = "enzyme_dup") -> Iterator[str]:
    """Arguments of a call to Enzyme: a tensor with its shadow, or alone."""
    for tensor in tensors:
        i = tensor.index
        yield f"{word}, {name}{i}, {shadow}{i}" if tensor.active else f"enzyme_const, {name}{i}"


def _runner(name: str, parameters: str, checks: str, room: str, body: list[str], calls: tuple[str, str]) -> str:
    """A function around a call to Enzyme, for operators with and without scratch space."""
    lines = "\n    ".join(body)
    return f"""
template <class Op> static int d500_run_{name}(void *instance, {parameters}) {{
  return d500_detail::guarded("{name}", [&] {{
    auto &held = d500_detail::opened<Op>(instance);
    const std::size_t *const n = held.counts.data(), ns = d500_detail::scratch_of(*held.op);
    Op *const op = held.op.get();
    {checks}
    d500_detail::workspace space({room});
    {lines}
    if constexpr (d500_detail::has_scratch<Op>::value) {{
      {calls[1]}
    }} else {{
      {calls[0]}
    }}
  }});
}}"""


def _export(name: str, parameters: str, *rest: Any) -> str:
    """:func:`_runner`, and the export that calls it."""
    passed = ", ".join(parameter.rpartition("*")[2] for parameter in parameters.split(", "))
    return f"""{_runner(name, parameters, *rest)}
D500_API int d500_{name}(void *instance, {parameters}) {{
  return d500_run_{name}<d500_op>(instance, {passed});
}}"""


def _backward(x: list[Tensor], y: list[Tensor], scratch: str) -> str:
    body = [
        *_casts(x),
        *(f"auto *dx{i} = space.zeros<{k}>({n}, wanted[{i}]);" for i, k, n in _active(x)),
        *(f"auto *y{t.index} = space.take<{t.kind}>({t.count});" for t in y),
        *(
            f"auto *dy{i} = {PROMISE} || !grads[{i}] ? space.copy<{k}>(grads[{i}], {n}) : "
            f"static_cast<{k} *>(const_cast<void *>(grads[{i}]));"
            for i, k, n in _active(y)
        ),
    ]
    arguments = ", ".join(["op", *_both("x", "dx", x), *_both("y", "dy", y)])
    known = ", ".join(f"static_cast<const {t.kind} *>(outputs[{t.index}])" for t in y)

    def either(has: bool) -> str:
        rest = ", s, ds" * has
        return f"""if constexpr (d500_detail::stands_in<Op>::value)
        {_name(has, True)}<Op>({arguments}, {known}{rest});
      else
        {_name(has)}<Op>({arguments}{rest});"""

    promise = f"""
extern "C" __attribute__((visibility("hidden"))) int {PROMISE} = d500_detail::writes_once<d500_op>::value ? 1 : 2;"""
    return promise + _runner(
        "backward",
        "const void *const *grads, const void *const *inputs, const void *const *outputs, void *const *wanted",
        f'd500_detail::require(grads, n + {len(x)}, {len(y)}, "output gradient");\n    '
        f'd500_detail::require(inputs, n, {len(x)}, "input");\n    '
        f'if (d500_detail::stands_in<Op>::value) d500_detail::require(outputs, n + {len(x)}, {len(y)}, "output");',
        _room([*x, *y, *y], scratch, 2),
        body,
        (
            either(False),
            f"auto *s = space.take<{scratch}>(ns), *ds = space.zeros<{scratch}>(ns);\n      {either(True)}",
        ),
    )


def _jvp(x: list[Tensor], y: list[Tensor], scratch: str) -> str:
    """Forward mode: outputs and their tangents."""
    body = [
        *_casts(x),
        *(
            f"auto *v{i} = tangents[{i}] ? static_cast<const {k} *>(tangents[{i}]) : space.zeros<{k}>({n});"
            for i, k, n in _active(x)
        ),
        *(f"auto *y{t.index} = static_cast<{t.kind} *>(outputs[{t.index}]);" for t in y),
        *(f"auto *ty{i} = space.zeros<{k}>({n}, output_tangents[{i}]);" for i, k, n in _active(y)),
    ]
    arguments = ", ".join(["enzyme_const, op", *_pairs("x", "v", x), *_pairs("y", "ty", y)])
    return _export(
        "jvp",
        "const void *const *inputs, const void *const *tangents, void *const *outputs, void *const *output_tangents",
        f'd500_detail::require(inputs, n, {len(x)}, "input");\n    '
        f'd500_detail::require(outputs, n + {len(x)}, {len(y)}, "output");',
        _room([*x, *y], scratch, 2),
        body,
        (
            f"__enzyme_fwddiff<void>((void *)d500_primal<Op>, D500_ZEROS {arguments});",
            f"auto *s = space.take<{scratch}>(ns), *ts = space.zeros<{scratch}>(ns);\n      "
            f"__enzyme_fwddiff<void>((void *)d500_primal<Op, {scratch} *>, D500_ZEROS {arguments}, enzyme_dup, s, ts);",
        ),
    )


def _hvp(x: list[Tensor], y: list[Tensor], scratch: str) -> str:
    """Forward mode over the reverse pass: how the gradient changes along a direction of the inputs."""
    body = [
        *_casts(x),
        *(
            f"auto *v{i} = tangents[{i}] ? static_cast<const {k} *>(tangents[{i}]) : space.zeros<{k}>({n});"
            for i, k, n in _active(x)
        ),
        *(
            f"auto *dx{i} = space.zeros<{k}>({n}), *tdx{i} = space.zeros<{k}>({n}, results[{i}]);"
            for i, k, n in _active(x)
        ),
        *(
            f"auto *y{t.index} = space.take<{t.kind}>({t.count}), *ty{t.index} = space.zeros<{t.kind}>({t.count});"
            for t in y
        ),
        *(
            f"auto *dy{i} = space.copy<{k}>(grads[{i}], {n}), *tdy{i} = space.zeros<{k}>({n});"
            for i, k, n in _active(y)
        ),
    ]
    passed = ["enzyme_const, op"]
    for name, shadow, tensors in (("x", "v", x), ("y", "ty", y)):
        for tensor in tensors:
            i = tensor.index
            passed += [f"enzyme_dup, {name}{i}, {shadow}{i}" if tensor.active else f"enzyme_const, {name}{i}"]
            passed += [f"enzyme_dup, d{name}{i}, td{name}{i}"] * tensor.active
    arguments = ", ".join(passed)
    return _export(
        "hvp",
        "const void *const *grads, const void *const *inputs, const void *const *tangents, void *const *results",
        f'd500_detail::require(grads, n + {len(x)}, {len(y)}, "output gradient");\n    '
        f'd500_detail::require(inputs, n, {len(x)}, "input");',
        _room([*x, *x, *x, *y, *y, *y, *y], scratch, 4),
        body,
        (
            f"__enzyme_fwddiff<void>((void *)d500_reverse<Op>, D500_ZEROS {arguments});",
            f"auto *s = space.take<{scratch}>(ns), *ts = space.zeros<{scratch}>(ns);\n      "
            f"auto *ds = space.zeros<{scratch}>(ns), *tds = space.zeros<{scratch}>(ns);\n      "
            f"__enzyme_fwddiff<void>((void *)d500_reverse_with_scratch<Op>, D500_ZEROS {arguments}, "
            "enzyme_dup, s, ts, enzyme_dup, ds, tds);",
        ),
    )


def _casts(x: list[Tensor]) -> list[str]:
    return [f"auto *x{t.index} = static_cast<const {t.kind} *>(inputs[{t.index}]);" for t in x]


def _active(tensors: list[Tensor]) -> list[tuple[int, str, str]]:
    return [(t.index, t.kind, t.count) for t in tensors if t.active]


def _both(name: str, shadow: str, tensors: list[Tensor]) -> list[str]:
    return [f"{name}{t.index}, {shadow}{t.index}" if t.active else f"{name}{t.index}" for t in tensors]


def _room(tensors: list[Tensor], scratch: str, scratches: int) -> str:
    """Bytes that the workspace must have at most."""
    return " + ".join(
        [
            *(f"d500_detail::room<{t.kind}>({t.count})" for t in tensors),
            f"{scratches} * d500_detail::room<{scratch}>(ns)",
        ]
    )
