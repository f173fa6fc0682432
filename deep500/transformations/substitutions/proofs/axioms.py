"""The axioms, as data: two patterns of the provers' language, and what must hold of sizes.

Numbers are those of the list in Jia et al., TASO (SOSP 2019); names without a number are consequences that a prover
needs spelled out, or what explicit groups and cuts make true. Letters in a pattern are variables: of terms, or of
parameters. ``where`` says what a cut or a group count is that one side does not name: ``p = size x 1``, the size of
``x`` along axis 1. Groups are explicit everywhere, so that conditions such as "one group" are part of the pattern.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from deep500.transformations.substitutions.rules.rule_file import PatternRule

ONE = 4097  # the size 1 in both environments, as `encoding.pack` writes it
THREE = 3 * ONE


@dataclass(frozen=True)
class Axiom:
    """Two equal patterns.

    Attributes:
        name: number and words; unique.
        left, right: patterns of the provers' language.
        where: definitions ``name = size term axis``, ``name = (+ a b)`` or ``name = (* a b)`` of parameters; a line
            whose name is known already is a condition.
        present: what must be there for the right to be rewritten to the left: it gives names that the right lacks.
    """

    name: str
    left: str
    right: str
    where: tuple[str, ...] = ()
    present: str = ""


# A line is "name: left = right; where; present", and a line that begins with spaces goes on with the one before.
MATRIX = """
19 sum of products: (add (matmul x y) (matmul z w)) = (matmul (concat 1 p x z) (concat 0 p y w)); p = size x 1
24 matmul associative: (matmul x (matmul y z)) = (matmul (matmul x y) z)
27 matmul columns: (matmul x (concat 1 p y z)) = (concat 1 p (matmul x y) (matmul x z))
28 matmul sum: (matmul x (add y z)) = (add (matmul x y) (matmul x z))
matmul rows: (matmul (concat 0 p x y) z) = (concat 0 p (matmul x z) (matmul y z))
sum matmul: (matmul (add x y) z) = (add (matmul x z) (matmul y z))
29 transpose twice: (transpose "1,0" (transpose "1,0" x)) = x
30 transpose of product: (transpose "1,0" (matmul x y)) = (matmul (transpose "1,0" y) (transpose "1,0" x))
31 transpose rows: (transpose "1,0" (concat 0 p x y)) = (concat 1 p (transpose "1,0" x) (transpose "1,0" y))
transpose columns: (transpose "1,0" (concat 1 p x y)) = (concat 0 p (transpose "1,0" x) (transpose "1,0" y))
33 transpose sum: (transpose t (add x y)) = (add (transpose t x) (transpose t y))
34 transpose product: (transpose t (mul x y)) = (mul (transpose t x) (transpose t y))
40 matmul identity: (matmul x (identity q)) = x
identity matmul: (matmul (identity q) x) = x
identity transposed: (transpose "1,0" (identity q)) = (identity q)
"""
ELEMENTWISE = """
0 add associative: (add x (add y z)) = (add (add x y) z)
1 add commutative: (add x y) = (add y x)
2 mul associative: (mul x (mul y z)) = (mul (mul x y) z)
3 mul commutative: (mul x y) = (mul y x)
4 distributive: (mul (add x y) z) = (add (mul x z) (mul y z))
5 scale associative: (scale (scale x y) w) = (scale x (scale y w))
scales commute: (scale (scale x y) w) = (scale (scale x w) y)
6 scale sum: (scale (add x y) w) = (add (scale x w) (scale y w))
7 scale product: (scale (mul x y) w) = (mul x (scale y w))
8 scale transpose: (scale (transpose t x) w) = (transpose t (scale x w))
9 scale matmul right: (scale (matmul x y) w) = (matmul x (scale y w))
scale matmul left: (scale (matmul x y) w) = (matmul (scale x w) y)
10 scale concat: (scale (concat a p x y) w) = (concat a p (scale x w) (scale y w))
14 unary concat: (unary f (concat a p x y)) = (concat a p (unary f x) (unary f y))
15 unary transpose: (unary f (transpose t x)) = (transpose t (unary f x))
41 times one: (mul x (ones q)) = x
"""
LAYOUT = """
20 concat sums: (concat a p (add x y) (add z w)) = (add (concat a p x z) (concat a p y w)); p = size x a
21 concat products: (concat a p (mul x y) (mul z w)) = (mul (concat a p x z) (concat a p y w))
25 first part: (split 0 a p (concat a p x y)) = x
26 second part: (split 1 a p (concat a p x y)) = y
32 concat exchange: (concat 0 p (concat 1 q x y) (concat 1 q z w)) = (concat 1 q (concat 0 p x z) (concat 0 p y w))
concat associative: (concat a p (concat a q x y) z) = (concat a q x (concat a r y z)); r = size y a, p = (+ q r)
parts together: (concat a j (split 0 a j x) (split 1 a j x)) = x; ; (split o a j x)
"""
# Where two images meet, strides are 1: only then do outputs of one size mean images of one size.
CONVOLUTION = f"""
11 conv moves scale: (conv k s d e g (scale x w) y) = (conv k s d e g x (scale y w))
12 scale conv: (scale (conv k s d e g x y) w) = (conv k s d e g (scale x w) y)
16 conv kernels sum: (conv k s d e g x (add y z)) = (add (conv k s d e g x y) (conv k s d e g x z))
17 conv images sum: (conv k "1,1" d e g (add x y) z) = (add (conv k "1,1" d e g x z) (conv k "1,1" d e g y z))
18 sum of convs: (add (conv k "1,1" d e {ONE} x y) (conv k "1,1" d e {ONE} z w))
    = (conv k "1,1" d e {ONE} (concat 1 p x z) (concat 1 p y w)); p = size x 1
