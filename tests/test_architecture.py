"""The shape of the tree: who imports whom, how long things are, what they are called, what they say."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from numba import config

if config.DISABLE_JIT:
    pytest.skip("the shape of the tree is the same without the compiler", allow_module_level=True)

ROOT = Path(__file__).parents[1]
PACKAGES = ("sysid", "simulators", "experiments", "conf", "hydra_plugins")
LIBRARIES = ("sysid", "simulators")
CODE = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
NUMERICAL = {"numpy", "scipy", "xarray", "numba", "netCDF4"}
ESTIMATORS = "sysid/estimators/"  # the only room that imports scikit-learn, an extra, with its modules
FIGURES = {"figures.py", "canvas.py", "signal_figure.py"}  # imported only when a figure is drawn
ALLOWED = {
    "sysid": NUMERICAL | {"sysid", "pooch"},
    "simulators": NUMERICAL | {"simulators"},
    "experiments": NUMERICAL
    | {"sysid", "simulators", "experiments", "hydra", "omegaconf", "matplotlib", "tqdm", "yaml"}
    | {"filelock", "threadpoolctl"},
    "conf": set(),
    "hydra_plugins": {"hydra", "hydra_plugins", "omegaconf", "experiments"},
}
EXTRAS = {"sklearn", "hypothesis", "pytest", "pandas", "torch", "jax", "nonlinear_benchmarks", "xlrd"}
EXTRAS |= {"dask", "distributed", "dask_jobqueue", "joblib", "submitit", "optuna"}
#: extras that a room may import; but for estimators only inside of functions
LENT = {
    ESTIMATORS: {"sklearn"},
    "experiments/sweep/engines/": {"dask", "distributed", "joblib", "submitit"},
    "experiments/sweep/search": {"optuna"},
}
LONGEST_FILE, LONGEST_FUNCTION = 300, 40  # lines
KERNELS = {"sysid/dictionary.py": 650}  # compiled kernels that call each other live in one file
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "base", "misc", "core", "manager", "tools"}
SUFFIXES = {".py", ".yaml", ".yml", ".toml", ".md", ".txt", ".cfg", ".ini", ".sh", ""}


def name_of(path):
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree):
    """Top-level names of every import anywhere in a module, relative ones as '.'."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else str(node.module).split(".")[0]


def early_imports(tree):
    """Imports that run when the module is imported: not those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(ast.Module([node], []))
        yield from early_imports(node)


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def length_without_docstring(function):
    body = function.body
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = body[0].end_lineno - body[0].lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def tracked():
    """Text files of the project, as git would add them; every file without git."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [name_of(path) for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*")]
    files = [ROOT / name for name in names]
    return [path for path in files if path.is_file() and path.suffix in SUFFIXES]


