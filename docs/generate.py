"""Generate the pages that repeat what is in the code.

The options and commands come from conf/, the public names from `__init__.pyi`, and the variables of
the files from a run.
"""

import ast
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path

import xarray as xr

from simulators.system import describe_fields

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
COMMANDS = (
    "identify",
    "validate",
    "compare",
    "generate",
    "collect",
    "report",
    "export",
    "reproduce",
    "benchmark",
)

#: For each package, the titles of its pages in the order of use, and the modules whose public names
#: a page documents. A page has the names of its first module first, as they stand in the source.
AREAS = {
    "sysid": {
        "Identify in one call": (
            "sysid.identified",
            "sysid.lag_choice",
            "sysid.budget_choice",
            "sysid.dead_time",
        ),
        "Records": ("sysid.data", "sysid.gross_errors", "sysid.narx.record"),
        "Identification": (
            "sysid.identification",
            "sysid.stream",
            "sysid.dead_time_lags",
            "sysid.linear_part",
            "sysid.narx",
            "sysid.time_limit",
        ),
        "Online Gaussian process": (
            "sysid.gp.online",
            "sysid.gp.dictionary",
            "sysid.gp.selection",
        ),
        "Criteria and rules": ("sysid.gp.rules",),
        "Kernels and means": (
            "sysid.gp.kernels",
            "sysid.gp.linear_part",
            "sysid.gp.mean",
            "sysid.gp.affine_map",
        ),
        "Training": (
            "sysid.gp.adaptation",
            "sysid.gp.training",
            "sysid.gp.marginal_likelihood",
            "sysid.simulation_error",
        ),
        "Live use": ("sysid.live", "sysid.simulation.look_ahead"),
        "Inputs that are chosen to learn": ("sysid.design",),
        "Predictive control": ("sysid.control",),
        "Prediction and validation": (
            "sysid.simulation.forecast",
            "sysid.simulation.validation",
            "sysid.simulation.residuals",
            "sysid.simulation.propagation",
        ),
        "Linear view": ("sysid.model.linear_view",),
        "Models and files": ("sysid.model.model", "sysid.export", "sysid.model", "sysid.store"),
        "Sparse Gaussian processes": ("sysid.gp.sparse",),
        "Errors": ("sysid.errors",),
    },
    "sysid.estimators": {"scikit-learn and river": ("sysid.estimators",)},
    "simulators": {
        "Simulation": (
            "simulators.simulation",
            "simulators.many",
            "simulators.limit",
            "simulators.record",
            "simulators.runge_kutta",
        ),
        "Systems": (
            "simulators.systems",
            "simulators.system",
            "simulators.linearisation",
            "simulators.path_linearisation",
        ),
        "Excitation": ("simulators.excitation", "simulators.interpolation"),
        "Controllers and weather": ("simulators.controllers", "simulators.weather"),
        "Grey-box fits": ("simulators.grey_box", "simulators.reference_solution"),
        "Functions, sampling, noise": (
            "simulators.functions",
            "simulators.sampling",
            "simulators.noise",
        ),
        "Errors": ("simulators.errors",),
    },
}

#: public members that only the compiled loops need, by class; the reference leaves them out
INTERNAL_MEMBERS = {
    "AcceptAll.address",
    "AcceptAll.code",
    "Acceptance.address",
    "Acceptance.code",
    "ExceedsMinimum.address",
    "ExceedsMinimum.code",
    "Insertion.address",
    "Kernel.address",
    "Product.code",
    "StableSpline.address",
    "Sum.code",
    "WithLinearPart.address",
}

#: a line of a yaml file that sets a key
YAML_LINE = re.compile(
    r"^(?P<indent> *)(?P<item>- )?(?P<key>[\w./@]+):(?: +(?P<value>.*?))??(?: +# (?P<note>.*))?$"
)

#: a command or a setting in a comment, which is shown as code
CODE_IN_COMMENT = re.compile(r"(?<![`\w])(sysid-[\w]+ [\w/=.]+|[\w.]+=[<\[\w][^ :;,)]*)")

