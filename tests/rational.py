"""Least squares in rational arithmetic: an oracle without rounding."""

from __future__ import annotations

import math
from fractions import Fraction

from torch import Tensor


def solve_exactly(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(len(rows)):
        pivot = next(k for k in range(i, len(rows)) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for k in range(len(rows)):
            if k != i:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[-1] for row in rows]


def exact(
    x: list[list[Fraction]], y: list[Fraction], weights: list[Fraction] | None = None, ridge: Fraction = Fraction(0)
) -> list[Fraction]:
    """(XᵀWX + ridge I)⁻¹XᵀWy without rounding."""
    w, d = weights or [Fraction(1)] * len(y), len(x[0])
    gram = [[sum((wi * r[i] * r[j] for wi, r in zip(w, x, strict=True)), ridge * (i == j)) for j in range(d)] for i in range(d)]
    return solve_exactly(gram, [sum((wi * r[i] * v for wi, r, v in zip(w, x, y, strict=True)), Fraction(0)) for i in range(d)])


def binary(x: Tensor) -> list[list[Fraction]]:
    return [[Fraction(v) for v in row] for row in x.tolist()]


def digits(values: list[float], truth: list[Fraction]) -> float:
    worst = max(abs(Fraction(v) - t) / abs(t) for v, t in zip(values, truth, strict=True))
    return 15.0 if worst < Fraction(1, 10**15) else -math.log10(worst)
