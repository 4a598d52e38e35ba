"""Every sentence about a result, once: for its summary, for the report and for the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from policytest._base.arrays import FloatArray
from policytest._base.table import Document, Row
from policytest._base.text import nats, number, plural, probability
from policytest.data.counts import CELLS, UNTESTED
from policytest.data.episodes import INDEPENDENT, MEAN_RETURN, POLICIES, Episodes
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.ranges import DECLARED
from policytest.data.trials import IN_ITS_TASK, TRIALS, MatchedTrials
from policytest.mdp.task import Names, Task, given, rivals_of
from policytest.results import large_sample
from policytest.results.saved import Seen

if TYPE_CHECKING:
    from policytest.results.estimate import Estimate
    from policytest.results.plan import Plan
    from policytest.results.selection import Selection
    from policytest.results.verdict import Verdict

NOBODY = Names(None, None)
Subject = Task | Episodes | LoggedEpisodes | MatchedTrials | Names
"""What a result is about; of a saved one, names and assumptions alone."""

ONE_SIDED = "one-sided ends, 1 - delta each"
TWO_SIDED = "two-sided, 1 - delta"
CERTAIN = "certain, whatever the unknown rows are"
NO_DATA = "this follows from the rewards alone, no data were used"
NOT_BETTER = {True: "worse", False: "not better"}  # whether the margin is 0
YES_NO = {True: "yes", False: "no"}
MOST_NAMED = 12  # states, or actions, that are listed
ERROR = "probability of a wrong answer, at most"
MARKOV = (
    "The next state depends on the current state and the action alone, and by the same law throughout.",
    "Rewards, policy, initial distribution and discount are the ones given; so is the support, where one was declared.",
)
DRAWS = "Draws are independent given their state and action, and no sample was chosen by looking ahead."
CHECKED = "Everything was compared with the range that was declared for it."
PROCEDURE = "It is a statement about the procedure, over repetitions"
REFUTED = "the data refute the Markov model"
CONTRADICTED = "the data contradict every value, so that an assumption of the test fails"
SEARCHED = "rests on a local optimum, which is not proved to be the global one"
OVER_TASKS = " over all tasks"
NO_RELIABLE_ANSWER = "No reliable answer"
NOT_LOST = "Nothing is lost: sampling on keeps the guarantee"
ONE_LOOK = "One look is all that there is"
SPENT = "A larger budget keeps the guarantee, but little capital may be left for it"
WORDS = {
    "above": "above the threshold",
    "below": "below the threshold",
    "within": "within the indifference zone around the threshold",
    None: "undecided",
}

# ---------------------------------------------------------------- any result


def sure(delta: float) -> str:
    """The probability 1 - delta.

    >>> sure(0.05), sure(1e-9)
    ('0.95', '1 - 1e-09')
    """
    return f"{1.0 - delta:.4g}" if delta >= 1e-4 else f"1 - {delta:.3g}"


def two_sided(delta: float, approximate: bool = False) -> str:
    """What an interval of `value_interval` and `evaluate` is.

    >>> two_sided(0.05)
    'anytime-valid 95% interval (two-sided)'
    """
    kind = large_sample.KIND if approximate else "anytime-valid"
    return f"{kind} {f'{100 * (1 - delta):.4g}%' if delta >= 1e-4 else f'({sure(delta)})'} interval (two-sided)"


def one_sided(delta: float) -> str:
    """What the interval of a verdict is: its ends hold by the same bets as the answer.

    >>> one_sided(0.05)
    'each end holds with probability 0.95, at any time'
    """
    return f"each end holds with probability {sure(delta)}, at any time"


def interval_row(label: str, ends: tuple[float, float], remark: str, key: str = "interval") -> Row:
    """An interval in a summary."""
    return Row(label, between(*ends), remark, key, list(ends))


def between(low: float, high: float) -> str:
    """Both ends, or the one that is known.

    >>> between(0.5, 2.0), between(3.0, math.inf), between(-math.inf, 3.0)
    ('0.5 to 2', '3 or more', '3 or less')
    """
    if math.isinf(low) and math.isinf(high):
        return "not known yet"
    if math.isinf(low) == math.isinf(high):
        return f"{number(low)} to {number(high)}"
    return f"{number(low)} or more" if math.isinf(high) else f"{number(high)} or less"


def badge(certified: bool, approximate: bool = False) -> str:
    """Whether an answer is proved, in a word."""
    if approximate:
        return f"{large_sample.LABEL}, not certified"
    return "certified" if certified else "not certified"


def proof(certified: bool, assumptions: Sequence[str], flaws: Sequence[str] = (), approximate: bool = False) -> str:
    """What an answer rests on, as a remark."""
    if flaws:
        return f"{'; '.join(flaws)}: no guarantee holds"
    if approximate:
        return f"a {large_sample.LABEL}{given(large_sample.assumed(assumptions, approximate))}"
    return f"proved{given(assumptions)}" if certified else SEARCHED


def proof_sentence(
    subject: str, certified: bool, assumptions: Sequence[str], flaws: Sequence[str] = (), approximate: bool = False
) -> str:
    """What an answer rests on, as a sentence."""
    words = proof(certified, assumptions, flaws, approximate)
    return f"{capital(words)}." if flaws else f"{subject} {'is ' if certified or approximate else ''}{words}."


def why_uncertified(result: Verdict | Estimate | Selection) -> str:
    """Why a result is not certified, in words."""
    if result.flaws:
        return "; ".join(result.flaws)
    return large_sample.WHY if is_approximate(result) else f"the answer {SEARCHED}"


def uncertified_label(result: Verdict | Estimate | Selection) -> str:
    """What a result is that is not certified."""
    is_sample = is_approximate(result) and not result.flaws
    return large_sample.LABEL if is_sample else NO_RELIABLE_ANSWER.lower()


def is_approximate(result: Verdict | Estimate | Selection) -> bool:
    """Whether a result is a large-sample one."""
    return bool(getattr(result, "approximate", False))


def headline(result: Verdict | Estimate | Selection, said: str) -> str:
    """The first line of a result that says this, and whether it is certified."""
    if result.certified:
        return f"{said} ({badge(True)})"
    if is_approximate(result) and not result.flaws:
        return large_sample.title(said)
    return f"{NO_RELIABLE_ANSWER}: {why_uncertified(result)} ({badge(False)}: {uncapital(said)})"


def assumptions_of(task: Subject, known: Sequence[str] | None = None, approximate: bool = False) -> tuple[str, ...]:
    """All that a guarantee rests on."""
    draws = () if is_about_episodes(task) else (DRAWS,)
    return (*(markov(task) if known is None else known), *draws, *own_assumptions(task, approximate))


def markov(task: Subject) -> tuple[str, ...]:
    """What is assumed of the process, and what is given."""
    if is_about_trials(task):
        return ()
    if is_about_episodes(task):
        return (CHECKED,) if any(words.endswith(DECLARED) for words in task.assumptions) else ()
    if not isinstance(task, Task) or task.is_discounted_table:
        return MARKOV
    law, given = MARKOV
    if task.goal:
        return law, given.replace("Rewards, policy, initial distribution and discount", "Goal, policy and start")
    if task.observes_rewards:
        law = law.replace("The next state depends", "The next state and the reward depend")
        given = given.replace("Rewards, policy", "The range of rewards, policy")
    bound = " So is the bound on the total of any episode." if task.total_rewards is not None else ""
    return law, given + bound


def own_assumptions(task: Subject, approximate: bool = False) -> tuple[str, ...]:
    """The assumptions of a task as sentences, and those of large samples."""
    return tuple(f"{capital(words)}." for words in large_sample.assumed(task.assumptions, approximate))


def capital(words: str) -> str:
    """The beginning of a sentence."""
    return words[:1].upper() + words[1:]


def uncapital(words: str) -> str:
    """A beginning of a sentence in the middle of another one."""
    return words[:1].lower() + words[1:]


# ---------------------------------------------------------------- a verdict


def title(v: Verdict) -> str:
    """The answer in one line: the title of its summary."""
    if not v.answer:
        lost = f"; {'; '.join(v.flaws)}: no answer would be certified" if v.flaws and not v.refutes_model else ""
        return f"Undecided: {v.reason}{lost}"
    claim = f"The {measured(v)} is {WORDS[v.answer]}" if v.about == "value" else f"{rivals(v)[0]} {answered(v)}"
    return f"{headline(v, claim)}{f': {known(v)}' if v.is_known else ''}"


def answered(v: Verdict) -> str:
    """The answer: of one policy a value, of two what policy A is."""
    if v.about == "value" or v.answer is None:
        return WORDS[v.answer]
    R, other = number(v.threshold), rivals(v)[1]
    if v.answer == "within":
        zone = f", give or take {number(v.indifference)}" if v.indifference else ""
        return f"{f'is better than {other} by {R}' if v.threshold else f'is as good as {other}'}{zone}"
    better = "better" if v.answer == "above" else NOT_BETTER[v.threshold == 0]
    return f"is {better} than {other}{f' by more than {R}' if v.threshold else ''}"


def rivals(v: Verdict) -> tuple[str, str]:
    """What is compared: agents by their names, or policies; the first one at the beginning of a sentence."""
    found = rivals_of(v.task)
    return (found[0], found[1]) if found else ("Policy A", "policy B")


def known(v: Verdict) -> str:
    """Why no data were needed."""
    return "this follows from the declared range, no episodes were run" if is_about_episodes(v.task) else NO_DATA


def claim(v: Verdict) -> tuple[str, str]:
    """(the answer in a word, what it says): the headline of its page."""
    alone, R, value = v.about == "value", number(v.threshold), quantity(v.task)
    margin, (first, second) = "" if v.threshold == 0 else f" by more than {R}", rivals(v)
    if v.answer is None:
        question = f"its {value} is above {R}" if alone else f"{uncapital(first)} is better than {second}{margin}"
        return "Not settled yet.", f"The data do not yet say whether {question}."
    word = {"above": "Yes", "below": "No"}.get(v.answer, "Practically equal")
    if v.answer == "within":
        what = f"Its {value} is" if alone else "The difference is"
        said = f"{what} {f'within {number(v.indifference)} of' if v.indifference else 'close to'} {R}."
    elif alone:
        said = f"Its {value} is {v.answer} {R}."
    else:
        said = f"{first} {answered(v)}."
    if v.approximate and not v.flaws:
        return f"{capital(large_sample.LABEL)}: {uncapital(word)}.", said
    return (f"{word}.", said) if v.certified else (f"{NO_RELIABLE_ANSWER}.", f"Not certified: {uncapital(said)}")


def lead(v: Verdict, samples: str) -> str:
    """How the answer came about."""
    if v.answer is None:
        comma = "" if v.provenance.budget is None else ","
        more = ONE_LOOK if is_final(v) else SPENT if v.reason.startswith("the budget") else NOT_LOST
        return (
            f"After {samples}{comma} the evidence is {nats(max(v.evidence))} of the {nats(v.required)} "
            f"that an answer with a probability of error of at most {probability(v.delta)} needs: "
            f"{v.reason or 'the data do not settle it'}. {more}."
        )
    if v.samples == 0:
        return f"{capital(known(v))}."
    if v.flaws:
        return f"Answered after {samples}, but {'; '.join(v.flaws)}: delta bounds nothing here."
    if v.approximate:
        return large_sample.lead(v, samples)
    if not v.certified:
        return f"Answered after {samples}, but the answer {SEARCHED}: delta bounds its error only if it is."
    return f"Answered after {samples}, with a probability of error of at most {probability(v.delta)}."


def about_proof(v: Verdict) -> tuple[str, str]:
    """What the answer rests on, as a remark and as a sentence; "" without an answer."""
    if not v.answer:
        return "", ""
    about = v.certified, v.task.assumptions, v.flaws, v.approximate
    return proof(*about), proof_sentence("The answer", *about)


def one_look_row(what: str, ends: tuple[float, float], delta: float) -> Row:
    """The usual interval."""
    remark = f"approximate {100 * (1 - delta):.4g}% interval for one look at a finished log; not certified"
    return interval_row(f"{what}, one look", ends, remark, "one_look")


def evidence_rows(v: Verdict) -> list[Row]:
    """The evidence of the stronger side; of "within", that against each end of the zone; and its p-value.

    If returns have one known end and there is no answer, that of the side that can be answered.
    """
    required, both = f"of {nats(v.required)} required", list(v.evidence)
    V, R = ("V", "R") if v.about == "value" else ("A - B", "margin")
    if v.refuted is not None:
        (first, second), eps = v.refuted, number(v.indifference)
        rows = [
            Row(f"evidence against {V} <= {R} - {eps}", nats(first), required, "evidence", both),
            Row(f"evidence against {V} >= {R} + {eps}", nats(second), required, "refuted", list(v.refuted)),
        ]
        subject = f"|{V} - {R}| >= {eps}"
    else:
        side, one_end = int(v.evidence[0] < v.evidence[1]), [math.isinf(end) for end in v.interval]
        if v.answer is None and sum(one_end) == 1:
            side = one_end.index(True) ^ 1
        subject = f"{V} {('<=', '>=')[side]} {R}"
        remark = required + about_price(v)
        rows = [Row(f"evidence against {subject}", nats(v.evidence[side]), remark, "evidence", both)]
    name = "p-value, at any time" if not v.approximate else "p-value, approximate"
    return [*rows, Row(name, probability(v.p_value), f"of {subject}", "p_value", v.p_value)]


def about_interval(v: Verdict) -> str:
    """What the interval of the verdict is."""
    if v.is_known:
        return "as declared" if is_about_episodes(v.task) else "whatever the unknown rows are"
    if v.approximate:
        return large_sample.end_of(v, sure(v.delta))
    words = one_sided(v.delta) if v.provenance.interval_kind == ONE_SIDED else two_sided(v.delta)
    searched = v.answer and v.dimension is not None and not v.certified
    return f"{words}, if the search found its ends" if searched else words


def about_bound(v: Verdict) -> str:
    """What `Verdict.lower_bound` is; "" where there is none."""
    if not v.samples or v.answer == "within" or not 0 < v.lower_bound < math.inf:
        return ""
    least = number(math.ceil(v.lower_bound))
    return f"lower bound at the estimate, for this sampling: {least} (another allocation may need fewer)"


def about_estimate(v: Verdict) -> tuple[str, str]:
    """The estimate, and what it rests on."""
    if v.samples and v.interval[0] > v.interval[1]:
        return "none", "the data contradict every value: the interval is empty"
    if v.samples:
        guessed = v.unseen if v.about == "value" else 0
        return number(v.estimate), f"a guess in {plural(guessed, 'pair')} without a sample" if guessed else ""
    low, high = v.interval
    if v.is_known:
        return (number(low) if low == high else "not needed"), "no sample can change the answer"
    return "none", "nothing was drawn yet"


def about_price(v: Verdict) -> str:
    """How the evidence of a KL rule arises: a distance less the price of rows that are not known."""
    strength, price = max(v.evidence), v.dimension
    if price is None or price <= 0 or not math.isfinite(strength):
        return ""
    return f"; a distance of {nats(strength + price)} less {nats(price)} for the unknown rows"


def about_changes(v: Verdict) -> str:
    """What the changes are: only the KL rule says that nothing nearer exists."""
    if v.dimension is None:
        return "The nearest kernel found on the other side of the threshold has, for instance:"
    start = "For this answer to be wrong" if v.answer else "For the value to be on the other side"
    return f"{start}, all of these, and more, would have to be true at once:"


def warnings(v: Verdict) -> list[str]:
    """What to know before relying on a verdict."""
    found = []
    if v.flaws:
        use = "all of the data" if v.counts.selected else "rewards that are known, not estimated"
        if not (v.counts.selected or v.counts.other_rewards):
            use = "propensities as they were when actions were drawn"
            if not v.refutes_model and is_about_episodes(v.task):
                use = "a range that holds, declared before the next run"
            elif CELLS[UNTESTED] in v.flaws:
                use = "rows in their order, and the diagnosis"
            elif not isinstance(v.task, LoggedEpisodes):
                use = "the answer that rests on episodes alone, or states that tell more"
        found.append(f"{capital('; '.join(v.flaws))}. Whatever is said here may be wrong: use {use}.")
    elif v.approximate:
        unit = "pair" if v.about == "difference" else "episode"
        tails = large_sample.told(v.counts.tails, v.counts, unit)
        label = f"A {large_sample.LABEL}, not certified. {large_sample.CERTIFY}" if v.answer else ""
        found += [words for words in (label, tails and f"{capital(tails)}.") if words]
    elif v.answer and not v.certified:
        found.append("Not certified. A method that proves its answer, TDBetting() or PTST(), gives one that is.")
    found += [f"{capital(words)}." for words in v.doubts]
    if v.unseen and v.samples:
        found.append(
            f"{plural(v.unseen, 'pair')} of state and action that the policy takes "
            f"{'was' if v.unseen == 1 else 'were'} never sampled. The answer allows for anything there."
        )
    return found


def forecast(v: Verdict) -> str:
    """How many more samples settle it, or how to ask; "" where neither is known."""
    if v.forecast.needed is not None:
        return v.forecast.needed.words
    ask = "Call still_needed() on this verdict for a forecast of how many more samples settle it."
    return ask if v.may_be_forecast else ""


def asked(v: Verdict) -> list[str]:
    """What was tested, in words: the bar, the policy, the discount, the start and the rewards."""
    if v.about != "value":
        return []
    return described(v.provenance.asked_of or v.task, "Is {} above " + f"{number(v.threshold)}?")


def is_about_episodes(task: Subject) -> bool:
    """Whether a result rests on episodes alone, without a table."""
    return any(assumption.startswith((INDEPENDENT, TRIALS)) for assumption in task.assumptions)


def is_about_trials(task: Subject) -> bool:
    """Whether these episodes are recorded trials."""
    return any(assumption.startswith(TRIALS) for assumption in task.assumptions)


def of_trials(words: str, task: Subject) -> str:
    """Words about episodes, which are called trials where they are."""
    return words.replace("episode", "trial") if is_about_trials(task) else words


def of_episodes(task: Subject) -> str:
    """What is asked about the returns of episodes: their mean, or what their score is about."""
    found = (assumption for assumption in task.assumptions if assumption.startswith((INDEPENDENT, TRIALS)))
    about = next(found, MEAN_RETURN).removeprefix(INDEPENDENT).removeprefix(TRIALS)
    return about.replace(IN_ITS_TASK, OVER_TASKS)


def counted(task: Subject) -> str:
    """What an episode gives: its "return"; or its "outcome", such as a success."""
    return "return" if of_episodes(task).endswith(("return", "returns")) else "outcome"


def measured(result: Verdict | Estimate) -> str:
    """What a result is about: a "value", a "difference", or the mean return of episodes."""
    is_return = result.about == "value" and is_about_episodes(result.task)
    return of_episodes(result.task) if is_return else result.about


def after(samples: str, counts: Seen, budget: int | None = None, about: str = "value") -> str:
    """After how many samples, and episodes or pairs where a result rests on them; and what was allowed beforehand."""
    within = "" if budget is None else f", within the budget of {number(budget)}"
    unit = ("pair of episodes", "pairs of episodes") if about == "difference" else ("episode",)
    return (samples if counts.episodes is None else f"{plural(counts.episodes, *unit)} ({samples})") + within


def quantity(task: Subject) -> str:
    """What a value is."""
    if is_about_episodes(task):
        return of_episodes(task)
    return "probability of reaching the goal" if isinstance(task, Task) and task.goal else "value"


def described(task: Subject, question: str) -> list[str]:
    """A question about the value of a policy, with {} in its place; what it is, the policy, and the start."""
    if isinstance(task, Names):
        return []
    if isinstance(task, MatchedTrials):
        return [f"{question.format(f'the {of_episodes(task)} of {task.name}')} {capital(about_rounds(task))}".strip()]
    if not isinstance(task, Task):
        return _about_episodes(task, question)
    names = [str(name) for name in task.states] if task.states is not None else [str(s) for s in range(task.n_states)]
    found = [_about_goal(task, names, question) if task.goal else _about_rewards(task, question)]
    acts = [str(name) for name in task.actions] if task.actions is not None else [str(a) for a in range(task.n_actions)]
    ends = set(task.ends)
    chosen = [s for s in range(task.n_states) if s not in ends]
    rules = [f"{names[s]}: {_shares(task.policy[s], acts)}" for s in chosen[:MOST_NAMED]]
    more = f"; and {plural(len(chosen) - MOST_NAMED, 'further state')}" if len(chosen) > MOST_NAMED else ""
    found.append(f"The policy: {'; '.join(rules)}{more}.")
    found.append(f"Start: {_shares(task.initial, names)}." + (f" Ends: {_list(names, task.ends)}." if ends else ""))
    return found


def _about_episodes(task: Episodes | LoggedEpisodes, question: str) -> list[str]:
    """The mean return of an episode."""
    until = "" if task.horizon is None else f", over after {plural(task.horizon, 'step')} at the latest"
    counting = f"; a reward one step later counts {number(task.discount)} times as much" if task.discount < 1 else ""
    asked = question.format(f"the {of_episodes(task)} of this {'agent' if isinstance(task, Episodes) else 'policy'}")
    which = task.agent_policy
    acting = f" The agent's policy is the {which} one, {POLICIES[which]}." if which else ""
    low, high = task.bounds
    ends = f", between {number(low)} and {number(high)}" if math.isfinite(low + high) else f", {between(low, high)}"
    ends = "" if math.isinf(low) and math.isinf(high) else ends
    counts = f"return is the sum of its rewards{counting}{ends}"
    if isinstance(task, Episodes) and task.judge is not None:
        counts = f"outcome is {task.judge.words}{ends}"
    return [f"{asked} An episode is one of {task.name}{until}; its {counts}.{acting}"]


def budget_rows(budget: int | None, counts: Seen, about: str = "value", task: Subject = NOBODY) -> list[Row]:
    """What was allowed, if that was fixed beforehand."""
    unit = "pairs of episodes" if about == "difference" else "episodes"
    unit = "transitions" if counts.episodes is None else unit
    if is_about_trials(task):
        unit = f"{unit.replace('episodes', 'trials')}{' in each task' if OVER_TASKS in of_episodes(task) else ''}"
    return [] if budget is None else [Row("budget", number(budget), f"{unit}, fixed beforehand", "budget", budget)]


def episode_rows(counts: Seen, samples: int, about: str = "value", task: Subject = NOBODY) -> list[Row]:
    """How many episodes, or pairs of them, a result rests on, where it does; and how many samples belong to others."""
    found, total = counts.episodes, samples if counts.total is None else counts.total
    if found is None:
        return []
    others, unit = samples - total, "pairs of episodes" if about == "difference" else "episodes"
    if is_about_trials(task):
        remark = f"all of them; the answer was reached after {number(samples)} of {plural(total, 'trial')}"
        remark = remark if samples < total else ""
        remark = "; ".join(filter(None, (remark, about_rounds(task))))
        return [Row(unit.replace("episodes", "trials"), number(found), remark, "episodes", found)]
    short = "pairs" if about == "difference" else "episodes"
    remark = f"{plural(others, 'sample')} of {short} that were under way" if others else ""
    if others < 0:  # of a log, which is read to its end
        remark = f"all of the log; the answer was reached after {number(samples)} of its {plural(total, 'row')}"
    return [Row(unit, number(found), remark, "episodes", found)]


def about_rounds(task: Subject) -> str:
    """How trials were matched; "" of a saved result."""
    if not isinstance(task, MatchedTrials):
        return ""
    found = [plural(task.rounds, "round") + f" of {plural(len(task.tasks), 'task')}"] if len(task.tasks) > 1 else []
    waiting = [f"{number(n)} of {log.name}" for n, log in zip(task.waiting, task.logs, strict=True) if n]
    found += [f"not used: {', '.join(waiting)}"] if waiting else []
    return "; ".join(found)


def agent_rows(task: Subject) -> list[Row]:
    """Which policy of the agent was run, where it has two."""
    which = task.agent_policy
    return [Row("policy of the agent", which, POLICIES[which])] if which else []


def histogram_data(counts: Seen) -> Document:
    """The returns of episodes as JSON: a histogram."""
    found = counts.histogram
    return {} if found is None else {"returns": {"edges": found.edges.tolist(), "episodes": found.episodes.tolist()}}


def doubts_data(counts: Seen) -> Document:
    """What speaks against independent episodes, as JSON, if anything does."""
    return {"doubts": list(counts.doubts)} if counts.doubts else {}


def _about_goal(task: Task, names: Sequence[str], question: str) -> str:
    """The probability of reaching a goal."""
    goals = [int(s) for s in task.goals]
    avoided = [s for s in task.ends if s not in goals]
    before = f" before {_list(names, avoided)}" if avoided else ""
    within = "" if task.horizon is None else f" within {plural(task.horizon, 'step')}"
    asked = question.format(f"the probability that this policy reaches {_list(names, goals)}{before}{within}")
    at_once = " An episode that starts there has reached it." if task.reached_at_start else ""
    return f"{asked}{at_once} An episode that never ends does not reach it."


def _about_rewards(task: Task, question: str) -> str:
    """The expected sum of rewards."""
    low, high = (task.reward_scale * end for end in task.reward_bounds)
    steps = "all rewards" if task.horizon is None else f"the rewards of the first {plural(task.horizon, 'step')}"
    counting = f", a reward one step later counting {number(task.discount)} times as much" if task.discount < 1 else ""
    until = ", until an episode ends" if task.is_total else ""
    values = task.rewards.values if task.observes_rewards else None
    amount = f"between {number(low)} and {number(high)}"
    if values is not None and len(values) <= MOST_NAMED:
        amount = f"one of {', '.join(number(float(v) * task.reward_scale) for v in values)}"
    observed = ", and is observed with the transition" if task.observes_rewards else ""
    total = ""
    if task.total_rewards is not None:
        total = " The total of any episode is between {} and {}.".format(*map(number, task.total_rewards))
    return (
        f"{question.format('the value of this policy')} Its value is the expected sum of {steps} from the start "
        f"on{until}{counting}. A reward is {amount}{observed}.{total}"
    )


def _shares(chances: FloatArray, names: Sequence[str]) -> str:
    """What is chosen, with its probability unless that is 1."""
    taken = [i for i, chance in enumerate(chances) if chance > 0]
    shown = [names[i] if len(taken) == 1 else f"{names[i]} ({probability(chances[i])})" for i in taken[:MOST_NAMED]]
    return ", ".join(shown) + (", ..." if len(taken) > MOST_NAMED else "")


def _list(names: Sequence[str], which: Sequence[int]) -> str:
    return ", ".join(names[i] for i in which[:MOST_NAMED]) + (", ..." if len(which) > MOST_NAMED else "")


def next_steps(v: Verdict) -> list[str]:
    """What to do about an undecided verdict."""
    alone = v.about == "value"
    if is_final(v):
        first = "Nothing: a second look at more episodes has errors of its own. Plan a new test, with a larger budget."
    elif v.snapshot:
        first = (
            "Resume the run with a larger limit on its samples; on the command line, the same command with "
            "--checkpoint FILE. It stops where it would have stopped without the pause."
        )
    elif alone:
        first = "Draw more samples, or add more data, and ask again: looking in between costs nothing."
    else:
        first = (
            "Compare again with a larger limit on the samples, or more data: the samples so far are the first of it."
        )
    equal = (
        f"If the {measured(v)} equals the threshold, no number of samples settles it. A test with an "
        "indifference zone (--indifference) may then answer that they are practically equal."
    )
    return [step for step in (first, forecast(v), equal if alone else "") if step]


def is_final(v: Verdict) -> bool:
    """Whether the one look that there was is over."""
    budget = v.provenance.budget
    is_over = budget is None or v.counts.episodes is None or v.counts.episodes >= budget
    return v.approximate and large_sample.is_one_look(v) and is_over


def guarantee(v: Verdict) -> list[str]:
    """What delta bounds, in plain words."""
    delta, R = probability(v.delta), number(v.threshold)
    if v.about == "value":
        what, other = f"the {quantity(v.task)} were {R} or less", f"it were {R} or more"
        above, below = "above", "below"
    else:
        what, other = f"policy A were better by {R} or less", f"it were better by {R} or more"
        above, below = "A is better", f"A is {NOT_BETTER[v.threshold == 0]}"
    most = "about" if v.approximate else "at most"
    ever = " This holds however often one looks, and whenever one stops."
    if v.approximate and large_sample.is_one_look(v):
        ever = " This holds for one look, after a number of episodes that was fixed beforehand."
    lines = [
        f"Delta is {delta}. If {what}, a test like this one would ever answer “{above}” with probability {most} "
        f"{delta}; and if {other}, “{below}” with probability {most} {delta}.{ever}",
        f"{PROCEDURE}. It is not the probability that this one answer is wrong.",
    ]
    if v.indifference:
        lines.append(
            f"To answer “within” is wrong if the {quantity(v.task) if v.about == 'value' else 'difference'} is "
            f"{number(v.indifference)} or more away from {R}, and that counts, too: "
            f"all wrong answers together have a probability of at most {delta}."
        )
    if v.answer or v.flaws:
        lines += uncertified_guarantee(v)
    if v.certificate is not None:
        lines.append("The proof can be checked without the solver that found it: verdict.verify().")
    return lines


def uncertified_guarantee(result: Verdict | Estimate | Selection) -> list[str]:
    """What is left of a guarantee where the result is not certified, as a sentence."""
    if result.flaws:
        return [f"None of this holds here: {'; '.join(result.flaws)}."]
    if result.certified:
        return []
    if is_approximate(result):
        return large_sample.guarantee()
    return ["For this answer the guarantee holds only if the local search found the global optimum."]


# ---------------------------------------------------------------- an estimate


def half_width(e: Estimate) -> float:
    """Half the width of the interval."""
    return 0.5 * (e.upper - e.lower)


def estimate_claim(e: Estimate) -> str:
    """The estimate in one sentence."""
    if math.isinf(half_width(e)):
        return f"The {quantity(e.task)} is {between(e.lower, e.upper)}."
    return f"The {quantity(e.task)} is {number(e.value)}, give or take {number(half_width(e))}."


def estimate_title(e: Estimate) -> str:
    """The estimate in one line; whether it is certified is said where it is not."""
    missed = "the budget is not used up" if e.epsilon is None else "the wanted precision is not reached"
    said = estimate_claim(e)[:-1] + ("" if e.reached else f": {missed}")
    return said if e.certified else headline(e, said)


def estimate_lead(e: Estimate, samples: str) -> str:
    """How the estimate came about."""
    missed = "budget is not used up" if e.epsilon is None else f"wanted precision, {number(e.epsilon)}, is not reached"
    open_end = "" if e.reached else f" The {missed}."
    ends = f"between {number(e.lower)} and {number(e.upper)}"
    if math.isinf(half_width(e)):
        ends = f"at {between(e.lower, e.upper)}"
    if e.approximate and not e.flaws:
        about = f"with probability of about {sure(e.delta)}, it lies {ends}"
        return f"A {large_sample.LABEL}: after {samples}, {about}; {large_sample.WHY}.{open_end}"
    if not e.certified:
        return f"After {samples} the interval is {ends}, but {why_uncertified(e)}.{open_end}"
    return f"After {samples}, with probability at least {sure(e.delta)}, it lies {ends}.{open_end}"


def estimate_guarantee(e: Estimate) -> str:
    """What the interval promises."""
    if e.approximate:
        return f"With probability of about {sure(e.delta)} the interval contains the {measured(e)}. {PROCEDURE}."
    return (
        f"With probability at least {sure(e.delta)} the interval contains the {measured(e)} at every moment of the "
        f"run at once: it may be looked at as often as one likes. {PROCEDURE}."
    )


# ---------------------------------------------------------------- a selection


def settled_words(s: Selection) -> str:
    """What is counted by ``settled``."""
    if s.indifference:
        return "rivals that are out, or close"
    return "rivals that are out" if s.index is not None else "deviations that do not pay"


def selection_claim(s: Selection) -> str:
    """Which policy, or agent, is best, or leads."""
    who = f"policy {s.index}" if s.index is not None else "this policy"
    if isinstance(s.policy, str):
        who = s.policy
    if not s.answered:
        return f"{who} leads so far."
    close = f", or worse than the best by less than {number(s.indifference)}" if s.indifference else ""
    return f"{capital(who) if not s.agents else who} is {'the best' if s.index is not None else 'optimal'}{close}."


def about_agents(s: Selection) -> tuple[str, ...]:
    """What the numbers of each agent are."""
    if not s.agents:
        return ()
    sure_of = f"each interval holds with probability {sure(s.delta)}, at any time"
    seen = "trials" if is_about_trials(s.names) else "episodes"
    return (
        f"For each agent: the {of_episodes(s.names)}, its interval, and its {seen}; {sure_of}.",
        "Agents are compared within rounds, so that intervals may overlap.",
    )


def selection_guarantee(s: Selection) -> str:
    """What delta bounds."""
    wrong = (
        "a policy that is not the best, or as good," if not s.agents else "an agent that is not the best, or as good,"
    )
    if s.indifference:
        wrong = f"an agent that is worse than the best by {number(s.indifference)} or more"
    return (
        f"The probability of ever returning {wrong} is at most {probability(s.delta)}, however long the search takes."
    )


def selection_title(s: Selection) -> str:
    """The selection in one line."""
    return headline(s, selection_claim(s)[:-1]) if s.answered else f"Undecided: {s.reason}"


# ---------------------------------------------------------------- a plan


def best_methods(p: Plan) -> tuple[str | None, str | None]:
    """The methods with the smallest mean: of those whose mean is known, and of all."""
    means = {name: mean for name, (mean, _, _) in p.samples.items() if math.isfinite(mean)}
    known = {name: mean for name, mean in means.items() if name not in p.at_least}
    return min(known, key=known.__getitem__, default=None), min(means, key=means.__getitem__, default=None)
