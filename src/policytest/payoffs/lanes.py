r"""Many rollouts under way: a simulator that takes its time is asked for the draws of all of them at once.

M rollouts are at work. Each has the plan that was fixed when it began, and random numbers of its own for actions and
coins. It goes on until it waits for a draw; then one call answers all that wait, in the order of their numbers: a
*round*. Rollouts are numbered as they begin, and **settled in the order of their numbers**: one that has ended early
waits for those before it.

*Validity.* Let H_j be all that rollouts 1 to j ever draw and toss, also what they have not used yet: for each of them
an endless stack of draws of every pair, which are independent, since which rollout a draw is for is decided before it
is made. The plan of rollout j and its fractions f_j are made when it begins, from what the rollouts before it have
shown until then, so they are functions of H_{j-1}. (Rounds are counted, not seconds: when rollout j begins, and what
the others have shown by then, is a function of H_{j-1} as well.) The stacks of j are independent of H_{j-1}, and so
by `policytest.payoffs.td_rollouts`, for each such plan,

    E[1 + f_j (lead + S_j)/(L - lead) | H_{j-1}]  <=  1       if sign (V_q - R) <= 0.

So the capital in the order of the numbers is a nonnegative supermartingale for H_1, H_2, ..., and Ville's inequality
holds for it, wherever one looks. Three rules that look as good are wrong, since then a rollout has a say in how it is
bet on: to settle rollouts in the order in which they end (short ones differ from long ones), to let the number of
samples that a bet is planned with count its own draws, to take the fractions from a fit that has seen it.

*An answer* comes when the capital crosses at the end of rollout j. The draws of those after it were made, and count as
samples; their outcomes are left out, whatever they are.

*Rooms.* Were only M rollouts allowed between the oldest open one and the newest, most would have ended and would wait
for the longest. So `WINDOW` times as many may be unsettled, and M of them are at work. Rollouts that need no draw at
all are free, and are not counted among these.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import small
from policytest._base.compiled.small import Call, Draws, Limits, RolloutState, Transcript
from policytest._base.record import Record, numbers_of, part_of, record
from policytest.data.simulators import Draw
from policytest.eprocess.capital import EProcess, TwoSided
from policytest.kl.sampler import UNLIMITED
from policytest.payoffs import splitting
from policytest.payoffs.fit import Fit
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.td_rollouts import SLACK, Rollouts

WINDOW, MOST_FREE = 4, 64  # unsettled rollouts for each one at work: of those that drew something, and in all
FIRST, SAMPLES_A_LANE = 2, 8  # rollouts at work at first; the samples for one more, since the first plans know nothing
HEAD_START = 2.0  # nats that the capital is behind, since it is shared out among bets
ENVIRONMENT = 1  # sets its random numbers apart from those of the rollout
ROWS = 64  # random numbers of a rollout that are drawn at once
TO_ITS_END = Limits(np.inf, UNLIMITED, 0.0)  # of a call: one rollout
NO_BRANCHES = np.zeros((1, 2))
Transitions: TypeAlias = tuple[IntArray, IntArray, FloatArray]
"""Pairs, next states, and observed rewards."""


class Desk(NamedTuple):
    """What rollouts go on with, one after the other."""

    payoff: Rollouts
    hand: Draws  # all stacks are empty, but for the draw that is handed to a rollout
    seen: Transcript

    def hand_over(self, pair: int, x: int, reward: FloatArray) -> None:
        """The next draw of a pair."""
        self.hand.start[pair + 1], self.hand.successor[0] = 1, x
        self.hand.reward[:] = reward

    def clear(self, pair: int) -> None:
        """Nothing is handed over any more."""
        self.hand.start[pair + 1] = self.hand.at[pair] = 0


class Lane:
    """A rollout that is not settled: it waits for a draw, or for its turn.

    ``longest`` are the steps, or the rows of random numbers, after which it is ended; ``used`` are those rows so far.
    """

    def __init__(self, number: int, plan: BettingPlan, longest: float, rng: np.random.Generator) -> None:
        self.number, self.plan, self.longest, self.rng = number, plan, longest, rng
        self.at, self.branches = RolloutState(), splitting.open_branches() if len(plan.targets) else NO_BRANCHES
        self.numbers, self.used, self.drawn = np.zeros((0, 3)), 0, 0
        self.slot, self.walked = (
            -1,
            list[int](),
        )  # of a simulator that travels: its copy, and the pairs it was asked for
        self.pair = -1  # whose draw it waits for; -1: it has ended
        self.is_served = False  # in this round
        self.sums = np.zeros(2)  # of its side, and of the other one
        self.factors = dict[float, FloatArray]()  # of the capital of a side; once it has ended

    @property
    def has_ended(self) -> bool:
        """Whether it waits for its turn."""
        return self.pair < 0

    @property
    def outcomes(self) -> list[tuple[BettingPlan, FloatArray]]:
        """The plan of each side that it serves, and its sum."""
        plans = (self.plan,) if self.plan.mirrored is None else (self.plan, self.plan.mirrored)
        return [(plan, self.sums[i : i + 1]) for i, plan in enumerate(plans)]

    @property
    def open_branches(self) -> int:
        """How many there are."""
        return int(self.at.state) if self.at.phase == small.BRANCHING and not self.has_ended else 0

    def pause(self, pauses: bool) -> None:
        """In this round it draws, or not."""
        self.is_served = pauses

    def work_at(self, slot: int) -> None:
        """The copy of the simulator that answers it from now on."""
        self.slot = slot

    def take(self, desk: Desk, x: int, reward: FloatArray) -> list[Transitions]:
        """Go on with the draw that it waits for; the transitions that were made."""
        pair, self.is_served, self.drawn = self.pair, True, self.drawn + 1
        if desk.payoff.source.copies is not None:
            self.walked.append(pair)
        desk.hand_over(pair, x, reward)
        found = self.go_on(desk)
        desk.clear(pair)
        return found

    def go_on(self, desk: Desk) -> list[Transitions]:
        """On to the next draw that is missing, or to its end."""
        (payoff, hand, seen), found = desk, list[Transitions]()
        while True:
            if not len(self.numbers):
                self.numbers = self.rng.random((ROWS, 3))
            call = Call(self.at, self.numbers, TO_ITS_END, seen)
            done = payoff.roll_one(self.plan, call, hand, self.branches, self.longest, self.used)
            self.at, self.numbers, self.used = done.at, self.numbers[done.used :], self.used + done.used
            if taken := done.steps:
                found.append((seen.pair[:taken].copy(), seen.x[:taken].copy(), seen.reward[:taken].copy()))
            self.pair = done.missing_pair
            if done.rollouts:
                self._end(np.append(seen.sums[:1], seen.mirrored[:1] if len(seen.mirrored) else 0.0))
            if done.rollouts or self.pair >= 0:
                return found

    def _end(self, sums: FloatArray) -> None:
        """It waits for its turn; what it will make of the capital is known."""
        self.pair, self.sums = -1, sums
        self.factors = {plan.sign: plan.bet.factors(plan.lead + float(won[0])) for plan, won in self.outcomes}

    def restore(self, row: IntArray, at: FloatArray, sums: FloatArray, desk: Desk) -> None:
        """Go on from a kept state; refused where a rollout cannot be under way, or have ended, like that.

        One that has not ended waits for the same draw as before.
        """
        _, _, self.used, self.drawn, is_served, has_ended = map(int, row)
        self.is_served, self.at = bool(is_served), RolloutState(*map(float, at))
        if has_ended:
            self._end(sums)
            if any(won[0] < -plan.L * SLACK for plan, won in self.outcomes):
                raise ValueError("a rollout cannot have ended so low")
            return
        bits: Any = self.rng.bit_generator
        bits.advance(3 * self.used)
        before = self.at
        if not desk.payoff.is_possible(self.plan, before, self.branches):
            raise ValueError("a rollout under way is not possible")
        if self.go_on(desk) or self.has_ended or self.at != before:
            raise ValueError("a rollout under way does not wait for a draw")

    def restore_branches(self, branches: FloatArray, walked: IntArray) -> None:
        """Those that are open, and the pairs that were asked for."""
        self.branches[: len(branches)], self.walked = branches, walked.tolist()


class Lanes:
    """The rollouts under way, in the order of their numbers; ``most`` of them are at work."""

    def __init__(self, payoff: Rollouts, most: int) -> None:
        self.payoff, self.most, self.begun, self.useful, self.wanted = payoff, most, 0, 0, most
        self.unsettled: list[Lane] = []
        self.at_work = self.drew = 0  # of those, how many have not ended; how many needed a draw
        self.seed = np.zeros(0, dtype=np.int64)  # of all random numbers; drawn when the first rollout begins
        pairs, reward = payoff.task.n_states * payoff.task.n_actions, 1 if payoff.task.observes_rewards else 0
        nothing = np.zeros(pairs + 1, dtype=np.int64), np.zeros(1, dtype=np.int32), np.zeros(0)
        hand = Draws(False, *nothing, np.zeros(pairs, dtype=np.int64), np.zeros(reward))
        self.desk = Desk(payoff, hand, payoff.transcript(ROWS))
        payoff.source.make_copies(most)

    # ------------------------------------------------------------ rounds

    @property
    def waiting(self) -> list[Lane]:
        """Those that wait for a draw in this round."""
        return [lane for lane in self.unsettled if not (lane.has_ended or lane.is_served)]

    def next_round(self, bets: TwoSided, required: float) -> None:
        """The oldest may draw again, and new ones begin: as many as are worth it.

        That is as many as it takes to the evidence that is required, if each brings as much as those before. Where
        those that have ended would suffice, only the ones that began before the last of them go on.
        """
        evidence = max(self._foreseen(bets, sign) for sign in (1.0, -1.0))
        growth = (max(evidence, 0.0) + HEAD_START) / (self.useful + self.most)
        taught = FIRST + self.payoff.pool.samples // SAMPLES_A_LANE
        newest = max((lane.number for lane in self.unsettled if lane.has_ended), default=-1)
        worth_it = np.ceil((required - evidence) / growth)
        self.wanted = int(np.clip(worth_it, 0 if newest >= 0 else 1, min(self.most, taught)))
        for i, lane in enumerate(lane for lane in self.unsettled if not lane.has_ended):
            lane.pause(i >= self.wanted and lane.number > newest)

    def _foreseen(self, bets: TwoSided, sign: float) -> float:
        """The evidence of a side if all that have ended were settled."""
        factors = [lane.factors[sign] for lane in self.unsettled if sign in lane.factors]
        return bets[sign].evidence_after(np.prod(factors, axis=0)) if factors else bets[sign].evidence()

    def has_room(self, is_due: bool) -> bool:
        """Whether another rollout may begin; in a large task a fit that ``is_due`` waits until none is under way."""
        if is_due and self.payoff.visited is not None and self.unsettled:
            return False
        is_open = self.drew < WINDOW * self.most and len(self.unsettled) < MOST_FREE * self.most
        return is_open and self.at_work < self.wanted

    def begin(self, plan: BettingPlan) -> None:
        """The next rollout, with this plan, up to its first draw."""
        if not len(self.seed):
            self.seed = self.payoff.source.rng.integers(2**63 - 1, size=2)
        lane = Lane(self.begun, plan, self.payoff.patience, self._stream(self.begun))
        self.begun, self.at_work = self.begun + 1, self.at_work + 1
        self.unsettled.append(lane)
        self._record(lane.go_on(self.desk))
        self._count_end(lane)

    def draw(self, most: int) -> int:
        """One call for all that wait, or as many as are allowed: how many. If it fails, nothing was drawn."""
        asked = self.waiting[:most]
        if not asked:
            return 0
        pairs = np.array([lane.pair for lane in asked])
        x, rewards = self.payoff.source.successors_of(pairs, self._copies(asked))
        made = list[Transitions]()
        for i, lane in enumerate(asked):
            self.drew += not lane.drawn
            made += lane.take(self.desk, int(x[i]), rewards[i : i + 1])
            self._count_end(lane)
        self._record(made)
        return len(asked)

    def _count_end(self, lane: Lane) -> None:
        """A rollout that went on may have ended."""
        if lane.has_ended:
            self.useful, self.at_work = self.useful + (lane.drawn > 0), self.at_work - 1

    def _record(self, transitions: list[Transitions]) -> None:
        """Count the transitions of a round."""
        if transitions:
            self.payoff.pool.record(*(np.concatenate(part) for part in zip(*transitions, strict=True)))

    def next_to_settle(self) -> Lane | None:
        """The oldest rollout, if it has ended; it leaves."""
        if not self.unsettled or not self.unsettled[0].has_ended:
            return None
        lane = self.unsettled.pop(0)
        self.drew -= lane.drawn > 0
        return lane

    # ------------------------------------------------------------ random numbers, and copies of a simulator

    def _sequence(self, number: int, *more: int) -> np.random.SeedSequence:
        """The seed of a rollout, and of its environment."""
        return np.random.SeedSequence([*map(int, self.seed), number, *more])

    def _stream(self, number: int) -> np.random.Generator:
        """The random numbers of a rollout."""
        return np.random.Generator(np.random.PCG64(self._sequence(number)))

    def _copies(self, asked: list[Lane]) -> Draw | None:
        """The environments of these rollouts; none where one simulator answers all."""
        copies = self.payoff.source.copies
        if copies is None:
            return None
        taken = {lane.slot for lane in self.unsettled if not lane.has_ended}
        free = iter(sorted(set(range(len(self.unsettled))) - taken))
        for lane in asked:
            if lane.slot < 0:
                lane.work_at(next(free))
        seeds = (int(self._sequence(lane.number, ENVIRONMENT).generate_state(1)[0]) for lane in asked)
        draw: Draw = copies.of([(lane.slot, seed, lane.walked) for lane, seed in zip(asked, seeds, strict=True)])
        return draw

    # ------------------------------------------------------------ keeping

    def state(self, fit: Fit) -> Record:
        """What is needed to go on later: the plans, and how far each rollout has come."""
        lanes = self.unsettled
        plans = list({id(lane.plan): lane.plan for lane in lanes}.values())
        places = {id(plan): i for i, plan in enumerate(plans)}
        rows = [
            (*(lane.number, places[id(lane.plan)], lane.used, lane.drawn), *(lane.is_served, lane.has_ended))
            for lane in lanes
        ]
        kept = {
            "progress": np.array([self.begun, self.useful, self.wanted], dtype=np.int64),
            "seed": self.seed.copy(),
            "rollouts": np.array(rows, dtype=np.int64).reshape(-1, 6),
            "open": np.array([lane.open_branches for lane in lanes], dtype=np.int64),
            "at": np.array([lane.at for lane in lanes]).reshape(-1, len(RolloutState())),
            "sums": np.array([lane.sums for lane in lanes]).reshape(-1, 2),
            "longest": np.array([lane.longest for lane in lanes], dtype=np.float64),
            "walked": np.array([pair for lane in lanes for pair in lane.walked], dtype=np.int64),
            "branches": np.concatenate([NO_BRANCHES[:0], *(lane.branches[: lane.open_branches] for lane in lanes)]),
        }
        return kept | record(**{f"plan{i}": fit.state(plan) for i, plan in enumerate(plans)})

    def restore(self, state: Record, fit: Fit, process: EProcess) -> None:
        """Go on from a kept state; rollouts that cannot be under way are refused. The fit is to be restored next."""
        self.begun, self.useful, self.wanted = (int(part) for part in state["progress"])
        self.seed, rows = np.array(state["seed"], dtype=np.int64), np.array(state["rollouts"], dtype=np.int64)
        at, sums = numbers_of(state, "at", len(rows), len(RolloutState())), numbers_of(state, "sums", len(rows), 2)
        longest, branches = numbers_of(state, "longest", len(rows)), numbers_of(state, "branches", None, 2)
        numbers, walked = rows[:, 0], np.array(state["walked"], dtype=np.int64)
        n_open = np.array(state["open"], dtype=np.int64)
        if (
            (np.diff(numbers) <= 0).any()
            or ((numbers < 0) | (numbers >= self.begun)).any()
            or (rows < 0).any()
            or (n_open < 0).any()
        ):
            raise ValueError("the rollouts under way are not numbered in their order")
        plans = [self._plan(i, state, float(longest[rows[:, 1] == i][0]), fit, process) for i in np.unique(rows[:, 1])]
        self.unsettled = []
        for i, row in enumerate(rows):
            lane = Lane(int(row[0]), plans[row[1]], float(longest[i]), self._stream(int(row[0])))
            asked = int(row[3]) if self.payoff.source.copies is not None else 0
            lane.restore_branches(branches[: n_open[i]], walked[:asked])
            branches, walked = branches[n_open[i] :], walked[asked:]
            lane.restore(row, at[i], sums[i], self.desk)
            self.unsettled.append(lane)
        self.at_work = sum(not lane.has_ended for lane in self.unsettled)
        self.drew = sum(lane.drawn > 0 for lane in self.unsettled)

    def _plan(self, i: int, state: Record, longest: float, fit: Fit, process: EProcess) -> BettingPlan:
        """A plan of rollouts under way, with the steps that were allowed then."""
        clock = self.payoff.clock
        if clock is None or self.payoff.totals is not None:
            return fit.restore(part_of(state, f"plan{i}"), process)
        now = clock.longest
        clock.limit(longest)
        found = fit.restore(part_of(state, f"plan{i}"), process)
        clock.limit(now)
        return found
