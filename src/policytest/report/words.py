"""The result in plain words: the answer first, what it rests on, what the guarantee means, how to go on.

One `Story` a kind of result; the page is filled from it and decides nothing.
"""

from __future__ import annotations

import math
from typing import Any

from policytest._base.table import Row
from policytest._base.text import number, plural, probability
from policytest.mdp.task import given
from policytest.plots.studies import rows_of
from policytest.report.story import (
    DRAWS,
    MARKOV,
    OPEN,
    YES,
    Fact,
    Grid,
    Story,
    four_digits,
    how_many,
    own_assumptions,
    rounded,
    safe_rows,
    sure,
)
from policytest.report.verdicts import verdict_story
from policytest.results.estimate import Estimate
from policytest.results.plan import Plan
from policytest.results.selection import Selection
from policytest.results.verdict import Verdict

MOST_MEANS = 60


def tell(result: Any, question: str | None, suppress_below: int) -> Story:
    """The story of any result that has a summary."""
    if isinstance(result, Verdict):
        return verdict_story(result, question, suppress_below)
    if isinstance(result, Estimate):
        return estimate_story(result, question, suppress_below)
    if isinstance(result, Plan):
        return plan_story(result, question)
    if isinstance(result, Selection):
        return selection_story(result, question, suppress_below)
    if hasattr(result, "table") and hasattr(result, "means"):
        return study_story(result, question)
    table = result.summary
    rows = tuple(getattr(table, "rows", ()))
    return Story(question or "A result", "", f"{table.title}", "", rows=rows, notes=tuple(table.notes))


# ---------------------------------------------------------------- an estimate


def estimate_story(found: Estimate, question: str | None = None, suppress_below: int = 0) -> Story:
    """How good is the policy."""
    half, samples = 0.5 * (found.upper - found.lower), how_many(found.samples, suppress_below)
    likely = sure(found.delta)
    proof = (
        f"Both ends of the interval rest on proofs{given(found.task.assumptions)}."
        if found.certified
        else "An end of the interval rests on a local search, which may have missed something further out."
    )
    return Story(
        question or "How good is this policy?",
        "",
        f"The value is {four_digits(found.value)}, give or take {four_digits(half)}.",
        f"After {samples}, with probability at least {likely}, the value lies between {number(found.lower)} and "
        f"{number(found.upper)}."
        + ("" if found.reached else f" The wanted precision, {number(found.epsilon)}, is not reached."),
        YES if found.reached and found.certified else OPEN,
        "certified" if found.certified else "not certified",
        proof,
        (
            Fact("Value", four_digits(found.value), f"within {four_digits(half)}"),
            Fact("Interval", f"{four_digits(found.lower)} to {four_digits(found.upper)}", f"with probability {likely}"),
            Fact("Samples", samples.split()[0] if samples[0].isdigit() else samples),
            Fact("Wanted precision", number(found.epsilon), "reached" if found.reached else "not reached"),
        ),
        next_steps=()
        if found.reached
        else ("Sample on, with a larger max_samples: the interval narrows like one over the root of the samples.",),
        rows=safe_rows(found.summary.rows, suppress_below),
        guarantee=(
            f"With probability at least {likely} the interval contains the value at every moment of the run at once: "
            "it may be looked at as often as one likes. It is a statement about the procedure, over repetitions.",
        ),
        assumptions=(*MARKOV, DRAWS, *own_assumptions(found.task)),
        recipe=(
            "import policytest as pt",
            "",
            f"found = pt.evaluate(task, sim, epsilon={found.epsilon:g}, delta={found.delta:g}, rng=seed)",
            'pt.report.write(found, "report.html")',
        ),
    )


# ---------------------------------------------------------------- a plan


def plan_story(found: Plan, question: str | None = None) -> Story:
    """How many samples it will take."""
    best = _best(found)
    claim, facts = "No number of samples is enough." if found.samples else "There is nothing to plan with.", []
    if best is not None:
        mean, low, high = found.samples[best]
        claim = f"{'At least' if best in found.at_least else 'About'} {rounded(mean)} samples, with {best}."
        upper = rounded(high) if math.isfinite(high) else "no limit known"
        facts.append(Fact(f"Samples, {best}", rounded(mean), f"on average; {rounded(low)} to {upper}"))
    facts += [
        Fact("No test needs fewer than", *found.fewest_in_words()),
        Fact("The best allocation saves", found.saved_in_words(), "beside sampling all pairs equally"),
        Fact("Value of the guess", four_digits(found.value), f"threshold {number(found.threshold)}"),
    ]
    rows = tuple(
        (name, f"{'> ' if name in found.at_least else ''}{rounded(mean)}", rounded(low), rounded(high))
        for name, (mean, low, high) in found.samples.items()
    )
    least = f"No test can do with fewer than {rounded(found.bound)} on average."
    if not math.isfinite(found.bound):
        least = "At this guess the value equals the threshold, and no test ever ends."
    beware = tuple(note for note in found.notes if note.startswith("Beware"))
    return Story(
        question or "How many samples will it take?",
        "",
        claim,
        f"That is if the guess is right, for a probability of error of at most {probability(found.delta)}. {least}",
        OPEN,
        "forecast",
        "A plan promises nothing: it is as good as its guess. The test that follows keeps its guarantee whatever the "
        "plan said.",
        tuple(facts),
        warnings=beware,
        tables=(Grid("Methods", ("method", "mean samples", "from", "to"), rows),) if rows else (),
        rows=tuple(found.summary.rows),
        notes=(*(note for note in found.notes if note not in beware), found.sensitivity.words),
        assumptions=(
            *MARKOV,
            "The guess of the transitions is right, or as uncertain as its pilot data say.",
            *own_assumptions(found.task),
        ),
        recipe=(
            "import policytest as pt",
            "",
            f"found = pt.plan(task, guess, threshold={found.threshold:g}, delta={found.delta:g}, rng=seed)",
            'pt.report.write(found, "report.html")',
        ),
    )


