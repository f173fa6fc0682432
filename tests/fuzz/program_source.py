"""Programs of two or three blocks: the C++ of an operator that runs several side by side, and of their tape."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.fuzz.program_blocks import EACH, KINDS, Draw

GROUP = 6
"""Programs that are drawn with the same inputs, and have one tape."""

NAMES = """
algorithm array bitset cmath cstdint cstdlib cstring deque functional iterator limits list map memory numeric
optional queue set stdexcept string tuple unordered_map utility variant vector
deep500/blas.h deep500/math.h deep500/softmax.h
"""
HEADERS = "".join(f"#include <{name}>\n" for name in NAMES.split())
BOUNDED = ("std::tanh(o[i])", "std::sin(o[i])", "o[i] / (o[i] * o[i] + T(1))")
RARER = 3
"""So many turns of other kinds for one of those that may be refused."""
ROOM = 3
"""Scratch space of a program, in arrays of n."""


@dataclass(frozen=True)
class Form:
    """Arguments of forward beside x and y: numbers w, whole numbers k, scratch space s; and whether with OpenMP."""

    weighted: bool = False
    indexed: bool = False
    scratch: bool = False
    openmp: bool = False

    @property
    def parameters(self) -> str:
        """Of forward, for numbers T."""
        words = ["const T *x", *["const T *w"] * self.weighted, *["const std::int64_t *k"] * self.indexed, "T *y"]
        return ", ".join([*words, *["T *s"] * self.scratch])

    def arguments(self, number: int = 0) -> str:
        """Of the program that has this number in its operator."""
        at, room = f" + {number} * n" * bool(number), f" + {number * ROOM} * n" * bool(number)
        words = [f"x{at}", *[f"w{at}"] * self.weighted, *["k"] * self.indexed, f"y{at}"]
        return ", ".join([*words, *[f"s{room}"] * self.scratch])


@dataclass(frozen=True)
class Program:
    """A program: its name, form, and blocks: kind and seed of each."""

    name: str
    form: Form
    blocks: tuple[tuple[str, str], ...]

    def reduced(self, numbers: tuple[int, ...]) -> Program:
        """The program of some of its blocks."""
        return replace(self, blocks=tuple(self.blocks[n] for n in numbers))

    def text(self) -> str:
        """A class template with a method forward, and what stands before it."""
        before, members, body, ends = list[str](), list[str](), list[str](), list[str]()
        source = "x"
        for number, (kind, seed) in enumerate(self.blocks):
            last = number == len(self.blocks) - 1
            d = Draw(seed, f"{self.name}_{number}", self.form.indexed, self.form.weighted)
            target = "y" if last else self._room(d, number, body, ends)
            outside, member, code = d.block(KINDS[kind])
            if not last and d.rng.random() < 0.6:
                code += f"\n{EACH}o[i] = {d.rng.choice(BOUNDED)};"
            home = "here" if member or KINDS[kind].openmp else d.rng.choice(["here", "lambda", "function", "noinline"])
            function, call = self._at_home(home, d.id, code, source, target)
            body += [f"// {kind}", *call]
            before += [outside, function]
            members.append(member)
            if target == "y" and number == len(self.blocks) - 2:  # the last block reads what it overwrites
                body.append(f"std::vector<T> c{number}(y, y + n);")
                target = f"c{number}.data()"
            source = target
        lines = "\n".join([*body, *ends])
        return "\n".join(text for text in before if text) + (
            f"\ntemplate <class T> struct {self.name} {{\n  std::size_t size;\n  {' '.join(members)}\n"
            f"  explicit {self.name}(std::size_t size) : size(size) {{}}\n  void forward({self.form.parameters}) {{\n"
            f"const std::size_t n = size;\n{lines}\n  }}\n}};\n"
        )

    def _room(self, d: Draw, number: int, body: list[str], ends: list[str]) -> str:
        """Where a block writes what the next one reads."""
        name = f"b{number}"
        way = d.rng.choice(["vector", "vector", "new", "y", *["scratch"] * (3 * self.form.scratch)])
        if way == "vector":
            body.append(f"std::vector<T> {name}(n);")
            return f"{name}.data()"
        if way == "new":
            body.append(f"T *const {name} = new T[n];")
            ends.append(f"delete[] {name};")
            return name
        return f"(s + {number} * n)" if way == "scratch" else "y"

    def _at_home(self, home: str, name: str, code: str, source: str, target: str) -> tuple[str, list[str]]:
        """A function for a block, if it has one of its own, and what runs the block: here, in a lambda, or that."""
        if home == "here":
            return "", [f"{{ const T *a = {source}; T *o = {target};", code, "}"]
        if home == "lambda":
            return "", ["[&](const T *a, T *o) {", code, f"}}({source}, {target});"]
        extra = [("const T *w", "w")] * self.form.weighted + [("const std::int64_t *k", "k")] * self.form.indexed
        taken = ", ".join(["const T *a", "T *o", "std::size_t n", *(declared for declared, _ in extra)])
        quiet = "__attribute__((noinline)) " if home == "noinline" else ""
        passed = ", ".join([source, target, "n", *(word for _, word in extra)])
        return f"template <class T> {quiet}void {name}_block({taken}) {{\n{code}\n}}", [f"{name}_block<T>({passed});"]


def form_of(seed: int, group: int) -> Form:
    """The form of a group's programs."""
    rng = random.Random(f"{seed}/group {group}")
    weighted, indexed, scratch, openmp = (rng.random() < share for share in (0.3, 0.3, 0.4, 0.12))
    return Form(weighted, indexed, scratch, openmp)


