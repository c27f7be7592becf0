"""OLSTransformer and spectral_factor beyond the cells of their notebook: shapes, dtypes, batches, equivariance, other libraries, digits."""

from __future__ import annotations

import copy
import io
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
import statsmodels.api as sm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, Ridge
from torch import Tensor

from transformer_ols.nist import nist_problem
from transformer_ols.ols_transformer import OLSTransformer, spectral_factor
from transformer_ols.regression import ols, ridge_regression

torch.set_num_threads(1)
some = settings(deadline=None, derandomize=True, max_examples=40)

# Rounding of well-conditioned problems: a few hundred operations of one unit in the last place each.
CLOSE = {torch.float64: 1e-12, torch.float32: 5e-4}


def error(value: Tensor | np.ndarray, reference: Tensor | np.ndarray) -> float:
    value, reference = (torch.as_tensor(np.asarray(v), dtype=torch.float64) for v in (value, reference))
    assert value.shape == reference.shape, (value.shape, reference.shape)
    return float((value - reference).norm() / reference.norm().clamp(min=1e-300))


@st.composite
def problems(draw, min_d: int = 1):
    """A well-conditioned problem: more rows than columns by half, singular values between 1 and 3 up to the units."""
    d = draw(st.integers(min_d, 6))
    n = d + draw(st.integers(2, 12))
    batch = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    outputs = draw(st.sampled_from([None, 1, 3]))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    g = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    u = torch.linalg.qr(torch.randn(*batch, n, d, generator=g, dtype=torch.float64)).Q
    v = torch.linalg.qr(torch.randn(*batch, d, d, generator=g, dtype=torch.float64)).Q
    x = u * (1 + 2 * torch.rand(d, generator=g, dtype=torch.float64)) @ v
    y = torch.randn(*batch, n, *(() if outputs is None else (outputs,)), generator=g, dtype=torch.float64) + 1
    x_new = torch.randn(*batch, 5, d, generator=g, dtype=torch.float64)
    return x.to(dtype), y.to(dtype), x_new.to(dtype)


def lstsq(x: Tensor, y: Tensor) -> Tensor:
    """numpy's answer, one context at a time, in float64."""
    vector = y.ndim < x.ndim
    n, d = x.shape[-2:]
    contexts = x.double().reshape(-1, n, d).numpy()
    targets = y.double().reshape(len(contexts), n, -1).numpy()
    coef = torch.stack([torch.as_tensor(np.linalg.lstsq(a, b, rcond=None)[0]) for a, b in zip(contexts, targets, strict=True)])
    coef = coef.reshape(*x.shape[:-2], d, -1)
    return coef[..., 0] if vector else coef


def apply(x: Tensor, coef: Tensor) -> Tensor:
    return (x @ coef[..., None])[..., 0] if coef.ndim < x.ndim else x @ coef


@some
@given(problems(), st.sampled_from(["svd", "gram"]))
def test_layer_is_least_squares(problem, route):
    x, y, x_new = problem
    model = OLSTransformer.from_data(x, y, route=route)
    coef = lstsq(x, y)
    assert model.coef.dtype == model(x_new).dtype == x.dtype
    assert error(model.coef, coef) < CLOSE[x.dtype]
    assert error(model(x_new), apply(x_new.double(), coef)) < CLOSE[x.dtype]
    assert error(model.self_attention(x), model(x)) < CLOSE[x.dtype]
    assert model.rank.shape == model.condition_number.shape == x.shape[:-2] and bool((model.rank == x.shape[-1]).all())
    assert error(model.intercept, torch.zeros(y.shape[:-1] if y.ndim < x.ndim else (*y.shape[:-2], y.shape[-1]))) == 0