def _best(found: Plan) -> str | None:
    """The method with the smallest mean; one whose mean is known, where there is one."""
    means = {name: mean for name, (mean, _, _) in found.samples.items() if math.isfinite(mean)}
    known = {name: mean for name, mean in means.items() if name not in found.at_least} or means
    return min(known, key=lambda name: known[name], default=None)


# ---------------------------------------------------------------- a selection


def selection_story(found: Selection, question: str | None = None, suppress_below: int = 0) -> Story:
    """Which policy is best."""
    among, samples = found.index is not None, how_many(found.samples, suppress_below)
    delta = probability(found.delta)
    claim = f"Policy {found.index} is the best." if among else "This policy is optimal."
    unsettled = f"policy {found.index} leads so far." if among else "this policy leads so far."
    what = "rivals are out" if among else "deviations do not pay"
    return Story(
        question or "Which policy is best?",
        "" if found.answered else "Not settled yet:",
        claim if found.answered else unsettled,
        (f"Found after {samples}, with a probability of error of at most {delta}." if found.answered else
         f"After {samples}, {found.settled} of {found.questions} {what} ({found.reason})."),
        YES if found.answered else OPEN,
        ("certified" if found.certified else "not certified") if found.answered else "",
        (f"The answer rests on a proof{given(found.assumptions)}." if found.certified else "The answer is not proved.")
        if found.answered else "",
        (
            Fact("Settled", f"{found.settled} of {found.questions}", what),
            Fact("Samples", samples.split()[0] if samples[0].isdigit() else samples),
            Fact("Delta", delta, "probability of a wrong answer, at most"),
        ),
        next_steps=() if found.answered else (
            "Search again with a larger max_samples. Where the best two are exactly as good, no number of samples "
            "ends it.",
        ),
        rows=safe_rows(found.summary.rows, suppress_below),
        guarantee=(
            f"The probability of ever returning a policy that is not the best, or as good, is at most {delta}, however "
            "long the search takes.",
        ),
        assumptions=(
            *MARKOV[:1], "Rewards, initial distribution and discount are the ones given.", DRAWS,
            *own_assumptions(found.names),
        ),
        recipe=(
            "import policytest as pt",
            "",
            f"found = pt.identify(rewards, initial, discount, sim, delta={found.delta:g}, rng=seed)",
            'pt.report.write(found, "report.html")',
        ),
    )  # fmt: skip


# ---------------------------------------------------------------- a study


def study_story(study: Any, question: str | None = None) -> Story:
    """How methods compare."""
    rows, means = rows_of(study), list(study.means)
    methods, instances = ({str(row.get(key)) for row in rows} for key in ("method", "instance"))
    runs = len({tuple(str(row.get(key)) for key in ("instance", "method", "seed")) for row in rows})
    wrong = sum(int(mean.get("wrong", 0)) for mean in means)
    shown = tuple(
        (str(m["method"]), str(m["instance"]), probability(float(m["delta"])), f"{int(m['runs']):,}",
         f"{'> ' if m.get('cut') else ''}{rounded(_first(m, 'samples', 'mean'))}",
         rounded(_first(m, "standard_error", "error")), f"{int(m.get('wrong', 0)):,}")
        for m in means[:MOST_MEANS]
    )  # fmt: skip
    columns = ("method", "instance", "delta", "runs", "mean samples", "standard error", "wrong answers")
    more = (f"{len(means) - MOST_MEANS:,} more rows are left out.",) if len(means) > MOST_MEANS else ()
    return Story(
        question or getattr(study, "title", "") or "How do these methods compare?",
        "",
        f"{plural(runs, 'run')} of {plural(len(methods), 'method')} on {plural(len(instances), 'instance')}.",
        f"{plural(wrong, 'wrong answer')} in {plural(len(rows), 'row')} (one row a run and delta).",
        OPEN,
        tables=(Grid("Mean samples", columns, shown, 2),),
        warnings=tuple(getattr(study, "_state", list)()),
        rows=(
            Row("runs", number(runs)),
            Row("methods", ", ".join(sorted(methods))),
            Row("instances", ", ".join(sorted(instances))),
        ),
        notes=(
            *tuple(getattr(study, "notes", ())),
            *more,
            "Each row is one run of one method with its own seed. Where runs were cut at their largest number of "
            "samples the mean is a lower bound, and marked by >.",
        ),
    )


def _first(entry: Any, *keys: str) -> float:
    """The first of these keys that the entry has."""
    return next((float(entry[key]) for key in keys if entry.get(key) is not None), math.nan)
