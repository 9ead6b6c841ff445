"""The shape of the tree: which file imports which, what is imported when, what is tracked."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from numba import config

if config.DISABLE_JIT:
    pytest.skip(
        "the shape of the tree is the same without the compiler",
        allow_module_level=True,
    )

ROOT = Path(__file__).parents[1]
#: folders of each package, lowest first: a file imports from its own folder and from those before
#: it. A file beside the folders stands as itself
LAYERS = {
    "simulators": (
        "errors",
        "settings",
        "units",
        "interpolation",
        "system",
        "linearisation",
        "runge_kutta",
        "path_linearisation",
        "noise",
        "sampling",
        "functions",
        "excitation",
        "weather",
        "controllers",
        "record",
        "simulation",
        "many",
        "limit",
        "reference_solution",
        "systems",
        "grey_box",
    ),
    "sysid": (
        "errors",
        "netcdf_names",
        "units",
        "normal",
        "exclusive",
        "compiled",
        "arrays",
        "time_limit",
        "progress",
        "progress_display",
        "markup",
        "beside",
        "file_structure",
        "store",
        "foreign",
        "narx",
        "gp",
        "model",
        "data",
        "simulation",
        "simulation_error",
        "linear_part",
        "gross_errors",
        "dead_time",
        "far_values",
        "outliers",
        "initial_training",
        "identification",
        "live",
        "dead_time_lags",
        "stream",
        "held_out",
        "budget_choice",
        "noise_choice",
        "lag_choice",
        "choices",
        "missing_outputs",
        "identified_views",
        "identified",
        "design",
        "control",
        "estimators",
        "export",
    ),
    "experiments": (
        "cli",
        "drawing",
        "plant",
        "files",
        "sweeps",
        "collect",
        "report",
        "export",
        "generate",
        "validate",
        "compare",
        "identify",
        "benchmark",
        "reproduce",
    ),
}
#: folders of experiments whose files may import Hydra; in the others only `run.py` may, which reads
#: the configuration
FOLDERS_WITH_HYDRA = {"cli", "plant", "sweeps"}
#: optional packages, and the only folders that may import them; all but scikit-learn only inside
#: of functions, or in text that runs elsewhere
EXTRAS = {
    "sklearn": "sysid/estimators/",
    "nonlinear_benchmarks": "sysid/data/",
    "xlrd": "sysid/data/",
    "casadi": ("sysid/control/", "sysid/export/", "experiments/export/", "experiments/benchmark/"),
    "joblib": "experiments/sweeps/",
    "dask": "experiments/sweeps/",
    "distributed": "experiments/sweeps/",
    "dask_jobqueue": "experiments/sweeps/",
    "submitit": "experiments/sweeps/",
    "optuna": "experiments/sweeps/",
    "control": "sysid/model/",
    "bokeh": ("experiments/drawing/", "experiments/collect/", "experiments/report/"),
    "jinja2": "experiments/drawing/",  # comes with Bokeh, and brings markupsafe
    "markupsafe": "experiments/drawing/",
}
LIBRARIES = {"numpy", "scipy", "xarray", "pandas", "numba", "netCDF4", "lazy_loader"}
APPLICATION = {
    "hydra",
    "omegaconf",
    "matplotlib",
    "tqdm",
    "yaml",
    "filelock",
    "threadpoolctl",
    "tabulate",
}
#: what the files of each package may import, beside the standard library
ALLOWED = {
    "sysid": LIBRARIES | {"sysid", "pooch", "filelock", "threadpoolctl"},
    "simulators": LIBRARIES | {"simulators"},
    "experiments": LIBRARIES | APPLICATION | {"sysid", "simulators", "experiments"},
    "conf": set(),
    "hydra_plugins": {"hydra", "hydra_plugins", "omegaconf", "experiments", "sysid"},
}
#: errors that libraries and the interpreter raise at a bug of the toolbox
ERRORS_OF_BUGS = {"ValueError", "TypeError", "ArithmeticError"}
#: files whose text, or part of it, runs where the toolbox is not installed
EXPORTED_TEXT = {
    "sysid/export/casadi_formulas.py",
    "sysid/export/standalone.py",
    "experiments/export/casadi_with_physics.py",
    "experiments/export/standalone_physics.py",
    "experiments/generate/score.py",
}
#: errors that a constant of a file lists for several ``except`` clauses: `UNUSABLE`
CAUGHT_BY_CONSTANT = {("experiments/files/cache.py", error) for error in ERRORS_OF_BUGS}
PICKLING_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal"}
#: paths of the code, by their names in the tree
CODE = {
    path.relative_to(ROOT).as_posix(): path
    for package in ALLOWED
    for path in sorted((ROOT / package).rglob("*.py"))
}
#: endings of the names of text files
TEXT_SUFFIXES = {
    ".py",
    ".pyi",
    ".yaml",
    ".yml",
    ".toml",
    ".md",
    ".txt",
    ".cfg",
    ".ini",
    ".sh",
    "",
}


@cache
def tree_of(path):
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def find_imports(node, *, early):
    """Yield the dotted names of all imports below a node of a syntax tree.

    With `early` only of those that run when the module is imported.
    """
    for child in ast.iter_child_nodes(node):
        is_for_types = (
            isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"
        )
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(child, ast.expr):  # no expression imports
            continue
        if early and (is_for_types or is_function):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from find_imports(child, early=early)


@cache
def imports_of(path, *, early=False):
    """Return the dotted names of all imports of a file, or of the early ones."""
    return tuple(find_imports(tree_of(path), early=early))


def imported_packages(path, *, early=False):
    """Return the packages that a file imports, or imports early."""
    return {name.partition(".")[0] for name in imports_of(path, early=early)}


def module_of(name):
    """Return the dotted name of the module in a file."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def tracked_files():
    """Return the files of the project, as git would add them.

    Without git these are all files of the packages and of the tests.
    """
    options = ("--cached", "--others", "--exclude-standard")
    command = ["git", "-C", str(ROOT), "ls-files", *options]
    try:
        git = subprocess.run(command, capture_output=True, text=True, check=True)
        names = git.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        paths = [path for folder in (*ALLOWED, "tests") for path in (ROOT / folder).rglob("*")]
        names = [str(path.relative_to(ROOT)) for path in paths]
    return [name for name in names if (ROOT / name).is_file()]


