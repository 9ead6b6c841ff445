"""Covariance functions, and the forms from which a training makes them."""

from sysid.kernels.form import Expected, Form, Space
from sysid.kernels.kernel import Kernel
from sysid.kernels.linear import Linear, LinearForm
from sysid.kernels.matern import Matern32, Matern32Form, Matern52, Matern52Form
from sysid.kernels.product import Product, ProductForm
from sysid.kernels.squared_exponential import SquaredExponential, SquaredExponentialForm
from sysid.kernels.stationary import Stationary
from sysid.kernels.sum import Sum, SumForm

__all__ = [
    "Expected",
    "Form",
    "Kernel",
    "Linear",
    "LinearForm",
    "Matern32",
    "Matern32Form",
    "Matern52",
    "Matern52Form",
    "Product",
    "ProductForm",
    "Space",
    "SquaredExponential",
    "SquaredExponentialForm",
    "Stationary",
    "Sum",
    "SumForm",
]
