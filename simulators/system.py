"""The role of a simulated system: its signals, its drift, its output."""

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from simulators.errors import UserError, UserTypeError
from simulators.settings import (
    Array,
    check_finite,
    check_not_negative,
    check_positive,
    check_whole,
    is_finite,
    read_real,
    refuse,
)

Default = TypeVar("Default")

#: longest sampling time, s: the integers of 64 bits hold the times of every record
MAX_DT = 1e11
#: largest number of steps of the integrator within one sample
MAX_SUBSTEPS = 1_000_000


class Signal(NamedTuple):
    """Name, unit and meaning of one scalar signal; the name becomes a data-set variable."""

    name: str
    unit: str
    description: str


def parameter(default: Default, unit: str = "", *, symbol: str = "", meaning: str = "") -> Default:
    """Declare a field of a system together with its unit.

    The page that describes the system shows symbol, meaning and unit.

    Parameters
    ----------
    default : object
        Default of the field; it must be immutable, such as a number or a tuple.
    unit : str, optional
        Unit, ``-`` for a number without one.
    symbol : str, optional
        Symbol in the equations.
    meaning : str, optional
        Meaning of the field, if its name does not make it clear.

    Returns
    -------
    dataclasses.Field
        Field with the texts in its metadata; to a type checker it is the default.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Wall:
    ...     resistance: float = parameter(0.005, "K/W", symbol="Rw", meaning="wall to ambient")
    >>> Wall(), describe_fields(Wall)
    (Wall(resistance=0.005), {'resistance': 'Rw, wall to ambient, K/W'})
    """
    return field(default=default, metadata={"symbol": symbol, "meaning": meaning, "unit": unit})


def describe_fields(kind: type) -> dict[str, str]:
    """Return a text for each field of a dataclass: its symbol, meaning and unit.

    A field without such metadata has the text of a base class; without that it is left out.
    """
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not is_dataclass(owner):
            continue
        for described in fields(owner):
            parts = [described.metadata.get(key, "") for key in ("symbol", "meaning", "unit")]
            if any(parts):
                texts[described.name] = ", ".join(part for part in parts if part)
    return texts


@dataclass(frozen=True)
class Change:
    """Change of a parameter of a plant, linear from `start` to `end`; then the new value stays.

    Raises
    ------
    ValueError
        If a number is not finite, `start` is negative, or `end` comes before it.
    """

    parameter: str  # name of the field of the system
    to: float  # new value, in the unit of the parameter
    start: float  # s
    end: float | None = None  # s; None: a jump at `start`

    def __post_init__(self) -> None:
        check_finite(self, "to")
        check_not_negative(self, "start")
        if self.end is not None and not (is_finite(self.end) and self.end >= self.start):
            raise refuse(self, "end", f"a time of at least start={self.start:g} s, or None")

    def share(self, time: Array) -> Array:
        """Return the fraction of the change that is made at times (n,) [s], 0 to 1."""
        length = 0.0 if self.end is None else self.end - self.start
        if length != 0.0:
            return np.clip((time - self.start) / length, 0.0, 1.0)
        earliest = self.start * (1 - 1e-12)  # k dt may be below the start because of rounding
        return (time >= earliest).astype(np.float64)


