"""Associative memories against energies in exact integers, other routes to the same numbers, and closed forms."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import comb, logsumexp
from scipy.stats import norm

from transformer_ols.attention import softmax_attention
from transformer_ols.hopfield import HopfieldNetwork, _table, capacity
from transformer_ols.regression import ols

F64 = torch.float64
PROPERTY = settings(deadline=None, derandomize=True, max_examples=40)
BINARY = ("polynomial", "exponential", "projection")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def signs(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> torch.Tensor:
    return torch.randint(0, 2, shape, generator=seeded(seed)).to(dtype) * 2 - 1


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=F64)


def exact_sign(values: list[list[int]], state: list[int], power) -> list[int]:
    """The update from the definition: two energies for each bit, in Python's own arithmetic."""
    new = []
    for i, old in enumerate(state):
        energies = {}
        for bit in (-1, 1):
            s = [*state[:i], bit, *state[i + 1 :]]
            energies[bit] = -sum(power(sum(a * b for a, b in zip(row, s, strict=True))) for row in values)
        new.append(old if energies[1] == energies[-1] else min(energies, key=energies.__getitem__))
    return new


@PROPERTY
@given(n=st.integers(1, 6), d=st.integers(1, 9), degree=st.integers(1, 30), seed=st.integers(0, 2**31))
def test_powers_are_those_of_exact_integers(n: int, d: int, degree: int, seed: int) -> None:
    """Ties included, as long as the sums stay below 2^53; above, wherever the field is larger than rounding."""
    patterns, state = signs(n, d, seed=seed), signs(1, d, seed=seed + 1)
    exact = n * (d + 2) ** degree < 2**53
    rows = [[int(v) for v in row] for row in patterns.tolist()]
    expected = exact_sign(rows, [int(v) for v in state[0].tolist()], lambda c: c**degree)
    net = HopfieldNetwork(patterns, degree=degree)
    field = net._field(state)[0]
    clear = field.abs() > 1e-12 * field.abs().max()
    got, wanted = net.update(state)[0], torch.tensor(expected, dtype=F64)
    assert torch.equal(got, wanted) if exact else torch.equal(got[clear], wanted[clear])


