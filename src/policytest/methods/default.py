"""The method of episodes where none is chosen: by what is declared of them, never by what was observed."""

from __future__ import annotations

from policytest.data.episodes import Episodes
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.ranges import Range, has_no_end
from policytest.methods.large_sample import LargeSample
from policytest.methods.return_betting import ReturnBetting

ByEpisodes = ReturnBetting | LargeSample


def of_episodes(task: Episodes | LoggedEpisodes, bounds: Range | None = None) -> ByEpisodes:
    """Bets; large samples if no end of the range is known. ``bounds`` are those of a difference.

    A score brings what a bet on it can lose.
    """
    if getattr(task, "score", None) is not None or not has_no_end(task.bounds if bounds is None else bounds):
        return ReturnBetting()
    return LargeSample()
