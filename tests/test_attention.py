"""Attention against PyTorch's own and against numpy's extended precision, over shapes, dtypes, batch axes, layouts and masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from torch import Tensor

from transformer_ols.attention import linear_attention, softmax_attention

PROPERTY = settings(deadline=None, derandomize=True, max_examples=100)
BOTH = pytest.mark.parametrize("attention", [linear_attention, softmax_attention])


@dataclass(frozen=True, eq=False)
class Case:
    """One call: the arguments, and the scale that None stands for."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    scale: float

    @property
    def batch(self) -> torch.Size:
        return torch.broadcast_shapes(self.q.shape[:-2], self.k.shape[:-2], self.v.shape[:-2])


def transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def strided(x: Tensor) -> Tensor:
    return torch.stack([x, torch.full_like(x, 1e6)], dim=-1).flatten(-2)[..., ::2]


def expanded(x: Tensor) -> Tensor:
    return x[:1].expand(x.shape) if x.ndim > 2 else x[:, :1].expand(x.shape)


LAYOUTS = (torch.Tensor.contiguous, transposed, strided, expanded)


def random_mask(generator: torch.Generator, *shape: int) -> Tensor:
    """A random mask that keeps at least one key in every row."""
    mask = torch.rand(*shape, generator=generator) < 0.5
    kept = torch.randint(shape[-1], shape[:-1], generator=generator)
    return mask | F.one_hot(kept, shape[-1]).bool()


@st.composite
def cases(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)) -> Case:
    m, n, d, e = (draw(st.integers(1, 7)) for _ in range(4))
    batches = draw(mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=3)).input_shapes
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from(dtypes))
    size = draw(st.sampled_from((0.1, 1.0, 5.0)))
    q, k, v = (
        draw(st.sampled_from(LAYOUTS))(size * torch.randn(*batch, *shape, generator=generator, dtype=dtype))
        for batch, shape in zip(batches, ((m, d), (n, d), (n, e)), strict=True)
    )
    joint = torch.broadcast_shapes(*batches)
    shape = draw(st.sampled_from((None, (n,), (m, n), (1, n), (*joint, m, n), (*(1 for _ in joint), m, n))))
    mask = None if shape is None else random_mask(generator, *shape)
    return Case(q, k, v, mask, draw(st.sampled_from((d**-0.5, 0.05, 1.0, 2.5))))


def exact(x: Tensor) -> np.ndarray:
    return x.numpy().astype(np.longdouble)


def numpy_attention(case: Case, softmax: bool) -> tuple[np.ndarray, np.ndarray]:
    """Both attentions written with einsum, in numpy's longest numbers (80 bits on most machines)."""
    weights = case.scale * np.einsum("...md,...nd->...mn", exact(case.q), exact(case.k))
    mask = True if case.mask is None else case.mask.numpy()
    if softmax:
        weights = np.exp(weights - np.max(weights, axis=-1, keepdims=True, where=mask, initial=-np.inf)) * mask
        weights = weights / weights.sum(-1, keepdims=True)
    else:
        weights = weights * mask
    return np.einsum("...mn,...ne->...me", weights, exact(case.v)), weights


def softmax_bound(case: Case) -> float:
    """What two correct softmax attentions may differ by, to first order; derived in the chapter."""
    n, d = case.k.shape[-2:]
    size = float((case.scale * (case.q.abs() @ case.k.abs().mT)).max())
    return torch.finfo(case.q.dtype).eps * (2 * (d + 5) * size + 2 * n + 8) * float(case.v.abs().max())


def with_unit_values(case: Case) -> Case:
    """The case whose bound is that of the weights."""
    return Case(case.q, case.k, torch.ones_like(case.v), case.mask, case.scale)