@some
@given(problems())
def test_intercept_is_a_column_of_ones(problem):
    x, y, x_new = problem
    x = x + 0.5
    model = OLSTransformer.from_data(x, y, fit_intercept=True)
    coef = lstsq(torch.cat([torch.ones_like(x[..., :1]), x], -1), y)
    axis = -1 if y.ndim < x.ndim else -2
    tolerance = CLOSE[x.dtype] * float(model.condition_number.max())
    assert error(model.intercept, coef.select(axis, 0)) < 10 * tolerance
    assert error(model.coef, coef.narrow(axis, 1, x.shape[-1])) < tolerance
    assert error(model(x_new), apply(torch.cat([torch.ones_like(x_new[..., :1]), x_new], -1).double(), coef)) < tolerance


@some
@given(problems())
def test_weights_are_those_of_the_theorem(problem):
    x, y, _ = problem
    model = OLSTransformer.from_data(x, y)
    n, d = x.shape[-2:]
    L, eye = model.w_q, torch.eye(d, dtype=x.dtype)
    omega = x.mT @ x / n
    assert torch.equal(L, model.w_k) and torch.equal(L, model.w_v) and torch.equal(model.w_ffn, eye)
    assert error(L.mT @ omega @ L, eye.expand_as(omega)) < CLOSE[x.dtype]
    assert error(L @ L.mT @ omega, eye.expand_as(omega)) < CLOSE[x.dtype]
    assert error(model.w_p, L.mT @ x.mT @ (y[..., None] if y.ndim < x.ndim else y) / n) < CLOSE[x.dtype]


@some
@given(problems())
def test_attention_is_the_hat_matrix(problem):
    x, y, _ = problem
    prediction, hat = OLSTransformer.from_data(x, y).attend(x)
    assert hat.shape == (*x.shape[:-1], x.shape[-2])
    assert error(hat, x @ torch.linalg.pinv(x)) < CLOSE[x.dtype]
    assert error(hat @ hat, hat) < CLOSE[x.dtype] and error(hat.mT, hat) < CLOSE[x.dtype]
    assert error(hat.diagonal(dim1=-2, dim2=-1).sum(-1), torch.full(x.shape[:-2], float(x.shape[-1]))) < CLOSE[x.dtype]
    assert error(apply(hat, y), prediction) < CLOSE[x.dtype]


@some
@given(problems(), st.sampled_from([0.0, 0.3]), st.booleans())
def test_batch_is_one_at_a_time(problem, ridge, fit_intercept):
    x, y, x_new = (torch.stack([part, part.flip(0) if part.ndim > 3 else 2 * part]) for part in problem)
    together = OLSTransformer.from_data(x, y, ridge=ridge, fit_intercept=fit_intercept)
    for i in range(2):
        alone = OLSTransformer.from_data(x[i], y[i], ridge=ridge, fit_intercept=fit_intercept)
        assert error(together(x_new)[i], alone(x_new[i])) < CLOSE[x.dtype]
        assert error(together.coef[i], alone.coef) < CLOSE[x.dtype]


@some
@given(problems())
def test_memory_layout_does_not_matter(problem):
    x, y, x_new = problem
    spread = torch.empty(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)[..., ::2]
    spread.copy_(x)
    strided = (spread, y.clone(), x_new.mT.contiguous().mT)
    assert not strided[0].is_contiguous() or x.shape[-1] == 1
    plain = OLSTransformer.from_data(x, y)(x_new)
    assert error(OLSTransformer.from_data(strided[0], strided[1])(strided[2]), plain) < CLOSE[x.dtype]


