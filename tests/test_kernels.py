"""Kernels against formulas written with the `math` module, other libraries, and their own algebra."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from transformer_ols.kernels import (
    ARD,
    ExponentialDotProduct,
    Gaussian,
    Laplace,
    Linear,
    Periodic,
    Polynomial,
    SoftmaxFactors,
    VonMisesFisher,
    row_normalized,
)

F64 = torch.float64
quick = settings(deadline=None, derandomize=True, max_examples=25)


def dot(a, b):
    return math.fsum(p * q for p, q in zip(a, b, strict=True))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


# kernel for d axes -> the same formula in scalar arithmetic
CASES = {
    "gaussian": (lambda d: Gaussian(0.7), lambda a, b: math.exp(-(math.dist(a, b) ** 2) / (2 * 0.7**2))),
    "ard": (
        lambda d: ARD(tuple(0.5 + j for j in range(d))),
        lambda a, b: math.exp(-math.fsum((p - q) ** 2 / (2 * (0.5 + j) ** 2) for j, (p, q) in enumerate(zip(a, b, strict=True)))),
    ),
    "exponential": (lambda d: ExponentialDotProduct(1.3), lambda a, b: math.exp(dot(a, b) / 1.3**2)),
    "vmf": (lambda d: VonMisesFisher(2.5), lambda a, b: math.exp(2.5 * (cosine(a, b) - 1))),
    "periodic": (
        lambda d: Periodic(1.7, 0.9),
        lambda a, b: math.exp(-2 * math.fsum(math.sin(math.pi * (p - q) / 1.7) ** 2 for p, q in zip(a, b, strict=True)) / 0.9**2),
    ),
    "laplace": (lambda d: Laplace(0.7), lambda a, b: math.exp(-math.dist(a, b) / 0.7)),
    "polynomial": (lambda d: Polynomial(3, 0.5), lambda a, b: (dot(a, b) + 0.5) ** 3),
    "linear": (lambda d: Linear(), dot),
}
EXPRESSIBLE = ["gaussian", "ard", "exponential", "vmf", "periodic"]
POSITIVE = [*EXPRESSIBLE, "laplace"]
every = pytest.mark.parametrize("name", CASES)
shapes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))  # n, m, d
batches = st.sampled_from([(), (2,), (2, 3)])
dtypes = st.sampled_from([torch.float32, torch.float64])


def draw(*shape, seed=0, dtype=F64):
    """Uniform points on [-1.5, 1.5]: bounded, so that every bound below can be stated."""
    return (3 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64) - 1.5).to(dtype)


def scalar_gram(formula, x, z):
    return torch.tensor([[formula(a, b) for b in z.tolist()] for a in x.tolist()], dtype=F64)


def rounding(dtype, d):
    """Allowed error of a kernel value relative to 1 + |value|.

    An exponent t carries up to d + 8 roundings. Decaying kernels have t exp(-t) < 1, for the growing ones t < 8 d on these inputs.
    """
    return 8 * d * (d + 8) * torch.finfo(dtype).eps


@every
@quick
@given(shapes, batches, dtypes, st.integers(0, 99))
def test_equals_the_scalar_formula(name, shape, batch, dtype, seed):
    (n, m, d), (make, formula) = shape, CASES[name]
    x, z = draw(*batch, n, d, seed=seed, dtype=dtype), draw(*batch, m, d, seed=seed + 1000, dtype=dtype)
    gram = make(d)(x, z)
    assert gram.shape == (*batch, n, m) and gram.dtype == dtype
    expected = torch.stack([scalar_gram(formula, a, b) for a, b in zip(x.reshape(-1, n, d), z.reshape(-1, m, d), strict=True)])
    error = (gram.double().reshape(-1, n, m) - expected).abs() / (1 + expected.abs())
    assert error.max() < rounding(dtype, d)


@every
def test_batch_axes_broadcast(name):
    kernel = CASES[name][0](3)
    x, z = draw(4, 1, 5, 3, seed=1), draw(3, 6, 3, seed=2)
    gram = kernel(x, z)
    assert gram.shape == (4, 3, 5, 6)
    for i in range(4):
        for j in range(3):
            torch.testing.assert_close(gram[i, j], kernel(x[i, 0], z[j]), rtol=1e-13, atol=1e-13)


@every
def test_memory_layout_does_not_matter(name):
    kernel = CASES[name][0](3)
    x, z = draw(2, 3, 5, seed=1).mT, draw(2, 6, 8, 3, seed=2)[:, ::2, 1]
    assert not x.is_contiguous() and not z.is_contiguous()
    torch.testing.assert_close(kernel(x, z), kernel(x.contiguous(), z.contiguous()), rtol=1e-13, atol=1e-13)


@every
@quick
@given(st.integers(1, 30), st.integers(1, 4), dtypes, st.integers(0, 99))
def test_symmetric_and_positive_semidefinite(name, n, d, dtype, seed):
    kernel, x = CASES[name][0](d), draw(n, d, seed=seed, dtype=dtype)
    gram = kernel(x, x)
    eps, scale = torch.finfo(dtype).eps, gram.diagonal().max().item()
    torch.testing.assert_close(gram, gram.mT, rtol=rounding(dtype, d), atol=rounding(dtype, d))
    # n entries a row, each off by the rounding of the entries; the eigenvalue solver adds n eps times the norm, below n * scale
    assert torch.linalg.eigvalsh(gram)[0] > -n * (rounding(dtype, d) * (1 + scale) + n * eps * scale)


@pytest.mark.parametrize("name", ["gaussian", "ard", "periodic", "laplace", "vmf"])
def test_one_on_the_diagonal(name):
    x = draw(6, 3, seed=4)
    assert torch.equal(CASES[name][0](3)(x, x).diagonal(), torch.ones(6, dtype=F64))


@pytest.mark.parametrize("name", POSITIVE)
def test_log_is_the_logarithm(name):
    kernel, x, z = CASES[name][0](2), draw(5, 2, seed=1), draw(4, 2, seed=2)
    torch.testing.assert_close(kernel.log(x, z).exp(), kernel(x, z), rtol=1e-15, atol=0)


def test_log_survives_underflow():
    x, z = torch.zeros(1, 2), torch.tensor([[300.0, 400.0]])
    assert Gaussian(1.0)(x, z).item() == 0 and Gaussian(1.0).log(x, z).item() == -125_000
    assert Laplace(0.5)(x, z).item() == 0 and Laplace(0.5).log(x, z).item() == -1000


@pytest.mark.parametrize("name", ["gaussian", "ard", "periodic", "laplace"])
@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_a_common_offset_costs_nothing(name, offset):
    """Differences of float32 numbers this close are exact, so the kernel of the shifted data is right to float32 rounding."""
    kernel = CASES[name][0](3)
    x, z = draw(40, 3, seed=1, dtype=torch.float32) + offset, draw(30, 3, seed=2, dtype=torch.float32) + offset
    exact = scalar_gram(CASES[name][1], x, z)
    assert (kernel(x, z).double() - exact).abs().max() < rounding(torch.float32, 3)


@pytest.mark.parametrize("name", EXPRESSIBLE)
@quick
@given(shapes, batches, st.integers(0, 99))
def test_factors_multiply_to_the_kernel(name, shape, batch, seed):
    (n, m, d), kernel = shape, CASES[name][0](shape[2])
    x, z = draw(*batch, n, d, seed=seed), draw(*batch, m, d, seed=seed + 1000)
    f = kernel.softmax_factors()
    assert f.log_a(x).shape == (*batch, n) and f.log_b(z).shape == (*batch, m)
    log_gram = f.log_a(x)[..., None] + f.phi(x) @ f.psi(z).mT + f.log_b(z)[..., None, :]
    assert (log_gram - kernel.log(x, z)).abs().max() < 4 * rounding(F64, d)


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_torch_attention_is_the_row_normalised_kernel(name):
    """PyTorch's fused attention with the key term as a float mask and one-hot values returns the weights themselves."""
    kernel, x, z = CASES[name][0](3), draw(2, 7, 3, seed=1), draw(2, 9, 3, seed=2)
    f = kernel.softmax_factors()
    bias = f.log_b(z)[..., None, :].expand(2, 7, 9)
    values = torch.eye(9, dtype=F64).expand(2, 9, 9)
    fused = torch.nn.functional.scaled_dot_product_attention(f.phi(x), f.psi(z), values, attn_mask=bias, scale=1.0)
    assert (fused - row_normalized(kernel, x, z)[0]).abs().max() < 4 * rounding(F64, 3)


