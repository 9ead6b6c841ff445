"""The configuration that a file states, read as plain data.

The file may come from an untrusted author: nothing in the text is run, and reading it takes little
memory and time.
"""

from typing import Any

from experiments.cli.build import with_present_names
from experiments.cli.plain_yaml import (
    MAX_CONFIGURATION_CHARACTERS,
    MAX_NESTING_LEVELS,
    read_plain,
    text_of,
)
from sysid.identification import AUTOMATIC_BUDGET

#: end of the name of the class that chooses lags
AUTOMATIC_LAGS = ".AutomaticNarx"

#: value of ``narx.target`` that names every output of the source
ALL_OUTPUTS = "all"

__all__ = [
    "MAX_CONFIGURATION_CHARACTERS",
    "MAX_NESTING_LEVELS",
    "chooses_budget",
    "chooses_lags",
    "read_configuration",
    "screens_records",
    "state_alike",
    "states_free_run",
    "text_of",
]


def read_configuration(text: object) -> dict[str, Any] | None:
    """Return the settings that a text states, with the present names of the toolbox's classes.

    Interpolations stay texts.

    Parameters
    ----------
    text
        Attribute ``configuration`` of a file.

    Returns
    -------
    dict or None
        None if the text is no configuration: it is too long or too deeply nested, is no map,
        contains objects other than numbers, texts, lists and maps, or repeats a part by its name,
        which can grow without end.
    """
    settings = read_plain(text)
    return with_present_names(settings) if isinstance(settings, dict) else None


def states_free_run(text: object) -> bool:
    """Return whether the text of a configuration states a training for the free run."""
    configuration = read_configuration(text) or {}
    training = configuration.get("training")
    return isinstance(training, dict) and training.get("_target_") == "sysid.FreeRun"


def screens_records(text: object) -> bool:
    """Return whether the text of a configuration leaves records to be screened for gross errors.

    It does unless it states ``gate=none``.
    """
    configuration = read_configuration(text) or {}
    return "gate" not in configuration or configuration["gate"] not in (None, "none")


def state_alike(one: object, other: object, key: str) -> bool:
    """Return whether the texts of two configurations state the same value of a key.

    They do not if one of them cannot be read, or does not have the key.
    """
    first = read_configuration(one)
    second = read_configuration(other)
    if first is None or second is None or key not in first or key not in second:
        return False
    return text_of(first[key]) == text_of(second[key])


def chooses_lags(configuration: object) -> bool:
    """Return whether the text of a configuration leaves the choice of the lags to the toolbox.

    It does not if it cannot be read.
    """
    narx = (read_configuration(configuration) or {}).get("narx")
    return isinstance(narx, dict) and str(narx.get("_target_", "")).endswith(AUTOMATIC_LAGS)


def chooses_budget(configuration: object) -> bool:
    """Return whether the text of a configuration leaves the number of points to held-out errors.

    These decide for models of records that are not trained for the free run. It does not if it
    cannot be read.
    """
    stated = read_configuration(configuration) or {}
    is_of_records = bool(stated.get("data"))
    is_open = stated.get("budget") == AUTOMATIC_BUDGET
    return is_of_records and is_open and not states_free_run(configuration)
