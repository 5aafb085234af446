"""Convert raw rows of a file to the schema, and reject invalid rows with a reason.

A row is rejected for the first reason that applies:

================================ ===============================================================
reason                           the row
================================ ===============================================================
``malformed-row``                has another number of fields than the header, or is no JSON
                                 object in UTF-8
``missing-COLUMN``               has no value in a column that is never null
``unparsable-COLUMN``            has a value that cannot be read in the column's type
``key-too-long``                 has a key of more than 512 bytes
``bad-arms``                     offers no arm, a null, or an arm twice
``arm-not-offered``              shows an arm that was not on offer
``negative-position``            has a position below 0
``missing-propensity``           has no propensity where rows are weighed by it, and other rows have one
``propensity-outside-range``     has a propensity outside (0, 1]; of ``position_propensity`` the
                                 reason is ``position-propensity-outside-range``
``reward-outside-range``         has a reward outside the log's range, [0, 1] by default
``context-not-finite``           has a context with a null, an infinity or NaN
================================ ===============================================================
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Floats, Ints
from tacit.core.arrow_columns import CODES, simplify_array
from tacit.core.checks import MAX_NAME_BYTES, ONLY_KEY
from tacit.core.reward_range import UNIT_RANGE, RewardRange
from tacit.errors import InvalidValue, LogError, TooManyRejected
from tacit.logs.data_warnings import (
    MIXED,
    NONE,
    ORDERS,
    ZONELESS,
    DataWarning,
    RowRule,
    list_name_rules,
    list_row_rules,
    list_warnings,
    mask_texts,
    select_warnings,
)
from tacit.logs.schema import ALLOWED, EXTRA, SCHEMA, SEGMENT, EpochTimes, describe_allowed, describe_range
from tacit.logs.time_texts import COMPACT_DATE, COMPACT_DATE_LENGTH, rewrite_times
from tacit.logs.time_units import NAMES

Bools = npt.NDArray[np.bool_]

MALFORMED = "malformed-row"
TRUE_WORDS, FALSE_WORDS = ("true", "t", "yes", "y"), ("false", "f", "no", "n")
PROPENSITIES = "propensity", "position_propensity"
NO_PROPENSITY = "missing-propensity"
DRAWN_ALIKE = (
    "where arms were drawn alike, say so with propensities=Uniform() (--propensities uniform), of a replay "
    "assume_uniform=True (--assume-uniform)"
)
OUTCOMES = {"reward-outside-range", "unparsable-reward", "wrong-outcome", "wrong-clicks"}
"""Reasons to reject a row for its outcome."""
MAX_REJECTED = 0.05
"""Largest share of rejected rows of a log for which something is concluded, unless another one is given."""
MIN_JUDGED = 1000
"""Minimum number of rows of which the share of rejected ones is judged, whatever the reasons."""

TEXT = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
MISSING_WORDS = ("", "-", "?", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "\\n")
"""Words, in any case, that stand for a missing value in columns of numbers, times and lists."""
TEXT_COLUMNS = ("placement", "key", "arm", "policy", "version", SEGMENT)
"""Columns whose texts can be dictionaries while rows are checked, as they repeat."""
LISTS_OF_CODES = pa.list_(CODES)
TIMES = [pa.timestamp(unit, zone) for zone in ("UTC", None) for unit in ("us", "ns")]


class RawRows(NamedTuple):
    """Rows of a source before validation.

    Attributes
    ----------
    columns : dict
        Per column of the source an Arrow array, or a list of JSON values.
    rows : array of int64
        The number of each row in its source, from 1.
    malformed : list of (int, str)
        Number and text of rows that could not be split into columns.
    """

    columns: dict[str, Any]
    rows: Ints
    malformed: list[tuple[int, str]]


class Chunk(NamedTuple):
    """Valid rows, with their source and row numbers.

    Attributes
    ----------
    batch : pyarrow.RecordBatch
        The rows, in the schema.
    source : str
        The file.
    rows : array of int64
        The number of each row in the file, from 1.
    """

    batch: Any
    source: str
    rows: Ints

    def row_location(self, row: int) -> str:
        """Return the source and number of the chunk's row with the index ``row`` as text, for an error."""
        return f"{self.source}: row {self.rows[row]}"

    def slice_rows(self, start: int, stop: int | None = None) -> Chunk:
        """Return a chunk of the rows from ``start`` to ``stop`` (excluded; None: to the end)."""
        size = None if stop is None else stop - start
        return Chunk(self.batch.slice(start, size), self.source, self.rows[start:stop])

    def filter_rows(self, mask: Any) -> Chunk:
        """Return a chunk of the rows where the mask, an Arrow array of bool, is true.

        Texts that are a dictionary get a new one, without the names of other rows.
        """
        batch = self.batch.filter(mask)
        for index, column in enumerate(batch.schema):
            if column.name in TEXT_COLUMNS and pa.types.is_dictionary(column.type):
                texts = batch.column(index).cast(pa.string()).dictionary_encode()
                batch = batch.set_column(index, column.with_type(texts.type), texts)
        return Chunk(batch, self.source, self.rows[mask.to_numpy(zero_copy_only=False)])


