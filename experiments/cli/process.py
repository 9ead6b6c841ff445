"""The set-up of a command's process: garbage collection, Ctrl-C while it starts, progress."""

import gc
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

from experiments.cli import progress

EXIT_CODE_INTERRUPTED = 130
COMPILED_FOLDER_VARIABLE = "NUMBA_CACHE_DIR"  # environment variable of the compiled functions
ADMINISTRATOR = 0  # number of the user who may write everywhere
#: thresholds of Python's garbage collector: imports make many objects but no garbage, and the
#: search for it took a third of their time
COLLECTOR_THRESHOLDS = (100_000, 50, 100)
#: folder of the commands: `python -m experiments.identify` runs a file in it
COMMANDS_FOLDER = Path(__file__).parents[1]


def owns_process() -> bool:
    """Whether this process runs a command, not a script of the user or a worker of a sweep."""
    program = Path(sys.argv[0])
    is_command = program.name.startswith("sysid-") or COMMANDS_FOLDER in program.resolve().parents
    # a worker has this module; so has each process that has imported multiprocessing, which is why
    # nothing that is imported before may do so
    return is_command and "__mp_main__" not in sys.modules


def set_up_process() -> None:
    """Collect less garbage, end with one line at Ctrl-C, and show the progress line.

    Before that the standard streams are completed (`complete_standard_streams`).
    """
    complete_standard_streams()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    sys.excepthook = _end_quietly
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    progress.start()


def complete_standard_streams() -> None:
    """Make sure that there are standard streams, and that they take every text.

    A service or a job system may start a command with closed streams. Nobody reads them then, and
    nothing else may get their numbers: what a library prints would get into a file of results. A
    character that a stream cannot encode is written as its number, because an error there would
    hide the message.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def warn_of_code_of_others() -> None:
    """Warn if everybody, or another user, may write to the folder of compiled functions.

    Numba loads from it what was compiled before, and its files can run code.
    """
    folder = os.environ.get(COMPILED_FOLDER_VARIABLE)
    if not folder or not hasattr(os, "getuid"):
        return
    try:
        status = os.stat(folder)
    except OSError:  # numba makes it, or takes another folder
        return
    is_of_another_user = status.st_uid not in (ADMINISTRATOR, os.getuid())
    if is_of_another_user or status.st_mode & stat.S_IWOTH:
        print(
            f"Note: other users can write to {COMPILED_FOLDER_VARIABLE}={folder}, and so run code "
            "with your rights: set it to a folder of your own",
            file=sys.stderr,
        )


def _end_quietly(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Report an interrupt at the start or end of a command in one line, with exit code 130."""
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    print("Interrupted", file=sys.stderr)
    raise SystemExit(EXIT_CODE_INTERRUPTED)


def end_at_once(number: int, frame: Any) -> None:
    """End the process at Ctrl-C while a command is loaded and composed.

    Nothing is open yet, and an exception might be caught by a library.
    """
    print("Interrupted", file=sys.stderr, flush=True)
    os._exit(EXIT_CODE_INTERRUPTED)


def stop_ending_at_once() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, if `end_at_once` handled it so far."""
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
