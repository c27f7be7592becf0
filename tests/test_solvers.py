"""Solvers against rational arithmetic, scipy and closed forms, over shapes, dtypes, batch axes, layouts and preconditioners."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from torch import Tensor

from transformer_ols.solvers import (
    Chebyshev,
    ConjugateGradient,
    GradientDescent,
    Nesterov,
    NewtonSchulz,
    Richardson,
    Solution,
    solve,
)

PROPERTY = settings(deadline=None, derandomize=True, max_examples=30)
QUICK = settings(PROPERTY, max_examples=12)  # for what is run with every solver
F64 = torch.float64
dtypes = st.sampled_from([torch.float32, F64])
seeds = st.integers(0, 2**31)
nan = float("nan")


def transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT if x.ndim > 1 else x


def strided(x: Tensor) -> Tensor:
    return torch.stack([x, torch.full_like(x, 1e6)], dim=-1).flatten(-2)[..., ::2]


LAYOUTS = (torch.Tensor.contiguous, transposed, strided)
layouts = st.sampled_from(LAYOUTS)

# Every solver with the options that change its path, all of them good for a symmetric positive definite matrix.
SOLVERS: dict[str, Callable[[], Any]] = {
    "Richardson safe": lambda: Richardson(),
    "Richardson optimal": lambda: Richardson(step_size="optimal"),
    "Richardson lipschitz": lambda: Richardson(step_size="lipschitz"),
    "Richardson number": lambda: Richardson(step_size=1.0),
    "GradientDescent safe": lambda: GradientDescent(),
    "GradientDescent optimal": lambda: GradientDescent(step_size="optimal", bounds=(0.2, 1.0)),
    "Nesterov sequence": lambda: Nesterov(step_size="lipschitz"),
    "Nesterov constant": lambda: Nesterov(momentum="constant"),
    "Nesterov number": lambda: Nesterov(momentum=0.5, step_size=1.0),
    "Chebyshev": lambda: Chebyshev(),
    "Chebyshev bounds": lambda: Chebyshev(bounds=(0.18, 1.1)),
    "ConjugateGradient": lambda: ConjugateGradient(),
    "NewtonSchulz transpose": lambda: NewtonSchulz(),
    "NewtonSchulz optimal": lambda: NewtonSchulz(start="optimal"),
    "NewtonSchulz safe": lambda: NewtonSchulz(start="safe"),
}
EVERY = pytest.mark.parametrize("name", SOLVERS)


def positive_definite(generator: torch.Generator, *shape: int) -> Tensor:
    """Symmetric matrices with eigenvalues between 0.2 and 1, both attained if n > 1."""
    Q = torch.linalg.qr(torch.randn(*shape, generator=generator, dtype=F64)).Q
    eigenvalues = torch.linspace(0.2, 1.0, shape[-1], dtype=F64)
    A = (Q * eigenvalues) @ Q.mT
    return (A + A.mT) / 2


def problem(seed: int, n: int, batches: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    A = positive_definite(generator, *batches[0], n, n)
    return A, torch.randn(*batches[1], n, generator=generator, dtype=F64)


def exact(A: Tensor, b: Tensor) -> np.ndarray:
    batch = torch.broadcast_shapes(A.shape[:-2], b.shape[:-1])
    return np.linalg.solve(A.double().numpy(), b.double().expand(*batch, -1).numpy()[..., None])[..., 0]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    shapes = draw(mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3)).input_shapes
    A, b = problem(draw(seeds), draw(st.integers(1, 6)), shapes)
    dtype = draw(dtypes)
    return draw(layouts)(A.to(dtype)), draw(layouts)(b.to(dtype))


@EVERY
@QUICK
@given(problems())
def test_every_solver_reaches_the_solution(name: str, case: tuple[Tensor, Tensor]) -> None:
    A, b = case
    before = A.clone(), b.clone()
    tol = 200 * torch.finfo(A.dtype).eps
    found = solve(A, b, SOLVERS[name](), steps=2000, tol=tol, keep_iterates=False)
    batch = torch.broadcast_shapes(A.shape[:-2], b.shape[:-1])
    assert found.value.shape == (*batch, A.shape[-1]) and found.value.dtype == A.dtype
    assert found.converged.shape == found.n_iter.shape == batch and found.converged.all()
    assert f"reached tol = {tol:g}" in found.message
    error = np.abs(found.value.numpy() - exact(A, b)).max()
    assert error <= 5 * 2 * tol * (1 + float(b.norm(dim=-1).max()))  # the error is at most |A^-1| = 5 times the residual
    assert torch.equal(A, before[0]) and torch.equal(b, before[1])


@EVERY
@QUICK
@given(problems())
def test_residuals_are_those_of_the_iterates(name: str, case: tuple[Tensor, Tensor]) -> None:
    A, b = case
    found = solve(A, b, SOLVERS[name](), steps=5)
    assert found.iterates is not None and len(found.iterates) == len(found.residuals) == 6
    r = b - torch.einsum("...ij,t...j->t...i", A, found.iterates)
    size = (A.double().norm(dim=(-2, -1)) * found.iterates.double().norm(dim=-1) / b.double().norm(dim=-1)).max()
    slack = 20 * torch.finfo(A.dtype).eps * float(1 + size)
    assert (found.residuals - r.norm(dim=-1) / b.norm(dim=-1)).abs().max() <= slack
    assert torch.equal(found.value, found.iterates[-1])
    assert torch.equal(found.value, solve(A, b, SOLVERS[name](), steps=5, keep_iterates=False).value)
    assert (found.n_iter == 5).all() and not found.converged.any()
    if not name.startswith("NewtonSchulz"):
        assert not found.iterates[0].any() and (found.residuals[0] - 1).abs().max() < 1e-6


@EVERY
def test_a_batch_is_its_members(name: str) -> None:
    A, b = problem(1, 5, ((3,), (2, 3)))
    tol = 1e-5
    together = solve(A, b, SOLVERS[name](), steps=1000, tol=tol)
    for i in np.ndindex(2, 3):
        alone = solve(A[i[1]], b[i], SOLVERS[name](), steps=1000, tol=tol)
        steps = int(alone.n_iter)
        assert int(together.n_iter[i]) == steps and len(alone.residuals) == steps + 1
        mine = together.iterates[(slice(None), *i)]
        torch.testing.assert_close(mine[: steps + 1], alone.iterates, rtol=0, atol=1e-12)
        assert torch.equal(mine[steps:], mine[steps:][:1].expand_as(mine[steps:]))  # frozen for good
        assert together.residuals[(steps, *i)] <= tol < together.residuals[(steps - 1, *i)]


@EVERY
def test_functions_and_matrices_give_the_same(name: str) -> None:
    A, b = problem(2, 4)
    by_matrix = solve(A, b, SOLVERS[name](), steps=6)
    numbers = {
        "Richardson number", "Nesterov number", "Chebyshev bounds", "ConjugateGradient", "GradientDescent optimal",
    }  # fmt: skip
    if name in numbers:
        by_function = solve(lambda v: A @ v, b, SOLVERS[name](), steps=6)
        torch.testing.assert_close(by_function.iterates, by_matrix.iterates, rtol=0, atol=1e-13)
    else:
        with pytest.raises(ValueError, match=r"A must be a matrix for .*, got a function; pass the matrix"):
            solve(lambda v: A @ v, b, SOLVERS[name](), steps=6)


@EVERY
@pytest.mark.parametrize("exponent", [-120, -60, 60, 110])
def test_powers_of_two_change_no_digit(name: str, exponent: int) -> None:
    A, b = (x.float() for x in problem(3, 4))
    plain, scaled = (solve(A, factor * b, SOLVERS[name](), steps=9) for factor in (1.0, 2.0**exponent))
    assert torch.equal(scaled.iterates, plain.iterates * 2.0**exponent)
    assert torch.equal(scaled.residuals, plain.residuals)


def test_the_scale_is_exact() -> None:
    A, b = problem(3, 6, ((), (50,)))
    assert torch.equal(solve(A, b, Richardson(step_size=0.3), steps=1).value, 0.3 * b)


@EVERY
def test_zero_right_hand_sides(name: str) -> None:
    A, b = problem(4, 4, ((), (2,)))
    b[0] = 0
    for tol in (None, 1e-6):
        found = solve(A, b, SOLVERS[name](), steps=500, tol=tol)
        assert not found.iterates[:, 0].any() and not found.residuals[:, 0].any()
        assert (found.value[1] - torch.from_numpy(exact(A, b)[1])).abs().max() < 1e-4
    assert found.n_iter[0] == 0 and found.n_iter[1] > 0 and found.converged.all()


@EVERY
def test_gradients(name: str) -> None:
    A, b = problem(5, 3)
    generator = torch.Generator().manual_seed(6)
    factor = torch.randn(3, 3, dtype=F64, generator=generator) * 0.2

    def value(factor: Tensor, b: Tensor) -> Tensor:
        return solve(A + factor @ factor.mT, b, SOLVERS[name](), steps=4).value

    assert torch.autograd.gradcheck(value, (factor.requires_grad_(), b.requires_grad_()))


def test_gradients_of_a_frozen_batch() -> None:
    """Past convergence, with a frozen and a zero member, nothing turns into NaN; the limit has the gradient of the solution."""
    A, b = problem(7, 3, ((), (3,)))
    b[2] = 0
    b.requires_grad_()
    for solver in (ConjugateGradient(), Chebyshev(), NewtonSchulz()):
        found = solve(A, b, solver, steps=200, tol=1e-14)
        (gradient,) = torch.autograd.grad(found.value.sum(), b)
        expected = torch.linalg.solve(A, torch.ones(3, dtype=F64))
        torch.testing.assert_close(gradient[:2], expected.expand(2, 3), rtol=1e-6, atol=1e-6)


# The closed forms, by numpy.


def spectral(seed: int, n: int) -> tuple[np.ndarray, Tensor, Tensor, np.ndarray, np.ndarray]:
    """Random eigenvalues in [0.05, 2], the system, and the coefficients of its solution in the eigenbasis."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.uniform(0.05, 2, n))
    Q = scipy.linalg.qr(rng.standard_normal((n, n)))[0]
    coefficients = rng.standard_normal(n)
    A = (Q * values) @ Q.T
    return values, torch.from_numpy((A + A.T) / 2), torch.from_numpy(Q @ (values * coefficients)), Q, coefficients


