"""What does a transformer compute? Least squares and kernel ridge regression as explicit attention.

The public names of the chapters can be imported from here (the input checks and the figure helpers keep their own
namespaces, `checks` and `plots`); a module is loaded when the name is first used, so that
`import transformer_ols` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .prompts import INPUTS as INPUTS
    from .prompts import Prompt as Prompt
    from .prompts import linear_prompts as linear_prompts
    from .prompts import gp_prompts as gp_prompts
    from .prompts import pad_prompts as pad_prompts
    from .kernels import SoftmaxFactors as SoftmaxFactors
    from .kernels import Gaussian as Gaussian
    from .kernels import row_normalized as row_normalized
    from .kernels import ExponentialDotProduct as ExponentialDotProduct
    from .kernels import ARD as ARD
    from .kernels import VonMisesFisher as VonMisesFisher
    from .kernels import Periodic as Periodic
    from .kernels import Laplace as Laplace
    from .kernels import Polynomial as Polynomial
    from .kernels import Linear as Linear
    from .regression import LinearFit as LinearFit
    from .regression import ols as ols
    from .regression import wls as wls
    from .regression import ridge_regression as ridge_regression
    from .regression import KernelFit as KernelFit
    from .regression import kernel_ridge as kernel_ridge
    from .nist import NIST_PROBLEMS as NIST_PROBLEMS
    from .nist import NISTProblem as NISTProblem
    from .nist import nist_problem as nist_problem
    from .attention import linear_attention as linear_attention
    from .attention import softmax_attention as softmax_attention
    from .solvers import Solution as Solution
    from .solvers import solve as solve
    from .solvers import Richardson as Richardson
    from .solvers import GradientDescent as GradientDescent
    from .solvers import Chebyshev as Chebyshev
    from .solvers import Nesterov as Nesterov
    from .solvers import ConjugateGradient as ConjugateGradient
    from .solvers import NewtonSchulz as NewtonSchulz
    from .ols_transformer import SpectralFactor as SpectralFactor
    from .ols_transformer import spectral_factor as spectral_factor
    from .ols_transformer import OLSTransformer as OLSTransformer
    from .inference import COVARIANCES as COVARIANCES
    from .inference import RegressionTable as RegressionTable
    from .inference import AttentionInference as AttentionInference
    from .memory import FastWeightMemory as FastWeightMemory
    from .memory import RecursiveLeastSquares as RecursiveLeastSquares
    from .hopfield import HopfieldNetwork as HopfieldNetwork
    from .hopfield import capacity as capacity
    from .in_context import InContextOLS as InContextOLS
    from .in_context import LoopedAttention as LoopedAttention

_PUBLIC = {
    "prompts": ("INPUTS", "Prompt", "linear_prompts", "gp_prompts", "pad_prompts"),
    "kernels": (
        "SoftmaxFactors",
        "Gaussian",
        "row_normalized",
        "ExponentialDotProduct",
        "ARD",
        "VonMisesFisher",
        "Periodic",
        "Laplace",
        "Polynomial",
        "Linear",
    ),
    "regression": ("LinearFit", "ols", "wls", "ridge_regression", "KernelFit", "kernel_ridge"),
    "nist": ("NIST_PROBLEMS", "NISTProblem", "nist_problem"),
    "attention": ("linear_attention", "softmax_attention"),
    "solvers": ("Solution", "solve", "Richardson", "GradientDescent", "Chebyshev", "Nesterov", "ConjugateGradient", "NewtonSchulz"),
    "ols_transformer": ("SpectralFactor", "spectral_factor", "OLSTransformer"),
    "inference": ("COVARIANCES", "RegressionTable", "AttentionInference"),
    "memory": ("FastWeightMemory", "RecursiveLeastSquares"),
    "hopfield": ("HopfieldNetwork", "capacity"),
    "in_context": ("InContextOLS", "LoopedAttention"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("transformer_ols")
    if name in _HOME:
        value = getattr(import_module(f"transformer_ols.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'transformer_ols' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__, "__version__"]