class Example(NamedTuple):
    """The first row that was rejected for a reason: where it is, and the column and value that are wrong.

    ``offered`` are the arms on offer if the arm is wrong; ``remedy`` is advice for this value, or "".
    """

    source: str
    row: int
    column: str
    value: Any
    offered: Any = None
    remedy: str = ""

    def __str__(self) -> str:
        offered_text = "" if self.offered is None else f", of {_shorten(self.offered)}"
        return f"{self.column} = {_shorten(self.value)}{offered_text}{'; ' * bool(self.remedy)}{self.remedy}"


@dataclass
class LogReport:
    """Counts of a log's valid and rejected rows, with examples and warnings.

    Attributes
    ----------
    read, kept : int
        Number of rows read, and number of valid rows.
    rejected : dict
        Number of rejected rows per reason.
    examples : dict
        First rejected row per reason.
    time_units : dict
        Number of numeric times read per unit (s, ms, us, ns).
    data_warnings : dict
        Per kind and column, the :class:`~tacit.logs.data_warnings.DataWarning` about valid rows.
    one_key : bool
        Whether the log has no column of keys, so that all rows have the same key.
    rewards : str
        The log's note on the unit of rewards.
    lists : bool
        Whether a decision has rows at several positions.
    rejected_rewards : tuple
        Number, sum, minimum and maximum of the finite rewards of rejected rows.
    reward_range : RewardRange
        The range outside of which a reward was rejected, or clipped.
    clips : bool
        Whether rewards outside the range count as its nearest end.
    clipped, clipped_amount : int, float
        Number of rows whose reward was clipped, and by how much in sum.
    needs_propensity : bool
        Whether a row without a propensity is rejected, if it or an earlier batch has rows with one.
    has_propensity : bool
        Whether a row has one, if it is needed.
    """

    read: int = 0
    kept: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    examples: dict[str, Example] = field(default_factory=dict)
    time_units: dict[str, int] = field(default_factory=dict)
    data_warnings: dict[tuple[str, str], DataWarning] = field(default_factory=dict)
    one_key: bool = False
    rewards: str = ""
    lists: bool = False
    rejected_rewards: tuple[int, float, float, float] = (0, 0.0, np.inf, -np.inf)
    reward_range: RewardRange = UNIT_RANGE
    clips: bool = False
    clipped: int = 0
    clipped_amount: float = 0.0
    needs_propensity: bool = False
    has_propensity: bool = False

    def add_warnings(self, warnings: Iterable[DataWarning]) -> None:
        """Add data warnings; where one of the same kind and column exists, only its number of rows grows."""
        for warning in warnings:
            warning_key = warning.kind, warning.column
            earlier = self.data_warnings.get(warning_key)
            rows = warning.rows + (earlier.rows if earlier else 0)
            self.data_warnings[warning_key] = (earlier or warning)._replace(rows=rows)

    def warning_lines(self, *, by_placement: bool = False) -> list[str]:
        """Return, one line each, the data warnings that hold for enough rows to be told.

        With ``by_placement``, leave out the warning about several placements.
        """
        has_large = "reward-outside-range" in self.rejected
        warnings = select_warnings(self.data_warnings.values(), self.kept, has_large)
        return [str(warning) for warning in warnings if not (by_placement and warning.kind == MIXED)]

    def drop_order_warnings(self) -> None:
        """Remove the stored warnings about the order of rows, for callers that do not depend on it."""
        self.data_warnings = {
            warning_key: warning
            for warning_key, warning in self.data_warnings.items()
            if warning_key[0] not in ORDERS
        }

    def reject(self, reason: str, count: int, example: Example) -> None:
        """Count ``count`` more rows as rejected for ``reason``; store ``example`` if the reason has none."""
        self.rejected[reason] = self.rejected.get(reason, 0) + count
        self.examples.setdefault(reason, example)

    def add_rejected_rewards(self, rewards: Floats) -> None:
        """Add rewards of rejected rows to ``rejected_rewards``; infinities and NaN are left out."""
        count, total, low, high = self.rejected_rewards
        if len(rewards := rewards[np.isfinite(rewards)]):
            low, high = min(low, rewards.min().item()), max(high, rewards.max().item())
            self.rejected_rewards = count + len(rewards), total + rewards.sum().item(), low, high

    def clip_rewards(self, rewards: Any) -> Any:
        """Return an Arrow array of rewards clipped to the range; count the clipped ones in this report.

        Null, infinities and NaN stay unchanged.
        """
        values = _fill_null(rewards, np.nan)
        outside = np.isfinite(values) & ~self.reward_range.contains(values)
        if not outside.any():
            return rewards
        clipped = np.where(outside, np.clip(values, *self.reward_range), values)
        self.clipped += int(outside.sum())
        self.clipped_amount += float(np.abs(clipped[outside] - values[outside]).sum())
        return pa.array(clipped, rewards.type, mask=_is_null(rewards))

    def describe_clipped(self) -> str:
        """Return as text how many rewards were clipped, and by how much; "" if none was."""
        text = f"{self.clipped:,} of {self.read:,} rewards are clipped to {self.reward_range.text}"
        return f"{text}, by {self.clipped_amount:g} in sum" * bool(self.clipped)

    def describe_rejected(self) -> str:
        """Return as text how many rows are left out, and with what rewards; "" if none is."""
        (count, total, low, high), left_out = self.rejected_rewards, self.read - self.kept
        rewards = f", {count:,} with rewards from {low:g} to {high:g} (mean {total / (count or 1):g})"
        return f"{left_out:,} of {self.read:,} rows are left out{rewards * bool(count)}" * bool(left_out)

    def reject_row(self, reason: str, example: Example, strict: bool) -> None:
        """Count one row as rejected for ``reason`` with its example, or raise LogError under ``strict``."""
        if strict:
            remedy = f"; {example.remedy}" if example.remedy else f" ({reason})"
            message = f"{example.column}: {example.value!r} is not allowed{remedy}"
            raise LogError(f"{example.source}: row {example.row}: {message}")
        self.reject(reason, count=1, example=example)

    def reject_error(self, error: InvalidValue, source: str, row: int, strict: bool) -> None:
        """Count a row as rejected because a value in it raised ``error``; under ``strict`` raise LogError.

        The reason is "missing-FIELD" if the error's value is None, and "wrong-FIELD" otherwise.
        """
        why = "missing" if error.value is None else "wrong"
        example = Example(source, row, error.field, error.value, remedy=error.allowed)
        self.reject_row(f"{why}-{error.field.partition('.')[0]}", example, strict)

    def merge(self, other: LogReport) -> LogReport:
        """Return a new report of the rows of both; ``other`` covers later rows."""
        both = replace(other, examples=other.examples | self.examples, data_warnings={})
        for name in ("read", "kept", "clipped", "clipped_amount"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        for name in ("one_key", "rewards", "lists", "has_propensity"):
            setattr(both, name, getattr(self, name) or getattr(other, name))
        for name in ("rejected", "time_units"):
            setattr(both, name, dict(Counter(getattr(self, name)) + Counter(getattr(other, name))))
        sums, other_sums = self.rejected_rewards, other.rejected_rewards
        low, high = min(sums[2], other_sums[2]), max(sums[3], other_sums[3])
        both.rejected_rewards = sums[0] + other_sums[0], sums[1] + other_sums[1], low, high
        both.add_warnings([*self.data_warnings.values(), *other.data_warnings.values()])
        return both

    def summary(self) -> str:
        """Return counts of rows as text, with one line per reason of rejection and its first example."""
        lines = [f"{self.read} rows read, {self.kept} kept, {self.read - self.kept} rejected"]
        for reason, count in sorted(self.rejected.items()):
            example = self.examples[reason]
            lines.append(f"  {reason}: {count}, first {example.source} row {example.row}, {example}")
        return "\n".join(lines)

    def notes(self) -> list[str]:
        """Return notes on what was assumed of the log, one line each: one key, units of rewards and times."""
        one_key = [f"key: there is no such column, so all rows are of one key, {ONLY_KEY!r}"]
        return [
            *one_key * self.one_key,
            *[f"reward: {self.rewards}"] * bool(self.rewards),
            *filter(None, [self.describe_rejected(), self.describe_clipped()]),
            *(
                f"timestamp: numbers, read as {NAMES[unit]} since 1970 ({count:,} rows)"
                for unit, count in self.time_units.items()
            ),
        ]

    def check_kept(self) -> None:
        """Raise LogError if the log has no row, and TooManyRejected if none of its rows is valid.

        Raises
        ------
        LogError, TooManyRejected
            With the reasons and their remedies.
        """
        if not self.read:
            raise LogError(f"log: {NO_ROWS}")
        if not self.kept:
            raise self._make_error("nothing can be concluded from it")

    def check_limit(self, share: float, *, ended: bool = True) -> None:
        """Raise TooManyRejected if a larger share of the rows than ``share`` is rejected.

        Fewer than 1,000 rows are judged only at the end of the log, which ``ended`` says, and only if all
        rejected rows are rejected for their outcome, such as the reward.

        Raises
        ------
        TooManyRejected
            With the rewards of the rejected rows, the reasons and their remedies.
        """
        # Rows that are lost for their outcome bias the mean reward of a log of any length. Rows that are lost
        # for other reasons need not: they are judged only where the log is long enough for a share.
        is_judged = self.read >= MIN_JUDGED or (ended and self.rejected.keys() <= OUTCOMES)
        if is_judged and self.read - self.kept > share * self.read:
            text = (
                f"{self.describe_rejected()}, more than {100 * share:g} %: the others may earn more or less"
            )
            raise self._make_error(text, ALLOW_MORE)

    def _make_error(self, problem: str, *more: str) -> TooManyRejected:
        """Return the error ``problem``, with counts of rejected rows, their reasons and remedies.

        ``more`` are further remedies, which come last.
        """
        lines = [f"log: {problem}: {self.summary()}", *self.list_remedies(), REMEDY, *more]
        return TooManyRejected("\n".join(lines))

    def list_remedies(self) -> list[str]:
        """Return, one line each, what to give in the columns for which rows were rejected."""
        columns = dict.fromkeys(example.column for example in self.examples.values())
        remedies = [
            f"  {column}: give {describe_allowed(column, self.reward_range)}"
            for column in columns
            if column in ALLOWED and not (column == "reward" and "reward-outside-range" in self.rejected)
        ]
        if "reward-outside-range" in self.rejected:
            low, high = self.rejected_rewards[2:]
            wider = describe_range(self.reward_range.widen(min(low, 0.0)))
            remedies.append(WIDER_RANGE.format(low, high, self.reward_range.text, wider))
        return remedies


WIDER_RANGE = (
    "  reward: these are from {:g} to {:g}, outside of {}: say what rewards there can be, as "
    "reward_range=(LOWEST, HIGHEST) (--reward-range LOWEST HIGHEST), or {} where there is no bound"
)
ALLOW_MORE = "or allow more by most_rejected= (--most-rejected SHARE), if none is left out for its reward"
NO_ROWS = "it has no rows, so nothing can be concluded from it; give one that has some"
REMEDY = (
    "name foreign columns with columns={OURS: THEIRS} (--column OURS=THEIRS), fill missing ones "
    "with constants={OURS: VALUE} (--constant OURS=VALUE), or mend the rows"
)


def _shorten(value: Any) -> str:
    """Return a value's repr, cut to 200 characters, with a remark if it is not UTF-8."""
    text = repr(value.decode(errors="replace") if isinstance(value, bytes) else value)
    encoding_hint = " (which is not in UTF-8: save the file in UTF-8)" * ("\ufffd" in text)
    return (text if len(text) <= 200 else text[:197] + "...") + encoding_hint


# Conversion to the schema's types -----------------------------------------------------------


def convert_values(values: Any, kind: Any, times: EpochTimes | None = None) -> Any:
    """Return an Arrow array of type ``kind``, null where a value cannot be read as that type.

    Parameters
    ----------
    values : pyarrow.Array or list
        Of any type; a list holds JSON values.
    kind : pyarrow.DataType
        A type of the schema.
    times : EpochTimes, optional
        Reads numbers as times; without it, a number is not a time.
    """
    if isinstance(values, list):
        return _convert_piecewise(
            values, kind, lambda part, kind: convert_values(pa.array(part), kind, times)
        )
    return _convert_piecewise(values, kind, partial(_cast, times=times))


def _convert_piecewise(values: Any, kind: Any, convert: Callable[[Any, Any], Any]) -> Any:
    """Return values converted to ``kind`` by ``convert``, null where that fails.

    If the conversion of all values fails, halves are converted, and so on down to single values.
    """
    try:
        return convert(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError):
        if len(values) <= 1:
            return pa.nulls(len(values), kind)
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(values), kind)
    middle = len(values) // 2
    halves = [_convert_piecewise(part, kind, convert) for part in (values[:middle], values[middle:])]
    return pa.concat_arrays(halves)


