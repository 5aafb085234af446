"""Proof that learning helps: what a policy earned more than a control, at any time."""

from tacit.core.dispatch import public as _public
from tacit.proof.boundary import HoldoutSums as HoldoutSums
from tacit.proof.boundary import Interval as Interval
from tacit.proof.boundary import Lift as Lift
from tacit.proof.boundary import boundary as boundary
from tacit.proof.boundary import decisions_needed as decisions_needed
from tacit.proof.boundary import duels_needed as duels_needed
from tacit.proof.boundary import searches_needed as searches_needed
from tacit.proof.harms import HarmSums as HarmSums
from tacit.proof.holdout import dispersion as dispersion
from tacit.proof.holdout import holdout_lift as holdout_lift
from tacit.proof.paired import PairSums as PairSums
from tacit.proof.paired import chance_of_score as chance_of_score
from tacit.proof.paired import discoveries as discoveries
from tacit.proof.paired import preference as preference
from tacit.proof.scores import Scores as Scores
from tacit.proof.scores import ScoreSums as ScoreSums
from tacit.proof.scores import Winner as Winner
from tacit.proof.scores import winner as winner
from tacit.proof.sentences import guarded as guarded
from tacit.proof.sentences import lift_sentence as lift_sentence
from tacit.proof.traffic import ALARM as ALARM
from tacit.proof.traffic import FrequencySums as FrequencySums
from tacit.proof.traffic import PropensitySums as PropensitySums
from tacit.proof.traffic import share_evidence as share_evidence

# Where no tool reads it: type checkers and the reference go by the imports above.
globals()["__all__"] = sorted([*_public(globals()), "ALARM"])