def program(seed: int, number: int) -> Program:
    """The program of a number: its first kind comes in turn, the others by chance; doubtful ones are rarer."""
    form, rng = form_of(seed, number // GROUP), random.Random(f"{seed}/{number}")
    serial = [kind for kind in KINDS.values() if not kind.openmp]
    threads = [kind for kind in KINDS.values() if kind.openmp]
    first = threads if form.openmp else serial
    first = [kind for kind in first if not kind.doubtful] * RARER + [kind for kind in first if kind.doubtful]
    kinds = [first[(number + seed) % len(first)].name]
    for _ in range(rng.choice((1, 1, 2))):
        others = threads if form.openmp and rng.random() < 0.5 else serial
        kinds.append(rng.choice([kind.name for kind in others if not kind.doubtful]))
    rng.shuffle(kinds)
    return Program(f"p{number}", form, tuple((kind, f"{seed}/{number}/{i}") for i, kind in enumerate(kinds)))


def operator(name: str, programs: list[Program]) -> str:
    """An operator on one row for each program."""
    form, count = programs[0].form, len(programs)
    members = " ".join(f"{p.name}<T> of_{p.name};" for p in programs)
    made = ", ".join(["n(n)", *(f"of_{p.name}(n)" for p in programs)])
    calls = "\n    ".join(f"of_{p.name}.forward({form.arguments(i)});" for i, p in enumerate(programs))
    scratch = f"std::size_t scratch() const {{ return {count * ROOM} * n; }}" if form.scratch else ""
    return f"""{HEADERS}#include "deep500/deep500.h"
{"".join(p.text() for p in programs)}
template <class T> struct {name} : deep500::CustomOperator {{
  std::size_t n;
  {members}
  explicit {name}(std::size_t n) : {made} {{}}
  {scratch}
  void forward({form.parameters}) {{
    {calls}
  }}
}};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {{
  return new {name}<D500_DTYPE>(in[0].sizes[1]);
}}
D500_REGISTER_OP({name}<D500_DTYPE>);
"""


def tape(programs: list[Program]) -> str:
    """A unit that runs each program by itself with numbers that record: ``run_<name>``, 0 unless it threw."""
    form = programs[0].form
    taken = form.parameters.replace("T *", "d5::taped *")
    runs = "".join(
        f'extern "C" __attribute__((visibility("default"))) int run_{p.name}(std::size_t n, {taken}) {{ try {{\n'
        f"  {p.name}<d5::taped> op(n); op.forward({form.arguments()}); return 0; }} catch (...) {{ return 1; }} }}\n"
        for p in programs
    )
    return f'#include "deep500/taped.h"\n{HEADERS}{"".join(p.text() for p in programs)}{runs}'
