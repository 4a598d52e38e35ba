"""The method of episodes where none is chosen: by what is declared of them, never by what was observed."""

from __future__ import annotations

from policytest.data.episodes import Episodes
from policytest.data.ranges import has_no_end
from policytest.methods.large_sample import LargeSample
from policytest.methods.return_betting import ReturnBetting
from policytest.payoffs.pairs import has_no_difference

ByEpisodes = ReturnBetting | LargeSample


def of_episodes(task: Episodes, other: Episodes | None = None) -> ByEpisodes:
    """Bets; large samples if no end of the range is known, or of that of the difference of two agents.

    A score brings what a bet on it can lose.
    """
    if other is not None:
        return LargeSample() if has_no_difference(task, other) else ReturnBetting()
    return LargeSample() if task.score is None and has_no_end(task.bounds) else ReturnBetting()
