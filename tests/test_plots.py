"""Figures: what is drawn is what was given, whatever held the numbers; anything else is refused in words."""

import subprocess
import sys

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from transformer_ols import plots

quick = settings(deadline=None, derandomize=True, max_examples=15)
finite = st.floats(-1e6, 1e6, allow_subnormal=False)
matrices = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=finite)
HOLDERS = {
    "list": lambda a: a.tolist(),
    "numpy": lambda a: a,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "float64": torch.tensor,
    "float32": lambda a: torch.tensor(a, dtype=torch.float32),
    "graph": lambda a: torch.tensor(a, requires_grad=True),
}


@pytest.fixture
def ax():
    plots.use_style()
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def fresh():
    plt.close("all")
    return plt.subplots()[1]


@pytest.mark.parametrize("holder", HOLDERS)
@quick
@given(arrays(np.float64, array_shapes(min_dims=1, max_dims=1, max_side=8), elements=finite))
def test_curves_draw_the_numbers(holder, values):
    ax, x = fresh(), np.arange(len(values))
    assert plots.curves(ax, HOLDERS[holder](x * 1.0), {"a": HOLDERS[holder](values)}, xlabel="n", ylabel="y") is ax
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_allclose(line.get_ydata(), values, rtol=2**-24 if holder == "float32" else 0, atol=1e-40)
    assert (ax.get_xlabel(), ax.get_ylabel(), line.get_label()) == ("n", "y", "a")


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
def test_log_axes(ax, log):
    plots.curves(ax, [1, 10], {"a": [1, 2], "b": [3, 4]}, xlabel="", ylabel="", log=log, markers=True)
    assert (ax.get_xscale() == "log", ax.get_yscale() == "log") == ("x" in log, "y" in log)
    assert [line.get_color() for line in ax.get_lines()] == list(plots.PALETTE[:2])
    assert len({str(line.get_linestyle()) for line in ax.get_lines()}) == 2
    assert {line.get_marker() for line in ax.get_lines()} == {"o"}


def test_a_curve_without_a_label_has_no_legend(ax):
    assert plots.curves(ax, [1], {"": [1]}, xlabel="", ylabel="").get_legend() is None


@quick
@given(arrays(np.float64, st.tuples(st.just(2), st.integers(1, 8)), elements=finite))
def test_lines_run_from_left_to_right(xy):
    ax = plots.points_and_lines(fresh(), *xy, {"fit": (xy[0], xy[1])}, xlabel="x", ylabel="y")
    (line,) = ax.get_lines()
    assert (np.diff(line.get_xdata()) >= 0).all()
    assert sorted(line.get_xydata().tolist()) == sorted(xy.T.tolist())
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), xy.T)


@settings(quick, max_examples=40, phases=(Phase.generate,))
@given(st.sampled_from(sorted(HOLDERS)), matrices, st.none() | finite)
def test_heatmaps_draw_the_numbers(holder, values, center):
    ax = plots.heatmap(fresh(), HOLDERS[holder](values), xlabel="j", ylabel="i", label="a", center=center)
    (image,) = ax.images
    np.testing.assert_allclose(np.asarray(image.get_array()), values, rtol=2**-24 if holder == "float32" else 0, atol=1e-40)
    if center is not None:
        low, high = image.get_clim()
        slack = 1e-15 * (abs(low) + abs(high))  # the limits are one addition away from the entries
        assert low - slack <= np.asarray(image.get_array()).min() and np.asarray(image.get_array()).max() <= high + slack
        assert float(image.norm(center)) == pytest.approx(0.5)
    assert image.colorbar.ax.get_ylabel() == "a"


@quick
@given(arrays(np.float64, array_shapes(min_dims=0, max_dims=3, max_side=4), elements=finite))
def test_parity_draws_every_pair(values):
    ax = plots.parity(fresh(), values, torch.tensor(values) + 1, xlabel="a", ylabel="b")
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), np.stack([values.ravel(), values.ravel() + 1], -1))


