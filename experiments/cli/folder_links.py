"""Refuses to run in a folder in which a link would lead a file of the run elsewhere."""

import sys
from pathlib import Path
from typing import Any, Never

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.ends import Refused
from experiments.cli.terminal import printable
from sysid.foreign import check_folder
from sysid.store import StoreError


class RefusesLinks(Callback):
    """Hydra callback that checks the folder of a single run before Hydra writes into it.

    Somebody else may have sent the folder. Hydra opens its log file and the files of ``.hydra``
    under their final names, and would write through a link. All other files of a run are written
    beside and renamed, which replaces a link.
    """

    def on_run_start(self, config: DictConfig, **options: Any) -> None:
        """Check the folder, and the names under which Hydra writes files."""
        try:
            name_of_folder = str(config.hydra.run.dir)
        except OmegaConfBaseException:  # it refers to a value that is no name
            name_of_folder = ""
        if not name_of_folder:
            _refuse(
                "the folder of the run needs a name, such as output=results where the command has "
                "output, otherwise hydra.run.dir=results; '.' is the current folder"
            )
        folder = Path(name_of_folder)
        names = [f"{config.hydra.job.name}.log"]
        if config.hydra.output_subdir is not None:
            names.append(str(config.hydra.output_subdir))
        try:
            for name in names:
                check_folder(folder, name)
        except StoreError as error:
            _refuse(printable(str(error)))
        except OSError:  # Hydra reports what is wrong with the folder
            return


def _refuse(message: str) -> Never:
    """End the command before anything is written."""
    print(f"Error: {message}", file=sys.stderr)
    raise Refused(1) from None
