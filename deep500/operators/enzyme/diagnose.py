"""The meaning of Enzyme's failures and their cures: one sentence for every construct that is known not to work."""

from __future__ import annotations

import re
from collections.abc import Iterator

# fmt: off
CURES = (  # what Enzyme says -> what to change
    (r"uninitialized_algorithms\.h:[^\n]*Cannot deduce type of copy",
     "a std::vector (or what is kept in one, as a std::priority_queue) moves its elements as bytes when it grows: "
     "reserve() room before, or give it its size"),
    (r"Cannot deduce type of copy", "memory is copied as bytes: copy element by element, y[i] = x[i]"),
    (r"unknown intrinsic",
     "an instruction of one processor ({intrinsics}) has no derivative: write a plain loop, which the compiler turns "
     "into such instructions, or register a gradient (__enzyme_register_gradient_*)"),
    (r"/__tree:\d+|[( ]_?Rb_tree|stl_tree",
     "this use of std::map or std::set goes beyond what Enzyme follows (it follows them as local variables, without "
     "pointers to them, and not beside objects that were compiled before): use std::unordered_map, or a std::vector "
     "and sorted indices"),
    (r"doesn't have marked shadow global",
     "a static or global variable holds what is computed, and has no derivatives: use a local array or std::vector, or "
     "scratch space"),
    (r"shared_count\.h|__shared_(?:weak_)?count",
     "a std::shared_ptr counts its owners in a way that Enzyme cannot follow: use std::unique_ptr, or the object "
     "itself"),
    (r"found for omp_\w*lock", "OpenMP locks: use atomic updates"),
    (r"caching potentially capturing/offset of allocation",
     "arrays or containers change places (std::swap, or pointers to them) in a loop: copy element by element instead, "
     "or choose between two arrays by the number of the round, kept[i % 2]"),
    (r"found for qsort\b", "qsort moves bytes: use std::sort"),
    (r"(?:pass found for|empty function)[^\n]*?\b(?P<name>_ZN?K?St\w+)",
     "the C++ library's {name} has no source here: do without it in forward (texts, streams and conversions can be "
     "done once, in the constructor)"),
    (r"No augmented forward pass found for (?P<name>[\w.]*)",
     "the function {name!r} has no source here: add its file to other_files, register a gradient "
     "(__enzyme_register_gradient_*), or mark it __enzyme_inactivefn_*"),
    (r"No (?:forward mode|derivative).* found for (?P<name>[\w.]*)",
     "the function {name!r} has no source here: add its file to other_files, register a gradient, or mark it inactive"),
    (r"No create nofree of empty function (?P<name>[\w.]*)",
     "the function {name!r} has no source here: also say void *__enzyme_nofree_{name}[] = {{(void *){name}}};"),
    (r"cannot handle unknown (?:binary operator|instruction)|cannot handle above cast",
     "integer operations on the bits of a float have no derivative: write it with arithmetic, or register a gradient "
     "(__enzyme_register_gradient_*)"),
    (r"__kmpc_dispatch", "OpenMP schedule(dynamic), (guided), (runtime): leave the schedule out (plain static)"),
    (r"__kmpc_push_num_threads", "OpenMP num_threads(): call omp_set_num_threads() before"),
    (r"__kmpc_serialized_parallel", "OpenMP if(): branch outside of the parallel region"),
    (r"__kmpc_(?:omp_task|taskloop|task)", "OpenMP task: use parallel for"),
    (r"__kmpc_(?:single|master|masked)", "OpenMP single and master: do that work outside of the parallel region"),
    (r"__kmpc_(?:end_)?reduce", "OpenMP reductions: one scalar with + each, else per-block partials"),
    (r"[Ff]ailed to deduce type|Cannot deduce type",
     "fill and read memory through pointers to float or double, not through bytes or void*"),
)
# fmt: on

