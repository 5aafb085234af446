"""Compile ahead what later runs would compile on first use."""

from __future__ import annotations

from pathlib import Path

from tacit.classifiers import Rectangle
from tacit.environments import (
    BernoulliArms,
    CascadeArms,
    ContextualCascade,
    Environment,
    ExaminationArms,
    PreferenceMatrix,
    ShiftingArms,
)
from tacit.learner import Learner
from tacit.policies import (
    BWC,
    CUSUMUCB,
    EXP3,
    EXP3S,
    GLRKLUCB,
    KLUCB,
    MUCB,
    PBMUCB,
    RMED1,
    RUCB,
    UCB1,
    BeatTheMean,
    BeatTheMeanPAC,
    CascadeEC,
    CascadeKLUCB,
    CascadeUCB1,
    CUSUMRestart,
    DiscountedUCB,
    DoubleThompsonSampling,
    ECBandit,
    EpsilonGreedy,
    ExplorationFloor,
    HLinUCB,
    InterleavedFilter1,
    InterleavedFilter2,
    LaplaceEC,
    LaplaceECMixture,
    LinearEpsilonGreedy,
    LinTS,
    LinUCB,
    LogisticTS,
    PBMThompson,
    PlacedPBMUCB,
    Policy,
    PolyaGammaTS,
    ProbationBandit,
    RankedBandit,
    SelfSparring,
    SlidingWindowUCB,
    TestableUCB1,
    Thompson,
    UniformRandom,
    WinnerStays,
)
from tacit.progress import progress
from tacit.signals import NAMES, Signals
from tacit.simulation import simulate
from tacit.windows import Terms, Windows, entries


def all_policies() -> list[Policy]:
    """Return one policy of each kind, over two arms."""
    plain: list[Policy] = [
        UniformRandom(2),
        EpsilonGreedy(2),
        UCB1(2),
        KLUCB(2),
        Thompson(2),
        EXP3(2),
        EXP3S(2),
        DiscountedUCB(2),
        SlidingWindowUCB(2),
        CUSUMUCB(2),
        MUCB(2),
        GLRKLUCB(2),
        TestableUCB1(2, horizon=10),
        BWC(2, classifier=Rectangle(dim=1, margin=0.1)),
        ProbationBandit(2, classifier=Rectangle(dim=1, margin=0.1)),
    ]
    duels: list[Policy] = [
        BeatTheMean(2, horizon=10),
        BeatTheMeanPAC(2, epsilon=0.4, delta=0.1),
        InterleavedFilter1(2, horizon=10),
        InterleavedFilter2(2, horizon=10),
        RMED1(2),
        DoubleThompsonSampling(2),
        RUCB(2),
        SelfSparring(2),
        WinnerStays(2),
    ]
    floors = (ExplorationFloor(p) for p in plain if not isinstance(p, ProbationBandit))
    lists: list[Policy] = [
        CascadeUCB1(2, positions=2),
        CascadeKLUCB(2, positions=2),
        RankedBandit(UCB1(2), positions=2),
        CascadeEC(1, 1, positions=2),
    ]
    featured: list[Policy] = [
        ECBandit(1, 1),
        LaplaceEC(1, 1),
        LaplaceECMixture(1, 1),
        LogisticTS(1, 1),
        LinTS(1, 1),
        LinUCB(1, 1),
        LinearEpsilonGreedy(1),
        HLinUCB(2, 1, 1),
        PolyaGammaTS(1, 1),
        CUSUMRestart(LaplaceEC(1, 1)),
        PlacedPBMUCB(2, positions=2),
        PBMUCB(2, positions=2),
        PBMThompson(2, positions=2),
    ]
    return [*plain, *floors, *duels, *lists, *featured]


def all_environments() -> list[Environment]:
    """Return the environments, over two arms, at once and with delay."""
    return [
        BernoulliArms([0.4, 0.6]),
        BernoulliArms([0.4, 0.6], delay=1),
        ShiftingArms(arms=2, dim=1),
        ShiftingArms(arms=2, dim=1, delay=1),
        PreferenceMatrix([[0.5, 0.6], [0.4, 0.5]]),
        PreferenceMatrix([[0.5, 0.6], [0.4, 0.5]], delay=1),
        CascadeArms([0.4, 0.6], positions=2),
        CascadeArms([0.4, 0.6], positions=2, delay=1),
        ExaminationArms(1, 1, pool=2, offered=2),
        ContextualCascade(1, 1, positions=2, pool=2, offered=2),
        ContextualCascade(1, 1, positions=2, pool=2, offered=2, delay=1),
    ]


def compile_all() -> tuple[int, int, Path]:
    """Compile every policy for every driver; return cache hits, compilations and the folder."""
    from tacit.compiled import cache_root, cache_statistics

    Signals(NAMES, arms=2, fast=1.0, slow=2.0)
    entries(Windows.zeros(0), Terms(1, 0.0, 0.0, 0, False, False))
    policies, environments = all_policies(), all_environments()
    with progress(len(policies) * (1 + len(environments)), "compiling") as advance:
        for policy in policies:
            _learned(policy)
            advance(1)
            for environment in environments:
                fits = policy.shows == environment.takes and policy.feature_dims in (
                    (0, 0),
                    environment.feature_dims,
                )
                if fits and policy.context_dim <= environment.context_dim:
                    simulate(policy, environment, horizon=10, workers=1)
                advance(1)
    return *cache_statistics(), cache_root()


def _learned(policy: Policy) -> None:
    """Compile what a learner of a policy does."""
    learner = Learner(policy, seed=0)
    if policy.correctable:
        decisions = learner.choose_many(["key"])
        learner.learn_many(decisions, [0.0])
        learner.correct_many(decisions, [0.0], [1.0])