#: runs whose files are described: the command and its overrides
DESCRIBED_RUNS = {
    "identify": ["duration=10d", "figures=false", "cache=null"],
    "generate": [
        "system=van_der_pol",
        "estimation=60",
        "validation=20",
        "test=40",
        "initialisation_window=5",
        "baseline=[mean]",
        "figures=false",
        "output=made",
        "noise_paths=4",
    ],
    "validate": [
        "model=identify/model.nc",
        "system=building",
        "duration=2d",
        "propagation=mean_only",
        "figures=false",
    ],
}

#: a script that runs commands in one process, which imports the toolbox once
RUN_COMMANDS = """
import importlib
import json
import sys

for command, *overrides in json.loads(sys.argv[1]):
    sys.argv[:] = [f"sysid-{command}", *overrides]
    importlib.import_module(f"experiments.{command}").main()
"""


def write(folder: Path) -> None:
    """Write all pages into a folder, and remove all other files from it."""
    pages = {"commands.md": _commands(), **_options(), **_api(), "files.md": _files()}
    for path in folder.rglob("*.*"):
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sphinx builds a page again if its file was written.
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


# --- commands and options -------------------------------------------------------------------------


def _commands() -> str:
    """Return the page of all commands."""
    plant = CONF / "plant.yaml"
    parts = [
        "# Commands\n",
        "Every command takes overrides, `key=value`, and options of groups, `group=option`. "
        "`--help` lists them. `-m` runs a command once for each combination of values that are "
        "separated by commas ([sweeps](../how_to/sweep.md)). `python -m experiments.identify` is "
        "the same as `sysid-identify`. (Words: [glossary](../explanation/glossary.md).)\n",
    ]
    for command in COMMANDS:
        path = CONF / f"{command}.yaml"
        description = _header(path).partition(": ")[2].capitalize()
        parts += [f"## sysid-{command}\n", description + "\n", _groups(path), _table(path)]
    parts += ["## The simulated plant\n", _header(plant).capitalize() + "\n"]
    parts += [_groups(plant), _table(plant)]
    return "\n".join(parts)


def _groups(path: Path) -> str:
    """Return a table of the groups of a command, with the options that it starts from."""
    defaults = path.read_text().partition("defaults:\n")[2]
    pattern = r"^  - (?:override )?([\w/]+): (.*?)(?:  # .*)?$"
    rows = []
    for group, option in re.findall(pattern, defaults, flags=re.MULTILINE):
        if _has_page(group):
            rows.append(f"| [`{group}`](options/{_page(group)}) | `{option}` |")
    if not rows:
        return ""
    return "\n".join(["| group | option it starts from |", "|---|---|", *rows, ""])


def _has_page(group: str) -> bool:
    """Return whether a group has a folder in conf/ and so a page."""
    return (CONF / group).is_dir() and group != "hydra/job_logging"


def _page(group: str) -> str:
    """Return the name of the page of a group."""
    return group.replace("/", "_") + ".md"


