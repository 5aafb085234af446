"""The click-log schema: decisions, propensities and feedback, one row each.

Of a list that was shown, each arm has a row; the rows of a list stand together, and have one
``decision_id``.

Version 1. A column is null only where the table says so.

=================== ================ ======== =================================================
column              type             null     meaning
=================== ================ ======== =================================================
timestamp           timestamp, µs    never    when the decision was made, in UTC
decision_id         string           never    names the decision
placement           string           never    where it was shown; a placement's keys are its own
key                 string           never    what it was for: a query, a slot; at most 512
                                              bytes
arms                list of string   never    the arms on offer, each once, at least one
arm                 string           never    the arm that was shown, one of ``arms``
position            int32            allowed  place on the page, from 0; null where there are
                                              no places
propensity          float64          allowed  probability, in (0, 1], with which the policy
                                              chose ``arm`` among ``arms``; in a list, given
                                              the arms above it; null: a deterministic policy
position_propensity float64          allowed  of a list, probability, in (0, 1], with which the
                                              policy put ``arm`` at ``position``, whatever it
                                              showed elsewhere; null: not known
reward              float64          allowed  1 for a click, 0 for none, or between; null: no
                                              feedback came
context             list of float64  allowed  signals about the key, finite; null: none were
                                              given
policy              string           allowed  the policy that decided
version             string           allowed  the version of that policy
=================== ================ ======== =================================================

A Parquet file carries the version as ``tacit_log_version`` in its metadata.
"""

from __future__ import annotations

import pyarrow as pa

VERSION = 1
SEGMENT = "segment"
"""A column that batches have besides those of the schema, where results are wanted per segment."""
FEATURE = "feature "
"""What begins the names of further such columns: features of the arm that a row shows."""
OWN = "column "
"""What begins the names of further columns that are the log's own, as they are."""
VERSION_KEY = b"tacit_log_version"

SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("decision_id", pa.string(), nullable=False),
        pa.field("placement", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("arms", pa.list_(pa.string()), nullable=False),
        pa.field("arm", pa.string(), nullable=False),
        pa.field("position", pa.int32()),
        pa.field("propensity", pa.float64()),
        pa.field("position_propensity", pa.float64()),
        pa.field("reward", pa.float64()),
        pa.field("context", pa.list_(pa.float64())),
        pa.field("policy", pa.string()),
        pa.field("version", pa.string()),
    ],
    metadata={VERSION_KEY: str(VERSION).encode()},
)

ALLOWED = {
    "timestamp": "an ISO 8601 time (UTC where it names no zone), or a number since 1970, for which "
    "time_unit= (--time-unit) is s, ms, us or ns",
    "decision_id": "text",
    "placement": "text",
    "key": "text of at most 512 bytes in UTF-8",
    "arms": 'a list of at least one arm on offer, each once (in text as JSON: ["a", "b"])',
    "arm": "one of the arms on offer",
    "position": "a whole number of at least 0, or nothing",
    "propensity": "a number in (0, 1], or nothing where it is not known",
    "position_propensity": "a number in (0, 1], or nothing where it is not known",
    "reward": "a number in [0, 1] (divide larger ones by the largest there can be), or nothing "
    "where no feedback came",
    "context": "a list of finite numbers, or nothing",
    "policy": "text, or nothing",
    "version": "text, or nothing",
}
"""What each column allows, phrased as the remedy in errors."""
