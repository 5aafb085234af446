"""Decision ids: UUIDs of version 7, so that ids sort by time and indices grow at one end."""

from __future__ import annotations

from os import urandom

SUB_MILLISECONDS = 4096
VARIANT = bytes(byte & 0x3F | 0x80 for byte in range(256))


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
    return decision_ids(time, 1)[0]


def decision_ids(time: int, count: int) -> list[str]:
    """Return many new ids for decisions made at ``time``; as :func:`decision_id`."""
    milliseconds, microseconds = divmod(time, 1000)
    fraction = microseconds * SUB_MILLISECONDS // 1000
    digits = f"{milliseconds << 16 | 0x7 << 12 | fraction:016x}"
    head = f"{digits[:8]}-{digits[8:12]}-{digits[12:]}-"
    # Of 12 bytes the first 4 only make room, so that a dash comes where it must, in C.
    random = bytearray(urandom(12 * count))
    random[4::12] = random[4::12].translate(VARIANT)
    tail = random.hex("-", 6)
    return [head + tail[i : i + 17] for i in range(8, 26 * count, 26)]
