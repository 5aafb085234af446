"""What a policy or an environment cannot be made of is refused, by the name of the field."""

import math
from dataclasses import replace

import pytest

import tacit
from tacit import classifiers, environments, policies
from tacit.errors import InvalidValue
from tacit.policies import baselines
from tests.policies.states import BOX

REFUSED = {
    tacit.UCB1(2): {"arms": [0, [], ["a", "a"], 2.5, True], "alpha": [0, math.inf, "1"], "t0": [-1]},
    tacit.EpsilonGreedy(2): {"epsilon": [1.5, math.nan]},
    tacit.KLUCB(2): {"c": [-1]},
    tacit.Thompson(2): {"prior_successes": [0], "discount": [0]},
    policies.EXP3(2): {"gamma": [0]},
    baselines.EXP3S(2): {"alpha": [0]},
    tacit.ExplorationFloor(tacit.UCB1(2)): {"epsilon": [0], "policy": ["ucb1"]},
    policies.TestableUCB1(2, 10): {"horizon": [0, 2.5], "min_shift": [0.0], "alpha": [0], "prior_plays": [2]},
    # Shifts.
    baselines.DiscountedUCB(2): {"discount": [0.4, 1.1], "xi": [0]},
    baselines.SlidingWindowUCB(2): {"window": [1, 10.5], "xi": [math.inf]},
    baselines.CUSUMUCB(2): {"samples": [0], "epsilon": [0], "threshold": [0], "alpha": [1.5], "xi": [-1]},
    baselines.MUCB(2): {"window": [5], "threshold": [math.nan], "gamma": [-0.1]},
    baselines.GLRKLUCB(2): {
        "alpha": [2],
        "delta": [0],
        "local": ["yes"],
        "every": [0],
        "vertices": [2],
        "arms": [0],
    },
    tacit.BWC(policy=tacit.UCB1(2), classifier=BOX): {
        "classifier": ["rectangle"],
        "test_rounds": [1],
        "min_shift": [0],
        "policy": [policies.EXP3(2)],
    },
    policies.OracleRestart(tacit.UCB1(2)): {"policy": [policies.EXP3(2)], "signal": [-1]},
    policies.ProbationBandit(2, classifier=BOX): {
        "base": ["ucb1"],
        "patience": [1],
        "changes": [1],
        "surprise": [0],
        "announced": [0.9],
        "excluded": [0.0],
        "classifier": [None],
    },
    policies.ShiftMixture(3): {
        "context_dim": [-1, 0.5],
        "margin": [-0.1, math.nan],
        "arms": [0],
        "notice_within": [188, 500.5],
    },
    # Duels.
    policies.BeatTheMean(3, 10): {"horizon": [0], "gamma": [0.9], "scale": [0.0]},
    policies.BeatTheMeanPAC(3, 0.1, 0.1): {"epsilon": [0.5], "delta": [1.0]},
    policies.InterleavedFilter1(3, 10): {"scale": [-1.0]},
    policies.InterleavedFilter2(3, 10): {"horizon": [0]},
    baselines.FeelGoodThompson(2): {"context_dim": [-1, 257], "feel_good": [2], "prior_variance": [0]},
    # Lists.
    policies.CascadeUCB1(3): {"positions": [0]},
    policies.CascadeKLUCB(3): {"c": [-1]},
    baselines.RankedBandit(tacit.UCB1(3)): {
        "policy": [policies.RMED1(3), "ucb1", policies.CascadeEC(1, 1)],
        "positions": [0],
    },
    tacit.ListMix(3): {"positions": [0], "epsilon": [1.5]},
    policies.SafeListMix(3): {"positions": [0], "epsilon": [1.5]},
    tacit.ItemListMix(3): {"relevance_dim": [0], "positions": [0, 101], "epsilon": [1.5]},
    baselines.PlacedPBMUCB(4, positions=2): {"arms": [5], "position_effects": [(1.0,)]},
    baselines.PBMUCB(4): {"position_effects": [(1.0, 0.5, 0.0)]},
    baselines.PBMThompson(4): {"positions": [0]},
    policies.CascadeEC(1, 1): {
        "relevance_dim": [0],
        "examination_dim": [0],
        "positions": [0],
        "one_click": [1],
        "position_constants": [0],
        "relevance_intercept": ["no"],
        "prior_variance": [0],
        "discount": [0],
    },
    # Features.
    tacit.ContextMixture(3, 2): {"signals_dim": [2]},
    tacit.ClickMixture(1, 3): {"relevance_dim": [0]},
    tacit.EmbeddingMixture(3): {"relevance_dim": [0], "context_dim": [-1]},
    policies.ECBandit(1, 1): {
        "relevance_dim": [0],
        "examination_dim": [1.5],
        "prior_variance": [0],
        "inner_iterations": [0],
        "relevance_intercept": [1],
    },
    policies.LaplaceEC(2, 1): {"discount": [0], "examination_dim": [0], "draw": ["both"]},
    policies.LaplaceECMixture(1, 1): {"components": [0], "spread": [1.0]},
    policies.LogisticTS(1, 1): {"intercept": ["yes"]},
    policies.LinTS(1, 1): {"scale": [-1]},
    policies.LinUCB(1, 1): {"alpha": [math.inf]},
    policies.LinearEpsilonGreedy(1): {
        "dim": [0],
        "epsilon": [1.1],
        "prior_variance": [0.0],
        "intercept": [2],
        "discount": [0.0],
    },
    policies.PolyaGammaTS(1, 1): {"memory": [0]},
    baselines.HLinUCB(2, 1, 1): {"arms": [0], "hidden_dim": [0]},
    policies.CUSUMRestart(policies.LinTS(1, 1)): {
        "policy": [tacit.UCB1(2), policies.CascadeEC(1, 1)],
        "armed": [-1],
    },
    # Classifiers.
    BOX: {"dim": [0], "margin": [0.0, math.nan], "anchored": [1]},
    classifiers.Hyperplane(2, 0.1): {"margin": [1.5], "capacity": [0]},
    classifiers.FiniteConcepts([[1, -1]]): {"table": [[], [[1], [1, -1]], [[2]], [[True]]]},
    # Users.
    environments.CascadeArms([0.1, 0.2], positions=1): {"attraction": [[0.1, 1.2]], "positions": [3]},
    environments.ContextualCascade(): {
        "offered": [17],
        "positions": [11],
        "scale": [0],
        "identified": [1],
        "position_constants": [(1.0,), "abc"],
    },
    tacit.ExaminationArms(): {"offered": [0], "scale": [0], "ball": ["cube"], "redraws": [(5, 3)]},
    environments.LongTail(): {"alike": ["smoke"], "keys": [0], "arms": [0], "level": [50], "traffic": [-1]},
}
CASES = [
    pytest.param(part, field, value, id=f"{type(part).__name__}-{field}-{value}")
    for part, fields in REFUSED.items()
    for field, values in fields.items()
    for value in values
]