@some
@given(problems(min_d=2), st.integers(-12, 12))
def test_equivariance(problem, power):
    x, y, x_new = (part.double() for part in problem)
    model = OLSTransformer.from_data(x, y)
    units = torch.logspace(-power, power, x.shape[-1], dtype=torch.float64)
    rescaled = OLSTransformer.from_data(x * units, y)  # other units: the same predictions, rank and condition number
    assert error(rescaled(x_new * units), model(x_new)) < 1e-12
    assert torch.equal(rescaled.rank, model.rank) and error(rescaled.condition_number, model.condition_number) < 1e-12
    assert error(OLSTransformer.from_data(x, 3.7 * y)(x_new), 3.7 * model(x_new)) < 1e-12  # linear in y
    assert error(OLSTransformer.from_data(x, y + apply(x, model.coef))(x_new), 2 * model(x_new)) < 1e-12
    mixing = torch.linalg.qr(torch.randn(x.shape[-1], x.shape[-1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    assert error(OLSTransformer.from_data(x @ mixing, y)(x_new @ mixing), model(x_new)) < 1e-12
    order = torch.arange(x.shape[-2]).flip(0)
    permuted = OLSTransformer.from_data(x[..., order, :], y[..., order] if y.ndim < x.ndim else y[..., order, :])
    assert error(permuted(x_new), model(x_new)) < 1e-12


@some
@given(problems(), st.floats(1e-3, 1e3))
def test_centred_layer_ignores_shifts(problem, size):
    x, y, x_new = (part.double() for part in problem)
    model = OLSTransformer.from_data(x, y, fit_intercept=True, ridge=0.1)
    shifted = OLSTransformer.from_data(x + size, y - size, fit_intercept=True, ridge=0.1)
    assert error(shifted(x_new + size) + size, model(x_new)) < 1e-12 * max(1.0, size)


@some
@given(problems(), st.floats(0.2, 5.0))
def test_self_attention_over_a_new_batch(problem, c):
    """The literal pass sees the covariance of its own tokens: x_t Ω⁻¹ Ω_t β̂, and c³ X β̂ after a change of units."""
    x, y, x_new = (part.double() for part in problem)
    model = OLSTransformer.from_data(x, y)
    shifted = torch.linalg.inv(x.mT @ x / x.shape[-2]) @ (x_new.mT @ x_new / x_new.shape[-2])
    assert error(model.self_attention(x_new), apply(x_new @ shifted, model.coef)) < 1e-12
    assert error(model.self_attention(c * x), c**3 * model(x)) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_bar_against_the_oracle(seed):
    """The stated bar: 1e-12 relative up to n = 500, d = 20, condition number 100."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(500, 20, generator=g, dtype=torch.float64)
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    for design in (x, u * torch.logspace(0, -2, 20, dtype=torch.float64) @ v):
        y = design @ torch.randn(20, generator=g, dtype=torch.float64) + 0.1 * torch.randn(500, generator=g, dtype=torch.float64)
        for fit_intercept in (False, True):
            model, oracle = OLSTransformer.from_data(design, y, fit_intercept=fit_intercept), ols(design, y, fit_intercept=fit_intercept)
            assert error(model.coef, oracle.coef) < 1e-12
            assert error(model(design), oracle.predict(design)) < 1e-12
            assert error(model(x[:50]), oracle.predict(x[:50])) < 1e-12
            assert int(model.rank) == int(oracle.rank)


@pytest.mark.parametrize("intercept", [False, True])
def test_four_libraries_on_diabetes(intercept):
    x, y = load_diabetes(return_X_y=True)
    model = OLSTransformer.from_data(torch.tensor(x), torch.tensor(y), fit_intercept=intercept)
    design = np.column_stack([np.ones(len(x)), x]) if intercept else x
    peers = [np.linalg.lstsq(design, y, rcond=None)[0], scipy.linalg.lstsq(design, y)[0], sm.OLS(y, design).fit().params]
    fit = LinearRegression(fit_intercept=intercept).fit(x, y)
    peers.append(np.append(fit.intercept_, fit.coef_) if intercept else fit.coef_)
    ours = torch.cat([model.intercept[None], model.coef]) if intercept else model.coef
    for theirs in peers:
        assert error(ours, theirs) < 1e-12
        assert error(model(torch.tensor(x)), design @ theirs) < 1e-12
    leverage = sm.OLS(y, design).fit().get_influence().hat_matrix_diag - intercept / len(x)
    assert error(model.attend(torch.tensor(x))[1].diagonal(), leverage) < 1e-11


@pytest.mark.parametrize("alpha", [1e-6, 0.1, 10.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_ridge_against_scikit_learn(alpha, intercept):
    x, y = load_diabetes(return_X_y=True)
    two = np.stack([y, x[:, 0] + 3], 1)
    model = OLSTransformer.from_data(torch.tensor(x), torch.tensor(two), ridge=alpha, fit_intercept=intercept)
    fit = Ridge(alpha=alpha, fit_intercept=intercept, solver="cholesky" if not intercept else "auto").fit(x, two)
    assert error(model.coef, fit.coef_.T) < 1e-9  # Ridge solves the normal equations, at condition number 471 here
    assert error(model(torch.tensor(x)), fit.predict(x)) < 1e-10
    if intercept:
        assert error(model.intercept, fit.intercept_) < 1e-12
    assert error(model.coef, ridge_regression(torch.tensor(x), torch.tensor(two), alpha, fit_intercept=intercept).coef) < 1e-12


@some
@given(problems(), st.floats(1e-3, 1e2), st.sampled_from(["svd", "gram"]))
def test_ridge_by_formula(problem, ridge, route):
    x, y, x_new = (part.double() for part in problem)
    factor = spectral_factor(x, ridge=ridge, route=route)
    n, d = x.shape[-2:]
    inverse = torch.linalg.inv(x.mT @ x + ridge * torch.eye(d, dtype=x.dtype))
    assert error(factor.L @ factor.L.mT / n, inverse) < 1e-12
    assert error(factor.whitened, x @ factor.L) < 1e-12
    model = OLSTransformer.from_data(x, y, ridge=ridge)
    assert error(model(x_new), apply(x_new @ inverse @ x.mT, y)) < 1e-12
    s = torch.linalg.svdvals(x) ** 2
    assert error(model.attend(x)[1].diagonal(dim1=-2, dim2=-1).sum(-1), (s / (s + ridge)).sum(-1)) < 1e-12
    assert error(model.self_attention(x), model(x)) < 1e-13


def test_pseudo_tokens_do_not_count():
    """1/n counts data only: with n + d the ridge fit would shrink by n/(n + d)."""
    x, y = torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    assert error(OLSTransformer.from_data(x, y, ridge=1.0)(x), torch.full((4,), 0.5)) < 1e-14


def deficient(seed: int, spread: float = 0.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(30, 5, generator=g, dtype=torch.float64) @ torch.randn(5, 8, generator=g, dtype=torch.float64)
    return x * torch.logspace(-spread, spread, 8, dtype=torch.float64), torch.randn(30, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_minimum_norm_at_rank_5_of_8(seed, spread):
    x, y = deficient(seed, spread)
    model = OLSTransformer.from_data(x, y)
    shortest = np.linalg.pinv(x.numpy(), rcond=1e-12) @ y.numpy()
    assert int(model.rank) == 5 and bool((model.w_q[:, 5:] == 0).all())
    assert error(model.coef, shortest) < 1e-10
    assert error(model.coef, np.linalg.lstsq(x.numpy(), y.numpy(), rcond=1e-12)[0]) < 1e-10
    assert error(model(x), x @ torch.as_tensor(shortest)) < 1e-10
    assert error(model.w_q @ model.w_q.mT, len(x) * torch.linalg.pinv(x.mT @ x, rtol=1e-12)) < 1e-6  # the oracle squares κ here


def test_minimum_norm_with_intercept_and_duplicates():
    x, y = deficient(0)
    x = torch.cat([x[:, :4], x[:, :4], torch.full((30, 1), 0.1, dtype=torch.float64)], 1) + 3
    model = OLSTransformer.from_data(x, y, fit_intercept=True)
    centred = (x - x.mean(0))[:, :8]
    shortest = np.append(np.linalg.pinv(centred.numpy(), rcond=1e-12) @ (y - y.mean()).numpy(), 0.0)
    assert int(model.rank) == 4 and error(model.coef, shortest) < 1e-10
    assert float(model.coef[8]) == 0.0  # a constant column takes no part, whatever rounding leaves of it


def test_more_columns_than_rows():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 20, generator=g, dtype=torch.float64), torch.randn(6, generator=g, dtype=torch.float64)
    model = OLSTransformer.from_data(x, y)
    assert int(model.rank) == 6 and model.w_q.shape == (20, 20)
    assert error(model.coef, np.linalg.pinv(x.numpy()) @ y.numpy()) < 1e-12 and error(model(x), y) < 1e-12
    assert error(model.attend(x)[1], torch.eye(6)) < 1e-12


def test_batch_of_ragged_rank():
    full = torch.randn(30, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, y = torch.stack([deficient(0)[0], full, torch.zeros(30, 8, dtype=torch.float64)]), torch.randn(3, 30, dtype=torch.float64).cumsum(1)
    model = OLSTransformer.from_data(x, y)
    assert model.rank.tolist() == [5, 8, 0] and model.condition_number[2] == 1
    for i in (0, 1):
        assert error(model.coef[i], np.linalg.pinv(x[i].numpy(), rcond=1e-12) @ y[i].numpy()) < 1e-10
    factor = spectral_factor(x)
    assert error(factor.whitened, x @ factor.L) < 1e-12 and factor.singular_values.shape == (3, 8)
    assert bool((model.coef[2] == 0).all()) and bool((model(x)[2] == 0).all())


def test_state_dict_carries_everything():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 30, 4, generator=g, dtype=torch.float64) + 5, torch.randn(2, 30, 3, generator=g, dtype=torch.float64)
    x_new = torch.randn(2, 7, 4, generator=g, dtype=torch.float64)
    model = OLSTransformer.from_data(x, y, ridge=0.5, fit_intercept=True)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    elsewhere = OLSTransformer(30, 4, 3, batch=(2,))
    assert bool((elsewhere(x_new) == 0).all())
    elsewhere.load_state_dict(torch.load(buffer, weights_only=True))
    for other in (elsewhere, copy.deepcopy(model), copy.deepcopy(model).to(torch.float64)):
        assert torch.equal(other(x_new), model(x_new)) and torch.equal(other.self_attention(x), model.self_attention(x))
        assert torch.equal(other.coef, model.coef) and torch.equal(other.intercept, model.intercept)
        assert torch.equal(other.rank, model.rank) and torch.equal(other.condition_number, model.condition_number)
    single = copy.deepcopy(model).to(torch.float32)
    assert single(x_new.float()).dtype == torch.float32 and error(single(x_new.float()), model(x_new)) < 1e-5
    with pytest.raises(RuntimeError, match="size mismatch"):
        OLSTransformer(31, 4, 3, batch=(2,)).load_state_dict(model.state_dict())


def test_parameters_are_frozen_and_thaw():
    x, y = deficient(0)
    model = OLSTransformer.from_data(x, y)
    assert [name for name, _ in model.named_parameters()] == ["w_q", "w_k", "w_v", "w_ffn", "w_p"]
    assert not model(x).requires_grad
    model.requires_grad_()
    model(x).square().sum().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters())


def test_coef_follows_changed_weights():
    x, y = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).unbind(0)
    model = OLSTransformer.from_data(x, y[:, 0])
    with torch.no_grad():
        model.w_k.mul_(1.5)
        model.w_ffn[0, 1] = 0.3
    assert error(model(torch.eye(4, dtype=torch.float64)), model.coef) < 1e-14


def test_gradients():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, generator=g, dtype=torch.float64, requires_grad=True)
    y = torch.randn(7, generator=g, dtype=torch.float64)

    for route in ("svd", "gram"):

        def fitted(x, ridge=0.0, route=route):
            factor = spectral_factor(x, ridge=ridge, route=route)
            return factor.whitened @ (factor.whitened.mT @ y) / len(x), factor.L @ factor.L.mT

        assert torch.autograd.gradcheck(fitted, (x,))
        assert torch.autograd.gradcheck(lambda x, f=fitted: f(x, 0.5), (x,))
    model = OLSTransformer.from_data(x, y)
    assert not any(value.requires_grad for value in model.state_dict(keep_vars=True).values())  # constants, as documented
    x_new = torch.randn(4, 3, generator=g, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model, (x_new,)) and torch.autograd.gradcheck(model.self_attention, (x_new,))


def exact(x: Tensor, y: Tensor) -> list[Fraction]:
    """Least squares in rational arithmetic."""
    rows = [[Fraction(v) for v in row] for row in torch.cat([x, y[:, None]], 1).tolist()]
    d = x.shape[1]
    a = [[sum(row[i] * row[j] for row in rows) for j in range(d + 1)] for i in range(d)]
    for i in range(d):
        a[i] = [v / a[i][i] for v in a[i]]
        for j in set(range(d)) - {i}:
            a[j] = [v - a[j][i] * w for v, w in zip(a[j], a[i], strict=True)]
    return [row[-1] for row in a]


def test_longley_against_rational_arithmetic():
    """Scaled condition number 110: two of sixteen digits, and half a digit for the constants, in any order of the rows."""
    problem = nist_problem("Longley")
    truth = exact(torch.cat([torch.ones(16, 1, dtype=torch.float64), problem.x], 1), problem.y)
    fitted = torch.tensor([float(v) for v in exact_fit(problem.x, problem.y)], dtype=torch.float64)
    digits = []
    for seed in range(8):
        order = torch.randperm(16, generator=torch.Generator().manual_seed(seed))
        model = OLSTransformer.from_data(problem.x[order], problem.y[order], fit_intercept=True)
        ours = torch.cat([model.intercept[None], model.coef]).tolist()
        digits.append(-np.log10(max(abs(float((Fraction(v) - t) / t)) for v, t in zip(ours, truth, strict=True))))
        assert error(model(problem.x), fitted) < 1e-15 and error(model.self_attention(problem.x), fitted) < 1e-15
    assert min(digits) > 13 and np.mean(digits) > 13.4, digits


@pytest.mark.parametrize("name", ["Longley", "Norris", "Wampler1", "Wampler2"])
def test_digits_on_nist(name):
    """Within one digit of the best of four libraries; the pass keeps the fitted values to the last bits."""
    problem = nist_problem(name)
    x, y = problem.x.numpy(), problem.y.numpy()
    ones = np.column_stack([np.ones(len(x)), x])
    peers = [np.linalg.lstsq(ones, y, rcond=None)[0], scipy.linalg.lstsq(ones, y)[0], sm.OLS(y, ones).fit().params]
    peers += [np.append(fit.intercept_, fit.coef_) for fit in (LinearRegression().fit(x, y), LinearRegression(tol=1e-15).fit(x, y))]
    best = max(problem.digits(c[0], c[1:]) for c in map(torch.as_tensor, peers))
    model = OLSTransformer.from_data(problem.x, problem.y, fit_intercept=True)
    assert problem.digits(model.intercept, model.coef) >= best - 1
    fitted = [float(v) for v in exact_fit(problem.x, problem.y)]
    assert error(model(problem.x), fitted) < 2e-15
    if name.startswith("Wampler"):  # polynomials of degree five: the Gram route, scaled by nothing, has no digits to spare
        gram = OLSTransformer.from_data(problem.x, problem.y, fit_intercept=True, route="gram", rtol=0.0)
        assert problem.digits(gram.intercept, gram.coef) < best - 4


def exact_fit(x: Tensor, y: Tensor) -> list[Fraction]:
    design = torch.cat([torch.ones(len(x), 1, dtype=torch.float64), x], 1)
    truth = exact(design, y)
    return [sum(map(Fraction.__mul__, truth, map(Fraction, row))) for row in design.tolist()]


@pytest.mark.parametrize(("dtype", "kappa", "bound"), [(torch.float32, 1e3, 1e-3), (torch.float64, 1e4, 1e-10), (torch.float64, 1e7, 1e-7)])
def test_digits_against_condition(dtype, kappa, bound):
    """Stable route and pass lose one factor κ (times ten for constants); the Gram route loses two."""
    g = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(size, 6, generator=g, dtype=torch.float64)).Q for size in (60, 6))
    x = (u * torch.logspace(0, -np.log10(kappa), 6, dtype=torch.float64) @ v.mT).to(dtype)
    y = (x.double() @ torch.ones(6, dtype=torch.float64)).to(dtype)
    truth = torch.tensor([float(v) for v in exact(x, y)], dtype=torch.float64)
    stable = OLSTransformer.from_data(x, y, rtol=0.0)
    assert error(stable.coef, truth) < bound and error(stable(torch.eye(6, dtype=dtype)), truth) < bound
    assert error(stable(x), x.double() @ truth) < 50 * torch.finfo(dtype).eps
    gram = OLSTransformer.from_data(x, y, rtol=0.0, route="gram")
    assert error(gram.coef, truth) > 10 * error(stable.coef, truth)


def test_rtol_is_the_cutoff():
    x = torch.diag(torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64))
    x[:, 2] = x[:, 1] + 1e-6 * x[:, 2]  # nearly the second column: scaled singular values √2, 1, 7e-7
    assert [int(spectral_factor(x, rtol=rtol).rank) for rtol in (None, 1e-7, 1e-6)] == [3, 3, 2]
    assert [int(spectral_factor(x, rtol=rtol, route="gram").rank) for rtol in (None, 1e-14, 1e-12)] == [3, 3, 2]
    with pytest.raises(ValueError, match="rtol must be below 1"):
        spectral_factor(x, rtol=1.0)


def test_extreme_units():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 4, generator=g, dtype=torch.float64), torch.randn(30, generator=g, dtype=torch.float64)
    for unit in (1e200, 1e-200):
        assert error(OLSTransformer.from_data(unit * x, y)(unit * x), OLSTransformer.from_data(x, y)(x)) < 1e-12
    with pytest.raises(ValueError, match="overflow"):
        OLSTransformer.from_data(1e-300 * x, 1e300 * y)
    with pytest.raises(ValueError, match="overflow"):
        spectral_factor(1e200 * x, route="gram")
    for large, options in ((1e308 * x.sign(), {}), (1e308 * x.sign() ** 2, {"fit_intercept": True}), (x.float(), {"ridge": 1e300})):
        with pytest.raises(ValueError, match="overflow"):
            OLSTransformer.from_data(large, y.to(large.dtype), **options)


def test_what_is_refused():
    x, y = torch.randn(3, 9, 2), torch.randn(3, 9)
    model = OLSTransformer.from_data(x, y)
    for call in (model, model.attend, model.self_attention):
        with pytest.raises(ValueError, match="d = 2"):
            call(x[..., :1])
        with pytest.raises(TypeError, match="dtype of w_q"):
            call(x.double())
        with pytest.raises(ValueError, match="NaN"):
            call(x * torch.nan)
        with pytest.raises(ValueError, match="batch axes"):
            call(x[:2])
    with pytest.raises(ValueError, match="y must have 2 axes, or 3"):
        OLSTransformer.from_data(x, y[0])
    with pytest.raises(ValueError, match=r"y must have axes \(\*b, n, k\)"):
        OLSTransformer.from_data(x, torch.randn(3, 8, 2))
    with pytest.raises(TypeError, match="batch must be an integer"):
        OLSTransformer(3, 2, batch=("a",))
