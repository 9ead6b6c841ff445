"""The shape of the tree: who imports whom, what is imported when, what is tracked."""

import ast
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
#: folders of each package, lowest first: a file imports from its own folder and from those before it. A file beside the
#: folders stands as itself
LAYERS = {
    "simulators": (
        *(
            "errors",
            "settings",
            "units",
            "interpolation",
            "system",
            "runge_kutta",
            "noise",
            "sampling",
            "functions",
        ),
        *(
            "excitation",
            "weather",
            "controllers",
            "record",
            "simulation",
            "many",
            "reference_solution",
        ),
        *("systems", "grey_box"),
    ),
    "sysid": (
        *(
            "errors",
            "beside",
            "arrays",
            "store",
            "narx",
            "gp",
            "model",
            "data",
            "simulation",
            "simulation_error",
        ),
        *("outliers", "initial_training", "identification", "stream"),
        *("lag_choice", "identified", "estimators", "export"),
    ),
    "experiments": (
        *(
            "cli",
            "drawing",
            "plant",
            "files",
            "sweeps",
            "collect",
            "report",
            "export",
            "generate",
        ),
        *("validate", "compare", "identify", "benchmark", "reproduce"),
    ),
}
#: folders of experiments that may know Hydra; in the others only `run.py`, which reads the configuration
KNOW_HYDRA = {"cli", "plant", "sweeps"}
#: extras, and the only places that may import them; all but scikit-learn only inside of functions
EXTRAS = {
    "sklearn": "sysid/estimators/",
    "nonlinear_benchmarks": "sysid/data/",
    "xlrd": "sysid/data/",
    "joblib": "experiments/sweeps/",
    "dask": "experiments/sweeps/",
    "distributed": "experiments/sweeps/",
    "dask_jobqueue": "experiments/sweeps/",
    "submitit": "experiments/sweeps/",
    "optuna": "experiments/sweeps/",
    "bokeh": ("experiments/drawing/", "experiments/collect/", "experiments/report/"),
    "jinja2": "experiments/drawing/",  # with Bokeh, and so markupsafe
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
ALLOWED = {
    "sysid": LIBRARIES | {"sysid", "pooch", "filelock", "threadpoolctl"},
    "simulators": LIBRARIES | {"simulators"},
    "experiments": LIBRARIES | APPLICATION | {"sysid", "simulators", "experiments"},
    "conf": set(),
    "hydra_plugins": {"hydra", "hydra_plugins", "omegaconf", "experiments", "sysid"},
}
#: kinds of error that libraries and the interpreter raise at a fault of ours
KINDS_OF_MISTAKES = {"ValueError", "TypeError", "ArithmeticError"}
#: files whose text, or part of it, goes where there is no toolbox
EXPORTED_TEXT = {
    "sysid/export/standalone.py",
    "experiments/export/standalone_physics.py",
    "experiments/generate/score.py",
}
#: kinds that a constant lists for several ``except`` clauses
CAUGHT_BY_NAME = {("experiments/files/cache.py", kind) for kind in KINDS_OF_MISTAKES}  # UNUSABLE
PICKLE = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal"}
CODE = {
    path.relative_to(ROOT).as_posix(): path
    for package in ALLOWED
    for path in sorted((ROOT / package).rglob("*.py"))
}
TEXT = {
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
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(node, *, early=False):
    """Dotted names of all imports below a node; early: of those that run when the module is
    imported.
    """
    for child in ast.iter_child_nodes(node):
        if early and isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif not (early and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            yield from imported(child, early=early)


def packages(node, **options):
    return {name.partition(".")[0] for name in imported(node, **options)}


def module_of(name):
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def tracked():
    """Files of the project, as git would add them; without git all of the packages and the
    tests.
    """
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    try:
        names = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [
            str(path.relative_to(ROOT))
            for folder in (*ALLOWED, "tests")
            for path in (ROOT / folder).rglob("*")
        ]
    return [name for name in names if (ROOT / name).is_file()]


def test_imports_point_one_way():
    found = {}
    for name, path in CODE.items():
        extras = {extra for extra, place in EXTRAS.items() if name.startswith(place)}
        if (
            others := packages(tree_of(path))
            - ALLOWED[name.partition("/")[0]]
            - extras
            - sys.stdlib_module_names
        ):
            found[name] = others
    assert len(CODE) > 40
    assert not found


def test_extras_and_figures_are_imported_where_they_are_used():
    heavy = {*EXTRAS, "hypothesis", "pytest", "torch", "jax"}
    found = {}
    for name, path in CODE.items():
        allowed = {"sklearn"} if name.startswith(EXTRAS["sklearn"]) else set()
        if early := packages(tree_of(path), early=True) & heavy - allowed:
            found[name] = early
    assert not found


def import_graph(package):
    """Modules of a package, by the modules of it that they import, inside of functions too."""
    own = {module_of(name): path for name, path in CODE.items() if name.startswith(f"{package}/")}
    graph = {}
    for module, path in own.items():
        names = {
            name if name in own else name.rpartition(".")[0] for name in imported(tree_of(path))
        }
        graph[module] = {name for name in names if name in own and name != module}
    return graph


@pytest.mark.parametrize("package", sorted({*ALLOWED} - {"conf"}))
def test_no_file_imports_itself_through_others(package):
    try:
        TopologicalSorter(import_graph(package)).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_no_folder_imports_one_above_it(package):
    heights = {folder: height for height, folder in enumerate(LAYERS[package])}
    upwards = {}
    for module, names in import_graph(package).items():
        if (
            module == package
        ):  # the package itself imports its public names when they are first used
            continue
        own = module.split(".")[1]
        assert own in heights, f"{package}/{own} has no place in LAYERS"
        others = {name.split(".")[1] for name in names if name != package}
        if above := {other for other in others if heights[other] > heights[own]}:
            upwards[module] = above
    assert not upwards


def test_the_loop_does_not_know_how_a_model_is_trained_for_the_free_run():
    for name in ("outliers", "initial_training", "identification", "stream"):
        names = imported(tree_of(CODE[f"sysid/{name}.py"]))
        assert not [one for one in names if one.startswith("sysid.simulation_error")]


def test_a_configuration_is_read_once():
    found = set()
    for name, path in CODE.items():
        parts = name.split("/")
        may_know = parts[0] == "hydra_plugins" or parts[-1] == "run.py" or parts[1] in KNOW_HYDRA
        if not may_know and packages(tree_of(path)) & {"hydra", "omegaconf"}:
            found.add(name)
    assert not found


def own_names(node):
    """Nodes below one that name a built-in kind of error, but where errors are caught, told apart
    or derived.
    """
    if isinstance(node, ast.Name) and node.id in KINDS_OF_MISTAKES:
        yield node
    for field, value in ast.iter_fields(node):
        is_caught = isinstance(node, ast.ExceptHandler) and field == "type"
        is_derived = isinstance(node, ast.ClassDef) and field == "bases"
        is_told_apart = isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "isinstance",
            "suppress",
        )
        if is_caught or is_derived or is_told_apart:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from own_names(child)


def test_what_is_refused_is_no_error_that_a_fault_could_raise():
    places = set()
    for name, path in CODE.items():
        for node in own_names(tree_of(path)):
            if name not in EXPORTED_TEXT and (name, node.id) not in CAUGHT_BY_NAME:
                places.add(
                    f"{name}:{node.lineno}: {node.id}, but the toolbox refuses with UserError or UserTypeError"
                )
    assert not places


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
    assert [*own_names(ast.parse(text))]


def test_nothing_is_pickled():
    assert not {name for name, path in CODE.items() if packages(tree_of(path)) & PICKLE}


def test_only_declared_dependencies_are_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=!~\[ ]", entry)[0].lower() for entry in project["dependencies"]}
    distribution = {"hydra": "hydra-core", "yaml": "omegaconf"}
    used = {
        name for path in CODE.values() for name in packages(tree_of(path))
    } - sys.stdlib_module_names
    used -= {*ALLOWED, *EXTRAS}
    assert {distribution.get(name, name).lower() for name in used} == declared


def test_a_library_loads_without_its_neighbours_and_its_name_alone_loads_nothing_heavy():
    for package in ("sysid", "simulators"):
        script = (
            f"import sys, pkgutil, importlib, {package}\n"
            "light = {'numba', 'xarray', 'scipy', 'pandas'} & set(sys.modules)\n"
            "assert not light, light\n"
            f"assert all(hasattr({package}, name) for name in {package}.__all__)\n"
            f"for module in pkgutil.walk_packages({package}.__path__, '{package}.'):\n"
            "    importlib.import_module(module.name)\n"
            "loaded = {name.split('.')[0] for name in sys.modules}\n"
            "ours = {'sysid', 'simulators', 'experiments'}\n"
            f"bad = loaded & (ours | {{'hydra', 'omegaconf', 'matplotlib', 'tqdm'}}) - {{'{package}'}}\n"
            "assert not bad, bad\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=120)


def test_no_machine_paths_and_no_package_hosts():
    patterns = (
        r"(?<![\w.])/(?:home|Users|root|mnt|work)/\w",
        r"(?:pypi\.org|pythonhosted\.org|anaconda\.org|index[-_]url\s*[=:]|[\w.]+/simple/)",
        r"(?:ghp_|github_pat_|hf_)[A-Za-z0-9]{20,}",
    )
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in tracked()
        if Path(name).suffix in TEXT
    }
    del texts[Path(__file__).relative_to(ROOT).as_posix()]
    assert not [
        (name, match[0])
        for name, text in texts.items()
        for p in patterns
        for match in re.finditer(p, text)
    ]


def test_what_is_tracked_is_small_and_where_it_was_agreed():
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
    assert {name.split("/")[0] for name in tracked() if "/" in name} <= folders
    texts = [ROOT / name for name in tracked() if Path(name).suffix in TEXT]
    assert texts
    assert not [path for path in texts if path.stat().st_size > 200_000]
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


def test_readme_states_both_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in (
        "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/sysid-identify",
        'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && .venv/bin/pytest',
    ):
        assert command in readme


#: prints what importing every module of a package has changed in the process; packages of others are imported before
WATCH_IMPORTS = """
import gc, importlib, logging, os, pkgutil, signal, sys, threading
import hydra, matplotlib, numba, numpy, omegaconf, pandas, scipy, tqdm, xarray, yaml

def state():
    signals = {one: signal.getsignal(one) for one in signal.valid_signals()}
    hooks = sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook
    log = logging.root.level, list(logging.root.handlers), logging.raiseExceptions
    return {
        "signals": signals, "garbage collection": gc.get_threshold(), "hooks": hooks, "logging": log,
        "threads": threading.active_count(), "streams": (sys.stdout, sys.stderr), "path": list(sys.path),
        "folder": os.getcwd(), "bars": getattr(tqdm.tqdm, "_lock", None), "arguments": list(sys.argv),
    }

sys.argv[:] = ["sysid-identify"]  # as if a command had started it
before = state()
package = importlib.import_module(PACKAGE)
for module in pkgutil.walk_packages(package.__path__, PACKAGE + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
after = state()
print(*(name for name in before if before[name] != after[name]))
"""


@pytest.mark.parametrize("package", ["sysid", "simulators", "experiments"])
def test_importing_a_package_changes_nothing_in_the_process(package):
    script = f"PACKAGE = {package!r}\n{WATCH_IMPORTS}"
    command = [sys.executable, "-c", script]
    found = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=120
    )
    assert found.stdout.strip() == ""
