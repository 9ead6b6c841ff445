"""Export of an identified model as C99 that needs nothing but the mathematics of the C library."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sysid import __version__, store
from sysid.arrays import MAX_MAGNITUDE
from sysid.errors import UserError
from sysid.export.c_evidence import Evidence, evidence_of
from sysid.export.c_formulas import formulas_text
from sysid.export.c_numbers import (
    COUNTS,
    MEMBERS_OF_LEARNING,
    REAL_NUMBERS,
    part_of,
)
from sysid.export.c_text import (
    comment,
    fill,
    identifier,
    number,
    paragraph,
    prefixed,
    template,
)
from sysid.model.model import Z_95, JointModel, Model, on_unchanged_model
from sysid.narx.lags import Narx, Target
from sysid.simulation.dynamics import Dynamics


class Precision(NamedTuple):
    """Real numbers of an exported file."""

    n_bytes: int
    suffix: str  # of the functions of math.h
    constant_suffix: str
    epsilon: str
    largest: str
    max_magnitude: float  # of a value that is accepted: its square is finite
    #: largest deviation in a self-test, in standard deviations of the output
    tolerance: float


#: Precisions by the C type of their numbers.
PRECISIONS = {
    "double": Precision(8, "", "", "DBL_EPSILON", "DBL_MAX", MAX_MAGNITUDE, 1e-6),
    "float": Precision(4, "f", "f", "FLT_EPSILON", "FLT_MAX", 1e15, 2e-2),
}

#: Rows that loops of the templates take together; local arrays have room for as many.
N_GROUPED = 4

#: Compilers that check an exported file, in the order in which they are tried.
COMPILERS = ("cc", "gcc", "clang")

#: What a compiler must be able to compile, so that it checks files.
SMALLEST_PROGRAM = "#include <math.h>\n#include <stdio.h>\nint main(void) { return 0; }\n"

#: Time that a compiler or a self-test may take [s].
MAX_CHECK_SECONDS = 120

MACROS = """\
#include "{header}"

#include <float.h>
#include <math.h>
#include <string.h>

typedef {prefix}_real real;

#define R(value) ((real)value)
#define SQRT sqrt{suffix}
#define EXP exp{suffix}
#define LOG log{suffix}
#define ABS fabs{suffix}
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define EPSILON {epsilon}
#define LARGEST {largest}
#define MAX_MAGNITUDE {max_magnitude}
#define Z_95 {z_95} /* half width of a 95 % band in standard deviations */
#define STORED {stored}
#define N_SIGNALS (MODEL_N_OUTPUTS + MODEL_N_INPUTS)
#define IS_CHANGE {is_change}      /* whether the targets are changes over one sample */
#define HAS_LAG_0 {has_lag_0}      /* whether inputs act at once */
#define MAX_OUTPUT_LAG {max_output_lag} /* samples over which an output is a lag */
#define N_FIRST_OUTPUTS {n_first}  /* first outputs that a free run needs */
#define CHECKED_FROM (2 * sizeof(uint32_t)) /* bytes of a state without a checksum */
#define MODEL_MAX_POINTS {max_points}
#define MODEL_MAX_SIZE {max_size}
#define MODEL_MAX_COORDINATES {max_coordinates}