def coefficients_of_the_error(found: Solution, Q: np.ndarray, c: np.ndarray) -> np.ndarray:
    return c - found.iterates.numpy() @ Q


@PROPERTY
@given(seeds, st.integers(1, 8), st.floats(0.01, 0.9))
def test_gradient_descent_on_an_eigenbasis(seed: int, n: int, eta: float) -> None:
    values, A, b, Q, c = spectral(seed, n)
    t = np.arange(21)[:, None]
    for solver in (GradientDescent(step_size=eta), Richardson(step_size=eta)):
        error = coefficients_of_the_error(solve(A, b, solver, steps=20), Q, c)
        np.testing.assert_allclose(error, (1 - eta * values) ** t * c, rtol=0, atol=1e-12)


def test_the_step_sizes_by_name() -> None:
    A, b = problem(8, 6)
    low, high = np.linalg.eigvalsh(A.numpy())[[0, -1]]
    rows = np.abs(A.numpy()).sum(1).max()
    for name, omega in {"optimal": 2 / (low + high), "lipschitz": 1 / high, "safe": 1 / rows}.items():
        for solver in (Richardson(step_size=name), GradientDescent(step_size=name)):
            torch.testing.assert_close(solve(A, b, solver, steps=1).value, omega * b, rtol=1e-13, atol=0)
    for name, omega in {"optimal": 4 / 7, "lipschitz": 1 / 3}.items():
        given_bounds = GradientDescent(step_size=name, bounds=(0.5, 3.0))
        torch.testing.assert_close(solve(A, b, given_bounds, steps=1).value, omega * b, rtol=1e-15, atol=0)


