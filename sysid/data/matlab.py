"""Tables from MATLAB files: arrays, structs, and structs with the fields of an ``iddata`` object.

Files of version 5 are read here, after the specification "MAT-File Format" of The MathWorks: the
reader of SciPy crashes at some damaged files. A file of version 7.3 is an HDF5 file, to which the
rules of `sysid.store` apply. Objects and functions are not read.
"""

from __future__ import annotations

import math
import struct
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from sysid import store
from sysid.data.columns import SECONDS_PER_UNIT, split_name
from sysid.data.source import DataError, optional_package
from sysid.data.text_table import check_size
from sysid.errors import UserError, warn_user

#: first bytes of the two versions that are read
VERSION_5 = b"MATLAB 5.0 MAT-file"
VERSION_73 = b"MATLAB 7.3 MAT-file"

#: length of the head of a file of version 5 [byte]
HEAD_BYTES = 128

#: name of the group of a file of version 7.3 that has the elements of its cells
CELLS_OF_VERSION_73 = b"#refs#"

#: largest number of structs within each other whose cells are read
MAX_LEVELS_OF_CELLS = 16

#: length of the head that MATLAB writes before HDF5 [byte]
USER_BLOCK_BYTES = 512

#: bytes of the base address, and of the address of the end, in the first versions of HDF5's
#: superblock
BASE_ADDRESS = slice(24, 32)
END_ADDRESS = slice(40, 48)

#: types of elements: a matrix, and a compressed element
MATRIX = 14
COMPRESSED = 15

#: classes of matrices: cells, structs, texts, and numbers
CELL = 1
STRUCT = 2
TEXT = 4
NUMBERS = range(6, 16)

#: flag of a matrix with imaginary parts
COMPLEX = 0x0800

#: type of an element -> type of its numbers
NUMBER_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}

#: type of an element -> encoding of its text
TEXT_CODECS = {
    16: "utf-8",
    17: "utf-16",
    18: "utf-32",
}

#: deepest nesting of cells and structs that is read
MAX_DEPTH = 20

#: names of scalars that are a sampling time [s], and a sampling rate [Hz]
NAMES_OF_SAMPLING_TIME = ("Ts", "ts", "dt", "Tsample", "sampling_time")
NAMES_OF_RATE = ("Fs", "fs")

#: units of time of an ``iddata`` object, in seconds
SECONDS_PER_WORD = SECONDS_PER_UNIT | {
    "nanoseconds": 1e-9,
    "microseconds": 1e-6,
    "milliseconds": 1e-3,
    "minutes": 60.0,
    "hours": 3600.0,
    "days": 86400.0,
}

#: what to do about a file that cannot be read
SAVING_ADVICE = "save its arrays with save('file.mat', 'u', 'y', '-v7')"

#: columns of a table that name the experiment of a row, and have its time [s]
EXPERIMENT = "experiment"
TIME = "time"


@dataclass
class _Owner:
    """What a struct, or the file outside of structs, states about the rows of its signals."""

    is_iddata: bool = False  # whether it has the fields of an iddata object
    sampling_times: set[float] = field(default_factory=set)  # s
    times: np.ndarray | None = None  # (n,) s
    experiments: np.ndarray | None = None  # (n,) their names


