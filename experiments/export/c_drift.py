"""The physics beside an exported model as C: its drift, translated from Python, and its steps."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.export.standalone_physics import (
    names_of_drift,
    numbers_of,
    simulate_check,
    title_of,
)
from experiments.plant.physics import FittedPhysics
from sysid.errors import UserError
from sysid.export.c_file import CAddition
from sysid.export.c_text import array, comment, number

#: C functions of Python's functions, by name; all take and return one real number.
C_FUNCTIONS = {
    "abs": "fabs",
    "fabs": "fabs",
    "sqrt": "sqrt",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "log10": "log10",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asin": "asin",
    "arcsin": "asin",
    "acos": "acos",
    "arccos": "acos",
    "atan": "atan",
    "arctan": "atan",
    "floor": "floor",
    "ceil": "ceil",
}
#: C operators of Python's.
OPERATORS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.And: "&&",
    ast.Or: "||",
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Not: "!",
}
#: Parameters of a drift in C, in their order in Python.
DRIFT_PARAMETERS = ("time", "state", "input", "noise", "parameters", "derivative")

DECLARATIONS = """
/* Physics beside the model: {system}. Its signals {signals}
 * are inputs of the model. Keep its state beside that of the model.
 */
enum {{
    MODEL_N_GIVEN = {n_given},  /* inputs that you give: {given} */
    MODEL_N_PHYSICS = {n_states} /* states of the physics: {states} */
}};

typedef struct {{
    model_real time;                  /* s */
    model_real x[MODEL_N_PHYSICS];
}} model_physics;

/* Begin at the initial state of the model; set `x` if you know a better one. */
void model_physics_init(model_physics *physics);

/* Write the inputs u of the model at this sample: the given ones and the signals of the physics. */
void model_physics_inputs(const model_physics *physics, const model_real given[], model_real u[]);

/* Bring the physics to the next sample; the given inputs are held until then. Returns a code. */
int model_physics_advance(model_physics *physics, const model_real given[]);
"""

SOURCE = """
/* Physics: the classical Runge-Kutta method integrates the drift. */
{numbers}

{drift}

void model_physics_init(model_physics *physics)
{{
    physics->time = 0;
    memcpy(physics->x, PHYSICS_INITIAL, sizeof physics->x);
}}

void model_physics_inputs(const model_physics *physics, const model_real given[], model_real u[])
{{
    real signals[{n_signals}];
    for (int i = 0; i < {n_signals}; i++) {{
        signals[i] = PHYSICS_OFFSET[i]
            + dot(PHYSICS_MATRIX + i * MODEL_N_PHYSICS, physics->x, MODEL_N_PHYSICS);
    }}
    for (int i = 0; i < MODEL_N_INPUTS; i++) {{
        int source = PHYSICS_SOURCE[i];
        u[i] = source < MODEL_N_GIVEN ? given[source] : signals[source - MODEL_N_GIVEN];
    }}
}}

