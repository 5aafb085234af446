"""Target policies, whose value is to be estimated: tables of probabilities, functions, models.

The protocol of targets; tables of numbers per arm; numbers from a function of the rows, a model or a
classifier; last, targets by their command-line names.
"""

from __future__ import annotations

import copy
import csv
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import InvalidValue, UnfitLog, suggest_name
from tacit.evaluate.rows import Coded, LoggedRows, Vocabulary, batch_name, check_first_position, positions

# ---- Target policies: probabilities of arms, row by row
#
# Any object with the attributes and methods of :class:`Target` is a target.


class Target(Protocol):
    """Protocol of target policies: the probability of each arm in each logged row.

    Attributes
    ----------
    label : str
        The policy's name in results.
    columns : frozenset of str
        The columns of the log that it reads.
    """

    label: str
    columns: frozenset[str]

    def begin(self, all_arms: bool = False) -> Self:
        """Return the target reset for a new log; ``all_arms`` if :meth:`evaluate_arms` will be called."""

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the target's probability of each row's shown arm; a target that learns then learns the rows.

        Called once per batch, in the order of the log.
        """

    def evaluate_arms(self, rows: LoggedRows) -> Floats:
        """Return the probability of each arm, shape (rows, arms), in the order of ``rows.arm.names``.

        Called after :meth:`evaluate_shown` of the same batch.
        """

    def select_reachable(self, arms: Sequence[str]) -> list[str]:
        """Return the arms that the target may have shown in the rows so far; empty if unknown."""


class Uniform:
    """A target policy that shows every arm on offer with the same probability."""

    label = "uniform"
    columns: frozenset[str] = frozenset()

    def select_reachable(self, arms: Sequence[str]) -> list[str]:
        """Return all arms: each may be shown."""
        return list(arms)

    def begin(self, all_arms: bool = False) -> Self:
        """Return the target itself: it has no state."""
        return self

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return 1/(number of arms on offer) for each row."""
        sizes = np.array([len(offer) for offer in rows.offers], np.float64)
        return (1.0 / sizes)[rows.offer]

    def evaluate_arms(self, rows: LoggedRows) -> Floats:
        """Return 1/(number of arms on offer) for each arm on offer and 0 for others, shape (rows, arms)."""
        on_offer = offer_matrix(rows)
        return np.asarray((on_offer / on_offer.sum(axis=1, keepdims=True))[rows.offer], np.float64)


def offer_matrix(rows: LoggedRows) -> Booleans:
    """Return a mask, shape (offers, arms): True where an offer contains the arm."""
    on_offer = np.zeros((len(rows.offers), len(rows.arm.names)), np.bool_)
    for offer, arms in enumerate(rows.offers):
        on_offer[offer, arms] = True
    return on_offer


def impossible_arm_message(rows: LoggedRows, row: int, arm: str, probability: float) -> str:
    """Return the error message that the target shows an arm which a row does not offer.

    It names the row's location, the arm, its probability and up to 10 arms on offer.
    """
    offer = [rows.arm.names[code] for code in rows.offers[rows.offer[row]]]
    return (
        f"{rows.locate_row(row)}: arms: the target policy shows {arm!r} with probability {probability:g}, "
        f"but it was not on offer{suggest_name(arm, offer)}, so the log could never have shown it; there "
        f"were {', '.join(map(repr, offer[:10]))}{', …' * (len(offer) > 10)}; leave "
        "it out of the target policy, or take a log that offers it"
    )


class Restartable:
    """Base of targets and models with state from the rows so far, which is reset for each log."""

    def begin(self, all_arms: bool = False) -> Self:
        """Return a copy whose state from earlier rows is reset; ``all_arms`` is ignored."""
        restarted = copy.copy(self)
        restarted._reset()
        return restarted

    def _reset(self) -> None:
        """Discard all state that comes from rows."""
        raise NotImplementedError


# ---- Numbers per arm in tables: fixed probabilities

