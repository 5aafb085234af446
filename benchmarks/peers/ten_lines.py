"""LinUCB as one writes it with NumPy: choose and learn, a matrix for each arm."""

import numpy as np


class TenLines:
    """A model for each arm, over a context of so many numbers."""

    def __init__(self, arms, dim, alpha=0.1, ridge=1.0):
        self.alpha, self.b = alpha, np.zeros((arms, dim))
        self.inverse = np.tile(np.eye(dim) / ridge, (arms, 1, 1))

    def choose(self, x):
        """Return the arm of the highest bound."""
        y = self.inverse @ x
        return int(np.argmax((self.b * y).sum(axis=1) + self.alpha * np.sqrt(y @ x)))

    def learn(self, x, arm, reward):
        """Take in a reward."""
        y = self.inverse[arm] @ x
        self.inverse[arm] -= np.outer(y, y) / (1.0 + x @ y)
        self.b[arm] += reward * x


def users(stream):
    """LinUCB over contexts as they are, or scaled, and a constant."""
    found = {}
    for how in ("contexts", "scaled"):
        rows = np.column_stack([stream[how], np.ones(len(stream[how]))])
        for alpha, ridge in ((0.05, 1.0), (0.1, 1.0), (0.3, 1.0), (0.1, 10.0)):

            def seeded(seed, rows=rows, alpha=alpha, ridge=ridge):
                lines = TenLines(stream["chances"].shape[1], rows.shape[1], alpha, ridge)
                last = []

                def choose(t):
                    last[:] = (rows[t],)
                    return lines.choose(rows[t])

                return choose, lambda arm, reward: lines.learn(last[0], arm, reward)

            found[f"{alpha}, {ridge:g}, {'raw' if how == 'contexts' else how}"] = seeded
    return found
