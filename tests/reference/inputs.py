"""What the estimators of both packages are given; only NumPy is needed."""

import numpy as np

ITEMS, PLACES = 34, 3


def target():
    """Return π(item at position), shape (items, positions): different at each position."""
    raw = np.array([[1 + (7 * a + 3 * k) % 11 for k in range(PLACES)] for a in range(ITEMS)], float)
    return raw / raw.sum(axis=0)


def rewards():
    """Return q(item at position), shape (items, positions): some model, right or wrong."""
    return np.array([[0.001 * (1 + (5 * a + k) % 13) for k in range(PLACES)] for a in range(ITEMS)])


def slate_log():
    """Return a small log of slates: positions, clicks, and conditional probabilities."""
    slates, slots = 400, 3
    i, k = np.divmod(np.arange(slates * slots), slots)
    arm = (i * 7 + k * 3 + i // 11) % 5
    return {
        "slate_id": i,
        "position": k,
        "arm": arm,
        "reward": ((i * 13 + k * 29 + arm * 5) % 17 < 5 - k).astype(float),
        "logged": np.array([0.1, 0.15, 0.2, 0.25, 0.3])[arm],
        "target": np.array([0.35, 0.25, 0.2, 0.15, 0.05])[(arm + k) % 5],
    }
