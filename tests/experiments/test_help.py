"""`--help` and the progress line of a terminal."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli import progress
from experiments.cli.help import print_help
from helpers.commands import ROOT, printed_by, run_command
from sysid import __version__

#: prints the help, then the large packages that are loaded
PRINT_HELP = """
import atexit, sys
from experiments.identify import main

def print_heavy():
    heavy = {'numba', 'numpy', 'scipy', 'xarray', 'netCDF4', 'matplotlib'}
    print('heavy:', sorted(heavy & set(sys.modules)))

sys.argv[1:] = ['--help']
atexit.register(print_heavy)
main()
"""


def help_text(*arguments):
    """Return what `sysid-identify --help` prints with these arguments."""
    return run_command("identify", "--help", *arguments).out


@pytest.mark.parametrize("command", ["identify", "collect"])
def test_the_version_is_that_of_the_toolbox(command):
    assert run_command(command, "--version").out == f"sysid {__version__}\n"


def test_help_lists_options_and_loads_nothing_heavy(tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", PRINT_HELP],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, printed_by(process)
    assert process.stdout.endswith("heavy: []\n")
    for word in ("  reduction ", "mean_relevance;", "budget,", "--help GROUP"):
        assert word in process.stdout
    assert not list(tmp_path.iterdir())


def test_help_whose_reader_has_gone_ends_without_a_message():
    reader, writer = os.pipe()
    os.close(reader)
    script = Path(sys.executable).parent / "sysid-identify"
    process = subprocess.run([script, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert process.returncode == 0
    assert process.stderr == ""


def test_the_overview_of_the_help_fits_on_a_screen():
    assert len(help_text().splitlines()) < 45


def test_help_of_a_group_lists_its_options():
    text = help_text("narx")
    for path in (ROOT / "conf" / "narx").glob("*.yaml"):
        assert f"  {path.stem} " in text


def test_help_of_an_option_is_its_file():
    assert help_text("narx=orders") == (ROOT / "conf" / "narx" / "orders.yaml").read_text()


def test_help_of_the_values_explains_the_keys_of_the_command():
    assert "budget: auto  # points of the online GP" in help_text("values")


@pytest.mark.parametrize(
    "command", ["validate", "generate", "export", "collect", "reproduce", "benchmark"]
)
def test_every_command_has_help(command):
    print_help(command)


@pytest.mark.parametrize("group", ["hydra", "nothing", "nothing=at_all"])
def test_help_of_an_unknown_group_reports_it(group):
    result = run_command("identify", "--help", group)
    assert result.code == 1
    name = group.partition("=")[0]
    assert result.err == f"Error: there is no group {name!r}; sysid-identify --help lists them\n"
    assert result.out == ""


def test_help_of_an_unknown_option_lists_the_options_of_the_group():
    with pytest.raises(ValueError, match=r"no option 'nonsense' of training.*adaptive, fixed"):
        print_help("identify", "training=nonsense")


def test_help_of_a_misspelt_option_suggests_one():
    with pytest.raises(ValueError, match=r"no option 'orderz' of narx; did you mean 'orders'\?"):
        print_help("identify", "narx=orderz")


def test_the_progress_line_of_a_terminal_gives_way_to_output(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", screen)
    monkeypatch.setattr(progress.Terminal, "work", ["loading"])
    out = progress.Terminal(screen)
    with progress.doing("training"), progress.doing(progress.COMPILING):
        progress.show()
        out.write("result\n")
        out.write("\rsweep:  50%|##   | 1/2 [00:00<?, ?job/s]")
        progress.show()
    out.write("\rsweep: 100%|####| 2/2 [00:00<?, ?job/s]")
    out.write("note\n")
    out.write("\rsweep: 100%|####| 2/2 [00:00<?, ?job/s]")
    out.write("\n")
    progress.show()
    out.write("end\n")
    without_times = re.sub(r", \d+ s|\[00.*?\]", "", screen.getvalue())
    shown = without_times.replace(progress.ERASE, "<")
    activity = "training: compiling, once per machine"
    lines = [
        f"<{activity}<result",
        f"\rsweep:  50%|##   | 1/2 <sweep 1/2: {activity}<\rsweep: 100%|####| 2/2 <note",
        "\rsweep: 100%|####| 2/2 ",
        "<loading<end",
        "",
    ]
    assert shown == "\n".join(lines)


@pytest.mark.parametrize("group", ["a" * 300, "system=" + "a" * 300])
def test_help_of_a_group_whose_name_no_file_can_have_says_so(group):
    with pytest.raises(ValueError, match=r"there is no (group|option)"):
        print_help("identify", group)
