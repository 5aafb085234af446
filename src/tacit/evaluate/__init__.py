"""Offline evaluation: estimate the reward of a policy from the log of another policy."""

from typing import TYPE_CHECKING

from tacit.lazy_imports import load_lazily

if TYPE_CHECKING:
    from tacit.evaluate.conclusions import conclude as conclude
    from tacit.evaluate.estimators import IPS as IPS
    from tacit.evaluate.estimators import SNIPS as SNIPS
    from tacit.evaluate.estimators import CascadeIPS as CascadeIPS
    from tacit.evaluate.estimators import DirectMethod as DirectMethod
    from tacit.evaluate.estimators import DoublyRobust as DoublyRobust
    from tacit.evaluate.estimators import Estimator as Estimator
    from tacit.evaluate.estimators import IndependentIPS as IndependentIPS
    from tacit.evaluate.estimators import PositionBasedIPS as PositionBasedIPS
    from tacit.evaluate.estimators import SlateIPS as SlateIPS
    from tacit.evaluate.estimators import SwitchDR as SwitchDR
    from tacit.evaluate.estimators import estimators_from_names as estimators_from_names
    from tacit.evaluate.evaluation import off_policy as off_policy
    from tacit.evaluate.examination import Examination as Examination
    from tacit.evaluate.examination import examine as examine
    from tacit.evaluate.intervals import Sums as Sums
    from tacit.evaluate.learners import Frozen as Frozen
    from tacit.evaluate.learners import Learning as Learning
    from tacit.evaluate.learners import Ranking as Ranking
    from tacit.evaluate.rejection import ReplayResult as ReplayResult
    from tacit.evaluate.rejection import replay as replay
    from tacit.evaluate.results import Estimate as Estimate
    from tacit.evaluate.results import OffPolicyResult as OffPolicyResult
    from tacit.evaluate.results import Segment as Segment
    from tacit.evaluate.rewards import ArmMeans as ArmMeans
    from tacit.evaluate.rewards import Frequencies as Frequencies
    from tacit.evaluate.rewards import Greedy as Greedy
    from tacit.evaluate.rewards import Predicted as Predicted
    from tacit.evaluate.rewards import RewardFunction as RewardFunction
    from tacit.evaluate.rewards import RewardModel as RewardModel
    from tacit.evaluate.rewards import Rewards as Rewards
    from tacit.evaluate.ridge import ArmRidges as ArmRidges
    from tacit.evaluate.rows import arms_of as arms_of
    from tacit.evaluate.targets import ByClassifier as ByClassifier
    from tacit.evaluate.targets import Probabilities as Probabilities
    from tacit.evaluate.targets import Table as Table
    from tacit.evaluate.targets import Target as Target
    from tacit.evaluate.targets import Uniform as Uniform
    from tacit.evaluate.targets import fixed_target as fixed_target

# Names are imported lazily: the service uses this package without reading logs, which needs pyarrow.
__getattr__, __dir__ = load_lazily(
    __name__,
    {
        "conclusions": "conclude",
        "estimators": "CascadeIPS DirectMethod DoublyRobust Estimator IPS "
        "IndependentIPS PositionBasedIPS SNIPS SlateIPS SwitchDR estimators_from_names",
        "examination": "Examination examine",
        "intervals": "Sums",
        "learners": "Frozen Learning Ranking",
        "rejection": "ReplayResult replay",
        "results": "Estimate OffPolicyResult Segment",
        "rewards": "ArmMeans Frequencies Greedy Predicted RewardFunction RewardModel Rewards",
        "ridge": "ArmRidges",
        "rows": "arms_of",
        "targets": "ByClassifier Probabilities Table Target Uniform fixed_target",
        "evaluation": "off_policy",
    },
)

# Set in a way that tools ignore: type checkers and the reference use the imports above.
globals()["__all__"] = __dir__()
