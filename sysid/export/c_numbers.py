"""The numbers of a model as C: constant arrays, and the struct that changes while it learns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sysid.errors import UserError
from sysid.export.c_formulas import (
    Covariance,
    LearningRules,
    covariance_of,
    learning_rules_of,
    no_formula,
)
from sysid.export.c_text import array, number
from sysid.gp import dictionary
from sysid.gp.linear_part import WithLinearPart
from sysid.model.mean_map import AFFINE_MEANS
from sysid.model.model import Model

#: Numbers of `model_numbers` of a model that learns: real numbers, then counts.
REAL_NUMBERS = (
    ("noise_variance", "of a measurement"),
    ("diagonal", "added to the diagonal of the points' covariance"),
    ("tolerance", "largest drift of the factors"),
    ("minimum", "smallest acceptance score of the points"),
    ("sum_of_squares", "squared standardised errors since the last update of the scale"),
    ("n_squares", "their number"),
    ("scale_memory", "samples that the scale remembers"),
    ("error_scale", "scale of the gate, where the variances do not follow the errors"),
    ("outlier_level", "level of outliers; the gate opens at a limit"),
)
COUNTS = (
    ("n_stored", "points"),
    ("n_entries", "points that have entered"),
    ("n_clipped", "variances that rounding had made negative"),
    ("n_duplicates", "points that equalled another one when they entered"),
    ("factor_status", "whether the factors must be checked"),
    ("minimum_is_stale", "whether `minimum` must be computed again"),
    ("n_outliers", "samples beyond the gate"),
    ("n_seen", "samples seen, learned or not"),
    ("n_refactorisations", "times that drifted factors were computed again"),
    ("n_renewals", "times that the factors were computed again on schedule"),
    ("has_last_sample", "whether there is a last sample"),
    ("spare", "unused: an even number of counts leaves no gap in the struct"),
)

#: Members of `part` of a model that learns.
MEMBERS_OF_LEARNING = """\
real *triangles;           /* (n + 1, n + 2) F and U */
    real *weights;             /* (n + 1) a */
    real *precision;           /* (n + 1) q */
    real *targets;             /* (n) of the points, by slot */
    real *last_sample;         /* (q + 1) coordinates and target of the last sample learned */
    uint32_t *number;          /* (n) number of the sample that each point was */
    const int16_t *variances;  /* positions of the variances in theta */
    int n_variances;
    int scales;                /* whether all variances follow the errors */
    int sums_squares;          /* whether squared errors are summed */
    int reference;             /* how the acceptance scores of the points are computed */
    real age_memory;           /* of the scores of stored points [samples]; 0: unlimited */
    real gate;                 /* largest standardised error that is learned; 0: all are */
    real gate_opens_after;
    const real *thresholds;    /* of the insertion rule */
    int (*insertion)(real error, real variance, real novelty, const real *thresholds);
    real (*acceptance)(real residual, real variance, real noise);
    real (*reduction)(real residual, real variance, real noise);"""


class Sizes(NamedTuple):
    """Sizes of the arrays of one output."""

    n_points: int
    capacity: int  # points for which there is room
    n_linear: int
    n_coordinates: int
    n_theta: int
    learns: bool

    @property
    def n_point_features(self) -> int:
        """Features of the kernel of the points."""
        return self.n_coordinates - self.n_linear

    @property
    def size(self) -> int:
        """Coordinates of the posterior."""
        return self.n_linear + self.capacity + self.learns

    @property
    def n_root(self) -> int:
        """Entries of M with one below the diagonal in each row."""
        return self.size * (self.size + 3) // 2

    def members(self, every_sample: bool) -> list[tuple[str, str, int, str]]:
        """Return kind, name, length and comment of the arrays that change while a model learns."""
        n = self.capacity
        root = self.n_root if every_sample else 1
        return [
            ("real", "theta", self.n_theta, "parameters of the kernel"),
            ("real", "linear_root", max(1, self.n_linear * (self.n_linear + 1) // 2), "C'"),
            ("real", "points", n * self.n_point_features, "by slot"),
            ("real", "targets", n, "of the points, by slot"),
            ("real", "triangles", (n + 1) * (n + 2), "F and U"),
            ("real", "pivots", n + 1, "1 / diag(U)"),
            ("real", "whitened", self.n_linear + n + 1, "b"),
            ("real", "weights", n + 1, "a"),
            ("real", "precision", n + 1, "q"),
            ("real", "root", root, "M"),
            ("real", "last_sample", self.n_coordinates + 1, "coordinates and target"),
            ("int32_t", "order", n, "slot of each point by age"),
            ("uint32_t", "number", n, "which sample each point was, by slot"),
        ]


class Part(NamedTuple):
    """One output of a model as C."""

    sizes: Sizes
    covariance: Covariance
    rules: LearningRules | None
    every_sample: bool
    constants: str  # definitions of the constant arrays
    n_constants: int  # how many real numbers these have
    n_indices: int  # how many indices these have
    initial: dict[str, np.ndarray]  # values with which the arrays of the state begin
    initial_numbers: dict[str, float]
    view: str  # initialisers of the members of `part`
    members_of_state: list[tuple[str, str, int, str]]


def part_of(model: Model, i: int, *, learns: bool) -> Part:
    """Return the i-th output of a model as C.

    Raises
    ------
    ValueError
        A kernel, a mean function or a rule is not part of the toolbox, or the model forgets.
    """
    gp = model.gp
    if type(model.mean) not in AFFINE_MEANS:
        raise no_formula(model.mean)
    if learns and gp.forgetting is not None and gp.learns_every_sample:
        raise UserError(
            f"learn=true: the model of {model.narx.target!r} forgets (forgetting="
            f"{gp.forgetting:g}), which needs eigenvalues, and C has none; export it with "
            "learn=false, or identify it with forgetting=none"
        )
    covariance = covariance_of(gp.point_kernel)
    rules = learning_rules_of(gp) if learns else None
    state = gp.state()
    sizes = Sizes(
        n_points=gp.n_points,
        capacity=gp.budget if learns else gp.n_points,
        n_linear=gp.n_linear,
        n_coordinates=gp.n_features,
        n_theta=len(covariance.parameters),
        learns=learns,
    )
    initial = _initial_arrays(model, state, sizes, covariance)
    constants, n_constants = _fixed_arrays(model, i, rules, covariance)
    for name, values in initial.items():
        if learns and not len(values) and name not in ("upper", "root"):
            continue  # nothing is copied from it
        kind = "real"
        if name == "order":
            kind = "model_index"
        elif name == "number":
            kind = "uint32_t"
        constants.append(array(f"{name.upper()}_{i}", values, kind))
        n_constants += len(values) if kind == "real" else 0
    return Part(
        sizes=sizes,
        covariance=covariance,
        rules=rules,
        every_sample=gp.learns_every_sample,
        constants="\n\n".join(constants),
        n_constants=n_constants,
        n_indices=sum(len(initial.get(name, ())) for name in ("order", "number")),
        initial=initial,
        initial_numbers=_initial_numbers(model, state),
        view=_view(model, i, sizes, rules, covariance),
        members_of_state=sizes.members(gp.learns_every_sample),
    )


def _initial_arrays(
    model: Model, state: dict[str, np.ndarray], sizes: Sizes, covariance: Covariance
) -> dict[str, np.ndarray]:
    """Return the arrays that a state begins with, or that predictions need."""
    gp = model.gp
    n = sizes.n_points
    n_linear = sizes.n_linear
    root = np.zeros(0)
    if gp.learns_every_sample:
        root = _pack_root(state["root"])
    whitened = np.concatenate([state.get("linear", np.zeros(0)), state["whitened"]])
    linear_root = np.zeros(0)
    if n_linear:
        assert isinstance(gp.kernel, WithLinearPart)
        root_of_prior = gp.kernel.linear.root().T
        linear_root = root_of_prior[np.triu_indices(n_linear)]
    arrays = {
        "theta": covariance.parameters,
        "linear_root": linear_root,
        "points": state["inputs"][:, : sizes.n_point_features].ravel(),
        "upper": state["cholesky"][np.triu_indices(n)],
        "whitened": whitened,
        "root": root,
        "order": state["order"],
    }
    if not sizes.learns:
        arrays["pivots"] = state["pivots"]
        return arrays
    arrays["targets"] = state["targets"]
    arrays["number"] = np.maximum(state["number"], 0)
    arrays["last_sample"] = np.nan_to_num(state.get("last_sample", np.zeros(0)))
    return arrays


def _pack_root(root: np.ndarray) -> np.ndarray:
    """Return the rows of M, each with one entry below its diagonal."""
    rows = [np.concatenate([[0.0], root[k, k:]]) for k in range(len(root))]
    return np.concatenate([*rows, np.zeros(0)])


def _initial_numbers(model: Model, state: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the numbers of `model_numbers` by name."""
    gp = model.gp
    errors = state["errors"]
    counts = dict(zip(dictionary.COUNT_NAMES, state["counts"].tolist(), strict=True))
    return {
        "noise_variance": gp.noise_variance,
        "diagonal": gp.diagonal,
        "tolerance": 0.0,
        "minimum": 0.0,
        "sum_of_squares": errors[dictionary.SUM_OF_SQUARES],
        "n_squares": errors[dictionary.N_SQUARES],
        "scale_memory": errors[dictionary.SCALE_MEMORY],
        "error_scale": errors[dictionary.ERROR_SCALE],
        "outlier_level": errors[dictionary.OUTLIER_LEVEL],
        "n_stored": gp.n_points,
        "n_entries": counts["entries"],
        "n_clipped": counts["clipped"],
        "n_duplicates": counts["near_duplicates"],
        "factor_status": 0,
        "minimum_is_stale": 1,
        "n_outliers": counts["outliers"],
        "n_seen": counts["seen"],
        "n_refactorisations": gp.n_refactorisations,
        "n_renewals": gp.n_renewals,
        "has_last_sample": int("last_sample" in state),
        "spare": 0,
    }


