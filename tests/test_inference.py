"""AttentionInference beyond the cells of its notebook: dtypes, batches, weights, statsmodels, refits, exact arithmetic, the table."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rational import binary, exact, solve_exactly
from scipy.linalg import toeplitz
from sklearn.datasets import load_diabetes
from torch import Tensor

from transformer_ols.inference import COVARIANCES, AttentionInference
from transformer_ols.nist import nist_problem
from transformer_ols.ols_transformer import OLSTransformer

torch.set_num_threads(1)
some = settings(deadline=None, derandomize=True, max_examples=30)

# Rounding of problems with a condition number of a few tens and leverages below 0.99.
CLOSE = {torch.float64: 1e-11, torch.float32: 5e-3}


def error(value: object, reference: object) -> float:
    value, reference = (torch.as_tensor(np.asarray(v, dtype=float)) for v in (value, reference))
    assert value.shape == reference.shape, (value.shape, reference.shape)
    return float((value - reference).norm() / reference.norm().clamp(min=1e-300))


@st.composite
def problems(draw, batches=((), (3,), (2, 2))):
    """Inputs with moderate leverages, targets with noise, perhaps weights, and whether there is an intercept."""
    d = draw(st.integers(1, 4))
    n = 3 * d + draw(st.integers(5, 15))
    batch = draw(st.sampled_from(batches))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    g = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    x = torch.randn(*batch, n, d, generator=g, dtype=torch.float64) + draw(st.sampled_from([0.0, 3.0]))
    y = x.sum(-1) + torch.randn(*batch, n, generator=g, dtype=torch.float64)
    w = 0.5 + torch.rand(*batch, n, generator=g, dtype=torch.float64) if draw(st.booleans()) else None
    intercept = draw(st.booleans())
    return x.to(dtype), y.to(dtype), None if w is None else w.to(dtype), intercept


def fit(problem) -> AttentionInference:
    x, y, w, intercept = problem
    return AttentionInference.from_data(x, y, weights=w, fit_intercept=intercept)


def contexts(problem):
    """One context at a time, in float64."""
    x, y, w, intercept = problem
    w = torch.ones_like(y) if w is None else w
    flat = (part.double().reshape(-1, *part.shape[-k:]) for part, k in ((x, 2), (y, 1), (w, 1)))
    for a, b, c in zip(*flat, strict=True):
        yield (sm.add_constant(a.numpy()) if intercept else a.numpy()), b.numpy(), c.numpy()


def flat(value: Tensor, axes: int) -> Tensor:
    return value.double().reshape(-1, *value.shape[value.ndim - axes :])


@some
@given(problems())
def test_everything_agrees_with_statsmodels(problem):
    mine, close = fit(problem), CLOSE[problem[0].dtype]
    for i, (x, y, w) in enumerate(contexts(problem)):
        theirs = sm.WLS(y, x, weights=w).fit()
        for name, axes, reference in (
            ("estimates", 1, theirs.params),
            ("residuals", 1, theirs.resid),
            ("fitted", 1, theirs.fittedvalues),
            ("scale", 0, theirs.scale),
            ("r_squared", 0, theirs.rsquared),
            ("degrees_of_freedom", 0, theirs.df_resid),
        ):
            assert error(flat(getattr(mine, name), axes)[i], reference) < close, name
        assert error(flat(mine.standard_errors(), 1)[i], theirs.bse) < close
        assert error(flat(mine.t_values(), 1)[i], theirs.tvalues) < close
        assert error(flat(mine.confidence_intervals(0.8), 2)[i], theirs.conf_int(alpha=0.2)) < close
        assert np.abs(flat(mine.p_values(), 1)[i].numpy() - theirs.pvalues).max() < close
        for kind in COVARIANCES[1:]:
            assert error(flat(mine.covariance(kind), 2)[i], getattr(theirs, f"cov_{kind}")) < close, kind
        robust = theirs.get_robustcov_results("HC3", use_t=True)
        assert error(flat(mine.confidence_intervals(0.9, "HC3"), 2)[i], robust.conf_int(alpha=0.1)) < close
        assert np.abs(flat(mine.p_values("HC3"), 1)[i].numpy() - robust.pvalues).max() < close


@some
@given(problems(batches=((),)))
def test_leaving_a_row_out_is_a_refit(problem):
    (x, y, w), mine = next(contexts(problem)), fit(problem)
    misses, moves = np.zeros(len(y)), np.zeros(len(y))
    for i in range(len(y)):
        k, root = np.arange(len(y)) != i, np.sqrt(w)
        coef = np.linalg.lstsq(x[k] * root[k, None], y[k] * root[k], rcond=None)[0]
        misses[i] = y[i] - x[i] @ coef
        moves[i] = (w * (mine.fitted.double().numpy() - x @ coef) ** 2).sum()
    close = CLOSE[problem[0].dtype]
    assert error(mine.leave_one_out, misses) < close
    assert error(mine.press, (w * misses**2).sum()) < close
    assert error(mine.cooks_distance, moves / (x.shape[1] * float(mine.scale))) < close


@some
@given(problems())
def test_the_scores_are_a_projection(problem):
    x, y, w, intercept = problem
    mine, close = fit(problem), CLOSE[x.dtype]
    a, h = mine.scores, mine.leverage
    p = x.shape[-1] + intercept
    assert a.shape == (*y.shape, y.shape[-1]) and a.dtype == x.dtype
    assert error(a @ a, a) < close
    assert error(a.diagonal(dim1=-2, dim2=-1), h) < close
    assert error(h.sum(-1), torch.full(y.shape[:-1], float(p))) < close
    assert error((a @ y[..., None])[..., 0], mine.fitted) < close
    weighted = mine.weights[..., None] * a
    assert error(weighted, weighted.mT) < close
    if w is None:
        assert error(a.square().sum(-1), h) < close
    if intercept:
        assert error(a.sum(-1), torch.ones_like(y)) < close
    if w is None and not intercept:
        layer = OLSTransformer.from_data(x, y)
        assert error(layer.attend(x)[1], a) < close
        n, L = x.shape[-2], layer.w_q
        assert error(mine.covariance(), mine.scale[..., None, None] * L @ L.mT / n) < close


@some
@given(problems(batches=((3,), (2, 2))))
def test_batch_is_one_at_a_time(problem):
    x, y, w, intercept = problem
    together = fit(problem)
    alone = fit((x[1], y[1], None if w is None else w[1], intercept))
    for name in ("estimates", "scores", "leverage", "leave_one_out", "cooks_distance", "press", "scale", "r_squared"):
        assert error(getattr(together, name)[1], getattr(alone, name)) < CLOSE[x.dtype], name
    for kind in COVARIANCES:
        assert error(together.standard_errors(kind)[1], alone.standard_errors(kind)) < CLOSE[x.dtype], kind


@some
@given(problems(batches=((),)), st.sampled_from(COVARIANCES))
def test_targets_share_a_design(problem, kind):
    x, y, w, intercept = problem
    targets = torch.stack([y, 2 - y, y.flip(0)])
    many = fit((x[None], targets, None if w is None else w[None], intercept))
    assert many.estimates.shape == (3, x.shape[-1] + intercept)
    assert many.leverage.shape == (1, len(y)) and many.confidence_intervals(kind=kind).shape == (*many.estimates.shape, 2)
    for i, target in enumerate(targets):
        one = fit((x, target, w, intercept))
        assert error(many.covariance(kind)[i], one.covariance(kind)) < CLOSE[x.dtype]
        assert error(many.cooks_distance[i], one.cooks_distance) < CLOSE[x.dtype]


@some
@given(problems())
def test_layout_and_gradients(problem):
    x, y, w, intercept = problem
    strided = torch.empty(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)[..., ::2]
    strided.copy_(x)
    swapped = y.new_empty(*y.shape, 2)[..., 0].copy_(y)
    other = fit((strided.requires_grad_(), swapped.requires_grad_(), w, intercept))
    assert error(other.covariance("HC3"), fit(problem).covariance("HC3")) < CLOSE[x.dtype]
    assert not other.covariance().requires_grad


@some
@given(problems(), st.integers(-9, 9), st.integers(-9, 9))
def test_units_change_units_only(problem, power, weight_power):
    x, y, w, intercept = problem
    mine, c = fit(problem), 2.0**power
    units = torch.ones(x.shape[-1], dtype=x.dtype)
    units[0] = c
    scaled = fit((x * units, c * y, (torch.ones_like(y) if w is None else w) * 2.0**weight_power, intercept))
    for value, reference in (
        (scaled.t_values("HC2"), mine.t_values("HC2")),
        (scaled.p_values(), mine.p_values()),
        (scaled.leverage, mine.leverage),
        (scaled.cooks_distance, mine.cooks_distance),
        (scaled.scale, mine.scale * c**2 * 2.0**weight_power),
        (scaled.standard_errors()[..., int(intercept)], mine.standard_errors()[..., int(intercept)]),
    ):
        assert error(value, reference) < CLOSE[x.dtype]


# ---- oracles without rounding, and with memory


def exact_robust(x: list[list[Fraction]], y: list[Fraction]) -> tuple[list[Fraction], list[Fraction], dict[str, list[Fraction]]]:
    """Estimates, leverages and the variances by every kind, in rational arithmetic."""
    n, d = len(x), len(x[0])
    gram = [[sum((r[i] * r[j] for r in x), Fraction(0)) for j in range(d)] for i in range(d)]
    readout = [solve_exactly([row[:] for row in gram], row) for row in x]  # n rows of (XᵀX)⁻¹x_i
    beta = exact(x, y)
    e = [v - sum(a * b for a, b in zip(r, beta, strict=True)) for r, v in zip(x, y, strict=True)]
    h = [sum(a * b for a, b in zip(r, m, strict=True)) for r, m in zip(x, readout, strict=True)]
    s2 = sum(v * v for v in e) / (n - d)
    middle = {
        "nonrobust": [s2] * n,
        "HC0": [v * v for v in e],
        "HC1": [v * v * n / (n - d) for v in e],
        "HC2": [v * v / (1 - k) for v, k in zip(e, h, strict=True)],
        "HC3": [v * v / (1 - k) ** 2 for v, k in zip(e, h, strict=True)],
    }
    variances = {
        kind: [sum(v * m[j] ** 2 for v, m in zip(values, readout, strict=True)) for j in range(d)] for kind, values in middle.items()
    }
    return beta, h, variances


def worst(values: Tensor, truth: list[Fraction]) -> float:
    return max(float(abs(Fraction(v) - t) / abs(t)) for v, t in zip(values.tolist(), truth, strict=True))


def test_longley_against_exact_arithmetic():
    problem = nist_problem("Longley")
    ones = torch.cat([torch.ones(16, 1), problem.x], 1)
    beta, h, variances = exact_robust(binary(ones), [Fraction(v) for v in problem.y.tolist()])
    mine = AttentionInference.from_data(problem.x, problem.y)
    assert worst(mine.estimates, beta) < 1e-12
    assert worst(mine.leverage, h) < 1e-13
    for kind, truth in variances.items():
        assert worst(mine.covariance(kind).diagonal(), truth) < 2e-12, kind
    theirs = sm.OLS(problem.y.numpy(), ones.numpy()).fit()
    assert worst(torch.as_tensor(theirs.cov_HC3.diagonal().copy()), variances["HC3"]) > 1e-10  # why an exact oracle is needed here


def test_a_large_mean_costs_no_digits():
    """One pass of centring leaves a mean of the size of rounding, and seven digits of the leverages with it."""
    g = torch.Generator().manual_seed(0)
    small = torch.randint(-9, 10, (12, 2), generator=g).double()
    x, y = 1e8 + small, 1e8 + small.sum(-1) + torch.randint(-5, 6, (12,), generator=g)
    beta, h, variances = exact_robust(binary(torch.cat([torch.ones(12, 1), x], 1)), [Fraction(v) for v in y.tolist()])
    mine = AttentionInference.from_data(x, y)
    assert worst(mine.estimates, beta) < 1e-14
    assert worst(mine.leverage, h) < 1e-13
    for kind, truth in variances.items():
        assert worst(mine.covariance(kind).diagonal(), truth) < 1e-13, kind


def test_diabetes_against_statsmodels_to_ten_digits():
    x, y = load_diabetes(return_X_y=True, scaled=False)
    theirs = sm.OLS(y, sm.add_constant(x)).fit()
    influence = theirs.get_influence()
    mine = AttentionInference.from_data(torch.tensor(x), torch.tensor(y))
    for value, reference in (
        (mine.standard_errors(), theirs.bse),
        (mine.t_values(), theirs.tvalues),
        (mine.p_values(), theirs.pvalues),
        (mine.confidence_intervals(), theirs.conf_int()),
        (mine.leverage, influence.hat_matrix_diag),
        (mine.leave_one_out, influence.resid_press),
        (mine.cooks_distance, influence.cooks_distance[0]),
        *((mine.standard_errors(kind), getattr(theirs, f"{kind}_se")) for kind in COVARIANCES[1:]),
    ):
        assert np.abs(value.numpy() / reference - 1).max() < 1e-10


@pytest.mark.parametrize("rho", [-0.6, 0.5, 0.95])
def test_the_ar1_filter_is_generalised_least_squares(rho):
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(25, 3, generator=g, dtype=torch.float64), torch.randn(25, generator=g, dtype=torch.float64)
    full = sm.add_constant(x.numpy())
    theirs = sm.GLS(y.numpy(), full, sigma=toeplitz(rho ** np.arange(25.0)) / (1 - rho**2)).fit()
    tokens, targets = (np.concatenate([np.sqrt(1 - rho**2) * v[:1], v[1:] - rho * v[:-1]]) for v in (full, y.numpy()))
    mine = AttentionInference.from_data(torch.tensor(tokens), torch.tensor(targets), fit_intercept=False)
    assert error(mine.estimates, theirs.params) < 1e-11
    assert error(mine.covariance(), theirs.cov_params()) < 1e-11
    assert error(mine.confidence_intervals(), theirs.conf_int()) < 1e-11


def test_intervals_cover():
    """Part 3 of the theorem, on a case of two slopes that the notebook does not show: three standard errors of a share."""
    g = torch.Generator().manual_seed(11)
    x, e = torch.randn(3000, 8, 2, generator=g, dtype=torch.float64), torch.randn(3000, 8, generator=g, dtype=torch.float64)
    ends = AttentionInference.from_data(x, x @ torch.tensor([1.0, -1.0], dtype=x.dtype) + 5 + e).confidence_intervals(0.9)
    truth = torch.tensor([5.0, 1.0, -1.0], dtype=x.dtype)
    covered = ((ends[..., 0] < truth) & (truth < ends[..., 1])).double().mean(0)
    assert ((covered - 0.9).abs() < 3 * (0.9 * 0.1 / 3000) ** 0.5).all()


# ---- what the data do not determine


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_only_what_is_identified_has_a_standard_error(unit, dtype):
    x = normal(20, 3).to(dtype)
    y = normal(20, seed=1).to(dtype)
    twice = AttentionInference.from_data(torch.cat([x, unit * x[:, :1]], 1), y)
    assert twice.identified.tolist() == [True, False, True, True, False]
    constant = AttentionInference.from_data(torch.cat([x, torch.full((20, 1), 0.1 * unit, dtype=dtype)], 1), y)
    assert constant.identified.tolist() == [False, True, True, True, False]
    plain = AttentionInference.from_data(x, y)
    for loose in (twice, constant):
        assert loose.rank == plain.rank == 4
        assert loose.standard_errors().isnan().tolist() == (~loose.identified).tolist()
        assert loose.confidence_intervals(0.9, "HC3").isnan().any(-1).tolist() == (~loose.identified).tolist()
        for name in ("leverage", "fitted", "scale", "leave_one_out"):
            assert error(getattr(loose, name), getattr(plain, name)) < CLOSE[dtype]
    # The shortest solution mixes the units of its coefficients, so that this one loses digits to them.
    assert error(twice.standard_errors("HC3")[2:4], plain.standard_errors("HC3")[2:4]) < 100 * CLOSE[dtype]
    assert "Not identified, columns depend on each other: x1, x4." in str(twice.summary())


def test_ranks_may_differ_within_a_batch():
    x = normal(2, 12, 3)
    x[1, :, 2] = x[1, :, 0] - x[1, :, 1]
    mine = AttentionInference.from_data(x, normal(2, 12, seed=1))
    assert mine.rank.tolist() == [4, 3] and mine.degrees_of_freedom.tolist() == [8, 9]
    assert mine.identified.tolist() == [[True] * 4, [True, False, False, False]]


def test_a_cutoff_that_merges_columns_leaves_them_unidentified():
    x = normal(20, 2)
    x[:, 1] = x[:, 0] + 1e-6 * x[:, 1]
    y = normal(20, seed=1)
    assert AttentionInference.from_data(x, y).identified.all()
    assert AttentionInference.from_data(x, y, rtol=1e-3).identified.tolist() == [True, False, False]


@pytest.mark.parametrize("n", [2, 3])
def test_without_spare_rows_there_is_no_variance(n):
    mine = AttentionInference.from_data(normal(n, 3), normal(n, seed=1), fit_intercept=False)
    assert error(mine.fitted, mine.y) < 1e-12
    for ask in (mine.standard_errors, mine.p_values, mine.summary, lambda: mine.covariance("HC1"), lambda: mine.scale):
        with pytest.raises(ValueError, match=rf"more rows than the {n} parameters .* got {n}, .*; add data"):
            ask()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_leverage_one_is_not_left_out(dtype):
    x, y = normal(2, 15, 3).to(dtype), normal(2, 15, seed=1).to(dtype)
    x[1, :, 2] = 0
    x[1, 6, 2] = 3
    mine = AttentionInference.from_data(x, y)
    assert mine.leave_one_out.isnan().nonzero().tolist() == [[1, 6]]
    assert mine.cooks_distance.isnan().nonzero().tolist() == [[1, 6]]
    for ask, what in ((lambda: mine.press, "PRESS"), (lambda: mine.covariance("HC2"), "HC2"), (lambda: mine.p_values("HC3"), "HC3")):
        with pytest.raises(ValueError, match=rf"leverage one for {what}, got rows \[6\]; drop"):
            ask()
    for kind in COVARIANCES[:3]:
        assert not mine.covariance(kind).isnan().any()
    alone = AttentionInference.from_data(x[1], y[1])
    assert "Leverage one, fitted whatever the target: rows [6]." in str(alone.summary())


def test_large_but_honest_leverage_is_kept():
    x = normal(15, 1)
    x[3] = 1e5
    mine = AttentionInference.from_data(x, normal(15, seed=1))
    assert 1 - 1e-8 < mine.leverage[3] < 1 and not mine.leave_one_out.isnan().any()


def test_overflow_and_weights_are_refused():
    x, y = normal(10, 2), normal(10, seed=1)
    for a, b in ((1e200 * x, y), (x, 1e200 * y)):
        with pytest.raises(ValueError, match=r"overflow; rescale them or use float64"):
            AttentionInference.from_data(a, b)
    with pytest.raises(ValueError, match=r"weights must be above zero, got 0; drop the rows"):
        AttentionInference.from_data(x, y, weights=torch.cat([torch.zeros(1), torch.ones(9)]).double())


# ---- the table


def test_the_table_says_what_the_fit_says():
    x, y = load_diabetes(return_X_y=True, scaled=False)
    theirs = sm.OLS(y, sm.add_constant(x)).fit()
    mine = AttentionInference.from_data(torch.tensor(x), torch.tensor(y))
    table = mine.summary(load_diabetes().feature_names)
    facts = dict(table.facts)
    assert float(facts["F(10, 431)"]) == pytest.approx(theirs.fvalue, rel=1e-3)
    assert float(facts["P(> F)"]) == pytest.approx(theirs.f_pvalue, rel=1e-2)
    assert float(facts["adjusted R²"]) == pytest.approx(theirs.rsquared_adj, abs=1e-4)
    assert float(facts["residual standard error"]) == pytest.approx(theirs.scale**0.5, rel=1e-4)
    assert table.columns == ("coef", "std err", "t", "P>|t|", "[0.025", "0.975]")
    assert [row[0] for row in table.rows] == ["const", *load_diabetes().feature_names]
    numbers = np.array([[float(cell) for cell in row[1:]] for row in table.rows])
    reference = np.column_stack([theirs.params, theirs.bse, theirs.tvalues, theirs.pvalues, theirs.conf_int()])
    assert np.allclose(numbers, reference, rtol=1e-4, atol=6e-4)
    lines = str(table).splitlines()
    assert {len(line) for line in lines[1:]} <= {78} and repr(table) == str(table)
    without = AttentionInference.from_data(torch.tensor(x), torch.tensor(y), fit_intercept=False).summary()
    plain = sm.OLS(y, x).fit()
    assert float(dict(without.facts)["adjusted R²"]) == pytest.approx(plain.rsquared_adj, abs=1e-4)
    assert float(dict(without.facts)["F(10, 432)"]) == pytest.approx(plain.fvalue, rel=1e-3)


def test_the_table_as_html():
    mine = AttentionInference.from_data(normal(9, 1), normal(9, seed=1), weights=normal(9, seed=2).abs())
    table = mine.summary(["<b> & co"], kind="HC3", level=0.9)
    html = table._repr_html_()
    assert "&lt;b&gt; &amp; co" in html and "<b> &" not in html
    assert html.count("<tr>") == html.count("</tr>") == 3
    assert table.title.startswith("Weighted least squares") and table.columns[-2:] == ("[0.05", "0.95]")
    assert ("covariance", "HC3") in table.facts and not any(label.startswith("F(") for label, _ in table.facts)


def test_a_table_is_of_one_fit():
    batch = AttentionInference.from_data(normal(2, 9, 1), normal(2, 9, seed=1))
    with pytest.raises(ValueError, match=r"y must be one vector for a table, got batch \(2,\); fit the one"):
        batch.summary()
    assert repr(batch) == "AttentionInference(n=9, parameters=2, intercept=True, batch=(2,), torch.float64)"