typedef {index} model_index; /* slot of a point */
"""


class ExportedC(NamedTuple):
    """Files of an exported model, and what they need."""

    source: Path  # .c
    header: Path  # .h
    constant_bytes: int  # numbers in read-only memory; the code takes some 5 to 15 kB beside them
    state_bytes: int  # of the struct with all that changes
    stack_bytes: int  # of the local arrays of the deepest call, about
    #: largest deviation from the model that the compiled file found, in standard deviations of the
    #: output; None: it was not checked, as there is no C compiler here, or it takes minutes
    deviation: float | None
    compiler: str | None  # that checks the file; None: there is none here


class CAddition(NamedTuple):
    """C text that extends a model; ``model_`` at the beginning of names becomes its name."""

    declarations: str  # for the header
    source: str
    check: str  # function of the self-test
    call: str  # of this function, which returns the largest deviation
    name: str  # of the check


@on_unchanged_model
def export_c(
    model: Model | JointModel,
    path: str | os.PathLike[str],
    *,
    learn: bool = False,
    precision: str = "double",
    addition: CAddition | None = None,
) -> ExportedC:
    """Write a C file and its header, which predict, simulate and, if wanted, learn as the model.

    They are C99, allocate nothing, and need nothing but ``math.h``. The header describes its
    functions: ``NAME_step`` takes a measured sample and predicts the next one, ``NAME_predict``
    takes a regressor, ``NAME_simulate`` runs free, and ``NAME_learn`` learns every sample as
    `Model.update` does, with the hyper-parameters as they are. NAME is the name of the file. Where
    there is a C compiler, the file is compiled and checked before it appears under its name.

    Parameters
    ----------
    model : Model or JointModel
        A single model whose regressors contain other outputs can predict, but not simulate.
    path
        Ends in ``.c``; this file and its header, which ends in ``.h``, are replaced.
    learn : bool, default False
        Whether the file also learns. Its state then holds the factors of the stored points.
    precision : str, default double
        ``double`` or ``float``, the C type of all numbers.
    addition : CAddition, optional
        Further functions, such as the physics beside a model.

    Raises
    ------
    ValueError
        The path has another ending; a kernel, a mean function or a rule is not part of the
        toolbox; a model that learns forgets; the compiled file deviates from the model.
    sysid.StoreError
        If a file cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> from sysid import Identification, Narx, Settings
    >>> narx = Narx({"y": 1}, {"u": 1})
    >>> rows = narx.regressors({"y": np.sin(np.arange(120.0)), "u": np.cos(np.arange(120.0))})
    >>> found = Identification(narx, Settings(budget=20))
    >>> _ = found.observe_many(rows.regressor, rows.target)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = export_c(found.model, Path(folder) / "plant.c")
    >>> written.header.name, written.state_bytes < 100
    ('plant.h', True)
    """
    target = Path(path)
    if target.suffix != ".c":
        raise UserError(f"export_c: expected a name that ends in .c, got {os.fspath(path)!r}")
    if precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise UserError(f"precision must be one of {known}, got {precision}")
    models = model.models if isinstance(model, JointModel) else (model,)
    exported = _Exported(models, target.stem, learn=learn, precision=precision, addition=addition)
    header, source = exported.header(), exported.source()
    compiler = _find_compiler()
    deviation = None
    if compiler is not None:
        deviation = _compile_and_check(header, source, target.stem, compiler)
        if deviation is not None and not deviation < PRECISIONS[precision].tolerance:
            raise UserError(
                f"the model cannot be exported as C: the compiled file deviates from it by "
                f"{deviation:.3g} standard deviations of the output; a likely reason is a badly "
                "conditioned model, which a larger noise variance avoids"
                + (", or precision=double" if precision == "float" else "")
            )
    written_header = store.write_bytes(header.encode(), target.with_suffix(".h"))
    written = store.write_bytes(source.encode(), target)
    return ExportedC(
        written,
        written_header,
        exported.constant_bytes,
        exported.state_bytes,
        exported.stack_bytes,
        deviation,
        compiler,
    )


def _find_compiler() -> str | None:
    """Return a C compiler that makes programs for this machine, if there is one."""
    for name in COMPILERS:
        compiler = shutil.which(name)
        if compiler is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "works.c").write_text(SMALLEST_PROGRAM, encoding="utf-8")
            command = [compiler, "-std=c99", "works.c", "-o", "works", "-lm"]
            try:
                for line in (command, [str(Path(folder) / "works")]):
                    _run(line, folder)
            except (OSError, subprocess.SubprocessError):
                continue
        return compiler
    return None


def _run(command: Sequence[str], folder: str, *, check: bool = True) -> str:
    """Run a command in a folder, and return what it printed."""
    ran = subprocess.run(
        command,
        check=check,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=MAX_CHECK_SECONDS,
    )
    return ran.stdout


def _compile_and_check(header: str, source: str, name: str, compiler: str) -> float | None:
    """Return the largest deviation that the self-test of a file finds; None: it takes too long.

    Raises
    ------
    ValueError
        The file does not compile, or its self-test does not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{name}.h").write_text(header, encoding="utf-8")
        (Path(folder) / f"{name}.c").write_text(source, encoding="utf-8")
        command = [compiler, "-std=c99", "-O0", "-DSYSID_TEST", f"{name}.c", "-o", "self_test"]
        try:
            _run([*command, "-lm"], folder)
            said = _run([str(Path(folder) / "self_test")], folder, check=False)
            return float(said.rpartition("largest deviation ")[2].partition(":")[0])
        except subprocess.TimeoutExpired:
            return None
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            said = str(getattr(error, "stderr", "") or error).strip()
            raise UserError(
                f"the exported C could not be checked with {compiler}: {said[:500]}"
            ) from error


