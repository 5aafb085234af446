"""Uplift: the difference in reward between a policy and a control, with intervals valid at any time."""

from tacit.core.dispatch import public_names as _public
from tacit.uplift.boundary import HoldoutSums as HoldoutSums
from tacit.uplift.boundary import Interval as Interval
from tacit.uplift.boundary import Lift as Lift
from tacit.uplift.boundary import boundary as boundary
from tacit.uplift.boundary import decisions_needed as decisions_needed
from tacit.uplift.boundary import duels_needed as duels_needed
from tacit.uplift.boundary import searches_needed as searches_needed
from tacit.uplift.holdout import difference_lift as difference_lift
from tacit.uplift.holdout import dispersion as dispersion
from tacit.uplift.holdout import holdout_lift as holdout_lift
from tacit.uplift.metric_degradation import DegradationSums as DegradationSums
from tacit.uplift.paired import PairSums as PairSums
from tacit.uplift.paired import chance_of_score as chance_of_score
from tacit.uplift.paired import discoveries as discoveries
from tacit.uplift.paired import preference as preference
from tacit.uplift.propensity_lift import Scores as Scores
from tacit.uplift.propensity_lift import ScoreSums as ScoreSums
from tacit.uplift.propensity_lift import Winner as Winner
from tacit.uplift.propensity_lift import winner as winner
from tacit.uplift.sentences import guardrail_status as guardrail_status
from tacit.uplift.sentences import lift_sentence as lift_sentence
from tacit.uplift.traffic import ALARM as ALARM
from tacit.uplift.traffic import FrequencySums as FrequencySums
from tacit.uplift.traffic import PropensitySums as PropensitySums
from tacit.uplift.traffic import share_evidence as share_evidence

# Set in a way that tools ignore: type checkers and the reference use the imports above.
globals()["__all__"] = sorted([*_public(globals()), "ALARM"])
