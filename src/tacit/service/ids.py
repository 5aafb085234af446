"""Decision ids: UUIDs of version 7, so that ids sort by time and indices grow at one end."""

from __future__ import annotations

import os

SUB_MILLISECONDS = 4096


def decision_id(time: int) -> str:
    """Return a new id for a decision made at ``time``.

    Its 62 random bits come from the system; they name the decision and take no part in it.

    Parameters
    ----------
    time : int
        Microseconds since 1970.

    Returns
    -------
    str
        RFC 9562, version 7, with the fraction of the millisecond after it (its method 3).

    Examples
    --------
    >>> decision_id(1_700_000_000_123_456)[:18]
    '018bcfe5-687b-774b'
    """
    milliseconds, microseconds = divmod(time, 1000)
    fraction = microseconds * SUB_MILLISECONDS // 1000
    random = int.from_bytes(os.urandom(8)) >> 2
    value = milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
