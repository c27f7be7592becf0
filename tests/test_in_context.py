"""InContextOLS and LoopedAttention beyond their chapter: shapes, dtypes, batches, masks, gradients, other libraries, recorded times."""

from __future__ import annotations

import ast
import copy
import io
import json
import math

import numpy as np
import pytest
import torch
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from torch import Tensor

from transformer_ols.in_context import InContextOLS, LoopedAttention
from transformer_ols.prompts import Prompt, linear_prompts, pad_prompts
from transformer_ols.solvers import Chebyshev, GradientDescent, solve

torch.set_num_threads(1)
some = settings(deadline=None, derandomize=True, max_examples=40)

# Well-conditioned problems: the condition number of the covariance is at most 9, and some hundred operations round.
CLOSE = {torch.float64: 1e-12, torch.float32: 5e-4}
METHODS = ("gradient descent", "chebyshev", "gd++", "newton-schulz")
BOUNDS = (0.9, 9.1)


def error(value: Tensor, reference: Tensor | np.ndarray) -> float:
    value, reference = (torch.as_tensor(v, dtype=torch.float64) for v in (value.detach(), reference))
    assert value.shape == reference.shape, (value.shape, reference.shape)
    return float((value - reference).norm() / reference.norm().clamp(min=1e-300))


def eye(d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.eye(d, dtype=dtype)


def drawn(batch: tuple[int, ...], n: int, d: int, m: int, dtype: torch.dtype, seed: int) -> Prompt:
    """A prompt whose covariance has its eigenvalues between 1 and 9."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=g, dtype=torch.float64)

    u, v = torch.linalg.qr(normal(n, d)).Q, torch.linalg.qr(normal(d, d)).Q
    x = math.sqrt(n) * u * (1 + 2 * torch.rand(d, generator=g, dtype=torch.float64)) @ v
    return Prompt(x, normal(n) + 1, normal(m, d)).to(dtype)


@st.composite
def prompts(draw):
    d = draw(st.integers(1, 5))
    n = d + draw(st.integers(1, 12))
    batch = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    return drawn(batch, n, d, draw(st.integers(1, 3)), draw(st.sampled_from(list(CLOSE))), draw(st.integers(0, 10**6)))


def lstsq(prompt: Prompt) -> Tensor:
    """numpy's answer in float64, one prompt at a time and without its padding."""
    n, d = prompt.x.shape[-2:]
    parts = [
        t.double().numpy()
        for t in (prompt.x.reshape(-1, n, d), prompt.y.reshape(-1, n), prompt.x_query.reshape(-1, prompt.x_query.shape[-2], d))
    ]
    masks = np.ones((len(parts[0]), n), bool) if prompt.mask is None else prompt.mask.reshape(-1, n).numpy()
    answers = [q @ np.linalg.lstsq(x[keep], y[keep], rcond=None)[0] for x, y, q, keep in zip(*parts, masks, strict=True)]
    return torch.tensor(np.array(answers)).reshape(*prompt.batch, -1)


# ---- one layer


@some
@given(prompts())
def test_weights_from_the_context_are_least_squares(prompt):
    layer = InContextOLS.from_context(prompt.x)
    answer, scores = layer.attend(prompt)
    assert answer.dtype == scores.dtype == prompt.x.dtype
    assert scores.shape == (*prompt.batch, prompt.x_query.shape[-2], prompt.x.shape[-2])
    assert error(answer, lstsq(prompt)) < CLOSE[prompt.x.dtype]
    assert torch.equal(layer(prompt), answer)
    omega = prompt.x.double().mT @ prompt.x.double() / prompt.x.shape[-2]
    assert error(layer.weight, np.linalg.inv(omega.numpy())) < CLOSE[prompt.x.dtype]


def test_scikit_learn_agrees():
    prompt = drawn((), 30, 4, 5, torch.float64, 0)
    oracle = LinearRegression(fit_intercept=False).fit(prompt.x.numpy(), prompt.y.numpy())
    assert error(InContextOLS.from_context(prompt.x)(prompt), oracle.predict(prompt.x_query.numpy())) < 1e-13


@some
@given(prompts(), st.data())
def test_padding_changes_nothing(prompt, data):
    """Rows that the mask leaves out, whatever stands in them, give what the shorter prompt gives."""
    extra = data.draw(st.integers(1, 4))
    g = torch.Generator().manual_seed(7)

    def junk(value: Tensor, axis: int) -> Tensor:
        shape = list(value.shape)
        shape[axis] = extra
        return torch.cat([value, 100 * torch.randn(shape, generator=g, dtype=torch.float64).to(value.dtype)], axis)

    real = torch.ones_like(prompt.y, dtype=torch.bool)
    mask = torch.cat([real, torch.zeros(*real.shape[:-1], extra, dtype=torch.bool)], -1)
    padded = Prompt(junk(prompt.x, -2), junk(prompt.y, -1), prompt.x_query, None, mask)
    layer = InContextOLS.from_context(padded.x, mask=mask)
    assert error(layer.weight, InContextOLS.from_context(prompt.x).weight) < CLOSE[prompt.x.dtype]
    answer, scores = layer.attend(padded)
    assert error(answer, lstsq(prompt)) < CLOSE[prompt.x.dtype]
    assert not scores[..., -extra:].any()
    for method in METHODS:
        stack = LoopedAttention.from_bounds(method, eye(prompt.x.shape[-1], prompt.x.dtype), BOUNDS, layers=6)
        assert error(stack(padded), stack(prompt)) < CLOSE[prompt.x.dtype]


def test_a_mask_broadcasts_over_the_contexts():
    x, mask = torch.randn(3, 9, 2, dtype=torch.float64), torch.arange(9) < 6
    assert error(InContextOLS.from_context(x, mask=mask).weight, InContextOLS.from_context(x[:, :6]).weight) < 1e-12


@pytest.mark.parametrize(("n", "d"), [(6, 20), (3, 5), (1, 4)])
def test_short_rank_gives_the_minimum_norm(n, d):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, d, generator=g, dtype=torch.float64), torch.randn(n, generator=g, dtype=torch.float64)
    answer = InContextOLS.from_context(x)(Prompt(x, y, eye(d)))
    assert error(answer, np.linalg.pinv(x.numpy()) @ y.numpy()) < 1e-12