class _Exported:
    """Text and sizes of the files of a model."""

    def __init__(
        self,
        models: Sequence[Model],
        file_name: str,
        *,
        learn: bool,
        precision: str,
        addition: CAddition | None,
    ) -> None:
        self._addition = addition
        self._models = models
        self._first = models[0]
        self._narx: Narx = models[0].narx
        self._learns = learn
        self._precision_name = precision
        self._precision = PRECISIONS[precision]
        self._file_name = file_name
        self._prefix = identifier(file_name)
        self._parts = [part_of(model, i, learns=learn) for i, model in enumerate(models)]
        self._can_simulate = len(models) == len(self._narx.output_names)
        self._is_change = self._narx.predict is Target.change
        self._evidence: Evidence = evidence_of(
            models, learns=learn, can_simulate=self._can_simulate, n_first=self._n_first
        )

    # --- sizes --------------------------------------------------------------------------------

    @property
    def _n_first(self) -> int:
        """Number of first outputs that a free run needs."""
        if not self._can_simulate:
            return 0
        joint = JointModel(tuple(self._models))
        return max(int(Dynamics(joint).feeds_back), int(self._is_change))

    @property
    def _n_lags(self) -> int:
        """Number of samples that must be known before the first prediction."""
        return max(self._narx.max_lag, int(self._is_change))

    @property
    def _n_signals(self) -> int:
        return len(self._narx.output_names) + len(self._narx.input_names)

    @property
    def _n_past(self) -> int:
        return max(1, self._n_lags) * self._n_signals

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constant arrays."""
        n_real = sum(part.n_constants for part in self._parts)
        n_indices = sum(part.n_indices for part in self._parts)
        n_bytes_of_index = 4 if self._learns else 2
        features = 4 * self._narx.n_features
        return n_real * self._precision.n_bytes + n_indices * n_bytes_of_index + features

    @property
    def state_bytes(self) -> int:
        """Bytes of the struct that changes."""
        n_bytes = 16 + self._n_past * self._precision.n_bytes
        if self._learns:
            for part in self._parts:
                n_bytes += len(REAL_NUMBERS) * self._precision.n_bytes + 4 * len(COUNTS)
                for kind, _, length, _ in part.members_of_state:
                    n_bytes += length * (self._precision.n_bytes if kind == "real" else 4)
        return n_bytes

    @property
    def stack_bytes(self) -> int:
        """Bytes of the local arrays of the deepest call, about."""
        sizes = [part.sizes for part in self._parts]
        size = max(part.size for part in sizes)
        n_arrays = 8 if self._learns else 3
        n_real = n_arrays * size + 2 * self._narx.n_features + 10 * len(sizes)
        return 256 + n_real * self._precision.n_bytes

    # --- pieces of text -----------------------------------------------------------------------

    @property
    def _has_inputs(self) -> bool:
        return bool(self._narx.input_names)

    @property
    def _has_lag_0(self) -> bool:
        return any(lag == 0 for _, lag in self._narx.features)

    def _arguments(self) -> dict[str, str]:
        """Return the parameters of functions that depend on whether there are inputs."""
        u = ", const model_real u[]" if self._has_inputs else ""
        u_next = ", const model_real u_next[]" if self._has_lag_0 else ""
        return {
            "u": u,
            "u_next": u_next,
            "u_argument": "u" if self._has_inputs else "NULL",
            "u_next_argument": "u_next" if self._has_lag_0 else "NULL",
            "u_of_run": u,
            "check_u_of_run": " || !are_finite(u, n * MODEL_N_INPUTS)" if self._has_inputs else "",
            "u_of_check": ", CHECK_U" if self._has_inputs else "",
            "feature_of_run": (
                "signal < MODEL_N_OUTPUTS ? y[row * MODEL_N_OUTPUTS + signal]\n"
                "                   : u[row * MODEL_N_INPUTS + signal - MODEL_N_OUTPUTS]"
                if self._has_inputs
                else "y[row * MODEL_N_OUTPUTS + signal]"
            ),
        }

    def header(self) -> str:
        """Return the text of the header."""
        narx = self._narx
        time = self._first.origin.sampling_time
        values = {
            "title": comment(
                f"{', '.join(narx.output_names)}: model exported from sysid {__version__}"
            ),
            "description": self._description(),
            "name": self._file_name,
            "precision": self._precision_name,
            "version": self._version(),
            "sampling_time": number(time or 0.0),
            "n_outputs": len(narx.output_names),
            "n_inputs": len(narx.input_names),
            "n_targets": len(self._models),
            "n_features": narx.n_features,
            "n_lags": self._n_lags,
            "learns": int(self._learns),
            "positions": self._positions(),
            "max_magnitude": f"{self._precision.max_magnitude:g}",
            "numbers": self._members_of_numbers(),
            "structs": self._structs(),
            "n_state_bytes": self.state_bytes,
            "n_past": self._n_past,
            "members": self._members_of_state(),
            "features": paragraph(f"{', '.join(narx.feature_names)}."),
            "target": "the change y[k] - y[k-1]" if self._is_change else "the output y[k]",
            "of_inputs": self._words_about_inputs(),
            "partial": self._declare_partial(),
            "learning": LEARNING_DECLARATIONS if self._learns else "",
            "simulation": SIMULATION_DECLARATION if self._can_simulate else "",
            "addition": self._addition.declarations if self._addition else "",
            "n_first_outputs": self._n_first,
            "of_run": " from the n rows of inputs u" if self._has_inputs else "",
        }
        text = fill(fill(template("header.h"), values), values)
        return prefixed(fill(text, self._arguments()), self._prefix)

    def source(self) -> str:
        """Return the text of the source."""
        precision = self._precision
        addition = self._addition
        sizes = [part.sizes for part in self._parts]
        own_lags = [lag for name, lag in self._narx.features if name in self._narx.output_names]
        macros = {
            "header": f"{self._file_name}.h",
            "prefix": self._prefix,
            "suffix": precision.suffix,
            "epsilon": precision.epsilon,
            "largest": precision.largest,
            "max_magnitude": f"{precision.max_magnitude:g}",
            "z_95": repr(Z_95),
            "stored": "" if self._learns else "const",
            "is_change": int(self._is_change),
            "has_lag_0": int(self._has_lag_0),
            "max_output_lag": max([int(self._is_change), *own_lags]),
            "n_first": self._n_first,
            "max_points": max(N_GROUPED, *(part.capacity for part in sizes)),
            "max_size": max(N_GROUPED, *(part.size for part in sizes)),
            "max_coordinates": max(part.n_coordinates for part in sizes),
            "index": "int32_t" if self._learns else "uint16_t",
        }
        about = paragraph(
            f"Model exported from sysid {__version__}; {self._file_name}.h describes its functions."
        )
        pieces = [
            f"/*\n{about}\n */",
            fill(MACROS, macros),
            self._features(),
            formulas_text(self._formulas()),
            self._covariances(),
            *[part.constants for part in self._parts],
            "" if self._learns else self._constant_numbers(),
            self._prediction(),
            template("learn.c").strip() if self._learns else "",
            self._interface(),
            addition.source if addition else "",
            self._evidence.text(
                self._arguments(),
                precision.tolerance,
                self._has_lag_0,
                (addition.check, addition.call, addition.name) if addition else None,
            ),
        ]
        text = "\n\n".join(piece.strip("\n") for piece in pieces if piece) + "\n"
        return prefixed(text, self._prefix)

    def _formulas(self) -> list[str]:
        """Return the names of all formulas that the file uses."""
        names = []
        for part in self._parts:
            names += part.covariance.formulas
            if part.rules is not None:
                names += part.rules.formulas
        return names

    def _covariances(self) -> str:
        """Return the covariance function of each output."""
        texts = []
        for i, part in enumerate(self._parts):
            texts.append(
                COVARIANCE.format(
                    i=i, expression=part.covariance.expression, d=part.sizes.n_point_features
                )
            )
        return "\n\n".join(texts)

    def _features(self) -> str:
        """Return the arrays that say which signal and lag each feature has."""
        narx = self._narx
        signals = [*narx.output_names, *narx.input_names]
        numbers = ", ".join(str(signals.index(name)) for name, _ in narx.features)
        lags = ", ".join(str(lag) for _, lag in narx.features)
        n = narx.n_features
        kind = "uint32_t" if self._n_lags > 65535 else "uint16_t"
        return (
            "/* Signal (outputs, then inputs) and lag of each feature. */\n"
            f"static const uint16_t FEATURE_SIGNAL[{n}] = {{{numbers}}};\n"
            f"static const {kind} FEATURE_LAG[{n}] = {{{lags}}};"
        )

    def _constant_numbers(self) -> str:
        """Return the numbers of each output of a model that does not learn."""
        texts = []
        for i, part in enumerate(self._parts):
            noise = number(part.initial_numbers["noise_variance"])
            n = int(part.initial_numbers["n_stored"])
            texts.append(f"static const model_numbers NUMBERS_{i} = {{{noise}, {n}, 0}};")
        return "\n".join(texts)

    def _prediction(self) -> str:
        """Return the functions that predict."""
        values = {
            "members": "const real *upper; /* U, by rows from the diagonal on */",
            "row_of_upper": (
                "int n = v->capacity;\n    return v->upper + (i * n - i * (i - 1) / 2);"
            ),
        }
        if self._learns:
            values = {
                "members": MEMBERS_OF_LEARNING,
                "row_of_upper": "return v->triangles + i * (v->capacity + 2) + i + 1;",
            }
        return fill(template("predict.c"), values)

    def _interface(self) -> str:
        """Return the public functions."""
        arguments = self._arguments()
        values = {
            "view": self._views(),
            "initialisation": self._initialisation(),
            "partial": template("partial.c") if len(self._narx.output_names) > 1 else "",
            "learning": template("learning.c") if self._learns else "",
            "simulation": template("simulation.c") if self._can_simulate else "",
        }
        return fill(fill(template("interface.c"), values), arguments)

    def _views(self) -> str:
        """Return the function that says where the numbers of an output are."""
        parts = ",\n".join(f"    {{\n{_indent(part.view)}\n    }}" for part in self._parts)
        table = f"static const part PARTS[MODEL_N_TARGETS] = {{\n{parts}\n}};\n\n"
        if not self._learns:
            return table + (
                "static part view(const model_state *state, int i)\n"
                "{\n    (void)state;\n    return PARTS[i];\n}"
            )
        cases = []
        for i, part in enumerate(self._parts):
            lines = [f"        model_learned_{i} *s = &own->part_{i};", "        v.now = &s->now;"]
            lines += [f"        v.{name} = s->{name};" for _, name, _, _ in part.members_of_state]
            head = "if" if i == 0 else "else if"
            cases.append(f"    {head} (i == {i}) {{\n" + "\n".join(lines) + "\n    }")
        return table + (
            "/* Where the numbers of an output are. A prediction does not write to them. */\n"
            "static part view(const model_state *state, int i)\n"
            "{\n    model_state *own = (model_state *)state;\n    part v = PARTS[i];\n"
            + "\n".join(cases)
            + "\n    return v;\n}"
        )

    def _initialisation(self) -> str:
        """Return the code that begins with the exported numbers."""
        if not self._learns:
            return ""
        lines = []
        for i, part in enumerate(self._parts):
            lines.append("    {")
            lines.append(f"        model_learned_{i} *s = &state->part_{i};")
            lines.append("        part v;")
            for name, value in part.initial_numbers.items():
                is_real = name in dict(REAL_NUMBERS)
                if value:
                    text = number(value) if is_real else f"{int(value)}u"
                    lines.append(f"        s->now.{name} = {text};")
            names_of_state = {name for _, name, _, _ in part.members_of_state}
            for name, values in part.initial.items():
                if name in names_of_state - {"root"} and len(values):
                    array_name = f"{name.upper()}_{i}"
                    lines.append(f"        memcpy(s->{name}, {array_name}, sizeof {array_name});")
            lines.append(f"        v = view(state, {i});")
            lines.append(f"        load_factors(&v, UPPER_{i}, ROOT_{i});")
            lines.append("    }")
        return "\n".join(lines) + "\n"

    def _members_of_numbers(self) -> str:
        """Return the members of `model_numbers`."""
        if not self._learns:
            return (
                "    model_real noise_variance; /* of a measurement */\n"
                "    uint32_t n_stored;         /* points */\n"
                "    uint32_t spare;"
            )
        lines = [f"    model_real {name}; /* {words} */" for name, words in REAL_NUMBERS]
        lines += [f"    uint32_t {name}; /* {words} */" for name, words in COUNTS]
        return "\n".join(lines)

    def _structs(self) -> str:
        """Return the structs with what has been learned of each output."""
        if not self._learns:
            return ""
        texts = []
        kinds = {"real": "model_real"}
        for i, part in enumerate(self._parts):
            lines = [
                f"    {kinds.get(kind, kind)} {name}[{length}]; /* {words} */"
                for kind, name, length, words in part.members_of_state
            ]
            target = comment(self._models[i].narx.target)
            texts.append(
                f"/* What has been learned of {target}. */\n"
                "typedef struct {\n    model_numbers now;\n"
                + "\n".join(lines)
                + f"\n}} model_learned_{i};\n"
            )
        return "\n".join(texts)

    def _members_of_state(self) -> str:
        """Return the members of the state with what has been learned."""
        if not self._learns:
            return ""
        return "".join(f"    model_learned_{i} part_{i};\n" for i in range(len(self._parts)))

    def _positions(self) -> str:
        """Return enumerators of all signals."""
        narx = self._narx
        words = []
        for kind, names in (("OUTPUT", narx.output_names), ("INPUT", narx.input_names)):
            taken: list[str] = []
            for i, name in enumerate(names):
                taken.append(identifier(name, taken))
                words.append(f"MODEL_{kind}_{taken[-1].upper()} = {i}")
        return "\n".join(f"    {word}," for word in words).removesuffix(",")

    def _words_about_inputs(self) -> str:
        """Return the end of the sentence about the arguments of a step."""
        if not self._has_inputs:
            return ""
        if not self._has_lag_0:
            return ", u the inputs applied from now on"
        return (
            ",\n * u the inputs that were applied, and u_next the inputs of the next sample, "
            "which act at once"
        )

    def _declare_partial(self) -> str:
        return PARTIAL_DECLARATION if len(self._narx.output_names) > 1 else ""

    def _description(self) -> str:
        """Return lines about the signals and the size of the model."""
        narx = self._narx
        origin = self._first.origin
        facts = []
        for kind, names in (("Outputs", narx.output_names), ("Inputs", narx.input_names)):
            signals = [f"{name} [{origin.unit(name) or 'unit not known'}]" for name in names]
            facts.append(f"{kind}: {', '.join(signals) or 'none'}.")
        time = origin.sampling_time
        facts.append(f"Sampling time: {'not known' if time is None else f'{time!r} s'}.")
        points = [
            f"{part.sizes.n_points} points of {model.narx.target}"
            for part, model in zip(self._parts, self._models, strict=True)
        ]
        facts.append(f"It stores {', '.join(points)}.")
        facts.append(
            f"Numbers take {self.constant_bytes} bytes of read-only memory, the state "
            f"{self.state_bytes} bytes, and local arrays some {self.stack_bytes} bytes of stack."
        )
        return "\n".join(paragraph(fact) for fact in facts)

    def _version(self) -> int:
        """Return a number that differs for any other model, precision or kind of state."""
        content = [self._precision_name, str(self._learns), str(self._narx.to_dict()), __version__]
        content += [part.constants + part.view for part in self._parts]
        content += [str(part.initial_numbers) for part in self._parts]
        content.append(self._addition.source if self._addition else "")
        return zlib.crc32("\n".join(content).encode())


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


COVARIANCE = """\
/* covariance of two points of target {i} */
static real covariance_{i}(const real *theta, const real *a, const real *b)
{{
    return {expression};
}}

