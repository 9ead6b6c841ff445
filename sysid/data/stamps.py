"""Time stamps of a column that are read all at once, by the places of their digits.

Texts that differ in their digits only are read together. Pandas reads stamps one by one, and those
of a 12-hour clock in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from sysid.data.text_lines import character_codes
from sysid.narx.record import Array

#: patterns of the directives of a format that are read here, by the directive
DIRECTIVES = {
    "%Y": r"(?P<year>\d{4})",
    "%y": r"(?P<short_year>\d\d)",
    "%m": r"(?P<month>\d{1,2})",
    "%d": r"(?P<day>\d{1,2})",
    "%H": r"(?P<hour>\d{1,2})",
    "%I": r"(?P<hour_of_12>\d{1,2})",
    "%M": r"(?P<minute>\d{1,2})",
    "%S": r"(?P<second>\d{1,2})",
    "%f": r"(?P<fraction>\d{1,9})",
    "%p": r"(?P<half>[AaPp][Mm])",
}

#: forms of dates whose fields have no other meaning here; a slash has the month first, as pandas
#: takes it, a point the day
DATES = {
    r"\d{4}-\d{1,2}-\d{1,2}": "%Y-%m-%d",
    r"\d{4}/\d{1,2}/\d{1,2}": "%Y/%m/%d",
    r"\d{1,2}\.\d{1,2}\.\d{4}": "%d.%m.%Y",
    r"\d{1,2}/\d{1,2}/\d{4}": "%m/%d/%Y",
}

#: a time of day behind a date
TIME_OF_DAY = re.compile(
    r"\d{1,2}:\d\d(?P<second>:\d\d(?P<fraction>[.,]\d+)?)?(?P<half> ?[AaPp][Mm])?"
)

#: a duration as pandas writes it
DURATION = re.compile(
    r"(?P<days>\d+) days? \+?(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:\.(?P<fraction>\d{1,9}))?"
)

#: years that nanoseconds since 1970 can count
YEARS = (1678, 2261)

#: largest duration that nanoseconds can count [d]
MAX_DAYS = 106_750

#: A column with a longer text is not read at once, because all texts get room for it [characters].
MAX_TEXT_CHARACTERS = 40

#: a year of two digits up to this one is after 2000
LAST_SHORT_YEAR = 68

#: nanoseconds in a second
NS_PER_SECOND = 1_000_000_000


def read_stamps(cells: pd.Series, first: str, time_format: str | None) -> pd.Series | None:
    """Return the stamps of texts, in UTC; missing cells are NaT.

    None: the texts do not all have the format, or the one of the first of them, or it has other
    fields than those of `DIRECTIVES`, or some fields are out of range.
    """
    known_format = time_format or _guess_format(first)
    pattern = None if known_format is None else _pattern_of(known_format)
    stamps = None if pattern is None else _read(cells, pattern, _stamps_of, "M8[ns]")
    if stamps is None:
        return None
    return pd.Series(stamps, index=cells.index).dt.tz_localize("UTC")


def read_durations(cells: pd.Series) -> pd.Series | None:
    """Return durations such as ``1 days 00:00:01.5``; missing cells are NaT.

    None: the texts do not all have this form, or some fields are out of range.
    """
    durations = _read(cells, DURATION, _durations_of, "m8[ns]")
    return None if durations is None else pd.Series(durations, index=cells.index)


def _read(
    cells: pd.Series,
    pattern: re.Pattern[str],
    convert: Callable[[_Fields], np.ndarray | None],
    kind: str,
) -> np.ndarray | None:
    """Return what the fields of all texts (n,) are converted into, NaT for missing cells.

    None: some text does not have the pattern, is too long, or has a field out of range.
    """
    texts = cells.fillna("")
    if texts.str.len().max() > MAX_TEXT_CHARACTERS:
        return None
    values = np.full(len(cells), "NaT", dtype=kind)
    for rows, form, characters in group_by_form(texts):
        if not form:
            continue
        match = pattern.fullmatch(form)
        of_group = None if match is None else convert(_Fields(match, characters))
        if of_group is None:
            return None
        values[rows] = of_group
    return values


def _guess_format(first: str) -> str | None:
    """Return the format of a stamp, if it is a date of `DATES` with or without a time of day."""
    for date, format_of_date in DATES.items():
        match = re.match(date, first)
        if match is None:
            continue
        rest = first[match.end() :]
        if not rest:
            return format_of_date
        time = TIME_OF_DAY.fullmatch(rest[1:]) if rest[0] in "T " else None
        if time is None:
            return None
        text = "%I:%M" if time["half"] else "%H:%M"
        if time["second"]:
            text += ":%S"
        if time["fraction"]:
            text += f"{time['fraction'][0]}%f"
        if time["half"]:
            text += " %p" if time["half"][0] == " " else "%p"
        return f"{format_of_date}{rest[0]}{text}"
    return None


def _pattern_of(time_format: str) -> re.Pattern[str] | None:
    """Return the pattern of the texts of a format; None if it has other directives."""
    pattern = ""
    for part in re.split(r"(%.)", time_format):
        if part.startswith("%"):
            if part not in DIRECTIVES or DIRECTIVES[part] in pattern:
                return None
            pattern += DIRECTIVES[part]
        else:
            pattern += re.escape(part)
    directives = set(re.findall("%.", time_format))
    has_date = {"%m", "%d"} <= directives and len({"%Y", "%y"} & directives) == 1
    has_half = "%p" in directives
    has_hours = has_half == ("%I" in directives) and not (has_half and "%H" in directives)
    return re.compile(pattern) if has_date and has_hours else None


class _Fields:
    """Fields of texts of one form, as whole numbers (m,); 0 for a field that is absent."""

    def __init__(self, match: re.Match[str], characters: np.ndarray) -> None:
        self.match = match
        self._characters = characters

    def has(self, name: str) -> bool:
        """Return whether the form has a field."""
        return self.match.groupdict().get(name) is not None

    def __getitem__(self, name: str) -> np.ndarray:
        if not self.has(name):
            return np.zeros(len(self._characters), dtype=np.int64)
        return whole_numbers(self._characters, *self.match.span(name)).astype(np.int64)

    def are_within(self, name: str, low: int, high: int) -> bool:
        """Return whether all values of a field are within these limits; an absent one is."""
        values = self[name]
        return not self.has(name) or bool(((values >= low) & (values <= high)).all())

    def seconds_of_day(self, hour: np.ndarray) -> np.ndarray:
        """Return the seconds since midnight."""
        return np.asarray(3600 * hour + 60 * self["minute"] + self["second"])

    def nanoseconds(self) -> np.ndarray:
        """Return the fraction of a second."""
        if not self.has("fraction"):
            return self["fraction"]
        begin, end = self.match.span("fraction")
        return np.asarray(self["fraction"] * 10 ** (9 - (end - begin)))


def _are_times(fields: _Fields) -> bool:
    """Return whether minutes and seconds are those of a clock."""
    return fields.are_within("minute", 0, 59) and fields.are_within("second", 0, 59)


def _durations_of(fields: _Fields) -> np.ndarray | None:
    """Return the durations (m,) of texts of one form; None if a field is out of range."""
    is_time = fields.are_within("hour", 0, 23) and _are_times(fields)
    if not is_time or not fields.are_within("days", 0, MAX_DAYS):
        return None
    seconds = 86_400 * fields["days"] + fields.seconds_of_day(fields["hour"])
    return np.asarray((seconds * NS_PER_SECOND + fields.nanoseconds()).astype("m8[ns]"))


def _stamps_of(fields: _Fields) -> np.ndarray | None:
    """Return the stamps (m,) of texts of one form; None if a field is out of range."""
    year = fields["year"]
    if fields.has("short_year"):
        short = fields["short_year"]
        year = np.where(short <= LAST_SHORT_YEAR, 2000, 1900) + short
    hour = fields["hour"]
    if fields.has("half"):
        is_afternoon = fields.match["half"][0] in "Pp"
        hour = fields["hour_of_12"] % 12 + 12 * is_afternoon
    are_valid = (
        bool((year >= YEARS[0]).all() and (year <= YEARS[1]).all())
        and fields.are_within("month", 1, 12)
        and fields.are_within("day", 1, 31)
        and fields.are_within("hour", 0, 23)
        and fields.are_within("hour_of_12", 1, 12)
        and _are_times(fields)
    )
    if not are_valid:
        return None
    months = 12 * (year - 1970) + fields["month"] - 1
    days = months.astype("M8[M]").astype("M8[D]") + (fields["day"] - 1).astype("m8[D]")
    if (days.astype("M8[M]") != months.astype("M8[M]")).any():  # as 31 April
        return None
    nanoseconds = fields.seconds_of_day(hour) * NS_PER_SECOND + fields.nanoseconds()
    return np.asarray(days.astype("M8[ns]") + nanoseconds.astype("m8[ns]"))


# --- texts of one form ----------------------------------------------------------------------------


def group_by_form(texts: pd.Series) -> Iterator[tuple[np.ndarray, str, np.ndarray]]:
    """Group texts that differ in their digits only, in the order in which a form comes first.

    Blanks around a text do not belong to it.

    Returns
    -------
    rows : numpy.ndarray
        Numbers (m,) of the texts of one form.
    form : str
        The text with zeros for all digits.
    characters : numpy.ndarray
        ASCII codes (m, n_characters) of the texts.
    """
    coded = np.strings.strip(_to_bytes(texts))
    characters = coded.view(np.uint8).reshape(len(coded), -1)
    is_digit = (characters >= ord("0")) & (characters <= ord("9"))
    forms = np.where(is_digit, np.uint8(ord("0")), characters).view(coded.dtype).ravel()
    rest = np.arange(len(forms))
    while len(rest):
        form = forms[rest[0]]
        is_alike = forms[rest] == form
        rows = rest[is_alike]
        yield rows, form.decode(), characters[rows, : len(form)]
        rest = rest[~is_alike]


def _to_bytes(texts: pd.Series) -> np.ndarray:
    """Return the ASCII codes (n,) of texts as bytes of one length, with zeros at the end."""
    codes = character_codes(texts)
    if codes is not None:
        return np.ascontiguousarray(codes).view(f"S{codes.shape[1]}").ravel()
    try:
        return texts.to_numpy(dtype=object).astype(np.bytes_)
    except UnicodeEncodeError:
        return np.array([_to_ascii(text.strip()) for text in texts], dtype=np.bytes_)


def _to_ascii(text: str) -> str:
    """Return a text whose digits are those of ASCII, with a question mark for other signs."""
    with_digits = re.sub(r"\d", lambda digit: str(int(digit[0])), text)
    return with_digits.encode("ascii", "replace").decode()


def whole_numbers(characters: np.ndarray, first: int, end: int) -> Array:
    """Return the numbers (m,) that the digits in these columns of ASCII codes form.

    They are 0 for a group that is absent, whose columns are both -1.
    """
    numbers = np.zeros(len(characters))
    for column in range(first, end):
        numbers = 10 * numbers + (characters[:, column] - ord("0"))
    return numbers
