"""Which processes a command sets up: its own, and not the workers of a sweep."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: a command that states whether it owns its process, and whether a spawned worker does
SCRIPT = """
import sys

from experiments.cli.process import owns_process


def tell(name):
    print(name, owns_process(), flush=True)


if __name__ == "__main__":
    sys.argv[0] = "sysid-identify"
    tell("command")
    import multiprocessing

    worker = multiprocessing.get_context("spawn").Process(target=tell, args=("worker",))
    worker.start()
    worker.join()
"""


def test_a_command_owns_its_process_and_a_worker_does_not(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.split() == ["command", "True", "worker", "False"]


def test_nothing_that_starts_a_command_imports_multiprocessing():
    """A process that has imported it counts as a worker (`owns_process`)."""
    code = "import sys; import experiments.cli.entry; print('multiprocessing' in sys.modules)"
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "False"
