"""Prompts: samplers against other libraries and against themselves, the container against every malformed piece."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.gaussian_process.kernels import RBF
from torch import Tensor

from transformer_ols.prompts import INPUTS, Prompt, _symmetric_root, gp_prompts, linear_prompts, pad_prompts

quick = settings(deadline=None, derandomize=True, max_examples=25)
floats = st.sampled_from([torch.float32, torch.float64])
small = st.integers(1, 6)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(x: Tensor, z: Tensor) -> Tensor:
    return torch.exp(-(x.unsqueeze(-2) - z.unsqueeze(-3)).square().sum(-1) / 0.5)


def draw(kind: str, batch: int, n: int, d: int, m: int, **options: Any) -> Prompt:
    return gp_prompts(batch, n, d, m, kernel=gaussian, **options) if kind == "gp" else linear_prompts(batch, n, d, m, **options)


def tensors(prompt: Prompt) -> tuple[Tensor, ...]:
    assert prompt.y_query is not None
    return prompt.x, prompt.y, prompt.x_query, prompt.y_query


def same(one: Prompt, other: Prompt) -> bool:
    return all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))


def refused(error: type[Exception], text: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


kinds = st.sampled_from(["linear", "gp"])


@quick
@given(kinds, st.sampled_from(INPUTS), floats, small, small, small, small)
def test_shapes_and_dtype(kind: str, inputs: str, dtype: torch.dtype, batch: int, n: int, d: int, m: int) -> None:
    prompt = draw(kind, batch, n, d, m, inputs=inputs, dtype=dtype, generator=seeded(0))
    assert [tuple(t.shape) for t in tensors(prompt)] == [(batch, n, d), (batch, n), (batch, m, d), (batch, m)]
    assert {t.dtype for t in tensors(prompt)} == {dtype}
    assert prompt.mask is None and prompt.batch == (batch,) and prompt.lengths.tolist() == [n] * batch


@quick
@given(kinds, st.sampled_from(INPUTS), st.integers(0, 2**31), small, small, st.integers(1, 20), small)
def test_any_split_of_a_batch_is_the_batch(kind: str, inputs: str, seed: int, first: int, second: int, n: int, d: int) -> None:
    options = {"inputs": inputs, "noise": 0.3}
    whole = draw(kind, first + second, n, d, 2, **options, generator=seeded(seed))
    source = seeded(seed)
    parts = draw(kind, first, n, d, 2, **options, generator=source), draw(kind, second, n, d, 2, **options, generator=source)
    assert same(whole[:first], parts[0]) and same(whole[first:], parts[1])


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_prompts_of_a_batch_differ(kind: str) -> None:
    prompt = draw(kind, 50, 3, 2, 2, generator=seeded(1))
    for value in tensors(prompt):
        assert len(value.flatten(1).unique(dim=0)) == 50


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_float32_is_the_rounded_draw(kind: str) -> None:
    double, single = (draw(kind, 4, 7, 3, 2, noise=0.1, generator=seeded(2), dtype=t) for t in (torch.float64, torch.float32))
    assert same(single, double.to(torch.float32)) and not same(single.to(torch.float64), double)


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_global_state_is_neither_read_nor_advanced(kind: str) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one = draw(kind, 2, 3, 2, 1)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(0)
    assert not same(one, draw(kind, 2, 3, 2, 1))


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_noise_is_normal_and_on_the_context_alone(kind: str) -> None:
    quiet, noisy = (draw(kind, 400, 5, 2, 3, noise=s, generator=seeded(3)) for s in (0.0, 0.7))
    assert torch.equal(quiet.x, noisy.x) and same(replace(quiet, y=noisy.y), noisy)
    assert stats.kstest((noisy.y - quiet.y).flatten() / 0.7, "norm").pvalue > 1e-4


def test_weights_are_standard_normal() -> None:
    prompt = linear_prompts(2000, 4, 2, generator=seeded(4))
    weights = [np.linalg.lstsq(x, y, rcond=None)[0] for x, y in zip(prompt.x.numpy(), prompt.y.numpy(), strict=True)]
    assert stats.kstest(np.ravel(weights), "norm").pvalue > 1e-4
    assert abs(np.corrcoef(np.array(weights).T)[0, 1]) < 5 / 2000**0.5


def test_inputs_have_their_distributions() -> None:
    points = {kind: linear_prompts(1, 4000, 3, inputs=kind, generator=seeded(5)).x[0] for kind in INPUTS}
    on_interval = stats.uniform(-1, 2)
    assert stats.kstest(points["uniform"].flatten(), on_interval.cdf).pvalue > 1e-4
    assert stats.kstest(points["normal"].flatten(), "norm").pvalue > 1e-4
    # Archimedes: a coordinate of a uniform point on the sphere in three dimensions is uniform
    assert all(stats.kstest(points["sphere"][:, i], on_interval.cdf).pvalue > 1e-4 for i in range(3))
    torch.testing.assert_close(points["sphere"].norm(dim=-1), torch.ones(4000, dtype=torch.float64), rtol=0, atol=1e-15)


def test_one_dimensional_sphere_is_two_points() -> None:
    assert set(linear_prompts(1, 50, 1, inputs="sphere", generator=seeded(6)).x.flatten().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_covariance_whitens_the_inputs(dtype: torch.dtype) -> None:
    covariance = torch.tensor([[2.0, 0.9, 0.1], [0.9, 1.0, -0.3], [0.1, -0.3, 0.5]], dtype=dtype)
    x = linear_prompts(1, 4000, 3, covariance=covariance, generator=seeded(7)).x[0].numpy()
    white = scipy.linalg.solve_triangular(np.linalg.cholesky(covariance.double().numpy()), x.T, lower=True)
    assert np.abs(np.cov(white) - np.eye(3)).max() < 5 * (2 / 4000) ** 0.5  # the variance of a square of N(0, 1) is 2
    assert stats.kstest(np.square(white).sum(0), stats.chi2(3).cdf).pvalue > 1e-4


def test_gp_values_have_the_kernels_covariance() -> None:
    """With K from scikit-learn, fᵀK⁻¹f over context and queries is chi-squared, and so is every slice by eigenvector."""
    prompt = gp_prompts(1000, 3, 2, 2, kernel=gaussian, inputs="normal", generator=seeded(8))
    x, y, x_query, y_query = (t.numpy() for t in tensors(prompt))
    points, values = np.concatenate([x, x_query], 1), np.concatenate([y, y_query], 1)
    white = [np.linalg.solve(np.linalg.cholesky(RBF(0.5)(p)), f) for p, f in zip(points, values, strict=True)]
    assert stats.kstest(np.ravel(white), "norm").pvalue > 1e-4
    assert stats.kstest(np.square(white).sum(1), stats.chi2(5).cdf).pvalue > 1e-4
    assert np.abs(np.cov(np.array(white).T) - np.eye(5)).max() < 5 * (2 / 1000) ** 0.5


@quick
@given(st.integers(1, 8), st.integers(0, 2**31))
def test_symmetric_root_is_scipys(size: int, seed: int) -> None:
    factor = torch.randn(size, size + 3, dtype=torch.float64, generator=seeded(seed))
    gram = factor @ factor.mT
    expected = torch.from_numpy(scipy.linalg.sqrtm(gram.numpy()).real)
    torch.testing.assert_close(_symmetric_root(gram), expected, rtol=0, atol=1e-8 * float(gram.norm()))


def test_symmetric_root_ignores_the_basis_of_an_eigenspace() -> None:
    basis = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=seeded(9))).Q
    gram = basis @ torch.diag(torch.tensor([0.0, 3.0, 3.0, 3.0], dtype=torch.float64)) @ basis.mT
    gram = (gram + gram.mT) / 2
    torch.testing.assert_close(_symmetric_root(gram), gram / 3**0.5, rtol=0, atol=1e-7)  # root of rounded zeros: sqrt(1e-16)


def test_singular_grams_are_drawn_from() -> None:
    smooth = gp_prompts(1, 100, 1, kernel=lambda x, z: torch.exp(-((x - z.mT) ** 2) / 50), generator=seeded(10))[0]
    order = smooth.x[:, 0].argsort()
    assert float(smooth.y[order].diff().abs().max()) < 0.1
    constant = gp_prompts(3, 6, 2, kernel=lambda x, z: torch.ones(len(x), len(z), dtype=x.dtype), generator=seeded(11))
    assert float((constant.y - constant.y_query).abs().max()) < 1e-7
    zero = gp_prompts(3, 6, 2, kernel=lambda x, z: torch.zeros(len(x), len(z), dtype=x.dtype), generator=seeded(12))
    assert not zero.y.any()


@pytest.mark.parametrize(("low", "accepted"), [(-1e-6, False), (-1e-10, True), (0.0, True)])
def test_the_line_between_rounding_and_indefinite(low: float, accepted: bool) -> None:
    gram = torch.diag(torch.tensor([1.0, 1.0, low], dtype=torch.float64))
    if accepted:
        assert float((_symmetric_root(gram) @ _symmetric_root(gram) - gram).abs().max()) <= abs(low) + 1e-15
    else:
        refused(ValueError, "got eigenvalues of kernel(x, x) from -1e-06 to 1; check its formula", lambda: _symmetric_root(gram))


def test_no_gradient_flows_through_a_draw() -> None:
    width = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    prompt = gp_prompts(2, 3, 1, kernel=lambda x, z: torch.exp(-((x - z.mT) ** 2) / width), generator=seeded(13))
    covariance = torch.eye(2, dtype=torch.float64, requires_grad=True)
    assert not any(t.requires_grad for t in (*tensors(prompt), *tensors(linear_prompts(2, 3, 2, covariance=covariance))))


def kernel_returning(value: object) -> Callable[[Tensor, Tensor], Any]:
    return lambda x, z: value


nan = float("nan")
SAMPLERS = [
    ({"batch": 0}, ValueError, "batch must be at least 1, got 0"),
    ({"batch": 2.0}, TypeError, "batch must be an integer, got float"),
    ({"n": 0}, ValueError, "n must be at least 1, got 0"),
    ({"n": True}, TypeError, "n must be an integer, got bool"),
    ({"d": -1}, ValueError, "d must be at least 1, got -1"),
    ({"d": "2"}, TypeError, "d must be an integer, got str"),
    ({"m": 0}, ValueError, "m must be at least 1, got 0"),
    ({"m": None}, TypeError, "m must be an integer, got NoneType"),
    ({"noise": -0.1}, ValueError, "noise must be at least 0, got -0.1"),
    ({"noise": nan}, ValueError, "noise must be finite, got nan"),
    ({"noise": float("inf")}, ValueError, "noise must be finite, got inf"),
    ({"noise": torch.tensor(0.1)}, TypeError, "noise must be a real number, got Tensor"),
    ({"inputs": "cube"}, ValueError, "inputs must be one of 'uniform', 'normal', 'sphere', got 'cube'"),
    ({"inputs": 3}, TypeError, "inputs must be str, got int"),
    ({"generator": 0}, TypeError, "generator must be Generator or None, got int"),
    ({"dtype": torch.float16}, TypeError, "dtype must be torch.float32 or torch.float64, got float16"),
    ({"dtype": "float64"}, TypeError, "dtype must be torch.float32 or torch.float64, got str"),
]


@pytest.mark.parametrize(("change", "error", "text"), SAMPLERS)
def test_samplers_refuse(change: dict[str, Any], error: type[Exception], text: str) -> None:
    options = {"batch": 1, "n": 3, "d": 2, "m": 1} | change
    refused(error, text, lambda: linear_prompts(**options))
    refused(error, text, lambda: gp_prompts(**options, kernel=gaussian))


COVARIANCES = [
    ([[1.0, 0.0], [0.0, 1.0]], TypeError, "covariance must be a torch.Tensor, got list"),
    (torch.eye(2, dtype=torch.int64), TypeError, "covariance must be float32 or float64, got int64"),
    (torch.eye(3), ValueError, "covariance must have axes (2, 2), got shape (3, 3); reshape one"),
    (torch.ones(2), ValueError, "covariance must have axes (2, 2), got shape (2,)"),
    (torch.full((2, 2), nan), ValueError, "covariance must be finite, got 4 NaN or infinite of 4 values"),
    (torch.eye(2, device="meta"), ValueError, "covariance is on the meta device"),
    (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), ValueError, "covariance must be symmetric, got entries that differ from their mirror by 0.5"),
    (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), ValueError, "covariance must be positive definite, got an eigenvalue that is zero"),
    (torch.zeros(2, 2), ValueError, "covariance must be positive definite"),
]


@pytest.mark.parametrize(("covariance", "error", "text"), COVARIANCES)
def test_covariances_refused(covariance: Any, error: type[Exception], text: str) -> None:
    refused(error, text, lambda: linear_prompts(1, 3, 2, covariance=covariance))


@pytest.mark.parametrize("inputs", ["uniform", "sphere"])
def test_covariance_needs_normal_inputs(inputs: str) -> None:
    text = f"covariance must be None for {inputs} inputs, got a tensor; choose inputs='normal'"
    refused(ValueError, text, lambda: linear_prompts(1, 3, 2, inputs=inputs, covariance=torch.eye(2)))


KERNELS = [
    (3, TypeError, "kernel must be callable, got int"),
    (kernel_returning(1.0), TypeError, "kernel(x, x) must be a torch.Tensor, got float"),
    (kernel_returning(torch.eye(4)), TypeError, "kernel(x, x) must have the dtype of x (float64), got float32"),
    (kernel_returning(torch.eye(4, dtype=torch.int64)), TypeError, "kernel(x, x) must be float32 or float64, got int64"),
    (kernel_returning(torch.eye(3).double()), ValueError, "kernel(x, x) must have axes (N, N) with N = 4 (from x), got shape (3, 3)"),
    (kernel_returning(torch.ones(4).double()), ValueError, "kernel(x, x) must have axes (N, N), got shape (4,)"),
    (kernel_returning(torch.full((4, 4), nan).double()), ValueError, "kernel(x, x) must be finite, got 16 NaN or infinite of 16 values"),
    (lambda x, z: torch.ones(4, 4).double().tril(), ValueError, "kernel(x, x) must be symmetric, got entries that differ"),
    (lambda x, z: -torch.eye(4).double(), ValueError, "kernel must be positive semidefinite, got eigenvalues"),
]


@pytest.mark.parametrize(("kernel", "error", "text"), KERNELS)
def test_kernels_refused(kernel: Any, error: type[Exception], text: str) -> None:
    refused(error, text, lambda: gp_prompts(1, 3, 2, kernel=kernel))


X, Y, XQ, YQ, MASK = torch.ones(4, 5, 3), torch.ones(4, 5), torch.ones(4, 2, 3), torch.ones(4, 2), torch.ones(4, 5) > 0
NO_PAIR = MASK.clone()
NO_PAIR[2] = False
PROMPTS = [
    ({"x": X.tolist()}, TypeError, "x must be a torch.Tensor, got list"),
    ({"x": X.long()}, TypeError, "x must be float32 or float64, got int64"),
    ({"x": X[0, 0]}, ValueError, "x must have axes (*b, n, d), got shape (3,)"),
    ({"x": X * nan}, ValueError, "x must be finite, got 60 NaN or infinite of 60 values"),
    ({"x": X[:, :, :0], "x_query": XQ[:, :, :0]}, ValueError, "x is empty, got shape (4, 5, 0)"),
    ({"x": X.to("meta")}, ValueError, "y must be on the device of x (meta), got cpu"),
    ({"x": X[0]}, ValueError, "y must have the batch axes of x, (), got shape (4, 5); expand one to match"),
    ({"y": Y.double()}, TypeError, "y must have the dtype of x (float32), got float64"),
    ({"y": Y[:, :4]}, ValueError, "y must have axes (*b, n) with n = 5 (from x), got shape (4, 4)"),
    ({"y": Y[:3]}, ValueError, "y must have batch axes that broadcast with (4,) of the arguments before it, got (3,)"),
    ({"y": Y[:1]}, ValueError, "y must have the batch axes of x, (4,), got shape (1, 5); expand one to match"),
    ({"y": Y[0]}, ValueError, "y must have the batch axes of x, (4,), got shape (5,)"),
    ({"y": Y / 0}, ValueError, "y must be finite, got 20 NaN or infinite of 20 values"),
    ({"x_query": XQ[:, :, :2]}, ValueError, "x_query must have axes (*b, m, d) with d = 3 (from x), got shape (4, 2, 2)"),
    ({"x_query": XQ[0]}, ValueError, "x_query must have the batch axes of x, (4,), got shape (2, 3)"),
    ({"x_query": XQ.half()}, TypeError, "x_query must be float32 or float64, got float16"),
    ({"x_query": None}, TypeError, "x_query must be a torch.Tensor, got NoneType"),
    ({"y_query": YQ[:, :1]}, ValueError, "y_query must have axes (*b, m) with m = 2 (from x_query), got shape (4, 1)"),
    ({"y_query": YQ[:1]}, ValueError, "y_query must have the batch axes of x, (4,), got shape (1, 2)"),
    ({"y_query": YQ * nan}, ValueError, "y_query must be finite, got 8 NaN or infinite of 8 values"),
    ({"mask": MASK.float()}, TypeError, "mask must be a boolean tensor, got float32"),
    ({"mask": [True] * 5}, TypeError, "mask must be a boolean tensor, got list"),
    ({"mask": MASK[:, :4]}, ValueError, "mask must broadcast to (4, 5), got shape (4, 4)"),
    ({"mask": MASK[0]}, ValueError, "mask must have the shape of y, (4, 5), got shape (5,); expand it"),
    ({"mask": MASK[:, :1]}, ValueError, "mask must have the shape of y, (4, 5), got shape (4, 1)"),
    ({"mask": MASK.to("meta")}, ValueError, "mask must be on the device of the data (cpu), got meta"),
    ({"mask": NO_PAIR}, ValueError, "mask must keep at least one entry of every row, got a row of False only"),
]


@pytest.mark.parametrize(("change", "error", "text"), PROMPTS)
def test_prompts_refused(change: dict[str, Any], error: type[Exception], text: str) -> None:
    refused(error, text, lambda: Prompt(**({"x": X, "y": Y, "x_query": XQ, "y_query": YQ, "mask": MASK} | change)))


@quick
@given(st.lists(st.integers(1, 3), max_size=2), small, small, small, floats, st.booleans())
def test_any_layout_is_taken(batch: list[int], n: int, d: int, m: int, dtype: torch.dtype, answers: bool) -> None:
    """Transposed and expanded storage, none to two batch axes."""
    x = torch.randn(*batch, d, n, dtype=dtype, generator=seeded(0)).mT
    y = torch.ones((), dtype=dtype).expand(*batch, n)
    x_query, y_query = torch.zeros(*batch, d, m, dtype=dtype).mT, torch.zeros((), dtype=dtype).expand(*batch, m)
    prompt = Prompt(x, y, x_query, y_query if answers else None, torch.ones(1, dtype=torch.bool).expand(*batch, n))
    assert prompt.batch == tuple(batch) and prompt.lengths.shape == tuple(batch) and prompt.lengths.dtype == torch.int64
    assert repr(prompt) == f"Prompt(batch={tuple(batch)}, n={n}, m={m}, d={d}, {str(dtype)[6:]}, cpu)"


def batch_of(size: int) -> Prompt:
    prompt = linear_prompts(size, 3, 2, 2, noise=0.1, generator=seeded(20))
    return replace(prompt, mask=torch.tensor([[True, True, i % 2 == 0] for i in range(size)]))


CHOICES = [0, -1, slice(1, 3), slice(None, None, 2), torch.tensor([3, 0, 0]), torch.tensor([True, False, True, False]), torch.tensor(2)]


@pytest.mark.parametrize("index", CHOICES, ids=repr)
def test_indexing_acts_on_every_tensor(index: Any) -> None:
    prompt = batch_of(4)
    chosen = prompt[index]
    assert same(chosen, Prompt(*(t[index] for t in tensors(prompt))))
    assert prompt.mask is not None and chosen.mask is not None and torch.equal(chosen.mask, prompt.mask[index])
    assert torch.equal(chosen.lengths, prompt.lengths[index])


def test_two_batch_axes_are_indexed_one_by_one() -> None:
    pairs = pad_prompts([batch_of(4), batch_of(4)])
    assert pairs.batch == (2, 4) and pairs[1].batch == (4,) and pairs[1][2].batch == ()
    assert pairs[torch.tensor([[True, False, False, True], [False] * 4])].batch == (2,)


def test_iteration_ends() -> None:
    prompt = batch_of(3)
    assert len(prompt) == 3 and all(same(one, prompt[i]) for i, one in enumerate(prompt))


INDICES = [
    (4, IndexError, "index must be below the 4 prompts of the batch, got 4"),
    (-5, IndexError, "index must be below the 4 prompts of the batch, got -5"),
    (torch.tensor([0, 7]), IndexError, "index must be below the 4 prompts of the batch, got tensor([0, 7])"),
    (slice(4, None), ValueError, "index must choose a prompt, got none"),
    (1.0, TypeError, "index must be an int, a slice, an int64 tensor or a boolean tensor over the batch, got float"),
    (True, TypeError, "got bool; pass torch.tensor([0, 2])"),
    ([0, 1], TypeError, "got list; pass torch.tensor([0, 2])"),
    ((0, 1), TypeError, "got tuple; pass torch.tensor([0, 2])"),
    (None, TypeError, "got NoneType; pass torch.tensor([0, 2])"),
    (torch.tensor([0.0]), TypeError, "got Tensor; pass torch.tensor([0, 2])"),
    (torch.tensor([True, False]), TypeError, "got Tensor; pass torch.tensor([0, 2])"),
    (torch.tensor(True), TypeError, "got Tensor; pass torch.tensor([0, 2])"),
]


@pytest.mark.parametrize(("index", "error", "text"), INDICES)
def test_indices_refused(index: Any, error: type[Exception], text: str) -> None:
    refused(error, text, lambda: batch_of(4)[index])


def test_a_single_prompt_is_no_batch() -> None:
    single = batch_of(4)[0]
    refused(IndexError, "prompt is a single one and has no batch axis to index", lambda: single[0])
    refused(TypeError, "prompt is a single one and has no length", lambda: len(single))
    refused(TypeError, "prompt is a single one and has no length", lambda: list(single))


def test_to_changes_numbers_and_keeps_the_mask() -> None:
    prompt = batch_of(4).to(torch.float32)
    assert {t.dtype for t in tensors(prompt)} == {torch.float32} and prompt.mask is not None and prompt.mask.dtype == torch.bool
    assert same(prompt, prompt.to("cpu")) and same(prompt, prompt.to(torch.device("cpu")))
    assert replace(prompt, y_query=None, mask=None).to(torch.float64).mask is None


TARGETS = [
    (torch.float16, TypeError, "target must be torch.float32 or torch.float64, got float16"),
    (torch.int64, TypeError, "target must be torch.float32 or torch.float64, got int64"),
    (None, TypeError, "target must be str or device or dtype, got NoneType; pass torch.float32 or 'cuda'"),
    (0, TypeError, "target must be str or device or dtype, got int"),
    ("nowhere", ValueError, "target must be a device of this machine or a dtype, got nowhere"),
    ("meta", ValueError, "target must be a device of this machine or a dtype, got meta"),
]


@pytest.mark.parametrize(("target", "error", "text"), TARGETS)
def test_targets_refused(target: Any, error: type[Exception], text: str) -> None:
    refused(error, text, lambda: batch_of(2).to(target))


def test_rounding_to_infinity_is_refused() -> None:
    prompt = batch_of(2)
    refused(ValueError, "y must be finite, got 6", lambda: replace(prompt, y=prompt.y * 0 + 1e300).to(torch.float32))


def test_prompts_are_frozen_and_compared_by_identity() -> None:
    prompt = batch_of(2)
    with pytest.raises(FrozenInstanceError):
        prompt.x = prompt.x  # type: ignore[misc]
    assert prompt == prompt and prompt != batch_of(2) and len({prompt, prompt}) == 1


def test_gradients_pass_through_the_container() -> None:
    x = torch.randn(2, 3, 2, dtype=torch.float64, generator=seeded(21)).requires_grad_()
    prompt = Prompt(x, torch.ones(2, 3).double(), torch.ones(2, 1, 2).double())
    (pad_prompts([prompt[0], prompt[1]]).x ** 2).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


@quick
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(1, 3), st.integers(1, 3), floats, st.booleans())
def test_padding_keeps_every_pair(lengths: list[int], d: int, m: int, dtype: torch.dtype, answers: bool) -> None:
    prompts = [linear_prompts(1, n, d, m, generator=seeded(n), dtype=dtype)[0] for n in lengths]
    prompts = prompts if answers else [replace(prompt, y_query=None) for prompt in prompts]
    padded = pad_prompts(prompts)
    assert padded.lengths.tolist() == lengths and padded.y.shape == (len(lengths), max(lengths)) and padded.mask is not None
    for i, (prompt, n) in enumerate(zip(prompts, lengths, strict=True)):
        assert torch.equal(padded.x[i, :n], prompt.x) and torch.equal(padded.y[i, :n], prompt.y)
        assert torch.equal(padded.x_query[i], prompt.x_query) and not padded.x[i, n:].any() and not padded.y[i, n:].any()
        assert padded.mask[i, :n].all() and not padded.mask[i, n:].any()
    assert padded.y_query is None if not answers else torch.equal(tensors(padded)[3], torch.stack([tensors(p)[3] for p in prompts]))


def test_padding_keeps_masks_and_batch_axes() -> None:
    short = batch_of(4)
    long = linear_prompts(4, 5, 2, 2, generator=seeded(22))
    padded = pad_prompts((short, long))
    assert padded.batch == (2, 4) and padded.lengths.tolist() == [[3, 2, 3, 2], [5, 5, 5, 5]]
    assert padded.mask is not None and short.mask is not None and torch.equal(padded.mask[0, :, :3], short.mask)


ONE = linear_prompts(1, 3, 2, 2, generator=seeded(23))[0]
PADS = [
    ([], ValueError, "prompts is empty; pass at least one prompt"),
    (ONE, TypeError, "prompts must be Sequence, got Prompt; pass a list of prompts"),
    (None, TypeError, "prompts must be Sequence, got NoneType"),
    ([ONE, ONE.x], TypeError, "prompts[1] must be Prompt, got Tensor; pass prompts only"),
    ([ONE, ONE.to(torch.float32)], TypeError, "prompts[1] must have the dtype of prompts[0], torch.float64, got torch.float32"),
    ([ONE, batch_of(2)], ValueError, "prompts[1] must have the batch axes of prompts[0], (), got (2,)"),
    ([ONE, linear_prompts(1, 3, 4, 2)[0]], ValueError, "prompts[1] must have the d of prompts[0], 2, got 4"),
    ([ONE, ONE, linear_prompts(1, 3, 2, 1)[0]], ValueError, "prompts[2] must have the m of prompts[0], 2, got 1"),
    ([ONE, replace(ONE, y_query=None)], ValueError, "prompts[1] must have the kind of y_query of prompts[0], given, got missing"),
]


@pytest.mark.parametrize(("prompts", "error", "text"), PADS)
def test_pads_refused(prompts: Any, error: type[Exception], text: str) -> None:
    refused(error, text, lambda: pad_prompts(prompts))
