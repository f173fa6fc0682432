"""The axioms, as data: two patterns of the provers' language, and what must hold of sizes.

Numbers are those of the list in Jia et al., TASO (SOSP 2019); names without a number are consequences that a prover
needs spelled out, or what explicit groups and cuts make true. Letters in a pattern are variables: of terms, or of
parameters. ``where`` says what a cut or a group count is that one side does not name: ``p = size x 1``, the size of
``x`` along axis 1. Groups are explicit everywhere, so that conditions such as "one group" are part of the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass

from deep500.transformations.substitutions.rules.rule_file import PatternRule

ONE = 4097  # the size 1 in both environments, as `encoding.pack` writes it
THREE = 3 * ONE
WINDOW = '"3,3" "1,1" "1,1,1,1"'


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


def _matrix() -> list[Axiom]:
    return [
        Axiom(
            "19 sum of products",
            "(add (matmul x y) (matmul z w))",
            "(matmul (concat 1 p x z) (concat 0 p y w))",
            ("p = size x 1",),
        ),
        Axiom("24 matmul associative", "(matmul x (matmul y z))", "(matmul (matmul x y) z)"),
        Axiom("27 matmul columns", "(matmul x (concat 1 p y z))", "(concat 1 p (matmul x y) (matmul x z))"),
        Axiom("28 matmul sum", "(matmul x (add y z))", "(add (matmul x y) (matmul x z))"),
        Axiom("matmul rows", "(matmul (concat 0 p x y) z)", "(concat 0 p (matmul x z) (matmul y z))"),
        Axiom("sum matmul", "(matmul (add x y) z)", "(add (matmul x z) (matmul y z))"),
        Axiom("29 transpose twice", '(transpose "1,0" (transpose "1,0" x))', "x"),
        Axiom(
            "30 transpose of product",
            '(transpose "1,0" (matmul x y))',
            '(matmul (transpose "1,0" y) (transpose "1,0" x))',
        ),
        Axiom(
            "31 transpose rows",
            '(transpose "1,0" (concat 0 p x y))',
            '(concat 1 p (transpose "1,0" x) (transpose "1,0" y))',
        ),
        Axiom(
            "transpose columns",
            '(transpose "1,0" (concat 1 p x y))',
            '(concat 0 p (transpose "1,0" x) (transpose "1,0" y))',
        ),
        Axiom("33 transpose sum", "(transpose t (add x y))", "(add (transpose t x) (transpose t y))"),
        Axiom("34 transpose product", "(transpose t (mul x y))", "(mul (transpose t x) (transpose t y))"),
        Axiom("40 matmul identity", "(matmul x (identity q))", "x"),
        Axiom("identity matmul", "(matmul (identity q) x)", "x"),
        Axiom("identity transposed", '(transpose "1,0" (identity q))', "(identity q)"),
    ]


def _elementwise() -> list[Axiom]:
    return [
        Axiom("0 add associative", "(add x (add y z))", "(add (add x y) z)"),
        Axiom("1 add commutative", "(add x y)", "(add y x)"),
        Axiom("2 mul associative", "(mul x (mul y z))", "(mul (mul x y) z)"),
        Axiom("3 mul commutative", "(mul x y)", "(mul y x)"),
        Axiom("4 distributive", "(mul (add x y) z)", "(add (mul x z) (mul y z))"),
        Axiom("5 scale associative", "(scale (scale x y) w)", "(scale x (scale y w))"),
        Axiom("scales commute", "(scale (scale x y) w)", "(scale (scale x w) y)"),
        Axiom("6 scale sum", "(scale (add x y) w)", "(add (scale x w) (scale y w))"),
        Axiom("7 scale product", "(scale (mul x y) w)", "(mul x (scale y w))"),
        Axiom("8 scale transpose", "(scale (transpose t x) w)", "(transpose t (scale x w))"),
        Axiom("9 scale matmul right", "(scale (matmul x y) w)", "(matmul x (scale y w))"),
        Axiom("scale matmul left", "(scale (matmul x y) w)", "(matmul (scale x w) y)"),
        Axiom("10 scale concat", "(scale (concat a p x y) w)", "(concat a p (scale x w) (scale y w))"),
        Axiom("14 unary concat", "(unary f (concat a p x y))", "(concat a p (unary f x) (unary f y))"),
        Axiom("15 unary transpose", "(unary f (transpose t x))", "(transpose t (unary f x))"),
        Axiom("41 times one", "(mul x (ones q))", "x"),
    ]


def _layout() -> list[Axiom]:
    return [
        Axiom(
            "20 concat sums",
            "(concat a p (add x y) (add z w))",
            "(add (concat a p x z) (concat a p y w))",
            ("p = size x a",),
        ),
        Axiom("21 concat products", "(concat a p (mul x y) (mul z w))", "(mul (concat a p x z) (concat a p y w))"),
        Axiom("25 first part", "(split 0 a p (concat a p x y))", "x"),
        Axiom("26 second part", "(split 1 a p (concat a p x y))", "y"),
        Axiom(
            "32 concat exchange",
            "(concat 0 p (concat 1 q x y) (concat 1 q z w))",
            "(concat 1 q (concat 0 p x z) (concat 0 p y w))",
        ),
        Axiom(
            "concat associative",
            "(concat a p (concat a q x y) z)",
            "(concat a q x (concat a r y z))",
            ("r = size y a", "p = (+ q r)"),
        ),
        Axiom("parts together", "(concat a j (split 0 a j x) (split 1 a j x))", "x", present="(split o a j x)"),
    ]


def _conv(image: str, kernel: str, groups: str = "g", strides: str = "s") -> str:
    return f"(conv k {strides} d e {groups} {image} {kernel})"


def _convolution() -> list[Axiom]:
    # Where two images meet, strides are 1: only then do outputs of one size mean images of one size.
    single, step = str(ONE), '"1,1"'
    return [
        Axiom("11 conv moves scale", _conv("(scale x w)", "y"), _conv("x", "(scale y w)")),
        Axiom("12 scale conv", f"(scale {_conv('x', 'y')} w)", _conv("(scale x w)", "y")),
        Axiom("16 conv kernels sum", _conv("x", "(add y z)"), f"(add {_conv('x', 'y')} {_conv('x', 'z')})"),
        Axiom(
            "17 conv images sum",
            _conv("(add x y)", "z", strides=step),
            f"(add {_conv('x', 'z', strides=step)} {_conv('y', 'z', strides=step)})",
        ),
        Axiom(
            "18 sum of convs",
            f"(add {_conv('x', 'y', single, step)} {_conv('z', 'w', single, step)})",
            _conv("(concat 1 p x z)", "(concat 1 p y w)", single, step),
            ("p = size x 1",),
        ),
        Axiom(
            "22 conv batch",
            f"(concat 0 p {_conv('x', 'z', strides=step)} {_conv('y', 'z', strides=step)})",
            _conv("(concat 0 p x y)", "z", strides=step),
        ),
        Axiom(
            "23 conv outputs",
            f"(concat 1 p {_conv('x', 'y', single)} {_conv('x', 'z', single)})",
            _conv("x", "(concat 0 p y z)", single),
        ),
        Axiom(
            "conv groups side by side",
            f"(concat 1 p {_conv('x', 'y', strides=step)} {_conv('z', 'w', strides=step)})",
            _conv("(concat 1 q x z)", "(concat 0 p y w)", "h", step),
            ("q = size x 1", "m = size y 0", "m = size w 0", "n = size y 1", "n = size w 1", "h = (+ g g)"),
            _conv("x", "y", strides=step),
        ),
        Axiom("merge sum", "(merge_groups g u (add x y))", "(add (merge_groups g u x) (merge_groups g u y))"),
        Axiom("merge scale", "(merge_groups g u (scale x w))", "(scale (merge_groups g u x) w)"),
        Axiom("merge gain", "(merge_groups g u (gain 0 x b))", "(gain 0 (merge_groups g u x) b)"),
        Axiom("merge relu", '(merge_groups g u (unary "relu" x))', '(unary "relu" (merge_groups g u x))'),
        Axiom("conv merges groups", _conv("x", "w"), _conv("x", "(merge_groups g u w)", "l"), ("g = (* l u)",)),
        Axiom("conv part of batch", f"(split o 0 j {_conv('x', 'w')})", _conv("(split o 0 j x)", "w")),
    ]


def _kernels() -> list[Axiom]:
    whole = ("n = size (identity_kernel q) 0", "n = size x 1")  # each channel once: three outputs of one repeat it
    equalities = [
        Axiom(
            "38 pooling as conv",
            '(conv "3,3" "1,1" "1,1,1,1" "1,1" g x (pool_kernel q))',
            f'(avgpool {WINDOW} "True" x)',
            ("g = size (pool_kernel q) 0",),
        ),
        Axiom("39 identity kernel", '(conv "3,3" "1,1" "1,1,1,1" "1,1" g x (identity_kernel q))', "x", whole),
        Axiom("identity kernel 1,1", '(conv "1,1" "1,1" "0,0,0,0" "1,1" g x (identity_kernel q))', "x", whole),
    ]
    for source, pads in (("1,1", "0,0,0,0"), ("1,3", "0,1,0,1"), ("3,1", "1,0,1,0")):
        enlarge = f'enlarge "{source}" "3,3"'
        equalities += [
            Axiom(
                f"43 enlarge {source}",
                f'(conv "{source}" s "{pads}" "1,1" g x y)',
                f'(conv "3,3" s "1,1,1,1" "1,1" g x ({enlarge} y))',
            ),
            Axiom(f"enlarge sum {source}", f"({enlarge} (add x y))", f"(add ({enlarge} x) ({enlarge} y))"),
            Axiom(f"enlarge product {source}", f"({enlarge} (mul x y))", f"(mul ({enlarge} x) ({enlarge} y))"),
            Axiom(f"enlarge scale {source}", f"({enlarge} (scale x w))", f"(scale ({enlarge} x) w)"),
            Axiom(
                f"enlarge outputs {source}",
                f"({enlarge} (concat 0 p x y))",
                f"(concat 0 p ({enlarge} x) ({enlarge} y))",
            ),
            Axiom(
                f"enlarge channels {source}",
                f"({enlarge} (concat 1 p x y))",
                f"(concat 1 p ({enlarge} x) ({enlarge} y))",
            ),
            Axiom(f"enlarge gain {source}", f"({enlarge} (gain 0 x b))", f"(gain 0 ({enlarge} x) b)"),
            Axiom(f"enlarge relu {source}", f'({enlarge} (unary "relu" x))', f'(unary "relu" ({enlarge} x))'),
        ]
    return equalities


def _pooling() -> list[Axiom]:
    # As for convolutions, where two images meet strides are 1; a part of one image may be cut before any stride.
    splits = []
    for name, numbers, head in (("average", ("35 ", ""), "avgpool {} c"), ("maximum", ("37 ", "36 "), "maxpool {}")):
        pool, step = head.format("k s d"), head.format('k "1,1" d')
        for axis, word, number in ((1, "channels", numbers[0]), (0, "batch", numbers[1])):
            splits += [
                Axiom(
                    f"{number}{name} {word}",
                    f"({step} (concat {axis} p x y))",
                    f"(concat {axis} p ({step} x) ({step} y))",
                ),
                Axiom(f"{name} part of {word}", f"(split o {axis} j ({pool} x))", f"({pool} (split o {axis} j x))"),
            ]
    average = 'avgpool k "1,1" d c'
    return [
        *splits,
        Axiom("average sum", f"({average} (add x y))", f"(add ({average} x) ({average} y))"),
        Axiom("average scale", "(avgpool k s d c (scale x w))", "(scale (avgpool k s d c x) w)"),
        Axiom("average gain", "(avgpool k s d c (gain 1 x b))", "(gain 1 (avgpool k s d c x) b)"),
        Axiom(
            "42 average of identity",
            f'(avgpool {WINDOW} "True" (identity_kernel q))',
            "(pool_kernel q)",
            (
                "n = size (identity_kernel q) 1",
                f"n = {ONE}",
                "h = size (identity_kernel q) 2",
                f"h = {THREE}",
                "v = size (identity_kernel q) 3",
                f"v = {THREE}",
            ),
        ),
    ]


def _channelwise() -> list[Axiom]:
    moves = [
        Axiom("bias of sum", "(add (bias a x b) y)", "(bias a (add x y) b)"),
        Axiom("gain of sum", "(gain a (add x y) b)", "(add (gain a x b) (gain a y b))"),
        Axiom("gain of product", "(mul (gain a x b) y)", "(gain a (mul x y) b)"),
        Axiom("bias twice", "(bias a (bias a x b) c)", "(bias a x (add b c))"),
        Axiom("gain twice", "(gain a (gain a x b) c)", "(gain a x (mul b c))"),
        Axiom("gain of bias", "(gain a (bias a x b) c)", "(bias a (gain a x c) (mul b c))"),
        Axiom("scale of bias", "(scale (bias a x b) w)", "(bias a (scale x w) (scale b w))"),
        Axiom("scale of gain", "(scale (gain a x b) w)", "(gain a (scale x w) b)"),
        Axiom("gain by scaled", "(gain a x (scale b w))", "(scale (gain a x b) w)"),
        Axiom("gain of columns", "(gain 1 (matmul x y) b)", "(matmul x (gain 1 y b))"),
        Axiom("gain of rows", "(gain 0 (matmul x y) b)", "(matmul (gain 0 x b) y)"),
        Axiom("gain between", "(matmul (gain 1 x b) y)", "(matmul x (gain 0 y b))"),
        Axiom("gain of outputs", f"(gain 1 {_conv('x', 'y')} b)", _conv("x", "(gain 0 y b)")),
        Axiom("gain of channels", _conv("(gain 1 x b)", "y", str(ONE)), _conv("x", "(gain 1 y b)", str(ONE))),
    ]
    moves += [
        Axiom("sum of gains", "(add (gain a x b) (gain a x c))", "(gain a x (add b c))"),
        Axiom("product with bias", "(mul x (bias a y b))", "(add (mul x y) (gain a x b))"),
    ]
    for op in ("bias", "gain"):
        moves += [
            Axiom(f"{op} both ways", f"({op} a ({op} m x b) c)", f"({op} m ({op} a x c) b)"),
            Axiom(
                f"{op} along",
                f"(concat a p ({op} a x b) ({op} a y c))",
                f"({op} a (concat a p x y) (concat 0 p b c))",
                ("p = size x a", "p = size b 0"),
            ),
            Axiom(f"{op} across rows", f"(concat 0 p ({op} 1 x b) ({op} 1 y b))", f"({op} 1 (concat 0 p x y) b)"),
            Axiom(f"{op} across columns", f"(concat 1 p ({op} 0 x b) ({op} 0 y b))", f"({op} 0 (concat 1 p x y) b)"),
            Axiom(f"{op} of transpose", f'(transpose "1,0" ({op} 0 x b))', f'({op} 1 (transpose "1,0" x) b)'),
            Axiom(f"{op} of transposed", f'(transpose "1,0" ({op} 1 x b))', f'({op} 0 (transpose "1,0" x) b)'),
        ]
    return moves


def axioms() -> list[Axiom]:
    """All axioms.

    Example:
        >>> next(axiom for axiom in axioms() if axiom.name.startswith("24")).right
        '(matmul (matmul x y) z)'
    """
    return [*_matrix(), *_elementwise(), *_layout(), *_convolution(), *_kernels(), *_pooling(), *_channelwise()]


def equations(rule: PatternRule) -> list[Axiom]:
    """A rule as axioms, one per output: what proofs and trials of rules work on."""
    pairs = enumerate(zip(rule.left, rule.right, strict=True))
    return [Axiom(f"{rule.id}.{n}", left, right, rule.where) for n, (left, right) in pairs]
