"""The C++ text around an operator: checks its class against the descriptors and exports it with C linkage.

Layout: macros, ``deep500/abi.h``, the operator's source, the checks, the exports, the gradient (for Enzyme after
``d500_primal``, which is what it differentiates). Every library exports, in version 1 of this interface::

    // JSON: abi, name, dtypes of inputs and outputs, which computations it has
    const char *d500_signature(void);
    // The object for these shapes (for every input, then every output: rank, size, size, ...), made on first use and
    // kept; NULL: see d500_error.
    void *d500_instance(const int64_t *sizes);
    // 0, else see d500_error
    int d500_forward(void *instance, const void *const *inputs, void *const *outputs);
    // Overwrites input_grads; NULL in it: that gradient is not wanted.
    int d500_backward(void *instance, const void *const *grads, const void *const *inputs, const void *const *outputs,
                      void *const *input_grads);
    int64_t d500_report(void *instance, void *data);
    // What the last failing call of this thread had to say
    const char *d500_error(void);

and, with Enzyme, ``d500_jvp`` and ``d500_hvp`` (see ``CompiledOp``); in CUDA, ``d500_forward_cuda`` and
``d500_backward_cuda`` (see :func:`cuda_source`). All may be called from several threads at once. No exception leaves
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deep500.operators.cpp.spec import AUTOMATIC, CPP_TYPES, TENSOR_TYPES, BuildSpec

ABI = 1
"""Version of the exported functions; part of every library's signature and of its key in the cache."""

Derive = Callable[[BuildSpec, Mapping[str, Any]], str]


def wrapper_source(spec: BuildSpec, main: str, others: Sequence[str] = (), derive: Derive | None = None) -> str:
    """The translation unit of an operator.

    Args:
        spec: what to build.
        main: path of the operator's source, as the compiler is to name it in its messages.
        others: further sources that belong into the same unit (for Enzyme, which must see every body).
        derive: gives the text of a derived gradient, from the spec and what the signature says of forward.
    """
    included = "\n".join(f'#include "{path}"' for path in (main, *others))
    parts = [_scratched(spec), *((_calls(spec), _gradient(spec, derive)) if not spec.is_cuda else _cuda(spec))]
    return "\n".join([_head(spec), _defined(spec, included), _checks(spec), _instance(spec), *parts, ""])


def parameters(spec: BuildSpec, method: str) -> list[str]:
    """Declarations of what ``forward`` or ``backward`` must take, without scratch space."""
    inputs = [f"const {CPP_TYPES[t]} *x{i}" for i, t in enumerate(spec.inputs)]
    if method == "forward":
        return inputs + [f"{CPP_TYPES[t]} *y{i}" for i, t in enumerate(spec.outputs)]
    gradients = [f"const {CPP_TYPES[t]} *dy{i}" for i, t in enumerate(spec.outputs)]
    outputs = [f"const {CPP_TYPES[t]} *y{i}" for i, t in enumerate(spec.outputs)]
    return gradients + inputs + outputs + [f"{CPP_TYPES[t]} *dx{i}" for i, t in enumerate(spec.inputs)]


def expected(spec: BuildSpec, method: str) -> str:
    """The method's signature as the descriptors ask for it."""
    cuda = method.endswith("_cuda")
    taken = parameters(spec, method.removesuffix("_cuda")) + ["cudaStream_t stream"] * cuda
    return f"void {method}({', '.join(taken)})"


def _types(spec: BuildSpec, method: str) -> str:
    return ", ".join(declaration.rpartition("*")[0] + "*" for declaration in parameters(spec, method))


def _head(spec: BuildSpec) -> str:
    names = {"FORWARD": "forward", "BACKWARD": "backward"}
    if spec.is_cuda:
        names |= {"FORWARD_CUDA": "forward_cuda", "BACKWARD_CUDA": "backward_cuda"}
    lines = [f'#define D500_{macro} "{expected(spec, method)}"' for macro, method in names.items()]
    return "\n".join([*lines, f'#include "deep500/{"cuda" if spec.is_cuda else "abi"}.h"', '#include "deep500/math.h"'])


def is_global(macro: str) -> bool:
    """Return whether a macro must hold for all headers too: by its reserved name, such as ``_GNU_SOURCE``."""
    return macro.startswith("_")


def _defined(spec: BuildSpec, included: str) -> str:
    """The sources, among the macros that were asked for; these end with them, as our own text may use such names."""
    macros = [(key, value) for key, value in spec.definitions if not is_global(key)]
    before = [f"#define {key} {value}" for key, value in macros]
    after = [f"#undef {key.partition('(')[0]}" for key, _ in macros]
    return "\n".join([*before, included, *after])