@PROPERTY
@given(seeds, st.integers(1, 8), st.floats(0.5, 1.0), st.floats(1.0, 2.0))
def test_chebyshev_polynomials(seed: int, n: int, below: float, above: float) -> None:
    values, A, b, Q, c = spectral(seed, n)
    low, high = below * values[0], above * values[-1]
    theta, delta = (low + high) / 2, (high - low) / 2
    found = solve(A, b, Chebyshev(bounds=(low, high)), steps=20)
    if delta < 1e-6 * theta:
        assert found.residuals[1] < 1e-5
        return
    T = [np.polynomial.chebyshev.Chebyshev.basis(t) for t in range(21)]
    expected = np.array([p((theta - values) / delta) / p(theta / delta) for p in T]) * c
    np.testing.assert_allclose(coefficients_of_the_error(found, Q, c), expected, rtol=0, atol=1e-11)


@PROPERTY
@given(seeds, st.integers(1, 6), st.sampled_from(["sequence", "constant", 0.3]))
def test_nesterov_on_an_eigenbasis(seed: int, n: int, momentum: str | float) -> None:
    values, A, b, Q, c = spectral(seed, n)
    eta = 1 / values[-1]
    root = np.sqrt(values[0] / values[-1])
    found = solve(A, b, Nesterov(momentum=momentum, step_size="lipschitz"), steps=20)
    expected = [c, (1 - eta * values) * c]
    for t in range(1, 20):
        beta = {"sequence": t / (t + 3), "constant": (1 - root) / (1 + root)}.get(momentum, momentum)
        expected.append((1 - eta * values) * (expected[-1] + beta * (expected[-1] - expected[-2])))
    np.testing.assert_allclose(coefficients_of_the_error(found, Q, c), expected, rtol=0, atol=1e-11)


@PROPERTY
@given(seeds, st.integers(1, 6))
def test_newton_schulz_squares(seed: int, n: int) -> None:
    values, A, b, Q, c = spectral(seed, n)
    square = (2.0 ** np.arange(5))[:, None]
    starts = {
        "optimal": 1 - 2 / (values[0] + values[-1]) * values,
        "safe": 1 - values / np.abs(A.numpy()).sum(1).max(),
        "transpose": 1 - values**2 / np.abs(A.numpy()).sum(1).max() ** 2,
    }
    for start, factor in starts.items():
        error = coefficients_of_the_error(solve(A, b, NewtonSchulz(start=start), steps=4), Q, c)
        np.testing.assert_allclose(error, factor**square * c, rtol=0, atol=1e-11)
    by_tensor = solve(A, b, NewtonSchulz(start=A / 5), steps=4)
    np.testing.assert_allclose(coefficients_of_the_error(by_tensor, Q, c), (1 - values**2 / 5) ** square * c, rtol=0, atol=1e-11)


