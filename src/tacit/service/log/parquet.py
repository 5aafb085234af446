"""The rows of the log as tables of Parquet files, for export, import and archives."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tacit.service.log.rows import DecisionRow, FeedbackRow, MarkRow

FILES: dict[str, Any] = {"decisions": DecisionRow, "feedback": FeedbackRow, "marks": MarkRow}
SCHEMAS = {
    "decisions": pa.schema(
        {
            "seq": pa.int64(), "id": pa.string(), "placement": pa.int32(), "policy": pa.int32(),
            "time": pa.int64(), "key": pa.string(), "offered": pa.string(), "arm": pa.string(),
            "propensity": pa.float64(), "epoch": pa.int64(), "context": pa.string(),
            "mode": pa.string(), "would": pa.string(), "would_propensity": pa.float64(),
            "deferred": pa.int8(), "asked": pa.string(), "shown": pa.string(),
            "control": pa.int8(), "bucket": pa.int16(),
        }
    ),
    "feedback": pa.schema(
        {
            "seq": pa.int64(), "placement": pa.int32(), "decision": pa.int64(), "id": pa.string(),
            "time": pa.int64(), "kind": pa.string(), "reward": pa.float64(),
            "clicks": pa.string(), "metrics": pa.string(),
        }
    ),
    "marks": pa.schema(
        {
            "seq": pa.int64(), "placement": pa.int32(), "time": pa.int64(), "kind": pa.string(),
            "value": pa.string(), "who": pa.string(),
        }
    ),
}  # fmt: skip
RECORDS_SCHEMA = pa.schema(
    {
        "placement": pa.int32(), "kind": pa.string(), "id": pa.string(), "time": pa.int64(),
        "content": pa.string(),
    }
)  # fmt: skip


def table_of(name: str, rows: Any) -> pa.Table:
    columns = {field: [getattr(row, field) for row in rows] for field in FILES[name]._fields}
    for field in ("arm", "would"):
        if field in columns:
            columns[field] = [None if a is None else json.dumps(a) for a in columns[field]]
    return pa.table(columns, schema=SCHEMAS[name])