def _fixed_arrays(
    model: Model, i: int, rules: LearningRules | None, covariance: Covariance
) -> tuple[list[str], int]:
    """Return the definitions of arrays that never change, and how many real numbers these have."""
    origin = np.zeros((1, model.narx.n_features))
    scaling = model.scaling
    arrays = {
        f"OFFSET_{i}": scaling.offset,
        f"MAP_{i}": scaling.scale if scaling.matrix is None else scaling.matrix,
        f"SLOPES_{i}": model.mean.gradient(origin)[0],
    }
    if rules is not None:
        arrays[f"THRESHOLDS_{i}"] = rules.thresholds
    texts = [array(name, values) for name, values in arrays.items()]
    if rules is not None:
        texts.append(array(f"VARIANCES_{i}", covariance.variances, "int16_t"))
    return texts, sum(np.size(values) for values in arrays.values())


def _view(
    model: Model, i: int, sizes: Sizes, rules: LearningRules | None, covariance: Covariance
) -> str:
    """Return the initialisers of `part`, by member; what changes comes from the state."""
    gp = model.gp
    lowest, highest = model.limits
    noise = gp.noise_variance
    factor = 1.0
    if model.bands:
        log_horizons, log_factors = np.log(np.array(model.bands).T)
        factor = float(np.exp(np.interp(0.0, log_horizons, log_factors)))
    members: dict[str, object] = {
        "output": model.narx.output_names.index(model.narx.target),
        "n_point_features": sizes.n_point_features,
        "n_linear": sizes.n_linear,
        "capacity": sizes.capacity,
        "every_sample": int(gp.learns_every_sample),
        "has_matrix": int(model.scaling.matrix is not None),
        "offset": f"OFFSET_{i}",
        "map": f"MAP_{i}",
        "slopes": f"SLOPES_{i}",
        "intercept": number(float(model.mean(np.zeros((1, model.narx.n_features)))[0])),
        "lowest": number(lowest),
        "highest": number(highest),
        "band_factor": number(factor),
        "covariance": f"covariance_{i}",
        "covariances": f"covariances_{i}",
    }
    assert noise > 0
    changing = ("theta", "linear_root", "points", "order", "upper", "pivots", "whitened", "root")
    if rules is None:
        members["now"] = f"&NUMBERS_{i}"
        members |= {name: f"{name.upper()}_{i}" for name in changing}
    else:
        weighs_age = gp.forgetting is not None and not gp.learns_every_sample
        members |= {
            "variances": f"VARIANCES_{i}",
            "n_variances": len(covariance.variances),
            "scales": int(gp.scale),
            "sums_squares": int((gp.learns_every_sample and gp.scale) or gp.gate is not None),
            "reference": rules.reference,
            "age_memory": number(gp.forgetting if weighs_age and gp.forgetting else 0.0),
            "gate": number(gp.gate or 0.0),
            "gate_opens_after": gp.gate_opens_after,
            "thresholds": f"THRESHOLDS_{i}",
            "insertion": rules.insertion,
            "acceptance": rules.acceptance,
            "reduction": rules.reduction,
        }
    return "\n".join(f"    .{name} = {value}," for name, value in members.items())
