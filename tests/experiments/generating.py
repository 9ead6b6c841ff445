"""How the tests make a benchmark folder, and how they run what is in it without the toolbox."""

import importlib.util
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from hydra import compose, initialize_config_dir
from running import CONF

COMMAND = (sys.executable, "-m", "experiments.generate")
LENGTHS = {"estimation": 300, "validation": 80, "test": 150}
WINDOW = 10
SHORT = (
    *(f"{role}={n}" for role, n in LENGTHS.items()),
    f"initialisation_window={WINDOW}",
    "training.n_initial=20",
    "training.restarts=1",
    "budget=15",
    "noise_paths=20",
    "figures=false",
)
#: a plant in open loop with measurement noise only, and one in closed loop with process noise only
BOUC_WEN = ("system=bouc_wen", "excitation.band=[5,150]", "excitation.rms=50", "noise.snr_db=40")
BUILDING = ("system=building",)
#: put in front of a script: only NumPy, netCDF4 and the standard library can be imported
ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sysid", "simulators", "experiments", "conf", "hydra", "omegaconf", "xarray",
                                      "scipy", "numba", "pandas", "matplotlib"}:
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Refuse())
"""


def configured(*overrides):
    """Configuration as the command composes it."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("generate", overrides=list(overrides))


def generate(folder, *overrides):
    """Make a short benchmark in this process; returns its folder."""
    from experiments.generation import run

    run(configured(*SHORT, f"output={folder}", *overrides), Path(folder).parent)
    return Path(folder)


def command(folder, *overrides, **options):
    """Run the command in a process of its own, in a folder that also takes what Hydra writes."""
    return subprocess.run([*COMMAND, *overrides], cwd=folder, capture_output=True, text=True, timeout=120, **options)


def alone(folder, script, *arguments):
    """Run a script in a folder, without the toolbox."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE + script, *map(str, arguments)],
        cwd=folder,
        env={"PYTHONPATH": "", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )


def script_of(folder):
    """Python that runs the scoring script of a folder as a program."""
    return f"import runpy\nsys.argv[0] = {str(folder / 'score.py')!r}\nrunpy.run_path(sys.argv[0], run_name='__main__')"


def score(folder, *arguments):
    """Run the scoring script of a folder in this process: exit code, stdout and stderr as a process has them."""
    place = importlib.util.spec_from_file_location("score_of_a_folder", folder / "score.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    said, complained = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complained):
        try:
            code = module.main([str(argument) for argument in arguments])
        except SystemExit as end:  # of argparse
            code = end.code
    return subprocess.CompletedProcess(arguments, code, said.getvalue(), complained.getvalue())


def scored(folder, *arguments):
    """What the scoring script prints as JSON."""
    process = score(folder, *arguments, "--json")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)
