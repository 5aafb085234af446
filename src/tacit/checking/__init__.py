"""A policy tested as the package's own are: :func:`tacit.check` and ``tacit check``."""

from tacit.checking.tests import check as check
from tacit.checking.trial import Finding as Finding
from tacit.checking.trial import PolicyCheck as PolicyCheck
