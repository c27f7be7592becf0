"""What the capacity suite costs by the table of overlaps, and by powers of every overlap without every bit.

    python benchmarks/hopfield_capacity.py [--repeats 5]

The same searches, from the same seeds, with `HopfieldNetwork` as it is and with a network whose field is computed as the definition has it:
for every state, pattern and bit, (c + 1)^p - (c - 1)^p with c the overlap without the bit. Both must give the same capacity.
Each is timed in processor seconds of one thread, which other programs on the machine disturb least; the median of the repeats.
Writes benchmarks/results/hopfield_capacity.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from unittest.mock import patch

import torch
from record import RESULTS, write
from torch import Tensor

from transformer_ols import hopfield

PROTOCOLS = {"F": {"start": 1.0, "goal": 1.0, "steps": 1}, "R": {"start": 0.8, "goal": 0.95, "steps": 15}}
SUITE = (("F", 2, 200), ("R", 2, 100), ("F", 3, 60), ("R", 3, 40), ("F", 4, 30), ("R", 4, 30))  # protocol, degree, bits


class DirectPowers(hopfield.HopfieldNetwork):
    """The field by its definition, one power for each state, pattern and bit."""

    def _field(self, state: Tensor) -> Tensor:
        fields = []
        for s, overlaps in zip(state, state @ self.patterns.mT, strict=True):
            c = overlaps[:, None] - self.patterns * s
            fields.append((self.patterns * ((c + 1) ** self.degree - (c - 1) ** self.degree)).sum(0))
        return torch.stack(fields)


def by_table(**search: object) -> float:
    return hopfield.capacity(**search)


def by_powers(**search: object) -> float:
    with patch.object(hopfield, "HopfieldNetwork", DirectPowers):
        return hopfield.capacity(**search)


def timed(method: Callable[..., float], protocol: str, degree: int, d: int) -> tuple[float, float]:
    """Processor seconds and the capacity."""
    generator = torch.Generator().manual_seed(0)
    begin = time.process_time()
    value = method(d=d, degree=degree, generator=generator, **PROTOCOLS[protocol])
    return time.process_time() - begin, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="odd number of repeats, of which the median is kept")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    results = []
    for protocol, degree, d in SUITE:
        seconds: dict[str, list[float]] = {"table": [], "powers": []}
        for _ in range(repeats):
            table, capacity = timed(by_table, protocol, degree, d)
            powers, same = timed(by_powers, protocol, degree, d)
            assert capacity == same, f"the two disagree: {capacity} and {same}"
            seconds["table"].append(table)
            seconds["powers"].append(powers)
        medians = {name: float(f"{statistics.median(values):.3g}") for name, values in seconds.items()}
        ratio = float(f"{medians['powers'] / medians['table']:.3g}")
        results.append({"protocol": protocol, "degree": degree, "d": d, "capacity": round(capacity, 1), **medians, "ratio": ratio})
        print(results[-1])
    total = {name: float(f"{sum(row[name] for row in results):.3g}") for name in ("table", "powers")}
    write(RESULTS / "hopfield_capacity.json", dtype="float64", repeats=repeats, seconds=total, results=results)


if __name__ == "__main__":
    main()