int model_physics_advance(model_physics *physics, const model_real given[])
{{
    static const real share[4] = {{0, R(0.5), R(0.5), 1}};
    real input[{n_inputs} + 1]; /* it may have none */
    real x[MODEL_N_PHYSICS];
    real h = R({dt}) / R({substeps});
    if (!are_finite(given, MODEL_N_GIVEN)) {{
        return MODEL_NOT_FINITE;
    }}
    for (int i = 0; i < {n_inputs}; i++) {{
        input[i] = given[PHYSICS_GIVEN[i]];
    }}
    memcpy(x, physics->x, sizeof x);
    for (int j = 0; j < {substeps}; j++) {{
        real slope[4][MODEL_N_PHYSICS];
        real t = physics->time + (real)j * h;
        for (int k = 0; k < 4; k++) {{
            real point[MODEL_N_PHYSICS];
            for (int i = 0; i < MODEL_N_PHYSICS; i++) {{
                point[i] = k ? x[i] + share[k] * h * slope[k - 1][i] : x[i];
            }}
            physics_drift(t + share[k] * h, point, input, PHYSICS_NOISE, PHYSICS_PARAMETERS,
                          slope[k]);
        }}
        for (int i = 0; i < MODEL_N_PHYSICS; i++) {{
            x[i] += h / R(6.0)
                * (slope[0][i] + R(2.0) * slope[1][i] + R(2.0) * slope[2][i] + slope[3][i]);
            x[i] = clip(x[i], PHYSICS_LOWEST[i], PHYSICS_HIGHEST[i]);
        }}
    }}
    if (!are_finite(x, MODEL_N_PHYSICS)) {{
        return MODEL_DIVERGED;
    }}
    physics->time += R({dt});
    memcpy(physics->x, x, sizeof x);
    return MODEL_OK;
}}
"""

CHECK = """
/* Largest deviation of the signals of the physics, relative to their largest values. */
static real check_physics(void)
{{
    model_physics physics;
    real largest = 0;
    model_physics_init(&physics);
    memcpy(physics.x, PHYSICS_CHECK_STATE, sizeof physics.x);
    for (int k = 0; k < {n}; k++) {{
        real u[MODEL_N_INPUTS];
        model_physics_inputs(&physics, PHYSICS_CHECK_GIVEN + k * MODEL_N_GIVEN, u);
        for (int i = 0; i < MODEL_N_INPUTS; i++) {{
            int signal = PHYSICS_SOURCE[i] - MODEL_N_GIVEN;
            if (signal >= 0) {{
                real expected = PHYSICS_CHECK[k * {n_signals} + signal];
                real deviation = ABS(u[i] - expected) / PHYSICS_CHECK_SIZE[signal];
                largest = deviation <= largest ? largest : deviation;
            }}
        }}
        model_physics_advance(&physics, PHYSICS_CHECK_GIVEN + k * MODEL_N_GIVEN);
    }}
    return largest;
}}
"""


def physics_as_c(
    fitted: FittedPhysics, model_inputs: Sequence[str], *, precision: str
) -> CAddition:
    """Return the physics beside a model as C, for `sysid.export_c`.

    Raises
    ------
    ValueError
        The drift is not straight scalar code, the inputs are not held between samples, an output or
        the initial state is not affine, or parameters change over time.
    """
    physics = fitted.physics
    system = physics.system
    title = title_of(fitted)
    fields = numbers_of(fitted, title)
    if physics.interpolation != "held":
        raise UserError(
            f"{title} as C: its inputs are {physics.interpolation} between samples, and C knows no "
            "input before its time; identify with physics.interpolation=held, or use format=numpy"
        )
    signals = list(physics.signals)
    inputs = list(fields["inputs"])  # type: ignore[call-overload]
    given = [name for name in model_inputs if name not in signals]
    given += [name for name in inputs if name not in given]
    places = [*given, *signals]
    lowest_state, directions, shares = (
        np.asarray(fields[name]) for name in ("lowest", "directions", "shares")
    )
    lowest, highest = np.asarray(fields["limits"])
    arrays = {
        "PHYSICS_PARAMETERS": fields["parameters"],
        "PHYSICS_NOISE": fields["noise"],
        "PHYSICS_LOWEST": lowest,
        "PHYSICS_HIGHEST": highest,
        "PHYSICS_MATRIX": fields["matrix"],
        "PHYSICS_OFFSET": fields["offset"],
        "PHYSICS_INITIAL": lowest_state + directions @ shares,
    }
    indices = {
        "PHYSICS_SOURCE": np.array([places.index(name) for name in model_inputs]),
        "PHYSICS_GIVEN": np.array([given.index(name) for name in inputs], dtype=int),
    }
    texts = [array(name, np.asarray(values)) for name, values in arrays.items()]
    texts += [array(name, values, "int16_t") for name, values in indices.items()]
    drift = _translate(type(system).drift, title, suffix="f" if precision == "float" else "")
    sizes = {
        "system": type(system).__name__,
        "signals": comment(", ".join(signals)),
        "n_given": len(given),
        "given": comment(", ".join(given)),
        "n_states": len(system.states),
        "states": comment(", ".join(state.name for state in system.states)),
        "n_signals": len(signals),
        "n_inputs": len(inputs),
        "dt": number(float(system.dt)),
        "substeps": system.substeps,
    }
    u, checked = simulate_check(fitted)
    check_given = np.zeros((len(u), len(given)))
    check_given[:, indices["PHYSICS_GIVEN"]] = u
    evidence = {
        "PHYSICS_CHECK_STATE": system.initial_state(),
        "PHYSICS_CHECK_GIVEN": check_given,
        "PHYSICS_CHECK": checked,
        "PHYSICS_CHECK_SIZE": np.maximum(np.abs(checked).max(axis=0), 1e-300),
    }
    check = "\n\n".join(array(name, values) for name, values in evidence.items())
    return CAddition(
        declarations=DECLARATIONS.format(**sizes),
        source=SOURCE.format(numbers="\n\n".join(texts), drift=drift, **sizes),
        check=check + CHECK.format(n=len(u), **sizes),
        call="check_physics()",
        name="physics",
    )


def _translate(drift: Callable[..., None], title: str, *, suffix: str) -> str:
    """Return a drift as a C function.

    Raises
    ------
    ValueError
        The drift is more than assignments and conditions with numbers and functions of `math`.
    """
    constants, _ = names_of_drift(drift, title)
    tree = ast.parse(textwrap.dedent(inspect.getsource(drift)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    python_names = [argument.arg for argument in function.args.args]
    names = dict(zip(python_names, DRIFT_PARAMETERS, strict=True))
    translation = _Translation(names, constants, title, suffix)
    lines = translation.statements(function.body, indent="    ")
    unread_parameters = [name for name in DRIFT_PARAMETERS[:-1] if name not in translation.read]
    unread = sorted(translation.local - translation.read)
    declared = [f"    real {name};" for name in sorted(translation.local)]
    return "\n".join(
        [
            "static void physics_drift(real time, const real *state, const real *input,",
            "                          const real *noise, const real *parameters,",
            "                          real *derivative)",
            "{",
            *declared,
            *[f"    (void){name};" for name in unread_parameters],
            *lines,
            *[f"    (void){name};" for name in unread],
            "}",
        ]
    )


class _Translation:
    """Statements and expressions of a drift, from Python to C."""

    def __init__(
        self, names: Mapping[str, str], constants: Mapping[str, float], title: str, suffix: str
    ) -> None:
        self.local: set[str] = set()  # variables of the drift in C
        self.read: set[str] = set()  # names that expressions use
        self._names = dict(names)
        self._constants = constants
        self._title = title
        self._suffix = suffix

    def statements(self, body: Sequence[ast.stmt], indent: str) -> list[str]:
        """Return the lines of statements."""
        lines: list[str] = []
        for statement in body:
            lines += [f"{indent}{line}" for line in self._statement(statement)]
        return lines

    def _statement(self, statement: ast.stmt) -> list[str]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return []  # the docstring
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            value = self.expression(statement.value)
            return [f"{self._target(statement.targets[0])} = {value};"]
        if isinstance(statement, ast.AugAssign) and type(statement.op) in OPERATORS:
            value = self.expression(statement.value)
            operator = OPERATORS[type(statement.op)]
            target = self._target(statement.target)
            self.read.add(target.partition("[")[0])
            return [f"{target} {operator}= {value};"]
        if isinstance(statement, ast.If):
            lines = [f"if ({self.expression(statement.test)}) {{"]
            lines += self.statements(statement.body, "    ")
            if statement.orelse:
                lines += ["} else {", *self.statements(statement.orelse, "    ")]
            return [*lines, "}"]
        raise self._refusal(statement)

    def _target(self, target: ast.expr) -> str:
        """Return what is assigned: a variable, or a derivative."""
        if isinstance(target, ast.Name):
            name = self._names.setdefault(target.id, f"v_{target.id}")
            if name.startswith("v_"):
                self.local.add(name)
                return name
        if isinstance(target, ast.Subscript):
            text = self.expression(target)
            if text.startswith("derivative["):
                return text
        raise self._refusal(target)

    def expression(self, node: ast.expr) -> str:
        """Return an expression."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return f"R({number(float(node.value))})"
        if isinstance(node, ast.Name) and node.id in self._names:
            self.read.add(self._names[node.id])
            return self._names[node.id]
        if isinstance(node, ast.Name) and node.id in self._constants:
            return f"R({number(float(self._constants[node.id]))})"
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            position = node.slice.value
            if isinstance(position, int):
                return f"{self.expression(node.value)}[{position}]"
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
            return f"({OPERATORS[type(node.op)]}{self.expression(node.operand)})"
        if isinstance(node, ast.Compare) and all(type(op) in OPERATORS for op in node.ops):
            values = [self.expression(value) for value in (node.left, *node.comparators)]
            operators = [OPERATORS[type(op)] for op in node.ops]
            pairs = zip(values[:-1], operators, values[1:], strict=True)
            return f"({' && '.join(f'{a} {op} {b}' for a, op, b in pairs)})"
        if isinstance(node, ast.BoolOp):
            joined = f" {OPERATORS[type(node.op)]} ".join(map(self.expression, node.values))
            return f"({joined})"
        if isinstance(node, ast.IfExp):
            test, yes, no = map(self.expression, (node.test, node.body, node.orelse))
            return f"({test} ? {yes} : {no})"
        if isinstance(node, ast.Call) and not node.keywords:
            return self._call(node)
        raise self._refusal(node)

    def _binary(self, node: ast.BinOp) -> str:
        left, right = self.expression(node.left), self.expression(node.right)
        if isinstance(node.op, ast.Pow):
            return f"pow{self._suffix}({left}, {right})"
        if type(node.op) not in OPERATORS:
            raise self._refusal(node)
        return f"({left} {OPERATORS[type(node.op)]} {right})"

    def _call(self, node: ast.Call) -> str:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        arguments = [self.expression(argument) for argument in node.args]
        if name in ("min", "max", "minimum", "maximum") and len(arguments) == 2:
            return f"{name[:3].upper()}({', '.join(arguments)})"
        if name == "pow" and len(arguments) == 2:
            return f"pow{self._suffix}({', '.join(arguments)})"
        if name in C_FUNCTIONS and len(arguments) == 1:
            return f"{C_FUNCTIONS[name]}{self._suffix}({arguments[0]})"
        raise self._refusal(node)

    def _refusal(self, node: ast.AST) -> UserError:
        """Return the error about Python that has no translation."""
        return UserError(
            f"{self._title} as C: its drift contains {ast.unparse(node)[:80]!r}; expected "
            "assignments and conditions with numbers, indexed arrays and functions of math; write "
            "it so, or use format=numpy"
        )
