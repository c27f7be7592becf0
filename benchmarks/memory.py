"""Recursive least squares on many streams at once, beside a numpy loop and beside refitting; and how far a million updates drift.

    python benchmarks/memory.py [--repeats 5] [--streams 256] [--tokens 200] [--long 1000000]

*Streams:* 256 streams of 200 tokens, d = 16, one target, read token by token by the batched module, token by token by a numpy loop for each
stream, and by solving each stream's ridge problem anew at every token. The three end at the same weights. Processor seconds of one
thread, the median of the repeats, the three taken in turn.
*Drift:* one stream, a million tokens in blocks, in float64 and float32, without forgetting and with 0.999; the error of the weights against
the normal equations summed in longdouble.
Writes benchmarks/results/memory.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from record import RESULTS, write
from torch import Tensor

from transformer_ols import RecursiveLeastSquares

D, RIDGE = 16, 1.0


def batched(x: Tensor, y: Tensor) -> np.ndarray:
    """All streams in step, one token at a time."""
    memory = RecursiveLeastSquares(D, 1, ridge=RIDGE, batch=(len(x),))
    for t in range(x.shape[1]):
        memory.update(x[:, t], y[:, t])
    return memory.weights[..., 0].numpy()


def loop(x: Tensor, y: Tensor) -> np.ndarray:
    """The textbook recursion in numpy, one stream after the other."""
    found = []
    for tokens, targets in zip(x.numpy(), y.numpy()[..., 0], strict=True):
        p, w = np.eye(D) / RIDGE, np.zeros(D)
        for token, target in zip(tokens, targets, strict=True):
            u = p @ token
            c = 1 + token @ u
            w = w + u * ((target - token @ w) / c)
            p = p - np.outer(u, u / c)
        found.append(w)
    return np.stack(found)


def refit(x: Tensor, y: Tensor) -> np.ndarray:
    """The ridge problem solved anew at every token, all streams in one call, from the running sums."""
    gram, side = np.tile(RIDGE * np.eye(D), (len(x), 1, 1)), np.zeros((len(x), D, 1))
    for t in range(x.shape[1]):
        token = x[:, t, :, None].numpy()
        gram += token @ token.transpose(0, 2, 1)
        side += token * y[:, t, :, None].numpy()
        w = np.linalg.solve(gram, side)
    return w[..., 0]


ROUTES: dict[str, Callable[[Tensor, Tensor], np.ndarray]] = {"batched module": batched, "numpy loop": loop, "refit": refit}


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def streams(count: int, tokens: int, repeats: int) -> list[dict[str, object]]:
    """Seconds and relative difference of each route."""
    x, y = draw(count, tokens, D, seed=0), draw(count, tokens, 1, seed=1)
    reference = refit(x, y)
    seconds: dict[str, list[float]] = {name: [] for name in ROUTES}
    gaps = {}
    for _ in range(repeats):
        for name, route in ROUTES.items():
            start = time.process_time()
            weights = route(x, y)
            seconds[name].append(time.process_time() - start)
            gaps[name] = float(np.linalg.norm(weights - reference) / np.linalg.norm(reference))
    return [
        {
            "route": name,
            "seconds": float(f"{statistics.median(times):.3g}"),
            "microseconds_per_token": float(f"{1e6 * statistics.median(times) / (count * tokens):.3g}"),
            "difference": float(f"{gaps[name]:.1e}"),
        }
        for name, times in seconds.items()
    ]


def drift(tokens: int, dtype: torch.dtype, forgetting: float) -> dict[str, object]:
    """Error of the weights after a long stream, against sums in longdouble."""
    memory, block, dt = RecursiveLeastSquares(D, 1, ridge=RIDGE, forgetting=forgetting, dtype=dtype), 10_000, np.longdouble
    gram, side, beta = RIDGE * np.eye(D, dtype=dt), np.zeros((D, 1), dtype=dt), draw(D, 1, seed=2)
    for number in range(tokens // block):
        x = draw(block, D, seed=10 + number).to(dtype).double()
        y = (x @ beta + 0.1 * draw(block, 1, seed=100_000 + number)).to(dtype).double()
        memory.update(x.to(dtype), y.to(dtype))
        weights = dt(forgetting) ** np.arange(block - 1, -1, -1)[:, None].astype(dt)
        rows, targets = x.numpy().astype(dt), y.numpy().astype(dt)
        gram = dt(forgetting) ** block * gram + (weights * rows).T @ rows
        side = dt(forgetting) ** block * side + (weights * rows).T @ targets
    exact = np.linalg.solve(gram.astype(float), side.astype(float))
    exact += np.linalg.solve(gram.astype(float), (side - gram @ exact.astype(dt)).astype(float))  # refined in longdouble
    error = np.linalg.norm(memory.weights.double().numpy() - exact) / np.linalg.norm(exact)
    return {"tokens": tokens, "dtype": str(dtype).removeprefix("torch."), "forgetting": forgetting, "error": float(f"{error:.1e}")}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--streams", type=int, default=256, help="streams read side by side")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each stream")
    parser.add_argument("--long", type=int, default=1_000_000, help="tokens of the long stream")
    given = parser.parse_args()
    torch.set_num_threads(1)
    timed = streams(given.streams, given.tokens, given.repeats)
    print(*timed, sep="\n", flush=True)
    drifted = [drift(given.long, dtype, g) for dtype in (torch.float64, torch.float32) for g in (1.0, 0.999)]
    print(*drifted, sep="\n")
    shape = {"d": D, "streams": given.streams, "tokens": given.tokens, "repeats": given.repeats}
    write(RESULTS / "memory.json", **shape, results=timed, drift=drifted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