def _cast(array: Any, kind: Any, times: EpochTimes | None = None) -> Any:
    """Return an Arrow array cast to type ``kind``; raise an Arrow error if a value cannot be cast.

    Texts are parsed. Numbers become times by ``times``, or null without it. Nanoseconds are cut.
    """
    if array.type == kind:
        return array
    array = simplify_array(array)
    if is_text(array.type) and kind != pa.string():
        return _parse_texts(convert_values(array, pa.string()), kind, times)
    if pa.types.is_timestamp(kind) and _is_number(array.type):
        # The unit of a bare number is unknown.
        return pa.nulls(len(array), kind) if times is None else times.read(array)
    # Truncates nanoseconds.
    return array.cast(options=pc.CastOptions(target_type=kind, allow_time_truncate=True))


def is_text(kind: Any) -> bool:
    """True if an Arrow type is text, bytes or a dictionary."""
    return kind in TEXT or pa.types.is_dictionary(kind)


def nulls_for_missing(values: Any, kind: Any) -> Any:
    """Return a column with its missing values as null; the column itself if none is missing.

    NaN is missing in every column. In columns other than text so are the words "NA", "null", "-" and similar
    ones, in any case.

    Parameters
    ----------
    values : pyarrow.Array or list
    kind : pyarrow.DataType
        Type to which the column will be converted.

    Examples
    --------
    >>> nulls_for_missing(pa.array(["0.5", "NULL"]), pa.float64()).to_pylist()
    ['0.5', None]
    >>> nulls_for_missing([0.5, float("nan"), "n/a"], pa.string())
    [0.5, None, 'n/a']
    """
    if isinstance(values, list):
        return [None if _is_missing(value, kind) else value for value in values]
    if pa.types.is_floating(values.type):
        # One pass in most logs: the least number is NaN if any number is.
        if not values.null_count and not np.isnan(values.to_numpy().min(initial=np.inf)):
            return values
        is_missing = pc.is_nan(values)
    elif is_text(values.type) and kind != pa.string():
        values = values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values
        is_missing = _mask_missing_words(values)
    else:
        return values
    return (
        pc.if_else(is_missing, pa.scalar(None, values.type), values) if pc.any(is_missing).as_py() else values
    )