@dataclass
class _Content:
    """Columns of a file, and the structs that they belong to.

    A struct is known by its name with a dot at the end, the file outside of structs by an empty
    text.
    """

    columns: dict[str, np.ndarray] = field(default_factory=dict)  # (n,) by name
    units: dict[str, str] = field(default_factory=dict)  # by name
    owner_of: dict[str, str] = field(default_factory=dict)  # by name of the column
    owners: defaultdict[str, _Owner] = field(default_factory=lambda: defaultdict(_Owner))

    def sampling_times(self, taken: Sequence[str]) -> set[float]:
        """Return the sampling times [s] that these owners state, otherwise those of the file.

        An ``iddata`` object does not have the sampling time of another one.
        """
        stated = set[float]().union(*(self.owners[name].sampling_times for name in taken))
        if stated:
            return stated
        is_of_iddata = any(self.owners[name].is_iddata for name in taken)
        others = [owner for owner in self.owners.values() if not (is_of_iddata and owner.is_iddata)]
        return stated.union(*(owner.sampling_times for owner in others))

    def column_of_owners(
        self, field_name: str, taken: Sequence[str], n: int, *, must_agree: bool
    ) -> np.ndarray | None:
        """Return the times, or the experiments, (n,) that these owners state; None if none does.

        Signals outside of ``iddata`` objects have those of the objects in the file, if these agree.

        Raises
        ------
        ValueError
            The owners state different ones, and they must agree.
        """
        is_of_iddata = any(self.owners[name].is_iddata for name in taken)
        stated: dict[str, np.ndarray] = {}
        for name in taken if is_of_iddata else self.owners:
            column = getattr(self.owners[name], field_name)
            if column is not None and len(column) == n:
                stated[name] = column
        if not stated:
            return None
        first, *others = stated
        differing = [name for name in others if not np.array_equal(stated[name], stated[first])]
        if not differing:
            return stated[first]
        if not is_of_iddata:
            return None
        if must_agree:
            names = " and ".join(name.rstrip(".") for name in (first, differing[0]))
            raise UserError(
                f"{names} have different {field_name}, and signals of both are used: take all "
                "signals from one of them"
            )
        return stated[first]


def read_matlab(path: Path, signals: list[str]) -> pd.DataFrame:
    """Read the arrays of a MATLAB file as a table.

    A vector is a column with its name; the m columns of a matrix X are X1, X2, ... . The fields of
    a struct are columns with their names. A struct with ``OutputData`` and ``InputData`` has the
    signals of ``OutputName`` and ``InputName``, otherwise y and u, or y1, y2, ... and u1, u2, ... .
    Its experiments, if their data are cells, follow each other, and the column ``experiment`` names
    them. The columns are those that are as long as the first of `signals`, otherwise as the
    longest. A scalar ``Ts`` is the sampling time. If the file has several structs, experiments,
    times and sampling time are those of the struct whose signals are used.

    Raises
    ------
    sysid.DataError
        The file is too large, or is no plain file.
    ValueError
        It is no MATLAB file, is damaged, or has no arrays; or the signals belong to structs of
        different experiments or times.
    """
    check_size(path, "MATLAB file")
    head = path.read_bytes()[:HEAD_BYTES]
    if head.startswith(VERSION_5):
        variables = _Version5(path).read()
    elif head.startswith(VERSION_73):
        variables = _read_version_73(path)
    else:
        raise UserError(f"{path}: expected a MATLAB file of version 5 or 7.3: {SAVING_ADVICE}")
    content = _Content()
    _collect(variables, "", content)
    if not content.columns:
        raise UserError(
            f"{path}: it has no arrays of numbers; objects such as iddata are not read: "
            f"{SAVING_ADVICE}, or z = struct('OutputData', {{z.y}}, 'InputData', {{z.u}}, "
            "'Ts', {z.Ts})"
        )
    lengths = [len(content.columns[name]) for name in signals if name in content.columns]
    n = lengths[0] if lengths else max(map(len, content.columns.values()))
    columns = {name: values for name, values in content.columns.items() if len(values) == n}
    used = [name for name in columns if name in signals or split_name(name)[0] in signals]
    taken = list(dict.fromkeys(content.owner_of[name] for name in used or columns))
    must_agree = bool(used)
    times = content.column_of_owners("times", taken, n, must_agree=must_agree)
    has_own_times = TIME in columns and content.owner_of[TIME] in taken
    if times is not None and not has_own_times:
        columns[TIME] = times
    experiments = content.column_of_owners("experiments", taken, n, must_agree=must_agree)
    name_of_experiments = EXPERIMENT
    while name_of_experiments in columns:
        name_of_experiments += "_"
    if experiments is not None:
        columns = {name_of_experiments: experiments} | columns
    table = pd.DataFrame(columns)
    units = {
        number: content.units[name]
        for number, name in enumerate(columns)
        if content.units.get(name)
    }
    table.attrs = {"file": str(path), "line": 1, "row_word": "row", "units": units}
    if experiments is not None:
        table.attrs["experiment"] = name_of_experiments
    sampling_times = content.sampling_times(taken)
    if len(sampling_times) == 1:
        table.attrs["sampling_time"] = sampling_times.pop()
    return table


