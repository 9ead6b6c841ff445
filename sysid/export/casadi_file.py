"""Export of an identified model as one Python file of CasADi functions, for optimisers."""

from __future__ import annotations

import os
import pprint
import runpy
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from sysid import __version__, store
from sysid.errors import UserError
from sysid.export.file_text import (
    SELF_CHECK_TOLERANCE,
    array_text,
    constants_of,
    evidence_of,
    facts_of,
    name_for_import,
    no_formula,
    wrap,
)
from sysid.gp.kernels import (
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from sysid.model.mean_map import AFFINE_MEANS
from sysid.model.model import JointModel, Model, on_unchanged_model
from sysid.simulation.dynamics import Dynamics

#: Name of the formula of each kernel in `sysid.export.casadi_formulas`.
CASADI_KERNEL_FORMULAS: dict[type[Kernel], str] = {
    SquaredExponential: "squared_exponential",
    Matern32: "matern_32",
    Matern52: "matern_52",
    Linear: "linear",
    Sum: "total",
    Product: "product",
}

WIDTH_OF_STRUCTURE = 90  # characters in a line of the structure, without what stands around it

HOW_TO_INSTALL = 'pip install "sysid-online-gp[control]"'

CASADI_DOCSTRING_TEMPLATE = '''\
"""Identified Gaussian process model as functions of CasADi, exported from sysid {version}.

It needs CasADi 3.6.5 and NumPy 1.20, or newer, and nothing else::

    import {name}  # {remark}
    # x: a regressor (p,), as FEATURES lists it; mean and latent variance (m,) of the targets
    mean, variance, noise_variance = {name}.predict(x, {name}.PARAMETERS)
{steps}
All functions can be differentiated as often as their kernels: ``{name}.predict.jacobian()``.
PARAMETERS is the vector of all numbers that change while the model learns. A model that went on
learning is the same functions with another vector, ``{name}.parameters(model)``, where the toolbox
is installed; elsewhere pass the vector on. Give it as ``casadi.DM``: this saves the conversion.

{facts}

Variances are those of the function; add the noise variance for a measurement. Run as a script, the
file checks itself.
"""'''
STEPS_TEMPLATE = """\

    # One sample: the state are the last outputs and inputs, STATE_FEATURES lists them.
    state = {name}.state(u_past, y_past)
    state, mean = {name}.transition(state, u_now, {name}.PARAMETERS)
    state, mean, variance, noise_variance = {name}.step(state, u_now, {name}.PARAMETERS)

    # 20 samples: inputs (number of inputs, 20), outputs (number of outputs, 20).
    mean, state = {name}.simulation(20)(state, u_coming, {name}.PARAMETERS)
    mean, variance, state = {name}.forecast(20)(state, u_coming, {name}.PARAMETERS)
"""

PARAMETERS_FUNCTION = '''\


def parameters(model):
    """Return the parameters of a model that has gone on learning; this needs the toolbox."""
    from sysid import casadi_parameters

    return casadi.DM(casadi_parameters(model, structure=STRUCTURE))
'''

CASADI_SELF_CHECK_TEMPLATE = '''

def self_check():
    """Return the largest relative deviation from the predictions at export.

    A deviation is relative to the prediction plus a typical size of predictions.
    """
    predicted = [predict(x, PARAMETERS) for x in CHECK_REGRESSORS]
    pairs = [
        (np.array([mean.full() for mean, _, _ in predicted]), CHECK_MEAN),
        (np.array([variance.full() for _, variance, _ in predicted]), CHECK_VARIANCE),
{further_pairs}    ]
{check_of_steps}
    deviations = []
    for found, kept in pairs:
        difference = np.abs(np.ravel(found)[: kept.size] - kept)
        deviations.append(difference / (np.abs(kept) + CHECK_SCALE))
    return float(np.max(np.concatenate(deviations)))


if __name__ == "__main__":
    deviation = self_check()
    passed = deviation < TOLERANCE
    verdict = "as exported" if passed else "NOT the exported model"
    print(f"largest deviation {{deviation:.1e}}: {{verdict}}")
    raise SystemExit(not passed)
'''
CHECK_OF_STEPS = """\
    n_first = len(CHECK_Y_INIT)
    n_steps = len(CHECK_U) - n_first
    if len(OUTPUTS) * n_first < CHECK_Y.size and n_steps > 0:
        first = MODEL.state(CHECK_U[:n_first], CHECK_Y_INIT) if n_first else np.zeros(0)
        mean, _ = MODEL.simulation(n_steps)(first, CHECK_U[n_first:].T, PARAMETERS)
        path = np.concatenate([CHECK_Y_INIT, mean.full().T])
        pairs.append((path, CHECK_Y))"""


@on_unchanged_model
def export_casadi(
    model: Model | JointModel,
    path: str | os.PathLike[str],
    *,
    addition: str = "",
    usage: str = "",
    checks: str = "",
) -> Path:
    """Write a Python file that builds `casadi.Function` objects of the model; return its path.

    The functions are ``predict`` (mean and variance of the targets at a regressor),
    ``transition`` and ``step`` (one sample from a state of the last outputs and inputs, without and
    with the variance), ``simulation(n)`` and ``forecast(n)`` (n samples). CasADi differentiates
    them exactly. Their last argument is the vector of the `casadi_parameters`, so that a model that
    goes on learning needs no new functions. The file states lags and units, and checks itself when
    it is run. It appears under its name only after that check has passed.

    Parameters
    ----------
    model : Model or JointModel
        A single model whose regressors contain other outputs can predict, but not simulate: its
        file has ``predict`` alone.
    path
        Ends in ``.py``; a file of that name is replaced.
    addition
        Python text that extends the model, and precedes the self-check of the file. It may use
        `MODEL`, and may replace ``state``, ``transition``, ``step``, ``simulation`` and
        ``forecast``.
    usage
        Text about the addition for the docstring of the file.
    checks
        Further pairs ``(found, kept)`` for the self-check, as text that begins with a comma.

    Raises
    ------
    ValueError
        If CasADi is not installed, the path has another ending, or a kernel or a mean function is
        not part of the toolbox.
    sysid.StoreError
        If the file cannot be written; nothing is left.
    """
    if Path(path).suffix != ".py":
        raise UserError(f"export_casadi: expected a name that ends in .py, got {os.fspath(path)!r}")
    check_casadi()
    models = model.models if isinstance(model, JointModel) else (model,)
    window = None  # first outputs that a free run needs; None: the file cannot simulate
    if len(models) == len(models[0].narx.output_names):
        window = int(Dynamics(model).feeds_back)
    source = Path(__file__).with_name("casadi_formulas.py").read_text(encoding="utf-8")
    _, _, formulas = source.split('"""', 2)  # without its docstring
    text = "\n".join(
        [
            _docstring(models, Path(path).stem, window, usage),
            formulas,
            "",
            *constants_of(models),
            *_model(models, window),
            PARAMETERS_FUNCTION,
            "",
            addition,
            *evidence_of(models, window),
            f"TOLERANCE = {SELF_CHECK_TOLERANCE!r}",
            CASADI_SELF_CHECK_TEMPLATE.format(
                check_of_steps="" if window is None else CHECK_OF_STEPS,
                further_pairs=f"        {checks.removeprefix(', ')},\n" if checks else "",
            ),
        ]
    )
    deviation = _run_self_check(text)
    if not deviation < SELF_CHECK_TOLERANCE:
        raise UserError(
            f"the model cannot be exported: the file deviates from it by {deviation:.3g}; a likely "
            "reason is a badly conditioned model, which a larger noise variance avoids"
        )
    return store.write_bytes(text.encode(), path)


@on_unchanged_model
def casadi_parameters(
    model: Model | JointModel, *, structure: Mapping[str, Any] | None = None
) -> np.ndarray:
    """Return the numbers of a model that change while it learns, as the files of `export_casadi`.

    Points beyond those that are stored, up to the budget, are zeros: the vector of a model keeps
    its length while it learns. `casadi.DM` of it is the last argument of the functions.

    Parameters
    ----------
    model : Model or JointModel
    structure : mapping, optional
        ``STRUCTURE`` of an exported file, with which that of the model is compared.

    Returns
    -------
    (n,)

    Raises
    ------
    ValueError
        If a kernel or a mean function is not part of the toolbox, or the model has another
        structure: other signals, lags, kernels, limits or budgets.
    """
    models = model.models if isinstance(model, JointModel) else (model,)
    if structure is not None:
        own = _structure(models)
        for name, expected in structure.items():
            if own[name] != expected:
                raise UserError(
                    f"casadi_parameters: expected a model with the {name} of the exported file, "
                    f"{expected}, got {own[name]}; export this model anew"
                )
    return np.concatenate([_vector(each) for each in models])


def check_casadi() -> None:
    """Raise UserError if CasADi is not installed."""
    try:
        import casadi  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"the export to CasADi needs CasADi, which also checks the file: {HOW_TO_INSTALL}"
        ) from error


