"""Computes the coefficients of shaders/lib/float_*.glsl.j2. Run it with mpmath installed.

Weighted least squares at Chebyshev nodes in 60-digit arithmetic. Coefficients are rounded to
float32 one by one, lowest power first, and the others are fitted again, to absorb each rounding.
"""

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def least_squares(f, weight, degree, a, b, fixed):
    """Coefficients of sum(c_k x^k), with those in `fixed` {k: value} given, minimising the weighted
    error at Chebyshev nodes on [a, b] (within a factor two of the minimax error)."""
    free = [k for k in range(degree + 1) if k not in fixed]
    nodes = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * i + 1) / 128) for i in range(64)]
    rows = mp.matrix([[weight(x) * x**k for k in free] for x in nodes])
    rhs = mp.matrix([weight(x) * (f(x) - sum(v * x**k for k, v in fixed.items())) for x in nodes])
    solution = mp.lu_solve(rows, rhs)
    return {**fixed, **{k: solution[i] for i, k in enumerate(free)}}


def fit(name, f, weight, degree, a, b, fixed=None):
    """Prints the coefficients rounded to float32 and the remaining error."""
    a, b = mp.mpf(a), mp.mpf(b)
    fixed = dict(fixed or {})
    c = least_squares(f, weight, degree, a, b, fixed)
    for k in range(degree + 1):
        if k not in fixed:
            fixed[k] = mp.mpf(float(np.float32(float(c[k]))))
            if len(fixed) <= degree:
                c = least_squares(f, weight, degree, a, b, fixed)
    grid = [a + (b - a) * mp.mpf(i) / 2000 for i in range(2001)]
    worst = max(abs(weight(x) * (sum(v * x**k for k, v in fixed.items()) - f(x))) for x in grid)
    print(f"{name}: log2 of the largest weighted error {float(mp.log(worst, 2)):.1f}")
    print("    " + ", ".join(f"{float(fixed[k]):.9g}" for k in range(degree + 1)))


def fit_quotient(name, f, above, below, end):
    """Prints the coefficients of f(x) / x = P(x^2) / Q(x^2), Q(0) = 1, up to x = end, with these
    degrees, and the largest relative error."""
    nodes = [mp.mpf(end) ** 2 * (1 - mp.cos(mp.pi * (2 * i + 1) / 240)) / 2 for i in range(120)]
    divisor = [mp.mpf(1)] * len(nodes)
    for _ in range(12):  # least squares of (P - f Q) / (f Q) with the last round's Q below
        rows, rhs = [], []
        for z, q in zip(nodes, divisor, strict=True):
            y = f(mp.sqrt(z)) / mp.sqrt(z)
            rows.append([z**k / (y * q) for k in range(above + 1)]
                        + [-(z**k) / q for k in range(1, below + 1)])
            rhs.append(1 / q)
        c = mp.lu_solve(mp.matrix(rows), mp.matrix(rhs))
        p, q = [*c[: above + 1]], [mp.mpf(1), *c[above + 1 :]]
        divisor = [mp.polyval(q[::-1], z) for z in nodes]
    grid = [mp.mpf(end) * i / 1000 for i in range(1, 1001)]
    worst = max(abs(x * mp.polyval(p[::-1], x**2) / mp.polyval(q[::-1], x**2) / f(x) - 1)
                for x in grid)
    print(f"{name}: log2 of the largest relative error {float(mp.log(worst, 2)):.1f}")
    for part in (p, q):
        print("    " + ", ".join(f"{np.float32(float(v)):.9g}" for v in part))


def guarded(f, limit):
    """f with its removable singularity at 0 replaced by the limit."""
    return lambda x: f(x) if abs(x) > mp.mpf(10) ** -12 else mp.mpf(limit)


def sq(f, limit):
    return guarded(lambda z: f(mp.sqrt(z)), limit)


def scaled_erfc(t):
    """e^(z^2) erfc(z) (1 + 2z) at t = (z - 4) / (z + 4)."""
    z = 4 * (1 + t) / (1 - t)
    return mp.exp(z**2) * mp.erfc(z) * (1 + 2 * z)


def tail(a):
    """log2 of the normal distribution at -a"""
    return mp.log(mp.erfc(a / mp.sqrt(2)) / 2, 2)


third = mp.mpf(1) / 3
# name, function, weight (of the error that matters), degree, interval
FITS = [
    # e^r = 1 + r + r^2 P(r)
    ("exp", guarded(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5), lambda r: r**2 / mp.exp(r),
     4, -0.348, 0.348),
    # log((1+s)/(1-s)) = s (2 + z P(z)), z = s^2
    ("log", sq(lambda s: (2 * mp.atanh(s) / s - 2) / s**2, 2 * third), lambda z: z / 2,
     3, 0, 0.02945),
    # sin r = r + r^3 P(r^2);  cos r = 1 - r^2/2 + r^4 P(r^2)
    ("sin", sq(lambda r: (mp.sin(r) / r - 1) / r**2, -third / 2), lambda z: z, 3, 0, 0.6177),
    ("cos", sq(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4, third / 8), lambda z: z**2,
     3, 0, 0.6177),
    # erf x = x + x P(x^2)
    ("erf", sq(lambda x: mp.erf(x) / x - 1, 2 / mp.sqrt(mp.pi) - 1), lambda z: mp.mpf(1),
     7, 0, 0.7657),
    # erfc z = e^(-z^2) P((z - 4) / (z + 4)) / (1 + 2z), z < 11
    ("erfc", scaled_erfc, lambda t: mp.mpf(1), 10, -1, 0.4667),
    # tanh x = x + x^3 P(x^2)
    ("tanh", sq(lambda x: (mp.tanh(x) / x - 1) / x**2, -third), lambda z: z, 4, 0, 0.3907),
    # Of the short forms for float16. The tail of the normal distribution at -a is 2^(a P(a) - 1);
    # below 2^-14 float16 are denormal.
    ("half gelu", guarded(lambda a: (tail(a) + 1) / a, -mp.sqrt(2 / mp.pi) / mp.log(2)),
     lambda a: a * mp.log(2) * min(1, a * 2 ** (tail(a) + 14)), 8, 0, 5.75),
]
QUOTIENTS = [("half tanh", mp.tanh, 3, 3, 4.51), ("half erf", mp.erf, 2, 4, 2.6)]

if __name__ == "__main__":
    for row in FITS:
        fit(*row)
    for row in QUOTIENTS:
        fit_quotient(*row)
