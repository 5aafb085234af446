"""A policy tested as the package's own are: :func:`tacit.check` and ``tacit check``."""

from tacit.checking.kernels import Finding as Finding
from tacit.checking.kernels import PolicyCheck as PolicyCheck
from tacit.checking.tests import check as check
