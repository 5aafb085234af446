"""Logged rows as columns of numbers, as whole lists, and the arms that a log offers.

:class:`RowReader` reads a log in batches, as columns of numbers; :func:`group_lists` groups the rows of one
decision into lists; :func:`arms_of` reads a whole log for the arms on offer.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
import pyarrow as pa

from tacit.core.arrays import Floats, Ints
from tacit.core.refusals import Refusal, refuse_rows
from tacit.core.reward_range import UNIT_RANGE, RewardRange
from tacit.errors import InvalidValue, UnfitLog, UnknownName
from tacit.learning.learner import USER_KEY_SHARE
from tacit.logs.data_warnings import FROM_ONE, REMEDY
from tacit.logs.items import ItemTable, get_items
from tacit.logs.parts import KeyShard, LogPart, cut_between_lists, find_list_starts
from tacit.logs.reader import LogReader
from tacit.logs.rows import Chunk, common_list_codes, first_equal_rows, numbers
from tacit.logs.schema import EXTRA, SCHEMA, SEGMENT
from tacit.logs.selection import select_columns
from tacit.logs.sources import ReadOptions, open_log
from tacit.policies.base import Policy

# ---- Logged rows as columns of numbers: what estimators and target policies look at

NAMES = ("placement", "key", "policy", SEGMENT)
"""Columns of text that are read as codes, in addition to ``arm``."""
MAX_LOOKUP_NUMBERS = 2**22
"""Most numbers of item vectors that are looked up together."""
MIN_ROWS_TO_JUDGE = 10
"""Fewest rows whose rewards are checked for being all equal."""
MIN_KEYED_ROWS = 1000
"""Fewest rows whose keys are checked for being users."""
MAX_SEGMENTS = 1000
"""Most values of a column of segments."""


def batch_name(column: str) -> str:
    """Return a log column's name in record batches: additional columns get the prefix "column "."""
    return column if column in SCHEMA.names or column == SEGMENT else EXTRA + column


def extra_columns(columns: Collection[str]) -> list[str]:
    """Return, sorted, the ``columns`` that are not in the click-log schema."""
    return sorted(name for name in columns if batch_name(name) != name)


class Coded(NamedTuple):
    """A column of names.

    Attributes
    ----------
    codes : array of int64, shape (rows,)
    names : list of str
        The name of each code; it grows from batch to batch, and its elements do not change.
    """

    codes: Ints
    names: list[str]


class LoggedRows(NamedTuple):
    """A batch of rows of a log.

    Attributes
    ----------
    chunk : Chunk
        The rows as they were read, with at least the requested columns.
    first : int
        Number of earlier rows.
    arm : Coded
        The arm shown.
    offer : array of int64, shape (rows,)
        Index into ``offers`` of the arms on offer.
    offers : list of array of int64
        Lists of codes of arms; it grows, and its elements do not change.
    propensity, reward : array of float64, shape (rows,)
        The propensity is that of the arm at its position; NaN if the log has none.
    given_above : array of float64, shape (rows,)
        In a list, the propensity of the arm given the arms above it; NaN if the log has none. The very array
        ``propensity`` if no row of the batch has one at its position.
    names : dict
        The other requested columns of names.
    items : ItemTable or None
        Vectors of the arms.
    unread : tuple of str
        The log's columns, if none of them is the propensity.
    """

    chunk: Chunk
    first: int
    arm: Coded
    offer: Ints
    offers: list[Ints]
    propensity: Floats
    reward: Floats
    given_above: Floats
    names: dict[str, Coded]
    items: ItemTable | None = None
    unread: tuple[str, ...] = ()

    def locate_row(self, row: int) -> str:
        """Return the file and row number of a row of the batch as text, for an error message."""
        return self.chunk.row_location(row)

    def name_arm(self, row: int) -> str:
        """Return the name of the arm that a row of the batch shows."""
        name: str = self.arm.names[self.arm.codes[row]]
        return name

    def folds(self, count: int) -> Ints:
        """Return the fold of each row: its number in the log modulo ``count``."""
        return (self.first + np.arange(len(self.reward))) % count

    def get_column(self, per: str | None) -> Coded:
        """Return the column ``per`` as codes with their names; for None, all codes are 0.

        ``per`` is "position", whose codes are the positions, named "0", "1", …, or one of the requested
        columns of names. Raises UnfitLog if a row has no position.
        """
        if per is None:
            return Coded(np.zeros(len(self.reward), np.int64), [""])
        if per == "position":
            places = positions(self)
            return Coded(places, [str(place) for place in range(int(places.max(initial=-1)) + 1)])
        return self.names[per]

    @property
    def batch(self) -> Any:
        """The record batch of the rows, in which additional columns have their plain names."""
        batch = self.chunk.batch
        return batch.rename_columns([name.removeprefix(EXTRA) for name in batch.schema.names])


