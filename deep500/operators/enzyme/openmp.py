"""OpenMP and Enzyme: one correction of the intermediate representation, and one hazard that must be refused.

Enzyme knows most of what clang emits for ``parallel for``, but not the entry of a reduction. And a *pointer* that a
parallel region captures by reference may be taken for its own shadow: the caller's input array is then overwritten,
with no message.
"""

from __future__ import annotations

import re

_REDUCE = re.compile(
    r"^(\s*%[-\w.$]+ = )(?:(?:tail|notail|musttail) )?call i32 @__kmpc_reduce(?:_nowait)?\(.*$", re.MULTILINE
)
_END_REDUCE = re.compile(r"call void @__kmpc_end_reduce(?:_nowait)?\((ptr [^,]*), (i32 [^,]*), ptr [^)]*\)")
_BARRIER = re.compile(r"^declare void @__kmpc_barrier", re.MULTILINE)
_FORK = re.compile(r"@__kmpc_fork_call\([^\n]*?, ptr (?:nonnull |noundef )*(@[-\w.$\"]+)")
_REFERENCE = re.compile(r"ptr [^,()%]*(?:\([^()]*\)[^,()%]*)*dereferenceable\(8\)[^,%]*(%[-\w.$]+)")


def fix_reductions(ir: str) -> str:
    """Let reductions combine by atomic updates, which Enzyme differentiates.

    The runtime's ``__kmpc_reduce`` answers 1 (combine in a tree, then call ``end_reduce``), 2 (combine with atomics)
    or 0. The answer is made the constant 2, and the matching ``end_reduce`` a barrier.

    Args:
        ir: LLVM's text form, as clang writes it, before Enzyme.
    """
    if not _REDUCE.search(ir):
        return ir
    ir = _END_REDUCE.sub(r"call void @__kmpc_barrier(\1, \2)", _REDUCE.sub(r"\1add i32 0, 2", ir))
    return ir if _BARRIER.search(ir) else ir + "\ndeclare void @__kmpc_barrier(ptr, i32)\n"


def shared_pointers(ir: str) -> list[str]:
    """Names of parallel regions that capture a pointer by reference, outermost function first.

    A parameter that clang marks as a reference to eight bytes and whose value the region loads as a pointer is one
    such; references to numbers (reductions, atomics) and to objects (a vector) are not.

    Args:
        ir: LLVM's text form, optimised, before Enzyme.
    """
    found = []
    for name in dict.fromkeys(_FORK.findall(ir)):
        body = _function(ir, name)
        head, _, rest = body.partition("{\n")
        if any(re.search(rf"= load ptr, ptr {re.escape(one)}[,\s]", rest) for one in _REFERENCE.findall(head)):
            found.append(name)
    return found


def _function(ir: str, name: str) -> str:
    found = re.search(rf"^define [^\n]*{re.escape(name)}\(.*?^}}", ir, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""
