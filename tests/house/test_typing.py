"""A user's type checker knows what the arms of a learner are."""

import pytest
from conftest import ROOT


def test_mypy_knows_what_arms_are(monkeypatch):
    api = pytest.importorskip("mypy.api", reason="mypy is a tool of development")
    monkeypatch.chdir(ROOT)
    # With the options of `make lint`, whose cache it uses.
    told, errors, status = api.run(["tests/typed_user.py"])
    assert status == 0, told + errors
