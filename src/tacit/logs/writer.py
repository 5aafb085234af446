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
from tacit.errors import InvalidValue, LogError, undo_on_error, with_suggestions

if TYPE_CHECKING:
    import pyarrow as pa

LOG_COLUMNS = {"decision_id", "placement", "arms", "arm", "policy", "version"}
"""Columns of every click log that tacit writes, by which an existing file is recognised as one."""


@with_suggestions
def click_log(
    policy: Any,
    decisions: Sequence[Any],
    rewards: Sequence[Any],
    *,
    placement: str = "placement",
    times: Sequence[datetime] | None = None,
    arms: Sequence[Sequence[Any]] | None = None,
) -> pa.Table:
    """Return decisions and their rewards as a table in the click-log schema.

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
        If the numbers of rewards, times and decisions differ, a reward is outside the policy's range, a time
        is no datetime, the policy shows duels, or it knows arms by their features and ``arms`` is missing.

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
    if hasattr(decisions, "offered"):  # a single decision, or a batch of them
        raise InvalidValue("decisions", decisions, "give a list of them, and of rewards")
    if policy.showing.compared:
        raise InvalidValue("policy", policy, "a click log holds arms and lists; give no policy of duels")
    if policy.arms is None and (arms is None or len(arms) != len(decisions)):
        remedy = "a click log tells of arms by name; name those that were on offer, for each decision"
        raise InvalidValue("arms", arms, remedy)
    decision_times = [datetime.now(UTC)] * len(decisions) if times is None else times
    for field, values in {"rewards": rewards, "times": decision_times}.items():
        if not hasattr(values, "__len__") or len(values) != len(decisions):
            raise InvalidValue(field, values, f"give one for each of {len(decisions)} decisions")
    if (
        wrong_time := next((time for time in decision_times if isinstance(time, str | int | float)), None)
    ) is not None:
        raise InvalidValue("times", wrong_time, "give datetimes, such as datetime.now(UTC)")
    for i, reward in enumerate(rewards):
        reward_values = [reward] if reward is None or isinstance(reward, int | float) else list(reward)
        for value in reward_values:
            if value is not None and not policy.reward_range.contains(value):
                raise InvalidValue(f"rewards[{i}]", reward, policy.reward_range.remedy(value))
    policy_arms: Any = range(policy.arms) if isinstance(policy.arms, int) else policy.arms
    arm_lists = [policy_arms] * len(decisions) if policy.arms is not None or arms is None else arms
    rows: list[dict[str, Any]] = []
    for decision, reward, time, arm_list in zip(decisions, rewards, decision_times, arm_lists, strict=True):
        names = list(map(str, arm_list))
        common = {
            "timestamp": time,
            "decision_id": str(decision.id),
            "placement": placement,
            "key": decision.key,
            "arms": [names[arm_index] for arm_index in decision.offered.tolist()],
            "context": decision.context.tolist() or None,
            "policy": policy.label,
        }
        arm_rows = _list_rows(decision, reward) if policy.showing.listed else _list_row(decision, reward)
        rows += [common | {"arm": names[arm_index], **columns} for arm_index, columns in arm_rows]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _list_row(decision: Any, reward: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield once: the arm index of a decision of one arm, with its propensity and reward as columns."""
    yield int(decision.slots[0]), {"propensity": decision.propensity, "reward": reward}


def _list_rows(decision: Any, rewards: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the arm index at each filled position of a list, and a row's columns for it.

    The columns are position, propensities and reward. ``rewards`` has a reward per position; None without
    feedback.
    """
    prefixes = decision.prefix_propensities.tolist()
    for position, arm_index in enumerate(decision.slots.tolist()):
        if arm_index >= 0:
            yield (
                arm_index,
                {
                    "position": position,
                    "propensity": conditional_propensity(prefixes, position),
                    "position_propensity": propensity_at_position(decision.position_propensities, position),
                    "reward": None if rewards is None else rewards[position],
                },
            )


def conditional_propensity(prefix_propensities: Sequence[float], position: int) -> float | None:
    """Return the propensity of the arm at a position, given the arms above it in its list.

    It is the ratio of the propensities of two prefixes of the list, at most 1; None if unknown.

    Examples
    --------
    >>> conditional_propensity([0.5, 0.25], 0), conditional_propensity([0.5, 0.25], 1)
    (0.5, 0.5)
    >>> conditional_propensity([], 0), conditional_propensity([0.0, 0.0], 1)
    (None, None)
    """
    # Rounding may make the propensity of a shown arm 0: then it is unknown.
    if not len(prefix_propensities) or prefix_propensities[position] <= 0.0:
        return None
    # Rounding may make the quotient larger than 1.
    return (
        min(1.0, float(prefix_propensities[position]) / float(prefix_propensities[position - 1]))
        if position
        else float(prefix_propensities[0])
    )


def propensity_at_position(propensities: Sequence[float], position: int) -> float | None:
    """Return the propensity, at most 1, of an arm at its position in a list; None if unknown or 0.

    Examples
    --------
    >>> propensity_at_position([0.5, 0.75], 1), propensity_at_position([], 0)
    (0.75, None)
    """
    return (
        min(1.0, float(propensities[position]))
        if len(propensities) and propensities[position] > 0.0
        else None
    )


# ---- Writing a file


@with_suggestions
def write_log(log: Any, path: str | Path, format: str | None = None, *, rewards: str = "") -> None:
    """Write the valid rows of a click log to one file, which replaces an existing one only when complete.

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
    from tacit.logs.formats import FORMATS, detect_format
    from tacit.logs.reader import open_file
    from tacit.logs.sources import as_chunks

    path = checks.path(path)
    file_format = FORMATS[detect_format(path, format)]
    if path.is_file() and path.stat().st_size and not LOG_COLUMNS.issubset(open_file(path, format).names):
        raise InvalidValue("path", str(path), "it is there, and is no click log; give another, or delete it")
    batches = (chunk.batch for chunk in as_chunks(log, empty=True))
    try:
        _replace(path, file_format.write, (batches, rewards))
    except OSError as error:
        remedy = "give another place, or make its folder"
        raise LogError(f"{path}: cannot be written: {error.strerror}; {remedy}") from error


def write_valid_batches(batches: Iterable[Any], path: Path, rewards: str = "") -> None:
    """Write record batches of valid rows, with all columns of the schema, to a Parquet file.

    Their rewards may be in any range; the note ``rewards`` is that of :func:`write_log`.
    """
    from tacit.logs.formats import FORMATS

    _replace(path, FORMATS["parquet"].write, (batches, rewards))


def _replace(path: Path, write: Any, arguments: tuple[Iterable[Any], str]) -> None:
    """Write a temporary file by ``write(file, *arguments)``, sync it to disk, then move it to ``path``.

    On an error the temporary file is deleted, and a file at ``path`` stays as it was.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with undo_on_error(os.unlink, temporary):
        with os.fdopen(handle, "wb") as file:
            write(file, *arguments)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
