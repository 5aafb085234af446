"""The table of the papers: all that it names exists."""

import importlib

import pytest
from conftest import ROOT

from studies import ITEMS


@pytest.fixture
def papers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("generate.papers").PAPERS


def resolve(name):
    """Return what a dotted name stands for."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_each_row_names_code_and_checks_that_exist(papers):
    for row in (row for rows in papers.values() for row in rows):
        assert row["checks"], row["number"]
        for name in row["where"]:
            assert resolve(name), row["number"]
        for check in row["checks"]:
            path, _, test = check.rpartition("::")
            exists = (
                check in ITEMS if not path else f"def {test}(" in (ROOT / "tests" / path).read_text("utf-8")
            )
            assert exists, (row["number"], check)


def test_each_study_of_a_paper_is_in_its_table(papers):
    named = {check for rows in papers.values() for row in rows for check in row["checks"]}
    assert {item for item in ITEMS if item.startswith(("qi2018", "syed2009", "yue2011"))} <= named
