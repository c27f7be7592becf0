"""One grid for every function that takes tensors: dtype and shape as promised, batched as looped, any memory layout, inputs untouched."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from transformer_ols.attention import linear_attention, softmax_attention
from transformer_ols.kernels import (
    ARD,
    ExponentialDotProduct,
    Gaussian,
    Laplace,
    Linear,
    Periodic,
    Polynomial,
    VonMisesFisher,
    row_normalized,
)
from transformer_ols.ols_transformer import OLSTransformer, spectral_factor
from transformer_ols.regression import kernel_ridge, ols, ridge_regression, wls

SIZES = {"n": 12, "m": 5, "d": 4, "e": 7, "k": 6}
Results = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Case:
    """A call: the axes of its tensor arguments, what to compute, and the axes of what comes back (batch axes go without saying)."""

    name: str
    arguments: dict[str, str]
    call: Callable[..., Results]
    promised: dict[str, str]


def fitted(fit, x_new: Tensor) -> Results:
    counts = {"rank": fit.rank.to(fit.coef.dtype), "condition_number": fit.condition_number}
    return {"coef": fit.coef, "intercept": fit.intercept, "prediction": fit.predict(x_new)} | counts


def layer(model: OLSTransformer, x: Tensor, x_new: Tensor) -> Results:
    prediction, weights = model.attend(x_new)
    passes = {"forward": model(x_new), "attend": prediction, "weights": weights, "self_attention": model.self_attention(x)}
    return passes | {"coef": model.coef, "intercept": model.intercept, "condition_number": model.condition_number}


def factored(x: Tensor, **options) -> Results:
    """What is identifiable of a factor, which is unique up to a rotation only."""
    factor = spectral_factor(x, **options)
    products = {"inverse": factor.L @ factor.L.mT, "hat": factor.whitened @ factor.whitened.mT}
    return products | {"singular_values": factor.singular_values, "condition_number": factor.condition_number}


KERNELS = (
    Gaussian(1.0),
    ExponentialDotProduct(2.0),
    VonMisesFisher(1.5),
    ARD((0.5, 1.0, 2.0, 4.0)),
    Periodic(3.0, 1.0),
    Laplace(1.0),
    Polynomial(3),
    Linear(),
)
SEEN = torch.ones(5, 12, dtype=torch.bool).tril()
ATTENTION = ({"q": "m d", "k": "n d", "v": "n e"}, {"output": "m e", "weights": "m n"})
ONE = ({"x": "n d", "y": "n", "x_new": "m d"}, {"coef": "d", "intercept": "", "prediction": "m", "rank": "", "condition_number": ""})
MANY = (
    {"x": "n d", "y": "n k", "x_new": "m d"},
    {"coef": "d k", "intercept": "k", "prediction": "m k", "rank": "", "condition_number": ""},
)
LAYER = {"forward": "m", "attend": "m", "weights": "m n", "self_attention": "n", "coef": "d", "intercept": "", "condition_number": ""}
LAYERS = LAYER | {"forward": "m k", "attend": "m k", "self_attention": "n k", "coef": "d k", "intercept": "k"}
FACTOR = {"inverse": "d d", "hat": "n n", "singular_values": "d", "condition_number": ""}


def named(names: str, results: tuple[Tensor, ...]) -> Results:
    return dict(zip(names.split(), results, strict=True))


def _cases() -> list[Case]:
    cases = []

    def add(name: str, arguments: dict[str, str], promised: dict[str, str], call: Callable[..., Results]) -> None:
        cases.append(Case(name, arguments, call, promised))

    for f in (linear_attention, softmax_attention):
        add(f.__name__, *ATTENTION, lambda q, k, v, f=f: named("output weights", f(q, k, v)))
        add(f"{f.__name__}, masked", *ATTENTION, lambda q, k, v, f=f: named("output weights", f(q, k, v, mask=SEEN, scale=0.3)))
    for kernel in KERNELS:
        add(type(kernel).__name__, {"x": "n d", "z": "m d"}, {"gram": "n m"}, lambda x, z, kernel=kernel: {"gram": kernel(x, z)})
    add(
        "row_normalized",
        {"x": "n d", "z": "m d"},
        {"weights": "n m", "log_row_sums": "n"},
        lambda x, z: named("weights log_row_sums", row_normalized(Gaussian(1.0), x, z)),
    )
    for axes in (ONE, MANY):
        outputs = "one output" if axes is ONE else "several outputs"
        for intercept in (False, True):
            tag = f"{outputs}{', intercept' if intercept else ''}"
            add(f"ols, {tag}", *axes, lambda x, y, x_new, i=intercept: fitted(ols(x, y, fit_intercept=i), x_new))
            add(
                f"ridge_regression, {tag}",
                *axes,
                lambda x, y, x_new, i=intercept: fitted(ridge_regression(x, y, 0.5, fit_intercept=i), x_new),
            )
            add(
                f"wls, {tag}",
                {"x": "n d", "y": axes[0]["y"], "weights": "n", "x_new": "m d"},
                axes[1],
                lambda x, y, weights, x_new, i=intercept: fitted(wls(x, y, weights, fit_intercept=i), x_new),
            )
            for ridge in (0.0, 0.5):
                add(
                    f"OLSTransformer, {tag}, ridge {ridge}",
                    axes[0],
                    LAYER if axes is ONE else LAYERS,
                    lambda x, y, x_new, i=intercept, r=ridge: layer(OLSTransformer.from_data(x, y, ridge=r, fit_intercept=i), x, x_new),
                )
        add(
            f"kernel_ridge, {outputs}",
            axes[0],
            {"dual_coef": axes[0]["y"], "prediction": axes[1]["prediction"]},
            lambda x, y, x_new: (lambda fit: {"dual_coef": fit.dual_coef, "prediction": fit.predict(x_new)})(
                kernel_ridge(x, y, Gaussian(1.0), 0.5)
            ),
        )
    for route in ("svd", "gram"):
        add(f"spectral_factor, {route}", {"x": "n d"}, FACTOR, lambda x, route=route: factored(x, ridge=0.5, route=route))
    return cases


CASES = _cases()
GRID = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
BATCHES = pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)


def arguments(case: Case, dtype: torch.dtype, batch: tuple[int, ...]) -> Results:
    """Normal numbers, each entry of the batch half as large as the one before, so that entries cannot be confused; weights are positive."""
    generator = torch.Generator().manual_seed(11)
    size = 0.5 ** torch.arange(math.prod(batch), dtype=torch.float64).reshape(batch)
    drawn = {}
    for name, axes in case.arguments.items():
        shape = (*batch, *(SIZES[axis] for axis in axes.split()))
        value = torch.randn(shape, generator=generator, dtype=torch.float64) * size.reshape(*batch, *(1 for _ in axes.split()))
        drawn[name] = (value.square() + 0.5 if name == "weights" else value).to(dtype)
    return drawn


def run(case: Case, given: Results) -> Results:
    """Call, and see that the arguments are as they were."""
    before = {name: value.clone() for name, value in given.items()}
    results = case.call(**given)
    for name, value in given.items():
        assert torch.equal(value, before[name]), f"{name} was modified"
    return results


def close(left: Tensor, right: Tensor) -> None:
    """Equal up to the order of sums.

    At most a dozen numbers of size one are summed, a few times in a row, and the random designs have condition numbers below ten
    (squared by the Gram route): some dozens of roundings of the largest entry, or of one where results cancel, as intercepts do.
    """
    bound = 50 * torch.finfo(right.dtype).eps * max(1.0, float(right.abs().max()))
    assert left.shape == right.shape and float((left - right).abs().max()) <= bound


def transposed(x: Tensor) -> Tensor:
    """The last axis is no longer the fastest."""
    return x.mT.contiguous().mT if x.ndim > 1 else strided(x)


def strided(x: Tensor) -> Tensor:
    """Every second number of a larger tensor, the others being NaN."""
    return torch.stack([x, torch.full_like(x, torch.nan)], dim=-1)[..., 0]


def batch_last(x: Tensor) -> Tensor:
    """The first axis is the fastest."""
    return x.movedim(0, -1).contiguous().movedim(-1, 0)


@GRID
@DTYPES
@BATCHES
def test_dtype_and_shape(case: Case, dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    results = run(case, arguments(case, dtype, batch))
    assert results.keys() == case.promised.keys()
    for name, axes in case.promised.items():
        assert results[name].dtype == dtype, name
        assert results[name].shape == (*batch, *(SIZES[axis] for axis in axes.split())), name


@GRID
@DTYPES
@pytest.mark.parametrize("batch", [(2,), (2, 3)], ids=str)
def test_batched_is_looped(case: Case, dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    given = arguments(case, dtype, batch)
    together = run(case, given)
    for index in torch.cartesian_prod(*map(torch.arange, batch)).reshape(-1, len(batch)).tolist():
        alone = run(case, {name: value[tuple(index)] for name, value in given.items()})
        for name, value in alone.items():
            close(together[name][tuple(index)], value)


@GRID
@DTYPES
@BATCHES
@pytest.mark.parametrize("layout", [transposed, strided, batch_last])
def test_layout_does_not_matter(case: Case, dtype: torch.dtype, batch: tuple[int, ...], layout: Callable[[Tensor], Tensor]) -> None:
    given = arguments(case, dtype, batch)
    moved = {name: layout(value) for name, value in given.items()}
    assert any(not value.is_contiguous() for value in moved.values())
    expected = run(case, given)
    for name, value in run(case, moved).items():
        close(value, expected[name])


@GRID
def test_batch_axes_broadcast(case: Case) -> None:
    """Every second argument varies along one batch axis only, the others along the other: as if they had been copied."""
    given = arguments(case, torch.float64, (2, 3))
    thin = {name: value[:, :1] if i % 2 else value[:1] for i, (name, value) in enumerate(given.items())}
    copied = {name: value.expand_as(given[name]) for name, value in thin.items()}
    expected = run(case, copied)
    for name, value in run(case, thin).items():
        close(value.expand_as(expected[name]), expected[name])


@GRID
def test_repeatable(case: Case) -> None:
    """The same call gives the same bits."""
    given = arguments(case, torch.float64, (2,))
    expected = run(case, given)
    for name, value in run(case, given).items():
        assert torch.equal(value, expected[name])


def test_nothing_is_left_out() -> None:
    """A public name of these modules stands in the grid, is a result that the grid reads, or holds certified data."""
    elsewhere = {"SoftmaxFactors", "SpectralFactor", "LinearFit", "KernelFit"} | {"NIST_PROBLEMS", "NISTProblem", "nist_problem"}
    covered = {case.name.split(",")[0] for case in CASES}
    for module in ("attention", "kernels", "regression", "ols_transformer"):
        public = set(importlib.import_module(f"transformer_ols.{module}").__all__)
        assert public <= covered | elsewhere, f"{module}: {sorted(public - covered - elsewhere)}"
