"""Exported C files, compiled and called from Python."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sysid import JointModel, export_c

#: what a file must compile with, without a warning
STRICT = ("-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror")
REAL = {"double": (ctypes.c_double, np.float64), "float": (ctypes.c_float, np.float32)}
CODES = {
    "OK": 0,
    "WAITING": 1,
    "NOT_FINITE": -1,
    "NOT_READY": -2,
    "BAD_SIZE": -3,
    "BAD_STATE": -4,
    "NO_MODEL": -5,
    "TOO_FAR": -6,
    "DIVERGED": -7,
}


def compiler(name="cc"):
    """Return a C compiler; skip the test if there is none, but not where tests must all run."""
    found = shutil.which(name)
    if found is None and name == "cc" and os.environ.get("CI") == "true":
        pytest.fail("there is no C compiler cc, which the checks of exported C need")
    if found is None:
        pytest.skip(f"there is no {name} here")
    return found


def run(command, folder):
    """Run a command in a folder, and return what it printed; its failure is that of the test."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


class CModel:
    """An exported model, compiled with all warnings as errors to a library of this process."""

    def __init__(self, model, folder, *, learn=False, precision="double", name="plant"):
        cc = compiler()
        self.exported = export_c(
            model, Path(folder) / f"{name}.c", learn=learn, precision=precision
        )
        library = Path(folder) / f"{name}_{learn}_{precision}.so"
        run([cc, *STRICT, "-shared", "-fPIC", f"{name}.c", "-o", str(library), "-lm"], folder)
        self.library = ctypes.CDLL(str(library))
        self.name = name
        self.models = JointModel.of(model).models if isinstance(model, JointModel) else (model,)
        self.narx = self.models[0].narx
        self.has_lag_0 = any(lag == 0 for _, lag in self.narx.features)
        self.real, self.dtype = REAL[precision]

        class Prediction(ctypes.Structure):
            _fields_ = [(field, self.real) for field in ("mean", "std", "low", "high", "variance")]

        class Report(ctypes.Structure):
            _fields_ = [
                (field, self.real)
                for field in (
                    "mean",
                    "variance",
                    "acceptance_score",
                    "acceptance_minimum",
                    "reduction_score",
                )
            ] + [
                (field, ctypes.c_int)
                for field in (
                    "learned",
                    "outlier",
                    "inserted",
                    "accepted",
                    "slot",
                    "removed",
                    "n_points",
                )
            ]

        self._predictions = (Prediction * len(self.models))()
        self.reports_by_output = (Report * len(self.models))()
        self.state = np.zeros(self.exported.state_bytes, dtype=np.uint8)
        self.call("init")

    def call(self, function, *arguments):
        """Call a function with the state and these arguments, and return its code."""
        passed = [self.state.ctypes]
        kept = []
        for argument in arguments:
            if isinstance(argument, np.ndarray | list | tuple):
                kept.append(np.ascontiguousarray(argument, dtype=self.dtype))
                argument = kept[-1].ctypes
            elif isinstance(argument, float):
                argument = self.real(argument)
            passed.append(argument)
        return getattr(self.library, f"{self.name}_{function}")(*passed)

    def _inputs(self, u, u_next):
        arguments = [np.atleast_1d(u)] if self.narx.input_names else []
        return [*arguments, np.atleast_1d(u_next)] if self.has_lag_0 else arguments

    def results(self):
        """Return what was predicted last, as arrays by the names of the fields."""
        names = [name for name, _ in self._predictions[0]._fields_]
        return {name: np.array([getattr(p, name) for p in self._predictions]) for name in names}

    def reports(self):
        """Return what became of the last sample, as arrays by the names of the fields."""
        names = [name for name, _ in self.reports_by_output[0]._fields_]
        return {
            name: np.array([getattr(r, name) for r in self.reports_by_output]) for name in names
        }

    def predict(self, regressor):
        """Predict the targets of a regressor; return the code."""
        return self.call("predict", regressor, self._predictions)

    def step(self, y, u=(), u_next=()):
        """Take a sample and predict the next one; return the code."""
        return self.call("step", np.atleast_1d(y), *self._inputs(u, u_next), self._predictions)

    def learn(self, y, u=(), u_next=()):
        """Learn a sample and predict the next one; return the code."""
        inputs = self._inputs(u, u_next)
        return self.call(
            "learn", np.atleast_1d(y), *inputs, self._predictions, self.reports_by_output
        )

    def missing(self, u=(), u_next=()):
        """Take a sample whose outputs are missing; return the code."""
        return self.call("missing", *self._inputs(u, u_next), self._predictions)

    def update(self, regressor, target, i=0):
        """Learn a regressor with its target; return the code."""
        report = ctypes.byref(self.reports_by_output[i])
        return self.call("update", i, regressor, float(target), report)

    def simulate(self, u, y_init, n=None):
        """Return the code of a free run, and its outputs (n, n_outputs)."""
        inputs = np.asarray(u, dtype=self.dtype).reshape(-1, max(1, len(self.narx.input_names)))
        n = len(inputs) if n is None else n
        y = np.zeros((n, len(self.narx.output_names)), dtype=self.dtype)
        first = np.asarray(y_init, dtype=self.dtype).reshape(-1, y.shape[1])
        y[: len(first)] = first
        arguments = [inputs] if self.narx.input_names else []
        code = self.call("simulate", *arguments, n, len(first), y)
        return code, y
