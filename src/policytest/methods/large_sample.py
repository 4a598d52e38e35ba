"""`LargeSample`: an answer about episodes of which no range is known. It is approximate, and never certified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.data.episodes import Episodes
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.randomness import Seed
from policytest.mdp.task import Task
from policytest.methods.large_sample_run import LargeSampleRun, LoggedSampleRun
from policytest.methods.return_betting import SAME_SEED, about_pairs, in_pairs, supply_of
from policytest.methods.run import Traits
from policytest.payoffs.outcomes import EpisodeSupply
from policytest.payoffs.side_by_side import pairs_of

LOOKS = {"any": "a large sample, looked at after every episode", "one": "a large sample, looked at once"}


@dataclass(frozen=True)
class LargeSample:
    r"""The asymptotic method of `Episodes`, and their default one if neither end of their range is known.

    Its errors have a probability of about delta if returns have a finite variance and there are many episodes; nothing
    is proved for a given number of them. So its answers are not certified: ``verdict.approximate`` is True,
    ``verdict.certified`` False.

    Parameters
    ----------
    looks
        "any": it may be looked at after every episode, and stops at the first one that suffices: an asymptotic
        confidence sequence. "one": the t-test, after a number of episodes that is fixed beforehand, by ``budget``; it
        needs about half as many episodes, and nothing may be concluded from looks in between.

    With T = sqrt(n) (mean - R)/sd, corrected for skewness, the evidence against "V <= R" is the logarithm of the
    average, over three scales rho, of

        2 sqrt(1 - s) (1 - s T^2/(n - 1 + T^2))^(-n/2) F_n(T'),      s = n rho^2/(1 + n rho^2),

    about 2 sqrt(1 - s) exp(s T^2/2) Phi(sqrt(s) T); see `policytest.eprocess.large_sample`, also for when it is silent:
    before 30 episodes, while all returns are equal, before 10 of the rarer of two returns, while returns are too skewed
    for their number.

    >>> import policytest as pt
    >>> noisy = pt.Episodes(lambda rng: rng.normal(10, 50), return_range=(-1e9, 1e9))
    >>> found = pt.decide(noisy, threshold=0, method=pt.LargeSample())
    >>> found.answer, found.certified, found.approximate
    ('above', False, True)
    """

    traits: ClassVar = Traits(zone=True, episodes=True, approximate=True)

    looks: str = "any"

    def __post_init__(self) -> None:
        arrays.one_of("looks", self.looks, tuple(LOOKS))

    def start(
        self,
        task: Task | Episodes,
        sim: object,
        threshold: float,
        rng: Seed,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> LargeSampleRun:
        """The test at work."""
        if not isinstance(task, Episodes):
            raise InputError("LargeSample() is for Episodes; of a table, TDBetting() needs no more than its rewards")
        if task.score is not None:
            raise InputError(
                "score: it asks about another number than the mean, which large samples are about; leave out method"
            )
        task = task if task.critic is None else replace(task, critic=None)  # episodes are run to their end
        return self.on(task, threshold, supply_of(task, rng), indifference)

    def on(self, task: Episodes, threshold: float, source: EpisodeSupply, indifference: float = 0.0) -> LargeSampleRun:
        """The test on these episodes."""
        return LargeSampleRun(self, task, threshold, source, indifference, self.looks == "one")

    def on_pairs(self, a: Episodes, b: Episodes, margin: float, rng: Seed, indifference: float = 0.0) -> LargeSampleRun:
        """The test on the differences of pairs."""
        return PairedSample(self, *about_pairs(a, b)).on(a, margin, pairs_of(a, b, rng), indifference)

    def replay(self, task: object, threshold: float, source: object = None) -> LoggedSampleRun:
        """The test at work on a log of episodes."""
        if not isinstance(task, LoggedEpisodes):
            raise InputError("LargeSample() needs episodes, which these data do not have; pass LoggedEpisodes")
        return LoggedSampleRun(self, task, threshold, self.looks == "one")

    def describe(self) -> str:
        """The method in a few words."""
        return LOOKS[self.looks]


@dataclass(frozen=True)
class PairedSample:
    """The method of a comparison of `Episodes`, for its verdict; and which policy of each agent is run."""

    traits: ClassVar = LargeSample.traits

    by: LargeSample
    policies: tuple[str, str] = ("", "")
    pairing: str = SAME_SEED

    def on(self, task: Episodes, threshold: float, source: EpisodeSupply, indifference: float = 0.0) -> LargeSampleRun:
        """The test on these pairs."""
        return LargeSampleRun(self, task, threshold, source, indifference, self.by.looks == "one")

    def describe(self) -> str:
        """The method in a few words."""
        return f"{self.by.describe()}, {in_pairs(self.policies, self.pairing)}"