BAD = {
    "nan": ([[1.0, float("nan")]], ValueError, "must be finite, got 1"),
    "infinity": (torch.tensor([[1.0, float("inf")]]), ValueError, "must be finite, got 1"),
    "empty": (np.zeros((1, 0)), ValueError, "is empty"),
    "rank": (np.zeros((2, 2, 2)), ValueError, "must have (1 axis|2 axes|the shape)"),
    "text": (["a", "b"], TypeError, "must hold real numbers, got list"),
    "ragged": ([[1.0], [1.0, 2.0]], TypeError, "must hold real numbers, got list"),
    "bool": (torch.tensor([True, False]), TypeError, "must hold real numbers, got bool"),
    "complex": (torch.ones(2, dtype=torch.complex64), TypeError, "must hold real numbers, got complex64"),
    "half": (torch.ones(2, dtype=torch.bfloat16), TypeError, "must hold real numbers, got bfloat16"),
    "meta": (torch.ones(2, device="meta"), ValueError, "is on the meta device"),
    "none": (None, TypeError, "must hold real numbers, got NoneType"),
}
CALLS = {
    "x": lambda ax, v: plots.curves(ax, v, {"a": [1, 2]}, xlabel="", ylabel=""),
    r"curves\['a'\]": lambda ax, v: plots.curves(ax, [1, 2], {"a": v}, xlabel="", ylabel=""),
    "x ": lambda ax, v: plots.points_and_lines(ax, v, [1, 2], {}, xlabel="", ylabel=""),
    "y": lambda ax, v: plots.points_and_lines(ax, [1, 2], v, {}, xlabel="", ylabel=""),
    r"lines\['a'\]\[0\]": lambda ax, v: plots.points_and_lines(ax, [1], [1], {"a": (v, [1, 2])}, xlabel="", ylabel=""),
    r"lines\['a'\]\[1\]": lambda ax, v: plots.points_and_lines(ax, [1], [1], {"a": ([1, 2], v)}, xlabel="", ylabel=""),
    "matrix": lambda ax, v: plots.heatmap(ax, v, xlabel="", ylabel="", label=""),
    "reference": lambda ax, v: plots.parity(ax, v, [[1, 2]], xlabel="", ylabel=""),
    "values": lambda ax, v: plots.parity(ax, [1, 2], v, xlabel="", ylabel=""),
}


CASES = [(call, bad) for call in CALLS for bad in BAD if (call, bad) != ("reference", "rank")]  # a reference may have any shape


@pytest.mark.parametrize("call, bad", CASES)
def test_bad_numbers_are_refused_by_name(ax, call, bad):
    value, error, text = BAD[bad]
    vector = bad in ("nan", "infinity", "empty") and call != "matrix"
    with pytest.raises(error, match=rf"^{call.strip()} {text}"):
        CALLS[call](ax, value[0] if vector else value)


L = {"xlabel": "", "ylabel": ""}
REFUSED = [
    (lambda ax: plots.curves(None, [1], {"a": [1]}, **L), TypeError, "ax must be Axes, got NoneType"),
    (lambda ax: plots.curves(ax, [1], [1], **L), TypeError, "curves must be Mapping, got list"),
    (lambda ax: plots.curves(ax, [1], {}, **L), ValueError, "curves must hold 1 to 7 curves, got 0"),
    (lambda ax: plots.curves(ax, [1], {1: [1]}, **L), TypeError, "curves' label must be str, got int"),
    (lambda ax: plots.curves(ax, [1], {"a": [1, 2]}, **L), ValueError, r"curves\['a'\] must have 1 values"),
    (lambda ax: plots.curves(ax, [0], {"a": [1]}, log="x", **L), ValueError, "x must be above 0 on a log axis"),
    (lambda ax: plots.curves(ax, [1], {"a": [-1]}, log="y", **L), ValueError, r"curves\['a'\] must be above 0 on a log axis"),
    (lambda ax: plots.curves(ax, [1], {"a": [1]}, log="z", **L), ValueError, "log must be one of"),
    (lambda ax: plots.curves(ax, [1], {"a": [1]}, markers=1, **L), TypeError, "markers must be bool, got int"),
    (lambda ax: plots.curves(ax, [1], {"a": [1]}, xlabel=None, ylabel=""), TypeError, "xlabel must be str"),
    (lambda ax: plots.curves(ax, [1], {"a": [1]}, xlabel="", ylabel=None), TypeError, "ylabel must be str"),
    (lambda ax: plots.points_and_lines(ax, [1, 2], [1], {}, **L), ValueError, "y must have 2 values, one for each x, got 1"),
    (lambda ax: plots.points_and_lines(ax, [1], [1], [], **L), TypeError, "lines must be Mapping, got list"),
    (lambda ax: plots.points_and_lines(ax, [1], [1], {"a": 1}, **L), TypeError, r"lines\['a'\] must be a pair"),
    (lambda ax: plots.points_and_lines(ax, [1], [1], {"a": ([1], [1, 2])}, **L), ValueError, "as many x as y, got 1 and 2"),
    (lambda ax: plots.points_and_lines(ax, [1], [1], {1: ([1], [1])}, **L), TypeError, "lines' label must be str"),
    (lambda ax: plots.heatmap(ax, [[1]], label=None, **L), TypeError, "label must be str"),
    (lambda ax: plots.heatmap(ax, [[1]], label="", center=float("nan"), **L), ValueError, "center must be finite"),
    (lambda ax: plots.heatmap(ax, [[1]], label="", center="0", **L), TypeError, "center must be a real number"),
    (lambda ax: plots.parity(ax, [1, 2], [[1, 2]], **L), ValueError, "values must have the shape of reference"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_everything_else_is_refused_by_name(ax, case):
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call(ax)
    assert not (ax.lines or ax.collections or ax.images), "something was drawn before the refusal"


def test_style_and_palette_agree(ax):
    assert tuple(plt.rcParams["axes.prop_cycle"].by_key()["color"]) == plots.PALETTE


def test_figures_stay_out_of_the_library():
    code = "import sys, transformer_ols, transformer_ols.checks; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
