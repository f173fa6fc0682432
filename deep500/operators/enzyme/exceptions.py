"""Exceptions that forward catches itself: code whose derivative would end the process.

Enzyme turns a call that may throw into one that may not, so an exception that forward throws and catches has no place
to go to in the reverse pass: the C++ runtime ends the process. Whether one is ever thrown, nobody can tell from the
source. An exception that leaves forward is another matter: it is thrown before there is anything to differentiate.
"""

from __future__ import annotations

import re

from deep500.operators.enzyme.diagnose import code_of
from deep500.operators.enzyme.functions import reached

TERMINATE = "__clang_call_terminate"  # what a noexcept function does with an exception


def catching(ir: str) -> list[str]:
    """Names of the functions that catch exceptions, among those that are differentiated and what they call by name.

    Args:
        ir: LLVM's text form, before Enzyme.

    Example:
        >>> call = "define void @g() {\\n  call void @__enzyme_autodiff(ptr @f)\\n}\\n"
        >>> catching(call + "define void @f() {\\n  %1 = call ptr @__cxa_begin_catch(ptr %0)\\n}")
        ['f']
    """
    if "@__cxa_begin_catch(" not in ir:
        return []
    return [name for name, body in reached(ir, (TERMINATE,)).items() if "@__cxa_begin_catch(" in body]


def catch_lines(source: str) -> list[str]:
    """The lines of a C++ text in which something is caught, comments passed over.

    Example:
        >>> catch_lines("try { f(); }\\ncatch (int) { }  // as ever\\n// catch (...)")
        ['line 2: catch (int) { }']
    """
    lines = enumerate(code_of(source).splitlines(), 1)
    return [f"line {number}: {text.strip()}" for number, text in lines if re.search(r"\bcatch\s*\(", text)]
