r"""Episodes that may end early: a critic says what to expect of the rest, and a coin whether it is worth seeing.

Let V0(t) be a critic's value of the rest at step t, clipped to [lo_t, hi_t], where the rest lies for certain, and Z
the estimate so far. At first Z = V0(0), with weight W = 1. Before each step choose W' >= W, then

    with probability 1 - W/W' end the episode: its outcome is Z;
    otherwise step:  Z <- Z + W' (r + gamma V0(t+1) - V0(t)),  W <- gamma W'.

*The mean.* With V(t) the true mean of the rest given all that happened, Z + W (V(t) - V0(t)) is a martingale: a coin
keeps it, (W/W') (Z + W' (V - V0)) + (1 - W/W') Z = Z + W (V - V0), and so does a step. So the outcome has mean V,
whatever the critic, and nothing needs to be Markov.

*The bound.* If Z + W' (lo_t - V0(t)) >= low whenever W' is chosen, the outcome is at least ``low``: after a step,
Z + W (lo_{t+1} - V0(t+1)) equals Z + W' (r + gamma lo_{t+1} - V0(t)) with the Z and V0 from before it, and
r + gamma lo_{t+1} >= lo_t. On the other side hi and high stand for them. So W' may grow as far as the rewards so far
allow: W' <= (Z - low)/(V0(t) - lo_t). With W' = W throughout the outcome is the return itself.

*The plan.* How large W' may become, and with which critic, is chosen from past episodes by the expected growth
of the capital for a transition; whole episodes are one of the choices. They serve both sides, others the leading one;
with one known end of the range, the side that this end serves, which is the only one that is bet on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest.data.episodes import Episodes
from policytest.data.walks import Walk
from policytest.eprocess.strategies import growth_on, interval_gap
from policytest.payoffs.critics import Valuer
from policytest.payoffs.declared_range import RewardNotes
from policytest.payoffs.independence import mark_of
from policytest.payoffs.returns import Episode, Played, WholeEpisodes

CUTS = (1.5, 3.0, 20.0)  # the largest W'/gamma^t, to choose from
FIRST = 8  # episodes that are seen whole before a plan is made
AGAIN = 1.3  # a plan is made again when the episodes have grown by this factor
WORTH_IT, DOUBT = 1.1, 2.5  # a cut must promise 1.1 + 2.5/sqrt(episodes) times the growth of whole ones
KEPT, KEPT_STEPS = 64, 200_000  # past episodes, and their steps, that plans are compared on
FRACTIONS = 10  # of the largest one down, on which plans are compared


class CutPlan(NamedTuple):
    """How the next episodes are cut."""

    largest: float = 1.0  # of W'/gamma^t; 1: nothing is cut
    is_fitted: bool = False  # or the given critic
    sides: tuple[bool, bool] = (True, True)  # "above" and "below": which of them is served


WHOLE = CutPlan()


class Begun(NamedTuple):
    """The plan by which an episode began, and the weights of the critic, where it was fitted."""

    plan: CutPlan
    weights: FloatArray | None


class Cut(NamedTuple):
    """An episode that was run by a plan, seen to its end, to the last step, or up to the coin that ended it."""

    played: Played
    plan: CutPlan
    Z: float
    W: float
    V: float
    cut: bool  # by a coin
    rewards: FloatArray  # [T]
    rows: FloatArray  # [T + 1, p], or [T, p] where it is over
    ends: FloatArray  # [T + 1, 2], or [T, 2]: where the rest lay
    rest: tuple[float, float]  # where it lies
    scale: float  # gamma^T


class Past(NamedTuple):
    """An episode that was seen to its end; ``weight`` is one over the probability that it was not cut before."""

    rewards: FloatArray  # [T]
    rows: FloatArray  # [T, p] features
    low: FloatArray  # [T] where the rest lay
    high: FloatArray
    weight: float
    half: int  # of the episodes, for a critic that is fitted to the other one


class CutEpisodes(WholeEpisodes):
    """Episodes of an environment with a critic."""

    def __init__(self, episodes: Episodes) -> None:
        super().__init__(episodes)
        self.valuer = Valuer(episodes.critic, episodes.horizon)
        self.past: list[Past] = []
        self.seen, self.plan_at = 0, FIRST
        self.plan = WHOLE
        self.begun: list[Begun] = []  # of episodes under way, which are run again by the same plans

    # ------------------------------------------------------------ an episode

    def plan_of(self, ahead: int) -> Begun:
        """The plan by which it began; where it begins now, the one that the episodes settled so far have led to."""
        if ahead == len(self.begun):
            self.begun.append(Begun(self.plan, self.valuer.weights if self.plan.is_fitted else None))
        return self.begun[ahead]

    def run(self, seed: int, plan: Begun) -> Cut:
        """An episode by its plan."""
        walk = self.about.walk
        assert isinstance(walk, Walk)
        with walk.turn:
            return self._cut_short(walk, seed, *plan)

    def _cut_short(self, walk: Walk, seed: int, plan: CutPlan, weights: FloatArray | None) -> Cut:
        about, valuer = self.about, self.valuer
        gamma, coins = about.discount, np.random.default_rng([seed, 1])
        observation, t, W, earned, scale = walk.begin(seed), 0, 1.0, 0.0, 1.0
        checked = RewardNotes(about)
        low, high = about.bounds
        rows, rewards, ends = [valuer.row(observation)], list[float](), [(low, high)]
        V = Z = self._kept_in(valuer.value(rows[0], 0, weights), low, high)
        over = cut = False
        while not over and t < about.last_step:
            self._go_on(t)
            if plan.largest > 1.0:
                more = self._weight(plan, Z, W, V, low, high, scale)
                if cut := coins.random() >= W / more:
                    break
                W = more
            observation, reward, over = walk.step(observation)
            r = checked(reward, t, seed)
            rewards.append(r)
            earned, scale, t = earned + scale * r, scale * gamma, t + 1
            over = over or t == about.horizon
            low, high = (0.0, 0.0) if over else about.rest(t, earned)
            after = 0.0
            if not over:
                rows.append(valuer.row(observation))
                ends.append((low, high))
                after = self._kept_in(valuer.value(rows[-1], t, weights), low, high)
            Z, W, V = Z + W * (r + gamma * after - V), gamma * W, after
        about_it = np.array(rewards), np.array(rows), np.array(ends)
        played = Played(seed, earned, t, bool(over), mark_of(observation, earned, t), checked.first)
        return Cut(played, plan, Z, W, V, cut, *about_it, (low, high), scale)

    def steps_of(self, seen: Cut) -> int:
        """The transitions of an episode that was run."""
        return seen.played.steps

    def settled(self, seen: Cut) -> Episode:
        """The outcome of an episode by its plan, and its steps; the critic, and later plans, learn from it."""
        (seed, earned, t, over, *_), plan, Z, W, V, cut, rewards, rows, ends, (low, high), scale = seen
        number = self.remember(seen.played)
        rest = (0.0, 0.0) if over or cut else (W * (low - V), W * (high - V))
        above, below = (part if served else math.nan for part, served in zip(rest, plan.sides, strict=True))
        if not cut:
            self.watch.whole(earned, number, seed) if over else self.watch.unfinished(t, earned, number, seed)
            weight = W / scale if scale > 0 else 1.0
            lows, highs = ends[:t].T
            self.past.append(Past(rewards, rows[:t], lows, highs, weight, self.seen % 2))
        self._learn(rewards, rows, V)
        del self.begun[:1]
        Z = min(max(Z, self.low) if plan.sides[0] else Z, self.high if plan.sides[1] else math.inf)
        return Episode(float(Z), t, (above, below))

    @staticmethod
    def _kept_in(value: float, low: float, high: float) -> float:
        return min(max(value, low), high)

    def _weight(self, plan: CutPlan, Z: float, W: float, V: float, low: float, high: float, scale: float) -> float:
        """W': the largest that the bounds and the plan allow."""
        room = plan.largest * scale
        if plan.sides[0] and low < V:
            room = min(room, (Z - self.low) / (V - low))
        if plan.sides[1] and high > V:
            room = min(room, (self.high - Z) / (high - V))
        return max(room, W)

    # ------------------------------------------------------------ the past

    def _learn(self, rewards: FloatArray, rows: FloatArray, rest: float) -> None:
        """Teach the critic the sums of what followed, with ``rest`` after a cut; forget the oldest episodes."""
        while len(self.past) > KEPT or (len(self.past) > 1 and sum(len(p.rewards) for p in self.past) > KEPT_STEPS):
            self.past.pop(0)
        sums = np.zeros(len(rewards))
        for t in range(len(sums) - 1, -1, -1):
            rest = rewards[t] + self.about.discount * rest
            sums[t] = rest
        if len(sums):
            self.valuer.learn(rows[: len(sums)], sums, self.seen % 2)
        self.seen += 1

    def look(self, threshold: float, lead: float, both_sides: bool) -> None:
        """Fit the critic and choose the plan again, if it is time."""
        if self.seen < self.plan_at:
            return
        self.plan_at = max(self.seen + 1, int(AGAIN * self.seen))
        self.valuer.fit()
        sides = (True, True) if both_sides else (lead > 0, lead <= 0)
        if not all(map(math.isfinite, (self.low, self.high))):
            sides = math.isfinite(self.low), math.isfinite(self.high)
        kinds = (False, True) if self.valuer.is_given else (True,)
        plans = [WHOLE, *(CutPlan(cut, kind, sides) for kind in kinds for cut in CUTS)]
        past = PastEpisodes(self)
        found = [past.simulated(plan) for plan in plans]
        noise = found[0].deviation / math.sqrt(self.seen + 1.0)
        gap = interval_gap(found[0].deviation ** 2, self.seen) if both_sides else max(abs(lead), 0.5 * noise)
        whole, *others = (self._growth(one, threshold + lead, sides, gap) for one in found)
        best = int(np.argmax(others))
        worth_it = WORTH_IT + DOUBT / math.sqrt(self.seen)
        self.plan = plans[1 + best] if others[best] > worth_it * whole else WHOLE

    def _growth(self, simulated: Simulated, estimate: float, sides: tuple[bool, bool], gap: float) -> float:
        """The expected growth of the capital for a transition, on the sides that matter.

        All plans have the same mean: outcomes are moved to the estimate, which is ``gap`` from what is to be refuted.
        """
        found, centred = [], simulated.Z - simulated.chance @ simulated.Z
        for served, sign, bound in zip(sides, (1.0, -1.0), (self.low, self.high), strict=True):
            room = sign * (estimate - bound) - gap
            if served and room > 0:
                found.append(growth_on((sign * centred + gap) / room, simulated.chance, FRACTIONS))
        return sum(found) / max(simulated.steps, 1e-300)

    # ------------------------------------------------------------ keeping

    def state(self) -> Arrays:
        """The past episodes, the critic and the plan."""
        p = self.past[0].rows.shape[1] if self.past else 0
        return {
            **super().state(),
            "past_rewards": np.concatenate([np.zeros(0), *(one.rewards for one in self.past)]),
            "past_rows": np.concatenate([np.zeros((0, p)), *(one.rows for one in self.past)]),
            "past_ends": np.concatenate([np.zeros((0, 2)), *(np.stack([o.low, o.high], axis=1) for o in self.past)]),
            "past_lengths": np.array([len(one.rewards) for one in self.past], dtype=np.int64),
            "past_weights": np.array([[one.weight, one.half] for one in self.past], dtype=np.float64).reshape(-1, 2),
            **self.valuer.state(),
            "cut_plan": _row(self.plan),
            "cut_at": np.array([self.seen, self.plan_at], dtype=np.int64),
            **_begun_state(self.begun),
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state."""
        super().restore(state)
        at = np.cumsum(state["past_lengths"])[:-1]
        rewards, rows, ends = (np.split(state[name], at) for name in ("past_rewards", "past_rows", "past_ends"))
        parts = zip(rewards, rows, ends, state["past_weights"], strict=True) if len(state["past_lengths"]) else ()
        self.past = [Past(r, row, end[:, 0], end[:, 1], float(w), int(half)) for r, row, end, (w, half) in parts]
        self.valuer.restore(state)
        self.plan = _plan(state["cut_plan"])
        self.seen, self.plan_at = (int(number) for number in state["cut_at"])
        begun = zip(state["begun_plans"], state["begun_weights"], strict=True) if "begun_plans" in state else ()
        self.begun = [Begun(_plan(row), weights if row[1] else None) for row, weights in begun]


def _row(plan: CutPlan) -> FloatArray:
    """A plan as numbers."""
    return np.array([*plan[:2], *plan.sides], dtype=np.float64)


def _plan(row: FloatArray) -> CutPlan:
    """The plan of these numbers."""
    largest, is_fitted, *sides = row.tolist()
    if not largest >= 1:
        raise ValueError("the largest weight is below 1")
    return CutPlan(largest, bool(is_fitted), (bool(sides[0]), bool(sides[1])))


def _begun_state(begun: list[Begun]) -> Arrays:
    """[k, 4] plans, and [k, p] weights, which are zero where no critic was fitted."""
    weights = np.zeros((len(begun), max((len(w) for _, w in begun if w is not None), default=0)))
    for row, (_, w) in zip(weights, begun, strict=True):
        row[:] = 0.0 if w is None else w
    return {"begun_plans": np.array([_row(plan) for plan, _ in begun]).reshape(-1, 4), "begun_weights": weights}


class Simulated(NamedTuple):
    """Past episodes under a plan: the outcomes, how probable each is, and the mean number of steps."""

    Z: FloatArray
    chance: FloatArray
    steps: float

    @property
    def deviation(self) -> float:
        """The standard deviation of the outcomes."""
        return math.sqrt(max(float(self.chance @ self.Z**2 - (self.chance @ self.Z) ** 2), 0.0))


class PastEpisodes:
    """The episodes that were seen whole, side by side [n, T], each with one over the probability of that."""

    def __init__(self, source: CutEpisodes) -> None:
        past, self.source = source.past, source
        steps = np.array([len(one.rewards) for one in past])
        self.t = np.arange(float(steps.max(initial=0)))
        self.on = self.t < steps[:, None]
        self.rows = np.concatenate([one.rows for one in past])
        self.rewards, self.low, self.high = (
            self._padded(np.concatenate([getattr(one, name) for one in past])) for name in ("rewards", "low", "high")
        )
        weight = np.array([one.weight for one in past])
        self.shares = weight / weight.sum()
        self.half = np.repeat([one.half for one in past], steps)

    def _padded(self, values: FloatArray) -> FloatArray:
        """[n, T + 1], with 0 after the end of an episode."""
        found = np.zeros((len(self.on), self.on.shape[1] + 1))
        found[:, :-1][self.on] = values
        return found

    def simulated(self, plan: CutPlan) -> Simulated:
        """What they would have led to under a plan, over all coins."""
        source, gamma, scale = self.source, self.source.about.discount, 1.0
        t = np.broadcast_to(self.t, self.on.shape)[self.on]
        V = np.clip(self._padded(source.valuer.judged(self.rows, t, self.half, plan.is_fitted)), self.low, self.high)
        D = self.rewards[:, :-1] + gamma * V[:, 1:] - V[:, :-1]
        outcomes, chances, steps = [], [], 0.0
        Z, W, alive = V[:, 0].copy(), np.ones(len(V)), self.shares.copy()
        for step, on in enumerate(self.on.T):
            if plan.largest > 1.0:
                more = np.where(on, self._weights(plan, Z, W, V[:, step], step, scale), W)
                outcomes.append(Z.copy())
                chances.append(alive * (1.0 - W / more))
                alive, W = alive * (W / more), more
            steps += float(alive[on].sum())
            Z, W, scale = np.where(on, Z + W * D[:, step], Z), gamma * W, scale * gamma
        return Simulated(np.concatenate([*outcomes, Z]), np.concatenate([*chances, alive]), steps)

    def _weights(
        self, plan: CutPlan, Z: FloatArray, W: FloatArray, V: FloatArray, step: int, scale: float
    ) -> FloatArray:
        """W' of each episode; see `CutEpisodes`."""
        room = np.full(len(Z), plan.largest * scale)
        for served, slack, rest in (
            (plan.sides[0], Z - self.source.low, V - self.low[:, step]),
            (plan.sides[1], self.source.high - Z, self.high[:, step] - V),
        ):
            if served:
                room = np.minimum(room, np.where(rest > 0, slack / np.where(rest > 0, rest, 1.0), np.inf))
        return np.asarray(np.maximum(room, W))