def positions(rows: LoggedRows) -> Ints:
    """Return the position of each row, from 0.

    Raises
    ------
    UnfitLog
        If a row has no position.
    """
    batch = rows.chunk.batch
    column = batch["position"] if "position" in batch.schema.names else pa.nulls(len(batch))
    is_missing = column.is_null().to_numpy(zero_copy_only=False)
    none = Refusal("position", is_missing, "there is none; log the place of each arm")
    refuse_rows(rows.locate_row, [none])
    return np.asarray(column.to_numpy(), np.int64)


def select_answered(chunk: Chunk, missing_reward: float | None) -> tuple[Chunk, int]:
    """Return the rows to evaluate, and the number of rows without feedback, whose reward is null.

    All rows are returned, unless ``missing_reward`` is None: then the ones with feedback.

    Parameters
    ----------
    chunk : Chunk
    missing_reward : float or None
        The reward of a row without feedback; None leaves such rows out.
    """
    valid = chunk.batch["reward"].is_valid()
    unanswered = len(valid) - valid.true_count
    if missing_reward is not None or not unanswered:
        return chunk, unanswered
    return chunk.filter_rows(valid), unanswered


def warn_one_sided(result: Any, reward_range: RewardRange = UNIT_RANGE) -> tuple[str, ...]:
    """Return one warning if all rows with feedback have the reward 1, as if only clicks were logged, else ().

    Nothing is issued. ``result`` is an off-policy or a replay result that left out rows without feedback.
    """
    if (
        reward_range != UNIT_RANGE
        or result.logged < 1.0
        or min(result.rows, result.unanswered) < MIN_ROWS_TO_JUDGE
    ):
        return ()
    return (
        f"missing_reward: all {result.rows:,} rows with feedback have the reward 1, and "
        f"{result.unanswered:,} without are left out: those are the ones nobody clicked, if only clicks are "
        "sent; let them count as 0: leave out missing_reward=None (--answered)",
    )


PROPENSITY_NAME = re.compile(r"prop|prob|pscore|^p$|(^|_)p(_|$)|chance|share", re.IGNORECASE)


def list_unread_columns(log: Any) -> tuple[str, ...]:
    """Return all column names of a log without propensities, for an error message; () if it has them.

    Propensities are a column or a constant. () if it is no log.
    """
    if not isinstance(log, LogReader | LogPart | KeyShard):
        return ()
    reader: Any = log
    while not isinstance(reader, LogReader):
        reader = reader.log
    sources = [{*file.columns, *reader.constants} for file in reader.files]
    if any({"propensity", "position_propensity"} & names for names in sources):
        return ()
    return tuple(dict.fromkeys(name for file in reader.files for name in file.names))


def suggest_propensity_column(columns: Sequence[str]) -> str:
    """Return the start of an error on missing propensities: the columns, and which may have them; or ""."""
    if not columns:
        return ""
    near = next((name for name in columns if PROPENSITY_NAME.search(name)), "...")
    value = near if near == "..." else repr(near)
    return (
        f"no column is called so; the columns are {', '.join(map(repr, columns[:20]))}"
        f"{', …' * (len(columns) > 20)}; if one has the probability of the arm shown, say "
        f"columns={{'propensity': {value}}} (--column propensity={near}); else "
    )