def _is_missing(value: Any, kind: Any) -> bool:
    """True if a JSON value stands for a missing one in a column that will be of type ``kind``."""
    if isinstance(value, str):
        return kind != pa.string() and value.strip().lower() in MISSING_WORDS
    return isinstance(value, float) and value != value


def _mask_missing_words(values: Any) -> Any:
    """Return a mask of the texts that are words for a missing value; bytes that are not UTF-8 never are."""
    try:
        texts = pc.utf8_lower(pc.utf8_trim_whitespace(values.cast(pa.string())))
    except pa.ArrowInvalid:
        texts = pa.array([_decode(value) for value in values.to_pylist()])
    return pc.is_in(texts, value_set=pa.array(MISSING_WORDS))


def _decode(value: bytes | None) -> str:
    """Return bytes as text in lower case without blanks around it, and "x" for None.

    Bytes that are not UTF-8 become replacement characters.
    """
    return "x" if value is None else value.decode(errors="replace").strip().lower()


def _is_number(kind: Any) -> bool:
    """True if an Arrow type is a number or boolean."""
    return pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)


def _parse_texts(texts: Any, kind: Any, times: EpochTimes | None) -> Any:
    """Return texts parsed as type ``kind``: lists, times or numbers; raise an Arrow error if one fails.

    For float64, words for true and false are 1 and 0, and "0,5" is 0.5.
    """
    if pa.types.is_list(kind):
        return _parse_lists(texts, kind)
    if pa.types.is_timestamp(kind):
        return _parse_times(texts, kind, times)
    try:
        # By way of floats, as "3.0" is a whole number, too.
        return texts.cast(pa.float64()).cast(kind)
    except pa.ArrowInvalid:
        texts = pc.utf8_trim_whitespace(texts)
        if kind == pa.float64():
            texts = _decimal_commas_to_points(_booleans_to_numbers(texts))
        return texts.cast(pa.float64()).cast(kind)