/* covariances of n points of target {i} with another one */
static void covariances_{i}(const real *theta, const real *points, int n, const real *b, real *out)
{{
    for (int j = 0; j < n; j++) {{
        const real *a = points + j * {d};
        out[j] = {expression};
    }}
}}"""

PARTIAL_DECLARATION = """
/* As model_step for a sample with some outputs missing: those whose `measured` is 0. */
int model_partial(model_state *state, const model_real y[],
                  const unsigned char measured[]{u}{u_next}, model_prediction next[]);
"""

LEARNING_DECLARATIONS = """
/* As model_step, but learn the sample first. reports[] says for each predicted output what became
 * of the sample. An outlier is not learned, nor is a sample with a missing output among its lags.
 */
int model_learn(model_state *state, const model_real y[]{u}{u_next}, model_prediction next[],
                model_report reports[]);

/* Learn a regressor with the measured target of the i-th predicted output; the lags stay. */
int model_update(model_state *state, int i, const model_real regressor[], model_real target,
                 model_report *report);
"""

SIMULATION_DECLARATION = """
/* Free run of n samples. y has n rows of outputs, of which the first n_first are given (at least
 * {n_first_outputs}), and the others are computed{of_run}. A lag that reaches before the first
 * sample takes the first sample. The lags of the state are not used, and stay.
 */
int model_simulate(const model_state *state{u_of_run}, int n, int n_first, model_real y[]);
"""
