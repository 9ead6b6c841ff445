"""One kernel of every kind, and the same kernels in scikit-learn as an independent reference."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from sysid.kernels import Linear, Matern32, Matern52, Product, SquaredExponential, Stationary, Sum

NUS = {Matern32: 1.5, Matern52: 2.5}
LENGTHS = (0.7, 1.9, 1.1)

SE = SquaredExponential(1.3, LENGTHS)
M32 = Matern32(0.8, LENGTHS[::-1])
M52 = Matern52(2.1, LENGTHS)
LINEAR = Linear(0.4, (0.6, 0.05, 1.2))

FAMILY = {
    "squared_exponential": SE,
    "matern_32": M32,
    "matern_52": M52,
    "linear": LINEAR,
    "sum": Sum([LINEAR, SE]),
    "product": Product([LINEAR, M52]),
    "sum_of_three": Sum([M32, LINEAR, SE]),
    "nested": Sum([Product([SE, Sum([LINEAR, M32])]), M52]),
    "product_of_products": Product([Product([SE, M32]), LINEAR, Sum([M52, M52])]),
}


def reference(kernel, first, second):
    """Covariance matrix of scikit-learn's kernels."""
    if isinstance(kernel, Sum):
        return sum(reference(part, first, second) for part in kernel.parts)
    if isinstance(kernel, Product):
        return np.prod([reference(part, first, second) for part in kernel.parts], axis=0)
    if isinstance(kernel, Linear):
        root = np.sqrt(kernel.weight_variances)
        return DotProduct(np.sqrt(kernel.offset_variance))(first * root, second * root)
    assert isinstance(kernel, Stationary)
    shape = RBF(kernel.length_scales) if type(kernel) not in NUS else Matern(kernel.length_scales, nu=NUS[type(kernel)])
    return (ConstantKernel(kernel.variance) * shape)(first, second)


def scratch_predict(kernel, noise_variance, inputs, targets, points):
    """Mean and latent variance by explicit inverses."""
    inverse = np.linalg.inv(reference(kernel, inputs, inputs) + noise_variance * np.eye(len(inputs)))
    cross = reference(kernel, points, inputs)
    return cross @ inverse @ targets, np.diag(reference(kernel, points, points) - cross @ inverse @ cross.T)


def scratch_log_likelihood(kernel, noise_variance, inputs, targets):
    """Logarithm of the marginal likelihood by an explicit inverse."""
    ky = reference(kernel, inputs, inputs) + noise_variance * np.eye(len(inputs))
    _, log_determinant = np.linalg.slogdet(ky)
    return -0.5 * (targets @ np.linalg.inv(ky) @ targets + log_determinant + len(targets) * np.log(2 * np.pi))
