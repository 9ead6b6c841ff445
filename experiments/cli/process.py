"""The process of a command, from its first moment: garbage collection, Ctrl-C while it starts,
progress.
"""

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

from experiments.cli import progress

EXIT_CODE_INTERRUPTED = 130
#: of Python's garbage collector: imports make many objects and no garbage, and to look for it took a third of them
COLLECTOR_THRESHOLDS = (100_000, 50, 100)
COMMANDS = Path(__file__).parents[
    1
]  # folder of the commands: `python -m experiments.identify` runs a file in there


def owns_process() -> bool:
    """Whether this process is a command's own: not somebody's script, nor a worker of a sweep."""
    program = Path(sys.argv[0])
    is_command = program.name.startswith("sysid-") or COMMANDS in program.resolve().parents
    return is_command and "__mp_main__" not in sys.modules


def set_up_process() -> None:
    """Collect less garbage, end quietly at Ctrl-C, and show what is being done."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    sys.excepthook = _end_quietly
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    progress.start()


def _end_quietly(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Say in one line that a command was interrupted while it started or ended, with exit code
    130.
    """
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    print("Interrupted", file=sys.stderr)
    raise SystemExit(EXIT_CODE_INTERRUPTED)


def end_at_once(number: int, frame: Any) -> None:
    """Handle Ctrl-C while a command is loaded and composed: nothing is open yet, libraries may
    swallow an error.
    """
    print("Interrupted", file=sys.stderr, flush=True)
    os._exit(EXIT_CODE_INTERRUPTED)


def stop_ending_at_once() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, where `end_at_once` has handled it."""
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
