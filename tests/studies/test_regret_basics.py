"""The regret of the classic policies."""

import numpy as np
import pytest

from studies.regret_basics import lai_robbins


def test_lai_robbins_by_hand():
    # kl(1/4, 1/2) = ¼ ln ½ + ¾ ln 3/2
    kl = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    assert lai_robbins((0.25, 0.5)) == pytest.approx(0.25 / kl)