def describe_missing_propensity(rows: LoggedRows, row: int) -> str:
    """Return the text of an error that a row has no propensity, with remedies."""
    names, shown_code = rows.arm.names, rows.arm.codes[row]
    other_arms = [names[arm] for arm in rows.offers[rows.offer[row]] if arm != shown_code]
    other_text = f"{other_arms[0]!r} could" if other_arms else "other arms could"
    return (
        f"{suggest_propensity_column(rows.unread)}there is none, as from a deterministic policy: in place of "
        f"{names[shown_code]!r}, the log may never have shown what {other_text} have earned; log with a "
        "policy that randomizes, such as ExplorationFloor, or ListMix(epsilon=0.1) for lists, and keep its "
        "propensities; if it did randomize, give what is known: one chance for all rows, "
        "constants={'propensity': 0.5} (--constant propensity=0.5); all arms alike, propensities=Uniform() "
        "(--propensities uniform); one for each arm, propensities=Table({'film': 0.8, ...}) (--propensities "
        'table:FILE); or the log\'s shares, propensities="estimated" (--propensities estimated)'
    )


def refuse_unknown(rows: LoggedRows, propensity: Floats) -> None:
    """Raise UnfitLog if a needed propensity of the rows is NaN."""
    text = partial(describe_missing_propensity, rows)
    refuse_rows(rows.locate_row, [Refusal("propensity", np.isnan(propensity), text)])


