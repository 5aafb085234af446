"""The learner that a placement starts from, read from its file and checked against it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tacit.errors import ConfigError, SnapshotError
from tacit.learning.learner import Learner, restored
from tacit.learning.snapshot import LearnerSnapshot, from_bytes
from tacit.policies.spec import goes_on
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.starts import Start


def start_learner(name: str, config: PlacementConfig) -> tuple[Start, Learner]:
    """Return what a placement starts from, over the arms of its configuration.

    Parameters
    ----------
    name : str
        The placement's.
    config : PlacementConfig
        With a ``start``.

    Raises
    ------
    ConfigError
        If the file cannot be read, or holds what another policy or other arms have learned.
    """
    path = Path(config.start or "")
    try:
        content = path.read_bytes()
        kept = from_bytes(content, str(path), lambda snapshot: snapshot)
    except OSError as error:
        raise ConfigError(
            f"placements.{name}.start: {path} cannot be read: {error.strerror}; write it with: "
            f"tacit fit LOG -o {path.name}"
        ) from error
    except SnapshotError as error:
        raise ConfigError(f"placements.{name}.start: {error}") from error
    kept = kept._replace(retired=[], propensities=config.propensities)
    learner = restored(_over_arms(name, config, kept))
    if not goes_on(config.policy, learner.policy):
        raise ConfigError(
            f"placements.{name}.start: {path}: {learner.policy} has learned it, the placement's "
            f"policy is {config.policy}; make them the same, or leave the start out"
        )
    digest = hashlib.sha256(content).hexdigest()
    return Start(path.name, digest, learner.decisions, len(learner)), learner


def _over_arms(name: str, config: PlacementConfig, kept: LearnerSnapshot) -> LearnerSnapshot:
    """Return a snapshot over the arms of a placement, which must have the same names in turn."""
    told, its = (getattr(policy, "arms", None) for policy in (config.policy, kept.policy))
    if told is None or its is None or _names(told) == _names(its):
        return kept if told is None else kept._replace(policy=kept.policy.with_arms(told))
    same = sorted(_names(told)) == sorted(_names(its))
    raise ConfigError(
        f"placements.{name}.start: {config.start}: it has learned the arms {_names(its)}"
        f"{', in this order' if same else ''}, and the placement has {_names(told)}; configure "
        "them so, or fit another one"
    )


def _names(arms: int | tuple[str, ...]) -> list[str]:
    # A log names its arms, also where they are numbered.
    return list(map(str, range(arms) if isinstance(arms, int) else arms))