def _collect(variables: dict[str, Any], owner: str, content: _Content) -> None:
    """Add variables, or the fields of a struct, to the columns of a file."""
    if "OutputData" in variables:
        _collect_iddata(variables, owner, content)
        return
    for name, value in variables.items():
        if isinstance(value, dict):
            _collect(value, f"{owner}{name}.", content)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fiubc":
            if value.size == 1:
                _collect_scalar(name, value, content.owners[owner])
            else:
                _add(name, value, owner, content)


def _collect_scalar(name: str, value: np.ndarray, owner: _Owner) -> None:
    """Take a scalar as the sampling time, if its name says so."""
    number = float(np.real(value.ravel()[0]))
    if name in NAMES_OF_SAMPLING_TIME:
        owner.sampling_times.add(number)
    elif name in NAMES_OF_RATE and number > 0:
        owner.sampling_times.add(1.0 / number)


def _collect_iddata(fields: dict[str, Any], owner: str, content: _Content) -> None:
    """Add the signals of a struct with the fields of an ``iddata`` object."""
    unit = _texts(fields.get("TimeUnit")) or ["s"]
    if unit[0] not in SECONDS_PER_WORD:
        raise UserError(
            f"TimeUnit {unit[0]!r}: expected one of {', '.join(SECONDS_PER_WORD)}: correct it"
        )
    seconds = SECONDS_PER_WORD[unit[0]]
    stated = content.owners[owner]
    stated.is_iddata = True
    if isinstance(fields["OutputData"], list):
        fields, stated.experiments = _join_experiments(fields)
    for kind, letter in (("Input", "u"), ("Output", "y")):
        data = fields.get(f"{kind}Data")
        if isinstance(data, np.ndarray) and data.size:
            names = _texts(fields.get(f"{kind}Name"))
            added = _add(letter, data, owner, content, names)
            for name, text in zip(added, _texts(fields.get(f"{kind}Unit")), strict=False):
                content.units[name] = text
    step = fields.get("Ts")
    instants = fields.get("SamplingInstants")
    if isinstance(step, np.ndarray) and step.size == 1:
        stated.sampling_times.add(seconds * float(step.ravel()[0]))
    elif isinstance(instants, np.ndarray) and instants.size > 1:
        stated.times = seconds * instants.astype(np.float64).ravel()


def _join_experiments(fields: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
    """Return the fields of an ``iddata`` object with its experiments one after the other.

    The cells have an element for each experiment; a cell of empty elements is absent. The second
    item has, for each sample, the name of its experiment, or its number if there are no names.
    """
    outputs = fields["OutputData"]
    n = len(outputs)
    joined = dict(fields)
    lengths: list[int] = []
    for name in ("OutputData", "InputData", "SamplingInstants"):
        cell: Any = fields.get(name)
        if name != "OutputData" and _is_empty(cell):
            joined[name] = None
            continue
        are_arrays = isinstance(cell, list) and all(_is_matrix(one) for one in cell)
        if not are_arrays or len(cell) != n:
            raise UserError(
                f"{name}: expected a cell of one array for each of the {n} experiments of "
                "OutputData: correct it"
            )
        columns = [one if one.shape[0] >= one.shape[1] else one.T for one in cell]
        lengths = lengths or [len(one) for one in columns]
        is_alike = len({one.shape[1] for one in columns}) == 1
        if not is_alike or [len(one) for one in columns] != lengths:
            raise UserError(
                f"{name} has arrays of the shapes {[one.shape for one in columns]}, expected those "
                f"of {lengths} samples with equally many signals"
            )
        joined[name] = np.concatenate(columns)
    steps = fields.get("Ts")
    if isinstance(steps, list):
        sizes = [float(one.ravel()[0]) for one in steps if _is_matrix(one)]
        if len(set(sizes)) > 1:
            raise UserError(
                f"Ts: the experiments have the sampling times {sizes}, expected one: save those of "
                "one sampling time in a file of their own"
            )
        joined["Ts"] = np.array([[sizes[0]]]) if sizes else None
    labels = _texts(fields.get("ExperimentName"))
    if len(set(labels)) != n:
        labels = [str(number) for number in range(1, n + 1)]
    return joined, np.repeat(labels, lengths)


def _is_empty(value: Any) -> bool:
    """Return whether a field is absent, an empty array, or a cell whose elements are all empty."""
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, np.ndarray) and not value.size)


