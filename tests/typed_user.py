"""What a type checker knows of a learner; tests/house/test_typing.py has mypy read this."""

from typing import assert_type

import tacit

learner: tacit.Learner[str] = tacit.Learner(tacit.UCB1(["film", "holiday"]), seed=1)
decision = learner.choose("tomato")
assert_type(decision, tacit.Decision[str])
assert_type(decision.arm, str)
assert_type(decision.shown, tuple[str, ...])
assert_type(decision.propensity, float | None)
learner.learn(decision, 1.0)

decisions = learner.choose_many(["tomato", "tomato"], arms=[["film"], None])
assert_type(decisions.arms, list[str])
assert_type([each.arm for each in decisions], list[str])
assert_type(decisions[0], tacit.Decision[str])
assert_type(learner.arms, list[str])
learner.retire_arm("film")

numbered: tacit.Learner[int] = tacit.Learner(tacit.UCB1(3), seed=1)
assert_type(numbered.choose().arm, int)

either = tacit.Learner(tacit.UCB1(3), seed=1)
assert_type(either.choose().arm, int | str)


def show(shown: tacit.Decision) -> None:
    assert_type(shown.arm, int | str)


show(either.choose())
show(decision)


def ask(asked: tacit.Learner) -> None:
    assert_type(asked.choose().arm, int | str)


ask(learner)