# fmt: off
PRAGMAS = (  # a clause that Enzyme refuses with an assertion only -> what to change
    (r"schedule\s*\(\s*(?:dynamic|guided|runtime|auto)", "schedule(dynamic), (guided), (runtime): use plain static"),
    (r"schedule\s*\(\s*static\s*,", "schedule(static, chunk): leave the chunk size out"),
    (r"reduction\s*\(\s*[^+:\s]", "reduction with anything but +: per-block partials, joined by a serial loop"),
    (r"reduction\s*\(\s*\+\s*:\s*\w+\s*[,\[]", "reduction of several variables or of an array: one loop per scalar"),
    (r"\bsimd\b.*reduction|reduction.*\bsimd\b", "simd with a reduction: leave simd out"),
    (r"num_threads\s*\(", "num_threads(): call omp_set_num_threads() before"),
    (r"\bif\s*\(", "if(): branch outside of the parallel region"),
    (r"\b(?:single|task|taskloop|master|masked)\b", "single, task, master: use parallel for"),
    (r"\bordered\b", "ordered: use plain parallel for, and a serial loop for what has an order"),
    (r"\batomic\b.*\b(?:capture|compare)\b",
     "atomic capture, compare: let parallel for divide iterations; update without reading, find extremes by block"),
)
# fmt: on


# fmt: off
HINTS = (  # what stands in a source whose gradient is wrong, or for which Enzyme does not end -> what to change
    (r"(?:vector|map|list|deque|set)\s*<[^;{]*?\b(?:vector|deque|list|map)\s*<",
     "containers grow within a container, which Enzyme does not follow: give the inner ones their size when they are "
     "made, as in std::vector<std::vector<double>> rows(n, std::vector<double>(m)), or keep all in one std::vector"),
    (r"(?:vector|map|list|deque|set|array)\s*<[^;{]*?\bfunction\s*<",
     "functions are kept in a container, which Enzyme does not follow: call them through if or switch, or as "
     "templates"),
    (r"\b[lt]gamma\s*\(",
     "lgamma and tgamma have no derivative here: put them into a function of your own (noinline) and register its "
     "gradient (__enzyme_register_gradient_*), digamma"),
    (r"\bvisit\s*\(", "std::visit calls through a table: use std::get_if, or std::holds_alternative and std::get"),
    (r"\bsort\s*\(", "what is sorted may be an output: sort a std::vector, then write the outputs from it"),
    (r"\bthread_local\b", "thread_local variables have no derivatives: declare them inside the parallel loop"),
    (r"\bfetch_add\b|\bstd::atomic\b", "std::atomic deals out work, which Enzyme does not follow: use parallel for"),
    (r"\belementwise\s*=\s*true\b",
     "elementwise = true promises that an element of an output is made of the same element of the inputs: leave it out "
     "if others are read"),
    (r"\bwrites_once\s*=\s*true\b",
     "writes_once = true promises that no element of an output is written twice or read: leave it out if one is"),
    (r"\bvoid\s+surrogate(?:_part)?\s*\(",
     "a surrogate is derived in place of forward: it must have forward's gradient at these inputs and results"),
    (r"\bcomplex\s*<", "quotients of std::complex have no right derivative: write their real and imaginary parts"),
    (r"\bcatch\b", "an exception is caught inside, which Enzyme does not follow: decide with if instead of throw"),
)
# fmt: on


def hints(source: str) -> list[str]:
    """Say what to change in a source for which Enzyme says nothing, by what stands in it; comments are passed over.

    Example:
        >>> hints("try { f(); } catch (...) { }  // sort(")
        ['an exception is caught inside, which Enzyme does not follow: decide with if instead of throw']
    """
    code = code_of(source)
    matched = ((re.search(pattern, code), cure) for pattern, cure in HINTS)
    return [cure.format(found=match[0]) for match, cure in matched if match]


def code_of(source: str) -> str:
    """A C++ text without its comments, lines kept.

    Example:
        >>> code_of("a; // b\\nc; /* d\\n e */ f;")
        'a; \\nc; \\n f;'
    """
    comment = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
    return comment.sub(lambda match: "\n" * match[0].count("\n"), source)


