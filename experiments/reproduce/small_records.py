"""Five small records of the literature on Gaussian-process state-space models.

Their first half is learned, and a free run from the start of the second half is scored (Doerr and
others, Probabilistic Recurrent State-Space Models, ICML 2018). No public address has them as they
are read here, so the user names a folder that does.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import sysid
from sysid import DataError
from sysid.data.published import DATA_VARIABLE
from sysid.data.source import part

FOLDER = "gpssm"  # sub-folder of the folder that `DATA_VARIABLE` names
#: last samples of the first half, which begin the free run of the second half and are not scored
N_INITIALISING_SAMPLES = 50
MAX_RECORD_DIFFERENCE = 1e-3  # of the standard deviation by which a record is recognised


@dataclass(frozen=True)
class SmallRecord(sysid.DataSource):
    """A record of the input ``u`` and the output ``y``, which are the columns of a text file."""

    file: str  # name in the folder
    sampling_time: float  # s
    n_samples: int  # of both halves
    output_std: float  # standard deviation of the output in the second half, in its unit

    def load(self) -> sysid.Recordings:
        """Read the file and divide it into halves; see `DataSource.load`."""
        path = self._find()
        name = path.stem
        whole = sysid.CsvFiles(
            estimation=[str(path)], inputs=["u"], outputs=["y"], dt=self.sampling_time
        ).load()
        (record,) = whole.estimation
        n = record.sizes["time"]
        half = n // 2
        found_std = float(np.std(record["y"].values[half:]))
        difference = abs(found_std - self.output_std)
        if n != self.n_samples or difference > MAX_RECORD_DIFFERENCE * self.output_std:
            raise DataError(
                f"{path} is not the record that published errors belong to: expected "
                f"{self.n_samples} samples, and the standard deviation {self.output_std:g} of y in "
                f"the second half, got {n} and {found_std:.5g}; replace the file, or remove it"
            )
        estimation = part(record, 0, half, name=f"{name}, first half")
        test = part(
            record,
            half - N_INITIALISING_SAMPLES,
            initialisation_window=N_INITIALISING_SAMPLES,
            name=f"{name}, second half",
        )
        return sysid.Recordings(name, ("u",), ("y",), estimation=(estimation,), test=(test,))

    def _find(self) -> Path:
        """Return the path of the file.

        Raises
        ------
        DataError
            No folder is named, or it does not have the file.
        """
        given = os.environ.get(DATA_VARIABLE)
        advice = (
            f"put {self.file}, text with the columns u and y, into a folder, or into its "
            f"sub-folder {FOLDER}/, and name that folder with the environment variable "
            f"{DATA_VARIABLE}"
        )
        if not given:
            raise DataError(f"{self.file} has no public address: {advice}")
        for folder in (Path(given), Path(given, FOLDER)):
            if (folder / self.file).is_file():
                return folder / self.file
        lack = "does not have" if Path(given).is_dir() else "is no folder, and cannot have"
        raise DataError(f"{given} {lack} {self.file}: {advice}")


#: The records by the name of their task.
SMALL_RECORDS = {
    "actuator": SmallRecord("actuator.csv", 0.05, 1024, 1.5830),
    "ball_beam": SmallRecord("ball_beam.csv", 0.1, 1000, 0.065228),
    "drives": SmallRecord("drives.csv", 0.02, 500, 0.73459),
    "dryer": SmallRecord("dryer.csv", 0.08, 1000, 0.81878),
    "gas_furnace": SmallRecord("gas_furnace.csv", 9.0, 296, 2.6011),
}