TOLERANCE = 1e-9
PER = (None, "key", "placement", "position", "policy")


class ArmTables(Restartable):
    """Base of fixed numbers per arm, optionally with a table for each key, placement or position.

    Parameters
    ----------
    numbers : dict
        From arms to numbers; with ``per``, from the values of that column to such dicts.
    per : str, optional
        The column with a table for each value: ``key``, ``placement``, ``position``, ``policy``, or an
        additional column of the log, such as ``device``, by the text of its values.
    default : float
        The number of arms that are not named.

    Raises
    ------
    InvalidValue
        If a number is out of range.
    """

    quantity, least, most = "numbers", -1e300, 1e300

    def __init__(self, numbers: Mapping[Any, Any], per: str | None = None, default: float = 0.0) -> None:
        """Validate the tables of numbers; raise InvalidValue if one is no dict of numbers in range."""
        if per is not None and not (isinstance(per, str) and per):
            raise InvalidValue("per", per, "give the name of a column, such as key or device")
        if not isinstance(numbers, Mapping) or not numbers:
            raise InvalidValue(self.quantity, numbers, f"give a dict from arms to {self.quantity}")
        tables = {_to_text(value): table for value, table in numbers.items()} if per else {"": numbers}
        self.per = per
        self.columns = frozenset({per} if per else ())
        self._default = default
        self.tables = {value: self._check_table(value, table) for value, table in tables.items()}
        self._reset()

    def _check_table(self, value: str, table: Any) -> dict[str, float]:
        """Return the validated numbers of one table by arm; ``value`` is its value of ``per``, for errors."""
        field = f"{self.quantity}[{value}]" if self.per else self.quantity
        if not isinstance(table, Mapping):
            raise InvalidValue(field, table, f"give a dict from arms to {self.quantity}")
        if self.per is None and any(isinstance(entry, Mapping) for entry in table.values()):
            remedy = f"say which column has {self.quantity} for each of its values: per='key', or a name"
            raise InvalidValue(field, table, remedy)
        return {
            str(arm): checks.number(f"{field}[{arm}]", number, self.least, self.most)
            for arm, number in table.items()
        }

    def _reset(self) -> None:
        """Discard the array of tables and the numbering of values."""
        self._matrix = np.zeros((0, 0))
        self._values = Vocabulary()

    def look_up_rows(self, rows: LoggedRows) -> tuple[Floats, Ints]:
        """Return all tables as one array (tables, arms), and the index of each row's table in it.

        New values of ``per`` and new arms extend the stored array; arms that a table lacks have the default.
        Raises the errors of :meth:`_check` if the tables do not fit the rows.
        """
        table_codes = self._code_column(rows)
        arms = rows.arm.names
        if self._matrix.shape[1] < len(arms):  # new arms: all tables are written again
            self._matrix = np.zeros((0, len(arms)))
        known_count = len(self._matrix)
        if known_count < len(table_codes.names):
            # A value without a table has the default for each arm, unless ``_check`` refuses it.
            tables = [self.tables.get(value, {}) for value in table_codes.names[known_count:]]
            new = np.array([[table.get(arm, self._default) for arm in arms] for table in tables])
            self._matrix = np.concatenate([self._matrix, new.reshape(-1, len(arms))])
        self._check(rows, table_codes.codes, table_codes.names)
        return self._matrix, table_codes.codes

    def _code_column(self, rows: LoggedRows) -> Coded:
        """Return each row's value of the column ``per`` as a code, with the codes' names.

        Without ``per`` all codes are 0.
        """
        if self.per in PER:
            return rows.get_column(self.per)
        return self._values.encode_column(rows.chunk.batch[batch_name(str(self.per))].cast(pa.string()))

    def _check(self, rows: LoggedRows, codes: Ints, names: list[str]) -> None:
        """Raise an error if the tables do not fit the rows; the base class accepts all rows."""

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the number of each row's shown arm."""
        matrix, codes = self.look_up_rows(rows)
        return matrix[0].take(rows.arm.codes) if len(matrix) == 1 else matrix[codes, rows.arm.codes]

    def evaluate_arms(self, rows: LoggedRows) -> Floats:
        """Return the number of each arm in each row, shape (rows, arms)."""
        matrix, codes = self.look_up_rows(rows)
        return matrix[codes]


