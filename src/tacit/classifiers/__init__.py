"""Safe classifiers: they separate events from other contexts and never miss an event."""

from tacit.classifiers.base import Classifier as Classifier
from tacit.classifiers.base import SafeClassifier as SafeClassifier
from tacit.classifiers.base import classifier_from_spec as classifier_from_spec
from tacit.classifiers.base import classifier_to_spec as classifier_to_spec
from tacit.classifiers.concepts import FiniteConcepts as FiniteConcepts
from tacit.classifiers.concepts import Rectangle as Rectangle
from tacit.classifiers.hyperplane import Hyperplane as Hyperplane
from tacit.core.dispatch import public_names as _public

# Set where no tool reads it: type checkers and the reference go by the imports above.
globals()["__all__"] = _public(globals())
