"""Least squares against exact rational arithmetic, NumPy and scikit-learn."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sklearn.kernel_ridge
import sklearn.linear_model
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rational import binary, digits, exact
from torch import Tensor

from transformer_ols import regression
from transformer_ols.kernels import Gaussian, Linear
from transformer_ols.nist import nist_problem
from transformer_ols.regression import kernel_ridge, ols, ridge_regression, wls

torch.set_num_threads(1)
SOME = settings(deadline=None, derandomize=True, max_examples=40)
F64 = torch.float64


def draw(seed: int, *shape: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def gap(value: Tensor, reference: Tensor | NDArray[np.float64]) -> float:
    reference = torch.as_tensor(reference).to(F64)
    return float((value.to(F64) - reference).norm() / reference.norm().clamp(min=1e-300))


# ---------------------------------------------------------------- exact rational arithmetic


def test_weighted_and_penalised_longley_against_rational_arithmetic() -> None:
    p = nist_problem("Longley")
    weights, ridge = draw(5, 16).exp(), 1e-3
    y, w = [Fraction(v) for v in p.y.tolist()], [Fraction(v) for v in weights.tolist()]
    fit = wls(p.x, p.y, weights, fit_intercept=True)
    truth = exact([[Fraction(1), *row] for row in binary(p.x)], y, w)
    assert digits([fit.intercept.item(), *fit.coef.tolist()], truth) > 12  # kappa of order 100 and a residual of 1e-3
    penalised = ridge_regression(p.x, p.y, ridge)
    assert digits(penalised.coef.tolist(), exact(binary(p.x), y, ridge=Fraction(ridge))) > 11  # kappa 5e3 once the columns share a scale


# ---------------------------------------------------------------- properties


Shape = tuple[list[int], int, int, int | None, int]  # batch, n, d, outputs, seed
shapes = st.tuples(
    st.lists(st.integers(1, 3), max_size=2), st.integers(1, 12), st.integers(1, 6), st.sampled_from([None, 1, 3]), st.integers(0, 99)
)


def data(shape: Shape, dtype: torch.dtype = F64) -> tuple[Tensor, Tensor]:
    batch, n, d, k, seed = shape
    x = draw(seed, *batch, d, n, dtype=dtype).mT  # not contiguous
    return x, draw(seed + 1, *batch, n, *(() if k is None else (k,)), dtype=dtype)


@SOME
@given(shapes, st.booleans())
def test_ols_is_the_pseudo_inverse_of_the_centred_data(shape: Shape, fit_intercept: bool) -> None:
    x, y = data(shape)
    fit = ols(x, y, fit_intercept=fit_intercept)
    targets = y if y.ndim == x.ndim else y[..., None]
    mean_x, mean_y = (v.numpy().mean(-2, keepdims=True) * fit_intercept for v in (x, targets))
    coef = np.linalg.pinv(x.numpy() - mean_x, rcond=1e-10) @ (targets.numpy() - mean_y)
    assert gap(fit.coef.reshape(coef.shape), coef) < 1e-9 or np.abs(coef).max() < 1e-12  # 12 unlucky rows reach a condition number of 1e4
    fitted = mean_y + (x.numpy() - mean_x) @ coef
    assert gap(fit.predict(x).reshape(fitted.shape), fitted) < 1e-9
    batch, outputs = x.shape[:-2], y.shape[x.ndim - 1 :]
    assert fit.coef.shape == (*batch, x.shape[-1], *outputs) and fit.intercept.shape == (*batch, *outputs)
    centred = x.numpy() - mean_x
    rank = np.linalg.matrix_rank(centred, tol=1e-10 * np.linalg.norm(centred, 2, axis=(-2, -1)))
    assert fit.rank.shape == fit.condition_number.shape == x.shape[:-2] and np.array_equal(fit.rank.numpy(), rank)


@SOME
@given(shapes, st.floats(1e-3, 1e3), st.booleans())
def test_ridge_is_scikit_learn(shape: Shape, ridge: float, fit_intercept: bool) -> None:
    x, y = data((shape[0][:0], *shape[1:]))
    fit = ridge_regression(x, y, ridge, fit_intercept=fit_intercept)
    model = sklearn.linear_model.Ridge(alpha=ridge, solver="svd", fit_intercept=fit_intercept).fit(x.numpy(), y.numpy())
    assert np.allclose(fit.coef.mT.numpy() if y.ndim == 2 else fit.coef.numpy(), model.coef_, rtol=1e-9, atol=1e-12)
    assert np.allclose(fit.intercept.numpy(), model.intercept_, rtol=1e-9, atol=1e-12)


@SOME
@given(shapes, st.booleans())
def test_wls_is_least_squares_on_scaled_rows(shape: Shape, fit_intercept: bool) -> None:
    x, y = data(shape)
    weights = draw(shape[-1] + 2, *x.shape[:-1]).exp()
    weights[..., 1::3] = 0
    fit = wls(x, y, weights, fit_intercept=fit_intercept)
    root, targets = weights.sqrt().numpy()[..., None], (y if y.ndim == x.ndim else y[..., None]).numpy()
    columns = np.concatenate([np.ones_like(root)] * fit_intercept + [x.numpy()], -1)
    fitted = columns @ (np.linalg.pinv(root * columns, rcond=1e-10) @ (root * targets))
    kept = np.broadcast_to(root > 0, fitted.shape)
    assert np.allclose(fit.predict(x).numpy().reshape(fitted.shape)[kept], fitted[kept], rtol=1e-8, atol=1e-8)


@SOME
@given(shapes, st.floats(0.01, 10.0))
def test_kernel_ridge_is_scikit_learn_and_linear_is_ridge(shape: Shape, ridge: float) -> None:
    x, y = data(shape)
    linear = kernel_ridge(x, y, Linear(), ridge)
    assert gap(linear.predict(x), ridge_regression(x, y, ridge).predict(x)) < 1e-10
    x, y = data((shape[0][:0], *shape[1:]))
    fit = kernel_ridge(x, y, Gaussian(1.5), ridge)
    model = sklearn.kernel_ridge.KernelRidge(kernel="rbf", gamma=1 / 4.5, alpha=ridge).fit(x.numpy(), y.numpy())
    assert gap(fit.dual_coef, model.dual_coef_) < 1e-10
    query = draw(3, 4, x.shape[-1])
    assert np.allclose(fit.predict(query).numpy(), model.predict(query.numpy()), rtol=1e-9, atol=1e-11)
    assert fit.residual.shape == y.shape[1:] and float(fit.residual.max()) < 1e-12


@SOME
@given(shapes)
def test_float32_keeps_its_dtype_and_six_digits(shape: Shape) -> None:
    x, y = data(shape, torch.float32)
    weights = draw(7, *x.shape[:-1], dtype=torch.float32).exp()
    for f in (lambda a, b, c: ols(a, b, fit_intercept=True), lambda a, b, c: ridge_regression(a, b, 0.3), lambda a, b, c: wls(a, b, c)):
        single, twice = f(x, y, weights), f(x.double(), y.double(), weights.double())
        assert single.coef.dtype == single.intercept.dtype == single.condition_number.dtype == single.predict(x).dtype == torch.float32
        if bool((single.rank == twice.rank).all()):
            # eps times the condition number is gained in each of three passes; what is left is eps kappa² times the residual
            worst = float(twice.condition_number.max())
            assert gap(single.coef, twice.coef) < 1e-6 * max(1.0, worst) ** 2 or float(twice.coef.abs().max()) < 1e-6
    assert kernel_ridge(x, y, Gaussian(1.0), 0.5).dual_coef.dtype == torch.float32


@SOME
@given(st.integers(0, 99), st.sampled_from([torch.float32, F64]))
def test_units_change_neither_rank_nor_prediction(seed: int, dtype: torch.dtype) -> None:
    x, y = draw(seed, 9, 4, dtype=dtype), draw(seed + 1, 9, dtype=dtype)
    units = torch.tensor([1e-12, 1.0, 1e12, 1e6], dtype=dtype)
    plain, scaled = ols(x, y, fit_intercept=True), ols(x * units, y, fit_intercept=True)
    assert int(scaled.rank) == 4
    assert gap(scaled.coef * units, plain.coef) < 100 * torch.finfo(dtype).eps * float(plain.condition_number)
    assert 0.25 < float(scaled.condition_number / plain.condition_number) < 4  # scales are powers of two, off by at most two each way


def test_broadcast_batches() -> None:
    x, y, w = draw(0, 1, 7, 2), draw(1, 5, 7, 3), draw(2, 5, 7).exp()
    fit = wls(x, y, w, fit_intercept=True)
    assert fit.coef.shape == (5, 2, 3) and fit.rank.shape == (5,) and fit.predict(draw(3, 4, 2)).shape == (5, 4, 3)
    assert gap(fit.coef[2], wls(x[0], y[2], w[2], fit_intercept=True).coef) < 1e-14
    fit = wls(x[0], y[0], w)
    assert gap(fit.coef[4], wls(x[0], y[0], w[4]).coef) < 1e-14


# ---------------------------------------------------------------- rank


@pytest.mark.parametrize(("n", "d", "rank"), [(40, 8, 5), (5, 20, 5), (30, 8, 8), (6, 20, 3), (3, 3, 1)])
@pytest.mark.parametrize("spread", [0, 3])
def test_minimum_norm_in_the_units_of_the_caller(n: int, d: int, rank: int, spread: int) -> None:
    x = draw(1, n, rank) @ draw(2, rank, d) * torch.logspace(-spread, spread, d, dtype=F64)
    y = draw(3, n, 2)
    fit = ols(x, y)
    reference = np.linalg.pinv(x.numpy()) @ y.numpy()
    assert int(fit.rank) == rank and gap(fit.coef, reference) < 1e-10


def test_rounding_of_an_offset_does_not_pass_for_rank() -> None:
    p = nist_problem("Longley")
    for factor, shift in ((0.1, 0.0), (0.3, 7.7), (1.0, 1.0), (1 / 3, 0.0)):
        for scale in (1.0, 1e3):
            x = torch.cat([p.x, scale * (factor * p.x[:, 5:] + shift)], 1)
            fit = ols(x, p.y, fit_intercept=True)
            assert int(fit.rank) == 6
            assert gap(fit.predict(x), ols(p.x, p.y, fit_intercept=True).predict(p.x)) < 1e-12
            assert float(fit.coef[6]) == pytest.approx(float(fit.coef[5]) * scale * factor, rel=1e-6)  # the shortest share


def test_an_explicit_rtol_is_taken_literally() -> None:
    x = torch.diag(torch.tensor([1.0, 1.0, 1.0], dtype=F64)) + 1.0
    x[:, 2] = x[:, 1] + torch.tensor([1e-6, -1e-6, 2e-6], dtype=F64)
    assert [int(ols(x, x[:, 0], rtol=rtol).rank) for rtol in (None, 1e-9, 1e-3)] == [3, 3, 2]
    p = nist_problem("Longley")
    assert int(ols(p.x, p.y, fit_intercept=True, rtol=1e-3).rank) == 6  # the smallest singular value is 0.009 of the largest
    offset = torch.tensor([[0.0], [1.0], [3.0]], dtype=F64) + 4e15  # numbers this size are known to 0.5
    assert [int(ols(offset, x[:, 0], fit_intercept=True, rtol=rtol).rank) for rtol in (None, 0.0)] == [0, 1]


@pytest.mark.parametrize("method", ["qr", "cholesky"])
def test_routes_refuse_what_they_cannot_do(method: str) -> None:
    x, y = draw(0, 9, 4), draw(1, 9)
    assert gap(ols(x, y, method=method, fit_intercept=True).coef, ols(x, y, fit_intercept=True).coef) < 1e-13
    assert gap(ols(x, y, method=method).condition_number, ols(x, y).condition_number) < 1e-12
    for bad in (torch.cat([x, x[:, :1]], 1), x.mT, torch.zeros_like(x)):
        with pytest.raises(ValueError, match=f"independent columns for method='{method}'.*use method='svd'"):
            ols(bad, y[: len(bad)], method=method)
    batch = torch.stack([x, x])
    batch[1, :, 3] = batch[1, :, 0]
    with pytest.raises(ValueError, match="independent columns"):
        ols(batch, torch.stack([y, y]), method=method)


def test_cholesky_answers_or_refuses_but_never_guesses() -> None:
    u, v = (torch.linalg.qr(draw(seed, n, 3))[0] for seed, n in ((0, 9), (1, 3)))
    refused = []
    for power in range(4, 15):
        x = (u * torch.logspace(0, -power, 3, dtype=F64)) @ v.mT
        try:
            fit = ols(x, x.sum(-1), method="cholesky", refinements=0)
            assert gap(fit.coef, torch.ones(3)) < 0.5  # eps kappa² is still below one
        except ValueError:
            refused.append(power)
    assert refused == list(range(refused[0], 15)) and 7 <= refused[0] <= 9


def test_degenerate_designs() -> None:
    constant = ols(torch.ones(4, 2, dtype=F64) / 3, torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=F64), fit_intercept=True)
    assert int(constant.rank) == 0 and constant.coef.tolist() == [0.0, 0.0] and constant.intercept.item() == 3.0
    assert constant.condition_number.item() == 1.0
    one_row = ols(torch.tensor([[3.0, 4.0]]), torch.tensor([50.0]))
    assert one_row.coef.tolist() == pytest.approx([6.0, 8.0])
    nothing = ridge_regression(torch.zeros(3, 2, dtype=F64), torch.ones(3, dtype=F64), 1.0, fit_intercept=True)
    assert nothing.coef.tolist() == [0.0, 0.0] and nothing.intercept.item() == 1.0 and nothing.condition_number.item() == 1.0
    target = kernel_ridge(draw(0, 3, 2), torch.zeros(3, dtype=F64), Gaussian(1.0), 1.0)
    assert target.residual.item() == 0.0


@pytest.mark.parametrize("size", [1e-170, 1e170])  # the squares leave the range of float64
def test_extreme_magnitudes(size: float) -> None:
    x, y = draw(0, 9, 3), draw(1, 9)
    assert gap(ols(size * x, y, fit_intercept=True).coef * size, ols(x, y, fit_intercept=True).coef) < 1e-13
    assert gap(ridge_regression(size * x, y, 1e-300).coef * size, ridge_regression(x, y, 1e-300 / size / size).coef) < 1e-13
    tiny = ridge_regression(1e-170 * x, y, 2.0)
    assert gap(tiny.coef * 1e170, x.mT @ y / 2) < 1e-13 and tiny.condition_number == 1
    assert gap(wls(x, y, size * torch.ones(9, dtype=F64)).coef, ols(x, y).coef) < 1e-14
    with pytest.raises(ValueError, match="coefficients that fit"):
        ols(torch.tensor([[1e-30]]), torch.tensor([1e30]))


def test_ridge_zero_is_ols_and_small_ridge_is_the_shortest_solution() -> None:
    x, y = draw(1, 9, 3) @ draw(2, 3, 5), draw(3, 9)
    shortest = ols(x, y).coef
    assert gap(ridge_regression(x, y, 0.0).coef, shortest) == 0.0  # the same call
    for ridge in (1e-9, 1e-20, 1e-300):
        assert gap(ridge_regression(x, y, ridge).coef, shortest) < 1e-9 + ridge
    assert float(ridge_regression(x, y, 1e12).coef.abs().max()) < 1e-9


# ---------------------------------------------------------------- derivatives


def numbers(fit: regression.LinearFit) -> tuple[Tensor, Tensor]:
    return fit.coef, fit.intercept


@pytest.mark.parametrize(("n", "d"), [(5, 2), (3, 4)])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_gradients(n: int, d: int, fit_intercept: bool) -> None:
    x, y, w = draw(0, n, d).requires_grad_(), draw(1, n).requires_grad_(), draw(2, n).exp().requires_grad_()
    fits = {
        "wls": lambda x, y, w: numbers(wls(x, y, w, fit_intercept=fit_intercept)),
        "ridge": lambda x, y, w: numbers(ridge_regression(x, y, 0.4, fit_intercept=fit_intercept)),
        "kernel": lambda x, y, w: kernel_ridge(x, y, Gaussian(1.0), 0.3).predict(x[:2]),
    }
    for fit in fits.values():
        assert torch.autograd.gradcheck(fit, (x, y, w))


def test_gradients_in_batches_and_to_second_order() -> None:
    x, y = draw(0, 2, 4, 2).requires_grad_(), draw(1, 2, 4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: numbers(ols(x, y, fit_intercept=True)), (x, y))
    x, y = draw(0, 4, 2).requires_grad_(), draw(1, 4).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x, y: numbers(ols(x, y, fit_intercept=True)), (x, y))
    assert torch.autograd.gradgradcheck(lambda x, y: numbers(ridge_regression(x.mT, y[:2], 0.4)), (x, y))


def test_gradients_of_orthogonal_deficient_and_badly_scaled_designs() -> None:
    y = draw(0, 5)
    assert torch.autograd.gradcheck(lambda x: ols(x, y).coef, torch.eye(5, 3, dtype=F64, requires_grad=True))
    factor = draw(1, 2, 4)
    assert torch.autograd.gradcheck(lambda a: ols(a @ factor, y).coef, draw(2, 5, 2).requires_grad_())  # the rank stays two
    units = torch.tensor([1e-8, 1.0, 1e8], dtype=F64)
    x, scaled = (v.requires_grad_() for v in (draw(3, 5, 3), draw(3, 5, 3) * units))
    plain, other = (torch.autograd.grad((f.coef * u).sum(), v)[0] for f, u, v in ((ols(x, y), 1.0, x), (ols(scaled, y), units, scaled)))
    assert gap(other * units, plain) < 1e-12
    p = nist_problem("Longley")
    decade, y = torch.cat([p.x, p.x[:, 5:] / 10], 1), p.y.clone().requires_grad_()
    slope = torch.autograd.grad(ols(decade, y, fit_intercept=True).coef[6], y)[0]
    alone = torch.autograd.grad(ols(p.x, y, fit_intercept=True).coef[5], y)[0]
    assert gap(slope, alone * 0.1 / 1.01) < 1e-8  # (b, b/10) with b + b/100 = the coefficient of the year
    year = p.x[:, 5:]
    slope = torch.autograd.grad(ols(torch.cat([year, year / 10], 1), y, fit_intercept=True).coef[1], y)[0]
    assert gap(slope, torch.autograd.grad(ols(year, y, fit_intercept=True).coef[0], y)[0] * 0.1 / 1.01) < 1e-8


def test_a_large_offset_does_not_hide_an_unrelated_direction() -> None:
    base = draw(0, 12, 2)
    pair, clock = torch.stack([base[:, 0], base[:, 0] + 1e-7 * base[:, 1]], 1), torch.arange(12, dtype=F64)[:, None]
    y = draw(1, 12).requires_grad_()
    late, early = (ols(torch.cat([pair, clock + start], 1), y, fit_intercept=True) for start in (1e10, 0.0))
    assert int(late.rank) == 3 and gap(late.coef.detach(), early.coef.detach()) < 1e-8
    assert gap(*(torch.autograd.grad(fit.coef[0], y)[0] for fit in (late, early))) < 1e-8


def test_no_gradient_is_tracked_unless_asked_for() -> None:
    x, y = draw(0, 5, 2).requires_grad_(), draw(1, 5)
    assert ols(x, y).coef.requires_grad and not ols(x.detach(), y).coef.requires_grad
    with torch.no_grad():
        assert not ols(x, y).coef.requires_grad
    assert torch.equal(ols(x, y).coef, ols(x.detach(), y).coef)


# ---------------------------------------------------------------- refusals


def test_refusals() -> None:
    x, y, w = draw(0, 2, 5, 3), draw(1, 2, 5), torch.ones(2, 5, dtype=F64)
    for bad, words in (
        (lambda: ols(x, y[0]), r"y must have 2 axes, or 3 for several outputs, beside x of shape \(2, 5, 3\), got shape \(5,\)"),
        (lambda: ols(x[0], draw(1, 2, 5, 1)), "y must have 1 axes, or 2 for several outputs"),
        (lambda: ols(x, y, method="lu"), "method must be one of 'svd', 'qr', 'cholesky', got 'lu'"),
        (lambda: ols(x, y, rtol=-1.0), "rtol must be at least 0"),
        (lambda: ols(x, y, rtol=1.0), "rtol must be below 1"),
        (lambda: ols(x, y, refinements=-1), "refinements must be at least 0"),
        (lambda: wls(x, y, -w), "weights must not be negative, got -1"),
        (lambda: wls(x, y, w * torch.tensor([[1.0], [0.0]], dtype=F64)), "weights must be positive somewhere"),
        (lambda: wls(x, y, (w - torch.eye(2, 5, dtype=F64)).requires_grad_()), "weights must be positive where they require gradients"),
        (lambda: ridge_regression(x, y, -0.1), "ridge must be at least 0"),
        (lambda: kernel_ridge(x, y, lambda a, b: a @ b.mT + a[..., :1], 1.0), "kernel must be symmetric"),
        (lambda: kernel_ridge(x, y, lambda a, b: -a @ b.mT, 1.0), "ridge must make K"),
        (lambda: kernel_ridge(x, y, lambda a, b: a, 1.0), r"kernel\(x, x\) must have axes"),
        (lambda: kernel_ridge(x, y, Linear(), 0.0), "ridge must make K"),
        (lambda: kernel_ridge(x[0, :2] * 0, y[0, :2], Gaussian(1.0), 2.0**-52), "ridge must make K"),  # a pivot of one last place
        (lambda: ols(x, y).predict(x[..., :2]), "x must have axes"),
        (lambda: kernel_ridge(x, y, Linear(), 1.0).predict(x[..., :2]), "x_query must have axes"),
    ):
        with pytest.raises(ValueError, match=words):
            bad()
    for bad, words in (
        (lambda: ols(x, y, fit_intercept=1), "fit_intercept must be bool"),  # type: ignore[arg-type]
        (lambda: ols(x, y.float()), "y must have the dtype of x"),
        (lambda: kernel_ridge(x, y, 3, 1.0), "kernel must be callable"),  # type: ignore[arg-type]
        (lambda: kernel_ridge(x, y, lambda a, b: (a @ b.mT).numpy(), 1.0), r"kernel\(x, x\) must be a torch.Tensor"),
    ):
        with pytest.raises(TypeError, match=words):
            bad()
