"""Every combination of options does what was recorded: ``record_combinations.py`` says what and how.

On another machine than that on which it was recorded, floats are compared up to rounding.
"""

from __future__ import annotations

import os

import pytest
import record_combinations as recorder

BIT_FOR_BIT = bool(os.environ.get("BIT_FOR_BIT"))


@pytest.mark.parametrize("kind", recorder.KINDS)
def test_all_combinations_of_a_kind_do_what_was_recorded(kind):
    about = recorder.load(kind)
    exact = BIT_FOR_BIT or recorder.is_exact(about)
    names = [name for name, (of, _) in recorder.list_cases().items() if of == kind]
    assert names == list(about["combinations"])
    differences = {
        name: recorder.find_differences(recorder.summarize(recorder.run(name)), each, exact)
        for name, each in about["combinations"].items()
    }
    assert {name: parts for name, parts in differences.items() if parts} == {}
