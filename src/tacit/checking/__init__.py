"""Test user-defined policies like the package's own: :func:`tacit.check` and ``tacit check``."""

from tacit.checking.kernels import Finding as Finding
from tacit.checking.kernels import PolicyCheck as PolicyCheck
from tacit.checking.tests import check as check