def tracked_texts():
    """Return the text files among the files of the project."""
    return [name for name in tracked_files() if Path(name).suffix in TEXT_SUFFIXES]


def test_imports_point_one_way():
    violations = {}
    for name, path in CODE.items():
        extras = {extra for extra, folders in EXTRAS.items() if name.startswith(folders)}
        allowed = ALLOWED[name.partition("/")[0]] | extras | sys.stdlib_module_names
        others = imported_packages(path) - allowed
        if others:
            violations[name] = others
    assert len(CODE) > 40
    assert not violations


def test_extras_and_figures_are_imported_where_they_are_used():
    extras = {*EXTRAS, "hypothesis", "pytest", "torch", "jax"}
    violations = {}
    for name, path in CODE.items():
        allowed = {"sklearn"} if name.startswith(EXTRAS["sklearn"]) else set()
        allowed |= {"casadi"} if name in EXPORTED_TEXT else set()
        early_extras = imported_packages(path, early=True) & extras - allowed
        if early_extras:
            violations[name] = early_extras
    assert not violations


def import_graph(package):
    """Return the modules of a package, each with those of the package that it imports.

    Imports inside of functions count too.
    """
    modules = {
        module_of(name): path for name, path in CODE.items() if name.startswith(f"{package}/")
    }
    graph = {}
    for module, path in modules.items():
        graph[module] = set()
        for name in imports_of(path):
            imported = name if name in modules else name.rpartition(".")[0]
            if imported in modules and imported != module:
                graph[module].add(imported)
    return graph


