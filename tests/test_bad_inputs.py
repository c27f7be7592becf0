"""Every public argument against every class of bad value, generated from the signatures.

The modules' `__all__` say what is public. `CALLS` gives each function, constructor and method one valid call and the kind of each of its
arguments; the bad values follow from the kind. A public name or an argument that the table does not cover fails the first tests.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from conftest import ROOT
from torch import Tensor

matplotlib.use("agg")
import matplotlib.pyplot as plt

from transformer_ols import kernels, nist_problem, plots, prompts, regression, solvers
from transformer_ols.attention import linear_attention, softmax_attention
from transformer_ols.hopfield import HopfieldNetwork, capacity
from transformer_ols.in_context import InContextOLS, LoopedAttention
from transformer_ols.inference import AttentionInference
from transformer_ols.memory import FastWeightMemory, RecursiveLeastSquares
from transformer_ols.ols_transformer import OLSTransformer, spectral_factor

SIZES = {"n": 6, "m": 3, "d": 2, "e": 4, "j": 2, "t": 2}
LEFT_OUT = {"checks"}  # takes names and values of any kind; its chapter tests it
RESULTS = {  # records that the library fills and users read
    "AttentionInference",
    "KernelFit",
    "LinearFit",
    "NISTProblem",
    "RegressionTable",
    "Solution",
    "SpectralFactor",
}
INNER = {"init", "step"}  # what `solve` calls in its loop, behind its own door
CALLED = {"__call__", "__getitem__"}  # public though they begin with an underscore

# ---- kinds of arguments: a valid value and the bad ones


@dataclass(frozen=True)
class Bad:
    """One value that must be refused, and how."""

    label: str
    value: Any
    error: type[Exception]


@dataclass(frozen=True)
class Argument:
    """A valid value, the bad ones, and whether None stands for a default."""

    value: Any
    bad: tuple[Bad, ...] = ()
    optional: bool = False
    axes: str = ""
    tied: str = ""  # axes whose length the object or another argument fixes
    fixed_dtype: bool = False  # whether the object fixes the dtype
    is_tensor: bool = False


def bads(error: type[Exception], **values: Any) -> tuple[Bad, ...]:
    return tuple(Bad(label.replace("_", " "), value, error) for label, value in values.items())


def of_type(optional: bool, **values: Any) -> tuple[Bad, ...]:
    """Values of a wrong type, None among them unless it is allowed."""
    return bads(TypeError, **values, **({} if optional else {"none": None}))


NOT_FINITE = bads(ValueError, nan=math.nan, infinity=math.inf, minus_infinity=-math.inf)


def number(value: float, minimum: float = 0.0, *, above: bool = False, below: float | None = None, optional: bool = False) -> Argument:
    """A real number of at least, or above, `minimum`, and perhaps below another."""
    low = (
        {}
        if minimum == -math.inf
        else {"negative": minimum - 1.0, "negative_integer": -1 + int(minimum)} | ({"zero": 0.0} if above else {})
    )
    high = {} if below is None else {"limit": below, "beyond": below + 1}
    others = of_type(optional, string="1.0", list=[1.0], bool=True, tensor=torch.tensor(1.0), array=np.ones(1), complex=1j)
    return Argument(value, NOT_FINITE + bads(ValueError, **low, **high, huge=10**400) + others, optional)


positive, nonnegative = partial(number, above=True), partial(number)
fraction = partial(number, below=1.0)


def count(value: int, minimum: int = 1, *, optional: bool = False) -> Argument:
    """An integer of at least `minimum`."""
    others = of_type(optional, string="2", list=[2], bool=True, float=2.0, nan=math.nan, infinity=math.inf, tensor=torch.tensor(2))
    return Argument(value, bads(ValueError, too_small=minimum - 1, negative=-3) + others, optional)


def flag(value: bool) -> Argument:
    others = of_type(False, integer=1, zero=0, string="True", list=[True], tensor=torch.tensor(True), nan=math.nan)
    return Argument(value, others)


def choice(value: str) -> Argument:
    return Argument(
        value, bads(ValueError, unknown="nonsense", upper=value.upper() + "X") + of_type(False, integer=1, list=[value], flag=True)
    )


def text(value: str) -> Argument:
    return Argument(value, of_type(False, integer=1, list=[value], bytes=b"x"))


def dtype() -> Argument:
    values = {
        "integer": torch.int64,
        "half": torch.float16,
        "complex": torch.complex128,
        "string": "float64",
        "python": float,
        "numpy": np.float64,
    }
    return Argument(torch.float64, of_type(False, **values, list=[torch.float64], tensor=torch.ones(2)))


def generator() -> Argument:
    others = of_type(True, seed=0, string="seed", list=[0], numpy=np.random.default_rng(0), module=torch)
    return Argument(torch.Generator().manual_seed(0), others, optional=True)


def tensor(
    axes: str, value: Tensor | None = None, *, tied: str = "", fixed_dtype: bool = False, optional: bool = False, also: tuple[Bad, ...] = ()
) -> Argument:
    """A floating tensor with the given axes; what else is wrong with it depends on the rest of the call, see `wrong_tensors`."""
    if value is None:
        sizes = [SIZES[axis] for axis in names(axes)]
        value = torch.randn(sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(len(axes)))
    return Argument(value, also, optional, axes, tied, fixed_dtype, is_tensor=True)


def names(axes: str) -> list[str]:
    return [axis for axis in axes.split() if not axis.startswith("*")]


def spoilt(value: Tensor, number: float) -> Tensor:
    """The tensor with one entry replaced."""
    copy = value.clone()
    copy.view(-1)[-1] = number
    return copy


def wrong_tensors(name: str, call: Call) -> Iterator[Bad]:
    """Every class of bad tensor for one argument of a call."""
    argument = call.arguments[name]
    value, axes = argument.value, names(argument.axes)
    yield from bads(ValueError, nan=spoilt(value, math.nan), infinity=spoilt(value, math.inf), minus_infinity=spoilt(value, -math.inf))
    yield from bads(ValueError, meta_device=value.to("meta"))
    yield from bads(
        TypeError, integer=value.to(torch.int64), bool=value > 0, half=value.half(), bfloat=value.bfloat16(), complex=value.cfloat()
    )
    yield from of_type(argument.optional, list=value.tolist(), array=value.numpy(), string="x", dictionary={})
    if len(axes) > 0:
        yield from bads(ValueError, rank_too_low=value.sum(-1) if len(axes) == 1 else value.flatten())
    if "*" not in argument.axes:
        yield from bads(ValueError, rank_too_high=value[None])
    others = [other for key, other in call.arguments.items() if key != name and other.is_tensor]
    if others or argument.fixed_dtype:
        yield from bads(TypeError, other_float=value.float())
    for i, axis in enumerate(axes):
        at = i - len(axes)
        yield Bad(f"empty {axis}", value.narrow(at, 0, 0), ValueError)
        shared = any(axis in names(other.axes) for other in others) or axes.count(axis) > 1
        if shared or axis in argument.tied.split():
            yield Bad(f"wrong length of {axis}", value.narrow(at, 0, value.shape[at] - 1), ValueError)


def mask(shape: tuple[int, ...]) -> Argument:
    """A boolean tensor of the given shape."""
    value = torch.ones(shape, dtype=torch.bool)
    types = of_type(True, float=value.double(), integer=value.int(), string="mask", list=value.tolist(), array=value.numpy(), flag=True)
    shapes = bads(
        ValueError,
        wrong_length=value[..., :-1],
        rank_too_high=value[None],
        empty=value[..., :0],
        meta_device=value.to("meta"),
        nothing_left=~value,
    )
    return Argument(value, types + shapes, optional=True)


def kernel(*also: Bad) -> Argument:
    """A function of two tensors; what it returns is looked at too."""
    types = of_type(False, string="Gaussian", number=1.0, list=[kernels.Gaussian(1.0)], tensor=torch.ones(2, 2))
    returned = bads(
        TypeError, returns_a_list=lambda x, z: [1.0], returns_none=lambda x, z: None, returns_float32=lambda x, z: (x @ z.mT).float()
    )
    values = bads(
        ValueError,
        returns_a_vector=lambda x, z: x[..., 0],
        returns_another_shape=lambda x, z: torch.ones(1, 1, dtype=x.dtype),
        returns_nan=lambda x, z: torch.full_like(x @ z.mT, math.nan),
        returns_infinity=lambda x, z: torch.full_like(x @ z.mT, math.inf),
        returns_meta=lambda x, z: (x @ z.mT).to("meta"),
    )
    return Argument(kernels.Gaussian(1.0), types + returned + values + also)


def numbers(ndim: int | None, value: Tensor, *, length_of: str = "") -> Argument:
    """What a figure takes: a tensor, array or nested list of real numbers, integers included."""
    types = of_type(
        False, string="x", dictionary={}, strings=["a", "b"], complex=value.cfloat(), bool=value > 0, object=np.array([None, {}])
    )
    first = bads(
        ValueError,
        nan=spoilt(value, math.nan),
        infinity=spoilt(value, math.inf),
        list_with_nan=[math.nan],
        empty=value[:0],
        meta=value.to("meta"),
    )
    rank = () if ndim is None else bads(ValueError, rank_too_low=value[0], rank_too_high=value[None], number=1.0)
    length = bads(ValueError, wrong_length=value[:-1]) if length_of else ()
    ragged = bads(TypeError, ragged=[[1.0], [1.0, 2.0]])
    return Argument(value, types + first + rank + length + ragged)


def inside(argument: Argument, wrap: Callable[[Any], Any]) -> tuple[Bad, ...]:
    """The bad values of an argument, put inside something."""
    return tuple(Bad(f"{bad.label} inside", wrap(bad.value), bad.error) for bad in argument.bad)


# ---- the valid calls


@dataclass(frozen=True)
class Call:
    """A function with a valid value, and the bad ones, for each of its arguments."""

    function: Callable[..., Any]
    arguments: dict[str, Argument] = field(default_factory=dict)

    def __call__(self, **changed: Any) -> Any:
        return self.function(**{name: argument.value for name, argument in self.arguments.items()} | changed)

    def wrong(self, name: str) -> Iterator[Bad]:
        argument = self.arguments[name]
        yield from argument.bad
        if argument.is_tensor:
            yield from wrong_tensors(name, self)


def call(function: Callable[..., Any], **arguments: Argument) -> Call:
    return Call(function, arguments)


def positional(function: Callable[..., Any], *order: str) -> Callable[..., Any]:
    """Call by position what has no keywords, such as `prompt[index]`."""
    return lambda **given: function(*(given[name] for name in order))


X, Y, QUERY = tensor("*b n d"), tensor("*b n"), tensor("*b m d")
ATTENTION = {"q": tensor("*b m d"), "k": tensor("*b n d"), "v": tensor("*b n e"), "mask": mask((3, 6))}
FITTED = {"fit_intercept": flag(True), "rtol": fraction(1e-9, optional=True)}
REFINED = FITTED | {"refinements": count(2, 0)}
TARGETS = tensor("*b n", also=bads(ValueError, rank_too_high=Y.value[None, :, None]))
CALLS: dict[str, Call] = {
    "linear_attention": call(linear_attention, **ATTENTION, scale=positive(1.0)),
    "softmax_attention": call(softmax_attention, **ATTENTION, scale=positive(1.0, optional=True)),
    "ols": call(regression.ols, x=X, y=TARGETS, **REFINED, method=choice("svd")),
    "wls": call(
        regression.wls,
        x=X,
        y=TARGETS,
        weights=tensor("*b n", Y.value.abs(), also=bads(ValueError, one_negative=spoilt(Y.value.abs(), -1.0), zeros=0 * Y.value)),
        **REFINED,
    ),
    "ridge_regression": call(regression.ridge_regression, x=X, y=TARGETS, ridge=nonnegative(1.0), **REFINED),
    "kernel_ridge": call(
        regression.kernel_ridge,
        x=X,
        y=TARGETS,
        kernel=kernel(
            Bad("returns something asymmetric", lambda x, z: torch.arange(36.0, dtype=x.dtype).reshape(6, 6), ValueError),
        ),
        ridge=nonnegative(1.0),
    ),
    "nist_problem": call(nist_problem, name=choice("Longley")),
    "LinearFit.predict": call(regression.ols(X.value, Y.value).predict, x=tensor("*b m d", tied="d", fixed_dtype=True)),
    "KernelFit.predict": call(
        regression.kernel_ridge(X.value, Y.value, kernels.Gaussian(1.0), 1.0).predict,
        x_query=tensor("*b m d", tied="d", fixed_dtype=True),
    ),
    "NISTProblem.digits": call(
        nist_problem("Norris").digits,
        intercept=tensor("", torch.tensor(1.0, dtype=torch.float64), fixed_dtype=True),
        coef=tensor("d", torch.ones(1, dtype=torch.float64), tied="d", fixed_dtype=True),
    ),
    "spectral_factor": call(spectral_factor, x=X, ridge=nonnegative(1.0), rtol=fraction(1e-9, optional=True), route=choice("svd")),
}

# ---- kernels

KERNELS: dict[str, tuple[type, dict[str, Argument]]] = {
    "Gaussian": (kernels.Gaussian, {"bandwidth": positive(1.0)}),
    "ExponentialDotProduct": (kernels.ExponentialDotProduct, {"bandwidth": positive(1.0)}),
    "VonMisesFisher": (kernels.VonMisesFisher, {"concentration": positive(1.0)}),
    "Periodic": (kernels.Periodic, {"period": positive(1.0), "bandwidth": positive(1.0)}),
    "Laplace": (kernels.Laplace, {"bandwidth": positive(1.0)}),
    "Polynomial": (kernels.Polynomial, {"degree": count(2), "offset": nonnegative(1.0)}),
    "Linear": (kernels.Linear, {}),
    "ARD": (
        kernels.ARD,
        {
            "bandwidths": Argument(
                (1.0, 2.0),
                of_type(False, number=1.0, string="12", list=[1.0, 2.0], tensor=torch.ones(2), array=np.ones(2))
                + bads(ValueError, empty=())
                + inside(positive(1.0), lambda value: (1.0, value)),
            )
        },
    ),
}
ZERO_ROW = {
    "VonMisesFisher": bads(ValueError, zero_row=torch.zeros(6, 2, dtype=torch.float64)),
    "ARD": bads(ValueError, other_d=torch.ones(6, 3, dtype=torch.float64)),
}


def kernel_calls(name: str, cls: type, parameters: dict[str, Argument]) -> dict[str, Call]:
    """The constructor of a kernel, its methods, and the maps among its softmax factors."""
    one = cls(**{key: argument.value for key, argument in parameters.items()})
    also = ZERO_ROW.get(name, ())
    pair = {"x": tensor("*b n d", also=also), "z": tensor("*b m d", also=also)}
    calls = {name: call(cls, **parameters), f"{name}.__call__": call(one, **pair)}
    if hasattr(one, "log"):
        calls[f"{name}.log"] = call(one.log, **pair)
    if hasattr(one, "softmax_factors"):
        factors, x = one.softmax_factors(), tensor("*b n d", tied="d" if name == "ARD" else "", also=also)
        calls[f"{name}.softmax_factors"] = call(one.softmax_factors)
        for part in ("phi", "psi", "log_a", "log_b"):
            calls[f"{name}.softmax_factors ({part})"] = call(positional(getattr(factors, part), "x"), x=x)
    return calls


for kernel_name, (kernel_class, kernel_parameters) in KERNELS.items():
    CALLS |= kernel_calls(kernel_name, kernel_class, kernel_parameters)


class Log:
    """A kernel that gives its logarithm itself, as it likes."""

    def __init__(self, log: Callable[[Tensor, Tensor], Any]) -> None:
        self.log = log

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        return (x @ z.mT).exp()


MAP = Argument(torch.exp, of_type(False, string="phi", number=1.0, list=[torch.exp], tensor=torch.ones(2)))
CALLS["SoftmaxFactors"] = call(kernels.SoftmaxFactors, phi=MAP, psi=MAP, log_a=MAP, log_b=MAP)
CALLS["row_normalized"] = call(
    kernels.row_normalized,
    kernel=kernel(
        Bad("negative", lambda x, z: -torch.ones_like(x @ z.mT), ValueError),
        Bad("zeros", lambda x, z: torch.zeros_like(x @ z.mT), ValueError),
        Bad("log gives a list", Log(lambda x, z: [1.0]), TypeError),
        Bad("log gives float32", Log(lambda x, z: (x @ z.mT).float()), TypeError),
        Bad("log gives nan", Log(lambda x, z: torch.full_like(x @ z.mT, math.nan)), ValueError),
        Bad("log gives infinity", Log(lambda x, z: torch.full_like(x @ z.mT, math.inf)), ValueError),
        Bad("log gives another shape", Log(lambda x, z: x), ValueError),
        Bad("log is no function", Log(1.0), TypeError),
    ),
    x=QUERY,
    z=X,
    mask=mask((3, 6)),
)

# ---- prompts


def prompt(batch: int = 2, n: int = 6, d: int = 2, m: int = 1) -> prompts.Prompt:
    return prompts.linear_prompts(batch, n, d, m, generator=torch.Generator().manual_seed(0))


def batched(argument: Argument) -> Argument:
    """The same argument with one batch axis of two, and those that another batch axis makes wrong."""
    value = argument.value.expand(2, *argument.value.shape).clone()
    return dataclasses.replace(argument, value=value, bad=bads(ValueError, other_batch=value[:1], no_batch=argument.value))


SPD = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
COUNTS = {name: count(value) for name, value in {"batch": 2, "n": 6, "d": 2, "m": 3}.items()}
DRAWN = {"noise": nonnegative(0.1), "generator": generator(), "dtype": dtype()}
COVARIANCE = tensor(
    "d d",
    SPD,
    tied="d",
    optional=True,
    also=bads(ValueError, asymmetric=SPD + torch.triu(SPD, 1), indefinite=-SPD, singular=torch.ones(2, 2, dtype=torch.float64)),
)
CALLS |= {
    "Prompt": call(
        prompts.Prompt,
        x=batched(X),
        y=batched(Y),
        x_query=batched(QUERY),
        y_query=dataclasses.replace(batched(tensor("*b m")), optional=True),
        mask=mask((2, 6)),
    ),
    "linear_prompts": call(prompts.linear_prompts, **COUNTS, **DRAWN, covariance=COVARIANCE, inputs=choice("normal")),
    "linear_prompts (uniform)": call(
        prompts.linear_prompts,
        **COUNTS,
        inputs=choice("uniform"),
        covariance=Argument(None, bads(ValueError, covariance_of_uniform_inputs=SPD), optional=True),
    ),
    "gp_prompts": call(
        prompts.gp_prompts,
        **COUNTS,
        **DRAWN,
        kernel=kernel(
            Bad("returns something asymmetric", lambda x, z: torch.triu(x @ z.mT), ValueError),
            Bad("returns something indefinite", lambda x, z: -torch.eye(9, dtype=x.dtype), ValueError),
        ),
        inputs=choice("uniform"),
    ),
    "pad_prompts": call(
        prompts.pad_prompts,
        prompts=Argument(
            [prompt(n=4), prompt(n=6)],
            of_type(False, one=prompt(), string="ab", number=1, numbers=[1], iterator=iter([prompt()]), mixed=[prompt(), None])
            + bads(TypeError, dtypes=[prompt(), prompt().to(torch.float32)])
            + bads(
                ValueError,
                empty=[],
                batches=[prompt(), prompt(3)],
                dimensions=[prompt(), prompt(d=3)],
                queries=[prompt(), prompt(m=2)],
                answers=[prompt(), dataclasses.replace(prompt(), y_query=None)],
            ),
        ),
    ),
    "Prompt.to": call(
        prompt().to,
        target=Argument(
            torch.float32,
            of_type(False, number=1, list=[torch.float32], integer=torch.int64, half=torch.float16, python=float)
            + bads(ValueError, nowhere="nowhere", empty="", meta="meta", missing=f"cuda:{torch.cuda.device_count()}"),
        ),
    ),
    "Prompt.__getitem__": call(
        positional(prompt().__getitem__, "index"),
        index=Argument(
            0,
            of_type(False, float=0.0, string="0", list=[0], bool=True, tuple=(0, 0), nan=math.nan)
            + bads(
                TypeError,
                float_tensor=torch.zeros(2),
                int32=torch.zeros(2, dtype=torch.int32),
                boolean_of_another_length=torch.ones(3, dtype=torch.bool),
                boolean_of_another_rank=torch.tensor(True),
            )
            + bads(
                IndexError,
                too_large=2,
                too_small=-3,
                tensor_too_large=torch.tensor([2]),
            )
            + bads(
                ValueError,
                empty_slice=slice(5, 5),
                empty_tensor=torch.tensor([], dtype=torch.int64),
                nothing_chosen=torch.zeros(2, dtype=torch.bool),
                meta_device=torch.tensor([0], device="meta"),
            ),
        ),
    ),
    "Prompt.__getitem__ (of a single one)": call(
        positional(lambda index: prompt()[0][index] if index is not None else None, "index"),
        index=Argument(None, bads(IndexError, zero=0, slice=slice(1), tensor=torch.tensor([0]))),
    ),
}

# ---- solvers

B = torch.tensor([1.0, 2.0], dtype=torch.float64)


def mapping() -> tuple[Bad, ...]:
    """Functions v -> A v that return something else."""
    return bads(
        TypeError, function_gives_list=lambda v: [1.0], function_gives_none=lambda v: None, function_gives_float32=lambda v: v.float()
    ) + bads(ValueError, function_gives_nan=lambda v: v * math.nan, function_gives_other_shape=lambda v: v[..., :1])


def scalar(value: Any, *names: str) -> Argument:
    """A positive number, a tensor of such, or one of some names."""
    plain = tuple(bad for bad in positive(1.0).bad if bad.label not in {"tensor", "string" if names else ""})
    many = torch.ones(2, dtype=torch.float64)
    tensors = bads(
        ValueError, tensor_of_zero=0 * many, tensor_of_negative=-many, tensor_of_nan=many * math.nan, tensor_of_infinity=many / 0
    )
    types = bads(TypeError, tensor_of_integers=torch.ones(2, dtype=torch.int64), tensor_of_half=many.half())
    more = bads(ValueError, empty_tensor=many[:0], meta_tensor=many.to("meta"), **({"unknown": "nonsense"} if names else {}))
    return Argument(value, plain + tensors + types + more)


def bounds() -> Argument:
    types = of_type(True, number=1.0, string="ab", list=[1.0, 2.0], triple=(1.0, 2.0, 3.0), single=(1.0,), tensor=torch.ones(2))
    wrong = bads(ValueError, swapped=(2.0, 1.0), swapped_tensors=(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 4.0])))
    ends = inside(scalar(1.0), lambda value: (value, 2.0)) + inside(scalar(1.0), lambda value: (0.5, value))
    mixed = bads(TypeError, two_dtypes=(torch.ones(2), 2 * torch.ones(2, dtype=torch.float64)))
    return Argument((0.5, 2.5), types + wrong + ends + mixed, optional=True)


def preconditioner() -> Argument:
    value = torch.ones(2, dtype=torch.float64)
    types = of_type(True, string="jacobi", number=1.0, list=[1.0, 1.0], integer=value.long(), half=value.half(), array=value.numpy())
    return Argument(
        value,
        types
        + bads(
            ValueError,
            nan=spoilt(value, math.nan),
            infinity=spoilt(value, math.inf),
            empty=value[:0],
            meta=value.to("meta"),
            number_tensor=value[0],
        ),
        optional=True,
    )


STEP = ("optimal", "lipschitz", "safe")
SOLVERS: dict[str, tuple[type, dict[str, Argument]]] = {
    "Richardson": (solvers.Richardson, {"preconditioner": preconditioner(), "step_size": scalar("safe", *STEP), "bounds": bounds()}),
    "GradientDescent": (solvers.GradientDescent, {"step_size": scalar("safe", *STEP), "bounds": bounds()}),
    "Chebyshev": (solvers.Chebyshev, {"preconditioner": preconditioner(), "bounds": bounds()}),
    "Nesterov": (
        solvers.Nesterov,
        {
            "momentum": Argument(
                "constant",
                tuple(bad for bad in fraction(0.5).bad if bad.label != "string") + bads(ValueError, unknown="nonsense"),
            ),
            "step_size": scalar("safe", *STEP[1:]),
            "bounds": bounds(),
        },
    ),
    "ConjugateGradient": (solvers.ConjugateGradient, {"preconditioner": preconditioner()}),
    "NewtonSchulz": (
        solvers.NewtonSchulz,
        {
            "start": Argument(
                SPD,
                of_type(False, number=1.0, list=[[1.0]], integer=SPD.long(), half=SPD.half(), array=SPD.numpy())
                + bads(
                    ValueError,
                    unknown="nonsense",
                    nan=SPD * math.nan,
                    infinity=SPD / 0,
                    rank=B,
                    rectangular=SPD[:1],
                    empty=SPD[:0, :0],
                    meta=SPD.to("meta"),
                ),
            ),
            "bounds": bounds(),
        },
    ),
}
# What only shows when a solver meets its system: dtype, length, batch axes and what a function returns.
MET = {
    "preconditioner": mapping()
    + bads(TypeError, other_float=torch.ones(2))
    + bads(ValueError, wrong_length=torch.ones(3, dtype=torch.float64), other_batch=torch.ones(3, 2, dtype=torch.float64)),
    "step_size": bads(TypeError, other_float=torch.ones(())) + bads(ValueError, other_batch=torch.ones(3, dtype=torch.float64)),
    "bounds": bads(TypeError, other_float=(torch.ones(()), 3 * torch.ones(())))
    + bads(ValueError, other_batch=(torch.ones(3, dtype=torch.float64), 3 * torch.ones(3, dtype=torch.float64))),
    "momentum": (),
    "start": bads(TypeError, other_float=SPD.float())
    + bads(ValueError, wrong_length=torch.eye(3, dtype=torch.float64), other_batch=SPD.expand(3, 2, 2)),
}


def in_solve(cls: type, parameters: dict[str, Argument]) -> Call:
    """Construct a solver and run it."""
    values = {key: argument.value for key, argument in parameters.items()}
    if "bounds" in values:  # chosen so that the bounds are looked at
        values |= {key: "optimal" for key in ("step_size", "start") if key in values and cls is not solvers.Nesterov}
    arguments = {key: Argument(value, MET[key], parameters[key].optional) for key, value in values.items()}
    return call(lambda **given: solvers.solve(SPD, B, cls(**given), steps=2), **arguments)


for solver_name, (solver_class, solver_parameters) in SOLVERS.items():
    CALLS[solver_name] = call(solver_class, **solver_parameters)
    CALLS[f"{solver_name} (in solve)"] = in_solve(solver_class, solver_parameters)

CALLS["solve"] = call(
    solvers.solve,
    A=tensor("*b j j", SPD, also=mapping() + bads(ValueError, asymmetric=SPD + torch.triu(SPD, 1), indefinite=-SPD)),
    b=tensor("*b j", B),
    solver=Argument(
        solvers.ConjugateGradient(),
        of_type(
            False, cls=solvers.ConjugateGradient, string="cg", number=1, list=[solvers.ConjugateGradient()], function=torch.linalg.solve
        ),
    ),
    steps=count(2),
    tol=positive(1e-6, optional=True),
    keep_iterates=flag(True),
)

# ---- the OLS transformer

model = OLSTransformer.from_data(X.value, Y.value)
CALLS |= {
    "OLSTransformer": call(
        OLSTransformer,
        n=count(6),
        d=count(2),
        outputs=count(2, optional=True),
        batch=Argument((2,), of_type(False, number=2, list=[2], string="2") + inside(count(2), lambda value: (2, value))),
        dtype=dtype(),
    ),
    "OLSTransformer.from_data": call(OLSTransformer.from_data, x=X, y=TARGETS, ridge=nonnegative(1.0), **FITTED, route=choice("svd")),
    "OLSTransformer.forward": call(model, x_new=tensor("*b m d", tied="d", fixed_dtype=True)),
    "OLSTransformer.attend": call(model.attend, x_new=tensor("*b m d", tied="d", fixed_dtype=True)),
    "OLSTransformer.self_attention": call(model.self_attention, x=tensor("*b m d", tied="d", fixed_dtype=True)),
    "OLSTransformer.extra_repr": call(model.extra_repr),
}

# ---- inference

inferred = AttentionInference.from_data(X.value, Y.value)
KIND, LEVEL = choice("HC3"), positive(0.9, below=1.0)
NAMES = Argument(
    ["a", "b"],
    of_type(True, string="ab", dictionary={"a": 0, "b": 1}, number=2, tensor=torch.ones(2), label_is_a_number=["a", 1])
    + bads(ValueError, too_few=["a"], too_many=("a", "b", "c"), empty=[]),
    optional=True,
)
SIZE = Y.value.abs()
ABOVE_ZERO = tensor("*b n", SIZE, optional=True, also=bads(ValueError, one_negative=spoilt(SIZE, -1.0), one_zero=spoilt(SIZE, 0.0)))
CALLS |= {
    "AttentionInference.from_data": call(AttentionInference.from_data, x=X, y=TARGETS, weights=ABOVE_ZERO, **FITTED),
    "AttentionInference.covariance": call(inferred.covariance, kind=KIND),
    "AttentionInference.standard_errors": call(inferred.standard_errors, kind=KIND),
    "AttentionInference.t_values": call(inferred.t_values, kind=KIND),
    "AttentionInference.p_values": call(inferred.p_values, kind=KIND),
    "AttentionInference.confidence_intervals": call(inferred.confidence_intervals, level=LEVEL, kind=KIND),
    "AttentionInference.summary": call(inferred.summary, names=NAMES, kind=KIND, level=LEVEL),
}

# ---- memories
SIZED = {
    "d": count(2),
    "k": count(2),
    "batch": Argument(
        (), of_type(False, number=3, list=[3], string="3", float=(1.0,), flag=(True,)) + bads(ValueError, zero=(0,), negative=(-2,))
    ),
    "dtype": dtype(),
}
KEPT = number(0.9, above=True), bads(ValueError, above_one=1.01, two=2.0)
kept = Argument(KEPT[0].value, KEPT[0].bad + KEPT[1])
SLOW = tensor(
    "d d",
    SPD,
    tied="d",
    fixed_dtype=True,
    optional=True,
    also=bads(ValueError, asymmetric=SPD + torch.triu(SPD, 1), indefinite=-SPD, singular=torch.ones(2, 2, dtype=torch.float64)),
)
CALLS |= {
    "FastWeightMemory": call(FastWeightMemory, **SIZED, rule=choice("delta"), rate=positive(0.1), decay=kept, slow=SLOW),
    "RecursiveLeastSquares": call(RecursiveLeastSquares, **SIZED, ridge=positive(1.0), forgetting=kept),
}
for memory in (FastWeightMemory(2, 4), RecursiveLeastSquares(2, 4)):
    kind, pairs = (
        type(memory).__name__,
        {"x": tensor("*b n d", tied="d", fixed_dtype=True), "y": tensor("*b n e", tied="e", fixed_dtype=True)},
    )
    CALLS |= {
        f"{kind}.predict": call(memory.predict, x=tensor("*b m d", tied="d", fixed_dtype=True)),
        f"{kind}.update": call(memory.update, **pairs),
        f"{kind}.forward": call(memory.forward, **pairs),
        f"{kind}.extra_repr": call(memory.extra_repr),
    }

# ---- associative memories

PATTERNS, STATES = X.value.sign(), QUERY.value.sign()
binary, continuous = HopfieldNetwork(PATTERNS), HopfieldNetwork(X.value, kind="softmax")
not_signs = bads(ValueError, zero_bit=spoilt(PATTERNS, 0.0), real=X.value)
SIGNED = tensor("*b m d", STATES, tied="d", fixed_dtype=True, also=bads(ValueError, zero_bit=spoilt(STATES, 0.0)))
BIT = count(1, 0, optional=True)
overlap = Argument(0.8, positive(1.0).bad + bads(ValueError, above_one=1.1))
CALLS |= {
    "HopfieldNetwork": call(
        HopfieldNetwork,
        patterns=tensor("*b n d", PATTERNS, also=not_signs),
        kind=choice("exponential"),
        degree=count(2),
        beta=positive(1.0),
    ),
    "HopfieldNetwork.energy": call(binary.energy, state=SIGNED),
    "HopfieldNetwork.update": call(binary.update, state=SIGNED, bit=dataclasses.replace(BIT, bad=BIT.bad + bads(ValueError, too_large=2))),
    "HopfieldNetwork.update (softmax)": call(
        continuous.update,
        state=tensor("*b m d", tied="d", fixed_dtype=True, also=bads(ValueError, overflow=1e308 * STATES)),
        bit=Argument(None, bads(ValueError, any=0), optional=True),
    ),
    "HopfieldNetwork.retrieve": call(binary.retrieve, state=SIGNED, steps=count(2)),
    "capacity": call(
        capacity,
        d=count(10, 2),
        kind=choice("polynomial"),
        degree=count(2),
        beta=positive(1.0),
        start=overlap,
        goal=overlap,
        steps=count(1),
        every=flag(False),
        networks=count(1),
        probes=count(5),
        tolerance=positive(0.1),
        limit=count(1000, 2),
        generator=generator(),
        dtype=dtype(),
    ),
}

# ---- in context

IN_CONTEXT = InContextOLS(SPD)
STACK = LoopedAttention(SPD, B / 100)


def asked(d: int = 2) -> Argument:
    """A prompt for a module with two features in float64."""
    types = of_type(False, tensor=X.value, list=[prompt()], string="prompt", number=1, cls=prompts.Prompt)
    wrong = bads(TypeError, other_float=prompt().to(torch.float32)) + bads(ValueError, other_d=prompt(d=3))
    return Argument(prompt(d=d), types + wrong)


WEIGHT = tensor("*b j j", SPD)
LAYERS = {name: tensor("t", B / 100, optional=name != "steps") for name in ("steps", "momenta", "sharpening")}
CALLS |= {
    "InContextOLS": call(InContextOLS, weight=WEIGHT),
    "InContextOLS.from_context": call(InContextOLS.from_context, x=X, mask=mask((6,)), rtol=fraction(1e-9, optional=True)),
    "InContextOLS.from_population": call(
        InContextOLS.from_population,
        covariance=tensor("*b j j", SPD, also=bads(ValueError, asymmetric=SPD + torch.triu(SPD, 1), indefinite=-SPD, zero=0 * SPD)),
        n=count(6),
        noise=nonnegative(0.1),
    ),
    "InContextOLS.forward": call(IN_CONTEXT, prompt=asked()),
    "InContextOLS.attend": call(IN_CONTEXT.attend, prompt=asked()),
    "InContextOLS.extra_repr": call(IN_CONTEXT.extra_repr),
    "LoopedAttention": call(LoopedAttention, weight=WEIGHT, **LAYERS, tied=flag(False)),
    "LoopedAttention (tied)": call(
        LoopedAttention,
        weight=tensor("*b j j", SPD, also=bads(ValueError, asymmetric=SPD + torch.triu(SPD, 1), indefinite=-SPD)),
        steps=LAYERS["steps"],
        tied=flag(True),
    ),
    "LoopedAttention.from_bounds": call(
        LoopedAttention.from_bounds,
        method=choice("chebyshev"),
        weight=WEIGHT,
        bounds=Argument(
            (0.5, 2.5),
            of_type(False, number=1.0, string="ab", list=[1.0, 2.0], triple=(1.0, 2.0, 3.0), single=(1.0,), tensor=torch.ones(2))
            + bads(ValueError, swapped=(2.0, 1.0))
            + inside(positive(1.0), lambda value: (value, 2.0))
            + inside(positive(1.0), lambda value: (0.5, value)),
        ),
        layers=count(3),
    ),
    "LoopedAttention.forward": call(STACK, prompt=asked()),
    "LoopedAttention.iterates": call(STACK.iterates, prompt=asked()),
    "LoopedAttention.extra_repr": call(STACK.extra_repr),
}

# ---- figures

FRESH = object()  # stands for new axes


def on_axes(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Draw on new axes, and close their figure."""

    def drawn(ax: Any, **given: Any) -> Any:
        figure, axes = plt.subplots()
        try:
            return draw(axes if ax is FRESH else ax, **given)
        finally:
            plt.close(figure)

    return drawn


