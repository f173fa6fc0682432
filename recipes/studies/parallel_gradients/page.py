"""The page of documentation, written with the figures of a run: ``--page docs/parallel_gradients.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deep500.results.files import write_atomic
from recipes.studies.parallel_gradients.measuring import AGREE, DIFFERENCES, DOT, WORST_PUBLISHED, Checked, Timed
from recipes.studies.parallel_gradients.printing import EFFICIENCY, tables

PAGE = """# Gradients of parallel programs

Programs that are parallel can be differentiated as they are: Enzyme works on what compilers make of OpenMP, MPI and loop
templates. What that costs was published for LULESH and miniBUDE (Moses et al., *Scalable Automatic Differentiation of
Multiple Parallel Paradigms through Compiler Augmentation*, SC 2022): gradient/primal of 1.0 to {worst} on 64 threads or
nodes. A study repeats it with two proxies of our own, written from the physics:

```console
$ python -m recipes.studies.parallel_gradients                        # deep500 setup enzyme comes before
$ python -m recipes.studies.parallel_gradients --quick --no-times     # are all gradients right?
$ python -m recipes.studies.parallel_gradients --proxy hydro --json hydro.json --plot hydro.png
$ python -m recipes.studies.parallel_gradients --no-times --source ../LULESH    # the original, from your checkout
```

*This page is written by the study: `--page docs/parallel_gradients.md`.*

## What is differentiated

| proxy | what it computes | gradient |
|---|---|---|
| hydro | Sedov's blast on moving hexahedra: nodal forces, hourglass control, artificial viscosity with a limiter that looks at neighbours, three kinds of gas in regions, a time step that all agree on | of the state after some steps, by position, velocity, energy and time at the start |
| docking | energies of many poses of a ligand at a protein, and their free energy | of all energies by every pose's angles and place |

Each has one numerical core (`hydro.hpp`, `docking.hpp`), a function of one element or pose, and five forms: serial; OpenMP;
MPI (ghosts by non-blocking messages, all-reduced time step); both; and loops as function objects with execution policies
and reducers, as RAJA has them, here with threads. Compiler, engine, OpenMP and MPI are pip packages (extras `enzyme`,
`mpi`); builds go through the pipeline that operators use.

## What makes it work

* **Every iteration owns what it touches.** A loop's body gets its own element's numbers only. What lies between loops is data
  movement (`movement.hpp`): nodes to corners, corners to nodes, one number to all, the least of all. Each has its transpose registered as
  its gradient, so no two iterations add to one place backwards, and Enzyme's atomic updates, right only where they race,
  are made plain (`Options.owned`). With them, the hydro proxy's overhead with OpenMP was 4.4 in place of 3.0.
* **Messages have derivatives** (`communication.hpp`): `d5::exchange`, `d5::sum_shared`, `d5::allreduce_sum` and
  `d5::allreduce_min` are registered with theirs: what was sent forwards comes back as gradient, and the gradient of a
  minimum goes to the rank that had it. Enzyme's own rules stop at minima ("unhandled mpi_allreduce op").
* **`firstprivate` on everything** that a parallel region uses. Loops as function objects cannot say that for what they hold: a
  constant array in one is taken for its own shadow, and overwritten without a message. There constants get shadows, too.
* **Registered rules must be `__attribute__((used))`**, or they vanish before Enzyme looks; in forward mode a rule is passed
  over, silently, for a call that has a constant argument.
* **A wrong gradient without a message**: corners of faces in a `constexpr` table, with differences in local arrays, gave gradients
  by position that were wrong in the first digit for one element. Written with scalars and template parameters they are right. Forward
  mode had it right: the comparison of both modes is what finds such things.

## What is checked

On small, perturbed problems (a symmetric start lies on kinks): gradients of all forms against the serial one to {agree:.0e}
of the largest element; along a random direction of all fields against forward mode to {dot:.0e}, and against central
differences to {differences:.0e}; and every constant array must stay as it was, bit for bit. Enzyme's forward mode stops at
OpenMP's regions with an assertion; forms with threads are held against the serial form's forward mode. Physics
is tested, too: total energy stays to 1e-12, and the blast arrives where Sedov's solution has it.

## Figures

{heading}

```text
{tables}
```

![times against workers](parallel_gradients.png)

*scaling*: efficiencies are over the same form with one worker, round by round; *of primal's* is the gradient's over the
primal's, by the wall's clock; *processors'* is the same by the time of all processors together, which other
programs on the machine disturb less: how little more work there is with several workers, though not how well it is
divided. The bars: gradient/primal at most {worst} in every row; efficiency at least {efficiency} of the primal's on two workers.

## What is not measured

* Against CoDiPack: no package supplies it. Not measured.
* Julia's rows of the publication: no package supplies Julia with Enzyme.jl (its own package server is needed). Not measured.
* More than one machine, 64 threads. Not measured.
"""


def write_page(path: Path, heading: Sequence[str], checked: Sequence[Checked], timed: Sequence[Timed]) -> Path:
    """Write the page; returns its path. Raises ResultsError if it cannot be written."""
    text = PAGE.format(
        worst=WORST_PUBLISHED,
        agree=AGREE,
        dot=DOT,
        differences=DIFFERENCES,
        efficiency=EFFICIENCY,
        heading="; ".join(heading) + ".",
        tables=tables(checked, timed),
    )
    write_atomic(path, text)
    return path