def explain(stderr: str, code: int, ir: str = "", source: str = "") -> str:
    """One or two sentences on a failed run of Enzyme: its own line, and what to change.

    Args:
        stderr: all that it said.
        code: its exit code; negative for a signal.
        ir: what it was given, in LLVM's text form.
        source: the operator's C++ text, for the lines of its OpenMP pragmas.
    """
    line = own_line(stderr, code)
    by_message = list(_by_message(stderr, ir))
    by_ir = [] if "unknown intrinsic" in stderr else _by_ir(ir)  # intrinsics may hold assembly of the compiler's own
    cures = list(dict.fromkeys([*by_message, *_by_source(source), *by_ir])) or hints(source)
    unknown = "leave statements out until it builds, to find the one it stops at; or write backward"
    advice = "; ".join(cures) or unknown
    return f"{line}\nwhat to change: {advice}"


def own_line(stderr: str, code: int) -> str:
    """The most telling line of Enzyme's output, shortened."""
    lines = stderr.splitlines()
    for i, text in enumerate(lines):
        if re.search(r"error:.*Enzyme:", text):
            # The reason may follow an excerpt of the representation.
            reason = next((t for t in lines[i:] if re.search(r"annot |unhandled|No \w+.* found|ailed to", t)), "")
            first = re.sub(r"in function \S+ .*?: Enzyme:", "Enzyme:", text)
            first = first.replace("Enzyme: <analysis>", "Enzyme: cannot follow where the memory used here comes from")
            return (first if reason in ("", text) else f"{first.split('Enzyme:')[0]}Enzyme: {reason.strip()}")[:400]
    line = next((t for t in lines if "Assertion" in t), next((t for t in lines if t.strip()), ""))
    line = re.sub(r"^.*?(\w+\.(?:cpp|h)):\d+:.*?Assertion", r"Enzyme stopped (\1): Assertion", line)
    ended = next((i for i, t in enumerate(lines) if t.startswith("UNREACHABLE executed at")), 0)
    line = f"Enzyme stopped: {lines[ended - 1]}" if ended else line
    return (line or f"Enzyme ended with exit code {code} and said nothing")[:400]


def _by_message(stderr: str, ir: str) -> Iterator[str]:
    errors = "\n".join(t for t in stderr.splitlines() if "warning" not in t)
    for pattern, cure in CURES:
        matched = re.search(pattern, errors)
        if matched:
            intrinsics = sorted(set(re.findall(r"@llvm\.((?:x86|aarch64|arm)\.[\w.]+)", ir)))
            yield cure.format(intrinsics=", ".join(intrinsics[:3]) or "an intrinsic", **matched.groupdict())
            return


def _by_source(source: str) -> Iterator[str]:
    for number, line in pragmas(source):
        for pattern, cure in PRAGMAS:
            if re.search(pattern, line):
                yield f"line {number}: {cure}"


def _by_ir(ir: str) -> Iterator[str]:
    if re.search(r"^\s+(?:%\S+ = )?(?:tail )?call [^\n@]*\basm\b", ir, re.MULTILINE):
        yield "inline assembly has no derivative: use a builtin or a math function, or register a gradient"
    if "__enzyme_register_gradient" in ir:
        yield "registered gradients take numbers and pointers only: fix sizes at compile time instead of passing an int"


def pragmas(source: str) -> Iterator[tuple[int, str]]:
    """Every OpenMP pragma with its line number, continuation lines joined."""
    joined, start = "", 0
    for number, text in enumerate(source.splitlines(), 1):
        start = start if joined else number
        joined += text.rstrip("\\") if text.endswith("\\") else text
        if text.endswith("\\"):
            continue
        if re.match(r"\s*#\s*pragma\s+omp\b", joined):
            yield start, joined
        joined = ""
