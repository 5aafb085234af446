"""The errors tacit raises: each names the field, the value and the remedy."""

from __future__ import annotations

from typing import Any


class TacitError(Exception):
    """Base of every error that tacit raises on purpose."""


class AssumptionWarning(UserWarning):
    """The data contradict what a policy or an estimate assumes: it goes on, but may not do what it
    promises."""


class InvalidValue(TacitError, ValueError):
    """A value is outside what its field allows.

    Parameters
    ----------
    field : str
        The field's name, as the caller knows it.
    value : object
        What was given.
    allowed : str
        What the field allows, phrased as the remedy.
    """

    def __init__(self, field: str, value: Any, allowed: str) -> None:
        shown = repr(value)
        if len(shown) > 200:
            shown = shown[:197] + "..."
        super().__init__(f"{field}: {shown} is not allowed; {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> tuple[type[InvalidValue], tuple[str, Any, str]]:
        return type(self), (self.field, self.value, self.allowed)


class UnknownName(TacitError, LookupError):
    """A name that nothing answers to (a policy, an environment, an arm, a placement …)."""


class SnapshotError(TacitError):
    """A snapshot that is damaged, truncated, foreign or newer than this version."""


class LogError(TacitError):
    """A click log that cannot be read, or a row that is wrong under ``strict``."""


class UnfitLog(LogError):
    """A click log that an estimator must refuse, because its answer would be wrong."""


class ConfigError(TacitError):
    """A configuration that cannot be used; the message names the file and the key."""


class MissingExtra(TacitError, ImportError):
    """An optional part was used without the packages it needs."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"{module} is not installed; install it with: pip install 'tacit[{extra}]'"
        )
        self.extra = extra