class RowReader:
    """Reads a log as :class:`LoggedRows`, in one pass and in bounded memory.

    Parameters
    ----------
    columns : collection of str
        Columns to read in addition to the arm, the arms on offer, the propensity and the reward.
    missing_reward : float or None
        The reward of a row without feedback; None leaves such rows out.
    need_propensity : bool, default True
        Whether a row without a propensity is an error.
    is_weighed : bool, default False
        Whether a row without a propensity is left out, if others have one; not under ``strict``.
    first : int, default 0
        Number of earlier rows of the log, if only a part of it is read.
    names : dict, optional
        From columns to names that have the first codes, in their order.
    whole : bool, default False
        Whether batches of rows end between decisions only.

    Attributes
    ----------
    rows, unanswered, reward
        Number of rows yielded so far, of rows read without feedback, and the sum of all rewards.
    given_above : bool
        True if a row has a propensity, but not one at its position.
    """

    def __init__(
        self,
        columns: Collection[str],
        missing_reward: float | None = 0.0,
        *,
        need_propensity: bool = True,
        is_weighed: bool = False,
        first: int = 0,
        names: Mapping[str, Sequence[str]] | None = None,
        whole: bool = False,
    ) -> None:
        """Store the options and start with zero counts; nothing is read yet."""
        self._columns = {*map(batch_name, columns), "propensity", "position_propensity", "reward"}
        self._missing_reward = missing_reward
        self._need_propensity, self._is_weighed = need_propensity, is_weighed
        self._first = first
        self._whole = whole
        self._items: ItemTable | None = None
        self._unread: tuple[str, ...] = ()
        initial_names = names or {}
        self._vocabularies = {name: Vocabulary(initial_names.get(name, ())) for name in ("arm", *NAMES)}
        self._offers: list[Ints] = []
        self._offer_indices: dict[tuple[str, ...], int] = {}
        self.rows = 0
        self.unanswered = 0
        self.reward = 0.0
        self.given_above = False

    @property
    def user_keys_message(self) -> str:
        """A warning that nearly each row has a key of its own, as if keys were users or rows; else ""."""
        count = len(self._vocabularies["key"].names)
        if self.rows < MIN_KEYED_ROWS or count < USER_KEY_SHARE * self.rows:
            return ""
        problem = f"key: {self.rows:,} rows are for {count:,} keys, and each begins anew"
        return f"{problem}; give as key a query or a place on a page, and who is asking as context="

    @property
    def arms(self) -> list[str]:
        """The names of the arms read so far, by their codes."""
        return self._vocabularies["arm"].names

    def read(self, log: Any) -> Iterator[LoggedRows]:
        """Yield all rows of a log in batches; rows without feedback only if ``missing_reward`` is a number.

        Updates the reader's counts and codes. Raises UnfitLog if propensities are needed and a row has
        none.
        """
        self._items = get_items(log)
        self._unread = list_unread_columns(log)
        if self._items is not None and self._items.has_times:
            self._columns.add("timestamp")
        chunks = select_columns(log, self._columns, self._is_weighed)
        for chunk in cut_between_lists(chunks) if self._whole else chunks:
            counted_chunk, unanswered = select_answered(chunk, self._missing_reward)
            self.unanswered += unanswered
            if len(counted_chunk.rows):
                rows = self._code_rows(counted_chunk)
                self.rows += len(counted_chunk.rows)
                self.reward += float(rows.reward.sum())
                yield rows

    def _code_rows(self, chunk: Chunk) -> LoggedRows:
        """Return a chunk as :class:`LoggedRows`, with codes in place of names; new names get new codes.

        Updates ``given_above``. Raises UnfitLog if propensities are needed and a row has none.
        """
        batch = chunk.batch
        offer = self._find_offer_indices(batch)
        propensity = given_above = numbers(batch, "propensity")
        is_only_above = ~np.isnan(given_above)
        if batch["position_propensity"].null_count < len(batch):
            at_position = numbers(batch, "position_propensity")
            propensity = np.where(np.isnan(at_position), given_above, at_position)
            is_only_above &= np.isnan(at_position)
        self.given_above |= bool(is_only_above.any())
        rows = LoggedRows(
            chunk,
            self._first + self.rows,
            self._vocabularies["arm"].encode_column(batch["arm"]),
            offer,
            self._offers,
            propensity,
            # With None, no reward is missing: such rows are left out.
            numbers(batch, "reward", self._missing_reward or 0.0),
            given_above,
            {
                name: self._vocabularies[name].encode_column(batch[name])
                for name in NAMES
                if name in self._columns
            },
            self._items,
            self._unread,
        )
        if self._need_propensity:
            refuse_unknown(rows, rows.propensity)
        return rows

    def _find_offer_indices(self, batch: Any) -> Ints:
        """Return the index in ``_offers`` of each row's list of arms; append new lists to ``_offers``."""
        arms = batch["arms"]
        if common_list_codes(arms) is not None:
            return np.full(len(arms), self._find_offer(arms[0].as_py()))
        first, which = np.unique(first_equal_rows(arms), return_inverse=True)
        return np.array([self._find_offer(arms[row].as_py()) for row in first.tolist()], np.int64)[which]

    def _find_offer(self, names: list[str]) -> int:
        """Return the index in ``_offers`` of a list of arms; append the list if it is new."""
        offer = tuple(names)
        if offer not in self._offer_indices:
            self._offer_indices[offer] = len(self._offers)
            codes = map(self._vocabularies["arm"].code, offer)
            self._offers.append(np.array(list(codes), np.int64))
        return self._offer_indices[offer]