LABELS = {"ax": Argument(FRESH, of_type(False, string="ax", number=1, list=[])), "xlabel": text("x"), "ylabel": text("y")}
SIX, POSITIVE, MATRIX = X.value[:, 0], X.value[:, 0].abs(), X.value
six = numbers(1, SIX, length_of="x")
not_labels = of_type(False, list=[SIX], string="x", number=1.0, tensor=SIX) + bads(TypeError, label_is_a_number={1: SIX})
CALLS |= {
    "use_style": call(plots.use_style),
    "curves": call(
        on_axes(plots.curves),
        **LABELS,
        x=numbers(1, SIX, length_of="curves"),
        curves=Argument(
            {"a": SIX},
            not_labels + bads(ValueError, empty={}, too_many=dict.fromkeys("abcdefgh", SIX)) + inside(six, lambda value: {"a": value}),
        ),
        log=choice(""),
        markers=flag(True),
    ),
    "curves (logarithmic)": call(
        on_axes(plots.curves),
        **{key: Argument(argument.value) for key, argument in LABELS.items()},
        x=Argument(POSITIVE, bads(ValueError, negative=-POSITIVE, zero=0 * POSITIVE)),
        curves=Argument({"a": POSITIVE}, bads(ValueError, negative={"a": -POSITIVE}, zero={"a": 0 * POSITIVE})),
        log=Argument("xy"),
    ),
    "points_and_lines": call(
        on_axes(plots.points_and_lines),
        **LABELS,
        x=numbers(1, SIX, length_of="y"),
        y=numbers(1, SIX, length_of="x"),
        lines=Argument(
            {"a": (SIX, SIX)},
            not_labels
            + bads(TypeError, no_pair={"a": SIX}, triple={"a": (SIX, SIX, SIX)})
            + inside(six, lambda value: {"a": (SIX, value)})
            + inside(six, lambda value: {"a": (value, SIX)}),
        ),
    ),
    "heatmap": call(
        on_axes(plots.heatmap), **LABELS, matrix=numbers(2, MATRIX), label=text("value"), center=number(0.0, -math.inf, optional=True)
    ),
    "parity": call(
        on_axes(plots.parity), **LABELS, reference=numbers(None, SIX, length_of="values"), values=numbers(None, SIX, length_of="reference")
    ),
}

