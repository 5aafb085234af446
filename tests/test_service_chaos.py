"""The short form of ``make chaos``, and of ``make fuzz``."""

from __future__ import annotations

import pytest
from chaos import chaos
from fuzz import fuzz


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_faults_lose_nothing_and_double_nothing(kind, tmp_path):
    report = chaos(kind, tmp_path, faults=10, seed=0)
    assert report["problems"] == []
    assert report["checks"] == 7
    assert sum(report["faults"].values()) == 10
    assert report["acknowledged"] > 100


def test_no_request_makes_the_service_fail(tmp_path):
    assert fuzz(tmp_path, seconds=5, examples=15) == []
