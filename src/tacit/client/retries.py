"""When to ask again: what is worth it, and how long to wait before."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import numpy as np

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
# Whoever is told to come back later than this had better hear it than hang.
LONGEST_ASKED = 60.0
MOST_DOUBLINGS = 20

_SECONDS = re.compile(r"[0-9]{1,9}")


class Reply(NamedTuple):
    """What came back for one try: an answer, or the failure that came in its place."""

    status: int | None
    body: bytes = b""
    retry_after: str = ""
    failure: str = ""

    @property
    def passing(self) -> bool:
        """Whether the same request may fare better later."""
        return self.status is None or self.status in (408, 429) or self.status >= 500


def pause(reply: Reply, tries: int, retries: int, now: float, rng: np.random.Generator) -> float:
    """Return how long to wait before the next try; infinity if there is none.

    The pause is uniform between 0 and a bound that doubles with each try, so that those who failed
    together do not come back together; what the service asked for comes on top.

    Parameters
    ----------
    reply : Reply
    tries : int
        How often it was tried by now, at least 1.
    retries : int
        How many tries may follow the first.
    now : float
        Seconds since 1970, for a ``Retry-After`` that is a date.
    rng : numpy.random.Generator

    Returns
    -------
    float
        Seconds.

    References
    ----------
    M. Brooker, Exponential Backoff and Jitter, AWS Architecture Blog, 2015: full jitter.
    RFC 9110, section 10.2.3: Retry-After.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> 5 <= pause(Reply(503, retry_after="5"), 1, 3, 0.0, rng) < 5.1
    True
    >>> pause(Reply(503), 4, 3, 0.0, rng), pause(Reply(409), 1, 3, 0.0, rng)
    (inf, inf)
    """
    asked = seconds_asked(reply.retry_after, now)
    if not reply.passing or tries > retries or asked > LONGEST_ASKED:
        return float("inf")
    bound = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, MOST_DOUBLINGS))
    return asked + bound * float(rng.random())


def seconds_asked(retry_after: str, now: float) -> float:
    """Return for how many seconds a ``Retry-After`` asks; 0 if it cannot be read.

    Examples
    --------
    >>> seconds_asked("120", 0.0), seconds_asked("soon", 0.0)
    (120.0, 0.0)
    >>> seconds_asked("Fri, 31 Dec 1999 23:59:59 GMT", 946684790.0)
    9.0
    """
    text = retry_after.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
        # A date without a zone is one in UTC (RFC 5322, section 3.3).
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0