def linear_bound(case: Case) -> np.ndarray:
    """The classical bound for two matrix products and a scaling, entry by entry: n + d + 2 roundings of the sum of absolute values."""
    n, d = case.k.shape[-2:]
    absolute = Case(case.q.abs(), case.k.abs(), case.v.abs(), case.mask, case.scale)
    return torch.finfo(case.q.dtype).eps * (n + d + 2) * numpy_attention(absolute, softmax=False)[0]


@PROPERTY
@given(cases())
def test_softmax_is_pytorch(case: Case) -> None:
    q, k, v = (x.expand(*case.batch, *x.shape[-2:]) for x in (case.q, case.k, case.v))
    mask = None if case.mask is None else case.mask.expand(*case.batch, q.shape[-2], k.shape[-2])
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=case.scale)
    ours, _ = softmax_attention(case.q, case.k, case.v, mask=case.mask, scale=case.scale)
    assert ours.dtype == case.q.dtype and ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= softmax_bound(case)


@PROPERTY
@given(cases())
def test_softmax_is_numpy(case: Case) -> None:
    output, weights = softmax_attention(case.q, case.k, case.v, mask=case.mask, scale=case.scale)
    reference, reference_weights = numpy_attention(case, softmax=True)
    assert output.shape == reference.shape and weights.shape == reference_weights.shape
    assert np.abs(exact(output) - reference).max() <= softmax_bound(case)
    assert np.abs(exact(weights) - reference_weights).max() <= softmax_bound(with_unit_values(case))


@PROPERTY
@given(cases())
def test_linear_is_numpy(case: Case) -> None:
    output, weights = linear_attention(case.q, case.k, case.v, mask=case.mask, scale=case.scale)
    reference, reference_weights = numpy_attention(case, softmax=False)
    assert output.dtype == case.q.dtype and output.shape == reference.shape and weights.shape == reference_weights.shape
    assert (np.abs(exact(output) - reference) <= linear_bound(case)).all()


@PROPERTY
@given(cases())
def test_scale_defaults(case: Case) -> None:
    d = case.q.shape[-1]
    for attention, default in ((softmax_attention, d**-0.5), (linear_attention, 1.0)):
        for implicit, explicit in zip(attention(case.q, case.k, case.v), attention(case.q, case.k, case.v, scale=default), strict=True):
            assert torch.equal(implicit, explicit)


@PROPERTY
@given(cases())
def test_softmax_averages(case: Case) -> None:
    """Rows sum to one (n roundings), no weight is negative, hidden weights are exactly zero, outputs stay between the extreme values."""
    output, weights = softmax_attention(case.q, case.k, case.v, mask=case.mask, scale=case.scale)
    eps = torch.finfo(case.q.dtype).eps
    n = case.k.shape[-2]
    assert (weights >= 0).all() and float((weights.sum(-1) - 1).abs().max()) <= (n + 2) * eps
    if case.mask is not None:
        assert (weights.masked_select(~case.mask.expand(weights.shape)) == 0).all()
    slack = (2 * n + 2) * eps * float(case.v.abs().max())
    assert (output <= case.v.amax(-2, keepdim=True) + slack).all() and (output >= case.v.amin(-2, keepdim=True) - slack).all()


@BOTH
@PROPERTY
@given(case=cases((torch.float64,)), seed=st.integers(0, 2**31))
def test_reordering(attention, case: Case, seed: int) -> None:
    """Keys and values together: nothing changes but the order of the weights. Queries: the outputs follow."""
    generator = torch.Generator().manual_seed(seed)
    keys, queries = (torch.randperm(x.shape[-2], generator=generator) for x in (case.k, case.q))
    mask = None if case.mask is None else case.mask.expand(*case.batch, len(queries), len(keys))
    output, weights = attention(case.q, case.k, case.v, mask=mask, scale=case.scale)
    moved = None if mask is None else mask[..., keys][..., queries, :]
    other, other_weights = attention(case.q[..., queries, :], case.k[..., keys, :], case.v[..., keys, :], mask=moved, scale=case.scale)
    bound = softmax_bound(case) if attention is softmax_attention else linear_bound(case).max()
    torch.testing.assert_close(other, output[..., queries, :], rtol=0, atol=float(bound))
    bound = softmax_bound(with_unit_values(case)) if attention is softmax_attention else linear_bound(with_unit_values(case)).max()
    torch.testing.assert_close(other_weights, weights[..., queries, :][..., keys], rtol=0, atol=float(bound))


