"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data, beside the project."""
    folder = ROOT.parent / "shared" / "data"
    assert folder.is_dir(), f"this test reads {folder}, which is not there"
    return folder
