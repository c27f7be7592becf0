"""Checks: every function against every class of bad value, with the message that it must give."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer_ols.checks import (
    check_callable,
    check_choice,
    check_count,
    check_dtype,
    check_enough,
    check_flag,
    check_generator,
    check_instance,
    check_mask,
    check_number,
    check_tensors,
)

quick = settings(deadline=None, derandomize=True, max_examples=60)
sizes = st.integers(1, 4)
batches = st.lists(st.integers(1, 3), max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.float64])
layouts = st.sampled_from(["contiguous", "transposed", "strided", "expanded"])
nan, inf = float("nan"), float("inf")
X, Y = torch.ones(4, 5, 3), torch.ones(4, 5)


def refused(error: type[Exception], text: str, call: Callable[[], object]) -> None:
    """The whole message, not a part of it: `text` up to the end."""
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


def laid_out(shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> Tensor:
    if layout == "transposed":
        return torch.ones(*shape[::-1], dtype=dtype).permute(*range(len(shape) - 1, -1, -1))
    if layout == "strided":
        return torch.ones(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]
    return torch.ones((), dtype=dtype).expand(*shape) if layout == "expanded" else torch.ones(*shape, dtype=dtype)


# tensors ------------------------------------------------------------------------------------------------------------------------


@quick
@given(batches, sizes, sizes, sizes, dtypes, layouts)
def test_agreeing_tensors_return_their_sizes(batch: tuple[int, ...], n: int, d: int, m: int, dtype: torch.dtype, layout: str) -> None:
    x, y, q = (laid_out((*batch, *shape), dtype, layout) for shape in ((n, d), (n,), (m, d)))
    assert check_tensors(x=("*b n d", x), y=("*b n", y), q=("*b m d", q)) == {"n": n, "d": d, "m": m}


@quick
@given(st.lists(batches, min_size=1, max_size=4))
def test_batch_axes_are_taken_exactly_if_they_broadcast(shapes: list[tuple[int, ...]]) -> None:
    arguments = {f"x{i}": ("*b n", torch.ones(*batch, 2)) for i, batch in enumerate(shapes)}
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ValueError, match=r"must have batch axes that broadcast with .*; make them equal"):
            check_tensors(**arguments)
    else:
        assert check_tensors(**arguments) == {"n": 2}


@quick
@given(sizes, sizes, st.integers(0, 3))
def test_ranks_without_batch_axes_are_exact(n: int, d: int, rank: int) -> None:
    x = torch.ones((n, d, 2)[:rank])
    if rank == 2:
        assert check_tensors(x=("n d", x)) == {"n": n, "d": d}
    else:
        text = f"x must have axes (n, d), got shape {tuple(x.shape)}; add or remove an axis"
        refused(ValueError, text, lambda: check_tensors(x=("n d", x)))


@quick
@given(sizes, sizes)
def test_an_axis_named_twice_has_one_size(n: int, other: int) -> None:
    if n == other:
        assert check_tensors(a=("n n", torch.ones(n, n))) == {"n": n}
    else:
        text = f"a must have axes (n, n) with n = {n} (from a), got shape ({n}, {other}); reshape one"
        refused(ValueError, text, lambda: check_tensors(a=("n n", torch.ones(n, other))))


@quick
@given(sizes, sizes)
def test_a_number_is_a_fixed_size(size: int, other: int) -> None:
    if size == other:
        assert check_tensors(a=(f"n {size}", torch.ones(2, other))) == {"n": 2}
    else:
        text = f"a must have axes (n, {size}), got shape (2, {other}); reshape one"
        refused(ValueError, text, lambda: check_tensors(a=(f"n {size}", torch.ones(2, other))))


@quick
@given(batches, sizes, sizes, dtypes, st.sampled_from([nan, inf, -inf]), st.integers(0, 10**6), layouts)
def test_one_bad_number_anywhere_is_found(
    batch: tuple[int, ...], n: int, d: int, dtype: torch.dtype, value: float, place: int, layout: str
) -> None:
    x = laid_out((*batch, n, d), dtype, layout)
    poison = torch.zeros(x.shape, dtype=dtype)
    poison.view(-1)[place % poison.numel()] = value
    text = f"x must be finite, got 1 NaN or infinite of {x.numel()} values; drop or impute them first"
    refused(ValueError, text, lambda: check_tensors(x=("*b n d", x + poison)))


def test_parameters_and_tensors_with_gradients_are_tensors() -> None:
    assert check_tensors(x=("n d", torch.nn.Parameter(torch.ones(2, 3)))) == {"n": 2, "d": 3}
    assert check_tensors() == {}


KINDS = [
    ([[1.0]], "list"),
    (np.ones((2, 3)), "ndarray"),
    (None, "NoneType"),
    (1.0, "float"),
]


@pytest.mark.parametrize(("value", "kind"), KINDS, ids=[kind for _, kind in KINDS])
def test_what_is_no_tensor(value: Any, kind: str) -> None:
    text = f"x must be a torch.Tensor, got {kind}; convert it with torch.as_tensor(x, dtype=torch.float64)"
    refused(TypeError, text, lambda: check_tensors(x=("n d", value)))


def test_a_sparse_tensor_is_refused_with_the_cure() -> None:
    text = "x must be dense, got a sparse tensor; convert it with x.to_dense()"
    refused(TypeError, text, lambda: check_tensors(x=("n d", torch.eye(3).to_sparse())))


@pytest.mark.parametrize("name", ["int64", "int32", "uint8", "bool", "float16", "bfloat16", "complex64", "complex128"])
def test_other_dtypes(name: str) -> None:
    text = f"x must be float32 or float64, got {name}; convert it with x.to(torch.float64)"
    refused(TypeError, text, lambda: check_tensors(x=("n d", torch.ones(2, 3).to(getattr(torch, name)))))


PAIRS = [
    (Y.double(), TypeError, "y must have the dtype of x (float32), got float64; convert one of them"),
    (Y.long(), TypeError, "y must be float32 or float64, got int64; convert it with y.to(torch.float64)"),
    (Y.to("meta"), ValueError, "y must be on the device of x (cpu), got meta; move one of them"),
    (Y[:, :4], ValueError, "y must have axes (*b, n) with n = 5 (from x), got shape (4, 4); reshape one"),
    (torch.tensor(1.0), ValueError, "y must have axes (*b, n), got shape (); add or remove an axis"),
    (Y[:3], ValueError, "y must have batch axes that broadcast with (4,) of the arguments before it, got (3,); make them equal"),
    (Y / 0, ValueError, "y must be finite, got 20 NaN or infinite of 20 values; drop or impute them first"),
]


@pytest.mark.parametrize(("y", "error", "text"), PAIRS)
def test_a_second_tensor_that_does_not_fit(y: Tensor, error: type[Exception], text: str) -> None:
    refused(error, text, lambda: check_tensors(x=("*b n d", X), y=("*b n", y)))


def test_no_numbers() -> None:
    text = "x is on the meta device, which holds no numbers; move the data to cpu or cuda first"
    refused(ValueError, text, lambda: check_tensors(x=("*b n d", X.to("meta"))))
    text = "x is empty, got shape (4, 0, 3); pass at least one element along every axis"
    refused(ValueError, text, lambda: check_tensors(x=("*b n d", X[:, :0]), y=("*b n", Y[:, :0])))


def test_the_kinds_are_compared_before_the_numbers() -> None:
    refused(
        TypeError,
        "y must have the dtype of x (float32), got float64; convert one of them",
        lambda: check_tensors(x=("*b n d", X * nan), y=("*b n", Y.double())),
    )


# scalars ------------------------------------------------------------------------------------------------------------------------


@quick
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-10, 10), st.booleans())
def test_numbers_are_taken_exactly_from_the_minimum_on(value: float, minimum: float, exclusive: bool) -> None:
    if value > minimum or (value == minimum and not exclusive):
        assert check_number("v", value, minimum=minimum, exclusive=exclusive) == value
    else:
        text = f"v must be {'above' if exclusive else 'at least'} {minimum:g}, got {value:g}; pass a larger number"
        refused(ValueError, text, lambda: check_number("v", value, minimum=minimum, exclusive=exclusive))


@pytest.mark.parametrize("value", [2, 2.0, np.float64(2), np.float32(2), np.int64(2), Fraction(2)])
def test_any_real_number_becomes_a_float(value: Any) -> None:
    assert type(check_number("v", value)) is float and check_number("v", value) == 2.0


@pytest.mark.parametrize("value", [True, np.True_, "2", None, 2j, torch.tensor(2.0), np.ones(1), [2.0], Decimal(2)])
def test_what_is_no_real_number(value: Any) -> None:
    refused(TypeError, f"v must be a real number, got {type(value).__name__}; pass a Python float", lambda: check_number("v", value))


@pytest.mark.parametrize(
    ("value", "got"), [(nan, "nan"), (inf, "inf"), (-inf, "-inf"), (10**400, "inf"), (-(10**400), "-inf")], ids=range(5)
)
def test_numbers_that_are_not_finite(value: Any, got: str) -> None:
    for minimum in (0.0, -math.inf):
        text = f"v must be finite, got {got}; pass an ordinary number"
        refused(ValueError, text, lambda minimum=minimum: check_number("v", value, minimum=minimum))


@quick
@given(st.integers(-(10**20), 10**20), st.integers(-5, 5))
def test_counts_are_taken_from_the_minimum_on(value: int, minimum: int) -> None:
    if value >= minimum:
        assert check_count("v", value, minimum=minimum) == value
    else:
        text = f"v must be at least {minimum}, got {value}; pass a larger integer"
        refused(ValueError, text, lambda: check_count("v", value, minimum=minimum))


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2)])
def test_any_integer_becomes_an_int(value: Any) -> None:
    assert type(check_count("v", value)) is int and check_count("v", value) == 2


@pytest.mark.parametrize("value", [True, False, np.True_, 2.0, nan, "2", None, torch.tensor(2), [2], Fraction(2)])
def test_what_is_no_integer(value: Any) -> None:
    refused(TypeError, f"v must be an integer, got {type(value).__name__}; pass a Python int", lambda: check_count("v", value))


# the rest -----------------------------------------------------------------------------------------------------------------------


def test_instances() -> None:
    check_instance("v", 1, int, "pass one")
    check_instance("v", None, (int, type(None)), "pass one")
    refused(TypeError, "v must be int, got str; pass one", lambda: check_instance("v", "1", int, "pass one"))
    refused(TypeError, "v must be int or None, got str; pass one", lambda: check_instance("v", "1", (int, type(None)), "pass one"))


def test_flags() -> None:
    assert check_flag("v", True) is True and check_flag("v", False) is False


@pytest.mark.parametrize("value", [0, 1, 1.0, None, "True", np.True_, torch.tensor(True)])
def test_what_is_no_flag(value: Any) -> None:
    got = type(value).__name__ if type(value).__name__ != "bool" else "numpy.bool"  # NumPy 1 calls it bool_
    refused(TypeError, f"v must be bool, got {got}; pass True or False", lambda: check_flag("v", value))


def test_choices() -> None:
    choices = ("uniform", "normal")
    assert check_choice("v", "normal", choices) == "normal"
    for value in ("Normal", "", "norm", "uniform, normal"):
        text = f"v must be one of 'uniform', 'normal', got {value!r}; choose one of them"
        refused(ValueError, text, lambda value=value: check_choice("v", value, choices))
    for value in (None, 0, ("normal",), b"normal"):
        text = f"v must be str, got {type(value).__name__}; choose one of 'uniform', 'normal'"
        refused(TypeError, text, lambda value=value: check_choice("v", value, choices))


def test_callables() -> None:
    text = "v must be callable, got class Identity; pass a function or a kernel such as Gaussian(1.0)"
    refused(TypeError, text, lambda: check_callable("v", torch.nn.Identity))
    check_callable("v", len)
    check_callable("v", torch.nn.Identity())
    for value in (None, 1.0, "gaussian", X):
        text = f"v must be callable, got {type(value).__name__}; pass a function or a kernel such as Gaussian(1.0)"
        refused(TypeError, text, lambda value=value: check_callable("v", value))


def test_generators() -> None:
    check_generator("v", None)
    check_generator("v", torch.Generator())
    for value, got in ((0, "int"), ("0", "str"), (np.random.default_rng(0), "numpy.random._generator.Generator")):
        text = f"v must be Generator or None, got {got}; pass torch.Generator().manual_seed(0)"
        refused(TypeError, text, lambda value=value: check_generator("v", value))


def test_dtypes() -> None:
    assert check_dtype("v", torch.float32) is torch.float32 and check_dtype("v", torch.float64) is torch.float64
    for value, got in ((torch.float16, "float16"), (torch.int64, "int64"), (torch.bool, "bool"), (torch.complex64, "complex64")):
        text = f"v must be torch.float32 or torch.float64, got {got}; pass dtype=torch.float64"
        refused(TypeError, text, lambda value=value: check_dtype("v", value))
    for value in ("float64", np.float64, float, None, np.dtype("float64"), X, np.ones(2)):
        text = f"v must be torch.float32 or torch.float64, got {type(value).__name__}; pass dtype=torch.float64"
        refused(TypeError, text, lambda value=value: check_dtype("v", value))


@quick
@given(batches, st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple))
def test_masks_are_taken_exactly_if_they_broadcast_into_the_shape(mask: tuple[int, ...], shape: tuple[int, ...]) -> None:
    value = torch.ones(mask, dtype=torch.bool)
    try:
        fits = np.broadcast_shapes(mask, shape) == shape
    except ValueError:
        fits = False
    if fits:
        check_mask("v", value, shape, X)
    else:
        text = f"v must broadcast to {shape}, got shape {mask}; reshape it"
        refused(ValueError, text, lambda: check_mask("v", value, shape, X))


@quick
@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=4), st.booleans())
def test_masks_keep_something_in_every_row(rows: list[list[bool]], transposed: bool) -> None:
    mask = torch.tensor(rows)
    mask = mask.mT.contiguous().mT if transposed else mask
    if all(any(row) for row in rows):
        check_mask("v", mask, (len(rows), 3), X)
    else:
        text = "v must keep at least one entry of every row, got a row of False only; drop that row"
        refused(ValueError, text, lambda: check_mask("v", mask, (len(rows), 3), X))


MASKS = [
    (Y, TypeError, "v must be a boolean tensor, got float32; use True for what is kept, for example v > 0"),
    (Y.long(), TypeError, "v must be a boolean tensor, got int64; use True for what is kept, for example v > 0"),
    ([True] * 5, TypeError, "v must be a boolean tensor, got list; use True for what is kept, for example v > 0"),
    (Y.numpy() > 0, TypeError, "v must be a boolean tensor, got ndarray; use True for what is kept, for example v > 0"),
    (None, TypeError, "v must be a boolean tensor, got NoneType; use True for what is kept, for example v > 0"),
    ((Y > 0).to("meta"), ValueError, "v must be on the device of the data (cpu), got meta; move one of them"),
    (Y[:, :0] > 0, ValueError, "v must broadcast to (4, 5), got shape (4, 0); reshape it"),
    (X > 0, ValueError, "v must broadcast to (4, 5), got shape (4, 5, 3); reshape it"),
]


@pytest.mark.parametrize(("mask", "error", "text"), MASKS)
def test_what_is_no_mask(mask: Any, error: type[Exception], text: str) -> None:
    refused(error, text, lambda: check_mask("v", mask, (4, 5), X))


@quick
@given(st.integers(0, 9), st.integers(0, 9))
def test_enough(count: int, needed: int) -> None:
    if count >= needed:
        check_enough("x", count, needed, "a slope")
    else:
        text = f"x must have at least {needed} rows for a slope, got {count}; add data or fit a smaller model"
        refused(ValueError, text, lambda: check_enough("x", count, needed, "a slope"))


@pytest.mark.parametrize("name", ["x", "x_query", "kernel(x, x)", "prompts[3]"])
def test_every_message_starts_with_the_name_and_ends_with_advice(name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: check_tensors(**{name: ("n", None)}),
        lambda: check_tensors(**{name: ("n", X * nan)}),
        lambda: check_number(name, nan),
        lambda: check_count(name, 0),
        lambda: check_flag(name, 0),
        lambda: check_choice(name, "c", ("a", "b")),
        lambda: check_callable(name, 0),
        lambda: check_generator(name, 0),
        lambda: check_dtype(name, 0),
        lambda: check_mask(name, None, (1,), X),
        lambda: check_enough(name, 0, 1, "a mean"),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=f"^{re.escape(name)} .*, got .*; [a-z]"):
            call()
