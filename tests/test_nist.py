"""Certified problems against their sources and rational arithmetic, and the digits of `ols` against other libraries."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import sklearn.linear_model
import statsmodels.api as sm
import torch
from numpy.typing import NDArray
from rational import binary, digits, exact

from transformer_ols import nist
from transformer_ols.nist import NIST_PROBLEMS, NISTProblem, nist_problem
from transformer_ols.regression import ols

F64 = torch.float64

# ---------------------------------------------------------------- data and certified values


def problem_as_decimals(name: str) -> tuple[list[list[Fraction]], list[Fraction], list[Fraction]]:
    text = files("transformer_ols").joinpath("data/nist_strd.json").read_text()
    entry = json.loads(text, parse_float=Fraction, parse_int=Fraction)["problems"][name]
    return [[Fraction(1), *row] for row in entry["x"]], entry["y"], [entry["intercept"], *entry["coef"]]


@pytest.mark.parametrize("name", NIST_PROBLEMS)
def test_certified_values_are_the_rational_solution(name: str) -> None:
    x, y, certified = problem_as_decimals(name)
    for value, printed in zip(exact(x, y), certified, strict=True):
        assert abs(value - printed) <= abs(value) / (2 * 10**14)  # half a unit of the 15th digit, at worst


def test_longley_is_the_statsmodels_table() -> None:
    data, p = sm.datasets.longley.load_pandas(), nist_problem("Longley")
    assert np.array_equal(p.x.numpy(), data.exog.to_numpy()) and np.array_equal(p.y.numpy(), data.endog.to_numpy())


def test_norris_is_the_file_that_scipy_ships() -> None:
    folder = Path(scipy.__file__).parent / "stats/tests/data/nist_linregress"
    if not folder.exists():
        pytest.skip("this SciPy was installed without its tests")
    text = (folder / "Norris.dat").read_text()
    table = np.array(text.split("Data:       y          x")[1].split(), float).reshape(-1, 2)
    p = nist_problem("Norris")
    assert np.array_equal(p.x[:, 0].numpy(), table[:, 1]) and np.array_equal(p.y.numpy(), table[:, 0])
    for value, row in ((p.intercept, "B0"), (p.coef[0], "B1")):
        found = re.search(rf"\n\s+{row}\s+(\S+)", text)
        assert found and float(found[1]) == value.item()


@pytest.mark.parametrize(("name", "base"), [("Wampler1", 1), ("Wampler2", 10)])
def test_wampler_is_its_formula(name: str, base: int) -> None:
    x, y, certified = problem_as_decimals(name)
    assert x == [[Fraction(t) ** k for k in range(6)] for t in range(21)]
    assert certified == [Fraction(1, base**k) for k in range(6)]
    assert y == [sum(Fraction(t, base) ** k for k in range(6)) for t in range(21)]


# ---------------------------------------------------------------- the count


@pytest.mark.parametrize("power", range(-3, 15))
@pytest.mark.parametrize("place", [0, 1, 6])
def test_the_worst_coefficient_counts(power: int, place: int) -> None:
    p = nist_problem("Longley")
    estimate = torch.cat([p.intercept[None], p.coef])
    estimate[place - 1] *= 1 - 1e-15  # another one, nearly right
    estimate[place] *= 1 + 10.0**-power
    found = p.digits(estimate[0], estimate[1:])
    assert found == pytest.approx(power, abs=0.01 if power < 13 else 0.3)  # the estimate is rounded to 1e-16


def test_no_more_than_fifteen_digits() -> None:
    p = nist_problem("Norris")
    assert p.digits(p.intercept, p.coef) == p.digits(p.intercept * (1 + 2**-52), p.coef) == 15.0
    with pytest.raises(ValueError, match="intercept must have axes"):
        p.digits(torch.zeros(1, dtype=F64), torch.zeros(1, dtype=F64))
    with pytest.raises(TypeError, match="name must be str"):
        nist_problem(3)  # type: ignore[arg-type]


def test_every_call_gives_its_own_data() -> None:
    nist_problem("Norris").x.zero_()
    assert isinstance(nist_problem("Norris"), NISTProblem) and float(nist_problem("Norris").x.norm()) > 0


# ---------------------------------------------------------------- digits against other libraries


def with_ones(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([np.ones(len(x)), x])


def by_scikit_learn(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    model = sklearn.linear_model.LinearRegression().fit(x, y)
    return np.r_[model.intercept_, model.coef_]


LIBRARIES = {
    "numpy lstsq": lambda x, y: np.linalg.lstsq(with_ones(x), y, rcond=None)[0],
    "scipy gelsd": lambda x, y: scipy.linalg.lstsq(with_ones(x), y, lapack_driver="gelsd")[0],
    "scipy gelsy": lambda x, y: scipy.linalg.lstsq(with_ones(x), y, lapack_driver="gelsy")[0],
    "statsmodels pinv": lambda x, y: sm.OLS(y, with_ones(x)).fit(method="pinv").params,
    "statsmodels qr": lambda x, y: sm.OLS(y, with_ones(x)).fit(method="qr").params,
    "scikit-learn": by_scikit_learn,
}


@pytest.mark.parametrize("name", NIST_PROBLEMS)
@pytest.mark.parametrize("method", ["svd", "qr", "cholesky"])
def test_digits_within_one_of_the_best_library(name: str, method: str) -> None:
    p, certified = nist_problem(name), problem_as_decimals(name)[2]
    best = max(digits(list(solve(p.x.numpy(), p.y.numpy())), certified) for solve in LIBRARIES.values())
    fit = ols(p.x, p.y, fit_intercept=True, method=method)
    ours = digits([fit.intercept.item(), *fit.coef.tolist()], certified)
    assert ours >= best - 1
    assert p.digits(fit.intercept, fit.coef) == pytest.approx(ours, abs=0.3)  # the certified values are rounded to float64 there


@pytest.mark.parametrize("name", ["Norris", "Wampler1", "Wampler2"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_refined_to_the_last_digit_of_the_rounded_data(name: str, dtype: torch.dtype) -> None:
    p = nist_problem(name)
    x, y = p.x.to(dtype), p.y.to(dtype)
    truth = exact([[Fraction(1), *row] for row in binary(x)], [Fraction(v) for v in y.tolist()])
    fit = ols(x, y, fit_intercept=True)
    assert digits([fit.intercept.item(), *fit.coef.tolist()], truth) > -math.log10(8 * torch.finfo(dtype).eps)  # a few last places


# ---------------------------------------------------------------- a broken installation


def test_missing_or_damaged_data_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nist, "files", lambda _: tmp_path)
    with pytest.raises(FileNotFoundError, match="is missing; reinstall transformer_ols"):
        nist_problem("Norris")
    (tmp_path / "data").mkdir()
    good = json.loads(files("transformer_ols").joinpath("data/nist_strd.json").read_text())
    good["problems"]["Norris"]["y"].pop()
    for text in ("", "{}", '{"problems": []}', json.dumps(good)):
        (tmp_path / "data/nist_strd.json").write_text(text)
        with pytest.raises(ValueError, match="is damaged at Norris; reinstall"):
            nist_problem("Norris")
