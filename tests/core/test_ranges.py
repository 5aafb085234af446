"""Fields that say their ranges."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import get_annotations
from typing import Annotated, Any

import pytest

import tacit
from tacit.core.part import Checked, Flag, Positive, field_checks, float_range, int_range, one_word, optional
from tacit.errors import InvalidValue


@dataclass(frozen=True)
class Base(Checked):
    scale: Positive
    count: Annotated[int, int_range(1, 9)] = 1
    kind: Annotated[str, one_word("weak", "strong")] = "weak"
    share: Annotated[float | None, optional(float_range(0.0, 1.0, open_low=True))] = None
    on: Flag = True


@dataclass(frozen=True)
class Derived(Base):
    count: int = 2  # said again, but not its range
    scale: Annotated[float, float_range(0.0, 2.0)] = 0.0  # another range
    kind: str = field(default="strong", init=False)  # made, not given


def test_values_are_kept_in_their_canonical_form():
    assert repr(Base(2, share=1)) == "Base(scale=2.0, count=1, kind='weak', share=1.0, on=True)"
    assert Base(1.0).share is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("scale", 0), ("count", 10), ("count", 1.5), ("kind", "x"), ("share", 0.0), ("on", 1)],
)
def test_what_is_out_of_range_is_refused(field, value):
    with pytest.raises(InvalidValue, match=f"{field}: "):
        Base(**{"scale": 1.0, field: value})


def test_a_subclass_keeps_a_range_unless_it_says_another():
    assert Derived().scale == 0.0
    assert set(field_checks(Derived)) == {"scale", "count", "share", "on"}
    for wrong in ({"count": 10}, {"scale": 3.0}):
        with pytest.raises(InvalidValue):
            Derived(**wrong)


def test_a_class_whose_annotations_cannot_be_read_keeps_the_ranges_of_its_base():
    class Local:
        pass

    @dataclass(frozen=True)
    class Own(tacit.UCB1):
        inner: Local | None = None

    with pytest.raises(InvalidValue, match="alpha: "):
        Own(arms=2, alpha=-1.0)


def test_every_part_says_ranges_that_can_be_read():
    from tacit.classifiers.base import registry as classifiers
    from tacit.environments.base import registry as environments
    from tacit.policies.base import registry as policies

    known: list[Any] = [*classifiers.values(), *environments.values(), *policies.values()]
    for part in known:
        if part.__module__.startswith("tacit."):
            for base in part.__mro__:
                get_annotations(base, eval_str=True)