def _booleans_to_numbers(texts: Any) -> Any:
    """Return texts with words for true and false, in any case, replaced by "1" and "0"."""
    lower = pc.utf8_lower(texts)
    for words, number in ((TRUE_WORDS, "1"), (FALSE_WORDS, "0")):
        texts = pc.if_else(pc.is_in(lower, value_set=pa.array(words)), number, texts)
    return texts


def _decimal_commas_to_points(texts: Any) -> Any:
    """Return texts with the comma of fractions in [0, 1] replaced by a point; other texts unchanged."""
    fractions = pc.match_substring_regex(texts, r"^(0,[0-9]+|1,0{1,2})$")
    return pc.if_else(fractions, pc.replace_substring(texts, ",", "."), texts)


def _parse_times(texts: Any, kind: Any, times: EpochTimes | None) -> Any:
    """Return the times of texts, null for texts that are no time, or whose day and month are ambiguous.

    Texts are ISO 8601 with or without a zone, numbers, or notations of other systems.
    """
    if pc.all(pc.equal(pc.binary_length(texts), COMPACT_DATE_LENGTH)).as_py():
        texts = pc.replace_substring_regex(texts, *COMPACT_DATE)
    try:
        return _parse_iso_times(texts, kind, times)
    except pa.ArrowInvalid:
        rewritten = rewrite_times(texts, set if times is None else times.find_date_orders)
        return _convert_piecewise(rewritten, kind, partial(_parse_iso_times, times=times))


def _parse_iso_times(texts: Any, kind: Any, times: EpochTimes | None) -> Any:
    """Return the times of texts: ISO 8601 with or without a zone, or numbers.

    Raises ArrowInvalid if a text is no time.
    """
    for form in TIMES:
        try:
            parsed = _cast(texts.cast(form), kind)
        except pa.ArrowInvalid:
            continue
        if times is not None and form.tz is None and len(texts):
            times.first_zoneless = times.first_zoneless or texts[0].as_py()
            times.zoneless += len(texts)
        return parsed
    # Numbers as text: whole numbers first, which a float may not hold exactly.
    for form in (pa.int64(), pa.float64()) if times is not None else ():
        try:
            return _cast(texts.cast(form), kind, times)
        except pa.ArrowInvalid:
            continue
    raise pa.ArrowInvalid("none of these forms fits all of these times")


def _parse_lists(texts: Any, list_type: Any) -> Any:
    """Return JSON texts as an Arrow array of type ``list_type``: lists of arms, or of numbers.

    Null for a text that is not a list of such elements. Each distinct text is parsed once.
    """
    encoded = texts.dictionary_encode()
    element = _parse_arm_name if list_type.value_type == pa.string() else _parse_number
    lists = [_parse_list(text, element) for text in encoded.dictionary.to_pylist()]
    return pa.array(lists, list_type).take(encoded.indices)


def _parse_list(text: str, element: Callable[[Any], Any]) -> list[Any] | None:
    """Return the list in a JSON text, each value converted by ``element``; None if it is no such list."""
    try:
        values = json.loads(text)
        return list(map(element, values)) if isinstance(values, list) else None
    except (ValueError, OverflowError, RecursionError):
        return None


def _parse_arm_name(value: Any) -> str | None:
    """Return an arm of JSON as text, or None for null; raise ValueError for other than text or int."""
    if value is None:
        return None
    if type(value) not in (str, int):
        raise ValueError("an arm is text or a whole number")
    # Half of a surrogate pair cannot be encoded, which is a ValueError.
    return str(value).encode().decode()


def _parse_number(value: Any) -> float | None:
    """Return a number of JSON as float, or None for null; raise ValueError for other values."""
    if value is None:
        return None
    if type(value) not in (int, float):
        raise ValueError("a context consists of numbers")
    return float(value)