def _is_matrix(value: Any) -> bool:
    """Return whether an element of a cell is an array with two dimensions that has numbers."""
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.size > 0


def _add(
    name: str,
    array: np.ndarray,
    owner: str,
    content: _Content,
    names: list[str] | None = None,
) -> list[str]:
    """Add the signals of a vector or a matrix, and return their names.

    The longer dimension is the time. A name that another variable has is preceded by that of the
    struct.
    """
    if array.ndim != 2 or not array.size:
        return []
    signals = array if array.shape[0] >= array.shape[1] else array.T
    n_signals = signals.shape[1]
    if not names or len(names) != n_signals:
        names = [name] if n_signals == 1 else [f"{name}{i + 1}" for i in range(n_signals)]
    added = [column if column not in content.columns else owner + column for column in names]
    for i, column in enumerate(added):
        content.owner_of[column] = owner
        values = signals[:, i]
        content.columns[column] = values if values.dtype.kind == "c" else values.astype(np.float64)
    return added


def _texts(value: Any) -> list[str]:
    """Return the texts of a field that has one text or a cell of texts."""
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


# --- version 5 ------------------------------------------------------------------------------------


class _Version5:
    """Reads the variables of a file of version 5 that are numbers, texts, cells and structs.

    Every element must lie in the one around it, and an array must fit its shape. What is read is
    never larger than the content, unpacked.
    """

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        self.path = path
        self.order = "<" if self.content[126:128] == b"IM" else ">"
        self.n_bytes_left = store.max_content_bytes()

    def read(self) -> dict[str, Any]:
        """Return the variables by name."""
        variables = {}
        position = HEAD_BYTES
        while position + 8 <= len(self.content):
            kind, n_bytes = self._unpack("II", self.content, position)
            start = position + 8
            position = start + n_bytes
            if position > len(self.content):
                self._refuse("an element is longer than the file")
            element = self.content[start:position]
            if kind == COMPRESSED:
                element = self._unpacked(element)
                if len(element) < 8:
                    self._refuse("a compressed element is empty")
                kind, n_bytes = self._unpack("II", element, 0)
                element = element[8 : 8 + n_bytes]
                if n_bytes > len(element):
                    self._refuse("an element is longer than its content")
            if kind == MATRIX:
                name, value = self._read_matrix(element, 0)
                if name:
                    variables[name] = value
        return variables

    def _unpack(self, form: str, content: bytes, position: int) -> tuple[int, ...]:
        """Return numbers of the file's byte order."""
        return struct.unpack_from(self.order + form, content, position)

    def _refuse(self, what: str) -> NoReturn:
        """Raise UserError for a damaged or forged file."""
        raise UserError(f"{self.path}: damaged or forged, {what}: {SAVING_ADVICE}")

    def _unpacked(self, element: bytes) -> bytes:
        """Return the content of a compressed element, if it is not longer than is allowed."""
        decompressor = zlib.decompressobj()
        try:
            unpacked = decompressor.decompress(element, max(self.n_bytes_left, 1))
        except zlib.error as error:
            self._refuse(f"a compressed element cannot be unpacked ({error})")
        if decompressor.unconsumed_tail or len(unpacked) > self.n_bytes_left:
            raise UserError(
                f"{self.path}: it has more than {store.max_content_bytes()} bytes unpacked: if you "
                f"trust it, set the environment variable {store.MAX_CONTENT_VARIABLE} to a larger "
                "number"
            )
        self.n_bytes_left -= len(unpacked)
        return unpacked

    def _split(self, content: bytes) -> list[tuple[int, bytes]]:
        """Return the type and the content of the elements of a matrix."""
        elements = []
        position = 0
        while position + 8 <= len(content):
            kind, n_bytes = self._unpack("II", content, position)
            first = position + 8
            if kind >> 16:  # a small element: its length stands in the upper half
                n_bytes = kind >> 16
                kind &= 0xFFFF
                first = position + 4
                position += 8
                if n_bytes > 4:
                    self._refuse("a small element is too long")
            else:
                position = first + n_bytes + (-n_bytes % 8)
            if first + n_bytes > len(content):
                self._refuse("an element is longer than the one around it")
            elements.append((kind, content[first : first + n_bytes]))
        return elements

    def _read_matrix(self, content: bytes, depth: int) -> tuple[str, Any]:
        """Return the name and the value of a matrix; None for an object or a function.

        The value is an array, a text, a list (cell, or texts) or a dictionary (struct).
        """
        if depth > MAX_DEPTH:
            self._refuse(f"structs are nested more than {MAX_DEPTH} deep")
        if not content:
            return "", np.empty((0, 0))  # an empty cell
        elements = self._split(content)
        if len(elements) < 3 or len(elements[0][1]) < 8:
            return "", None
        flags = self._unpack("I", elements[0][1], 0)[0]
        class_of_matrix = flags & 0xFF
        shape = np.frombuffer(elements[1][1][: 4 * (len(elements[1][1]) // 4)], self.order + "i4")
        name = elements[2][1].decode("latin-1")
        values = elements[3:]
        if class_of_matrix not in (CELL, STRUCT, TEXT, *NUMBERS):
            return name, None
        n = math.prod(int(size) for size in shape)
        if len(shape) < 2 or min(shape) < 0 or n > len(content):
            self._refuse(f"an array claims the shape {tuple(shape.tolist())}")
        if class_of_matrix == CELL:
            return name, [self._read_matrix(item, depth + 1)[1] for _, item in values]
        if class_of_matrix == STRUCT:
            return name, self._read_struct(values, n, depth)
        if not n:
            return name, "" if class_of_matrix == TEXT else np.empty((0, 0))
        if class_of_matrix == TEXT:
            return name, self._read_texts(values, shape)
        read = [self._numbers(kind, item) for kind, item in values]
        parts = [part for part in read if part is not None and len(part) == n]
        if not parts or len(parts) < len(read):
            self._refuse(f"an array does not have the shape {tuple(shape.tolist())}")
        array = parts[0]
        if flags & COMPLEX and len(parts) > 1:
            array = array + 1j * parts[1]
        return name, array.reshape(shape, order="F")

    def _numbers(self, kind: int, content: bytes) -> np.ndarray | None:
        """Return the numbers of an element; None if it has others."""
        code = NUMBER_TYPES.get(kind)
        if code is None or len(content) % int(code[1:]):
            return None
        return np.frombuffer(content, self.order + code)

    def _read_struct(self, values: list[tuple[int, bytes]], n: int, depth: int) -> Any:
        """Return the fields of a struct by name; None for several structs."""
        if len(values) < 2 or n != 1 or len(values[0][1]) < 4:
            return None
        length = self._unpack("i", values[0][1], 0)[0]
        if length < 1:
            return None
        text = values[1][1]
        names = [text[i : i + length].split(b"\0")[0] for i in range(0, len(text), length)]
        fields = [self._read_matrix(item, depth + 1)[1] for _, item in values[2:]]
        if len(names) != len(fields):
            self._refuse("a struct has another number of fields than of names")
        return {name.decode("latin-1"): value for name, value in zip(names, fields, strict=True)}

    def _read_texts(self, values: list[tuple[int, bytes]], shape: np.ndarray) -> Any:
        """Return a text, or the rows of a matrix of characters; None if it has others."""
        if len(values) != 1:
            return None
        kind, content = values[0]
        if kind in TEXT_CODECS:
            codec = TEXT_CODECS[kind]
            ending = "" if codec == "utf-8" else ("-le" if self.order == "<" else "-be")
            text = content.decode(codec + ending, errors="replace")
        else:
            codes = self._numbers(kind, content)
            if codes is None or codes.dtype.kind != "u":
                return None
            text = "".join(chr(int(code)) for code in codes[: 2**16] if code < 0x110000)
        n_rows = int(shape[0])
        rows = [text[i::n_rows].rstrip() for i in range(n_rows)]
        return rows[0] if n_rows == 1 else rows


# --- version 7.3 ----------------------------------------------------------------------------------


def _read_version_73(path: Path) -> dict[str, Any]:
    """Read the variables that are numbers, texts, and structs of these.

    MATLAB writes 512 bytes before HDF5. They are cut off, because the checks of `sysid.store` are
    for files that begin with HDF5.
    """
    content = bytearray(path.read_bytes()[USER_BLOCK_BYTES:])
    if content[BASE_ADDRESS] == USER_BLOCK_BYTES.to_bytes(8, "little"):
        end = int.from_bytes(content[END_ADDRESS], "little")
        content[BASE_ADDRESS] = bytes(8)
        content[END_ADDRESS] = max(end - USER_BLOCK_BYTES, 0).to_bytes(8, "little")
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "content.nc"
        plain.write_bytes(content)
        try:
            groups = store.from_file_with_groups(plain)
            cells = _cells_of_version_73(plain, path) if CELLS_OF_VERSION_73 in content else {}
        except (store.StoreError, OSError, ValueError) as error:
            reason = str(error).replace(str(plain), path.name)
            raise UserError(
                f"{path}: cannot be read as version 7.3 ({reason}): {SAVING_ADVICE}"
            ) from None
    variables: dict[str, Any] = _values(groups.pop(""))
    for name, group in groups.items():
        owner = variables
        for part in name.split("/"):
            owner = owner.setdefault(part, {})
        owner |= _values(group)
    for name, cell in cells.items():
        owner = variables
        *parts, last = name.split("/")
        for part in parts:
            owner = owner.setdefault(part, {})
        owner[last] = cell
    return variables


def _cells_of_version_73(plain: Path, path: Path) -> dict[str, list[Any]]:
    """Return the elements of the cells of a file that was checked, by their path in the file.

    A cell contains references to its elements, which NetCDF does not know: they need h5py. Without
    it a warning says that they are left out. Elements that are neither numbers nor texts are empty.

    Raises
    ------
    StoreError, OSError
        Links to other places, or cells that claim more than a file may contain.
    """
    try:
        h5py = optional_package("h5py", f"reading the cells of {path.name}", extra="tables")
    except DataError as error:
        warn_user(f"{error}; they are left out")
        return {}
    cells: dict[str, list[Any]] = {}
    n_bytes_left = store.max_content_bytes()

    def claim(n_bytes: int) -> None:
        nonlocal n_bytes_left
        n_bytes_left -= n_bytes
        if n_bytes_left < 0:
            raise store.StoreError(f"its cells claim more than {store.max_content_bytes()} bytes")

    def element(item: Any) -> Any:
        """Return a number array or a text; an empty array for anything else."""
        if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiub":
            return np.empty((0, 0))
        if item.external or item.is_virtual:
            raise store.StoreError("it refers to another file")
        if "MATLAB_empty" in item.attrs:
            return np.empty((0, 0))
        claim(item.size * item.dtype.itemsize)
        array = np.atleast_2d(item[()]).T
        is_text = item.attrs.get("MATLAB_class") == b"char"
        return "".join(chr(code) for code in array.T.ravel()) if is_text else array

    def collect(group: Any, prefix: str, level: int) -> None:
        if level > MAX_LEVELS_OF_CELLS:
            raise store.StoreError(f"it has more than {MAX_LEVELS_OF_CELLS} levels of structs")
        for name in group:
            link = group.get(name, getlink=True)
            if name.startswith("#") or not isinstance(link, h5py.HardLink):
                continue
            item = group[name]
            if isinstance(item, h5py.Group):
                collect(item, f"{prefix}{name}/", level + 1)
            elif h5py.check_ref_dtype(item.dtype) is h5py.Reference:
                if item.attrs.get("MATLAB_class") != b"cell" or item.external or item.is_virtual:
                    continue
                claim(item.size * item.dtype.itemsize)
                references = item[()].ravel()
                cells[prefix + name] = [element(group.file[one]) for one in references if one]

    with h5py.File(plain, "r") as file:
        collect(file, "", 0)
    return cells


def _values(dataset: Any) -> dict[str, Any]:
    """Return the variables of a data set, with the order of the dimensions that MATLAB has."""
    values: dict[str, Any] = {}
    for name, variable in dataset.variables.items():
        kind = str(variable.attrs.get("MATLAB_class", "double"))
        array = np.asarray(variable.values).T
        if "MATLAB_empty" in variable.attrs:
            array = np.empty((0, 0))
        if kind == "char":
            values[str(name)] = "".join(chr(code) for code in array.ravel())
        elif array.dtype.kind in "fiub":
            values[str(name)] = array
    return values
