"""Pages that the code writes: options and commands from conf/, public names from `__init__.pyi`,
files from a run.
"""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import is_dataclass
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
#: areas of the public names: title, and the modules that it takes them from
AREAS = {
    "sysid": {
        "Identify": (
            "sysid.identified",
            "sysid.identification",
            "sysid.stream",
            "sysid.lag_choice",
        ),
        "Models and files": (
            "sysid.model",
            "sysid.gp.mean",
            "sysid.gp.affine_map",
            "sysid.export",
            "sysid.store",
        ),
        "Lags": ("sysid.narx",),
        "Online Gaussian process": (
            "sysid.gp.online",
            "sysid.gp.rules",
            "sysid.gp.dictionary",
            "sysid.gp.selection",
        ),
        "Kernels": ("sysid.gp.kernels",),
        "Hyper-parameters": (
            "sysid.gp.training",
            "sysid.gp.adaptation",
            "sysid.gp.marginal_likelihood",
        ),
        "Training for the free run": ("sysid.simulation_error",),
        "Prediction and validation": ("sysid.simulation",),
        "Records": ("sysid.data",),
        "Sparse Gaussian processes": ("sysid.gp.sparse",),
        "Errors": ("sysid.errors",),
    },
    "sysid.estimators": {"scikit-learn and river": ("sysid.estimators",)},
    "simulators": {
        "Simulation": (
            "simulators.simulation",
            "simulators.many",
            "simulators.record",
            "simulators.runge_kutta",
        ),
        "Systems": ("simulators.system", "simulators.systems"),
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
KEY = re.compile(
    r"^(?P<indent> *)(?P<item>- )?(?P<key>[\w./@]+):(?: +(?P<value>.*?))??(?: +# (?P<note>.*))?$"
)


def write(folder: Path) -> None:
    """Write all pages into a folder."""
    pages = {"commands.md": _commands(), **_options(), **_api(), "files.md": _files()}
    for path in folder.rglob("*.*"):
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if (
            not path.is_file() or path.read_text() != text
        ):  # what has not changed is not built again
            path.write_text(text)


def _commands() -> str:
    parts = [
        "# Commands\n",
        "Every command takes overrides, `key=value`, and options of groups, `group=option`. `--help` lists them, `-m` "
        "runs a command once for each combination of values that are separated by commas "
        "([sweeps](../how_to/sweep.md)). `python -m experiments.identify` is the same as `sysid-identify`.\n",
    ]
    for command in COMMANDS:
        path = CONF / f"{command}.yaml"
        parts += [
            f"## sysid-{command}\n",
            _header(path).partition(": ")[2].capitalize() + "\n",
            _groups(path),
            _table(path),
        ]
    parts += [
        "## The simulated plant\n",
        _header(CONF / "plant.yaml").capitalize() + "\n",
    ]
    return "\n".join([*parts, _groups(CONF / "plant.yaml"), _table(CONF / "plant.yaml")])


def _groups(path: Path) -> str:
    """Tabulate the groups of a command and the options that it starts from."""
    text = path.read_text().partition("defaults:\n")[2]
    found = re.findall(r"^  - (?:override )?([\w/]+): (.*?)(?:  # .*)?$", text, flags=re.MULTILINE)
    rows = [
        f"| [`{name}`](options/{_page(name)}) | `{value}` |"
        for name, value in found
        if _folder(name)
    ]
    return "\n".join(["| group | option it starts from |", "|---|---|", *rows, ""]) if rows else ""


def _folder(group: str) -> bool:
    return (CONF / group).is_dir() and group != "hydra/job_logging"


def _page(group: str) -> str:
    return group.replace("/", "_") + ".md"


def _options() -> dict[str, str]:
    """Write a page for each group of conf/, and one that lists them."""
    groups = sorted(
        {path.parent.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml")} - {"."}
    )
    index = [
        "# Groups of options\n",
        "One folder of `conf/` is a group, one file an option.\n",
    ]
    index += ["| group | options |", "|---|---|"]
    pages = {}
    for group in groups:
        paths = sorted((CONF / group).glob("*.yaml"))
        index.append(
            f"| [`{group}`]({_page(group)}) | {', '.join(f'`{path.stem}`' for path in paths)} |"
        )
        lines = [f"# {group}\n", "| option | what it is |", "|---|---|"]
        lines += [f"| `{group}={path.stem}` | {_cell(_header(path))} |" for path in paths]
        for path in paths:
            if rows := _table(path):
                lines += [f"\n## {group}={path.stem}\n", _target(path), rows]
        pages[f"options/{_page(group)}"] = "\n".join(lines) + "\n"
    toc = "\n".join(["\n```{toctree}", ":hidden:", "", *map(_page, groups), "```\n"])
    return pages | {"options/index.md": "\n".join(index) + "\n" + toc}


def _header(path: Path) -> str:
    """Comment at the top of a file; without one the first line about the class that it names."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        if "@package" not in line:
            lines.append(line[1:].strip())
    if not lines and (name := _name(path)):
        package, _, public = name.partition(".")
        lines.append(
            inspect.getdoc(getattr(importlib.import_module(package), public)).splitlines()[0]
        )
    return re.sub(
        r"(?<![`\w])(sysid-[\w]+ [\w/=.]+|[\w.]+=[<\[\w][^ :;,)]*)",
        r"`\1`",
        " ".join(lines).replace("``", "`"),
    )


def _name(path: Path) -> str:
    found = re.search(r"^_target_: (\S+)", path.read_text(), flags=re.MULTILINE)
    return found[1] if found else ""


def _target(path: Path) -> str:
    name = _name(path)
    return (
        f"{{py:obj}}`{name}`\n"
        if name.startswith(("sysid.", "simulators."))
        else f"`{name}`\n"
        if name
        else ""
    )


def _table(path: Path) -> str:
    """Keys of a file with their values and comments."""
    rows = [
        f"| `{key}` | {f'`{value}`' if value else ''} | {_cell(note)} |"
        for key, value, note in _keys(path)
    ]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows, ""]) if rows else ""


def _cell(text: str) -> str:
    text = text.replace("|", "\\|").replace("*", "\\*").replace("$", "\\$").replace("<", "&lt;")
    return re.sub(r"(?<!\w)_", r"\\_", text)


def _keys(path: Path) -> Iterator[tuple[str, str, str]]:
    """Dotted key, value and comment of every line; what Hydra needs for itself is left out."""
    above: list[tuple[int, str]] = []
    items: dict[str, int] = {}
    hidden = -1
    for line in path.read_text().splitlines():
        if not (found := KEY.match(line)):
            continue
        indent = len(found["indent"])
        key = found["key"]
        value = found["value"] or ""
        if 0 <= hidden < indent or (hidden == 0 and found["item"]):
            continue
        hidden = -1
        above = [(depth, name) for depth, name in above if depth < indent]
        if found["item"]:
            place = ".".join(name for _, name in above)
            items[place] = items.get(place, -1) + 1
            above.append((indent, str(items[place])))
            indent += 2
        if indent == 0 and key in ("defaults", "hydra"):
            hidden = 0
            continue
        above.append((indent, key))
        if key[0] != "_" and (value or found["note"]):
            yield ".".join(name for _, name in above), value, found["note"] or ""


def _api() -> dict[str, str]:
    """Write a page for each area of public names."""
    pages = {}
    for package, areas in AREAS.items():
        module = importlib.import_module(package)
        public = {
            name: value for name in module.__all__ if callable(value := getattr(module, name))
        }
        for title, modules in areas.items():
            names = [name for name, value in public.items() if value.__module__.startswith(modules)]
            for name in names:
                public.pop(name)
            file = f"api/{package.replace('.', '_')}_{re.sub(r'[^a-z]+', '_', title.lower())}.rst"
            pages[file] = _area(package, title, names)
        if public:
            raise ValueError(
                f"docs/generate.py: no area of {package} takes {sorted(public)}; add their modules to AREAS"
            )
    return pages


def _area(package: str, title: str, names: list[str]) -> str:
    module = importlib.import_module(package)
    lines = [title, "=" * len(title), "", f".. currentmodule:: {package}", ""]
    lines += [
        ".. autosummary::",
        "   :nosignatures:",
        "",
        *(f"   {name}" for name in names),
        "",
    ]
    for name in names:
        found = getattr(module, name)
        if not inspect.isclass(found):
            lines += [f".. autofunction:: {name}", ""]
            continue
        lines.append(f".. autoclass:: {name}")
        fields = [field for field in _fields(found) if field[0][0] != "_"]
        if any(note for *_, note in fields):
            rows = [
                ("field", "default", "meaning"),
                *((f"``{key}``", *rest) for key, *rest in fields),
            ]
            lines += [
                f"   :exclude-members: {', '.join(key for key, *_ in fields)}",
                "",
            ]
            lines += ["   .. list-table::", "      :header-rows: 1", ""]
            lines += [
                f"      {' ' if i else '*'} - {cell}" for row in rows for i, cell in enumerate(row)
            ]
        lines.append("")
    return "\n".join(lines) + "\n"


def _fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """Name, default and comment of the fields of a dataclass or a named tuple, as they stand in its
    source.

    What a field of a system says in its metadata counts as its comment.
    """
    if not (is_dataclass(kind) or hasattr(kind, "_fields")):
        return
    source = re.sub(r"field\(\n\s+(.*?)\n\s+\)", r"field(\1)", inspect.getsource(kind))
    source = re.sub(
        r"parameter\(\n.*?\n    \)",
        lambda m: " ".join(m[0].split()),
        source,
        flags=re.DOTALL,
    )
    source = re.sub(r"(?<!\w)\(\n\s+(.*?)(  # .*)?\n\s+\)", r"\1\2", source)
    factory = r"field\(default_factory=(?:lambda: (.*?)|(\w+))(?:, repr=False)?\)(?=$|  #)"
    source = re.sub(factory, lambda m: m[1] or f"{m[2]}()", source, flags=re.MULTILINE)
    texts = describe_fields(kind)
    above = ""
    for line in source.splitlines():
        if re.match(r"    (@|def )", line):
            return
        above = (
            f"{above} {line.strip()[2:].strip()}".strip() if line.startswith("    #:") else above
        )
        found = re.match(r"    (\w+): (?!ClassVar)[^=#]*?(?: = (.*?))?(?:  # (.*))?$", line)
        if found and found[1] in kind.__annotations__:
            default = _default(found[2] or "")
            note = re.sub(
                r"([\\*|])", r"\\\1", found[3] or above or texts.get(found[1], "")
            ).replace("`", "``")
            yield (
                found[1],
                f"``{default}``" if default else "",
                re.sub(r"_(?!\w)", r"\\_", note),
            )
            above = ""


def _default(source: str) -> str:
    """Source of a field's default: of ``parameter`` its first argument, of ``field(metadata=...)``
    nothing.
    """
    if source.startswith("field(metadata="):
        return ""
    if source.startswith("parameter("):
        call = ast.parse(source, mode="eval").body
        return ast.get_source_segment(source, call.args[0])
    return source


#: runs whose files are described: command and overrides
RUNS = {
    "identify": ["duration=10d", "figures=false", "cache=null"],
    "generate": [
        *(
            "system=van_der_pol",
            "estimation=60",
            "validation=20",
            "test=40",
            "initialisation_window=5",
        ),
        *("baseline=[mean]", "figures=false", "output=made", "noise_paths=4"),
    ],
    "validate": [
        "model=identify/model.nc",
        "system=building",
        "duration=2d",
        "propagation=mean_only",
        "figures=false",
    ],
}


def _files() -> str:
    """Variables of every NetCDF file that the commands write, read from such files."""
    parts = [
        "# Files\n",
        "This page is made from files that `sysid-identify`, `sysid-generate` and `sysid-validate` have just written. "
        "All are NetCDF 4: `xarray.open_dataset(path, group=...)` reads them, `ncdump -h` explains them. Every file "
        "carries `schema` and `schema_version` (files of another version are refused), the configuration, the seed, "
        "package versions, the source commit where there is one, and the time of its creation. A file appears complete "
        "or not at all.\n",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for command, overrides in RUNS.items():
            call = [
                sys.executable,
                "-m",
                f"experiments.{command}",
                *overrides,
                f"hydra.run.dir={command}",
            ]
            done = subprocess.run(
                call,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                capture_output=True,
            )
            if done.returncode:
                raise RuntimeError(
                    f"docs/generate.py: {' '.join(call)}\n{done.stdout.decode()}{done.stderr.decode()}"
                )
        for path in sorted(folder.rglob("*.nc")):
            tree = xr.open_datatree(path)
            parts.append(f"## {path.name}\n\n{tree.attrs.get('title', '')}\n")
            for group in tree.subtree:
                if group.dataset.variables:
                    parts += [_variables(group.path, group.dataset)]
            tree.close()
    return "\n".join(parts)


def _variables(group: str, dataset: xr.Dataset) -> str:
    lines = [f"Group `{group}`\n"] if group != "/" else []
    lines += ["| variable | dimensions | unit | meaning |", "|---|---|---|---|"]
    for name, variable in dataset.variables.items():
        unit = variable.attrs.get("units", "") or str(variable.encoding.get("units", ""))
        meaning = variable.attrs.get("long_name", variable.attrs.get("description", ""))
        dims = ", ".join(map(str, variable.dims))
        lines.append(f"| `{name}` | {dims} | {_cell(str(unit))} | {_cell(str(meaning))} |")
    return "\n".join([*lines, ""])