def test_newton_schulz_takes_any_invertible_matrix() -> None:
    A = torch.randn(4, 6, 6, dtype=F64, generator=torch.Generator().manual_seed(9))
    b = torch.ones(4, 6, dtype=F64)
    found = solve(A, b, NewtonSchulz(), steps=60, tol=1e-12)
    np.testing.assert_allclose(found.value.numpy(), exact(A, b), rtol=1e-9)
    start = [a.T @ v / (np.linalg.norm(a, 1) * np.linalg.norm(a, np.inf)) for a, v in zip(A.numpy(), b.numpy(), strict=True)]
    np.testing.assert_allclose(found.iterates[0].numpy(), start, rtol=1e-12)


def rational_conjugate_gradients(A: list[list[int]], b: list[int], P: list[Fraction]) -> list[list[Fraction]]:
    """The textbook recursion without any rounding."""
    n = len(b)
    x, r = [Fraction(0)] * n, [Fraction(v) for v in b]
    p = [P[i] * r[i] for i in range(n)]
    iterates = [x]
    while any(r):
        Ap = [sum(A[i][j] * p[j] for j in range(n)) for i in range(n)]
        rho = sum(r[i] * P[i] * r[i] for i in range(n))
        alpha = rho / sum(p[i] * Ap[i] for i in range(n))
        x, r = [x[i] + alpha * p[i] for i in range(n)], [r[i] - alpha * Ap[i] for i in range(n)]
        beta = sum(r[i] * P[i] * r[i] for i in range(n)) / rho
        p = [P[i] * r[i] + beta * p[i] for i in range(n)]
        iterates.append(x)
    return iterates


@PROPERTY
@given(st.integers(0, 10**6), st.integers(1, 5), st.booleans())
def test_conjugate_gradients_in_rational_arithmetic(seed: int, n: int, jacobi: bool) -> None:
    rng = np.random.default_rng(seed)
    factor = rng.integers(-2, 3, (n, n))
    A, b = factor @ factor.T + 2 * np.eye(n, dtype=int), rng.integers(-5, 6, n)
    b[0] = 1
    P = [Fraction(1, int(A[i, i])) if jacobi else Fraction(1) for i in range(n)]
    expected = rational_conjugate_gradients(A.tolist(), b.tolist(), P)
    assert len(expected) <= n + 1  # finite termination, exactly
    solver = ConjugateGradient(preconditioner=torch.tensor([float(v) for v in P], dtype=F64) if jacobi else None)
    found = solve(torch.from_numpy(A).double(), torch.from_numpy(b).double(), solver, steps=len(expected))
    for t, x in enumerate(expected):
        np.testing.assert_allclose(found.iterates[t].numpy(), [float(v) for v in x], rtol=0, atol=1e-10)
    assert found.residuals[-1] < 1e-13


@pytest.mark.parametrize("jacobi", [False, True])
def test_conjugate_gradients_against_scipy(jacobi: bool) -> None:
    A, b = problem(10, 30)
    scale = torch.logspace(-1, 1, 30, dtype=F64)
    A = scale[:, None] * A * scale
    P = 1 / A.diagonal() if jacobi else None
    theirs: list[np.ndarray] = []
    M = None if P is None else scipy.sparse.linalg.LinearOperator((30, 30), matvec=lambda v: P.numpy() * v)
    scipy.sparse.linalg.cg(A.numpy(), b.numpy(), rtol=1e-10, M=M, callback=lambda x: theirs.append(x.copy()))
    ours = solve(A, b, ConjugateGradient(preconditioner=P), steps=len(theirs))
    for t in range(8):  # later, rounding errors that grow as orthogonality is lost make the two drift apart
        np.testing.assert_allclose(ours.iterates[t + 1].numpy(), theirs[t], rtol=0, atol=1e-10 * np.abs(theirs[t]).max())
    minres, _ = scipy.sparse.linalg.minres(A.numpy(), b.numpy(), rtol=1e-14)
    done = solve(A, b, ConjugateGradient(preconditioner=P), steps=200, tol=1e-12).value
    np.testing.assert_allclose(done.numpy(), minres, rtol=0, atol=1e-8 * np.abs(minres).max())


def test_conjugate_gradients_beat_every_other_polynomial() -> None:
    A, b = problem(11, 12)
    x = torch.from_numpy(exact(A, b))

    def energies(solver: Any) -> Tensor:
        e = x - solve(A, b, solver, steps=10).iterates
        return (e * (e @ A)).sum(-1)

    best = energies(ConjugateGradient())
    for name in ("Richardson safe", "Richardson optimal", "Nesterov sequence", "Nesterov constant", "Chebyshev"):
        assert (best <= energies(SOLVERS[name]()) * (1 + 1e-12)).all()