def test_population_weight_by_its_formula_and_in_a_batch():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(3, 4, 6, generator=g, dtype=torch.float64)
    sigmas = a @ a.mT
    batch = InContextOLS.from_population(sigmas, 7, noise=1.5).weight
    for sigma, weight in zip(sigmas.numpy(), batch, strict=True):
        gamma = (1 + 1 / 7) * sigma + (np.trace(sigma) + 1.5**2) / 7 * np.eye(4)
        assert error(weight, np.linalg.inv(gamma)) < 1e-11
    long = InContextOLS.from_population(sigmas, 10**9).weight
    assert error(long, torch.linalg.inv(sigmas)) < 1e-5


def test_population_weight_is_the_best_on_drawn_prompts():
    """Least squares over many prompts, of the answers on the entries of x_q c', finds the weight without any formula."""
    sigma = torch.tensor([[1.0, 0.5], [0.5, 2.0]], dtype=torch.float64)
    drawn = linear_prompts(20000, 8, 2, noise=0.5, covariance=sigma, generator=torch.Generator().manual_seed(3))
    c = (drawn.x * drawn.y[..., None]).mean(-2)
    features = (drawn.x_query[:, 0, :, None] * c[:, None]).reshape(-1, 4).numpy()
    coef, residual = np.linalg.lstsq(features, drawn.y_query[:, 0].numpy(), rcond=None)[:2]
    spread = np.sqrt(np.diag(np.linalg.inv(features.T @ features)) * residual[0] / 20000)
    gap = coef.reshape(2, 2) - InContextOLS.from_population(sigma, 8, noise=0.5).weight.numpy()
    assert (np.abs(gap) < 5 * spread.reshape(2, 2)).all()  # residuals are not normal, nor of one size
    assert np.abs(coef.reshape(2, 2) - np.linalg.inv(sigma.numpy())).max() > 20 * spread.max()


# ---- a stack


@some
@given(prompts(), st.sampled_from(METHODS))
def test_a_stack_converges_to_least_squares(prompt, method):
    d, dtype = prompt.x.shape[-1], prompt.x.dtype
    layers = {"gradient descent": 160, "chebyshev": 55, "gd++": 9, "newton-schulz": 9}[method]
    stack = LoopedAttention.from_bounds(method, eye(d, dtype), BOUNDS, layers=layers)
    iterates = stack.iterates(prompt)
    assert iterates.dtype == dtype and iterates.shape == (layers + 1, *prompt.batch, prompt.x_query.shape[-2])
    assert not iterates[0].any() and torch.equal(iterates[-1], stack(prompt))
    assert error(stack(prompt), lstsq(prompt)) < 3 * CLOSE[dtype]


