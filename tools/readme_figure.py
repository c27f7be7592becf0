"""Draw the figure of the README from a run: one attention layer's answers on the least squares line.

    python tools/readme_figure.py [nbs/images/attention_is_least_squares.svg]

442 diabetes patients (scikit-learn), body mass index against progression. The groups `patients`, `least-squares` and `attention` of the
SVG hold what was computed, so that a test can read the picture back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

from transformer_ols import OLSTransformer
from transformer_ols.plots import PALETTE, points_and_lines, use_style

TARGET = Path(__file__).resolve().parent.parent / "nbs" / "images" / "attention_is_least_squares.svg"


def draw(target: Path) -> None:
    """Run the layer, draw its answers over the data and the least squares line, and write the SVG."""
    patients = load_diabetes(scaled=False)
    x, y = torch.tensor(patients.data[:, 2:3]), torch.tensor(patients.target)
    new = torch.linspace(18, 42, 9, dtype=torch.float64)[:, None]
    layer = OLSTransformer.from_data(x, y, fit_intercept=True)
    ends = torch.tensor([[17.0], [43.0]], dtype=torch.float64)
    line = LinearRegression().fit(x.numpy(), y.numpy()).predict(ends.numpy())

    use_style()
    figure, ax = plt.subplots(figsize=(6.4, 3.4))
    labels = {"xlabel": "body mass index (kg/m²)", "ylabel": "disease progression after a year"}
    points_and_lines(ax, x[:, 0], y, {"least squares": (ends[:, 0], line)}, **labels)
    ax.plot(new[:, 0], layer(new), "o", color=PALETTE[1], markersize=7, label="one attention layer")
    ax.legend()
    for artist, name in zip((ax.collections[0], *ax.get_lines()), ("patients", "least-squares", "attention"), strict=True):
        artist.set_gid(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