@pytest.mark.parametrize("package", sorted({*ALLOWED} - {"conf"}))
def test_no_file_imports_itself_through_others(package):
    try:
        TopologicalSorter(import_graph(package)).prepare()
    except CycleError as error:
        cycle = reversed(error.args[1])
        raise AssertionError(" imports ".join(cycle)) from None


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_no_folder_imports_one_above_it(package):
    heights = {folder: height for height, folder in enumerate(LAYERS[package])}
    upwards = {}
    for module, imported_modules in import_graph(package).items():
        if module == package:  # it imports its public names when they are first used
            continue
        folder = module.split(".")[1]
        assert folder in heights, f"{package}/{folder} has no place in LAYERS"
        imported_folders = {name.split(".")[1] for name in imported_modules if name != package}
        above = {other for other in imported_folders if heights[other] > heights[folder]}
        if above:
            upwards[module] = above
    assert not upwards


@pytest.mark.parametrize("module", ["outliers", "initial_training", "identification", "stream"])
def test_the_loop_does_not_know_how_a_model_is_trained_for_the_free_run(module):
    for name in imports_of(CODE[f"sysid/{module}.py"]):
        assert not name.startswith("sysid.simulation_error")


def test_a_configuration_is_read_once():
    violations = set()
    for name, path in CODE.items():
        package, folder, *_ = name.split("/")
        is_plugin = package == "hydra_plugins"
        may_know = is_plugin or path.name == "run.py" or folder in FOLDERS_WITH_HYDRA
        if not may_know and imported_packages(path) & {"hydra", "omegaconf"}:
            violations.add(name)
    assert not violations


def test_hydra_makes_no_objects():
    """Its `instantiate` and `call` would resolve texts once more, which may come from a file."""
    makers = {f"hydra.utils.{name}" for name in ("instantiate", "call", "get_class", "get_object")}
    users = {name for name, path in CODE.items() if makers & set(imports_of(path))}
    assert not users


def errors_of_bugs(node):
    """Yield the names of built-in errors below a node, but where errors are caught or derived."""
    if isinstance(node, ast.Name) and node.id in ERRORS_OF_BUGS:
        yield node
    function = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
    for field, value in ast.iter_fields(node):
        is_caught = isinstance(node, ast.ExceptHandler) and field == "type"
        is_derived = isinstance(node, ast.ClassDef) and field == "bases"
        is_distinguished = function in ("isinstance", "suppress")
        if is_caught or is_derived or is_distinguished:
            continue
        children = value if isinstance(value, list) else [value]
        for child in children:
            if isinstance(child, ast.AST):
                yield from errors_of_bugs(child)


def test_a_refusal_is_no_error_that_a_bug_could_raise():
    violations = set()
    for name, path in CODE.items():
        if name in EXPORTED_TEXT:
            continue
        for node in errors_of_bugs(tree_of(path)):
            if (name, node.id) not in CAUGHT_BY_CONSTANT:
                place = f"{name}:{node.lineno}"
                violations.add(
                    f"{place}: {node.id}, but the toolbox refuses with UserError or UserTypeError"
                )
    assert not violations


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('a')",
        "error = TypeError if a else ValueError\nraise error('b')",
        "def refuse():\n    return ArithmeticError('c')",
        "try:\n    f()\nexcept OSError:\n    raise ValueError from None",
    ],
)
def test_a_plain_error_is_found_however_it_is_raised(text):
    assert list(errors_of_bugs(ast.parse(text)))


def test_nothing_is_pickled():
    users = {name for name, path in CODE.items() if imported_packages(path) & PICKLING_MODULES}
    assert not users


def test_only_declared_dependencies_are_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=!~\[ ]", entry)[0].lower() for entry in project["dependencies"]}
    imported = {name for path in CODE.values() for name in imported_packages(path)}
    others = imported - sys.stdlib_module_names - {*ALLOWED, *EXTRAS}
    distributions = {"hydra": "hydra-core", "yaml": "omegaconf"}
    assert {distributions.get(name, name).lower() for name in others} == declared


