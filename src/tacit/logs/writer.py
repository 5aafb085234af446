"""Build a click log from a learner's decisions, and write a click log to a file atomically."""

# 1. ``click_log``: decisions and rewards as rows of a click log, one row per position of a list.
# 2. ``write_log``: writes a temporary file, which then replaces the old one.

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.core import checks
from tacit.errors import InvalidValue, LogError, suggesting, undoing

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN = {"decision_id", "placement", "arms", "arm", "policy", "version"}
"""Columns of every click log that tacit writes, by which an existing file is recognised as one."""


@suggesting
def click_log(
    policy: Any,
    decisions: Sequence[Any],
    rewards: Sequence[Any],
    *,
    placement: str = "placement",
    times: Sequence[datetime] | None = None,
    arms: Sequence[Sequence[Any]] | None = None,
) -> pa.Table:
    """Return decisions and their rewards as a click log.

    Parameters
    ----------
    policy : Policy
        The learner's policy, which names the arms on offer.
    decisions : sequence of Decision
        Decisions of arms or of lists; a list has one row per arm, with the arm's propensity given the
        arms above it and its propensity at its position.
    rewards : sequence
        For each decision the reward passed to :meth:`tacit.Learner.learn`; None without feedback.
    placement : str, default "placement"
        Name of the placement.
    times : sequence of datetime, optional
        Time of each decision; by default now.
    arms : sequence of sequence of str or int, optional
        For each decision the arms on offer, as passed to ``choose``, if the policy knows arms by their
        features only.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    InvalidValue
        If the numbers of rewards and decisions differ, the policy shows duels, or the policy knows arms
        by their features and ``arms`` is missing.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.ListMix(arms=["film", "holiday", "speech"], positions=2, epsilon=0.1)
    >>> learner = tacit.Learner(policy, seed=1)
    >>> decision = learner.choose("independence day")
    >>> log = click_log(policy, [decision], [[0.0, 1.0]])
    >>> log["arm"].to_pylist(), log["position"].to_pylist(), log["reward"].to_pylist()
    (['film', 'holiday'], [0, 1], [0.0, 1.0])
    """
    import pyarrow as pa

    from tacit.logs.schema import SCHEMA

    if not hasattr(type(policy), "showing"):
        raise InvalidValue("policy", policy, "give the one that decided, such as learner.policy")
    if hasattr(decisions, "offered"):
        raise InvalidValue("decisions", decisions, "give a list of them, and of rewards")
    if policy.showing.compared:
        raise InvalidValue("policy", policy, "a click log holds arms and lists; give no policy of duels")
    if policy.arms is None and (arms is None or len(arms) != len(decisions)):
        remedy = "a click log tells of arms by name; name those that were on offer, for each decision"
        raise InvalidValue("arms", arms, remedy)
    when = [datetime.now(UTC)] * len(decisions) if times is None else times
    for field, each in {"rewards": rewards, "times": when}.items():
        if not hasattr(each, "__len__") or len(each) != len(decisions):
            raise InvalidValue(field, each, f"give one for each of {len(decisions)} decisions")
    if (odd := next((time for time in when if isinstance(time, str | int | float)), None)) is not None:
        raise InvalidValue("times", odd, "give datetimes, such as datetime.now(UTC)")
    for i, reward in enumerate(rewards):
        given = [reward] if reward is None or isinstance(reward, int | float) else list(reward)
        if any(value is not None and (value < 0 or value > 1) for value in given):
            raise InvalidValue(f"rewards[{i}]", reward, "give numbers in [0, 1]")
    known: Any = range(policy.arms) if isinstance(policy.arms, int) else policy.arms
    named = [known] * len(decisions) if policy.arms is not None or arms is None else arms
    rows: list[dict[str, Any]] = []
    for decision, reward, time, every in zip(decisions, rewards, when, named, strict=True):
        names = list(map(str, every))
        common = {
            "timestamp": time,
            "decision_id": str(decision.id),
            "placement": placement,
            "key": decision.key,
            "arms": [names[slot] for slot in decision.offered.tolist()],
            "context": decision.context.tolist() or None,
            "policy": policy.label,
        }
        shown = _list_rows(decision, reward) if policy.showing.listed else _row(decision, reward)
        rows += [common | {"arm": names[slot], **rest} for slot, rest in shown]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(decision: Any, reward: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    yield int(decision.slots[0]), {"propensity": decision.propensity, "reward": reward}


def _list_rows(decision: Any, rewards: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    prefixes = decision.prefix_propensities.tolist()
    for k, slot in enumerate(decision.slots.tolist()):
        if slot >= 0:
            yield (
                slot,
                {
                    "position": k,
                    "propensity": given_above(prefixes, k),
                    "position_propensity": at_position(decision.position_propensities, k),
                    "reward": None if rewards is None else rewards[k],
                },
            )


def given_above(prefixes: Sequence[float], k: int) -> float | None:
    """Return the propensity of an arm given the arms above it in its list, from propensities of prefixes.

    Examples
    --------
    >>> given_above([0.5, 0.25], 0), given_above([0.5, 0.25], 1), given_above([], 0)
    (0.5, 0.5, None)
    >>> given_above([0.0, 0.0], 1) is None
    True
    """
    # Rounding may make the propensity of a shown arm 0: then it is unknown.
    if not len(prefixes) or prefixes[k] <= 0.0:
        return None
    # Rounding may make the quotient larger than 1.
    return min(1.0, float(prefixes[k]) / float(prefixes[k - 1])) if k else float(prefixes[0])


def at_position(places: Sequence[float], k: int) -> float | None:
    """Return the propensity of an arm at its position in a list, or None if unknown.

    Examples
    --------
    >>> at_position([0.5, 0.75], 1), at_position([], 0)
    (0.75, None)
    """
    return min(1.0, float(places[k])) if len(places) and places[k] > 0.0 else None


# ---- Writing a file


@suggesting
def write_log(log: Any, path: str | Path, format: str | None = None, *, rewards: str = "") -> None:
    """Write a click log to one file, which replaces an existing one only when complete.

    In every format, reading the file returns the rows that were written.

    Parameters
    ----------
    log : LogReader, path, pyarrow.Table, or iterable of pyarrow.RecordBatch
        Nullable columns can be left out.
    path : path
        The file.
    format : str, optional
        ``"parquet"``, ``"csv"`` or ``"json"`` (one object per line); by default that of the suffix
        of ``path``.
    rewards : str, optional
        Note on the unit of rewards, such as ``"0 to 1 stand for 0 to 100 euros"``, which Parquet stores
        and results of the log repeat.

    Raises
    ------
    LogError
        If a row is invalid or the file cannot be written; then no file is left.
    InvalidValue
        If there is no such format, or the path is a file that is not a click log.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow as pa
    >>> from tacit.logs import read_log
    >>> row = {
    ...     "timestamp": "2017-07-04T12:00:00Z",
    ...     "decision_id": "1",
    ...     "placement": "home",
    ...     "key": "independence day",
    ...     "arms": ["film", "holiday"],
    ...     "arm": "holiday",
    ...     "propensity": 0.5,
    ...     "reward": 1.0,
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "clicks.jsonl"
    ...     write_log(pa.Table.from_pylist([row]), path)
    ...     [batch["arm"].to_pylist() for batch in read_log(path)]
    [['holiday']]
    """
    from tacit.logs.formats import FORMATS, format_of
    from tacit.logs.reader import file_at
    from tacit.logs.sources import as_chunks

    path = checks.path(path)
    chosen = FORMATS[format_of(path, format)]
    if path.is_file() and path.stat().st_size and not WRITTEN.issubset(file_at(path, format).names):
        raise InvalidValue("path", str(path), "it is there, and is no click log; give another, or delete it")
    batches = (chunk.batch for chunk in as_chunks(log, empty=True))
    try:
        _replace(path, chosen.write, (batches, rewards))
    except OSError as error:
        remedy = "give another place, or make its folder"
        raise LogError(f"{path}: cannot be written: {error.strerror}; {remedy}") from error


def _replace(path: Path, write: Any, given: tuple[Iterable[Any], str]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with undoing(os.unlink, temporary):
        with os.fdopen(handle, "wb") as file:
            write(file, *given)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