@quick
@given(st.integers(2, 8), st.integers(1, 4), st.integers(0, 99))
def test_dropping_the_key_term_costs_exactly_the_spread_of_norms(m, d, seed):
    """The log-weights differ by half the squared norms of the keys, up to a constant: zero if and only if the norms agree."""
    x, z, h = draw(3, d, seed=seed), draw(m, d, seed=seed + 1000), 0.8
    f = Gaussian(h).softmax_factors()
    gap = torch.log_softmax(f.phi(x) @ f.psi(z).mT, -1) - row_normalized(Gaussian(h), x, z)[0].log()
    half = z.square().sum(-1) / (2 * h**2)
    centred = gap - gap.mean(-1, keepdim=True)
    assert (centred - (half - half.mean())).abs().max() < 1e-12 + 4 * rounding(F64, d)


@pytest.mark.parametrize("name", POSITIVE)
@quick
@given(shapes, batches, dtypes, st.integers(0, 99))
def test_row_normalisation(name, shape, batch, dtype, seed):
    n, m, d = shape
    kernel = CASES[name][0](d)
    x, z = draw(*batch, n, d, seed=seed, dtype=dtype), draw(*batch, m, d, seed=seed + 1000, dtype=dtype)
    weights, log_sums = row_normalized(kernel, x, z)
    gram = kernel(x.double(), z.double())
    bound = 4 * rounding(dtype, d)
    assert weights.dtype == log_sums.dtype == dtype and log_sums.shape == (*batch, n)
    assert (weights - gram / gram.sum(-1, keepdim=True)).abs().max() < bound
    assert (log_sums - gram.sum(-1).log()).abs().max() < bound * (1 + log_sums.abs().max())


