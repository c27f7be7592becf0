"""What does a transformer compute? Least squares and kernel ridge regression as explicit attention.

Every public name of the chapters can be imported from here; its module is loaded when the name is first used, so that
`import transformer_ols` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .attention import linear_attention as linear_attention
    from .attention import softmax_attention as softmax_attention
    from .kernels import ARD as ARD
    from .kernels import ExponentialDotProduct as ExponentialDotProduct
    from .kernels import Gaussian as Gaussian
    from .kernels import Laplace as Laplace
    from .kernels import Linear as Linear
    from .kernels import Periodic as Periodic
    from .kernels import Polynomial as Polynomial
    from .kernels import VonMisesFisher as VonMisesFisher
    from .kernels import row_normalized as row_normalized
    from .ols_transformer import OLSTransformer as OLSTransformer
    from .ols_transformer import spectral_factor as spectral_factor
    from .prompts import Prompt as Prompt
    from .prompts import gp_prompts as gp_prompts
    from .prompts import linear_prompts as linear_prompts
    from .regression import kernel_ridge as kernel_ridge
    from .regression import ols as ols
    from .regression import ridge_regression as ridge_regression
    from .regression import wls as wls

_PUBLIC = {
    "prompts": ("Prompt", "linear_prompts", "gp_prompts"),
    "kernels": ("Gaussian", "ExponentialDotProduct", "VonMisesFisher", "ARD", "Periodic", "Laplace", "Polynomial", "Linear", "row_normalized"),
    "regression": ("ols", "ridge_regression", "wls", "kernel_ridge"),
    "attention": ("linear_attention", "softmax_attention"),
    "ols_transformer": ("spectral_factor", "OLSTransformer"),
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