@pytest.mark.parametrize(("part", "field", "value"), CASES)
def test_a_wrong_value_names_its_field(part, field, value):
    with pytest.raises(InvalidValue) as caught:
        replace(part, **{field: value})
    assert caught.value.field == field
    assert field in str(caught.value)


HORIZONS = [
    baselines.DiscountedUCB,
    baselines.SlidingWindowUCB,
    baselines.CUSUMUCB,
    baselines.MUCB,
    baselines.GLRKLUCB,
]
SPANS = [("horizon", 1, 1), ("shifts", 100, 0), ("shifts", 100, 51)]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        *(
            (lambda k=kind, t=t, n=n: k.from_horizon(2, t, n), name)
            for kind in HORIZONS
            for name, t, n in SPANS
        ),
        (lambda: baselines.MUCB.from_horizon(2, 1000, 2, change=0), "change"),
        (lambda: policies.EXP3.from_horizon(2, horizon=0), "horizon"),
        (lambda: tacit.BWC(classifier=BOX), "arms"),
        (lambda: classifiers.FiniteConcepts.from_predicates([lambda x: 1], [0]), "predicate"),
        (lambda: classifiers.SafeClassifier("rectangle"), "classifier"),
        (lambda: classifiers.classifier_from_spec(3), "classifier"),
        (lambda: classifiers.classifier_from_spec("rectangle(dim=2)"), "Rectangle.margin"),
        (lambda: tacit.ContextMixture(3), "context_dim"),
        (lambda: policies.LaplaceEC(2), "examination_dim"),
        (lambda: environments.ContextualCascade(pool=5), "offered"),
        (lambda: tacit.ExaminationArms(pool=5), "offered"),
        (lambda: tacit.ExaminationArms(positions=7), "pool"),
        (lambda: tacit.ExaminationArms(devices=2), "devices"),
        (lambda: tacit.ExaminationArms(1, 1, arms=[[1.0]]), "arms"),
        (lambda: tacit.ExaminationArms(1, 1, parameters="ab"), "parameters"),
        (lambda: tacit.ExaminationArms(1, 1, parameters=(1.0, 2.0), redraws=(3,)), "redraws"),
    ],
)
def test_what_does_not_fit_together_names_a_field(make, field):
    with pytest.raises(InvalidValue) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize(("field", "high"), [("epsilon", 0.5), ("delta", 1.0)])
def test_a_range_is_told_without_the_bounds_that_are_refused(field, high):
    """In 0.3, an epsilon of −1 was answered with "give a number in (0, 0.5]", which refuses 0.5, too."""
    for make in (policies.BeatTheMeanPAC, policies.sample_size):
        for value in (-1.0, 0.0, high):
            with pytest.raises(InvalidValue, match=rf"{field}: .* in \(0, {high:g}\)$"):
                make(2, **{"epsilon": 0.1, "delta": 0.1, field: value})