class Vocabulary:
    """Names with codes 0, 1, …, in the order of their first appearance."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names: list[str] = list(names)
        self._codes: dict[Any, int] = {name: code for code, name in enumerate(names)}

    def code(self, name: Any) -> int:
        """Return the code of a name; a new name is added. None is a name of its own, listed as ""."""
        code = self._codes.setdefault(name, len(self.names))
        if code == len(self.names):
            self.names.append("" if name is None else name)
        return code

    def encode_column(self, column: Any) -> Coded:
        """Return a text column as codes with their names; new names are added."""
        column = column.dictionary_encode()
        if column.null_count:
            column = column.cast(pa.string()).dictionary_encode(null_encoding="encode")
        mapping = np.array([self.code(name) for name in column.dictionary.to_pylist()], np.int64)
        return Coded(mapping.take(column.indices.to_numpy()), self.names)


def check_segments(source: str, names: Sequence[str]) -> None:
    """Raise UnfitLog if there are more than 1,000 segments.

    Raises
    ------
    UnfitLog
    """
    if len(names) > MAX_SEGMENTS:
        raise UnfitLog(
            f"{source}: by: the column has more than {MAX_SEGMENTS:,} values, such as "
            f"{names[0]!r} and {names[1]!r}; give one that tells segments apart"
        )


def hash_clusters(column: Any, groups: int) -> Ints:
    """Return a group in [0, groups) for each row, by a hash of its name.

    Equal names have the same group, on every machine. The column must not have null.
    """
    encoded = column.dictionary_encode()
    names = ["" if name is None else str(name) for name in encoded.dictionary.to_pylist()]
    groups_of_names = [zlib.crc32(name.encode()) % groups for name in names]
    return np.asarray(np.array(groups_of_names, np.int64)[encoded.indices.fill_null(0).to_numpy()])


# ---- Rows of a log as lists: the consecutive rows of one decision


class Lists(NamedTuple):
    """Assignment of rows to lists.

    Attributes
    ----------
    first : array of int64, shape (lists,)
        The first row of each list.
    list_index, place : array of int64, shape (rows,)
        The list of each row, and its position in the list.
    """

    first: Ints
    list_index: Ints
    place: Ints

    @property
    def sorted_rows(self) -> Ints:
        """Row indices sorted by list, then by position."""
        return np.lexsort((self.place, self.list_index))

    def table(self, values: Floats, width: int, empty: float) -> Floats:
        """Return one value per row as an array (lists, width); positions without a row have ``empty``."""
        table = np.full((len(self.first), width), empty)
        table[self.list_index, self.place] = values
        return table


def check_first_position(rows: LoggedRows, place: Ints) -> None:
    """Raise UnfitLog if all positions are above 0, as when they count from 1."""
    refuse_rows(rows.locate_row, [_check_counts_from_zero(place)])


def group_lists(rows: LoggedRows, length: int | None = None) -> Lists:
    """Return the list and the position of each row; rows with the same decision_id are one list.

    Parameters
    ----------
    rows : LoggedRows
        Whole lists.
    length : int, optional
        The most positions of a list.

    Raises
    ------
    UnfitLog
        If a row has no position, a position of at least ``length``, or the same one as another row of its
        list.
    """
    place = positions(rows)
    starts = find_list_starts(rows.chunk.batch["decision_id"])
    lists = Lists(np.flatnonzero(starts), np.cumsum(starts) - 1, place)
    refuse_rows(rows.locate_row, _list_refusals(lists, length))
    return lists


def _check_counts_from_zero(place: Ints) -> Refusal:
    """Return the check that refuses positions if all are above 0, as when they count from 1."""
    is_wrong = np.full(len(place), bool(place.min(initial=1) > 0))
    text = "none of the lists has a row at position 0, this row is at {}; " + REMEDY[FROM_ONE]
    return Refusal("position", is_wrong, lambda row: text.format(place[row]))


def _list_refusals(lists: Lists, length: int | None) -> Iterator[Refusal]:
    """Yield the checks that positions are below ``length``, if given, and that no list has one twice.

    If positions reach ``length`` because they count from 1, that is refused first. Of repeated positions only
    the first row is marked, as only one is reported.
    """
    place = lists.place
    if length is not None and len(place) and place.max() >= length:
        yield _check_counts_from_zero(place)
        text = f"is none of a list of slots={length}; give as many slots as a page has positions, which count"
        yield Refusal("position", place >= length, lambda row: f"{place[row]} {text} from 0")
    order = lists.sorted_rows
    index, sorted_place = lists.list_index[order], place[order]
    is_repeated = np.zeros(len(place), np.bool_)
    repeats = order[1:][(index[1:] == index[:-1]) & (sorted_place[1:] == sorted_place[:-1])]
    is_repeated[repeats[:1]] = True
    remedy = "another row of its decision_id has {}, too; log one arm for each position, and the rows of a "
    remedy += "decision together"
    yield Refusal("position", is_repeated, lambda row: remedy.format(place[row]))


# ---- The arms that a log offers


def list_arm_names(policy: Policy) -> list[str]:
    """Return the names of a policy's arms by arm index; numbered arms are named "0", "1", …."""
    arms = policy.arms
    return [str(arm) for arm in (range(arms) if isinstance(arms, int) else arms)]


