r"""Episodes of an agent in any environment, or of a function that runs them. No table, no Markov property.

    balanced = Episodes("CartPole-v1", agent, reward_range=(0, 1))
    decide(balanced, threshold=475)

The value is the mean of the return G = r_0 + gamma r_1 + ... of an episode, which ends when the environment ends it
(terminated or truncated), or after ``horizon`` steps. All that a test assumes is that episodes are independent, or that
the mean return of each is V whatever happened before, and that returns lie in a known range [low, high]: declared by
``return_range``, or implied by ``reward_range`` and the horizon,

    low  = min over n = 1 .. H of lo (1 + gamma + ... + gamma^(n-1)),    high likewise,

since an episode may end at any step. Every reward and every return is compared with these ranges. One of the two ends
may be unknown: "above" needs ``low`` alone, "below" ``high`` alone (`policytest.eprocess.capital`).

*Discounted episodes* need not be seen to their end. What follows step t is worth at most

    gamma^t (max(hi, 0) - min(lo, 0)) / (1 - gamma)

more or less, and an episode is over for a test when that is at most `NEGLIGIBLE` of the range of returns. Its rest is
then counted at its worst: at the least for "above", at the most for "below" (`Episodes.unfinished`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest.data.outcome import EpisodeOutcome, ReturnBeyond, episode_outcome
from policytest.data.ranges import (
    NO_RANGE,
    REFUSE,
    WARN,
    GivenRange,
    Range,
    ends_of,
    finite_ends,
    kept_in,
    outside_words,
    range_words,
    slack_of,
    times,
)
from policytest.data.vector_walks import VectorWalk, vector_of
from policytest.data.walks import FunctionWalk, Walk, walk_of

if TYPE_CHECKING:  # a process that runs episodes needs no compiler
    from policytest.eprocess.interval import Score

MEAN_RETURN, INDEPENDENT = "mean return", "episodes are independent of each other, each with the same "
EPISODES_ARE_INDEPENDENT = INDEPENDENT + MEAN_RETURN
WIDEN = 'declare a range that is certain to hold, or go on without a certificate: on_range="warn"'
NEGLIGIBLE = 1e-6  # of the range of returns: what the rest of a discounted episode is worth when it is cut
POLICIES = {"deterministic": "predict(..., deterministic=True)", "stochastic": "predict(..., deterministic=False)"}


@dataclass(frozen=True, eq=False)
class Episodes:
    """Independent episodes of an agent in an environment.

    Parameters
    ----------
    env
        A Gymnasium environment or its id, a vector of environments (`gymnasium.make_vec`, or a `VecEnv` of
        Stable-Baselines3), or a function ``run(rng)`` that runs an episode and returns its rewards (or its return, one
        number).
    agent
        A function of the observation, or of the observation and a random generator; an object with `predict`, as
        trained agents have; or the file of one that Stable-Baselines3 saved, "model.zip" or "ppo:model.zip", which is
        unpickled: load only files that you trust. None where ``env`` is a function.
    deterministic
        Which policy of an object with `predict` is tested: the actions of ``predict(..., deterministic=True)``, as in
        the evaluation of Stable-Baselines3, or those that it samples.
    horizon
        The number of steps after which an episode is over at the latest; by default the environment's time limit.
        With a discount below 1 and a ``reward_range`` it is over, at the latest, when its rest cannot matter.
    reward_range, return_range
        (low, high) of each reward, of the return of an episode; at least one of them. Every reward, every return is
        checked. None or an infinity is an end that is not known: with ``return_range=(-1000, None)`` the answer
        "above" can be proved, "below" cannot.
    discount
        gamma, in [0, 1].
    critic
        What the agent expects of the rest of an episode, a function of the observation: any estimate of its value, such
        as the agent's value network, or `RidgeCritic(features)`. Episodes may then end early; answers stay exact.
    batched
        Of a vector of environments: the agent (and the critic) is called with all observations at once. An object with
        `predict` always is where the vector is a `VecEnv`.
    score
        What is asked about returns in the place of their mean, such as their median; see
        `policytest.eprocess.interval.Score`.
    outcome
        What counts of an episode in the place of its return: a function of (rewards, info) that returns a number, where
        ``rewards`` is the array of all rewards and ``info`` the info dictionary of the last step (of a function
        ``run(rng)``: what it returns beside the rewards, as ``(rewards, info)``). Then ``return_range`` is its range.
        Or `at_least(200)`, whose mean is the probability of such a return; or a key of the info, "is_success", with
        numbers from 0 to 1. Every episode is run to its end.
    on_range
        What becomes of a return (a reward, an outcome) outside its declared range: "refuse", an error; or "warn": the
        run goes on with the nearest end of the range, and no answer of it is certified.
    rests_on
        What else an answer rests on, in words, to be listed among its assumptions.

    >>> import policytest as pt
    >>> coin = pt.Episodes(lambda rng: rng.random() < 0.7, return_range=(0, 1))
    >>> pt.decide(coin, threshold=0.5).answer
    'above'
    """

    env: object
    agent: object = None
    horizon: int | None = None
    reward_range: GivenRange = None
    return_range: GivenRange = None
    discount: float = 1.0
    critic: Any = None
    batched: bool = False
    deterministic: bool = True
    score: Score | None = None
    outcome: object = None
    on_range: str = REFUSE
    rests_on: tuple[str, ...] = ()
    walk: Walk | VectorWalk | FunctionWalk = field(init=False, repr=False)
    judge: EpisodeOutcome | None = field(init=False, repr=False)
    states: None = field(default=None, init=False, repr=False)
    actions: None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        discount = arrays.share("discount", self.discount)
        batched, deterministic = (arrays.flag(name, getattr(self, name)) for name in ("batched", "deterministic"))
        said = self.env, self.agent, batched, deterministic
        walk = vector_of(*said) or walk_of(*said)
        horizon = walk.time_limit if self.horizon is None else arrays.whole_number("horizon", self.horizon)
        arrays.positive(horizon=horizon)
        if self.critic is not None and isinstance(walk, FunctionWalk):
            raise InputError("critic: a function that runs episodes shows no observations; pass an environment")
        if self.critic is not None and isinstance(walk, VectorWalk):
            raise InputError("critic: episodes of a vector of environments do not end early; pass one environment")
        if self.critic is not None and self.score is not None:
            raise InputError("critic: it keeps the mean return, and a score asks about another number; leave one out")
        if self.score is not None:
            named = all(hasattr(self.score, name) for name in ("name", "room", "of", "estimate"))
            if isinstance(self.score, type) or not named or not isinstance(self.score.name, str):
                raise InputError(
                    f"score is {self.score!r}; pass an object with name, room, of(won) and estimate(returns)"
                )
            arrays.positive(**{"score.room": self.score.room})
        for name in ("reward_range", "return_range"):
            object.__setattr__(self, name, ends_of(name, getattr(self, name)))
        known = {"discount": discount, "horizon": horizon, "walk": walk, "judge": episode_outcome(self.outcome)}
        for name, given in known.items():
            object.__setattr__(self, name, given)
        arrays.one_of("on_range", self.on_range, (REFUSE, WARN))
        self._check_outcome()
        _ = self.bounds  # ranges that contradict each other are refused

    def _check_outcome(self) -> None:
        """An outcome is of a whole episode, and its mean is asked about."""
        if self.judge is None:
            return
        if self.critic is not None:
            raise InputError("critic: it keeps the mean return, and an outcome is another number; leave one out")
        if self.score is not None:
            raise InputError("score: it asks about returns, and the mean of an outcome is asked about; leave one out")
        if self.discount < 1.0:
            raise InputError(
                f"discount is {self.discount:g}, and an outcome is about all rewards of an episode as they are; leave "
                "discount out, or let the outcome discount them"
            )
        if isinstance(self.judge, ReturnBeyond) and self.known_returns not in (None, self.judge.range):
            raise InputError(
                f"return_range is {self.return_range}, and the outcome {self.judge!r} is 0 or 1; leave return_range out"
            )

    @property
    def known_rewards(self) -> Range | None:
        """The range of rewards, with infinities for ends that are not known."""
        return cast("Range | None", self.reward_range)

    @property
    def known_returns(self) -> Range | None:
        """The range of returns, likewise."""
        return cast("Range | None", self.return_range)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee rests on."""
        return (INDEPENDENT + self.asked_about, *self.declared(), *self.rests_on)

    def declared(self, who: str = "") -> tuple[str, ...]:
        """The ranges that are taken at their word; not that of an outcome which is 0 or 1 by definition."""
        if self.judge is not None:
            return () if isinstance(self.judge, ReturnBeyond) else (range_words(f"outcomes{who}", self.bounds),)
        given = (("rewards", self.known_rewards), ("returns", self.known_returns))
        return tuple(range_words(what + who, ends) for what, ends in given if ends is not None and ends != NO_RANGE)

    @property
    def counted(self) -> str:
        """What an episode gives."""
        return "return" if self.judge is None else "outcome"

    @property
    def asked_about(self) -> str:
        """What the value is: "mean return", or what the score or the outcome asks about."""
        named = self.judge if self.score is None else self.score
        return MEAN_RETURN if named is None else named.name

    @property
    def sums_rewards(self) -> bool:
        """Whether what counts of an episode is a function of the sum of its rewards."""
        return self.judge is None or isinstance(self.judge, ReturnBeyond)

    @property
    def identity(self) -> list[object]:
        """What tells these episodes from others, apart from what the environment and the agent do."""
        ranges = [self.known_rewards or (), self.known_returns or ()]
        which: list[object] = [self.discount, self.critic is not None, self.agent_policy]
        which += [] if self.score is None else [self.score]
        which += [] if self.judge is None else ["outcome", self.judge.name, self.judge.words]
        return ["episodes", self.name, self.horizon or 0, *ranges, *which]

    def value_of(self, returns: FloatArray) -> float:
        """The mean of these returns, or what the score is about."""
        return float(np.mean(returns)) if self.score is None else self.score.estimate(np.asarray(returns))

    @property
    def name(self) -> str:
        """The environment's, or the function's."""
        return self.walk.name

    @property
    def agent_policy(self) -> str:
        """Which policy of the agent is run, "deterministic" or "stochastic", where it has both; else ""."""
        return self.walk.policy

    @cached_property
    def bounds(self) -> Range:
        """(low, high): where the return of an episode lies."""
        if self.judge is not None:
            return self.known_returns or self.judge.range or NO_RANGE
        low, high = NO_RANGE
        if self.known_rewards is not None:
            most = geometric(self.discount, self.horizon)
            low, high = (end * (most if end < 0 else 1.0) for end in (self.known_rewards[0], -self.known_rewards[1]))
            high = -high
        if self.known_returns is not None:
            low, high = max(low, self.known_returns[0]), min(high, self.known_returns[1])
        if low > high:
            raise InputError(f"return_range is {self.known_returns}, which rewards in {self.known_rewards} cannot give")
        return low, high

    @cached_property
    def reward_limits(self) -> Range:
        """Where finite rewards lie."""
        return finite_ends(self.known_rewards or NO_RANGE)

    def rest(self, t: int, earned: float) -> Range:
        """Where the discounted sum of the rewards from step t > 0 on lies, after rewards worth ``earned``."""
        (low, high), scale = NO_RANGE, self.discount**t
        if self.known_rewards is not None:
            left = geometric(self.discount, None if self.horizon is None else self.horizon - t)
            low, high = times(min(self.known_rewards[0], 0.0), left), times(max(self.known_rewards[1], 0.0), left)
        if self.known_returns is not None and scale > 0:
            low = max(low, (self.known_returns[0] - earned) / scale)
            high = min(high, (self.known_returns[1] - earned) / scale)
        return low, max(low, high)

    @cached_property
    def last_step(self) -> float:
        """After how many steps an episode is over at the latest: by its horizon, or since the rest cannot matter."""
        horizon = math.inf if self.horizon is None else self.horizon
        if self.known_rewards is None or self.discount == 1.0 or not all(map(math.isfinite, self.known_rewards)):
            return horizon
        low, high = self.known_rewards
        share = NEGLIGIBLE * (self.bounds[1] - self.bounds[0]) * (1.0 - self.discount)
        worth = max(high, 0.0) - min(low, 0.0)
        if self.discount == 0.0 or share >= worth:
            return min(1, horizon)
        return min(math.ceil(math.log(share / worth) / math.log(self.discount)), horizon) if share > 0 else horizon

    def unfinished(self, t: int, earned: float) -> Range:
        """Where the return of an episode lies that was given up after t steps with rewards worth ``earned``."""
        assert self.known_rewards is not None
        left, scale = geometric(self.discount, None if self.horizon is None else self.horizon - t), self.discount**t
        lowest, highest = self.known_rewards
        return earned + scale * left * min(lowest, 0.0), earned + scale * left * max(highest, 0.0)

    def checked_reward(self, reward: object, t: int, seed: int) -> float:
        """A reward, if it is a number in its range."""
        low, high = self.reward_limits
        if type(reward) is float and low <= reward <= high:
            return reward
        paid = reward if type(reward) is float else _number(reward)
        if not math.isfinite(paid):
            raise InputError(
                f"the reward of step {t} (episode with seed {seed}) is {arrays.shown(reward, str)}; rewards are finite "
                "numbers: correct the environment"
            )
        if self.known_rewards is None:
            return paid
        if self.is_beyond(paid):
            if self.on_range == WARN:
                return paid
            where = f"step {t} (episode with seed {seed})"
            raise InputError(f"{outside_words('reward', where, paid, self.known_rewards)}; {WIDEN}")
        return min(max(paid, low), high)

    def is_beyond(self, reward: float) -> bool:
        """Whether a reward lies outside its range, by more than rounding."""
        slack = slack_of(self.known_rewards or NO_RANGE, self.walk.rounding)
        return not self.reward_limits[0] - slack <= reward <= self.reward_limits[1] + slack

    def outcome_of(self, rewards: FloatArray, info: Any, seed: int) -> float:
        """The outcome of an episode that has ended, if it is a number."""
        assert self.judge is not None
        found = self.judge(rewards, info)
        counted = _number(found)
        if not math.isfinite(counted):
            raise InputError(
                f"the outcome of the episode with seed {seed} is {arrays.shown(found)}; an outcome is a truth value or "
                "a finite number: correct the function, or name another key"
            )
        return counted

    def checked_return(self, total: float, seed: int, number: int) -> float:
        """The return of an episode, which is the ``number``-th; refused outside its range, unless that only warns."""
        if self.is_outside(total) and (self.on_range == REFUSE or not math.isfinite(total)):
            where = f"episode {number} (seed {seed})"
            raise InputError(f"{outside_words(self.counted, where, total, self.bounds)}; {WIDEN}")
        return total if self.on_range == WARN else kept_in(total, self.bounds)

    def is_outside(self, total: float) -> bool:
        """Whether a return lies outside its range, by more than rounding."""
        (low, high), slack = finite_ends(self.bounds), slack_of(self.bounds, self.walk.rounding)
        return not low - slack <= total <= high + slack


def _number(reward: object) -> float:
    """A number of any type, also in an array of its own; nan for anything else, such as text or a masked entry."""
    if np.ma.is_masked(reward):
        return math.nan
    found = np.asarray(reward)
    return float(found.item()) if found.size == 1 and found.dtype.kind in "biuf" else math.nan


def geometric(discount: float, steps: int | None) -> float:
    """1 + gamma + ... + gamma^(steps - 1); without an end where ``steps`` is None.

    >>> geometric(0.5, 3), geometric(1.0, 3), geometric(0.5, None), geometric(1.0, None)
    (1.75, 3.0, 2.0, inf)
    """
    if discount == 1.0:
        return math.inf if steps is None else float(steps)
    return (1.0 if steps is None else 1.0 - discount**steps) / (1.0 - discount)