def test_a_plain_function_gives_the_same_weights():
    x, z = draw(2, 5, 3, seed=1), draw(2, 6, 3, seed=2)
    plain = row_normalized(lambda a, b: Gaussian(1.0)(a, b), x, z)
    for ours, theirs in zip(row_normalized(Gaussian(1.0), x, z), plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-14)


def test_zero_entries_are_allowed_where_the_row_has_others():
    x, z = torch.tensor([[1.0, 0.0]], requires_grad=True), torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    weights, log_sums = row_normalized(Polynomial(2, 1.0), x, z)
    assert weights.tolist() == [[0.0, 1.0]] and log_sums.item() == pytest.approx(math.log(4))
    weights[0, 1].backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Polynomial(2, 8.0)], ids=["log", "gram"])
@quick
@given(st.integers(0, 99))
def test_a_mask_drops_keys(kernel, seed):
    x, z = draw(2, 4, 3, seed=seed), draw(2, 6, 3, seed=seed + 1000)
    mask = torch.rand(2, 1, 6, generator=torch.Generator().manual_seed(seed)) > 0.5
    mask[..., 0] = True
    weights, log_sums = row_normalized(kernel, x, z, mask=mask)
    for b in range(2):
        kept = mask[b, 0]
        alone, alone_sums = row_normalized(kernel, x[b], z[b][kept])
        assert (weights[b][:, ~kept] == 0).all()
        torch.testing.assert_close(weights[b][:, kept], alone, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(log_sums[b], alone_sums, rtol=1e-13, atol=1e-13)


def test_far_queries_against_scipy():
    """log-sum-exp in numpy's long double, where a sum of exp(-5000) is an ordinary number."""
    x, z = torch.tensor([[100.0, 0.0]], dtype=F64), 0.02 * draw(8, 2, seed=1)
    long = np.exp(-0.5 * cdist(x, z, "sqeuclidean").astype(np.longdouble))
    if long.sum() == 0:
        pytest.skip("this platform's long double is a double")
    weights, log_sums = row_normalized(Gaussian(1.0), x, z)
    bound = 2 * (2 + 3) * torch.finfo(F64).eps * 5100  # the exponent times its roundings
    assert np.abs(weights.numpy() - (long / long.sum()).astype(float)).max() < bound
    assert abs(log_sums.item() - float(np.log(long.sum()))) < bound


@every
def test_gradients(name):
    kernel = CASES[name][0](2)
    x, z = draw(3, 2, seed=1).requires_grad_(), draw(4, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(kernel, (x, z))


def test_gradients_of_the_weights():
    x, z = draw(3, 2, seed=1).requires_grad_(), draw(4, 2, seed=2).requires_grad_()
    mask = torch.tensor([True, True, False, True])
    assert torch.autograd.gradcheck(lambda a, b: row_normalized(Gaussian(0.7), a, b, mask=mask), (x, z))
    assert torch.autograd.gradcheck(lambda a, b: row_normalized(Polynomial(2, 8.0), a, b), (x, z))


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_at_coincident_points_are_finite(name, dtype):
    x = draw(1, 3, seed=3, dtype=dtype).expand(4, 3).clone().requires_grad_()
    CASES[name][0](3)(x, x).sum().backward()
    assert torch.isfinite(x.grad).all()
    if name in ("gaussian", "ard", "periodic", "laplace"):  # stationary: the maximum, or the subgradient 0
        assert (x.grad == 0).all()


def test_kernels_are_values():
    assert Gaussian(1) == Gaussian(np.float32(1.0)) and hash(Gaussian(1)) == hash(Gaussian(1.0))
    assert ARD((1, 2)) == ARD((1.0, 2.0)) and type(ARD((1, 2)).bandwidths[0]) is float
    assert Polynomial(np.int64(2)) == Polynomial(2, 1) and Polynomial(2) != Polynomial(3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Gaussian(1.0).bandwidth = 2.0


BAD_PARAMETERS = [
    (lambda: Gaussian(0.0), ValueError, "bandwidth must be above 0"),
    (lambda: Gaussian(math.nan), ValueError, "bandwidth must be finite"),
    (lambda: Gaussian("1"), TypeError, "bandwidth must be a real number"),
    (lambda: Gaussian(torch.tensor(1.0)), TypeError, "bandwidth must be a real number"),
    (lambda: ExponentialDotProduct(-1.0), ValueError, "bandwidth must be above 0"),
    (lambda: Laplace(math.inf), ValueError, "bandwidth must be finite"),
    (lambda: VonMisesFisher(0), ValueError, "concentration must be above 0"),
    (lambda: ARD([1.0]), TypeError, "bandwidths must be tuple"),
    (lambda: ARD(()), ValueError, "number of bandwidths must be at least 1"),
    (lambda: ARD((1.0, True)), TypeError, r"bandwidths\[1\] must be a real number"),
    (lambda: Periodic(0.0, 1.0), ValueError, "period must be above 0"),
    (lambda: Periodic(1.0, -1.0), ValueError, "bandwidth must be above 0"),
    (lambda: Polynomial(0), ValueError, "degree must be at least 1"),
    (lambda: Polynomial(2.0), TypeError, "degree must be an integer"),
    (lambda: Polynomial(2, -0.1), ValueError, "offset must be at least 0"),
    (lambda: SoftmaxFactors(None, abs, abs, abs), TypeError, "phi must be callable"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD_PARAMETERS, ids=[text for *_, text in BAD_PARAMETERS])
def test_bad_parameters_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


BAD_POINTS = [
    (torch.ones(3, 2, dtype=torch.int64), TypeError, "float32 or float64"),
    (torch.ones(3, 2, dtype=torch.float32), TypeError, "dtype"),
    (torch.ones(3, 2, dtype=F64, device="meta"), ValueError, "device"),
    (torch.ones(3, 3, dtype=F64), ValueError, "with d = 2"),
    (torch.ones(2, dtype=F64), ValueError, "axes"),
    (torch.ones(0, 2, dtype=F64), ValueError, "empty"),
    (torch.full((3, 2), math.nan, dtype=F64), ValueError, "finite"),
    ([[1.0, 2.0]], TypeError, "torch.Tensor"),
]


@every
@pytest.mark.parametrize(("z", "error", "text"), BAD_POINTS, ids=[text for *_, text in BAD_POINTS])
def test_bad_points_are_refused(name, z, error, text):
    kernel, x = CASES[name][0](2), torch.ones(4, 2, dtype=F64)
    calls = [kernel, lambda a, b: row_normalized(kernel, a, b)]
    for call in calls + ([kernel.log] if hasattr(kernel, "log") else []):
        with pytest.raises(error, match=text):
            call(x, z)


@pytest.mark.parametrize("name", EXPRESSIBLE)
@pytest.mark.parametrize("field", ["phi", "psi", "log_a", "log_b"])
def test_factors_have_a_door_too(name, field):
    with pytest.raises(ValueError, match="x must be finite"):
        getattr(CASES[name][0](2).softmax_factors(), field)(torch.full((3, 2), math.inf))


def test_other_refusals():
    x, z = draw(3, 2, seed=1), draw(4, 2, seed=2)
    for call, error, text in [
        (lambda: ARD((1.0,))(x, z), ValueError, "x must have 1 columns"),
        (lambda: ARD((1.0,)).softmax_factors().log_b(z), ValueError, "x must have 1 columns"),
        (lambda: VonMisesFisher(1.0)(x, 0 * z), ValueError, "no zero rows"),
        (lambda: ExponentialDotProduct(0.01)(100 * x, 100 * z), ValueError, "overflow"),
        (lambda: Polynomial(9)(1e80 * x, 1e80 * z), ValueError, "overflow"),
        (lambda: Linear()(1e200 * x, 1e200 * z), ValueError, "overflow"),
        (lambda: row_normalized(3, x, z), TypeError, "kernel must be callable"),
        (lambda: row_normalized(lambda a, b: None, x, z), TypeError, r"kernel\(x, z\) must be a torch.Tensor"),
        (lambda: row_normalized(lambda a, b: torch.ones(4, 3, dtype=F64), x, z), ValueError, r"kernel\(x, z\) must have axes"),
        (lambda: row_normalized(lambda a, b: torch.zeros(3, 4, dtype=F64), x, z), ValueError, "got 3 without"),
        (lambda: row_normalized(Linear(), x, z), ValueError, "no negative values"),
        (lambda: row_normalized(Gaussian(1.0), 1e200 * x, z), ValueError, "positive row sum"),
        (lambda: row_normalized(Gaussian(1.0), x, z, mask=torch.ones(3, 4)), TypeError, "mask must be a boolean tensor"),
        (lambda: row_normalized(Gaussian(1.0), x, z, mask=torch.ones(3, 3) > 0), ValueError, "mask must broadcast"),
        (lambda: row_normalized(Gaussian(1.0), x, z, mask=torch.zeros(3, 4) > 0), ValueError, "mask must keep"),
    ]:
        with pytest.raises(error, match=text):
            call()