# Lists of arms ------------------------------------------------------------------------------


def repeat_value(value: Any, rows: int) -> Any:
    """Return an Arrow array that has one scalar in ``rows`` rows; a text or a list is stored only once."""
    if pa.types.is_string(value.type):
        return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([value]))
    if pa.types.is_list(value.type):
        sizes = np.full(rows, len(value), np.int32)
        return pa.ListViewArray.from_arrays(np.zeros(rows, np.int32), sizes, value.values)
    return pa.repeat(value, rows)


def common_list_codes(arms: Any) -> Any:
    """Return the dictionary codes of the list that all rows share; None if lists differ, are empty or null.

    ``arms`` is an Arrow column of lists of texts.
    """
    if not len(arms) or arms.null_count:
        return None
    if pa.types.is_list_view(arms.type):  # only lists that all rows share are stored so
        return np.arange(len(arms[0]))
    sizes = lengths(arms)
    if not sizes[0] or (sizes != sizes[0]).any():
        return None
    table = _encode_elements(arms).reshape(-1, sizes[0])
    return table[0] if (table == table[0]).all() and table[0].min() >= 0 else None


def _encode_lists(lists: Any) -> Any:
    """Return a column of lists of texts with dictionary-encoded elements; list views stay unchanged."""
    if lists.type == LISTS_OF_CODES or pa.types.is_list_view(lists.type):
        return lists
    offsets = pa.array(np.append(0, np.cumsum(lengths(lists))), pa.int32())
    return pa.ListArray.from_arrays(offsets, lists.flatten().dictionary_encode(), mask=lists.is_null())


def _encode_elements(lists: Any) -> Ints:
    """Return a code for each element of a column of lists of texts, in order; −1 for null."""
    return np.asarray(_encode_lists(lists).flatten().indices.fill_null(-1).to_numpy())


def first_equal_rows(lists: Any) -> Ints:
    """Return for each row the index of the first row that has the same list.

    Parameters
    ----------
    lists : pyarrow.ListArray of string

    Returns
    -------
    array of int64, shape (rows,)

    Examples
    --------
    >>> import pyarrow as pa
    >>> first_equal_rows(pa.array([["a"], ["a", "b"], ["a"]]))
    array([0, 1, 0])
    """
    return _find_first_equal_lists(_encode_elements(lists), lengths(lists))


def _find_first_equal_lists(codes: Ints, sizes: Ints) -> Ints:
    """Return for each list the index of the first list with the same elements.

    ``codes`` are the elements of all lists, concatenated; ``sizes`` the lists' lengths.
    """
    rows = len(sizes)
    if rows and (sizes == sizes[0]).all() and (codes.reshape(rows, -1) == codes[: sizes[0]]).all():
        return np.zeros(rows, np.int64)  # fast path for most logs: all lists are equal
    content = codes.astype(np.int32).tobytes()
    row_of_list: dict[bytes, int] = {}
    first_rows, start = [], 0
    # An element takes 4 bytes, so equal lists have the same bytes.
    for row, stop in enumerate((4 * np.cumsum(sizes)).tolist()):
        first_rows.append(row_of_list.setdefault(content[start:stop], row))
        start = stop
    return np.array(first_rows, np.int64)


def numbers(batch: Any, name: str, otherwise: float = np.nan) -> Floats:
    """Return a batch's column ``name`` as floats, with ``otherwise`` for nulls and for a missing column."""
    if name not in batch.schema.names:
        return np.full(len(batch), otherwise)
    return np.array(_fill_null(batch[name].cast(pa.float64()), otherwise), np.float64)


def lengths(lists: Any) -> Ints:
    """Return the length of each list of an Arrow column, 0 for null."""
    return np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(), np.int64)


# Checks -------------------------------------------------------------------------------------


def _is_probability(values: Any) -> Any:
    """Return a mask of the numbers in (0, 1]; False for NaN."""
    return (values > 0) & (values <= 1)


RANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "position": ("negative-position", lambda values: values >= 0),
    "propensity": ("propensity-outside-range", _is_probability),
    "position_propensity": ("position-propensity-outside-range", _is_probability),
}
"""Per column of numbers the reason to reject rows outside its range, and a function that tests values."""