@BOTH
@PROPERTY
@given(case=cases(), seed=st.integers(0, 2**31))
def test_hiding_is_dropping(attention, case: Case, seed: int) -> None:
    kept = random_mask(torch.Generator().manual_seed(seed), case.k.shape[-2])
    hidden, hidden_weights = attention(case.q, case.k, case.v, mask=kept, scale=case.scale)
    case = Case(case.q, case.k, case.v, None, case.scale)
    dropped, dropped_weights = attention(case.q, case.k[..., kept, :], case.v[..., kept, :], scale=case.scale)
    bound = softmax_bound(case) if attention is softmax_attention else linear_bound(case).max()
    torch.testing.assert_close(hidden, dropped, rtol=0, atol=float(bound))
    bound = softmax_bound(with_unit_values(case)) if attention is softmax_attention else linear_bound(with_unit_values(case)).max()
    torch.testing.assert_close(hidden_weights[..., kept], dropped_weights, rtol=0, atol=float(bound))


@BOTH
@PROPERTY
@given(case=cases(), number=st.sampled_from((-1e6, 1e6)))
def test_hidden_numbers_do_not_matter(attention, case: Case, number: float) -> None:
    """Whatever stands in a hidden key or value, the output is the same to the last bit."""
    kept = torch.zeros(case.k.shape[-2], dtype=torch.bool)
    kept[0] = True
    k, v = (torch.where(kept[:, None], x, number) for x in (case.k, case.v))
    for ours, changed in zip(
        attention(case.q, case.k.contiguous(), case.v.contiguous(), mask=kept), attention(case.q, k, v, mask=kept), strict=True
    ):
        assert torch.equal(ours, changed)