def _checks(spec: BuildSpec) -> str:
    scratch, inputs, outputs = CPP_TYPES[spec.dtype], len(spec.inputs), len(spec.outputs)
    any_backward = "d500_detail::has_backward<d500_op>::value"
    any_backward += " || d500_detail::has_backward_cuda<d500_op>::value" * spec.is_cuda
    has_backward = {"backward": "true", AUTOMATIC: any_backward}.get(str(spec.gradient), "false")
    # In CUDA, the methods for the CPU may be left out.
    needed = {name: f"d500_detail::has_{name}<d500_op>::value" for name in ("forward", "backward")}
    if not spec.is_cuda:
        needed = {"forward": "true", "backward": "d500_has_backward"}
    return f"""
#line 1 "deep500 wrapper of {spec.name}"
typedef decltype(d500_registered_operator(d500_detail::key{{}})) d500_registration;
static_assert(!std::is_same<d500_registration, d500_detail::unregistered>::value,
              "D500: expected D500_REGISTER_OP(your_class); at the end of the source, outside of any namespace");
typedef d500_registration::type d500_op;
static_assert(std::is_base_of<deep500::CustomOperator, d500_op>::value,
              "D500: expected the registered class to derive from deep500::CustomOperator, publicly");
static constexpr bool d500_has_scratch = d500_detail::has_scratch<d500_op>::value;
static constexpr bool d500_has_backward = {has_backward};
template <bool, class... A> struct d500_with {{ typedef d500_detail::list<A...> type; }};
template <class... A> struct d500_with<true, A...> {{ typedef d500_detail::list<A..., {scratch} *> type; }};
typedef d500_with<d500_has_scratch, {_types(spec, "forward")}>::type d500_forward_arguments;
typedef d500_with<d500_has_scratch, {_types(spec, "backward")}>::type d500_backward_arguments;
typedef d500_detail::forward_of<d500_op>::type d500_forward_type;
typedef d500_detail::backward_of<d500_op>::type d500_backward_type;
static_assert(sizeof(d500_detail::forward_check<d500_op,
    !{needed["forward"]} || (d500_detail::forward_takes<d500_op, d500_forward_arguments>::value &&
    d500_detail::arguments<d500_forward_type>::writable({inputs})), d500_forward_type>), "");
static_assert(sizeof(d500_detail::backward_check<d500_op,
    !({needed["backward"]}) || (d500_detail::backward_takes<d500_op, d500_backward_arguments>::value &&
    d500_detail::arguments<d500_backward_type>::writable({inputs + 2 * outputs})), d500_backward_type>), "");
"""


def _instance(spec: BuildSpec) -> str:
    types = ", ".join(f"deep500::{TENSOR_TYPES[t]}" for t in spec.inputs + spec.outputs)
    return f"""
template <class Op, class D, class = void> struct d500_factory {{
  static Op *make(D *, int, D *, int) {{
    static_assert(std::is_default_constructible<Op>::value,
                  "D500: expected D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int n_in, "
                  "deep500::tensor_t *out, int n_out), or a class with a constructor without arguments");
    if constexpr (std::is_default_constructible<Op>::value) return new Op();
    return nullptr;
  }}
}};
template <class Op, class D>
struct d500_factory<Op, D, std::void_t<decltype(create_new_op(std::declval<D *>(), 0, std::declval<D *>(), 0))>> {{
  static Op *make(D *in, int n_in, D *out, int n_out) {{
    return d500_detail::checked<Op>(create_new_op(in, n_in, out, n_out));
  }}
}};
typedef d500_detail::instance<d500_op> d500_held;
static inline d500_op *d500_object(void *instance) {{ return static_cast<d500_held *>(instance)->op.get(); }}

D500_API const char *d500_error(void) {{ return d500_detail::error_text(); }}

D500_API void *d500_instance(const int64_t *sizes) {{
  static const deep500::tensortype_t types[] = {{{types}}};
  void *found = nullptr;
  d500_detail::guarded("create_new_op", [&] {{
    found = d500_detail::find<d500_op>(sizes, types, {len(spec.inputs)}, {len(spec.outputs)},
                                       d500_factory<d500_op, deep500::tensor_t>::make);
  }});
  return found;
}}

D500_API int64_t d500_report(void *instance, void *data) {{ return d500_object(instance)->report(data); }}
"""


def _scratched(spec: BuildSpec) -> str:
    scratch = CPP_TYPES[spec.dtype]
    return f"""
template <class Run> static auto d500_scratched(d500_op &op, Run &&run) {{
  if constexpr (d500_has_scratch) {{
    const std::unique_ptr<{scratch}[]> scratch(new {scratch}[d500_detail::scratch_of(op)]);
    return run(scratch.get());
  }} else {{
    return run();
  }}
}}
"""


def _calls(spec: BuildSpec) -> str:
    inputs, outputs = len(spec.inputs), len(spec.outputs)
    return f"""
template <class Op> static int d500_run_forward(void *instance, const void *const *inputs, void *const *outputs) {{
  return d500_detail::guarded("forward", [&] {{
    auto &held = d500_detail::opened<Op>(instance);
    d500_detail::require(inputs, held.counts.data(), {inputs}, "input");
    d500_detail::require(outputs, held.counts.data() + {inputs}, {outputs}, "output");
    return d500_scratched(*held.op, [&](auto... scratch) {{
      return held.op->forward({_arguments(spec, "forward")}, scratch...);
    }});
  }});
}}

D500_API int d500_forward(void *instance, const void *const *inputs, void *const *outputs) {{
  return d500_run_forward<d500_op>(instance, inputs, outputs);
}}
"""


