r"""Predictable plug-in processes: capital by Hoeffding's and by Bernstein's inequality, for outcomes in [0, 1].

    bernstein    prod exp( l (X - m) - (X - mu)^2 (-log(1-l) - l) )         for mu and l in (0, 1/2] from the past
    hoeffding    prod exp( l (X - m) - l^2/8 )                              for l from the past

are nonnegative supermartingales if the mean of X is at most m (Waudby-Smith and Ramdas, 2024). They are here for
comparison: bets win more.
"""

from __future__ import annotations

import numpy as np

from policytest._base.arrays import FloatArray

TUNED = np.log(20.0)  # the evidence for which l is chosen; any is valid


class PlugIn:
    """Outcomes between ``low`` and ``low + span``; the evidence is the largest after any of them, and at least 0."""

    def __init__(self, kind: str, outcomes: FloatArray, low: float, span: float) -> None:
        self.low, self.span = low, span
        self.X = X = np.clip((outcomes - low) / span, 0.0, 1.0)
        t = np.arange(1.0, len(X) + 1.0)
        if kind == "hoeffding":
            self.bet = np.minimum(np.sqrt(8.0 * TUNED / (t * np.log1p(t))), 1.0)
            self.paid = self.bet**2 / 8.0
            return
        total = np.cumsum(X)
        before = (0.5 + total - X) / t  # the mean of those before, with one more at 1/2
        squares = (X - (0.5 + total) / (t + 1.0)) ** 2
        variance = (0.25 + np.cumsum(squares) - squares) / t
        self.bet = np.minimum(np.sqrt(2.0 * TUNED / (variance * t * np.log1p(t))), 0.5)
        self.paid = (X - before) ** 2 * (-np.log1p(-self.bet) - self.bet)

    def log_capital(self, R: float) -> float:
        """The largest evidence so far against a mean of at most R."""
        m = min(max((R - self.low) / self.span, 0.0), 1.0)
        return float(np.cumsum(self.bet * (self.X - m) - self.paid).max(initial=0.0))

    def largest(self) -> float:
        """The largest outcome."""
        return self.low + self.span * float(self.X.max(initial=-np.inf))