def _to_text(value: Any) -> str:
    """Return a value as text, as columns are converted to text: booleans become "true" and "false"."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Table(ArmTables):
    """A target policy with fixed probabilities of arms, optionally for each key, placement or position.

    Parameters
    ----------
    probabilities : dict
        From arms to probabilities that add to 1; with ``per``, from the values of that column
        to such dicts. Arms that are not named have probability 0.
    per : str, optional
        The column with a table for each value: ``key``, ``placement``, ``position``, ``policy``, or an
        additional column of the log, such as ``device``, by the text of its values.

    Raises
    ------
    InvalidValue
        If the numbers are not probabilities.

    Examples
    --------
    >>> Table({"film": 0.7, "holiday": 0.3}).label
    'table'
    >>> Table({"independence day": {"holiday": 1.0}}, per="key").per
    'key'
    """

    label = "table"
    slots = 0
    """Number of positions, if the table is one fixed list."""
    quantity, least, most = "probabilities", 0.0, 1.0

    def __init__(self, probabilities: Mapping[Any, Any], per: str | None = None) -> None:
        """Validate the tables; raise InvalidValue if a table's probabilities do not add to 1."""
        super().__init__(probabilities, per)
        for value, table in self.tables.items():
            if abs(sum(table.values()) - 1.0) > TOLERANCE:
                field = f"probabilities[{value}]" if per else "probabilities"
                raise InvalidValue(field, table, "give probabilities that add to 1")

    def _reset(self) -> None:
        """Discard the array of tables and the record of checked offers."""
        super()._reset()
        self._checked_offers: set[tuple[str, int]] = set()

    def _check(self, rows: LoggedRows, codes: Ints, names: list[str]) -> None:
        """Raise UnfitLog if a row does not offer an arm that its table shows, or has no table.

        Pairs of table and offer that pass are recorded, and not checked again.
        """
        if len(self._checked_offers) == len(names) * len(rows.offers):
            return
        pairs = codes * len(rows.offers) + rows.offer
        # Counting is faster than sorting, unless there are more possible pairs than rows.
        if len(names) * len(rows.offers) > len(pairs):
            distinct = np.unique(pairs)
        else:
            distinct = np.flatnonzero(np.bincount(pairs))
        for pair in distinct.tolist():
            value, offer = names[pair // len(rows.offers)], pair % len(rows.offers)
            if (value, offer) not in self._checked_offers:
                self._check_offer(rows, value, offer, int(np.argmax(pairs == pair)))
                self._checked_offers.add((value, offer))

    def _check_offer(self, rows: LoggedRows, value: str, offer: int, row: int) -> None:
        """Raise UnfitLog if ``value`` has no table, or the offer lacks an arm of positive probability."""
        if value not in self.tables:
            if self.per == "position" and "0" in self.tables:
                check_first_position(rows, positions(rows))
            problem = f"no probabilities for {value!r}{suggest_name(value, self.tables)}"
            names = ", ".join(map(repr, list(self.tables)[:10]))
            remedy = "give as many arms as lists of the log have" if self.slots else "give some for it, too"
            text = f"the target policy has {problem}; it has them for {names}; {remedy}"
            raise UnfitLog(f"{rows.locate_row(row)}: {self.per}: {text}")
        on_offer = {rows.arm.names[arm] for arm in rows.offers[offer]}
        for arm, probability in self.tables[value].items():
            if probability > 0 and arm not in on_offer:
                raise UnfitLog(impossible_arm_message(rows, row, arm, probability))

    def select_reachable(self, arms: Sequence[str]) -> list[str]:
        """Return the arms of positive probability in a table that a row so far has used."""
        tables = [self.tables[value] for value in {value for value, _ in self._checked_offers}]
        return [arm for arm in arms if any(table.get(arm, 0.0) > 0 for table in tables)]


# ---- Numbers per arm from a function of the rows, or from a model


class ArmValues(Restartable):
    """Base of targets and models that compute a number per arm and row, cached for the latest batch."""

    _latest: tuple[LoggedRows | None, Floats] = None, np.zeros((0, 0))

    def _reset(self) -> None:
        """Discard the cached numbers of the latest batch."""
        self._latest = None, np.zeros((0, 0))

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the number of each row's shown arm; cached with the numbers of all arms."""
        return self.evaluate_arms(rows)[np.arange(len(rows.reward)), rows.arm.codes]

    def evaluate_arms(self, rows: LoggedRows) -> Floats:
        """Return the number of each arm in each row, shape (rows, arms); cached for the latest batch."""
        if self._latest[0] is not rows:
            self._latest = rows, self._evaluate(rows)
        return self._latest[1]

    def _evaluate(self, rows: LoggedRows) -> Floats:
        """Return the number of each arm in each row, shape (rows, arms), in the order of the log's arms."""
        raise NotImplementedError


def takes_one_argument(function: Callable[..., Any]) -> bool:
    """True if a function can be called with one argument, as far as its signature is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


class ArmFunction(ArmValues):
    """Base of numbers per arm that a user's function returns for a batch of rows.

    Parameters
    ----------
    function : callable
        From a ``pyarrow.RecordBatch`` with the named columns to an array (rows, arms).
    arms : sequence of str
        The arms, in the order of the array's columns.
    columns : collection of str
        The columns of the log that the function reads, of the schema or additional ones, as
        ``["age", "device"]``.

    Raises
    ------
    InvalidValue
        If the function returns anything else.
    """

    def __init__(
        self, function: Callable[[Any], Any], arms: Sequence[str], columns: Sequence[str] = ("context",)
    ) -> None:
        """Validate the function, the arms' names and the columns; raise InvalidValue if one is wrong."""
        if not callable(function):
            raise InvalidValue("function", function, "give a function of a batch")
        if not takes_one_argument(function):
            raise InvalidValue("function", function, "let it take one argument, the batch of rows")
        names = checks.arms("arms", arms)
        if isinstance(names, int):
            raise InvalidValue("arms", arms, "give the arms' names")
        self.function, self.arms = function, names
        self.columns = frozenset(checks.names("columns", columns))

    def _evaluate(self, rows: LoggedRows) -> Floats:
        """Call the function with a batch; return its numbers with columns in the order of the log's arms.

        Raises InvalidValue if the numbers are not finite or have another shape than (rows, arms).
        """
        shape = len(rows.reward), len(self.arms)
        result = self.function(rows.batch)
        array = np.asarray(result, np.float64)
        if array.shape != shape or not np.isfinite(array).all():
            raise InvalidValue("function", result, f"give finite numbers of shape {shape}")
        return self._arrange_columns(array, rows)

    def _arrange_columns(self, values: Floats, rows: LoggedRows) -> Floats:
        """Return values with columns in the order of the log's arms; 0 for arms that the function lacks."""
        place = {arm: column for column, arm in enumerate(self.arms)}
        arranged = np.zeros((len(values), len(rows.arm.names)))
        for code, name in enumerate(rows.arm.names):
            if name in place:
                arranged[:, code] = values[:, place[name]]
        return arranged


class Probabilities(ArmFunction):
    """A target policy with probabilities from a function of a batch of rows.

    Parameters
    ----------
    function : callable
        From a ``pyarrow.RecordBatch`` with the named columns to an array (rows, arms) of
        probabilities that add to 1 in each row.
    arms : sequence of str
        The arms, in the order of the array's columns.
    columns : collection of str
        The columns of the log that the function reads, of the schema or additional ones.
    label : str

    Raises
    ------
    InvalidValue
        If the function returns anything else.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        arms: Sequence[str],
        columns: Sequence[str] = ("context",),
        label: str = "function",
    ) -> None:
        """Validate function, arms and columns; raise InvalidValue if one is wrong."""
        super().__init__(function, arms, columns)
        self.label = label
        self._reset()

    def _reset(self) -> None:
        """Discard cached probabilities and the set of reachable arms."""
        super()._reset()
        self._reachable: set[str] = set()

    def select_reachable(self, arms: Sequence[str]) -> list[str]:
        """Return the arms that had a positive probability in a row so far."""
        return [arm for arm in arms if arm in self._reachable]

    def _arrange_columns(self, values: Floats, rows: LoggedRows) -> Floats:
        """Validate probabilities and return them with columns in the order of the log's arms.

        Raises InvalidValue if a row does not add to 1, UnfitLog if an arm that is not on offer has a
        positive probability. Records the arms of positive probability as reachable.
        """
        if (values < 0).any() or (np.abs(values.sum(axis=1) - 1.0) > 1e-6).any():
            raise InvalidValue("function", values, "give probabilities that add to 1 in each row")
        arranged = super()._arrange_columns(values, rows)
        self._check_offers(values, arranged, rows)
        positive = np.flatnonzero((arranged > 0).any(axis=0)).tolist()
        self._reachable.update(rows.arm.names[arm] for arm in positive)
        return arranged

    def _check_offers(self, values: Floats, arranged: Floats, rows: LoggedRows) -> None:
        """Raise UnfitLog if an arm that is not on offer, or not in the log, has a positive probability.

        ``values`` has the function's columns, ``arranged`` the log's.
        """
        missing = np.where(offer_matrix(rows)[rows.offer], 0.0, arranged)
        if (missing > 0).any():
            row, code = np.argwhere(missing > 0)[0].tolist()
            raise UnfitLog(impossible_arm_message(rows, row, rows.arm.names[code], float(missing[row, code])))
        logged_arms = set(rows.arm.names)
        absent = [column for column, arm in enumerate(self.arms) if arm not in logged_arms]
        if absent and (values[:, absent] > 0).any():
            row, column = np.argwhere(values[:, absent] > 0)[0].tolist()
            arm = absent[column]
            raise UnfitLog(impossible_arm_message(rows, row, self.arms[arm], float(values[row, arm])))


class ByClassifier(Probabilities):
    """A target policy with the class probabilities of a scikit-learn classifier of the contexts.

    Parameters
    ----------
    model : object
        A fitted model with ``predict_proba(contexts)`` and ``classes_``, the arms' names.
    label : str, optional

    Raises
    ------
    InvalidValue
        If the model has no ``predict_proba`` or ``classes_``.
    """

    def __init__(self, model: Any, label: str | None = None) -> None:
        """Take the arms from the model's classes; raise InvalidValue if the model is no fitted classifier."""
        if not (hasattr(model, "predict_proba") and hasattr(model, "classes_")):
            raise InvalidValue("model", model, "give a fitted model with predict_proba")
        names = [str(name) for name in model.classes_]
        super().__init__(
            lambda batch: model.predict_proba(contexts(batch)),
            names,
            ("context",),
            label or type(model).__name__,
        )


def contexts(batch: Any) -> Floats:
    """Return the contexts of a batch as an array (rows, dim).

    Raises
    ------
    UnfitLog
        If a row has no context, or contexts differ in length.
    """
    if "context" not in batch.schema.names or 0 < len(batch) == batch["context"].null_count:
        raise UnfitLog(
            "context: the log has none; say which columns make it, as columns={'context': ['age', 'visits']} "
            "(--column context=age,visits)"
        )
    column = batch["context"]
    values = np.asarray(column.flatten().to_numpy(), np.float64)
    lengths = np.diff(column.offsets.to_numpy())
    if column.null_count or not len(column) or (lengths != lengths[0]).any():
        raise UnfitLog("context: the model needs as many numbers in each row")
    return values.reshape(len(column), -1)


# ---- Fixed target policies by their command-line names


def fixed_target(text: str) -> Target | None:
    """Return the fixed target policy that a command-line text describes, or None if it describes none.

    Parameters
    ----------
    text : str
        ``uniform``, ``always:ARM``, ``list:ARM,ARM,…`` for a fixed list, or ``table:FILE`` with a
        JSON file that holds an object from arms to probabilities, or a CSV file with the columns
        ``arm`` and ``probability``, and optionally one of ``key``, ``placement``, ``position``,
        ``policy`` or an additional column of the log; in JSON such a column holds an object for each of its
        values: ``{"device": {"ios": {"film": 1}}}``.

    Raises
    ------
    InvalidValue
        If the file cannot be read, or holds no probabilities.

    Examples
    --------
    >>> fixed_target("always:film").tables
    {'': {'film': 1.0}}
    >>> fixed_target("list:film,holiday").tables
    {'0': {'film': 1.0}, '1': {'holiday': 1.0}}
    >>> fixed_target("thompson") is None
    True
    """
    kind, colon, argument = text.partition(":")
    if text == "uniform":
        return Uniform()
    if kind == "always" and colon:
        return Table({argument: 1.0})
    if kind == "list" and colon:
        arms = [name.strip() for name in argument.split(",")]
        if len(set(arms)) < len(arms) or not all(arms):
            raise InvalidValue("policy", text, "give each arm of the list once, commas between")
        table = Table({str(k): {arm: 1.0} for k, arm in enumerate(arms)}, per="position")
        table.slots = len(arms)
        return table
    if kind == "table" and colon:
        return _load_table(Path(argument))
    similar_kinds = get_close_matches(kind, ("always", "list", "table", "learner"), 1, cutoff=0.8)
    if colon and similar_kinds:
        raise InvalidValue("policy", text, f"did you mean {similar_kinds[0]}:{argument}?")
    return None


def _load_table(path: Path) -> Table:
    """Return the table of probabilities in a JSON or CSV file; raise InvalidValue if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".csv":
            return _parse_csv(path, csv.DictReader(text.splitlines()))
        data = json.loads(text)
        # An object of one object is a column, with a table for each of its values.
        nested = isinstance(data, dict) and len(data) == 1 and isinstance(next(iter(data.values())), dict)
        per, numbers = next(iter(data.items())) if nested else (None, data)
        return Table(numbers, per=per)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue("policy", f"table:{path}", f"give a readable file ({error})") from error


def _parse_csv(path: Path, rows: Any) -> Table:
    """Return the table of probabilities in the rows of a CSV reader; ``path`` is for errors.

    Raises InvalidValue without the columns arm and probability, or if an arm has two probabilities.
    """
    names, rows = rows.fieldnames or [], list(rows)
    if not rows or not {"arm", "probability"} <= set(names):
        remedy = (
            f"its columns are {', '.join(names) or 'none'}; give arm and probability, in a row for each arm"
        )
        raise InvalidValue("policy", f"table:{path}", remedy)
    other_columns = [name for name in names if name not in ("arm", "probability")]
    # A known column if there is one, else the first of the others.
    per = next((name for name in (*PER, *other_columns) if name in other_columns), None)
    tables: dict[str, dict[str, float]] = {}
    for row in rows:
        table, chance = tables.setdefault(row[per] if per else "", {}), float(row["probability"])
        if table.setdefault(row["arm"], chance) != chance:
            remedy = "has two of them; leave one out"
            raise InvalidValue("policy", f"table:{path}", f"{', '.join(row.values())}: the arm {remedy}")
    return Table(tables if per else tables[""], per=per)
