"""Every combination of options does what was recorded: ``record_combinations.py`` says what and how.

On another machine than that on which it was recorded, floats are compared up to rounding.
"""

import pytest
import record_combinations as recorder

ORDERED_BY_TASKS = {"sharded", "spread", "buffered"}
"""Options under which several tasks share one source of ids: which comes first is not determined."""


def find_all_differences(kind, options_at_once):
    """Return the parts of a kind's combinations, of one option or of several, that are not as recorded."""
    about = recorder.load(kind)
    exact = recorder.is_exact(about)
    names = [name for name, (of, _) in recorder.list_cases().items() if of == kind]
    assert names == list(about["combinations"])
    found = {}
    for name in names:
        options = name.partition(".")[2].split("_")
        if (len(options) > 1) == options_at_once and ORDERED_BY_TASKS.isdisjoint(options):
            parts = recorder.run(name)
            run = recorder.summarize(parts)
            found[name] = recorder.find_differences(run, about["combinations"][name], exact)
            found[name] += recorder.find_states_unlike_log(parts)
    assert found
    return {name: parts for name, parts in found.items() if parts}


@pytest.mark.parametrize("kind", recorder.KINDS)
def test_each_option_of_a_kind_does_what_was_recorded(kind):
    assert find_all_differences(kind, options_at_once=False) == {}


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted({"restarts", *recorder.MORE_PAIRS} - {"ucb1"}))
def test_options_together_do_what_was_recorded(kind):
    assert find_all_differences(kind, options_at_once=True) == {}