@some
@given(prompts(), st.sampled_from(["gradient descent", "chebyshev"]), st.booleans())
def test_a_stack_is_the_solver_with_the_weight_as_preconditioner(prompt, method, guessed):
    """Layer by layer, on coefficients; a weight W enters as the solver's system W^(1/2) omega W^(1/2)."""
    prompt = prompt.to(torch.float64)
    n, d = prompt.x.shape[-2:]
    root = torch.linspace(1, 1.5, d, dtype=torch.float64) if guessed else torch.ones(d, dtype=torch.float64)
    bounds = (0.8, 22.0)
    units = Prompt(prompt.x, prompt.y, eye(d).expand(*prompt.batch, d, d))
    found = LoopedAttention.from_bounds(method, torch.diag(root**2), bounds, layers=12).iterates(units)
    x = prompt.x * root
    solver = Chebyshev(bounds=bounds) if method == "chebyshev" else GradientDescent(step_size="optimal", bounds=bounds)
    expected = solve(x.mT @ x / n, (x.mT @ prompt.y[..., None])[..., 0] / n, solver, steps=12).iterates * root
    assert error(found, expected) < 1e-12


@some
@given(prompts())
def test_newton_schulz_squares_the_error_and_adds_one(prompt):
    """After t layers the coefficients are off by (I - M omega)^(2^t - 1), M the first guess."""
    prompt = prompt.to(torch.float64)
    n, d = prompt.x.shape[-2:]
    units = Prompt(prompt.x, prompt.y, eye(d).expand(*prompt.batch, d, d))
    best = lstsq(units)
    left = eye(d) - 2 / sum(BOUNDS) * prompt.x.mT @ prompt.x / n
    found = LoopedAttention.from_bounds("newton-schulz", eye(d), BOUNDS, layers=4).iterates(units)
    for t, coef in enumerate(found):
        off = (torch.linalg.matrix_power(left, 2**t - 1) @ best[..., None])[..., 0]
        assert float((best - coef - off).norm()) < 1e-12 * float(best.norm())


@pytest.mark.parametrize("tied", [False, True])
def test_what_the_layers_do_to_the_maps_of_queries_and_keys(tied):
    """On columns M <- M + s (M - M omega M) from M = W', and tied C <- C + s (C - omega_C C) from C'C = W; nothing commutes."""
    prompt = drawn((), 12, 4, 2, torch.float64, 3)
    omega, c = prompt.x.mT @ prompt.x / 12, prompt.x.mT @ prompt.y / 12
    weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64) / 10
    weight = weight @ weight.mT + 0.05 * eye(4) if tied else weight
    step, sharpen = 0.2, 0.3
    ones = torch.ones(4, dtype=torch.float64)
    stack = LoopedAttention(weight, step * ones, sharpening=sharpen * ones, tied=tied)
    mover, coef, expected = stack.w_q.mT, torch.zeros(4, dtype=torch.float64), []
    assert error(mover.mT @ mover if tied else mover.mT, weight) < 1e-14
    for _ in range(4):
        coef = coef + step * (mover.mT @ mover if tied else mover.mT) @ (c - omega @ coef)
        expected.append(coef)
        moved = mover @ omega @ mover.mT if tied else mover @ omega
        mover = mover + sharpen * (mover - moved @ mover)
    units = Prompt(prompt.x, prompt.y, eye(4))
    assert error(stack.iterates(units)[1:], torch.stack(expected)) < 1e-12


def test_one_full_step_is_the_single_layer():
    prompt = drawn((2,), 12, 3, 2, torch.float64, 5)
    layer = InContextOLS.from_context(prompt.x)
    stack = LoopedAttention(layer.weight, torch.ones(1, dtype=torch.float64))
    assert error(stack(prompt), layer(prompt)) < 1e-13
    for weight in (eye(3), torch.randn(3, 3, dtype=torch.float64)):  # any weight, symmetric or not
        assert error(LoopedAttention(weight, torch.ones(1, dtype=torch.float64))(prompt), InContextOLS(weight)(prompt)) < 1e-13


def test_bounds_are_of_the_weighted_covariance():
    """With the inverse covariance as guess the bounds are (1, 1), and every method is done in one layer."""
    prompt = drawn((), 12, 3, 2, torch.float64, 5)
    weight = InContextOLS.from_context(prompt.x).weight
    for method in METHODS:
        assert error(LoopedAttention.from_bounds(method, weight, (1.0, 1.0), layers=1)(prompt), lstsq(prompt)) < 1e-12
        assert error(LoopedAttention.from_bounds(method, weight, (1.0, 1.0), layers=3)(prompt), lstsq(prompt)) < 1e-12


# ---- modules


