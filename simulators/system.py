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

T = TypeVar("T")


class Signal(NamedTuple):
    """Name, unit and meaning of one scalar signal; the name becomes a data-set variable."""

    name: str
    unit: str
    description: str


def parameter(default: T, unit: str = "", *, symbol: str = "", meaning: str = "") -> T:
    """Declare a field of a system together with its unit; the page that describes the system shows
    it.

    Parameters
    ----------
    default : object
        Default of the field; one that cannot be changed, such as a number or a tuple.
    unit : str, optional
        Unit, ``-`` for a number without one.
    symbol : str, optional
        Symbol in the equations.
    meaning : str, optional
        What the name of the field leaves open.

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
    """Return symbol, meaning and unit of the fields of a dataclass as one text each, by the name of
    the field.

    A field that says nothing about itself has the text that a base says about it; without one it is
    left out.
    """
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not is_dataclass(owner):
            continue
        for one in fields(owner):
            parts = [one.metadata.get(key, "") for key in ("symbol", "meaning", "unit")]
            if any(parts):
                texts[one.name] = ", ".join(part for part in parts if part)
    return texts


@dataclass(frozen=True)
class Change:
    """A parameter of a plant that goes linearly from its value at `start` to another one at `end`,
    and stays there.

    Raises
    ------
    ValueError
        If a number is not finite, `start` is negative, or `end` comes before it.
    """

    parameter: str  # name of the field of the system
    to: float  # its unit
    start: float  # s
    end: float | None = None  # s; None: at once

    def __post_init__(self) -> None:
        check_finite(self, "to")
        check_not_negative(self, "start")
        if self.end is not None and not (is_finite(self.end) and self.end >= self.start):
            raise refuse(self, "end", f"a time of at least start={self.start:g} s, or None")

    def share(self, time: Array) -> Array:
        """Return how much of the change has been made at times (n,) [s], 0 to 1."""
        length = 0.0 if self.end is None else self.end - self.start
        if length:
            return np.clip((time - self.start) / length, 0.0, 1.0)
        return (time >= self.start * (1 - 1e-12)).astype(
            np.float64
        )  # k dt may be a rounding below the start


@dataclass(frozen=True)
class System(ABC):
    """Ordinary differential equation with sampled inputs and held process noise.

    ::

        x'(t) = f(t, x, u(t), w_k; p),   y(t) = h(x),   t_k <= t < t_k + dt,   w_k ~ N(0,
        diag(noise_std^2))

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
        If `dt` or `substeps` is not positive, or a change is impossible; on definition of a class
        whose signal names repeat, or that states outputs and defines no `output`.
    TypeError
        On definition of a class whose drift is no static method; on use of one that declares fields
        and is no dataclass.
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
                f"{cls.__name__}.drift: expected a static method, it is compiled and sees no object; write "
                "@staticmethod above it, and read the fields from the argument parameters"
            )
        roles = ("states", "inputs", "outputs", "noises")
        names = Counter(signal.name for role in roles for signal in getattr(cls, role, ()))
        for name, count in names.items():
            if count > 1 or name == "time" or not name.isidentifier():
                wanted = f"an identifier other than 'time', used once among {', '.join(roles)}, not {count} times"
                raise UserError(
                    f"{cls.__name__}: signal name {name!r}: expected {wanted}; rename the signal"
                )
        if cls.output is System.output and (outputs := names_of(getattr(cls, "outputs", ()))):
            advice = f"define output(self, state), return state[..., :{len(outputs)}] if these are the first states"
            raise UserError(
                f"{cls.__name__}: expected how the outputs {outputs} follow from the states; {advice}"
            )

    def __new__(cls, *values: Any, **settings: Any) -> Self:
        """Refuse a class whose settings are not declared as fields, before its constructor refuses
        their names.
        """
        _check_fields(cls)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_positive(self, "dt")
        check_whole(self, "substeps", 1)
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
            What `parameters()` returns.
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
            If one is no number of this system that can change.
        """
        fixed = {"dt", "substeps", "changes"}
        known = [
            f.name for f in fields(self) if f.name not in fixed and is_finite(getattr(self, f.name))
        ]
        found: dict[str, Array] = {}
        for change in _read_changes(self):
            if change.parameter not in known:
                raise UserError(
                    f"{type(self).__name__}: changes: expected a parameter among {', '.join(known)}, got "
                    f"{change.parameter!r}; rename it"
                )
            before = found.get(
                change.parameter,
                np.full(len(time), float(getattr(self, change.parameter))),
            )
            found[change.parameter] = before + change.share(time) * (change.to - before)
        return found

    def parameter_rows(self) -> Array:
        """Return the parameters (m, n_p) of the samples 0 to m - 1, held over each; the last ones
        stay.

        Raises
        ------
        ValueError
            If a change is not one of a parameter that acts, on the drift alone, or the system
            refuses a value on the way.
        """
        own = read_vector(self, "parameters")
        if not self.changes:
            return own[np.newaxis]
        ends = [
            change.start if change.end is None else change.end for change in _read_changes(self)
        ]
        values = self.values_over(
            self.dt * np.arange(math.ceil(max(ends) / self.dt) + 1, dtype=np.float64)
        )
        table = np.stack([*values.values()], axis=1)
        rows = np.empty((len(table), len(own)))
        for k, row in enumerate(table):
            is_same = k > 0 and np.array_equal(row, table[k - 1])
            changed = dict(zip(values, row.tolist(), strict=True))
            rows[k] = (
                rows[k - 1]
                if is_same
                else read_vector(replace(self, changes=(), **changed), "parameters")
            )
        if (rows == own).all():
            raise UserError(
                f"{type(self).__name__}: changes: {list(values)} change nothing in the drift; name other ones"
            )
        last = replace(self, changes=(), **changed)
        state = self.initial_state()
        stays = np.array_equal(last.output(state), self.output(state))
        if not (
            stays and np.array_equal(read_vector(last, "noise_std"), read_vector(self, "noise_std"))
        ):
            raise UserError(
                f"{type(self).__name__}: changes: {list(values)} change the output or the process noise, too, which "
                "are the same all the time; name parameters of the drift alone"
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
        """Return the physical lower and upper limits (n_u,) of the inputs; by default there are
        none.

        `simulate` takes any input; the commands refuse excitations beyond the limits.
        """
        infinite = np.full(len(self.inputs), np.inf)
        return -infinite, infinite

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array] | None:
        """Return df/dx (n_x, n_x) and df/du (n_x, n_u) without noise at time zero, where they are
        known.

        None, the default, stands for unknown: callers then take differences of the drift.
        """
        return None

    def noise_std(self) -> Array:
        """Return the (n_w,) standard deviations of the held process noise; a system with noises
        defines them.

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
            Where to evaluate.

        Returns
        -------
        (n_x,) array
            x' = f(t, x, u, w; p); components that the drift does not write are NaN.
        """
        derivative = np.full(len(self.states), np.nan)
        self.drift(
            time,
            state,
            input,
            noise,
            np.asarray(self.parameters(), dtype=np.float64),
            derivative,
        )
        return derivative


@functools.cache
def _check_fields(system: type[System]) -> None:
    """Refuse fields without ``@dataclass``, and defaults of inherited fields without a type: both
    are ignored.

    Raises
    ------
    TypeError
        With their names.
    """
    for part in (
        part for part in system.__mro__ if issubclass(part, System) and part is not System
    ):
        own = inspect.get_annotations(part)
        inherited = {
            field.name for base in part.__mro__[1:] if is_dataclass(base) for field in fields(base)
        }
        ignored = [name for name in vars(part) if name in inherited and name not in own]
        if "__dataclass_fields__" not in vars(part):
            ignored += [name for name, kind in own.items() if "ClassVar" not in str(kind)]
        if ignored:
            raise UserTypeError(
                f"{part.__name__} declares {ignored}, which are no fields: write @dataclass(frozen=True) above the "
                f"class, and every field with its type, say {ignored[0]}: float = 1.0"
            )


def _read_changes(system: System) -> tuple[Change, ...]:
    """Return the changes of a system, also where its own constructor left mappings.

    Raises
    ------
    ValueError
        If they are anything else.
    """
    try:
        return tuple(
            change if isinstance(change, Change) else Change(**change) for change in system.changes
        )
    except TypeError as error:
        wanted = "a list of {parameter: name, to: value, start: s, end: s or None}"
        raise refuse(system, "changes", f"{wanted} ({error})") from None


def is_refusal(error: Exception, system: System) -> bool:
    """Whether a system refuses its settings by an error that its constructor has raised.

    A class of the user's own may refuse with any ``ValueError``; one of this package only with a
    `UserError`.
    """
    is_ours = type(system).__module__.partition(".")[0] == __name__.partition(".")[0]
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
    n = (
        None
        if method == "parameters"
        else len(system.states if method == "initial_state" else system.noises)
    )
    try:
        vector = read_real(values, method)
    except (TypeError, ValueError):
        vector = np.empty(())
    if (
        vector.ndim != 1
        or n not in (None, len(vector))
        or not all(map(math.isfinite, vector.tolist()))
    ):
        wanted = f"a vector of {'' if n is None else f'{n} '}finite numbers; return np.array([...])"
        raise UserError(
            f"{type(system).__name__}.{method}() returned {values!r}: expected {wanted}"
        )
    return np.ascontiguousarray(vector, dtype=np.float64)


def limits_of(system: System) -> Array:
    """Return the lower and upper limits of the states as (2, n_x).

    Raises
    ------
    ValueError
        If there are not two limits per state, the lower one not above the upper one.
    """
    given = system.state_limits()
    try:
        limits = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        limits = np.empty(0)
    if limits.shape != (2, len(system.states)) or not (limits[0] <= limits[1]).all():
        raise UserError(
            f"{type(system).__name__}.state_limits() returned {given!r}: expected lower and upper limits of "
            f"{len(system.states)} states, the lower not above the upper; return two arrays, inf where there is none"
        )
    return limits
