"""What kernels read of a part: ``Params``, made of its annotated fields."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

import tacit
from tacit.core.dispatch import parts
from tacit.core.part import Flag, Positive, int_range, param
from tacit.policies.base import Policy, registry


@dataclass(frozen=True)
class Base(Policy, abstract=True):
    scale: Positive = 2.0
    draws: Annotated[int, int_range(1)] = 3


@dataclass(frozen=True)
class Reads(Base):
    policy: Policy = field(default_factory=lambda: tacit.UCB1(2, alpha=0.5))
    on: Flag = True
    rate: float = 1
    limit: float | None = None
    name: str = "x"

    @param
    def twice(self) -> float:
        return 2 * self.scale

    @property
    def thrice(self) -> float:
        return 3 * self.scale


@dataclass(frozen=True)
class ReadsMore(Reads):
    more: int = 1

    @staticmethod
    def epoch(params: ReadsMore, state: Any, lane: int) -> int:
        return params.more


@dataclass(frozen=True)
class Written(Policy):
    class Params(NamedTuple):
        label: str

    factor: int = 2


def test_kernels_read_numbers_parts_and_marked_properties():
    params = Reads(2, draws=5).params
    inner = tacit.UCB1(2, alpha=0.5).params
    assert params._asdict() == {
        "scale": 2.0,
        "draws": 5,
        "policy": inner,
        "on": True,
        "rate": 1.0,
        "twice": 4.0,
    }
    assert [type(value) for value in params] == [float, int, type(inner), bool, float, float]


def test_a_subclass_has_params_of_its_own():
    assert Reads.Params is not ReadsMore.Params
    assert parts[Reads.Params] is Reads
    assert parts[ReadsMore.Params] is ReadsMore
    assert ReadsMore(2).params.more == 1
    assert pickle.loads(pickle.dumps(ReadsMore(2).params)) == ReadsMore(2).params


def test_a_base_has_none_and_no_name_in_tables():
    assert not hasattr(Base, "Params")
    assert {"reads", "readsmore", "written"} <= set(registry)
    assert "base" not in registry


def test_a_class_may_write_its_params_out():
    assert Written(2).params == Written.Params(label="Written")
    # A variant shares them; its kernels would never be found.
    assert type("Variant", (Written,), {}).Params is Written.Params
    with pytest.raises(TypeError, match="own epoch, but kernels are found by the type of"):
        type("Lost", (Written,), {"epoch": staticmethod(lambda params, state, lane: 1)})


def test_a_policy_from_another_process_is_compiled_as_one_made_here():
    policy = tacit.ItemListMix(2, positions=2)
    assert any(isinstance(value, np.ndarray) for value in policy.params)
    buffers = []
    raw = pickle.dumps(policy, protocol=5, buffer_callback=buffers.append)
    # As Ray brings it: its arrays lie in memory that is not to be written.
    again = pickle.loads(raw, buffers=[memoryview(buffer.raw()).toreadonly() for buffer in buffers])
    assert again == policy
    assert all(value.flags.writeable for value in again.params if isinstance(value, np.ndarray))