def _options() -> dict[str, str]:
    """Return a page for each group of conf/, and one that lists them."""
    folders = {path.parent.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml")}
    groups = sorted(folders - {"."})
    index = [
        "# Groups of options\n",
        "A group is a folder of `conf/`, and an option is a file in it. "
        "(Words: [glossary](../../explanation/glossary.md).)\n",
        "| group | options |",
        "|---|---|",
    ]
    pages = {}
    for group in groups:
        paths = sorted((CONF / group).glob("*.yaml"))
        names = ", ".join(f"`{path.stem}`" for path in paths)
        index.append(f"| [`{group}`]({_page(group)}) | {names} |")
        pages[f"options/{_page(group)}"] = _group(group, paths)
    contents = "\n".join(["\n```{toctree}", ":hidden:", "", *map(_page, groups), "```\n"])
    pages["options/index.md"] = "\n".join(index) + "\n" + contents
    return pages


def _group(group: str, paths: Sequence[Path]) -> str:
    """Return the page of one group: its options, and the keys of each."""
    lines = [f"# {group}\n", "| option | meaning |", "|---|---|"]
    for path in paths:
        lines.append(f"| `{group}={path.stem}` | {_cell(_header(path))} |")
    for path in paths:
        table = _table(path)
        if table:
            lines += [f"\n## {group}={path.stem}\n", _target(path), table]
    return "\n".join(lines) + "\n"


def _header(path: Path) -> str:
    """Return the comment at the top of a yaml file.

    A file without such a comment has the first line of the docstring of the class that it names.
    """
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        if "@package" not in line:
            lines.append(line[1:].strip())
    name = _class_name(path)
    if not lines and name:
        package, _, public = name.partition(".")
        documented = getattr(importlib.import_module(package), public)
        lines.append(inspect.getdoc(documented).splitlines()[0])
    text = " ".join(lines).replace("``", "`")
    return CODE_IN_COMMENT.sub(r"`\1`", text)


def _class_name(path: Path) -> str:
    """Return the name of the class that a yaml file names, or an empty text."""
    found = re.search(r"^_target_: (\S+)", path.read_text(), flags=re.MULTILINE)
    return found[1] if found else ""


def _target(path: Path) -> str:
    """Return the class that a yaml file names as Markdown, with a link if it is public."""
    name = _class_name(path)
    if not name:
        return ""
    if name.startswith(("sysid.", "simulators.")):
        return f"{{py:obj}}`{name}`\n"
    return f"`{name}`\n"


def _table(path: Path) -> str:
    """Return a table of the keys of a yaml file with their values and comments."""
    rows = []
    for key, value, note in _keys(path):
        default = f"`{value}`" if value else ""
        rows.append(f"| `{key}` | {default} | {_cell(note)} |")
    if not rows:
        return ""
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    """Return a text for a cell of a Markdown table, with its special characters escaped."""
    text = text.replace("|", "\\|").replace("*", "\\*").replace("$", "\\$").replace("<", "&lt;")
    return re.sub(r"(?<!\w)_", r"\\_", text)


def _keys(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted key, the value and the comment of every line of a yaml file.

    The sections `defaults` and `hydra`, which only Hydra uses, are left out.
    """
    parents: list[tuple[int, str]] = []  # indentation and key of the sections around a line
    n_items: dict[str, int] = {}  # number of the last item of each list
    hidden_indent = -1  # indentation of the section that is left out; -1: none
    for line in path.read_text().splitlines():
        found = YAML_LINE.match(line)
        if not found:
            continue
        indent = len(found["indent"])
        key = found["key"]
        value = found["value"] or ""
        note = found["note"] or ""
        is_below_hidden = 0 <= hidden_indent < indent
        is_hidden_item = hidden_indent == 0 and found["item"]
        if is_below_hidden or is_hidden_item:
            continue
        hidden_indent = -1
        parents = [(depth, name) for depth, name in parents if depth < indent]
        if found["item"]:
            list_name = ".".join(name for _, name in parents)
            n_items[list_name] = n_items.get(list_name, -1) + 1
            parents.append((indent, str(n_items[list_name])))
            indent += 2
        if indent == 0 and key in ("defaults", "hydra"):
            hidden_indent = 0
            continue
        parents.append((indent, key))
        if not key.startswith("_") and (value or note):
            yield ".".join(name for _, name in parents), value, note


# --- public names ---------------------------------------------------------------------------------


def _api() -> dict[str, str]:
    """Return a page for each area of public names."""
    pages = {}
    for package, areas in AREAS.items():
        module = importlib.import_module(package)
        public = {}
        for name in module.__all__:
            documented = getattr(module, name)
            if callable(documented):
                public[name] = documented
        for title, modules in areas.items():
            names = sorted(
                (name for name in public if public[name].__module__.startswith(modules)),
                key=lambda name, modules=modules: _place(public[name], modules),
            )
            for name in names:
                public.pop(name)
            words = re.sub(r"[^a-z]+", "_", title.lower())
            file = f"api/{package.replace('.', '_')}_{words}.rst"
            pages[file] = _area(package, title, names)
        if public:
            raise ValueError(
                f"docs/generate.py: no area of {package} has the public names {sorted(public)}; "
                "add their modules to AREAS"
            )
    return pages


def _place(documented: Callable[..., object], modules: Sequence[str]) -> tuple[int, str, int]:
    """Return by what the names of a page are sorted: its modules, their files, lines in these."""
    module = documented.__module__
    number = next(i for i, area in enumerate(modules) if module.startswith(area))
    line, _ = _definitions(module)[documented.__qualname__]
    return number, module, line


@cache
def _definitions(module: str) -> dict[str, tuple[int, str]]:
    """Return the first line, from 1 on, and the source of each class and function of a module.

    Their names are qualified. The module is parsed once for all of them; `inspect` parses it again
    for each class.
    """
    text = inspect.getsource(sys.modules[module])
    lines = text.splitlines(keepends=True)
    definitions = {}
    nodes = [("", node) for node in ast.parse(text).body]
    for prefix, node in nodes:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            definitions[prefix + node.name] = first, "".join(lines[first - 1 : node.end_lineno])
        if isinstance(node, ast.ClassDef):
            nodes += [(f"{prefix}{node.name}.", member) for member in node.body]
    return definitions


def _area(package: str, title: str, names: list[str]) -> str:
    """Return the page of one area: a list of its names, and the documentation of each."""
    module = importlib.import_module(package)
    lines = [title, "=" * len(title), "", f".. currentmodule:: {package}", ""]
    lines += [".. list-table::", "   :class: autosummary", "   :widths: 10 90", ""]
    for name in names:
        lines += [f"   * - :py:obj:`{name}`", f"     - {_summary(getattr(module, name))}"]
    lines.append("")
    for name in names:
        documented = getattr(module, name)
        if inspect.isclass(documented):
            lines += [f".. autoclass:: {name}", *_fields_table(documented)]
        else:
            lines.append(f".. autofunction:: {name}")
        lines.append("")
    return "\n".join(lines) + "\n"


def _summary(documented: Callable[..., object]) -> str:
    """Return the first sentence of a docstring on one line."""
    paragraph = " ".join(inspect.getdoc(documented).partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]


def _fields_table(kind: type) -> list[str]:
    """Return the lines of a table of the public fields of a class, if any of them has a note."""
    fields = [field for field in _fields(kind) if not field[0].startswith("_")]
    if not any(note for _, _, note in fields):
        return []
    rows = [("field", "default", "meaning")]
    rows += [(f"``{name}``", default, note) for name, default, note in fields]
    names = ", ".join(name for name, _, _ in fields)
    lines = [f"   :exclude-members: {names}", ""]
    lines += ["   .. list-table::", "      :header-rows: 1", ""]
    for first, *others in rows:
        lines.append(f"      * - {first}")
        lines += [f"        - {cell}" for cell in others]
    return lines


def _fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yield the name, default and note of each field of a dataclass or a named tuple.

    The note is the comment behind the field, or else the lines above it that begin with ``#:``, or
    else what the metadata of the field say (`simulators.parameter`).
    """
    if not (is_dataclass(kind) or hasattr(kind, "_fields")):
        return
    _, source = _definitions(kind.__module__)[kind.__qualname__]
    lines = source.splitlines()
    comments = _comments(source)
    texts = describe_fields(kind)
    for node in ast.parse(source).body[0].body:
        if not isinstance(node, ast.AnnAssign):
            continue
        if ast.unparse(node.annotation).startswith("ClassVar"):
            continue
        name = ast.unparse(node.target)
        behind = [
            comments[number]
            for number in range(node.lineno, node.end_lineno + 1)
            if number in comments
        ]
        note = " ".join(behind) or _comment_above(lines, node.lineno) or texts.get(name, "")
        default = _default(lines, node.value)
        yield name, f"``{default}``" if default else "", _escape(note)


def _comments(source: str) -> dict[int, str]:
    """Return the comments of a source by the number of their line, from 1 on."""
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string[1:].strip()
    return comments


def _comment_above(lines: Sequence[str], number: int) -> str:
    """Return the text of the lines directly above a line, from 1 on, that begin with ``#:``."""
    texts: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("#:"):
            break
        texts.insert(0, line.strip()[2:].strip())
    return " ".join(texts)


def _escape(note: str) -> str:
    """Return a note for a cell of a reStructuredText table."""
    escaped = re.sub(r"([\\*|])", r"\\\1", note).replace("`", "``")
    return re.sub(r"_(?!\w)", r"\\_", escaped)


def _default(lines: Sequence[str], value: ast.expr | None) -> str:
    """Return the source of the default of a field, or an empty text.

    The default of ``parameter`` is its first argument. The default of ``field`` is what its factory
    returns.
    """
    if value is None:
        return ""
    called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    if called == "parameter":
        return _source_of(lines, value.args[0])
    if called != "field":
        return _source_of(lines, value)
    for argument in value.keywords:
        if argument.arg == "default":
            return _source_of(lines, argument.value)
        if argument.arg == "default_factory" and isinstance(argument.value, ast.Lambda):
            return _source_of(lines, argument.value.body)
        if argument.arg == "default_factory":
            return _source_of(lines, argument.value) + "()"
    return ""


def _source_of(lines: Sequence[str], node: ast.expr) -> str:
    """Return the source of an expression on one line.

    `ast.get_source_segment` splits all of the source into lines again for each expression.
    """
    parts = [line.encode() for line in lines[node.lineno - 1 : node.end_lineno]]
    parts[-1] = parts[-1][: node.end_col_offset]  # offsets are counted in bytes
    parts[0] = parts[0][node.col_offset :]
    text = b"\n".join(parts).decode()
    text = re.sub(r"\(\s*\n\s*", "(", text)
    text = re.sub(r",?\s*\n\s*\)", ")", text)
    return re.sub(r"\s*\n\s*", " ", text)


# --- files ----------------------------------------------------------------------------------------


def _files() -> str:
    """Return a page of the variables of every NetCDF file that the commands write.

    The page is made from such files.
    """
    parts = [
        "# Files\n",
        "This page is made from files that `sysid-identify`, `sysid-generate` and `sysid-validate` "
        "have just written. All are NetCDF 4: `xarray.open_dataset(path, group=...)` reads them, "
        "and `ncdump -h` shows the meaning of their variables. Every file has `schema` and "
        "`schema_version` (files of another version are refused), the configuration, the seed, the "
        "versions of the packages, the source commit if there is one, and the time at which it was "
        "made. A file is complete or absent. (Words: [glossary](../explanation/glossary.md).)\n",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(DESCRIBED_RUNS, folder)
        for path in sorted(folder.rglob("*.nc")):
            tree = xr.open_datatree(path)
            parts.append(f"## {path.name}\n\n{tree.attrs.get('title', '')}\n")
            for group in tree.subtree:
                if group.dataset.variables:
                    parts.append(_variables(group.path, group.dataset))
            tree.close()
    return "\n".join(parts)


def _run(runs: Mapping[str, Sequence[str]], folder: Path) -> None:
    """Run commands in a folder, each with its overrides, one after the other in one process.

    Raises
    ------
    RuntimeError
        If a command fails; the message has the output.
    """
    calls = []
    for command, overrides in runs.items():
        calls.append([command, *overrides, f"hydra.run.dir={command}"])
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    started = [sys.executable, "-c", RUN_COMMANDS, json.dumps(calls)]
    done = subprocess.run(started, cwd=folder, env=environment, capture_output=True)
    if done.returncode:
        output = done.stdout.decode() + done.stderr.decode()
        texts = "; ".join(" ".join(call) for call in calls)
        raise RuntimeError(f"docs/generate.py: one of these commands failed: {texts}\n{output}")


def _variables(group: str, dataset: xr.Dataset) -> str:
    """Return a table of the variables of one group of a file."""
    lines = [f"Group `{group}`\n"] if group != "/" else []
    lines += ["| variable | dimensions | unit | meaning |", "|---|---|---|---|"]
    for name, variable in dataset.variables.items():
        unit = str(variable.attrs.get("units", "") or variable.encoding.get("units", ""))
        meaning = variable.attrs.get("long_name", variable.attrs.get("description", ""))
        dimensions = ", ".join(map(str, variable.dims))
        lines.append(f"| `{name}` | {dimensions} | {_cell(unit)} | {_cell(str(meaning))} |")
    return "\n".join([*lines, ""])