def run_script(script):
    """Run Python in a process of its own, which searches no garbage; return what it prints."""
    process = subprocess.run(
        [sys.executable, "-c", f"import gc; gc.disable()\n{script}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


#: prints what loading each library brings along: first its name, then its public names and modules
LOAD_LIBRARIES = """
import importlib, json, pkgutil, sys

libraries = ("sysid", "simulators")
unwanted = {"sysid", "simulators", "experiments", "hydra", "omegaconf", "matplotlib", "tqdm"}
heavy = {}
neighbours = {}
missing = {}


def loaded_packages():
    return {name.split(".")[0] for name in sys.modules}


def forget(library):
    for name in list(sys.modules):
        if name.split(".")[0] == library:
            del sys.modules[name]


for library in libraries:
    importlib.import_module(library)
    heavy[library] = sorted({"numba", "xarray", "scipy", "pandas"} & set(sys.modules))
    forget(library)
for library in libraries:
    package = importlib.import_module(library)
    missing[library] = [name for name in package.__all__ if not hasattr(package, name)]
    for module in pkgutil.walk_packages(package.__path__, library + "."):
        importlib.import_module(module.name)
    neighbours[library] = sorted(loaded_packages() & unwanted - {library})
    forget(library)
print(json.dumps({"heavy": heavy, "missing": missing, "neighbours": neighbours}))
"""


@pytest.fixture(scope="module")
def loading():
    """What loading each library in a new process brings along."""
    return json.loads(run_script(LOAD_LIBRARIES))


@pytest.mark.parametrize("library", ["sysid", "simulators"])
class TestLibrary:
    """A library stands alone, and its name alone costs little."""

    def test_its_name_alone_loads_nothing_heavy(self, library, loading):
        assert loading["heavy"][library] == []

    def test_it_has_all_of_its_public_names(self, library, loading):
        assert loading["missing"][library] == []

    def test_it_loads_without_its_neighbours(self, library, loading):
        assert loading["neighbours"][library] == []


def test_no_machine_paths_and_no_package_hosts():
    patterns = (
        r"(?<![\w.])/(?:home|Users|root|mnt|work)/\w",
        r"(?:pypi\.org|pythonhosted\.org|anaconda\.org|index[-_]url\s*[=:]|[\w.]+/simple/)",
        r"(?:ghp_|github_pat_|hf_)[A-Za-z0-9]{20,}",
    )
    this_file = Path(__file__).relative_to(ROOT).as_posix()
    violations = []
    for name in tracked_texts():
        if name == this_file:
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        for pattern in patterns:
            violations += [(name, match[0]) for match in re.finditer(pattern, text)]
    assert not violations


def test_tracked_files_are_small_and_in_known_folders():
    folders = {
        "sysid",
        "simulators",
        "experiments",
        "conf",
        "tests",
        "docs",
        "hydra_plugins",
        ".ci",
    }
    assert {name.split("/")[0] for name in tracked_files() if "/" in name} <= folders
    texts = tracked_texts()
    assert texts
    assert not [name for name in texts if (ROOT / name).stat().st_size > 200_000]
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/sysid-identify",
        'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && .venv/bin/pytest',
    ],
    ids=["run", "test"],
)
def test_readme_states_both_commands(command):
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")


#: prints what importing every module of each package changes in the process; packages of others are
#: imported before
WATCH_IMPORTS = """
import gc, importlib, json, logging, os, pkgutil, signal, sys, threading
import hydra, matplotlib, numba, numpy, omegaconf, pandas, scipy, tqdm, xarray, yaml


def state():
    return {
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "garbage collection": gc.get_threshold(),
        "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook),
        "logging": (logging.root.level, list(logging.root.handlers), logging.raiseExceptions),
        "threads": threading.active_count(),
        "streams": (sys.stdout, sys.stderr),
        "path": list(sys.path),
        "folder": os.getcwd(),
        "bars": getattr(tqdm.tqdm, "_lock", None),
        "arguments": list(sys.argv),
    }


sys.argv[:] = ["sysid-identify"]  # as if a command had started it
changes = {}
for name in ("simulators", "sysid", "experiments"):
    before = state()
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    after = state()
    changes[name] = [key for key in before if before[key] != after[key]]
print(json.dumps(changes))
"""


@pytest.fixture(scope="module")
def changes_by_imports():
    """What importing each package changes in a new process."""
    return json.loads(run_script(WATCH_IMPORTS))


@pytest.mark.parametrize("package", ["sysid", "simulators", "experiments"])
def test_importing_a_package_changes_nothing_in_the_process(package, changes_by_imports):
    assert changes_by_imports[package] == []