# Preconditioners.

PRECONDITIONED = {
    "Richardson safe": lambda P: Richardson(preconditioner=P),
    "Richardson optimal": lambda P: Richardson(preconditioner=P, step_size="optimal"),
    "Richardson lipschitz": lambda P: Richardson(preconditioner=P, step_size="lipschitz"),
    "Chebyshev": lambda P: Chebyshev(preconditioner=P),
    "ConjugateGradient": lambda P: ConjugateGradient(preconditioner=P),
}


@pytest.mark.parametrize("name", PRECONDITIONED)
def test_a_preconditioner_is_a_change_of_variables(name: str) -> None:
    """With P = CC' the iterates are C times those of the plain method on C'AC and C'b, step size and bounds included."""
    A, b = problem(12, 5, ((2,), (2,)))
    C = torch.randn(5, 5, dtype=F64, generator=torch.Generator().manual_seed(13)).tril() / 3 + torch.eye(5, dtype=F64)
    P = C @ C.mT
    found = solve(A, b, PRECONDITIONED[name](lambda r: r @ P), steps=8).iterates
    if name == "Richardson safe":  # the row sums are those of PA, which C'AC does not share
        omega = 1 / (P @ A).abs().sum(-1).amax(-1)
        plain = Richardson(step_size=omega)
    else:
        plain = PRECONDITIONED[name](None)
    there = solve(C.mT @ A @ C, b @ C, plain, steps=8).iterates
    torch.testing.assert_close(found, there @ C.mT, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", PRECONDITIONED)
@pytest.mark.parametrize("shape", [(4,), (3, 4), (1, 4)])
def test_a_tensor_is_a_diagonal(name: str, shape: tuple[int, ...]) -> None:
    A, b = problem(14, 4, ((3,), (3,)))
    d = torch.rand(*shape, dtype=F64, generator=torch.Generator().manual_seed(15)) + 0.5
    by_tensor = solve(A, b, PRECONDITIONED[name](strided(d)), steps=8).iterates
    by_function = solve(A, b, PRECONDITIONED[name](lambda r: d * r), steps=8).iterates
    torch.testing.assert_close(by_tensor, by_function, rtol=0, atol=1e-13)


def test_the_exact_inverse_takes_one_step() -> None:
    A, b = problem(16, 6, ((2,), (2,)))
    inverse = torch.linalg.inv(A)

    def P(r: Tensor) -> Tensor:
        return (inverse @ r[..., None])[..., 0]

    for solver in (Richardson(preconditioner=P, step_size=1.0), ConjugateGradient(preconditioner=P), Chebyshev(preconditioner=P)):
        assert solve(A, b, solver, steps=1).residuals[1].max() < 1e-12


def test_one_number_for_each_system() -> None:
    A, b = problem(17, 4, ((3,), (3,)))
    A = A * torch.tensor([1.0, 2.0, 5.0], dtype=F64)[:, None, None]
    eigenvalues = torch.linalg.eigvalsh(A)
    low, high = eigenvalues[:, 0], eigenvalues[:, -1]
    pairs = [
        (Chebyshev(bounds=(low, high)), Chebyshev()),
        (GradientDescent(step_size=1 / high), GradientDescent(step_size="lipschitz")),
        (Richardson(step_size=2 / (low + high)), Richardson(step_size="optimal")),
        (Nesterov(momentum="constant", step_size=1 / high, bounds=(low, high)), Nesterov(momentum="constant", step_size="lipschitz")),
        (NewtonSchulz(start="optimal", bounds=(low, high)), NewtonSchulz(start="optimal")),
    ]
    for told, computed in pairs:
        torch.testing.assert_close(solve(A, b, told, steps=5).iterates, solve(A, b, computed, steps=5).iterates, rtol=0, atol=1e-12)


# What goes wrong.


def test_past_convergence_nothing_moves() -> None:
    A, b = (x.float() for x in problem(18, 6, ((4,), (4,))))
    found = solve(A, b, ConjugateGradient(), steps=300)
    assert torch.equal(found.iterates[100], found.iterates[-1]) and found.residuals[-1].max() < 1e-5


def test_indefinite_matrices_break_conjugate_gradients() -> None:
    A, b = problem(19, 4, ((3,), (3,)))
    Q = torch.linalg.qr(torch.randn(4, 4, dtype=F64, generator=torch.Generator().manual_seed(2))).Q
    A[1] = (Q * torch.tensor([-0.5, 0.6, 0.8, 1.0], dtype=F64)) @ Q.mT
    assert (A[1].diagonal() > 0).all()
    with pytest.raises(ArithmeticError, match=r"A must be positive definite, got p\^T A p <= 0 in 1 of 3 systems; add a ridge"):
        solve(A, b, ConjugateGradient(), steps=10)
    b[1] = Q[:, 1]  # an eigenvector: solved in one step, whatever the rest of the spectrum
    found = solve(A, b, ConjugateGradient(), steps=10, tol=1e-10)
    assert found.converged.all() and found.n_iter[1] == 1
    with pytest.raises(ArithmeticError, match=r"preconditioner must be positive definite, got r\^T P r <= 0"):
        solve(A[0], b[0], ConjugateGradient(preconditioner=lambda r: -r), steps=3)


@pytest.mark.parametrize(
    ("solver", "advice"),
    [
        (Richardson(step_size=50.0), "take a smaller step, such as step_size='safe'"),
        (GradientDescent(step_size=50.0), "take a smaller step, such as step_size='safe'"),
        (Nesterov(step_size=50.0), "take a smaller step, such as step_size='safe'"),
        (Chebyshev(bounds=(0.01, 0.02)), "raise the upper of the bounds"),
        (NewtonSchulz(start=50 * torch.eye(4)), "start='transpose' converges"),
    ],
)
def test_divergence_is_said(solver: Any, advice: str) -> None:
    A, b = (x.float() for x in problem(20, 4, ((2,), (2,))))
    with pytest.raises(ArithmeticError, match=r"diverged: after \d+ steps the residual of [12] of 2 systems is not finite") as raised:
        solve(A, b, solver, steps=1000)
    assert advice in str(raised.value)
    steps = 3 if isinstance(solver, NewtonSchulz) else 8
    grown = solve(A, b, solver, steps=steps, tol=1e-6)
    assert not grown.converged.any() and f"it has grown: {advice}" in grown.message


def test_not_yet_and_never() -> None:
    A, b = problem(21, 6)
    slow = solve(A, b, Richardson(step_size=0.5), steps=20, tol=1e-12)
    assert not slow.converged and "1 of 1 systems are above tol = 1e-12; allow more steps" in slow.message
    never = solve(A.float(), b.float(), ConjugateGradient(), steps=50, tol=1e-12)
    assert not never.converged and never.n_iter == 50 and "it has stalled: use float64" in never.message
    silent = solve(A, b, Richardson(step_size=0.5), steps=20)
    assert silent.message == f"Richardson: after 20 steps the largest residual is {float(silent.residuals[-1]):.1e}"


def test_nonfinite_products_are_noticed() -> None:
    calls = 0

    def A(v: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return v if calls < 4 else v * nan

    with pytest.raises(ArithmeticError, match="Richardson diverged: after 2 steps the residual of 1 of 1 systems"):
        solve(A, torch.ones(3), Richardson(step_size=0.1), steps=9)
    with pytest.raises(ArithmeticError, match=r"the solution does not fit into torch.float32; scale b down"):
        solve(0.01 * torch.eye(2), torch.full((2,), 1e38), ConjugateGradient(), steps=3)


def test_any_object_with_init_and_step() -> None:
    State = namedtuple("State", "x")

    class Jump:
        def init(self, system: Any) -> Any:
            return State(torch.zeros_like(system.b))

        def step(self, system: Any, state: Any, residual: Tensor) -> Any:
            return State(state.x + residual / 2)

    found = solve(2 * torch.eye(3), torch.ones(3), Jump(), steps=3, tol=1e-6)
    assert found.n_iter == 1 and found.message == "Jump reached tol = 1e-06 in 1 steps"

    class Away(Jump):
        def step(self, system: Any, state: Any, residual: Tensor) -> Any:
            return State(state.x - residual)

    assert "it has grown: check its step size" in solve(torch.eye(3), torch.ones(3), Away(), steps=3).message


I3, ONE, BAD = torch.eye(3), torch.ones(3), torch.tensor([1.0, nan, 1.0])
CG = ConjugateGradient()
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "A text": (lambda: solve("A", ONE, CG, steps=1), TypeError, "A must be a torch.Tensor or callable, got str"),
    "A list": (lambda: solve([[1.0]], ONE, CG, steps=1), TypeError, "A must be a torch.Tensor or callable, got list"),
    "A integer": (lambda: solve(I3.long(), ONE, CG, steps=1), TypeError, "A must be float32 or float64, got int64"),
    "A half": (lambda: solve(I3.half(), ONE, CG, steps=1), TypeError, "A must be float32 or float64, got float16"),
    "A vector": (lambda: solve(ONE, ONE, CG, steps=1), ValueError, r"A must have axes \(\*b, n, n\)"),
    "A oblong": (lambda: solve(I3[:2], ONE, CG, steps=1), ValueError, r"A must have axes \(\*b, n, n\)"),
    "A nan": (lambda: solve(I3 * nan, ONE, CG, steps=1), ValueError, "A must be finite"),
    "A meta": (lambda: solve(I3.to("meta"), ONE.to("meta"), CG, steps=1), ValueError, "A is on the meta device"),
    "A empty": (lambda: solve(I3[:0, :0], ONE[:0], CG, steps=1), ValueError, "A is empty"),
    "A zero": (lambda: solve(0 * I3, ONE, Richardson(), steps=1), ValueError, "A must not be zero"),
    "A zero, inverse": (lambda: solve(0 * I3, ONE, NewtonSchulz(), steps=1), ValueError, "A must not be zero"),
    "A shape": (lambda: solve(lambda v: v[..., :2], ONE, CG, steps=1), ValueError, r"A\(v\) must have axes"),
    "A grows": (lambda: solve(lambda v: v.expand(2, 3), ONE, CG, steps=1), ValueError, r"A\(v\) must have the shape of v \(3,\)"),
    "A dtype": (lambda: solve(lambda v: v.double(), ONE, CG, steps=1), TypeError, r"A\(v\) must have the dtype of v"),
    "A returns": (lambda: solve(lambda v: None, ONE, CG, steps=1), TypeError, r"A\(v\) must be a torch.Tensor, got NoneType"),
    "A infinite": (lambda: solve(lambda v: v / 0, ONE, CG, steps=1), ValueError, r"A\(v\) must be finite"),
    "A skew": (lambda: solve(I3 + 1.0 * (I3.roll(1, 0)), ONE, CG, steps=1), ValueError, "A must be symmetric for ConjugateGradient"),
    "A triangular": (lambda: solve(torch.ones(3, 3).triu(), ONE, GradientDescent(), steps=1), ValueError, "A must be symmetric for Grad"),
    "A lower": (lambda: solve(torch.ones(3, 3).tril(), ONE, Nesterov(), steps=1), ValueError, "A must be symmetric for Nesterov"),
    "A upper": (lambda: solve(torch.ones(3, 3).triu(), ONE, Chebyshev(), steps=1), ValueError, "A must be symmetric for computed"),
    "A start": (lambda: solve(torch.ones(3, 3).triu(), ONE, NewtonSchulz(start="safe"), steps=1), ValueError, "symmetric for NewtonSchulz"),
    "A negative": (lambda: solve(-I3, ONE, CG, steps=1), ValueError, "A must be positive definite for ConjugateGradient, got -1.0e"),
    "A singular": (lambda: solve(torch.ones(3, 3), ONE, Chebyshev(), steps=1), ValueError, "positive definite for computed bounds, got"),
    "b list": (lambda: solve(I3, [1.0], CG, steps=1), TypeError, "b must be a torch.Tensor, got list"),
    "b dtype": (lambda: solve(I3, ONE.double(), CG, steps=1), TypeError, "b must have the dtype of A"),
    "b nan": (lambda: solve(I3, BAD, CG, steps=1), ValueError, "b must be finite, got 1 NaN"),
    "b nan, function": (lambda: solve(lambda v: v, BAD, CG, steps=1), ValueError, "b must be finite, got 1 NaN"),
    "b short": (lambda: solve(I3, ONE[:2], CG, steps=1), ValueError, "with n = 3"),
    "b scalar": (lambda: solve(I3, torch.tensor(1.0), CG, steps=1), ValueError, r"b must have axes \(\*b, n\)"),
    "b batch": (lambda: solve(I3.expand(4, 3, 3), ONE.expand(5, 3), CG, steps=1), ValueError, "b must have batch axes that broadcast"),
    "solver class": (
        lambda: solve(I3, ONE, ConjugateGradient, steps=1),
        TypeError,
        "got the class ConjugateGradient; pass an instance such as",
    ),
    "solver text": (lambda: solve(I3, ONE, "cg", steps=1), TypeError, "solver must have init and step, got str"),
    "solver None": (lambda: solve(I3, ONE, None, steps=1), TypeError, "solver must have init and step, got NoneType"),
    "steps zero": (lambda: solve(I3, ONE, CG, steps=0), ValueError, "steps must be at least 1"),
    "steps float": (lambda: solve(I3, ONE, CG, steps=2.0), TypeError, "steps must be an integer"),
    "steps bool": (lambda: solve(I3, ONE, CG, steps=True), TypeError, "steps must be an integer, got bool"),
    "tol zero": (lambda: solve(I3, ONE, CG, steps=1, tol=0.0), ValueError, "tol must be above 0"),
    "tol nan": (lambda: solve(I3, ONE, CG, steps=1, tol=nan), ValueError, "tol must be finite"),
    "tol text": (lambda: solve(I3, ONE, CG, steps=1, tol="1e-6"), TypeError, "tol must be a real number"),
    "keep": (lambda: solve(I3, ONE, CG, steps=1, keep_iterates=1), TypeError, "keep_iterates must be bool"),
    "bounds list": (lambda: Chebyshev(bounds=[1.0, 2.0]), TypeError, "bounds must be a pair or None, got list"),
    "bounds triple": (lambda: Chebyshev(bounds=(1.0, 2.0, 3.0)), TypeError, "bounds must be a pair"),
    "bounds zero": (lambda: Richardson(bounds=(0.0, 1.0)), ValueError, r"bounds\[0\] must be above 0"),
    "bounds text": (lambda: GradientDescent(bounds=(1.0, "2")), TypeError, r"bounds\[1\] must be a real number"),
    "bounds nan": (lambda: Nesterov(bounds=(1.0, nan)), ValueError, r"bounds\[1\] must be finite"),
    "bounds order": (lambda: NewtonSchulz(bounds=(2.0, 1.0)), ValueError, r"bounds must be \(low, high\)"),
    "bounds tensor order": (lambda: Chebyshev(bounds=(2 * ONE, ONE)), ValueError, r"bounds must be \(low, high\)"),
    "bounds tensor sign": (lambda: Chebyshev(bounds=(-ONE, ONE)), ValueError, r"bounds\[0\] must be above 0, got -1"),
    "bounds dtypes": (lambda: Chebyshev(bounds=(ONE, ONE.double())), TypeError, r"bounds\[1\] must have the dtype of bounds\[0\]"),
    "bounds batch": (lambda: solve(I3, ONE, Chebyshev(bounds=(ONE, 2.0)), steps=1), ValueError, r"bounds\[0\] must have batch axes"),
    "bounds large": (lambda: solve(I3, ONE, Chebyshev(bounds=(1.0, 1e300)), steps=1), ValueError, r"bounds\[1\] must be finite"),
    "step name": (lambda: Richardson(step_size="best"), ValueError, "step_size must be one of 'optimal', 'lipschitz', 'safe'"),
    "step name, Nesterov": (lambda: Nesterov(step_size="optimal"), ValueError, "step_size must be one of 'lipschitz', 'safe'"),
    "step negative": (lambda: GradientDescent(step_size=-0.1), ValueError, "step_size must be above 0"),
    "step None": (lambda: GradientDescent(step_size=None), TypeError, "step_size must be a real number, got NoneType"),
    "step integer tensor": (lambda: Richardson(step_size=torch.tensor(1)), TypeError, "step_size must be float32 or float64"),
    "step nan": (lambda: Richardson(step_size=BAD), ValueError, "step_size must be finite"),
    "step tiny": (lambda: solve(I3, ONE, Richardson(step_size=1e-60), steps=1), ValueError, "step_size must be above 0"),
    "step dtype": (lambda: solve(I3, ONE, Richardson(step_size=torch.ones((), dtype=F64)), steps=1), TypeError, "step_size must have the"),
    "momentum one": (lambda: Nesterov(momentum=1.0), ValueError, "momentum must be below 1"),
    "momentum negative": (lambda: Nesterov(momentum=-0.1), ValueError, "momentum must be at least 0"),
    "momentum name": (lambda: Nesterov(momentum="none"), ValueError, "momentum must be one of 'sequence', 'constant'"),
    "momentum tensor": (lambda: Nesterov(momentum=ONE), TypeError, "momentum must be a real number"),
    "preconditioner text": (
        lambda: ConjugateGradient(preconditioner="jacobi"),
        TypeError,
        "preconditioner must be a torch.Tensor, callable or None",
    ),
    "preconditioner nan": (lambda: Richardson(preconditioner=BAD), ValueError, "preconditioner must be finite"),
    "preconditioner integer": (lambda: Chebyshev(preconditioner=ONE.long()), TypeError, "preconditioner must be float32 or float64"),
    "preconditioner length": (lambda: solve(I3, ONE, Richardson(preconditioner=ONE[:2]), steps=1), ValueError, "with n = 3"),
    "preconditioner batch": (
        lambda: solve(I3, ONE, Richardson(preconditioner=I3), steps=1),
        ValueError,
        "preconditioner must have batch axes",
    ),
    "preconditioner dtype": (
        lambda: solve(I3, ONE, Richardson(preconditioner=ONE.double()), steps=1),
        TypeError,
        "preconditioner must have",
    ),
    "preconditioner map": (lambda: solve(I3, ONE, Richardson(preconditioner=lambda r: r[:1]), steps=1), ValueError, r"preconditioner\(v\)"),
    "preconditioner sign": (lambda: solve(I3, ONE, Chebyshev(preconditioner=-ONE), steps=1), ValueError, "preconditioner must be positive"),
    "start name": (lambda: NewtonSchulz(start="zero"), ValueError, "start must be one of 'transpose', 'optimal', 'safe'"),
    "start number": (lambda: NewtonSchulz(start=1.0), TypeError, "start must be str, got float"),
    "start oblong": (lambda: NewtonSchulz(start=I3[:2]), ValueError, r"start must have axes \(\*b, n, n\)"),
    "start size": (lambda: solve(I3, ONE, NewtonSchulz(start=torch.eye(2)), steps=1), ValueError, "with n = 3"),
    "start batch": (lambda: solve(I3, ONE, NewtonSchulz(start=I3.expand(2, 3, 3)), steps=1), ValueError, "start must have batch axes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_to_do(case: str) -> None:
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as raised:
        call()
    assert type(raised.value) is kind and ";" in str(raised.value)
