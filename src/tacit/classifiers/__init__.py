"""Safe classifiers: they tell events from other contexts and never miss one."""

from tacit.classifiers.base import Classifier as Classifier
from tacit.classifiers.finite import FiniteConcepts as FiniteConcepts
from tacit.classifiers.hyperplane import Hyperplane as Hyperplane
from tacit.classifiers.rectangle import Rectangle as Rectangle
from tacit.classifiers.safe import SafeClassifier as SafeClassifier
from tacit.classifiers.safe import classifier_from_spec as classifier_from_spec
from tacit.classifiers.safe import classifier_to_spec as classifier_to_spec
from tacit.core.dispatch import public as _public

# Where no tool reads it: type checkers and the reference go by the imports above.
globals()["__all__"] = _public(globals())