@dataclass(frozen=True)
class System(ABC):
    """Ordinary differential equation with sampled inputs and held process noise.

    ::

        x'(t) = f(t, x, u(t), w_k; p),   y(t) = h(x),   t_k <= t < t_k + dt
        w_k ~ N(0, diag(noise_std^2))

    with the input u(t) held at u_k, unless a simulation interpolates it.

    A system is a frozen dataclass: its fields are the physical parameters, the noise standard
    deviations, the initial state, `dt`, `substeps` and `changes`, for a plant whose parameters
    vary. It declares its signals as class attributes (`states`, `inputs`, `outputs`, and `noises`
    if it has any), every name once, and implements `drift`, `parameters` and `output`; the other
    methods have defaults.

    Parameters
    ----------
    dt : float
        Sampling time [s]; the noise is held over it.
    substeps : int
        Runge-Kutta steps per sample.
    changes : sequence of Change or of mappings with its fields, optional
        Parameters that change over time, one after the other; they are held over each sample.

    Raises
    ------
    ValueError
        If `dt` or `substeps` is not positive, or a change is impossible. On definition of a class:
        if the names of its signals repeat, or it has outputs and defines no `output`.
    TypeError
        On definition of a class: if its drift is no static method. On use of a class: if it
        declares fields and is no dataclass.
    """

    states: ClassVar[tuple[Signal, ...]]
    inputs: ClassVar[tuple[Signal, ...]]
    outputs: ClassVar[tuple[Signal, ...]]
    noises: ClassVar[tuple[Signal, ...]] = ()

    dt: float = field(metadata={"unit": "s"})
    substeps: int = field(metadata={"meaning": "Runge-Kutta steps per sample"})
    changes: Sequence[Change | Mapping[str, Any]] = field(default=(), kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the drift and the names of the signals when a system is defined."""
        super().__init_subclass__(**options)
        if isinstance(vars(cls).get("drift"), FunctionType | classmethod):
            raise UserTypeError(
                f"{cls.__name__}.drift: expected a static method, since it is compiled and sees no "
                "object; write @staticmethod above it, and read the fields from the argument "
                "parameters"
            )
        roles = ("states", "inputs", "outputs", "noises")
        names = Counter(signal.name for role in roles for signal in getattr(cls, role, ()))
        for name, count in names.items():
            if count > 1 or name == "time" or not name.isidentifier():
                raise UserError(
                    f"{cls.__name__}: signal name {name!r}: expected an identifier other than "
                    f"'time', used once among {', '.join(roles)}, not {count} times; "
                    "rename the signal"
                )
        outputs = names_of(getattr(cls, "outputs", ()))
        if outputs and cls.output is System.output:
            raise UserError(
                f"{cls.__name__}: expected how the outputs {outputs} follow from the states; "
                f"define output(self, state), return state[..., :{len(outputs)}] "
                "if these are the first states"
            )

    def __new__(cls, *values: Any, **settings: Any) -> Self:
        """Raise an error for a class whose settings are not declared as fields.

        Otherwise its constructor would only refuse their names.
        """
        _check_fields(cls)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_positive(self, "dt")
        if self.dt > MAX_DT:
            raise refuse(self, "dt", f"at most {MAX_DT:g} s")
        check_whole(self, "substeps", 1, MAX_SUBSTEPS)
        object.__setattr__(self, "changes", _read_changes(self))

    @staticmethod
    @abstractmethod
    def drift(
        time: float,
        state: Array,
        input: Array,
        noise: Array,
        parameters: Array,
        derivative: Array,
    ) -> None:
        """Write x' = f(t, x, u, w; p) into `derivative`.

        Plain scalar Python that numba can compile: indexed arrays, floats, `math` functions.

        Parameters
        ----------
        time : float
            Time [s].
        state : (n_x,) array
            State.
        input : (n_u,) array
            Input.
        noise : (n_w,) array
            Process noise.
        parameters : (n_p,) array
            Result of `parameters()`.
        derivative : (n_x,) array
            Written: time derivative of the state.
        """

    @abstractmethod
    def parameters(self) -> Array:
        """Return the (n_p,) physical parameters in the order that `drift` reads them."""

    def values_over(self, time: Array) -> dict[str, Array]:
        """Return the fields that change, by name, at times (n,) [s].

        Raises
        ------
        ValueError
            If one is not a field of this system with a number that can change.
        """
        known = []
        for settable in fields(self):
            can_change = settable.name not in {"dt", "substeps", "changes"}
            if can_change and is_finite(getattr(self, settable.name)):
                known.append(settable.name)
        values: dict[str, Array] = {}
        for change in _read_changes(self):
            name = change.parameter
            if name not in known:
                raise UserError(
                    f"{type(self).__name__}: changes: expected a parameter "
                    f"among {', '.join(known)}, got {name!r}; rename it"
                )
            before = values.get(name, np.full(len(time), float(getattr(self, name))))
            values[name] = before + change.share(time) * (change.to - before)
        return values

    def parameter_rows(self) -> Array:
        """Return the parameters (m, n_p) of the samples 0 to m - 1, held over each sample.

        From sample m - 1 on they do not change any more.

        Raises
        ------
        ValueError
            If the changes have no effect on the drift, or affect anything but the drift, or the
            system refuses one of the values.
        """
        unchanged = read_vector(self, "parameters")
        if not self.changes:
            return unchanged[np.newaxis]
        ends = []
        for change in _read_changes(self):
            ends.append(change.start if change.end is None else change.end)
        n_samples = math.ceil(max(ends) / self.dt) + 1
        values = self.values_over(self.dt * np.arange(n_samples, dtype=np.float64))
        names = list(values)
        table = np.stack(list(values.values()), axis=1)
        rows = np.empty((n_samples, len(unchanged)))
        for k, row in enumerate(table):
            if k > 0 and np.array_equal(row, table[k - 1]):
                rows[k] = rows[k - 1]
                continue
            values_at_k = dict(zip(names, row.tolist(), strict=True))
            changed = replace(self, changes=(), **values_at_k)
            rows[k] = read_vector(changed, "parameters")
        if (rows == unchanged).all():
            raise UserError(
                f"{type(self).__name__}: changes: {names} change nothing in the drift; "
                "name other ones"
            )
        state = self.initial_state()
        has_same_output = np.array_equal(changed.output(state), self.output(state))
        unchanged_std = read_vector(self, "noise_std")
        has_same_noise = np.array_equal(read_vector(changed, "noise_std"), unchanged_std)
        if not has_same_output or not has_same_noise:
            raise UserError(
                f"{type(self).__name__}: changes: {names} change the output or the process noise, "
                "too, which must stay the same; name parameters that act on the drift alone"
            )
        return rows

    def initial_state(self) -> Array:
        """Return the (n_x,) state at time zero; by default zeros."""
        return np.zeros(len(self.states))

    def state_limits(self) -> tuple[Array, Array]:
        """Return the lower and upper limits (n_x,) of the states; by default there are none.

        A state is set to its limit after every Runge-Kutta step that crosses it, for example where
        a tank overflows; these steps are counted. An initial state must lie within the limits.
        """
        infinite = np.full(len(self.states), np.inf)
        return -infinite, infinite

    def input_limits(self) -> tuple[Array, Array]:
        """Return the physical lower and upper limits (n_u,) of the inputs.

        By default there are none. `simulate` takes any input; the commands refuse excitations
        beyond the limits.
        """
        infinite = np.full(len(self.inputs), np.inf)
        return -infinite, infinite

    def input_delays(self) -> tuple[int, ...]:
        """Return by how many samples each input acts late; by default none does.

        The drift gets the inputs as they act. At the start of a record the input of its first
        sample has acted before, unless the input is periodic (band-limited).
        """
        return (0,) * len(self.inputs)

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array] | None:
        """Return df/dx (n_x, n_x) and df/du (n_x, n_u) without noise at time zero.

        None, the default, means that they are unknown: callers then use differences of the drift.
        """
        return None

    def noise_std(self) -> Array:
        """Return the (n_w,) standard deviations of the held process noise.

        A system with noises must define them.

        Raises
        ------
        NotImplementedError
            If the system has noises and does not define them.
        """
        if self.noises:
            names = [signal.name for signal in self.noises]
            raise NotImplementedError(
                f"{type(self).__name__} has the noises {names}: define noise_std for them"
            )
        return np.empty(0)

    @abstractmethod
    def output(self, state: Array) -> Array:
        """Return y = h(x) of states (..., n_x) as (..., n_y), without measurement noise."""

    def derivative(self, time: float, state: Array, input: Array, noise: Array) -> Array:
        """Evaluate the drift once, in plain Python.

        Parameters
        ----------
        time : float
            Time [s].
        state, input, noise : (n_x,), (n_u,), (n_w,) array
            Arguments of the drift.

        Returns
        -------
        (n_x,) array
            x' = f(t, x, u, w; p); components that the drift does not write are NaN.
        """
        parameters = np.asarray(self.parameters(), dtype=np.float64)
        derivative = np.full(len(self.states), np.nan)
        self.drift(time, state, input, noise, parameters, derivative)
        return derivative


@functools.cache
def _check_fields(system: type[System]) -> None:
    """Raise an error for attributes that look like fields but are not declared as such.

    Fields without ``@dataclass``, and defaults of inherited fields without a type, would be
    ignored.

    Raises
    ------
    TypeError
        If there are any; the message names them.
    """
    for part in system.__mro__:
        if part is System or not issubclass(part, System):
            continue
        own = inspect.get_annotations(part)
        inherited = set[str]()
        for base in part.__mro__[1:]:
            if is_dataclass(base):
                inherited |= {field.name for field in fields(base)}
        ignored = [name for name in vars(part) if name in inherited and name not in own]
        if "__dataclass_fields__" not in vars(part):
            ignored += [name for name, kind in own.items() if "ClassVar" not in str(kind)]
        if ignored:
            raise UserTypeError(
                f"{part.__name__} declares {ignored}, which are not fields: "
                "write @dataclass(frozen=True) above the class, and every field with its type, "
                f"for example {ignored[0]}: float = 1.0"
            )


def _read_changes(system: System) -> tuple[Change, ...]:
    """Return the changes of a system as `Change` objects.

    They may still be mappings if the system has a constructor of its own.

    Raises
    ------
    ValueError
        If they are anything else.
    """
    changes = []
    try:
        for change in system.changes:
            changes.append(change if isinstance(change, Change) else Change(**change))
    except TypeError as error:
        wanted = "a list of {parameter: name, to: value, start: s, end: s or None}"
        raise refuse(system, "changes", f"{wanted} ({error})") from None
    return tuple(changes)


def is_refusal(error: Exception, system: System) -> bool:
    """Whether an error of a constructor means that the system refuses its settings.

    A class of the user may refuse them with any ``ValueError``, a class of this package only with a
    `UserError`. Any other error is a bug.
    """
    package = type(system).__module__.partition(".")[0]
    is_ours = package == __name__.partition(".")[0]
    return isinstance(error, UserError) or not is_ours


def names_of(signals: tuple[Signal, ...]) -> list[str]:
    """Return the names of signals."""
    return [signal.name for signal in signals]


def read_vector(system: System, method: str) -> Array:
    """Call a method of a system and check what it returns.

    Parameters
    ----------
    system : System
        System that defines the method.
    method : str
        ``parameters``, ``initial_state`` or ``noise_std``.

    Returns
    -------
    (n,) array
        Finite C-contiguous float64 numbers, also where the method returns integers.

    Raises
    ------
    ValueError
        If the method returns no vector of finite numbers, or not one number per state or noise.
    """
    values = getattr(system, method)()
    lengths = {"initial_state": len(system.states), "noise_std": len(system.noises)}
    n = lengths.get(method)  # None: any number
    try:
        vector = read_real(values, method)
    except (TypeError, ValueError):
        vector = np.empty(())
    has_length = vector.ndim == 1 and n in (None, len(vector))
    if not has_length or not all(map(math.isfinite, vector.tolist())):
        numbers = "finite numbers" if n is None else f"{n} finite numbers"
        raise UserError(
            f"{type(system).__name__}.{method}() returned {values!r}: "
            f"expected a vector of {numbers}; return np.array([...])"
        )
    return np.ascontiguousarray(vector, dtype=np.float64)


def delays_of(system: System) -> tuple[int, ...]:
    """Return the delays of the inputs [samples].

    Raises
    ------
    ValueError
        If there is not a whole number of at least 0 for each input.
    """
    delays = system.input_delays()
    are_whole = all(type(delay) is int and delay >= 0 for delay in delays)
    if len(delays) != len(system.inputs) or not are_whole:
        raise UserError(
            f"{type(system).__name__}.input_delays() returned {delays!r}: expected a whole number "
            f"of samples of at least 0 for each of the inputs {names_of(system.inputs)}"
        )
    return tuple(delays)


def limits_of(system: System) -> Array:
    """Return the lower and upper limits of the states as (2, n_x).

    Raises
    ------
    ValueError
        If there are not two limits per state, or a lower limit is above the upper one.
    """
    given = system.state_limits()
    try:
        limits = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        limits = np.empty(0)
    n_x = len(system.states)
    if limits.shape != (2, n_x) or not (limits[0] <= limits[1]).all():
        raise UserError(
            f"{type(system).__name__}.state_limits() returned {given!r}: "
            f"expected lower and upper limits of {n_x} states, the lower not above the upper; "
            "return two arrays, inf where there is none"
        )
    return limits
