"""What a page says, as plain data: one `Story` for each kind of result. The sentences are those of `results.sentences`.

The page is filled from the story and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from policytest._base.table import Row, Shown
from policytest._base.text import number, plural, probability
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.mdp.task import Names
from policytest.plots.changes import top_changes
from policytest.results import large_sample, sentences
from policytest.results.by_task import ByTask
from policytest.results.estimate import Estimate
from policytest.results.needed import few
from policytest.results.plan import Plan
from policytest.results.selection import Selection
from policytest.results.verdict import Verdict
from policytest.study.table import Study

YES, NO, OPEN, UNCERTIFIED = "yes", "no", "open", "uncertified"
TONES: dict[str | None, str] = {"above": YES, "below": NO}
CHANGES = {True: "What would have to be different, in numbers", False: "What speaks for the other side"}
NO_BOUND = "No lower bound is known for such a task."
MOST_MEANS = 60


@dataclass(frozen=True)
class ColumnTable:
    """A table with columns, the first few of which (``words``) are text and the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


@dataclass(frozen=True)
class Story:
    """All that a page says, apart from its pictures and where the data come from."""

    question: str
    word: str
    claim: str
    lead: str
    tone: str = OPEN
    badge: str = ""
    proof: str = ""
    facts: Sequence[Row] = ()  # numbers to be seen at once
    background: tuple[str, ...] = ()
    next_steps: Sequence[str] = ()
    warnings: Sequence[str] = ()
    changes_title: str = ""
    changes_words: str = ""
    changes: tuple[tuple[str, str, str, str], ...] = ()
    tables: tuple[ColumnTable, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: Sequence[str] = ()
    guarantee: Sequence[str] = ()
    assumptions: Sequence[str] = ()
    recipe: tuple[str, ...] = ()
    recipe_words: str = "The same seed and the same data give the same result."

    @property
    def headline(self) -> str:
        """The answer as one line."""
        return f"{self.word} {self.claim}".strip()


@singledispatch
def tell(result: Shown, question: str | None = None, suppress_below: int = 0) -> Story:
    """The story of any result that has a summary."""
    table = result.summary
    return Story(question or "A result", "", table.title, "", rows=table.rows, notes=tuple(table.notes))


# ---------------------------------------------------------------- each kind


@tell.register
def verdict_story(verdict: Verdict, question: str | None = None, suppress_below: int = 0) -> Story:
    """Is the value above the threshold, or the difference above the margin."""
    alone, rows = verdict.about == "value", safe_rows(verdict.summary.rows, suppress_below)
    budget = verdict.provenance.budget
    seen, more = how_many(verdict.samples, suppress_below), budgeted(budget)
    samples = sentences.after(seen, verdict.counts, budget, verdict.about)
    place = Names(verdict.task.states, verdict.task.actions).place
    hidden = f"Counts from 1 to {suppress_below - 1} are not shown, nor what would give them away."
    after = f"{plural(verdict.proof_samples, 'sample')} drawn for the proof, after the answer had been found."
    of_episodes = sentences.is_about_episodes(verdict.task)
    who, given = ("agent", "episodes") if of_episodes else ("policy", "task, sim")
    call = f"decide({given}, threshold={verdict.threshold:g}, delta={verdict.delta:g}, rng=seed{more})"
    if isinstance(verdict.task, LoggedEpisodes):
        call = f"assess(log, threshold={verdict.threshold:g}, delta={verdict.delta:g})"
    if sentences.is_about_trials(verdict.task):
        samples = how_many(verdict.samples, suppress_below).replace("sample", "trial")
        bar = f"threshold={verdict.threshold:g}" if alone else f"margin={verdict.threshold:g}"
        call = f"{'assess(log' if alone else 'compare(log_a, log_b'}, {bar}, delta={verdict.delta:g}{more})"
    elif not alone:
        both = "agent_a, agent_b" if of_episodes else "task_a, task_b, sim"
        call = f"compare({both}, delta={verdict.delta:g}, margin={verdict.threshold:g}, rng=seed{more})"
    return Story(
        question or (f"Is this {who} good enough?" if alone else f"Which {who} is better?"),
        *sentences.claim(verdict),
        sentences.lead(verdict, samples),
        _tone(verdict.answer is not None, verdict.certified, TONES.get(verdict.answer, OPEN)),
        "no guarantee" if verdict.flaws else sentences.badge(verdict.certified, verdict.approximate),
        sentences.about_proof(verdict)[1],
        picked(rows, "estimate", "interval", counted(rows), "evidence"),
        background=tuple(sentences.asked(verdict)),
        next_steps=sentences.next_steps(verdict) if verdict.answer is None else (),
        warnings=[*sentences.warnings(verdict), *([hidden] if suppress_below > 1 else ())],
        changes_title=CHANGES[bool(verdict.answer)],
        changes_words=sentences.about_changes(verdict),
        changes=tuple(
            (place(c.state, c.action, c.successor), f"{c.observed:.3f}", f"{c.needed:.3f}", f"{c.visits:,}")
            for c in top_changes(verdict, suppress_below=suppress_below)
        ),
        tables=() if verdict.alongside.by_task is None else (_tasks_table(verdict.alongside.by_task),),
        rows=rows,
        notes=(after,) if verdict.proof_samples else (),
        guarantee=sentences.guarantee(verdict),
        assumptions=sentences.assumptions_of(
            verdict.provenance.asked_of or verdict.task, approximate=verdict.approximate
        ),
        recipe=_recipe("verdict", call),
    )


def _tasks_table(found: ByTask) -> ColumnTable:
    """A row for each task."""
    rows = [
        (one.task, one.words(found.about), number(one.estimate), one.reach, f"{one.outcomes:,}") for one in found.tasks
    ]
    columns = "task", "answer", "estimate", "interval", "pairs" if found.about == "difference" else "trials"
    return ColumnTable(found.title, columns, tuple(rows))


@tell.register
def estimate_story(found: Estimate, question: str | None = None, suppress_below: int = 0) -> Story:
    """How good is the policy."""
    rows = safe_rows(found.summary.rows, suppress_below)
    samples = sentences.after(how_many(found.samples, suppress_below), found.counts, found.budget)
    wanted = "" if found.epsilon is None else f"epsilon={found.epsilon:g}, "
    who, given = ("agent", "episodes") if sentences.is_about_episodes(found.task) else ("policy", "task, sim")
    more = "Sample on, with a larger max_samples: the interval narrows like one over the root of the samples."
    return Story(
        question or f"How good is this {who}?",
        _word(found.certified, found.approximate),
        sentences.estimate_claim(found),
        sentences.estimate_lead(found, samples),
        _tone(found.reached, found.certified),
        sentences.badge(found.certified, found.approximate),
        sentences.proof_sentence(
            "The interval", found.certified, found.task.assumptions, found.flaws, found.approximate
        ),
        picked(rows, "value", "interval", counted(rows), "epsilon" if wanted else "budget"),
        background=tuple(sentences.described(found.task, "What is {}?")),
        next_steps=() if found.reached else (more,),
        rows=rows,
        guarantee=(sentences.estimate_guarantee(found), *sentences.uncertified_guarantee(found)),
        assumptions=sentences.assumptions_of(found.task, approximate=found.approximate),
        recipe=_recipe("found", f"evaluate({given}, {wanted}delta={found.delta:g}, rng=seed{budgeted(found.budget)})"),
    )


@tell.register
def plan_story(found: Plan, question: str | None = None, _: int = 0) -> Story:
    """How many samples it will take."""
    known, least = sentences.best_methods(found)
    rows, bound = found.summary.rows, _bound_words(found)
    claim = "No number of samples is enough." if found.samples else "There is nothing to plan with."
    facts = picked(rows, *(() if bound == NO_BOUND else ("bound", "saving")), "value")
    if (best := known or least) is not None:
        about = "At least" if best in found.at_least else "About"
        claim = f"{about} {few(found.samples[best][0])} samples, with {best}."
        facts = [*(row for row in rows if row.label == best), *facts]
    beware = tuple(note for note in found.notes if note.startswith("Beware"))
    asked, given = "Is {} above " + f"{number(found.threshold)}?", "task, guess"
    if found.about == "difference":
        asked, given = "Is {} larger, by more than " + f"{number(found.threshold)}, than that of another one?", "(a, b)"
    more = "" if found.powered is None else f", power={found.powered.power:g}"
    claim += "" if found.powered is None else f" {sentences.capital(found.powered.words)}."
    return Story(
        question or "How many samples will it take?",
        "",
        claim,
        f"That is if the guess is right, for a probability of error of at most {probability(found.delta)}. {bound}",
        OPEN,
        "forecast",
        "A plan promises nothing: it is as good as its guess. The test that follows keeps its guarantee whatever the "
        "plan said.",
        facts,
        background=tuple(sentences.described(found.task, asked)),
        warnings=beware,
        tables=(_methods_table(found),) if found.samples else (),
        rows=rows,
        notes=tuple(note for note in found.notes if note not in beware),
        assumptions=(
            *sentences.markov(found.task),
            "The guess of the transitions is right, or as uncertain as its pilot data say.",
            *sentences.own_assumptions(found.task),
        ),
        recipe=_recipe("found", f"plan({given}, threshold={found.threshold:g}, delta={found.delta:g}, rng=seed{more})"),
    )


def _bound_words(found: Plan) -> str:
    """What no test can do better than."""
    if found.allocation is None and found.bound == 0 and not math.isfinite(found.time[1]):
        return NO_BOUND
    if not math.isfinite(found.bound):
        return "At this guess the value equals the threshold, and no test ever ends."
    return f"Lower bound: no test needs fewer than {few(found.bound)} on average."


def _methods_table(found: Plan) -> ColumnTable:
    """A row for each method; the range of single runs where a method has one."""
    columns, rows = ["method", "mean samples", "from", "to"], []
    for name, (mean, low, high) in found.samples.items():
        rows.append([name, f"{'> ' if name in found.at_least else ''}{few(mean)}", few(low), few(high)])
    if found.runs:
        columns.append("nine runs in ten")
        for row in rows:
            row.append(" to ".join(map(few, found.runs.get(row[0], ()))))
    return ColumnTable("Methods", tuple(columns), tuple(map(tuple, rows)))


@tell.register
def selection_story(found: Selection, question: str | None = None, suppress_below: int = 0) -> Story:
    """Which policy, or which agent, is best."""
    samples = sentences.after(how_many(found.samples, suppress_below), found.counts, found.budget)
    delta = probability(found.delta)
    rows = safe_rows(found.summary.rows, suppress_below)
    reason = found.reason if not found.answered else sentences.why_uncertified(found)
    lead = f"After {samples}: {found.settled} of {found.questions} {sentences.settled_words(found)} ({reason})."
    known: tuple[str, ...] = (*sentences.MARKOV[:1], "Rewards, initial distribution and discount are the ones given.")
    who, call = "policy", "rewards, initial, discount, sim"
    if found.agents:
        who, call, known = "agent", "agents", sentences.markov(found.names)
    zone = f", indifference={found.indifference:g}" if found.indifference else ""
    proof = sentences.proof_sentence("The answer", found.certified, found.assumptions, found.flaws)
    more = (
        "Search again with a larger max_samples. Where the best two are exactly as good, no number of samples ends it."
    )
    return Story(
        question or f"Which {who} is best?",
        _word(found.certified) if found.answered else "Not settled yet:",
        sentences.selection_claim(found),
        f"Found after {samples}, with a probability of error of at most {delta}." if found.certified else lead,
        _tone(found.answered, found.certified),
        sentences.badge(found.certified) if found.answered else "",
        proof if found.answered else "",
        picked(rows, "settled", counted(rows), "delta"),
        next_steps=() if found.answered else (more,),
        tables=(_agents_table(found),) if found.agents else (),
        rows=rows,
        notes=found.summary.notes,
        guarantee=(sentences.selection_guarantee(found), *_without_proof(found)),
        assumptions=sentences.assumptions_of(found.names, known),
        recipe=_recipe("found", f"identify({call}, delta={found.delta:g}, rng=seed{zone}{budgeted(found.budget)})"),
    )


def _without_proof(found: Selection) -> list[str]:
    """What an answer without a certificate means."""
    return sentences.uncertified_guarantee(found) if found.answered else []


def _agents_table(found: Selection) -> ColumnTable:
    """A row for each agent."""
    columns = "agent", "still in", sentences.of_episodes(found.names), "from", "to", "episodes"
    rows = [
        (one.name, sentences.YES_NO[one.is_in], *map(number, (one.value, one.lower, one.upper, one.episodes)))
        for one in found.agents
    ]
    return ColumnTable("Agents", columns, tuple(rows), 2)


@tell.register
def study_story(study: Study, question: str | None = None, _: int = 0) -> Story:
    """How methods compare."""
    methods, instances = ({row[key] for row in study.table} for key in ("method", "instance"))
    runs = len({(row["instance"], row["method"], row["seed"]) for row in study.table})
    wrong = sum(mean["wrong"] for mean in study.means)
    shown = tuple(
        (
            mean["method"],
            mean["instance"],
            probability(mean["delta"]),
            number(mean["runs"]),
            f"{'> ' if mean['cut'] else ''}{few(mean['mean'])}",
            few(mean["standard_error"]),
            number(mean["wrong"]),
        )
        for mean in study.means[:MOST_MEANS]
    )
    columns = ("method", "instance", "delta", "runs", "mean samples", "standard error", "wrong answers")
    left_out = len(study.means) - MOST_MEANS
    return Story(
        question or study.title or "How do these methods compare?",
        "",
        f"{plural(runs, 'run')} of {plural(len(methods), 'method')} on {plural(len(instances), 'instance')}.",
        f"{plural(wrong, 'wrong answer')} in {plural(len(study.table), 'row')} (one row for each run and delta).",
        OPEN,
        tables=(ColumnTable("Mean samples", columns, shown, 2),),
        warnings=study.problems,
        rows=(
            Row("runs", number(runs)),
            Row("methods", ", ".join(sorted(methods))),
            Row("instances", ", ".join(sorted(instances))),
        ),
        notes=(
            *study.notes,
            *((f"{left_out:,} more rows are left out.",) if left_out > 0 else ()),
            "Each row is one run of one method with its own seed. Where runs were cut at their largest number of "
            "samples the mean is a lower bound, and marked by >.",
        ),
    )


# ---------------------------------------------------------------- small words


def _tone(answered: bool, certified: bool, answer: str = YES) -> str:
    """The colour of a page: that of the answer only if it is certified."""
    return OPEN if not answered else answer if certified else UNCERTIFIED


def _word(certified: bool, approximate: bool = False) -> str:
    """What comes before a claim that is not certified."""
    if approximate:
        return f"{sentences.capital(large_sample.LABEL)}, not certified:"
    return "" if certified else f"{sentences.NO_RELIABLE_ANSWER}. Not certified:"


def _recipe(name: str, call: str) -> tuple[str, ...]:
    """How to get the result, and this page, in Python."""
    return ("import policytest as pt", "", f"{name} = pt.{call}", f'pt.report.write({name}, "report.html")')


def how_many(count: int, suppress_below: int) -> str:
    """A number of samples, or that it is small."""
    return f"fewer than {suppress_below} samples" if 0 < count < suppress_below else plural(count, "sample")


def budgeted(budget: int | None) -> str:
    """The argument of a call."""
    return "" if budget is None else f", budget={budget}"


def counted(rows: Sequence[Row]) -> str:
    """The key of what a result counts: episodes, where there are some, or samples."""
    return "episodes" if any(row.key == "episodes" for row in rows) else "samples"


def picked(rows: Sequence[Row], *keys: str) -> list[Row]:
    """The rows with these keys, in this order."""
    by_key = {row.key: row for row in rows}
    return [by_key[key] for key in keys]


def safe_rows(rows: Sequence[Row], suppress_below: int) -> tuple[Row, ...]:
    """The rows of a summary, small counts hidden."""
    return tuple(
        Row(row.label, f"fewer than {suppress_below}", row.remark, row.key)
        if row.key == "samples" and isinstance(row.raw, int) and 0 < row.raw < suppress_below
        else row
        for row in rows
    )