def check_items(policy: Policy, items: ItemTable | None) -> None:
    """Raise InvalidValue if the policy reads item vectors that the log's item table does not have.

    It also refuses policies that read further features of arms, which a click log does not hold.

    Raises
    ------
    InvalidValue
    """
    dim, shared_dim = policy.feature_dims
    if not dim and not shared_dim:
        return
    if shared_dim or policy.arms is not None:
        remedy = "it reads more of arms than their relevance, which a click log does not hold; "
        raise InvalidValue("policy", policy, remedy + "judge it with tacit.simulate")
    if items is None or items.dim != dim:
        remedy = f"the policy reads {dim} numbers of each arm: give a table with the columns id and vector"
        raise InvalidValue("items", items and f"{items.dim} numbers", remedy)


def split_rows(sizes: Ints, most: int = MAX_LOOKUP_NUMBERS) -> Iterator[slice]:
    """Yield consecutive slices of rows whose sizes sum to at most ``most``; a larger row is alone.

    Examples
    --------
    >>> [(part.start, part.stop) for part in split_rows(np.array([3, 3, 9, 1, 1]), 6)]
    [(0, 2), (2, 3), (3, 5)]
    """
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        before = int(ends[start] - sizes[start])
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(start, stop)
        start = stop


def unknown_arm_error(where: str, name: str, known: Sequence[str]) -> UnknownName:
    """Return, not raise, the error that a log has the arm ``name`` and the policy only ``known`` ones."""
    return UnknownName(
        f"{where}: arms: the policy has no arm {name!r}, it has {', '.join(map(repr, known))}; "
        "make it with arms=arms_of(log), or in a command without arms"
    )


def arms_of(log: Any, **reading: Unpack[ReadOptions]) -> tuple[str, ...]:
    """Return the distinct arms that a log offers, sorted by name.

    If all names are whole numbers, they are sorted as numbers.

    Parameters
    ----------
    log : LogReader, path, or table in memory
        As for :func:`tacit.read_log`; is read to its end.
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`.

    Raises
    ------
    LogError
        If the log cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from tacit.logs import read_log
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "clicks.csv"
    >>> _ = path.write_text(
    ...     "timestamp,decision_id,placement,key,arms,arm\\n"
    ...     '2017-07-04T12:00:00Z,1,home,tomato,"[10, 9]",9\\n'
    ... )
    >>> arms_of(path)
    ('9', '10')
    """
    return sort_arms(collect_arms(open_log(log, **reading)))


def collect_arms(log: Any) -> set[str]:
    """Read a log, or a part of one, and return the set of all arms that it offers."""
    names: set[str] = set()
    for chunk in select_columns(log, ()):
        names.update(_list_distinct_arms(chunk.batch.column("arms")))
    return names


def _list_distinct_arms(arms: Any) -> list[str]:
    """Return the distinct arms of a column of lists."""
    if common_list_codes(arms) is not None:
        return list(arms[0].as_py())
    return list(arms.flatten().unique().to_pylist())


def sort_arms(names: set[str]) -> tuple[str, ...]:
    """Return arms sorted by name, or as numbers if all names are whole numbers."""
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