def _arguments(spec: BuildSpec, method: str) -> str:
    """Casts from the arrays of pointers to what the method takes."""
    arrays = {"x": "inputs", "y": "outputs", "dy": "grads", "dx": "input_grads"}
    casts = []
    for declaration in parameters(spec, method):
        kind, _, name = declaration.rpartition("*")
        letters = name.rstrip("0123456789")
        casts.append(f"static_cast<{kind}*>({arrays[letters]}[{name[len(letters) :]}])")
    return ", ".join(casts)


def _cuda(spec: BuildSpec) -> list[str]:
    methods = ("forward", "backward")
    types = {method: _types(spec, method) for method in methods}
    exports = [cuda_source(spec, method, _arguments(spec, method)) for method in methods]
    return [cuda_checks(types), *exports, _signature(spec)]


def _gradient(spec: BuildSpec, derive: Derive | None) -> str:
    if derive is not None:
        return _primal(spec) + derive(spec, _fields(spec))
    return _signature(spec) + _backward(spec)


def _fields(spec: BuildSpec) -> dict[str, Any]:
    """Return what all signatures have in common."""
    return {"abi": ABI, "name": spec.name, "inputs": spec.inputs, "outputs": spec.outputs, "forward": True}


def _signature(spec: BuildSpec) -> str:
    fields = _fields(spec) | {"cuda": spec.is_cuda, "jvp": False, "hvp": False}
    texts = [json.dumps(fields | {"backward": has}) for has in (True, False)]
    yes, no = (json.dumps(text) for text in texts)  # JSON's quoting of text is also C++'s
    return f"""
D500_API const char *d500_signature(void) {{
  return d500_has_backward ? {yes}
                           : {no};
}}
"""


def _primal(spec: BuildSpec) -> str:
    """Write what Enzyme differentiates: forward as a plain function; S is empty, or the pointer to scratch space.

    Without ``__restrict__``, Enzyme would keep copies of the inputs, which writing the outputs might have changed.
    """
    names = [declaration.rpartition("*")[2] for declaration in parameters(spec, "forward")]
    taken = [declaration.replace("*", "*__restrict__ ") for declaration in parameters(spec, "forward")]
    return f"""
template <class Op, class... S> static void d500_primal(Op *op, {", ".join(taken)}, S __restrict__... scratch) {{
  (void)op->forward({", ".join(names)}, scratch...);
}}
"""


def _backward(spec: BuildSpec) -> str:
    widths = ", ".join(f"sizeof({CPP_TYPES[t]})" for t in spec.inputs)
    inputs, outputs = len(spec.inputs), len(spec.outputs)
    return f"""
template <class Op, bool has>
static int d500_run_backward(void *instance, const void *const *grads, const void *const *inputs,
                             const void *const *outputs, void *const *wanted) {{
  if constexpr (!has) return d500_detail::fail("it has no backward");
  else return d500_detail::guarded("backward", [&] {{
    auto &held = d500_detail::opened<Op>(instance);
    d500_detail::require(grads, held.counts.data() + {inputs}, {outputs}, "output gradient");
    d500_detail::require(inputs, held.counts.data(), {inputs}, "input");
    d500_detail::require(outputs, held.counts.data() + {inputs}, {outputs}, "output");
    std::unique_ptr<char[]> spare[{inputs}];  // where gradients go that are not wanted
    void *input_grads[{inputs}];
    const std::size_t widths[] = {{{widths}}};
    for (int i = 0; i < {inputs}; ++i) {{
      if (!wanted[i]) spare[i].reset(new char[widths[i] * held.counts[i] + 1]);
      input_grads[i] = wanted[i] ? wanted[i] : spare[i].get();
    }}
    return d500_scratched(*held.op, [&](auto... scratch) {{
      return held.op->backward({_arguments(spec, "backward")}, scratch...);
    }});
  }});
}}

D500_API int d500_backward(void *instance, const void *const *grads, const void *const *inputs,
                           const void *const *outputs, void *const *input_grads) {{
  return d500_run_backward<d500_op, d500_has_backward>(instance, grads, inputs, outputs, input_grads);
}}
"""


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
        added = ", ".join(f"device.add({size}, {source.format(i)})" for i, size in enumerate(bytes_of[name]))
        lines.append(f"{kind.removesuffix('*').rstrip()} device_{name}[] = {{{added}}};")
    passed = ", ".join(f"device_{name}" for _, name in (*read, GROUPS[method][-1]))
    lines.append(f"const int status = d500_start_{method}<Op>(held, {passed}, nullptr);")
    for i, size in enumerate(bytes_of[written]):
        lines.append(f"d500_detail::device_arrays::fetch({written}[{i}], device_{written}[{i}], {size});")
    return "\n".join(f"      {line}" for line in [*lines, "return status;"])