def _run_self_check(text: str) -> float:
    """Return the deviation that a file with this text finds when it checks itself."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "exported.py"
        file.write_text(text, encoding="utf-8")
        return float(runpy.run_path(str(file))["self_check"]())


def _docstring(models: Sequence[Model], name: str, window: int | None, usage: str) -> str:
    """Return the docstring of the file, which describes its use and its content."""
    name, remark = name_for_import(name)
    return CASADI_DOCSTRING_TEMPLATE.format(
        version=__version__,
        name=name,
        remark=remark,
        steps="" if window is None else STEPS_TEMPLATE.format(name=name),
        facts="\n".join(facts_of(models, usage)),
    )


def _structure(models: Sequence[Model]) -> dict[str, Any]:
    """Return what a file takes as unchanged, as plain values."""
    narx = models[0].narx
    return {
        "features": narx.features,
        "targets": tuple(model.narx.target for model in models),
        "kind of target": narx.predict.value,
        "kernels": tuple(_kernel_text(model.gp.point_kernel) for model in models),
        "coordinates": tuple(model.gp.n_features for model in models),
        "coefficients of the linear part": tuple(model.gp.n_linear for model in models),
        "budgets": tuple(model.gp.budget for model in models),
        "learning": tuple(model.gp.learning.value for model in models),
        "limits": tuple(tuple(map(repr, model.limits)) for model in models),
    }


def _model(models: Sequence[Model], window: int | None) -> list[str]:
    """Return the assignments of the structure, the parameters, the model and its functions."""
    stated = {"features": "FEATURES", "targets": "TARGETS"}  # by `constants_of`
    structure = {name: value for name, value in _structure(models).items() if name not in stated}
    lines = [
        "#: what a model that goes on learning has in common with this one",
        "STRUCTURE = {",
        *[f'    "{name}": {constant},' for name, constant in stated.items()],
        f"    **{pprint.pformat(structure, indent=4, width=WIDTH_OF_STRUCTURE, sort_dicts=False)},",
        "}",
        "STRUCTURES = (",
    ]
    for model in models:
        gp = model.gp
        lowest, highest = model.limits
        lines += [
            "    Structure(",
            *wrap(f"        kernel={_kernel_text(gp.point_kernel)},"),
            f"        n_features={model.narx.n_features},",
            f"        n_coordinates={gp.n_features - gp.n_linear},",
            f"        n_points={gp.budget},",
            f"        n_linear={gp.n_linear},",
            f"        learns_every_sample={gp.learns_every_sample},",
            f'        lowest=float("{lowest!r}"),',
            f'        highest=float("{highest!r}"),',
            "    ),",
        ]
    vector = np.concatenate([_vector(model) for model in models])
    lines += [
        ")",
        array_text("PARAMETERS", vector),
        "PARAMETERS = casadi.DM(PARAMETERS)",
        "MODEL = ExportedModel(",
        f"    STRUCTURES, OUTPUTS, INPUTS, FEATURES, IS_CHANGE, {window is not None}",
        ")",
        "predict = MODEL.predict",
    ]
    if window is not None:
        lines += [
            "STATE_FEATURES = MODEL.state_features  # signal and lag of every element of a state",
            "state = MODEL.state",
            "transition = MODEL.transition",
            "step = MODEL.step",
            "simulation = MODEL.simulation",
            "forecast = MODEL.forecast",
        ]
    return lines


def _kernel_text(kernel: Kernel) -> str:
    """Return a kernel without its parameters as text: its formula, or its formula and parts."""
    if type(kernel) not in CASADI_KERNEL_FORMULAS:
        raise no_formula(kernel)
    name = CASADI_KERNEL_FORMULAS[type(kernel)]
    if isinstance(kernel, Sum | Product):
        return f"({name}, ({', '.join(_kernel_text(part) for part in kernel.parts)}))"
    return name


def _kernel_parameters(kernel: Kernel) -> np.ndarray:
    """Return the parameters of the parts of a kernel, in the order of its text."""
    if isinstance(kernel, Sum | Product):
        return np.concatenate([_kernel_parameters(part) for part in kernel.parts])
    return kernel.parameters()


def _vector(model: Model) -> np.ndarray:
    """Return the parameters of one model (n,), in the order of ``Structure.shapes``."""
    if type(model.mean) not in AFFINE_MEANS:
        raise no_formula(model.mean)
    _kernel_text(model.gp.point_kernel)  # raises an error for a kernel of the user
    gp = model.gp
    state = gp.state()
    n = gp.n_points
    n_linear = gp.n_linear
    d = gp.n_features - n_linear
    origin = np.zeros((1, model.narx.n_features))
    points = np.zeros((gp.budget, d))
    points[:n] = state["inputs"][state["order"], :d]
    weights = np.zeros(gp.budget)
    weights[:n] = state["weights"]
    factor = np.zeros((gp.budget, gp.budget))
    if n:
        factor[:n, :n] = solve_triangular(state["cholesky"], np.eye(n), trans=1)
    blocks = [
        np.array([gp.noise_variance]),
        model.mean(origin),
        model.mean.gradient(origin)[0],
        model.scaling.offset,
        model.scaling.linear_part().T.ravel(),
        _kernel_parameters(gp.point_kernel),
        points.ravel(),
        weights,
        factor.T[np.triu_indices(gp.budget)],
    ]
    if n_linear:
        blocks += [gp.coefficients, gp.kernel.linear.root().ravel()]  # type: ignore[attr-defined]
    if gp.learns_every_sample:
        size = n_linear + gp.budget
        root = np.zeros((size, size))
        root[: n_linear + n, : n_linear + n] = state["root"]
        blocks.append(root.T[np.tril_indices(size)])
    return np.concatenate(blocks)