def modules() -> list[torch.nn.Module]:
    x = drawn((2,), 12, 3, 2, torch.float64, 5).x
    stacks = [LoopedAttention.from_bounds(method, eye(3), BOUNDS, layers=5) for method in METHODS]
    return [InContextOLS.from_context(x), InContextOLS(eye(3)), *stacks]


@pytest.mark.parametrize("module", modules(), ids=repr)
def test_modules_save_load_copy_and_read_any_memory_layout(module):
    prompt = drawn((2,), 12, 3, 2, torch.float64, 5)
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    blank = copy.deepcopy(module)
    for parameter in blank.parameters():
        parameter.zero_()
    blank.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(blank(prompt), module(prompt))
    strided = Prompt(
        *(value.mT.contiguous().mT if value.ndim > 2 else value.t().contiguous().t() for value in (prompt.x, prompt.y, prompt.x_query))
    )
    assert not strided.x.is_contiguous()
    assert error(module(strided), module(prompt)) < 1e-14
    single = copy.deepcopy(module).to(torch.float32)
    assert single(prompt.to(torch.float32)).dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("module", modules(), ids=repr)
def test_gradients_reach_prompt_and_parameters(module):
    prompt = drawn((2,), 6, 3, 2, torch.float64, 5)
    module = copy.deepcopy(module).requires_grad_()
    names = [name for name, _ in module.named_parameters()]

    def run(x: Tensor, y: Tensor, x_query: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (Prompt(x, y, x_query),))

    inputs = [value.clone().requires_grad_() for value in (prompt.x, prompt.y, prompt.x_query)]
    assert torch.autograd.gradcheck(run, (*inputs, *module.parameters()), atol=1e-5)


def test_weights_broadcast_over_prompts_and_prompts_over_weights():
    prompt = drawn((3,), 12, 3, 2, torch.float64, 5)
    weights = InContextOLS.from_context(prompt.x).weight
    steps = torch.ones(2, dtype=torch.float64)
    for make in (
        InContextOLS,
        lambda weight: LoopedAttention(weight, steps),
        lambda weight: LoopedAttention(weight, steps / 2, sharpening=steps),
    ):
        many, one = make(weights)(prompt[0]), make(weights[0])(prompt)
        assert many.shape == one.shape == (3, 2)
        for i in range(3):
            assert error(many[i], make(weights[i])(prompt[0])) < 1e-12
            assert error(one[i], make(weights[0])(prompt[i])) < 1e-12


def test_unequal_lengths_in_one_batch():
    ragged = [drawn((), n, 3, 2, torch.float64, n) for n in (4, 7, 12)]
    padded = pad_prompts(ragged)
    for method in METHODS:
        stack = LoopedAttention.from_bounds(method, eye(3), BOUNDS, layers=8)
        for one, answer in zip(ragged, stack(padded), strict=True):
            assert error(answer, stack(one)) < 1e-12


# ---- where they refuse


def test_what_diverges_says_so():
    prompt = drawn((), 12, 3, 2, torch.float32, 5)
    for method in METHODS:
        stack = LoopedAttention.from_bounds(method, eye(3, torch.float32), (0.01, 0.1), layers=200)
        with pytest.raises(ArithmeticError, match=r"LoopedAttention diverged: after [0-9]+ layers .*; take smaller steps"):
            stack(prompt)


def test_a_covariance_without_an_inverse_in_its_dtype_is_refused():
    with pytest.raises(ValueError, match="x must have an inverse covariance that fits into float32, got an overflow; rescale it"):
        InContextOLS.from_context(1e-25 * torch.randn(5, 2))


# ---- the chapter's table of times


def test_the_chapter_quotes_the_recorded_benchmark():
    record = json.loads((ROOT / "benchmarks" / "results" / "spectral_cost.json").read_text("utf8"))
    cells = json.loads((ROOT / "nbs" / "12_in_context.ipynb").read_text("utf8"))["cells"]
    (source,) = ("".join(cell["source"]) for cell in cells if "".join(cell["source"]).startswith("sizes = ["))
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(source).body[:2]}
    expected = {name: [row["seconds"] for row in record["results"] if row["route"] == name] for name in values["seconds"]}
    assert values["seconds"] == expected and len(expected) == len({row["route"] for row in record["results"]})
    assert values["sizes"] == sorted({row["d"] for row in record["results"]})
    assert record["repeats"] == 5 and record["machine"]["threads"] == 1
    assert all(row["error"] < 1e-9 for row in record["results"])
    largest = {row["route"]: row for row in record["results"] if row["d"] == 1024}
    assert 2 * largest["sketch"]["seconds"] < largest["svd"]["seconds"]
    assert largest["cholesky"]["error"] < largest["sketch"]["error"] < 1e-10
