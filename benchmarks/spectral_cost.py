"""What it costs to get the inverse covariance, or least squares without it, in high dimension.

    python benchmarks/spectral_cost.py [--sizes 64 128 256 512 1024] [--rows 16] [--repeats 5]

Six routes from tokens X (n x d, n = rows * d, covariance of condition number 100, float64) to least squares, each timed in
processor seconds of one thread, which other programs on the machine disturb least: the median of the repeats, the routes taken in turn.
The answer of each route is compared with LAPACK's.
Writes benchmarks/results/spectral_cost.json, from which the chapter "Least squares in context" draws its figure.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from record import RESULTS, write
from torch import Tensor

CONDITION = 100.0  # of the covariance
BLOCK = 256  # rows that the stream holds at a time
SAMPLES, HITS, STEPS = 4, 8, 40  # sketch rows per feature, entries per column of the sketch, Chebyshev steps after it


def problem(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Tokens whose covariance has eigenvalues from 1/CONDITION to 1, and noisy targets."""
    g = torch.Generator().manual_seed(d)
    u = torch.linalg.qr(torch.randn(n, d, generator=g, dtype=torch.float64)).Q
    v = torch.linalg.qr(torch.randn(d, d, generator=g, dtype=torch.float64)).Q
    x = n**0.5 * u * torch.logspace(-0.5, 0, d, CONDITION, dtype=torch.float64) @ v
    return x, x @ torch.randn(d, generator=g, dtype=torch.float64) + torch.randn(n, generator=g, dtype=torch.float64)


def covariance(x: Tensor) -> Tensor:
    return x.mT @ x / len(x)


def eigh(x: Tensor, y: Tensor) -> Tensor:
    """The theorem as stated: eigenvectors of the covariance."""
    values, v = torch.linalg.eigh(covariance(x))
    factor = v * values.rsqrt()
    return factor @ (factor.mT @ (x.mT @ y)) / len(x)


def svd(x: Tensor, y: Tensor) -> Tensor:
    """The stable route: singular vectors of the tokens."""
    u, s, wt = torch.linalg.svd(x, full_matrices=False)
    return wt.mT @ ((u.mT @ y) / s)


def cholesky(x: Tensor, y: Tensor) -> Tensor:
    """A triangular factor of the covariance."""
    factor = torch.linalg.cholesky(covariance(x))
    return torch.cholesky_solve((x.mT @ y)[:, None] / len(x), factor)[:, 0]


def newton_schulz(x: Tensor, y: Tensor) -> Tensor:
    """Products only: M <- 2M - M omega M until it is the inverse to ten digits."""
    omega, eye = covariance(x), torch.eye(x.shape[1], dtype=x.dtype)
    m = eye / omega.abs().sum(-1).max()
    for _ in range(60):
        product = omega @ m
        if (product - eye).abs().max() < 1e-10:
            break
        m = 2 * m - m @ product
    return m @ (x.mT @ y) / len(x)


def sketch(x: Tensor, y: Tensor) -> Tensor:
    """A random mixture of the rows, its QR as preconditioner, and Chebyshev steps on all rows."""
    n, d = x.shape
    size, g = SAMPLES * d, torch.Generator().manual_seed(0)
    mixed = torch.zeros(size, d, dtype=x.dtype)
    for _ in range(HITS):
        signs = torch.randint(0, 2, (n, 1), generator=g).to(x.dtype) * 2 - 1
        mixed.index_add_(0, torch.randint(0, size, (n,), generator=g), x * signs)
    r = torch.linalg.qr(mixed / HITS**0.5, mode="r").R

    def precondition(v: Tensor) -> Tensor:
        half = torch.linalg.solve_triangular(r.mT, v[:, None], upper=False)
        return torch.linalg.solve_triangular(r, half, upper=True)[:, 0]

    spread = SAMPLES**-0.5
    low, high = (1 + spread) ** -2, (1 - spread) ** -2  # of the preconditioned covariance, up to fluctuations
    low, high = 0.9 * low, 1.1 * high
    center, ratio = (low + high) / 2, (high - low) / (high + low)
    beta = previous = torch.zeros(d, dtype=x.dtype)
    weight = 1.0
    for _ in range(STEPS):
        step = precondition(x.mT @ (y - x @ beta)) / center
        beta, previous = beta + (weight - 1) * (beta - previous) + weight * step, beta
        weight = 1 / (1 - ratio**2 * weight / (2 if weight == 1.0 else 4))
    return beta


def stream(x: Tensor, y: Tensor) -> Tensor:
    """The covariance summed block by block, as if the rows came from a disk, then Cholesky."""
    total, side = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype), torch.zeros(x.shape[1], dtype=x.dtype)
    for rows, targets in zip(x.split(BLOCK), y.split(BLOCK), strict=True):
        total += rows.mT @ rows
        side += rows.mT @ targets
    return torch.cholesky_solve(side[:, None], torch.linalg.cholesky(total))[:, 0]


ROUTES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "svd": svd,
    "eigh": eigh,
    "newton_schulz": newton_schulz,
    "cholesky": cholesky,
    "stream": stream,
    "sketch": sketch,
}


def measure(d: int, rows: int, repeats: int) -> list[dict[str, object]]:
    """Processor seconds and relative error of every route in one dimension."""
    x, y = problem(rows * d, d)
    exact = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    seconds: dict[str, list[float]] = {name: [] for name in ROUTES}
    errors = {name: float((route(x, y) - exact).norm() / exact.norm()) for name, route in ROUTES.items()}  # warms up as well
    for _ in range(repeats):
        for name, route in ROUTES.items():
            start = time.process_time()
            route(x, y)
            seconds[name].append(time.process_time() - start)
    return [
        {"route": name, "d": d, "n": rows * d, "seconds": float(f"{statistics.median(times):.3g}"), "error": float(f"{errors[name]:.1e}")}
        for name, times in seconds.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256, 512, 1024], help="dimensions d")
    parser.add_argument("--rows", type=int, default=16, help="tokens per dimension, n / d")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--output", type=Path, default=RESULTS / "spectral_cost.json", help="where the results go")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for d in given.sizes:
        for row in measure(d, given.rows, given.repeats):
            found.append(row)
            print(f"d {row['d']:5}  {row['route']:14} {row['seconds']:9.3g} s   error {row['error']:.0e}")
    write(given.output, dtype="float64", repeats=given.repeats, condition_number=CONDITION, results=found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