22 conv batch: (concat 0 p (conv k "1,1" d e g x z) (conv k "1,1" d e g y z))
    = (conv k "1,1" d e g (concat 0 p x y) z)
23 conv outputs: (concat 1 p (conv k s d e {ONE} x y) (conv k s d e {ONE} x z))
    = (conv k s d e {ONE} x (concat 0 p y z))
conv groups side by side: (concat 1 p (conv k "1,1" d e g x y) (conv k "1,1" d e g z w))
    = (conv k "1,1" d e h (concat 1 q x z) (concat 0 p y w));
    q = size x 1, m = size y 0, m = size w 0, n = size y 1, n = size w 1, h = (+ g g); (conv k "1,1" d e g x y)
merge sum: (merge_groups g u (add x y)) = (add (merge_groups g u x) (merge_groups g u y))
merge scale: (merge_groups g u (scale x w)) = (scale (merge_groups g u x) w)
merge gain: (merge_groups g u (gain 0 x b)) = (gain 0 (merge_groups g u x) b)
merge relu: (merge_groups g u (unary "relu" x)) = (unary "relu" (merge_groups g u x))
conv merges groups: (conv k s d e g x w) = (conv k s d e l x (merge_groups g u w)); g = (* l u)
conv part of batch: (split o 0 j (conv k s d e g x w)) = (conv k s d e g (split o 0 j x) w)
"""
# Each channel once: three outputs of one repeat it.
KERNELS = """
38 pooling as conv: (conv "3,3" "1,1" "1,1,1,1" "1,1" g x (pool_kernel q))
    = (avgpool "3,3" "1,1" "1,1,1,1" "True" x); g = size (pool_kernel q) 0
39 identity kernel: (conv "3,3" "1,1" "1,1,1,1" "1,1" g x (identity_kernel q)) = x;
    n = size (identity_kernel q) 0, n = size x 1
identity kernel 1,1: (conv "1,1" "1,1" "0,0,0,0" "1,1" g x (identity_kernel q)) = x;
    n = size (identity_kernel q) 0, n = size x 1
"""
ENLARGE = """
43 enlarge SOURCE: (conv "SOURCE" s "PADS" "1,1" g x y) = (conv "3,3" s "1,1,1,1" "1,1" g x (LARGER y))
enlarge sum SOURCE: (LARGER (add x y)) = (add (LARGER x) (LARGER y))
enlarge product SOURCE: (LARGER (mul x y)) = (mul (LARGER x) (LARGER y))
enlarge scale SOURCE: (LARGER (scale x w)) = (scale (LARGER x) w)
enlarge outputs SOURCE: (LARGER (concat 0 p x y)) = (concat 0 p (LARGER x) (LARGER y))
enlarge channels SOURCE: (LARGER (concat 1 p x y)) = (concat 1 p (LARGER x) (LARGER y))
enlarge gain SOURCE: (LARGER (gain 0 x b)) = (gain 0 (LARGER x) b)
enlarge relu SOURCE: (LARGER (unary "relu" x)) = (unary "relu" (LARGER x))
"""
# As for convolutions, where two images meet strides are 1; a part of one image may be cut before any stride.
POOLING = f"""
35 average channels: (avgpool k "1,1" d c (concat 1 p x y))
    = (concat 1 p (avgpool k "1,1" d c x) (avgpool k "1,1" d c y))
