"""Safe classifiers: they tell events from other contexts and never miss one."""

from tacit.classifiers.base import Classifier
from tacit.classifiers.finite import FiniteConcepts
from tacit.classifiers.hyperplane import Hyperplane
from tacit.classifiers.rectangle import Rectangle
from tacit.classifiers.safe import SafeClassifier
from tacit.classifiers.spec import classifier_from_spec, classifier_to_spec

__all__ = [
    "Classifier",
    "FiniteConcepts",
    "Hyperplane",
    "Rectangle",
    "SafeClassifier",
    "classifier_from_spec",
    "classifier_to_spec",
]
