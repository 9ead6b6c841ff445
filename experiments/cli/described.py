"""Objects that a file describes: which classes it may name, and which values it may hold.

The file may come from an untrusted author. Its content is plain data, which is never resolved. It
may name the classes of a closed table, and classes of the user's own that he trusts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from inspect import isabstract
from typing import Any, NamedTuple

from hydra._internal.utils import _locate

from experiments.cli.build import TOOLBOX_PACKAGES, name_now, present_name
from experiments.cli.plain_yaml import MAX_NESTING_LEVELS
from sysid.errors import UserError
from sysid.model.description import INTERPOLATION

#: classes that a file may name, by their module. Calling one of them with plain values has no
#: effect outside the object: it opens no file, and imports nothing
CLASSES = {
    "simulators": {
        "BoucWen",
        "Building",
        "CascadedTanks",
        "Heater",
        "QuadrupleTank",
        "Servo",
        "Silverbox",
        "VanDerPol",
        "WienerHammerstein",
        "Change",
        "PI",
        "OpenLoop",
        "ComfortSchedule",
        "Levels",
        "EpwWeather",
        "MeasuredWeather",
        "SyntheticWeather",
        "APRBS",
        "FilteredNoise",
        "LinearChirp",
        "LogarithmicChirp",
        "Multisine",
        "NoExcitation",
        "PRBS",
        "Recorded",
        "Staircase",
        "Steps",
        "MeasurementNoise",
        "OutlierNoise",
    },
    "sysid": {
        "Linear",
        "Matern32",
        "Matern52",
        "Product",
        "SquaredExponential",
        "Sum",
        "Diagonal",
        "SecondOrderSpline",
        "StableSpline",
        "TunedCorrelated",
        "WithLinearPart",
        "AutomaticMean",
        "ConstantMean",
        "LinearMean",
        "ZeroMean",
        "Always",
        "Either",
        "ErrorThreshold",
        "Novelty",
        "VarianceThreshold",
        "AcceptAll",
        "ExceedsMinimum",
        "LogPredictiveDensity",
        "MarginalLogLikelihood",
        "MeanRelevance",
        "PredictiveEntropy",
        "PriorEntropy",
        "Backward",
        "Forward",
        "Adaptive",
        "Fixed",
        "FreeRun",
        "MaximumAPosteriori",
        "MaximumLikelihood",
        "DifferenceSearch",
        "OutputErrorRefinement",
        "ProfileSearch",
        "LinearPart",
        "Narx",
        "Orders",
        "InformationGain",
        "SpaceFilling",
        "VarianceReduction",
    },
    "experiments.plant.designed": {"Informative"},
    "experiments.plant.lags": {"AutomaticNarx"},
    "experiments.plant.physics": {"ResidualNarx"},
    "experiments.generate.baselines": {"Arx", "Mean", "OnlineGp", "Persistence"},
}
#: keys with which Hydra calls something in another way than with named settings
KEYS_OF_CALLS = ("_args_", "_partial_", "_recursive_", "_convert_")
MAX_PATH_NAME_CHARACTERS = 100  # characters of each name in the path of an entry


class Entry(NamedTuple):
    """An entry of nested maps and lists."""

    path: str  # names of the maps and of the entry, for messages; long ones are cut
    name: str
    value: Any


def check_description(content: Any, trusted: Sequence[str] = (), *, title: str = "") -> None:
    """Refuse plain data that describe anything but objects of known classes with plain values.

    Nothing is imported, called or resolved.

    Parameters
    ----------
    content
        Numbers, texts, lists and maps that somebody else may have written.
    trusted : sequence of str
        Modules and classes of the user's own that the content may name.
    title : str
        Name of the content in the messages.

    Raises
    ------
    ValueError
        If a text or a key has an interpolation, a class is neither in the table nor trusted, an
        object is described by anything but its class and named settings, or maps are nested too
        deeply.
    """
    check_texts(content, title=title)
    for path, name, value in _entries(content, title):
        if name in KEYS_OF_CALLS:
            raise UserError(
                f"{path}: a file may describe an object by _target_ and by its settings, got "
                f"{name}={value!r:.200}: remove {name}, and give every setting its name"
            )
        if name == "_target_":
            _check_target(value, trusted, path.removesuffix("_target_").removesuffix("."))


def check_texts(content: Any, *, title: str = "") -> None:
    """Refuse plain data with a text or a key that looks like an interpolation.

    A file with such a text could not be read again.

    Parameters
    ----------
    content
        Numbers, texts, lists and maps.
    title : str
        Name of the content in the messages.

    Raises
    ------
    ValueError
        If there is one, or maps are nested too deeply.
    """
    for path, name, value in _entries(content, title):
        for text in (name, value):
            if isinstance(text, str) and INTERPOLATION in text:
                raise UserError(
                    f"{path}: expected plain values, got the interpolation {text[:200]!r}: what a "
                    "file describes is not resolved; write the value itself"
                )


def _check_target(target: Any, trusted: Sequence[str], place: str) -> None:
    """Raise UserError unless a file may name a class, or the user trusts it."""
    if not isinstance(target, str):
        raise UserError(f"{place}: _target_ must be the name of a class, got {target!r:.200}")
    if not (_is_known(target) or _is_trusted(target, trusted)):
        public = name_now(target)
        if public is not None and _is_known(public):
            raise UserError(
                f"{place}: _target_ must be {public}, the public name of that class, "
                f"got {target:.200}"
            )
        module = target.rpartition(".")[0]
        raise UserError(
            f"{place}: {target!r:.200} is no class of the toolbox that a file may name, and the "
            f"configuration alone does not make it run: trust it with +trusted=[{module:.200}], if "
            "you know what it does"
        )


def class_of(target: Any, trusted: Sequence[str], role: type, option: str) -> type:
    """Return the class that a file names for a role; a trusted module is imported here.

    Raises
    ------
    ValueError
        If the name is neither in the table nor trusted, cannot be imported, or is not that of a
        dataclass of this role that inherits from a class of the toolbox.
    """
    _check_target(target, trusted, option)
    try:
        found = _locate(present_name(target))
    except Exception as error:
        raise UserError(
            f"{option}: cannot import {target!r} ({error}); put its module on the Python path"
        ) from error
    if not (isinstance(found, type) and _is_described(found, role)):
        kind = "role" if role is object else role.__name__
        raise UserError(
            f"{option}: expected the name of a dataclass that is a {kind} of the toolbox, "
            f"got {target!r}"
        )
    return found


def check_classes(
    content: Mapping[str, Any],
    trusted: Sequence[str],
    roles: Mapping[str, type],
    *,
    title: str = "",
) -> None:
    """Refuse classes of checked content that have not the role of their place.

    A trusted module may hold functions, and classes of other modules, which do anything: its
    classes must inherit from a class of the toolbox. The trusted modules are imported here.

    Parameters
    ----------
    content
        Content that `check_description` has accepted.
    trusted : sequence of str
        Modules and classes of the user's own that the content may name.
    roles : mapping
        Role of the class at a path; ``a.*`` stands for all entries of ``a``. Any role is accepted
        at other paths.
    title : str
        Name of the content in the messages.

    Raises
    ------
    ValueError
        As `class_of`.
    """
    for path, name, target in _entries(content, ""):
        if name == "_target_":
            place = path.removesuffix("._target_")
            group = place.partition(".")[0]
            is_entry_of_group = place.count(".") == 1
            role = roles.get(place, object)
            if place not in roles and is_entry_of_group:
                role = roles.get(f"{group}.*", object)
            class_of(target, trusted, role, f"{title}.{place}".removeprefix("."))


def _entries(content: Any, path: str, level: int = 0) -> Iterator[Entry]:
    """Yield every entry of nested maps and lists.

    Raises
    ------
    ValueError
        If they are nested too deeply.
    """
    if isinstance(content, Mapping):
        entries = [(str(name), value) for name, value in content.items()]
    elif isinstance(content, list | tuple):
        entries = [(str(number), value) for number, value in enumerate(content)]
    else:
        return
    if level > MAX_NESTING_LEVELS:
        raise UserError(f"{path}: expected at most {MAX_NESTING_LEVELS} levels of settings")
    for name, value in entries:
        own_path = f"{path}.{name[:MAX_PATH_NAME_CHARACTERS]}".removeprefix(".")
        yield Entry(own_path, name, value)
        yield from _entries(value, own_path, level + 1)


def _is_known(target: str) -> bool:
    """Whether a name is that of a class in the table."""
    module, _, name = present_name(target).rpartition(".")
    return name in CLASSES.get(module, ())


def _is_trusted(target: str, trusted: Sequence[str]) -> bool:
    """Whether the user trusts a name or its module."""
    return target in trusted or target.rpartition(".")[0] in trusted


def _is_described(kind: type, role: type) -> bool:
    """Whether a class has a role, inherits from a class of the toolbox, and can be made.

    The classes of the table without a base class are of the toolbox themselves.
    """
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    is_of_toolbox = not packages.isdisjoint(TOOLBOX_PACKAGES)
    return issubclass(kind, role) and is_dataclass(kind) and is_of_toolbox and not isabstract(kind)
