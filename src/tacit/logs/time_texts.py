"""Rewrite times of other systems as ISO 8601: of BigQuery, web servers, mail headers and spreadsheets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
CLOCK, OFFSET, MONTH = r"(\d\d:\d\d:\d\d)", r"(gmt|utc|z|[+-]\d\d:?\d\d)", r"([a-z]{3})[a-z]*"
NOTATIONS = {
    rf"^\[?(\d\d)/{MONTH}/(\d{{4}}):{CLOCK} ?{OFFSET}?\]?$": r"\3-\2-\1 \4\5",  # Apache, nginx
    rf"^(?:[a-z]+, )?(\d\d?)[ -]{MONTH}[ -](\d{{4}}) {CLOCK} ?{OFFSET}?$": r"\3-\2-\1 \4\5",  # RFC 1123
    rf"^[a-z]{{3}} {MONTH} +(\d\d?) {CLOCK} (?:{OFFSET} )?(\d{{4}})$": r"\5-\1-\2 \3\4",  # date, ctime
    rf"^{MONTH}\.? (\d\d?),? (\d{{4}})": r"\3-\1-\2",
    r"^(\d{4})/(\d\d?)/(\d\d?)": r"\1-\2-\3",
    r"^(\d{4})(\d\d)(\d\d)t(\d\d)(\d\d)(\d\d)": r"\1-\2-\3 \4:\5:\6",
    r"([+-]\d\d:?\d\d) utc$": r"\1",  # Go
    r"(:\d\d),(\d+)": r"\1.\2",
    r"(\d) ?(?:utc|gmt|z)$": r"\1Z",
    r"(\d) ([+-]\d\d(?::?\d\d)?)$": r"\1\2",
}
"""Patterns of times in lower case, and what they become; tried in turn."""
COMPACT_DATE, COMPACT_DATE_LENGTH = (r"^((?:19|20)\d\d)([01]\d)([0-3]\d)$", r"\1-\2-\3"), 8
NUMERIC_DATE = r"^(?P<first>\d\d?)[/.-](?P<second>\d\d?)[/.-](?P<year>\d{4})(?P<clock>$|[ ,t].*)"


def rewrite_times(texts: Any, find_orders: Callable[[], set[str]] = set) -> Any:
    """Return times as ISO 8601, other texts in upper case, and null where day and month cannot be told apart.

    In dates such as 01/13/2026, a number above 12 is the day. If such numbers stand only first in the dates
    of the column, or only second, the order holds for all its dates; else a date is read only if it has one,
    or if both numbers are equal.

    Parameters
    ----------
    texts : pyarrow.StringArray
    find_orders : function, optional
        Returns what the other dates of the file show, as :func:`find_date_orders`; called if there are such
        dates. What these texts show is added.

    Examples
    --------
    >>> rewrite_times(pa.array(["2026-01-01 00:00:00 UTC", "[01/Jan/2026:10:00:00 +0100]"])).to_pylist()
    ['2026-01-01 00:00:00Z', '2026-01-01 10:00:00+0100']
    >>> rewrite_times(pa.array(["01/02/2026 3:05 PM", "01/31/2026 12:00 AM"])).to_pylist()
    ['2026-01-02 15:05', '2026-01-31 00:00']
    >>> rewrite_times(pa.array(["01/02/2026"])).to_pylist()
    [None]
    """
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    for pattern, replacement in NOTATIONS.items():
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    for month, name in enumerate(MONTHS, 1):
        texts = pc.replace_substring(texts, f"-{name}-", f"-{month:02}-")
    texts = _order_dates(texts, find_orders)
    # Days, then months of one digit get two; then clocks of 12 hours become clocks of 24.
    texts = pc.replace_substring_regex(texts, r"^(\d{4}-\d\d?)-(\d)(\D|$)", r"\1-0\2\3")
    texts = pc.replace_substring_regex(texts, r"^(\d{4})-(\d)-", r"\1-0\2-")
    if pc.any(pc.ends_with(texts, "m")).as_py():
        for hour in range(1, 13):
            for half, start in ("a", 0), ("p", 12):
                pattern = rf" 0?{hour}(:\d\d(?::\d\d(?:\.\d+)?)?) ?{half}\.?m$"
                texts = pc.replace_substring_regex(texts, pattern, rf" {hour % 12 + start:02}\1")
    return pc.utf8_upper(pc.replace_substring_regex(texts, r" (\d:\d\d)", r" 0\1"))


def find_date_orders(texts: Any) -> set[str]:
    """Return which of "day" and "month" come first in dates of three numbers: a number above 12 is a day.

    Both, if dates contradict each other; empty if no number is above 12.

    Examples
    --------
    >>> find_date_orders(pa.array(["01/02/2026", "01/31/2026"])), find_date_orders(pa.array(["01/02/2026"]))
    ({'month'}, set())
    """
    parts = pc.extract_regex(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), NUMERIC_DATE)
    fields = {"day": "first", "month": "second"}  # the day's place, by what then comes first
    return {
        order
        for order, field in fields.items()
        if pc.any(pc.greater(pc.struct_field(parts, field).cast(pa.int64()), 12)).as_py()
    }


def _order_dates(texts: Any, find_orders: Callable[[], set[str]]) -> Any:
    """Return texts whose dates of three numbers begin with the year; null for ambiguous dates."""
    parts = pc.extract_regex(texts, NUMERIC_DATE)
    is_date = np.asarray(parts.is_valid().to_numpy(zero_copy_only=False))
    if not is_date.any():
        return texts
    strings = [pc.struct_field(parts, name) for name in ("first", "second", "year", "clock")]
    first, second = (part.cast(pa.int64()).fill_null(0).to_numpy() for part in strings[:2])
    orders = find_orders()
    orders |= find_date_orders(texts)  # in place: of a stream, the set grows with each batch
    is_ambiguous = is_date & (first <= 12) & (second <= 12) & (first != second) & (len(orders) != 1)
    is_day_first = first > 12 if len(orders) != 1 else orders == {"day"}
    month, day = np.where(is_day_first, second, first), np.where(is_day_first, first, second)
    names = pa.array(month).cast(pa.string()), pa.array(day).cast(pa.string())
    clock = pc.replace_substring_regex(strings[3], r"^[ ,t]+", " ")
    dates = pc.binary_join_element_wise(pc.binary_join_element_wise(strings[2], *names, "-"), clock, "")
    return pc.if_else(pa.array(is_ambiguous), None, pc.if_else(pa.array(is_date), dates, texts))