@PROPERTY
@given(n=st.integers(1, 6), d=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_the_exponential_is_that_of_exact_fractions(n: int, d: int, seed: int) -> None:
    """At beta = ln 2 the exponential is a power of two, so that the oracle's energies are exact."""
    patterns, state = signs(n, d, seed=seed), signs(1, d, seed=seed + 1)
    rows = [[int(v) for v in row] for row in patterns.tolist()]
    expected = exact_sign(rows, [int(v) for v in state[0].tolist()], lambda c: Fraction(2) ** c)
    net = HopfieldNetwork(patterns, kind="exponential", beta=math.log(2))
    assert net.update(state)[0].tolist() == expected


@PROPERTY
@given(kind=st.sampled_from(BINARY), n=st.integers(1, 8), d=st.integers(2, 10), degree=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_one_flip_lowers_the_energy_or_keeps_the_bit(kind: str, n: int, d: int, degree: int, seed: int) -> None:
    net = HopfieldNetwork(signs(n, d, seed=seed), kind=kind, degree=degree, beta=0.3)
    state = signs(3, d, seed=seed + 1)
    for i in range(d):
        new, flipped = net.update(state, bit=i), state.clone()
        flipped[:, i] *= -1
        before, after, other = (net.energy(s) for s in (state, new, flipped))
        slack = 1e-12 * (1 + before.abs())
        assert (after <= before + slack).all() and (after <= other + slack).all()
        assert torch.equal(new[:, torch.arange(d) != i], state[:, torch.arange(d) != i])
        assert torch.equal(new[:, i], net.update(state)[:, i])
        state = new


@PROPERTY
@given(
    n=st.integers(1, 8),
    d=st.integers(1, 6),
    beta=st.floats(1e-3, 5.0),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from((torch.float32, F64)),
    batch=st.sampled_from(((), (2,), (2, 3))),
)
def test_the_softmax_kind_is_attention_and_descends(n, d, beta, seed, dtype, batch) -> None:
    patterns = normal(*batch, d, n, seed=seed).to(dtype).mT  # not contiguous
    state = normal(4, d, seed=seed + 1).to(dtype)
    net = HopfieldNetwork(patterns, kind="softmax", beta=beta)
    new = net.update(state)
    eps = torch.finfo(dtype).eps
    attended, _ = softmax_attention(state, patterns, patterns, scale=beta)
    size = 1 + beta * float(state.abs().max() * patterns.abs().max()) * d
    tolerance = 20 * (n + d) * size * eps * float(patterns.abs().max())
    assert new.dtype == dtype and new.shape == (*batch, 4, d)
    torch.testing.assert_close(new, attended, rtol=0, atol=tolerance)
    drop = (new - state).square().sum(-1) / 2
    scale = 1 + net.energy(state).abs() + net.energy(new).abs() + size / beta
    assert (net.energy(new) <= net.energy(state) - drop + 50 * d * eps * scale).all()


def test_energies_by_other_routes() -> None:
    patterns, state = signs(5, 9), signs(4, 9, seed=1)
    overlaps = (state @ patterns.mT).numpy()
    cubic = HopfieldNetwork(patterns, degree=3).energy(state)
    np.testing.assert_allclose(cubic, -((overlaps / 9) ** 3).sum(-1), rtol=1e-14)
    for kind in ("exponential", "softmax"):
        energy = HopfieldNetwork(patterns, kind=kind, beta=0.4).energy(state)
        np.testing.assert_allclose(energy, 4.5 - logsumexp(0.4 * overlaps, axis=-1) / 0.4, rtol=1e-13)
    energy = HopfieldNetwork(patterns, kind="projection").energy(state)
    residuals = [float((s - ols(patterns.mT, s).predict(patterns.mT)).square().sum() / 2) for s in state]
    np.testing.assert_allclose(energy, residuals, rtol=1e-12)


def test_the_gradient_of_the_softmax_energy_is_the_step() -> None:
    net = HopfieldNetwork(normal(6, 4), kind="softmax", beta=0.8)
    state = normal(3, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(net.energy, (state,)) and torch.autograd.gradcheck(net.update, (state,))
    (gradient,) = torch.autograd.grad(net.energy(state).sum(), state)
    torch.testing.assert_close(gradient, state - net.update(state), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [1, 5, 12, 19])
def test_the_projection_predicts_each_bit_from_the_others(n: int) -> None:
    patterns, state = signs(n, 20), signs(1, 20, seed=1)
    net = HopfieldNetwork(patterns, kind="projection")
    assert torch.equal(net.update(patterns), patterns)
    for i in range(20):
        kept = torch.arange(20) != i
        predicted = ols(patterns.mT[kept], state[0, kept]).coef @ patterns[:, i]
        if abs(predicted) > 1e-9:
            assert float(net.update(state)[0, i]) == float(predicted.sign())


def test_repeated_and_dependent_patterns_do_no_harm_to_the_projection() -> None:
    patterns, state = signs(6, 16), signs(5, 16, seed=1)
    twice = torch.cat([patterns, -patterns[:3], patterns])
    once, more = (HopfieldNetwork(p, kind="projection") for p in (patterns, twice))
    torch.testing.assert_close(more.energy(state), once.energy(state), rtol=0, atol=1e-12)
    assert torch.equal(more.update(state), once.update(state))


def test_a_batch_is_its_members_and_layout_does_not_matter() -> None:
    patterns, state = signs(3, 2, 9, 7).mT, signs(2, 5, 9, seed=1)  # (3, 2, 7, 9) and (2, 5, 9): not contiguous, broadcast
    for kind in (*BINARY, "softmax"):
        net = HopfieldNetwork(patterns, kind=kind, beta=0.3)
        energies, updates, ends = net.energy(state), net.update(state), net.retrieve(state)
        assert energies.shape == (3, 2, 5) and updates.shape == ends.shape == (3, 2, 5, 9)
        for i, j in product(range(3), range(2)):
            one = HopfieldNetwork(patterns[i, j].contiguous(), kind=kind, beta=0.3)
            torch.testing.assert_close(energies[i, j], one.energy(state[j]), rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(updates[i, j], one.update(state[j]), rtol=1e-12, atol=1e-12)
            if kind == "softmax":
                torch.testing.assert_close(ends[i, j], one.retrieve(state[j]), rtol=1e-10, atol=1e-10)


def test_retrieve_repeats_update_and_stops() -> None:
    net, state = HopfieldNetwork(signs(4, 30)), signs(20, 30, seed=1)
    expected = state
    for _ in range(3):
        expected = net.update(expected)
    assert torch.equal(net.retrieve(state, steps=3), expected)
    assert torch.equal(net.retrieve(net.patterns[:1] * 1.0, steps=10**9), net.patterns[:1])  # fixed, so it returns at once
    pair = HopfieldNetwork(torch.ones(1, 2, dtype=F64))
    start = torch.tensor([[1.0, -1.0]], dtype=F64)
    assert torch.equal(pair.retrieve(start, steps=7), -start) and torch.equal(pair.retrieve(start, steps=8), start)


def test_ties_keep_the_bit() -> None:
    """Two patterns that differ in one bit only: at it both have the same energy, whatever the interaction."""
    first = torch.ones(1, 8, dtype=F64)
    second = first.clone()
    second[0, 3] = -1
    patterns = torch.cat([first, second])
    for net in (
        *(HopfieldNetwork(patterns, degree=p) for p in (1, 2, 3, 4, 9)),
        *(HopfieldNetwork(patterns, kind="exponential", beta=b) for b in (0.1, 1.0, 3.0)),
        HopfieldNetwork(patterns, kind="projection"),
    ):
        assert torch.equal(net.update(patterns), patterns), net.kind


def test_the_table_does_not_overflow() -> None:
    assert _table(2000, 2000).isfinite().all()
    net = HopfieldNetwork(signs(20, 400), degree=200)
    damaged = net.patterns.clone()
    damaged[:, :40] *= -1
    assert torch.equal(net.retrieve(damaged), net.patterns) and net.energy(damaged).isfinite().all()
    net = HopfieldNetwork(signs(20, 2000), kind="exponential", beta=3.0)  # e^6000
    assert torch.equal(net.update(net.patterns), net.patterns) and net.energy(net.patterns).isfinite().all()


def test_overlaps_that_overflow_are_refused() -> None:
    net = HopfieldNetwork(1e200 * normal(3, 4), kind="softmax")
    with pytest.raises(ValueError, match="must fit into float64, got an overflow; lower beta"):
        net.update(1e200 * normal(1, 4))
    with pytest.raises(ValueError, match=r"must hold only -1 and \+1 for kind='polynomial'; take the sign"):
        HopfieldNetwork(normal(3, 4))
    with pytest.raises(ValueError, match="bit must be below 4, got 4; count bits from 0"):
        HopfieldNetwork(signs(3, 4)).update(signs(1, 4), bit=4)
    with pytest.raises(ValueError, match="bit must be None for kind='softmax', got 0"):
        HopfieldNetwork(normal(3, 4), kind="softmax").update(normal(1, 4), bit=0)
    with pytest.raises(ValueError, match=r"start must be at most 1, got 1\.5; it is an overlap"):
        capacity(10, start=1.5)


# ---- capacity


def normal_prediction(d: int, p: int) -> float:
    c = np.arange(1 - d, d, 2.0)
    moment = (comb(d - 1, np.arange(d)) / 2.0 ** (d - 1)) @ ((c + 1) ** p - (c - 1) ** p) ** 2
    return 1 + (d**p - (d - 2.0) ** p) ** 2 / (norm.isf(math.log(2) / d) ** 2 * moment)


@pytest.mark.parametrize(("d", "p"), [(200, 2), (60, 3), (40, 4)])
def test_powers_hold_what_the_normal_prediction_says(d: int, p: int) -> None:
    """Twelve per cent: four of the theory at these sizes, and two of counting and two of the bracket, twice."""
    loads = [capacity(d, degree=p, generator=seeded(seed)) for seed in range(2)]
    assert abs(np.mean(loads) / normal_prediction(d, p) - 1) < 0.12


def test_all_patterns_fixed_is_a_birthday_problem() -> None:
    """One standard error of the mean of two searches with sixty networks is about seven per cent."""
    loads = [capacity(14, kind="exponential", every=True, networks=60, generator=seeded(seed)) for seed in range(2)]
    assert abs(np.mean(loads) / math.sqrt(2 * math.log(2) * 2**14 / 14) - 1) < 0.2


def test_the_criterion_matters() -> None:
    exponential = {"kind": "exponential", "networks": 3}
    every = capacity(12, every=True, generator=seeded(), **exponential)
    typical = capacity(12, generator=seeded(), **exponential)
    assert typical > 8 * every
    assert capacity(12, start=0.8, generator=seeded(), **exponential) < typical / 4


@pytest.mark.parametrize(
    "criterion",
    [{"degree": 2}, {"degree": 3, "start": 0.8, "goal": 0.9, "steps": 5}, {"kind": "softmax", "start": 0.9, "goal": 0.95}],
)
def test_capacity_repeats_and_depends_on_the_generator_only(criterion: dict) -> None:
    torch.manual_seed(0)
    one = capacity(16, generator=seeded(3), **criterion)
    torch.manual_seed(1)
    assert one == capacity(16, generator=seeded(3), **criterion) > 1
    assert capacity(16, generator=seeded(3), dtype=torch.float32, **criterion) == pytest.approx(one, rel=0.5)


def test_capacity_is_zero_where_one_pattern_is_lost() -> None:
    """Half of the bits flipped leave nothing to go by, and an even power would as soon return the negative."""
    assert capacity(10, start=0.01, generator=seeded()) == 0.0


def test_capacity_says_when_everything_is_recovered() -> None:
    with pytest.raises(ValueError, match="limit must be above the capacity, got 100, and 64 patterns are still recovered"):
        capacity(8, kind="projection", limit=100, generator=seeded())


# ---- from softmax to least squares


def test_small_scales_lead_to_least_squares_with_intercept() -> None:
    """The first-order error is half the third cumulant; PyTorch's attention, numpy's least squares."""
    x, new = normal(60, 3) + 2.0, normal(5, 3, seed=1) + 2.0
    y = x.sum(-1) + 0.1 * normal(60, seed=2)
    design = np.column_stack([np.ones(60), x.numpy()])
    coef = np.linalg.lstsq(design, y.numpy(), rcond=None)[0]
    expected = torch.from_numpy(coef[0] + new.numpy() @ coef[1:])
    centred = x - x.mean(0)
    keys = torch.linalg.solve(centred.mT @ centred / 60, x.mT).mT

    def rescaled(query: torch.Tensor, beta: float) -> torch.Tensor:
        output = F.scaled_dot_product_attention(query, keys, y[:, None], scale=beta)[:, 0]
        return y.mean() + (output - y.mean()) / beta

    u = (new - x.mean(0)) @ (keys - keys.mean(0)).mT
    cumulant = (u.square() * (y - y.mean())).mean(-1)
    for beta in (1e-3, 1e-4):
        torch.testing.assert_close(rescaled(new - x.mean(0), beta) - expected, beta / 2 * cumulant, rtol=0.05, atol=beta**1.5)
    off = rescaled(new, 1e-6) - expected
    torch.testing.assert_close(off, torch.full_like(off, float(x.mean(0) @ torch.from_numpy(coef[1:]))), rtol=1e-3, atol=0)