# ---- what is public


def public() -> dict[str, Callable[..., Any]]:
    """Every public function, constructor and method of the library, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted((ROOT / "transformer_ols").glob("[!_]*.py")):
        if path.stem in LEFT_OUT:
            continue
        module = importlib.import_module(f"transformer_ols.{path.stem}")
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                found |= {name: thing} if name not in RESULTS else {}
                found |= {f"{name}.{method}": function for method, function in methods(thing)}
            elif callable(thing):
                found[name] = thing
    return found


def methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods that the library itself gives a class."""
    for name, function in inspect.getmembers(cls, callable):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        ours = owner.__module__.startswith("transformer_ols")
        inner = name in INNER and cls.__module__.endswith("solvers")
        if ours and not inner and (name in CALLED or not name.startswith("_")):
            yield name, function


def parameters_of(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


PUBLIC = public()
BASE = {name: name.split(" (")[0] for name in CALLS}  # "solve (with a function)" is a second call of "solve"


def test_every_public_name_is_covered() -> None:
    assert sorted(PUBLIC.keys() - set(BASE.values())) == [], "public, but not in CALLS"
    assert sorted(set(BASE.values()) - PUBLIC.keys()) == [], "in CALLS, but not public"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_argument_is_covered(name: str) -> None:
    assert sorted(parameters_of(PUBLIC[name])) == sorted(CALLS[name].arguments)
    for key, argument in CALLS[name].arguments.items():
        assert len(list(CALLS[name].wrong(key))) >= 3, f"{key} has hardly any bad values"
        assert argument.optional or any(bad.value is None for bad in CALLS[name].wrong(key)), f"{key} is never None"


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_results_are_records_that_only_the_library_fills(name: str) -> None:
    """Their constructors check nothing, so their docstrings speak of attributes, not of arguments."""
    (cls,) = (thing for key, thing in everything().items() if key == name)
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    assert "Attributes:" in cls.__doc__
    assert "Args:" not in cls.__doc__
    assert "__post_init__" not in vars(cls)


def everything() -> dict[str, Any]:
    modules = [importlib.import_module(f"transformer_ols.{path.stem}") for path in (ROOT / "transformer_ols").glob("[!_]*.py")]
    return {name: getattr(module, name) for module in modules for name in module.__all__}


# ---- good values pass, bad ones are refused by name


@pytest.mark.parametrize("name", CALLS)
def test_the_valid_call_is_valid(name: str) -> None:
    CALLS[name]()
    for key, argument in CALLS[name].arguments.items():
        if argument.optional:
            CALLS[name](**{key: None})


ARGUMENTS = [(name, key) for name, one in CALLS.items() for key in one.arguments]


@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_bad_values_of_an_argument_are_refused(name: str, key: str) -> None:
    found = {bad.label: complaint(partial(CALLS[name], **{key: bad.value}), bad.error, key) for bad in CALLS[name].wrong(key)}
    faults = [f"{label}: {text}" for label, text in found.items() if text]
    assert not faults, "\n".join(faults)


def complaint(function: Callable[[], Any], error: type[Exception], *keys: str) -> str:
    """What is wrong with how a call fails: it must raise exactly this error, name an argument and end with what to do."""
    try:
        function()
    except Exception as caught:
        message = f"{type(caught).__name__}: {caught}"
        if type(caught) is not error:
            return f"not a {error.__name__} but {message}"
        if not any(re.search(rf"(?<!\w){re.escape(key)}(?!\w)", str(caught)) for key in keys):
            return f"{' or '.join(keys)} is not named in {message}"
        return "" if "; " in message else f"what to do is not said in {message}"
    return f"no error at all, not even a {error.__name__}"


# ---- what only shows in several arguments at once

TENSORS = {name: {key: argument for key, argument in one.arguments.items() if argument.is_tensor} for name, one in CALLS.items()}


def core(argument: Argument) -> Tensor:
    """The value without batch axes."""
    value: Tensor = argument.value
    return value[(0,) * (value.ndim - len(names(argument.axes)))]


def shared_axes(name: str) -> set[str]:
    """The axes of a call's tensors, without those that the object or another argument fixes."""
    arguments = TENSORS[name].values()
    return {axis for a in arguments for axis in names(a.axes)} - {axis for a in arguments for axis in a.tied.split()}


@pytest.mark.parametrize(("name", "axis"), [(name, axis) for name in TENSORS for axis in sorted(shared_axes(name))])
def test_nothing_along_one_axis_of_all_arguments_is_refused(name: str, axis: str) -> None:
    changed = {}
    for key, argument in TENSORS[name].items():
        if axis in names(argument.axes):
            changed[key] = argument.value[(..., *(slice(0) if letter == axis else slice(None) for letter in names(argument.axes)))]
    assert complaint(partial(CALLS[name], **changed), ValueError, *changed) == ""


PAIRS = [(name, *pair) for name, a in TENSORS.items() for pair in combinations([key for key in a if "*" in a[key].axes], 2)]


@pytest.mark.parametrize(("name", "first", "second"), PAIRS)
def test_batch_axes_that_do_not_fit_are_refused(name: str, first: str, second: str) -> None:
    one, other = core(TENSORS[name][first]), core(TENSORS[name][second])
    changed = {first: one.expand(2, *one.shape), second: other.expand(3, *other.shape)}
    assert complaint(partial(CALLS[name], **changed), ValueError, first, second) == ""