def _list_refusals(raw: dict[str, Any], columns: dict[str, Any], report: LogReport) -> Iterator[RowRule]:
    """Yield the rules by which rows are rejected, in order of precedence, each with the rows that break it.

    ``raw`` are columns before, ``columns`` after the conversion to the schema's types; a column that needed
    no conversion is the same object in both. Of the schema's columns, absent ones are not checked.
    """
    for name, column in columns.items():
        is_converted, is_nullable = column is not raw[name], SCHEMA.field(name).nullable
        if column.null_count and (is_converted or not is_nullable):
            is_missing = _is_null(raw[name])
            yield RowRule(f"missing-{name}", name, NONE if is_nullable else is_missing, raw[name])
            yield RowRule(f"unparsable-{name}", name, ~is_missing & _is_null(column), raw[name])
    if "key" in columns:
        too_long = mask_texts(lambda x: pc.greater(pc.binary_length(x), MAX_NAME_BYTES), columns["key"])
        yield RowRule("key-too-long", "key", too_long, raw["key"])
    is_bad, not_offered = _mask_wrong_arms(columns["arms"], columns["arm"])
    yield RowRule("bad-arms", "arms", is_bad, raw["arms"])
    yield RowRule("arm-not-offered", "arm", not_offered, raw["arm"])
    if report.needs_propensity:
        propensities = [columns[name] for name in PROPENSITIES if name in columns]
        report.has_propensity |= any(column.null_count < len(column) for column in propensities)
        if report.has_propensity and all(column.null_count for column in propensities):
            is_unknown = np.all([_is_null(column) for column in propensities], axis=0)
            yield RowRule(NO_PROPENSITY, "propensity", is_unknown, raw["propensity"])
    reward_range = report.reward_range
    ranges = RANGES | {"reward": ("reward-outside-range", reward_range.contains)}
    for name, (reason, is_in_range) in ranges.items():
        if name in columns and columns[name].null_count < len(columns[name]):
            # Null is allowed: a number in the range stands for it. If the two ends are in range, so are all.
            values = _fill_null(columns[name], (1 if name != "reward" else reward_range.low or 0.0))
            if not is_in_range(np.array([values.min(), values.max()])).all():
                yield RowRule(reason, name, ~is_in_range(values), raw[name])
    if "context" in columns:
        yield RowRule("context-not-finite", "context", _is_not_finite(columns["context"]), raw["context"])


def _is_null(values: Any) -> Bools:
    """Return a mask of the values that are null, of an Arrow array or a list."""
    if isinstance(values, list):
        return np.array([value is None for value in values], bool)
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def _fill_null(array: Any, value: Any) -> Any:
    """Return an Arrow array as a numpy array, with ``value`` for nulls."""
    return (array.fill_null(value) if array.null_count else array).to_numpy(zero_copy_only=False)


def _mask_wrong_arms(arms: Any, arm: Any) -> tuple[Bools, Bools]:
    """Return masks of the rows with an invalid list of arms, and of those whose list lacks the arm shown.

    ``arms`` are the lists, ``arm`` the arms shown. The first mask has one element if all lists are equal.
    """
    arms = _encode_lists(arms)
    # One list for all rows, whose index 0 stands for that of every row; else the distinct lists.
    first = offer_index = np.zeros(1, np.int64)
    if common_list_codes(arms) is None:
        first, offer_index = np.unique(first_equal_rows(arms), return_inverse=True)
    offers = [arms[row].as_py() or [] for row in first.tolist()]
    is_bad = np.array([not offer or None in offer or len(set(offer)) < len(offer) for offer in offers], bool)
    if len(offers) == 1:
        offer = pa.array(offers[0], pa.string())
        return is_bad, mask_texts(lambda texts: pc.invert(pc.is_in(texts, value_set=offer)), arm)
    arm, elements = arm.dictionary_encode(), arms.flatten()
    shown_codes = pc.index_in(arm.dictionary, value_set=elements.dictionary).take(arm.indices)
    rows = np.repeat(np.arange(len(arms)), lengths(arms))
    is_shown = _fill_null(elements.indices, -1) == _fill_null(shown_codes, -1)[rows]
    not_offered = np.ones(len(arms), bool)
    not_offered[rows[is_shown]] = False
    return is_bad[offer_index], not_offered


def _is_not_finite(contexts: Any) -> Bools:
    """Return a mask of the contexts that contain a null, an infinity or NaN."""
    is_finite = np.isfinite(_fill_null(contexts.flatten(), np.nan))
    is_wrong = np.zeros(len(contexts), bool)
    if not is_finite.all():
        # Not by list_parent_indices, which counts the elements of a null list that flatten leaves out.
        is_wrong[np.repeat(np.arange(len(contexts)), lengths(contexts))[~is_finite]] = True
    return is_wrong