def test_the_tree_was_found():
    assert {name_of(path).split("/")[0] for path in CODE} == set(PACKAGES)
    assert len(CODE) > 40


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_imports_point_one_way(path):
    package = name_of(path).split("/")[0]
    ours = ALLOWED[package] | set(sys.stdlib_module_names)
    ours |= {name for room, extras in LENT.items() if name_of(path).startswith(room) for name in extras}
    assert set(imports(tree_of(path))) <= ours


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_nothing_heavy_is_imported_with_a_module(path):
    extras = EXTRAS - {"sklearn"} if name_of(path).startswith(ESTIMATORS) else EXTRAS
    assert not set(early_imports(tree_of(path))) & extras
    if path.parent.name == "experiments" and path.name not in FIGURES:
        assert "matplotlib" not in set(early_imports(tree_of(path)))


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_nothing_is_pickled(path):
    assert not set(imports(tree_of(path))) & {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal"}


def test_only_declared_dependencies_are_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=!~\[ ]", entry)[0].lower() for entry in project["dependencies"]}
    distribution = {"hydra": "hydra-core", "yaml": "omegaconf"}
    used = {name for path in CODE for name in imports(tree_of(path))} - set(sys.stdlib_module_names)
    used -= {*PACKAGES, *(name for extras in LENT.values() for name in extras)}
    assert {distribution.get(name, name).lower() for name in used} == declared


@pytest.mark.parametrize("package", LIBRARIES)
def test_a_library_loads_without_its_neighbours(package):
    script = (
        f"import sys, pkgutil, importlib, {package}\n"
        f"for module in pkgutil.walk_packages({package}.__path__, '{package}.'):\n"
        "    importlib.import_module(module.name)\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "ours = {'sysid', 'simulators', 'experiments'}\n"
        f"bad = loaded & (ours | {{'hydra', 'omegaconf', 'matplotlib', 'tqdm'}}) - {{'{package}'}}\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=120)


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_files_are_short(path):
    limit = KERNELS.get(name_of(path), LONGEST_FILE)
    assert len(path.read_text(encoding="utf-8").splitlines()) <= limit


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_functions_are_short(path):
    long = {
        function.name: length_without_docstring(function)
        for function in functions(tree_of(path))
        if length_without_docstring(function) > LONGEST_FUNCTION
    }
    assert not long


def test_functions_are_short_on_the_whole():
    lengths = sorted(length_without_docstring(f) for path in CODE for f in functions(tree_of(path)))
    assert lengths[len(lengths) // 2] <= 9


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_names_say_what_is_inside(path):
    parts = {part.removesuffix(".py") for part in Path(name_of(path)).parts}
    assert not parts & FORBIDDEN


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_everything_public_has_a_docstring(path):
    tree = tree_of(path)
    assert ast.get_docstring(tree), "module"

    def missing(owner, prefix=""):
        for node in owner.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("_") and not ast.get_docstring(node):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from missing(node, f"{prefix}{node.name}.")

    assert not list(missing(tree))


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_public_functions_are_annotated(path):
    """Compiled kernels excepted: they are marked for mypy where they are defined."""
    text = path.read_text(encoding="utf-8").splitlines()
    for function in functions(tree_of(path)):
        signature = "\n".join(text[function.lineno - 1 : function.body[0].lineno])
        if function.name.startswith("_") or "type: ignore[no-untyped-def]" in signature:
            continue
        assert function.returns is not None, function.name
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        bare = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
        assert not bare, (function.name, bare)


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_no_hidden_state_or_randomness(path):
    """No global statement, no module-level random state, no default that is shared."""
    tree, source = tree_of(path), path.read_text(encoding="utf-8")
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Global)]
    assert not re.search(r"np\.random\.(?!default_rng|Generator|SeedSequence|BitGenerator)\w", source)
    assert "default_rng()" not in source
    for function in functions(tree):
        defaults = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
        assert not [d for d in defaults if isinstance(d, ast.List | ast.Dict | ast.Set)], function.name


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_nothing_asks_for_attributes_by_name(path):
    """`hasattr` and strings that decide behaviour are composition done wrong."""
    names = {node.id for node in ast.walk(tree_of(path)) if isinstance(node, ast.Name)}
    forbidden = {"hasattr", "eval", "exec"} if name_of(path).startswith(LIBRARIES) else {"eval", "exec"}
    assert not names & forbidden


def test_no_machine_paths_and_no_package_hosts():
    patterns = {
        "path of a machine": r"(?<![\w.])/(?:home|Users|root|mnt|work)/\w",
        "package host": r"(?:pypi\.org|pythonhosted\.org|anaconda\.org|index[-_]url\s*[=:]|[\w.]+/simple/)",
        "token": r"(?:ghp_|github_pat_|hf_)[A-Za-z0-9]{20,}",
    }
    found = [
        f"{name_of(path)}: {meaning}: {match[0]}"
        for path in tracked()
        if path != Path(__file__)
        for meaning, pattern in patterns.items()
        for match in re.finditer(pattern, path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_nothing_large_or_generated_is_tracked():
    assert tracked()
    for path in tracked():
        assert path.stat().st_size < 200_000, name_of(path)
        assert not {"outputs", "multirun", "__pycache__", ".venv"} & set(path.relative_to(ROOT).parts)


@pytest.mark.parametrize("package", ["sysid", "simulators", "experiments"])
def test_readme_maps_every_room_and_module(package):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = [path for path in (ROOT / package).iterdir() if not path.name.startswith(("_", "."))]
    names = [path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").exists()]
    missing = [name for name in sorted(names) if not re.search(rf"\b{name}\b", readme)]
    assert not missing, f"README.md does not mention {missing} of {package}/"


def test_readme_names_what_is_at_the_top():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("sysid/", "simulators/", "experiments/", "conf/", "tests/"):
        assert name in readme, name


def test_readme_states_both_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in (
        "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/sysid-identify",
        'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && .venv/bin/pytest',
    ):
        assert command in readme


def test_top_level_is_the_agreed_one():
    """Of what git tracks; folders of a user beside it do not count."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    names = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert folders <= {"sysid", "simulators", "experiments", "conf", "tests", "hydra_plugins", ".ci"}
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
