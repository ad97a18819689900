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


def guarded(f, limit):
    """f with its removable singularity at 0 replaced by the limit."""
    return lambda x: f(x) if abs(x) > mp.mpf(10) ** -12 else mp.mpf(limit)


def sq(f, limit):
    return guarded(lambda z: f(mp.sqrt(z)), limit)


def scaled_erfc(t):
    """e^(z^2) erfc(z) (1 + 2z) at t = (z - 4) / (z + 4)."""
    z = 4 * (1 + t) / (1 - t)
    return mp.exp(z**2) * mp.erfc(z) * (1 + 2 * z)


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
]

if __name__ == "__main__":
    for row in FITS:
        fit(*row)
