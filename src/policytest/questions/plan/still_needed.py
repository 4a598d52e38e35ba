r"""How many more samples an undecided test needs, and from which pairs.

*The KL rule* goes on from the counts N, n at hand: new samples are drawn from the pairs that are behind the shares of
the best allocation at the estimate. If they turn out as estimated, the distance D(t) to the other side is that of the
visits then. But the gap V - R is known only up to an error: D_0 being the distance now, the estimate of the gap after t
samples differs from the present one by the factor 1 - z r, z standard normal,

    r^2 = 1/(2 D_0) - 1/(2 D(t)),        so the distance is about     (1 - z r)^2 D(t)

(a distance being, near by, gap^2/2 over the variance of the estimated gap), and z is such that this suffices with the
probability wanted.

*Other methods* go on from where they were stopped, against kernels that the counts leave possible
(`plan.posterior`), one run each, with a future of its own: so many of these runs end within so many samples.

*Episodes* go on with episodes like those so far (`plan.episodes`).

*A log* is simulated from its start, by the same method, against such kernels: pairs come as often as they did. Those
that are settled sooner than this one are left out. So is that of a comparison of two policies.

*The lower bound* of the verdict holds on average, at the estimate, for any test that samples in the same shares. A
simulated forecast says no less; and where more is needed than would be simulated, the bound is all that it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.record import record
from policytest._base.text import number, plural
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.randomness import Seed, generator, stored
from policytest.data.simulators import TabularSimulator
from policytest.kl.sampler import NOTHING, Recorded
from policytest.mdp.task import Task
from policytest.methods.ptst import PTST
from policytest.methods.run import FROM_COUNTS, FROM_THE_START, Run, go_on, traits_of
from policytest.methods.stacks import StacksRun, replicate_seeds
from policytest.payoffs.coupling import joint_task
from policytest.questions.plan.episodes import further_episodes
from policytest.questions.plan.expected import Prospect, any_unknown, best_allocation, explored
from policytest.questions.plan.posterior import Posterior
from policytest.results.needed import Needed, Simulated, forecast, not_known
from policytest.results.verdict import Verdict
from policytest.worst_case.lower_bound import uniform_allocation
from policytest.worst_case.problem import gap_of, proves

RUNS, LOGS = 40, 20  # that go on, or are simulated, each against another kernel
SETS = 4  # of coins, in a comparison on a log that is simulated
WORK = 10  # samples of all such runs, relative to the most of one
OTHER_SIDE = 0.05  # share of kernels beyond the threshold from which on data do not say the side
AHEAD = ("numbers", "source.k", "source.x")  # what a kept run has drawn ahead
GENERATORS = ("generator", "source.generator")  # and what it draws with


def check_chance(chance: object) -> float:
    """A probability that is worth asking for."""
    found = arrays.real_number("chance", chance)
    if not 0.5 <= found < 1.0:
        raise InputError(f"chance is {chance}; it must be a probability from 0.5 to below 1")
    return found


class Asked(NamedTuple):
    """A forecast that is asked for: of which test, how sure it should be, its randomness, and where runs are cut."""

    verdict: Verdict
    chance: float
    rng: np.random.Generator
    limit: int

    @classmethod
    def checked(cls, verdict: Verdict, chance: float, rng: Seed, max_samples: int) -> Asked:
        """From what the user passed."""
        return cls(verdict, check_chance(chance), generator(rng), count_from("max_samples", max_samples, 1))


def further(verdict: Verdict, chance: float, rng: Seed, max_samples: int) -> Needed:
    """How many more samples settle a test, by the method it was made with; see `policytest.results.verdict.Verdict`."""
    asked = Asked.checked(verdict, chance, rng, max_samples)
    if isinstance(verdict.task, LoggedEpisodes):
        raise InputError(
            "verdict is about recorded episodes, which have no forecast; add episodes and assess the log again"
        )
    if verdict.provenance.budget is not None and verdict.answer is None and verdict.snapshot:
        return _within_budget(asked, verdict.provenance.budget)
    if verdict.counts.episodes is not None:
        return further_episodes(verdict, asked.chance, asked.rng, asked.limit)
    if verdict.about != "value":
        raise InputError(
            "verdict compares two policies, and the forecast is for one; continue with compare(..., resume=verdict)"
        )
    task: Task = verdict.task
    if verdict.answer is not None or verdict.settings is None or not any_unknown(task):
        return _nothing_to_do(asked)
    if not verdict.counts.total and not verdict.snapshot:
        words = "The data have no transition of this task, so nothing can be forecast from them."
        return replace(forecast(verdict, asked.chance, math.inf, words), uniform=math.inf)
    if task.observes_rewards and verdict.forecast.reward_moments is None:
        raise InputError("this verdict does not have the rewards that were observed; ask the one decide() returned")
    if traits_of(verdict.settings).forecast == FROM_COUNTS or not (_is_log(verdict) or verdict.snapshot):
        return _by_distance(asked)
    return _by_simulation(asked)


def _within_budget(asked: Asked, budget: int) -> Needed:
    """What is left of a budget; what a larger one would take is not forecast."""
    verdict, episodes = asked.verdict, asked.verdict.counts.episodes
    unit = "transition" if episodes is None else "episode" if verdict.about == "value" else "pair"
    left = budget - (verdict.samples if episodes is None else episodes)
    words = f"The budget has {plural(left, unit)} left: resume with the same budget."
    if left <= 0:
        words = (
            "The bets aimed at the end of this budget, and little capital may be left. A larger budget goes on with "
            "that; how large it must be is not forecast."
        )
    return replace(forecast(verdict, asked.chance, math.inf, words), method=f"{verdict.method}, resumed")


def _is_log(verdict: Verdict) -> bool:
    """Whether a log was judged in its order, and is simulated from its start."""
    is_bet_on_logs = traits_of(verdict.settings).forecast == FROM_THE_START
    return is_bet_on_logs or not (verdict.task.is_discounted_table or verdict.snapshot)


def _nothing_to_do(asked: Asked) -> Needed:
    """An answer is there, or no sample can change anything."""
    verdict, more, words = asked.verdict, math.inf, "No samples can settle it: no row is unknown."
    if verdict.answer is not None:
        more, words = 0, "No more samples are needed."
    elif any_unknown(verdict.task):
        words = f"No samples can settle it: {verdict.reason}."
    return replace(forecast(verdict, asked.chance, more, words), uniform=more)


def count_from(name: str, given: object, least: int) -> int:
    """A whole number, from ``least`` on."""
    count = arrays.whole_number(name, given)
    if count < least:
        raise InputError(f"{name} is {count}; it must be at least {least}")
    return count


# ---------------------------------------------------------------- the KL rule


def _by_distance(asked: Asked) -> Needed:
    verdict, settings = asked.verdict, asked.verdict.settings
    rule: PTST = settings if traits_of(settings).forecast == FROM_COUNTS else PTST()
    ahead = _Ahead(verdict, rule, asked.chance)
    (total, pairs), (expected, _) = ahead.pairs(ahead.z), ahead.pairs(0.0)
    by = "" if rule is settings else " by PTST()"
    if not math.isfinite(total):
        words = "The data do not say yet on which side of the threshold the value is"
        if math.isfinite(expected):
            words += f"; if the estimate is right, about {plural(int(expected), 'more sample')} settle it{by}"
        words += "."
    elif total == 0:
        words = "No more samples should be needed: the evidence suffices, and only its proof is missing."
    else:
        fewer = ", drawn where they help most instead of in the shares so far:" if total < _at_least(verdict) else ","
        words = f"About {plural(int(total), 'more sample')} should settle it{by}{fewer} {_places(verdict.task, pairs)}."
    method = rule.describe() if rule is settings else f"{rule.describe()}, on the same data"
    found = replace(forecast(verdict, asked.chance, total, words), method=method, expected=expected, pairs=pairs)
    return replace(found, uniform=ahead.uniform(), evidence=ahead.evidence)


class _Ahead:
    """The KL rule from the counts of a verdict on."""

    def __init__(self, verdict: Verdict, rule: PTST, chance: float) -> None:
        task, R, counts = verdict.task, verdict.threshold, verdict.counts
        self.task, self.z = task, float(scipy.special.ndtri(chance))
        share = 1.0 - gap_of(rule.solver) if proves(rule.solver) else 1.0
        kernel = counts.kernel(task)
        self.prospect = Prospect(task, R, verdict.delta, kernel, rule.boundary, counts, share)
        self.visits = self.prospect.visits()
        self.now = self.prospect.distance(np.zeros_like(self.visits)) if counts.total else 0.0
        self.evidence = self.now - self.prospect.dimension(np.zeros_like(self.visits))
        self.omega = explored(best_allocation(task, kernel, R).weights, uniform_allocation(task))

    def pairs(self, z: float) -> tuple[float, IntArray]:
        """How many more, and [S,A] from which pairs, tracking the best shares; infinite where no number is enough."""
        total = self._time(self._behind, z)
        if not math.isfinite(total):
            return math.inf, np.zeros(self.visits.shape, dtype=np.int64)
        found = np.ceil(self._behind(total)).astype(np.int64)
        return int(found.sum()), found

    def uniform(self) -> float:
        """How many more, drawn uniformly."""
        even = uniform_allocation(self.task)
        found = self._time(lambda t: t * even, self.z)
        return int(found) if math.isfinite(found) else math.inf

    def _behind(self, total: float) -> FloatArray:
        """[S,A] what tracking adds until every pair has its share of this total."""
        return np.asarray(np.maximum(total * self.omega - self.visits, 0.0) * (self.omega > 0))

    def _time(self, more: Callable[[float], FloatArray], z: float) -> float:
        """The time at which it is settled, at so many standard deviations of the gap; infinite where it never is."""
        if z > 0 and 2.0 * self.now <= z * z:  # the gap may be of the other sign
            return math.inf

        def distance(t: float) -> float:
            extra = more(t)
            then = self.prospect.distance(extra) if extra.any() else self.now
            if z == 0 or then <= self.now:
                return then
            r = math.sqrt(0.5 / self.now - 0.5 / then)
            return max(1.0 - z * r, 0.0) ** 2 * then

        return self.prospect.time(more, distance)


# ---------------------------------------------------------------- a run that goes on, or a log that goes on


class Future(NamedTuple):
    """What a simulated run came to: how many more samples, whether they settle it, and which pairs they are of."""

    more: int
    is_settled: bool
    drawn: FloatArray


Start = Callable[[int], Run]
"""Starts the test of some seed on a log without rows."""


def _by_simulation(asked: Asked) -> Needed:
    verdict = asked.verdict
    start = partial(_replayed, verdict) if _is_log(verdict) else None
    most = RUNS if start is None else LOGS
    moments = verdict.forecast.reward_moments
    posterior = Posterior(verdict.task, verdict.threshold, verdict.counts, asked.rng, most, moments)
    beyond = float((posterior.gaps * posterior.middle <= 0.0).mean())
    return _simulated(asked, posterior, beyond, start)


def further_comparison(
    verdict: Verdict,
    chance: float,
    rng: Seed,
    max_samples: int,
    tasks: tuple[Task, Task],
    start: Callable[[IntArray], StacksRun],
) -> Needed:
    """The same of two policies on a log: ``start`` starts the test with these sets of coins on a log without rows."""
    asked = Asked.checked(verdict, chance, rng, max_samples)
    if verdict.answer is not None or not verdict.counts.total:
        return _nothing_to_do(asked)
    moments = verdict.forecast.reward_moments
    posterior = Posterior(joint_task(tasks), 0.0, verdict.counts, asked.rng, LOGS, moments)
    truths = [posterior.truth(index) for index in range(len(posterior.seeds))]
    gaps = np.array([truth.value(tasks[0]) - truth.value(tasks[1]) for truth in truths]) - verdict.threshold
    beyond = float((gaps * (verdict.estimate - verdict.threshold) <= 0.0).mean())
    return _simulated(asked, posterior, beyond, lambda seed: start(replicate_seeds(seed, SETS)))


def _simulated(asked: Asked, posterior: Posterior, beyond: float, start: Start | None) -> Needed:
    """The forecast of tests against kernels of the posterior, ``beyond`` of which are on the other side.

    They go on from where the verdict's stands; or, where there is a ``start``, from that of a log.
    """
    verdict, limit = asked.verdict, asked.limit
    task, is_log = posterior.task, start is not None
    drawn, times, budget = np.zeros(task.policy.shape), [], WORK * limit
    least = _at_least(verdict)
    for index in range(len(posterior.seeds) if least <= limit else 0):
        sim = posterior.truth(index).simulator(task)
        found = _resumed(asked, sim) if start is None else _another_log(asked, task, start, sim)
        if found.more < 0:
            continue
        times.append(max(found.more, least) if found.is_settled else math.inf)
        drawn += found.drawn
        budget -= found.more
        if budget <= 0:
            break
    total, middle = (_quantile(times, part) if times else math.inf for part in (asked.chance, 0.5))
    pairs = _shared_out(drawn, total)
    what, kind, kinds = ("rows", "row like these", "rows like these") if is_log else ("samples", "sample", "samples")
    simulated = Simulated(len(times), sum(map(math.isfinite, times)), limit, kinds) if times else None
    if math.isfinite(total):
        places = _places(task, pairs * task.layout.unknown_pairs, int(pairs.sum()))
        words = f"About {plural(int(total), f'more {kind}', f'more {kinds}')} should settle it, {places}."
    elif least > limit:
        words = f"If the estimate is right, at least {number(least)} more {kinds} are needed on average"
    elif simulated is not None:
        words = not_known(what, simulated)
    else:
        words = (
            f"How many more {what} are needed is not known: every simulated test reached an answer before this point"
        )
    if not math.isfinite(total):
        side = f"the {'value' if verdict.about == 'value' else 'difference'} is"
        words += f"; the data do not say on which side {side}." if beyond > OTHER_SIDE else "."
    method = f"{verdict.method}, {'simulated' if is_log else 'resumed'}"
    needed = replace(forecast(verdict, asked.chance, total, words), task=task, method=method, pairs=pairs)
    return replace(needed, expected=middle, simulated=simulated, least=least)


def _at_least(verdict: Verdict) -> int:
    """How many more samples the lower bound of the verdict asks for; 0 where it has none."""
    bound = verdict.lower_bound
    return max(math.ceil(bound) - verdict.samples, 0) if 0.0 < bound < math.inf else 0


def _replayed(verdict: Verdict, seed: int) -> Run:
    """The test of a verdict on a log without rows; of fewer sets of coins, with another seed."""
    fewer = {"coins": 1} if traits_of(verdict.settings).forecast == FROM_THE_START else {}
    method = replace(verdict.settings, **fewer, seed=seed)
    found: Run = method.replay(verdict.task, verdict.threshold, Recorded(NOTHING, NOTHING))
    return found


def _another_log(asked: Asked, task: Task, start: Start, sim: TabularSimulator) -> Future:
    """A log from its start, whose pairs come as often as those of the verdict's log did."""
    verdict, rng = asked.verdict, asked.rng
    visits, end = verdict.counts.visits, verdict.samples + asked.limit
    shares = visits.ravel() / verdict.counts.total
    run, rows = start(int(rng.integers(2**31))), task.layout.row_of_pair
    while run.answer is None and (seen := run.samples if run.reads_all else run.source.size) < end:
        pair = rng.choice(len(shares), size=min(max(verdict.samples, seen // 2), end - seen), p=shares)
        run.source.extend(rows[pair], *_drawn(task, sim, pair, rows[pair] >= 0, rng))
        if run.reads_all:
            run.step(verdict.required, len(pair))
            continue
        go_on(run, verdict.required, run.source.size)
    more = run.used() - verdict.samples
    return Future(more if run.answer is None else max(more, -1), run.answer is not None, shares.reshape(visits.shape))


def _drawn(
    task: Task, sim: TabularSimulator, pair: IntArray, taken: BoolArray, rng: np.random.Generator
) -> tuple[IntArray, ...]:
    """Next states of these pairs, and their rewards where these are observed; 0 for pairs that are not taken."""
    parts = sim.draw(pair[taken] // task.n_actions, pair[taken] % task.n_actions, rng)
    if not task.observes_rewards:
        parts = (parts,)
    found = tuple(np.zeros(len(pair), dtype=part.dtype) for part in parts)
    for column, part, scale in zip(found, parts, (1, task.reward_scale), strict=False):
        column[taken] = part if scale == 1 else part / scale
    return found


def _resumed(asked: Asked, sim: TabularSimulator) -> Future:
    """The run of a verdict as it stood, but with another future."""
    verdict, run = asked.verdict, _restored(asked.verdict, sim, asked.rng)
    go_on(run, verdict.required, verdict.samples + asked.limit)
    drawn = run.counts().visits - verdict.counts.visits
    return Future(run.samples_used - verdict.samples, run.answer is not None, drawn)


def _restored(verdict: Verdict, sim: TabularSimulator, rng: np.random.Generator) -> Run:
    seed = int(rng.integers(2**62))
    zone = {"indifference": verdict.indifference, "both_sides": True} if verdict.indifference else {}
    run: Run = verdict.settings.start(verdict.task, sim, verdict.threshold, seed, **zone)
    kept = {name: part[:0] if name in AHEAD else part for name, part in verdict.snapshot.items()}
    kept |= {name: stored(generator(seed)) for name in GENERATORS if name in kept}
    if verdict.task.observes_rewards:
        kept |= record(payoff=run.source.stacks())  # nothing is drawn ahead
    run.restore(kept)
    return run


def _quantile(times: list[float], chance: float) -> float:
    """The least number within which this share of the runs ended."""
    return sorted(times)[math.ceil(chance * len(times)) - 1]


def _shared_out(drawn: FloatArray, total: float) -> IntArray:
    """[S,A] whole numbers that sum to the total, in proportion to what was drawn."""
    pairs = np.zeros(drawn.shape, dtype=np.int64)
    if math.isfinite(total) and drawn.any():
        ends = np.rint(np.cumsum(drawn.ravel()) * (total / drawn.sum())).astype(np.int64)
        pairs = np.diff(ends, prepend=0).reshape(drawn.shape)
    return pairs


# ---------------------------------------------------------------- words


def _places(task: Task, pairs: IntArray, total: int | None = None) -> str:
    """Where most of them go."""
    top = [pair for pair in np.argsort(-pairs.ravel(), kind="stable")[:3] if pairs.ravel()[pair] > 0]
    places = ", ".join(f"{number(int(pairs.ravel()[pair]))} from {task.place(int(pair))}" for pair in top)
    return places + (
        " and the rest elsewhere" if pairs.ravel()[top].sum() < (pairs.sum() if total is None else total) else ""
    )
