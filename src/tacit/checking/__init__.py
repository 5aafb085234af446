"""A policy tested as the package's own are: :func:`tacit.check` and ``tacit check``."""

from tacit.checking.result import PolicyCheck as PolicyCheck
from tacit.checking.result import Verdict as Verdict
from tacit.checking.tests import check as check