def check_rows(
    raw: RawRows,
    source: str,
    report: LogReport,
    *,
    strict: bool,
    time_unit: str | None = None,
    encoded: Collection[str] | None = None,
    find_date_orders: Callable[[], set[str]] = set,
) -> Chunk:
    """Convert rows to the schema's types and return the valid ones; count all rows in ``report``.

    Examples of rejected rows and warnings about valid ones are added to the report, too.

    Parameters
    ----------
    raw : RawRows
        Rows with columns of the schema, under its names: all of them, or with ``encoded`` at least ``arm``
        and ``arms``.
    source : str
        The file, for reports and errors.
    report : LogReport
        Counts the rows, and has the range of rewards.
    strict : bool
        Whether to raise at the first invalid row.
    time_unit : str, optional
        The unit of numeric times; None infers it.
    encoded : collection of str, optional
        Names of columns of text that are returned as dictionaries; then other texts may be dictionaries,
        too, and a list that all rows share may be stored once. None: all columns have the schema's types.
    find_date_orders : function, optional
        Returns what the dates of the whole file show, as :func:`tacit.logs.time_texts.find_date_orders`.

    Raises
    ------
    LogError
        Under ``strict``, for an invalid row; the message names source, row, column and value.
    """
    times = EpochTimes(time_unit, report.time_units, find_date_orders)
    columns = {
        field.name: _convert_column(raw.columns[field.name], field, times)
        for field in SCHEMA
        if field.name in raw.columns
    }
    if report.clips and "reward" in columns:
        columns["reward"] = report.clip_rewards(columns["reward"])
    if encoded is not None:
        columns |= {name: columns[name].dictionary_encode() for name in encoded if name in columns}
        columns["arms"] = _encode_lists(columns["arms"])
    is_valid = np.ones(len(raw.rows), bool)
    rejected = []
    if raw.malformed:
        row, text = raw.malformed[0]
        rejected.append((MALFORMED, len(raw.malformed), Example(source, row, "row", text)))
    for rule in _list_refusals(raw.columns, columns, report):
        if (bad_rows := rule.rows & is_valid).any():
            is_valid &= ~bad_rows
            index = int(np.argmax(bad_rows))
            offered = columns["arms"][index].as_py() if rule.column == "arm" else None
            remedy = DRAWN_ALIKE if rule.kind == NO_PROPENSITY else ""
            where = source, int(raw.rows[index]), rule.column, rule.get_first(bad_rows)
            rejected.append((rule.kind, int(np.count_nonzero(bad_rows)), Example(*where, offered, remedy)))
    if strict and rejected:
        reason, _, example = min(rejected, key=lambda rejection: rejection[2].row)
        raise LogError(_rejection_message(reason, example, report.reward_range))
    report.add_warnings(list_warnings(list_name_rules(raw.columns, columns), source, raw.rows))
    if times.zoneless:
        row = convert_values(raw.columns["timestamp"], pa.string()).index(times.first_zoneless).as_py()
        # The text may have been rewritten, and is then not found (−1): the first row stands for it.
        first = source, int(raw.rows[max(row, 0)]), times.first_zoneless
        report.add_warnings([DataWarning(ZONELESS, "timestamp", times.zoneless, *first)])
    report.read += len(raw.rows) + len(raw.malformed)
    report.kept += int(np.count_nonzero(is_valid))
    for reason, count, example in rejected:
        report.reject(reason, count, example)
    if rejected and "reward" in columns:
        report.add_rejected_rewards(_fill_null(columns["reward"], np.nan)[~is_valid])
    batch = pa.RecordBatch.from_pydict(columns)
    if encoded is None:
        plain = [_make_plain(columns[field.name], field.type) for field in SCHEMA]
        batch = pa.RecordBatch.from_arrays(plain, schema=SCHEMA)
    for name in raw.columns:
        if name not in columns:
            batch = batch.append_column(name, _convert_extra(name, raw.columns[name], encoded))
    chunk = Chunk(batch, source, raw.rows)
    chunk = chunk if is_valid.all() else chunk.filter_rows(pa.array(is_valid))
    valid = {name: chunk.batch[name] for name in columns}
    report.add_warnings(list_warnings(list_row_rules(valid, len(chunk.rows)), source, chunk.rows))
    return chunk


def _convert_column(values: Any, field: Any, times: EpochTimes) -> Any:
    """Return a column of the schema as an Arrow array of its type, null where a value cannot be read so.

    Compact columns stay as they are: texts in a dictionary without null, lists of dictionary codes, and lists
    of arms that all rows share.
    """
    kind = pa.null() if isinstance(values, list) else values.type
    is_compact = kind == LISTS_OF_CODES
    if field.name in TEXT_COLUMNS and pa.types.is_dictionary(kind):
        is_compact = kind.value_type == pa.string() and not values.dictionary.null_count
    elif kind == pa.list_view(pa.string()) and len(values):
        # A list that all rows share has the same offset and size in all of them.
        ends = values.offsets.to_numpy(), values.sizes.to_numpy()
        is_compact = not values.null_count and all((numbers == numbers[0]).all() for numbers in ends)
    return values if is_compact or kind == field.type else convert_values(values, field.type, times)


def _make_plain(values: Any, kind: Any) -> Any:
    """Return a column that :func:`_convert_column` left compact as a plain Arrow array of type ``kind``."""
    if not pa.types.is_list_view(values.type):
        return values.cast(kind)
    rows, shared = len(values), values[:1].flatten()
    elements = shared.take(pa.array(np.tile(np.arange(len(shared)), rows)))
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * len(shared), pa.int32()), elements)


def _convert_extra(name: str, values: Any, encoded: Collection[str] | None) -> Any:
    """Return an additional column as an Arrow array: segments as text, features as floats.

    Segments are a dictionary if they are among ``encoded``. Columns with the prefix "column " stay unchanged.
    """
    if name.startswith(EXTRA):
        return pa.array(values) if isinstance(values, list) else values
    if name != SEGMENT:
        return convert_values(values, pa.float64())
    texts = convert_values(values, pa.string())
    return texts.dictionary_encode() if name in (encoded or ()) else texts


def _rejection_message(reason: str, example: Example, reward_range: RewardRange) -> str:
    """Return the error message for a rejected row: location, column, value, reason and remedy."""
    allowed = "as many fields as the header, or one JSON object a line"
    if example.column in ALLOWED:
        allowed = describe_allowed(example.column, reward_range, example.value)
    return (
        f"{example.source}: row {example.row}: {example.column}: "
        f"{_shorten(example.value)} is not allowed ({reason}); give {allowed}"
        + ("" if example.offered is None else f"; here {_shorten(example.offered)}")
    )
