"""Commands of the toolbox: each file is one, `python -m experiments.<name>`.

The matrices of an online GP are small: one BLAS thread is fastest for them and leaves the other
cores to other jobs. The limit must be set before NumPy is imported; an explicit setting wins.
"""

import gc
import os
import signal
import sys
from typing import Any

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
for _name in THREAD_VARIABLES:
    os.environ.setdefault(_name, "1")


def _end_quietly(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Say in one line that a command was interrupted while it started or ended, with exit code 130."""
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    print("Interrupted", file=sys.stderr)
    raise SystemExit(130)


def end_at_once(number: int, frame: Any) -> None:
    """Handle Ctrl-C while a command is loaded and composed: nothing is open yet, libraries may swallow an error."""
    print("Interrupted", file=sys.stderr, flush=True)
    os._exit(130)


_is_command = sys.argv[:1] == ["-m"] or os.path.basename("".join(sys.argv[:1])).startswith("sysid-")
if _is_command and "__mp_main__" not in sys.modules:  # not in somebody's script, nor in a worker of a sweep
    gc.set_threshold(100_000, 50, 100)  # imports make many objects and no garbage: looking for it took a third of them
    sys.excepthook = _end_quietly
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from experiments import progress

    progress.start()