@PROPERTY
@given(cases((torch.float64,)), st.integers(0, 2**31))
def test_softmax_ignores_a_shift(case: Case, seed: int) -> None:
    """One vector added to all keys adds one number to all logits of a query; only rounding of the larger logits is left."""
    shift = 3 * torch.randn(case.k.shape[-1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = Case(case.q, case.k + shift, case.v, case.mask, case.scale)
    larger = Case(case.q, case.k.abs() + shift.abs(), case.v, case.mask, case.scale)
    output, _ = softmax_attention(case.q, case.k, case.v, mask=case.mask, scale=case.scale)
    other, _ = softmax_attention(moved.q, moved.k, moved.v, mask=case.mask, scale=case.scale)
    torch.testing.assert_close(other, output, rtol=0, atol=softmax_bound(larger))


@PROPERTY
@given(cases((torch.float64,)))
def test_appended_feature_is_a_bias(case: Case) -> None:
    """A bias for every key through one more feature: the reference adds it to the logits as PyTorch's float mask does."""
    bias = torch.randn(*case.k.shape[:-1], 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q = torch.cat([case.q, torch.ones_like(case.q[..., :1])], dim=-1)
    k = torch.cat([case.k, bias / case.scale], dim=-1)
    output, _ = softmax_attention(q, k, case.v, scale=case.scale)
    arguments = (x.expand(*case.batch, *x.shape[-2:]) for x in (case.q, case.k, case.v))
    added = bias.mT.expand(*case.batch, q.shape[-2], k.shape[-2])
    reference = F.scaled_dot_product_attention(*arguments, attn_mask=added, scale=case.scale)
    torch.testing.assert_close(output, reference, rtol=0, atol=softmax_bound(Case(q, k, case.v, None, case.scale)))


@BOTH
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_by_finite_differences(attention, masked: bool) -> None:
    generator = torch.Generator().manual_seed(7)
    shapes = ((2, 1, 2, 3), (3, 4, 3), (2, 1, 4, 2))  # batch axes that broadcast, so that gradients are summed over them
    q, k, v = (transposed(torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_() for shape in shapes)
    mask = random_mask(generator, 2, 3, 2, 4) if masked else None
    assert torch.autograd.gradcheck(lambda *args: attention(*args, mask=mask, scale=0.7), (q, k, v))


@PROPERTY
@given(cases((torch.float64,)))
def test_gradients_are_pytorchs(case: Case) -> None:
    """A gradient sums products of q, k, v and the scale; with the number and the size of its terms, the output's bound carries over."""
    ours = [x.clone().requires_grad_() for x in (case.q, case.k, case.v)]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    mask = None if case.mask is None else case.mask.expand(*case.batch, case.q.shape[-2], case.k.shape[-2])
    softmax_attention(*ours, mask=case.mask, scale=case.scale)[0].square().sum().backward()
    arguments = (x.expand(*case.batch, *x.shape[-2:]) for x in theirs)
    F.scaled_dot_product_attention(*arguments, attn_mask=mask, scale=case.scale).square().sum().backward()
    terms = case.batch.numel() * case.q.shape[-2] * case.v.shape[-1] * case.k.shape[-2]
    largest = 1 + float(case.v.abs().max()) * (1 + case.scale * float(max(case.q.abs().max(), case.k.abs().max())))
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=0, atol=4 * terms * largest * softmax_bound(case))


@BOTH
def test_mask_that_only_the_values_need(attention) -> None:
    """Queries and keys without batch axes, values and a mask with one: outputs and weights follow the mask."""
    generator = torch.Generator().manual_seed(8)
    q, k, v = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((2, 3), (5, 3), (4, 5, 1)))
    mask = random_mask(generator, 4, 2, 5)
    output, weights = attention(q, k, v, mask=mask)
    assert output.shape == (4, 2, 1) and weights.shape == (4, 2, 5)
    for i in range(4):
        torch.testing.assert_close(output[i], attention(q, k, v[i], mask=mask[i])[0], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits(dtype: torch.dtype) -> None:
    """Logits whose exponential overflows are harmless: the row's maximum is subtracted first."""
    q = torch.tensor([[1e4]], dtype=dtype)
    output, weights = softmax_attention(q, torch.tensor([[1.0], [-1.0]], dtype=dtype), torch.tensor([[2.0], [3.0]], dtype=dtype), scale=1.0)
    assert torch.equal(weights, torch.tensor([[1.0, 0.0]], dtype=dtype)) and float(output) == 2.0


def test_messages() -> None:
    x = torch.ones(3, 2)
    for attention in (linear_attention, softmax_attention):
        with pytest.raises(ValueError, match=r"k must have axes .* with d = 2 \(from q\)"):
            attention(x, torch.ones(3, 4), x)
        with pytest.raises(ValueError, match=r"v must have axes .* with n = 3 \(from k\)"):
            attention(x, x, torch.ones(4, 2))
        with pytest.raises(ValueError, match="scale must be above 0, got 0"):
            attention(x, x, x, scale=0.0)
        with pytest.raises(TypeError, match="scale must be a real number, got Tensor"):
            attention(x, x, x, scale=torch.tensor(1.0))
        with pytest.raises(ValueError, match=r"mask must broadcast to \(3, 3\), got shape \(2, 3\)"):
            attention(x, x, x, mask=torch.ones(2, 3, dtype=torch.bool))
        with pytest.raises(ValueError, match="fit into float32, got an overflow; rescale them"):
            attention(1e20 * x, 1e20 * x, x)
        with pytest.raises(TypeError, match="mask must be a boolean tensor, got float32"):
            attention(x, x, x, mask=torch.ones(3, 3))
    with pytest.raises(TypeError, match="scale must be a real number, got NoneType"):
        linear_attention(x, x, x, scale=None)
