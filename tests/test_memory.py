"""The memories beyond the cells of their notebook: numpy recursions as oracles, dtypes, batches, blocks, gradients, saving, forgetting."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import Tensor

from transformer_ols.memory import FastWeightMemory, RecursiveLeastSquares

torch.set_num_threads(1)
some = settings(deadline=None, derandomize=True, max_examples=30)
CLOSE = {torch.float64: 1e-11, torch.float32: 2e-3}  # a few hundred steps of one rounding each
RULES = ("hebb", "delta", "nlms")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def error(value: Tensor | np.ndarray, reference: Tensor | np.ndarray) -> float:
    value, reference = (torch.as_tensor(np.asarray(v), dtype=torch.float64) for v in (value, reference))
    assert value.shape == reference.shape
    return float((value - reference).norm() / reference.norm().clamp(min=1e-300))


def by_numpy(x: np.ndarray, y: np.ndarray, rule: str, rate: float, decay: float, slow: np.ndarray) -> np.ndarray:
    """The rules as they stand in a textbook, one stream, one token at a time."""
    w = np.zeros((x.shape[1], y.shape[1]))
    for token, target in zip(x, y, strict=True):
        w = decay * w
        wrong = target - (0 if rule == "hebb" else w.T @ token)
        size = token @ slow @ token if rule == "nlms" else 1.0
        w = w + rate / size * np.outer(slow @ token, wrong)
    return w


@st.composite
def streams(draw):
    d, k, n = draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 40))
    batch = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    seed = draw(st.integers(0, 10**6))
    return normal(*batch, n, d, seed=seed).to(dtype), normal(*batch, n, k, seed=seed + 1).to(dtype)


def flat(tensor: Tensor) -> np.ndarray:
    return tensor.double().reshape(-1, *tensor.shape[-2:]).numpy()


@some
@given(streams(), st.sampled_from(RULES), st.sampled_from([1.0, 0.9]), st.booleans())
def test_rules_follow_the_textbook(problem, rule, decay, with_slow):
    x, y = problem
    batch, d = tuple(x.shape[:-2]), x.shape[-1]
    a = normal(d, d, seed=7)
    slow = (a @ a.mT / d + torch.eye(d)).to(x.dtype) if with_slow else None
    rate = 0.05 if rule != "nlms" else 0.7
    memory = FastWeightMemory(d, y.shape[-1], rule=rule, rate=rate, decay=decay, slow=slow, batch=batch, dtype=x.dtype).update(x, y)
    matrix = np.eye(d) if slow is None else slow.double().numpy()
    oracle = [by_numpy(a, b, rule, rate, decay, matrix) for a, b in zip(flat(x), flat(y), strict=True)]
    assert error(flat(memory.weights), np.stack(oracle)) < CLOSE[x.dtype]
    assert memory.weights.dtype == x.dtype
    assert int(memory.count) == x.shape[-2]


@some
@given(streams(), st.sampled_from([0.5, 3.0]))
def test_recursive_least_squares_is_scikit_learns_ridge(problem, ridge):
    x, y = problem
    memory = RecursiveLeastSquares(x.shape[-1], y.shape[-1], ridge=ridge, batch=tuple(x.shape[:-2]), dtype=x.dtype).update(x, y)
    oracle = [
        Ridge(alpha=ridge, fit_intercept=False).fit(a, b).coef_.reshape(y.shape[-1], -1).T for a, b in zip(flat(x), flat(y), strict=True)
    ]
    assert error(flat(memory.weights), np.stack(oracle)) < CLOSE[x.dtype]
    assert torch.equal(memory.inverse, memory.inverse.mT)


@some
@given(streams(), st.sampled_from([1.0, 0.95, 0.6]), st.data())
def test_blocks_of_any_size_are_single_tokens(problem, forgetting, data):
    x, y = problem
    options = {"forgetting": forgetting, "batch": tuple(x.shape[:-2]), "dtype": x.dtype}
    whole = RecursiveLeastSquares(x.shape[-1], y.shape[-1], **options).update(x, y)
    parts, n = RecursiveLeastSquares(x.shape[-1], y.shape[-1], **options), x.shape[-2]
    while int(parts.count) < n:
        start = int(parts.count)
        size = data.draw(st.integers(1, n - start))
        if size == 1:
            parts.update(x[..., start, :], y[..., start, :])
        else:
            parts.update(x[..., start : start + size, :], y[..., start : start + size, :])
    assert error(parts.weights, whole.weights) < CLOSE[x.dtype]
    assert error(parts.inverse, whole.inverse) < CLOSE[x.dtype]


@pytest.mark.parametrize("forgetting", [1.0, 0.97])
def test_forgetting_is_the_weighted_normal_equations(forgetting):
    x, y, ridge = normal(120, 5), normal(120, 2, seed=1), 0.7
    memory = RecursiveLeastSquares(5, 2, ridge=ridge, forgetting=forgetting).update(x, y)
    weights = forgetting ** np.arange(119, -1, -1)
    a = (x.numpy() * weights[:, None]).T @ x.numpy() + forgetting**120 * ridge * np.eye(5)
    assert error(memory.inverse, np.linalg.inv(a)) < 1e-11
    assert error(memory.weights, np.linalg.solve(a, (x.numpy() * weights[:, None]).T @ y.numpy())) < 1e-11


MAKE = {rule: (lambda rule=rule, **o: FastWeightMemory(3, 2, rule=rule, rate=0.3, decay=0.9, **o)) for rule in RULES}
MAKE["rls"] = lambda **o: RecursiveLeastSquares(3, 2, ridge=0.5, forgetting=0.9, **o)


@pytest.mark.parametrize("name", MAKE)
def test_the_layer_answers_from_the_past_and_keeps_its_state(name):
    x, y = normal(4, 12, 3), normal(4, 12, 2, seed=1)
    layer, memory = MAKE[name](batch=(4,)), MAKE[name](batch=(4,))
    answers = layer(x, y)
    assert not layer.weights.any() and int(layer.count) == 0
    for t in range(12):
        assert error(answers[:, t], memory.predict(x[:, t])) < 1e-12
        memory.update(x[:, t], y[:, t])
    changed = y.clone()
    changed[:, 7:] += 1.0
    assert torch.equal(layer(x, changed)[:, :8], answers[:, :8])  # causal: row 7 has not seen target 7
    assert not torch.equal(layer(x, changed)[:, 8:], answers[:, 8:])


@pytest.mark.parametrize("name", MAKE)
def test_gradients_of_the_layer(name):
    x, y = normal(2, 5, 3).requires_grad_(), normal(2, 5, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(MAKE[name](batch=(2,)), (x, y))


@pytest.mark.parametrize("name", MAKE)
def test_update_holds_no_graph_and_takes_tensors_that_need_gradients(name):
    memory = MAKE[name]().update(normal(6, 3).requires_grad_(), normal(6, 2).requires_grad_())
    assert not memory.weights.requires_grad
    query = normal(3).requires_grad_()
    (gradient,) = torch.autograd.grad(memory.predict(query).sum(), query)
    assert error(gradient, memory.weights.sum(-1)) < 1e-13


@pytest.mark.parametrize("name", MAKE)
def test_save_load_and_go_on(name):
    x, y = normal(30, 3), normal(30, 2, seed=1)
    memory, file = MAKE[name]().update(x[:20], y[:20]), io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    other = MAKE[name]()
    other.load_state_dict(torch.load(file, weights_only=True))
    memory.update(x[20:], y[20:])
    other.update(x[20:], y[20:])
    assert torch.equal(memory.weights, other.weights)
    assert int(other.count) == 30


@pytest.mark.parametrize("name", MAKE)
def test_strides_do_not_matter_and_inputs_stay(name):
    x, y = normal(3, 10), normal(2, 10, seed=1)
    kept = x.clone()
    one = MAKE[name]().update(x.mT, y.mT)
    two = MAKE[name]().update(x.mT.contiguous(), y.mT.contiguous())
    assert error(one.weights, two.weights) < 1e-13
    assert torch.equal(x, kept)


@pytest.mark.parametrize("name", MAKE)
def test_a_refused_block_changes_nothing(name):
    memory = MAKE[name]().update(normal(6, 3), normal(6, 2))
    before = {key: value.clone() for key, value in memory.state_dict().items()}
    bad = normal(4, 3)
    bad[3, 1] = torch.nan
    blocks = [(bad, normal(4, 2)), (normal(4, 2), normal(4, 2))]
    if name != "nlms":  # which divides by the size of the token, and stays finite
        blocks.append((1e200 * normal(40, 3), 1e200 * normal(40, 2)))
    for x, y in blocks:
        with pytest.raises(ValueError, match="x"):
            memory.update(x, y)
        assert all(torch.equal(value, before[key]) for key, value in memory.state_dict().items())


@pytest.mark.parametrize(("x", "y"), [((5, 3), (5, 2)), ((2, 7, 3), (7, 2)), ((3, 7, 3), (3, 7, 2)), ((2, 3), (2, 7, 2))])
def test_streams_are_never_broadcast(x, y):
    with pytest.raises(ValueError, match="must have"):
        MAKE["rls"](batch=(2,)).update(normal(*x), normal(*y))


def test_a_token_of_zeros_teaches_nothing():
    for name, make in MAKE.items():
        memory = make().update(normal(6, 3), normal(6, 2))
        factor = 0.9 if name != "rls" else 1.0
        before = factor * memory.weights.clone()
        memory.update(torch.zeros(3, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
        assert error(memory.weights, before) < 1e-14, name


def test_to_another_dtype():
    memory = RecursiveLeastSquares(3, 2).update(normal(6, 3), normal(6, 2)).to(torch.float32)
    memory.update(normal(6, 3).float(), normal(6, 2).float())
    assert memory.weights.dtype == torch.float32
    with pytest.raises(TypeError, match="x must have the dtype of weights"):
        memory.update(normal(6, 3), normal(6, 2))