average part of channels: (split o 1 j (avgpool k s d c x)) = (avgpool k s d c (split o 1 j x))
average batch: (avgpool k "1,1" d c (concat 0 p x y)) = (concat 0 p (avgpool k "1,1" d c x) (avgpool k "1,1" d c y))
average part of batch: (split o 0 j (avgpool k s d c x)) = (avgpool k s d c (split o 0 j x))
37 maximum channels: (maxpool k "1,1" d (concat 1 p x y)) = (concat 1 p (maxpool k "1,1" d x) (maxpool k "1,1" d y))
maximum part of channels: (split o 1 j (maxpool k s d x)) = (maxpool k s d (split o 1 j x))
36 maximum batch: (maxpool k "1,1" d (concat 0 p x y)) = (concat 0 p (maxpool k "1,1" d x) (maxpool k "1,1" d y))
maximum part of batch: (split o 0 j (maxpool k s d x)) = (maxpool k s d (split o 0 j x))
average sum: (avgpool k "1,1" d c (add x y)) = (add (avgpool k "1,1" d c x) (avgpool k "1,1" d c y))
average scale: (avgpool k s d c (scale x w)) = (scale (avgpool k s d c x) w)
average gain: (avgpool k s d c (gain 1 x b)) = (gain 1 (avgpool k s d c x) b)
42 average of identity: (avgpool "3,3" "1,1" "1,1,1,1" "True" (identity_kernel q)) = (pool_kernel q);
    n = size (identity_kernel q) 1, n = {ONE}, h = size (identity_kernel q) 2, h = {THREE},
    v = size (identity_kernel q) 3, v = {THREE}
"""
CHANNELWISE = f"""
bias of sum: (add (bias a x b) y) = (bias a (add x y) b)
gain of sum: (gain a (add x y) b) = (add (gain a x b) (gain a y b))
gain of product: (mul (gain a x b) y) = (gain a (mul x y) b)
bias twice: (bias a (bias a x b) c) = (bias a x (add b c))
gain twice: (gain a (gain a x b) c) = (gain a x (mul b c))
gain of bias: (gain a (bias a x b) c) = (bias a (gain a x c) (mul b c))
scale of bias: (scale (bias a x b) w) = (bias a (scale x w) (scale b w))
scale of gain: (scale (gain a x b) w) = (gain a (scale x w) b)
gain by scaled: (gain a x (scale b w)) = (scale (gain a x b) w)
gain of columns: (gain 1 (matmul x y) b) = (matmul x (gain 1 y b))
gain of rows: (gain 0 (matmul x y) b) = (matmul (gain 0 x b) y)
gain between: (matmul (gain 1 x b) y) = (matmul x (gain 0 y b))
gain of outputs: (gain 1 (conv k s d e g x y) b) = (conv k s d e g x (gain 0 y b))
gain of channels: (conv k s d e {ONE} (gain 1 x b) y) = (conv k s d e {ONE} x (gain 1 y b))
sum of gains: (add (gain a x b) (gain a x c)) = (gain a x (add b c))
product with bias: (mul x (bias a y b)) = (add (mul x y) (gain a x b))
"""
ALONG = """
OP both ways: (OP a (OP m x b) c) = (OP m (OP a x c) b)
OP along: (concat a p (OP a x b) (OP a y c)) = (OP a (concat a p x y) (concat 0 p b c)); p = size x a, p = size b 0
OP across rows: (concat 0 p (OP 1 x b) (OP 1 y b)) = (OP 1 (concat 0 p x y) b)
OP across columns: (concat 1 p (OP 0 x b) (OP 0 y b)) = (OP 0 (concat 1 p x y) b)
OP of transpose: (transpose "1,0" (OP 0 x b)) = (OP 1 (transpose "1,0" x) b)
OP of transposed: (transpose "1,0" (OP 1 x b)) = (OP 0 (transpose "1,0" x) b)
"""


def _read(text: str) -> list[Axiom]:
    """Axioms as they are written above."""
    axioms = []
    for line in text.strip().replace("\n    ", " ").splitlines():
        name, _, rest = line.partition(": ")
        sides, where, present = (*(part.strip() for part in rest.split(";")), "", "")[:3]
        left, _, right = sides.partition(" = ")
        axioms.append(Axiom(name, left, right, tuple(filter(None, where.split(", "))), present))
    return axioms


@functools.cache
def _all() -> tuple[Axiom, ...]:
    larger = [
        ENLARGE.replace("LARGER", f'enlarge "{source}" "3,3"').replace("SOURCE", source).replace("PADS", pads)
        for source, pads in (("1,1", "0,0,0,0"), ("1,3", "0,1,0,1"), ("3,1", "1,0,1,0"))
    ]
    along = [ALONG.replace("OP", op) for op in ("bias", "gain")]
    texts = [MATRIX, ELEMENTWISE, LAYOUT, CONVOLUTION, KERNELS, *larger, POOLING, CHANNELWISE, *along]
    return tuple(axiom for text in texts for axiom in _read(text))


def axioms() -> list[Axiom]:
    """All axioms.

    Example:
        >>> next(axiom for axiom in axioms() if axiom.name.startswith("24")).right
        '(matmul (matmul x y) z)'
    """
    return list(_all())


def equations(rule: PatternRule) -> list[Axiom]:
    """A rule as axioms, one per output: what proofs and trials of rules work on."""
    pairs = enumerate(zip(rule.left, rule.right, strict=True))
    return [Axiom(f"{rule.id}.{n}", left, right, rule.where) for n, (left, right) in pairs]
