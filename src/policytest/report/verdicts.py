"""A verdict in plain words: the answer, what it rests on, what its guarantee means, how to go on without one."""

from __future__ import annotations

import numpy as np

from policytest._base.text import nats, number, plural, probability
from policytest.mdp.task import Names, Task, given
from policytest.plots.changes import top_changes
from policytest.report.story import (
    DRAWS,
    MARKOV,
    NO,
    OPEN,
    YES,
    Fact,
    Story,
    four_digits,
    how_many,
    own_assumptions,
    safe_rows,
    sure,
    three_digits,
)
from policytest.results.verdict import Change, Verdict, bound_in_words


def verdict_story(verdict: Verdict, question: str | None = None, suppress_below: int = 0) -> Story:
    """Is the value above the threshold, or the difference above the margin."""
    word, claim = _claim(verdict)
    badge, proof = _proof(verdict)
    samples = how_many(verdict.samples, suppress_below)
    usual = "Is this policy good enough?" if verdict.about == "value" else "Which policy is better?"
    title, words = _about_changes(verdict)
    return Story(
        question or usual,
        word,
        claim,
        _lead(verdict, samples),
        {"above": YES, "below": NO}.get(str(verdict.answer), OPEN),
        badge,
        proof,
        _facts(verdict, samples),
        next_steps=_next_steps(verdict) if verdict.answer is None else (),
        warnings=_warnings(verdict, suppress_below),
        changes_title=title,
        changes_words=words,
        changes=tuple(
            (_place(verdict, change), f"{change.observed:.3f}", f"{change.needed:.3f}", f"{change.visits:,}")
            for change in top_changes(verdict, suppress_below=suppress_below)
        ),
        rows=safe_rows(verdict.summary.rows, suppress_below),
        notes=_notes(verdict),
        guarantee=_guarantee(verdict),
        assumptions=(*MARKOV, DRAWS, *own_assumptions(verdict.task)),
        recipe=_recipe(verdict),
    )


def _place(verdict: Verdict, change: Change) -> str:
    return Names(verdict.task.states, verdict.task.actions).place(change.state, change.action, change.successor)


def _about_changes(verdict: Verdict) -> tuple[str, str]:
    """The heading of the changes, and what they mean: only the KL rule says that nothing nearer exists."""
    title = "What would have to be different, in numbers" if verdict.answer else "What speaks for the other side"
    if verdict.dimension is None:
        return title, "A world not far from the data, with its value on the other side, differs in these places."
    start = "For this answer to be wrong" if verdict.answer else "For the value to be on the other side"
    return title, f"{start}, all of these, and more, would have to be true at once."


def _claim(verdict: Verdict) -> tuple[str, str]:
    """(the answer in a word, what it says)."""
    alone, R = verdict.about == "value", number(verdict.threshold)
    margin = "" if verdict.threshold == 0 else f" by more than {R}"
    if verdict.answer is None:
        open_one = f"its value is above {R}" if alone else f"policy A is better than policy B{margin}"
        return "Not settled yet.", f"The data do not yet say whether {open_one}."
    word = {"above": "Yes", "below": "No"}.get(verdict.answer, "Practically equal")
    if verdict.answer == "within":
        what = "Its value is" if alone else "The difference is"
        claim = f"{what} {f'within {number(verdict.indifference)} of' if verdict.indifference else 'close to'} {R}."
    elif alone:
        claim = f"Its value is {verdict.answer} {R}."
    elif verdict.answer == "above":
        claim = f"Policy A is better than policy B{margin}."
    else:
        claim = f"Policy A is {'not better' if margin else 'worse'} than policy B{margin}."
    if verdict.certified:
        return f"{word}.", claim
    return f"{word}, but not certified:", claim[0].lower() + claim[1:]


def _lead(verdict: Verdict, samples: str) -> str:
    if verdict.answer is None:
        return (
            f"After {samples} the evidence is {nats(max(verdict.evidence))} of the {nats(verdict.required)} "
            f"that an answer with a probability of error of at most {probability(verdict.delta)} needs: "
            f"{verdict.reason or 'the data do not settle it'}. Nothing is lost: going on keeps the guarantee."
        )
    if verdict.samples == 0:
        return "This follows from the rewards alone, whatever the transitions are: no data were used."
    if verdict.counts.flaws:
        return f"Answered after {samples}, but {'; '.join(verdict.counts.flaws)}: delta bounds nothing here."
    return f"Answered after {samples}, with a probability of error of at most {probability(verdict.delta)}."


def _proof(verdict: Verdict) -> tuple[str, str]:
    if verdict.answer is None:
        return "", ""
    if verdict.counts.flaws:
        return "no guarantee", f"{_flaws(verdict)}: no probability of error can be stated."
    if verdict.certified:
        return (
            "certified",
            f"The answer rests on a proof, not on how well a search went{given(verdict.task.assumptions)}.",
        )
    return (
        "not certified",
        "The answer rests on the best that a local search found. Something the search missed could overturn it, and "
        "the stated probability of error holds only if nothing was missed.",
    )


def _flaws(verdict: Verdict) -> str:
    """What is wrong with the data, as the beginning of a sentence."""
    words = "; ".join(verdict.counts.flaws)
    return words[:1].upper() + words[1:]


def _facts(verdict: Verdict, samples: str) -> tuple[Fact, ...]:
    low, high = verdict.interval
    what = "Value" if verdict.about == "value" else "Difference A - B"
    bar = "threshold" if verdict.about == "value" else "margin"
    bound, settled = verdict.lower_bound, verdict.answer == "within" or not verdict.samples
    about = "" if settled else bound_in_words(bound)
    return (
        Fact(
            f"{what}, estimated",
            four_digits(verdict.estimate) if verdict.samples else "no samples",
            f"{bar} {number(verdict.threshold)}",
        ),
        Fact(
            "Interval",
            f"{low:.3g} to {high:.3g}",
            f"at all times, with probability {sure(verdict.delta)}",
        ),
        Fact("Samples", samples.split()[0] if samples[0].isdigit() else samples, about),
        Fact(
            "Evidence",
            nats(min(verdict.refuted) if verdict.refuted is not None else max(verdict.evidence)),
            f"{nats(verdict.required)} decide; p-value at any time {three_digits(verdict.p_value)}",
        ),
    )


def _warnings(verdict: Verdict, suppress_below: int) -> tuple[str, ...]:
    found = []
    if verdict.counts.flaws:
        use = "all of the data" if verdict.counts.selected else "rewards that are known, not estimated"
        found.append(f"{_flaws(verdict)}. Whatever is said here may be wrong: use {use}.")
    elif verdict.answer and not verdict.certified:
        found.append("Not certified. A method that proves its answer, Combined() or PTST(), gives one that is.")
    missed = _unsampled(verdict)
    if missed and verdict.samples:
        found.append(
            f"{plural(missed, 'pair')} of state and action that the policy takes {'was' if missed == 1 else 'were'} "
            "never sampled. The answer allows for anything there."
        )
    if suppress_below > 1:
        found.append(f"Counts from 1 to {suppress_below - 1} are not shown, nor what would give them away.")
    return tuple(found)


def _notes(verdict: Verdict) -> tuple[str, ...]:
    if not verdict.proof_samples:
        return ()
    were = "was" if verdict.proof_samples == 1 else "were"
    return (
        f"{number(verdict.proof_samples)} of the samples {were} drawn for the proof, after the answer had been found.",
    )


def _unsampled(verdict: Verdict) -> int:
    visits = np.asarray(verdict.counts.visits)
    if not isinstance(verdict.task, Task) or visits.shape != verdict.task.policy.shape:
        return 0
    return int(((visits == 0) & verdict.task.layout.unknown_pairs).sum())


def _next_steps(verdict: Verdict) -> tuple[str, ...]:
    alone = verdict.about == "value"
    steps = []
    if verdict.snapshot:
        steps.append(
            "Go on with the same run: decide(..., resume=verdict) with a larger max_samples; on the command line, the "
            "same command with --checkpoint FILE. It stops where it would have stopped without the pause."
        )
    elif alone:
        steps.append("Draw more samples, or add more data, and ask again: looking in between costs nothing.")
    else:
        steps.append("Compare again with a larger max_samples, from the start: the samples so far are the first of it.")
    if alone:
        steps.append(
            verdict.forecast.words
            if verdict.forecast is not None
            else "still_needed(verdict) says about how many more samples it takes, and of which pairs."
        )
        steps.append(
            "Where the value may equal the threshold, no number of samples settles it. decide(..., indifference=eps) "
            "may then answer that they are practically equal."
        )
    return tuple(steps)


def _guarantee(verdict: Verdict) -> tuple[str, ...]:
    delta, R = probability(verdict.delta), number(verdict.threshold)
    if verdict.about == "value":
        what, above, below = f"the value were {R} or less", "above", "below"
        other = f"it were {R} or more"
    else:
        what, above, below = f"policy A were better by {R} or less", "A is better", "A is not better"
        other = f"it were better by {R} or more"
    lines = [
        f"Delta is {delta}. If {what}, a test like this one would ever answer “{above}” with probability at most "
        f"{delta}; and if {other}, “{below}” with probability at most {delta}. This holds however often one looks, and "
        "whenever one stops.",
        "It is a statement about the procedure, over repetitions. It is not the probability that this one answer is "
        "wrong.",
    ]
    if verdict.indifference:
        lines.append(
            f"To answer “within” where the value is {number(verdict.indifference)} or more away is wrong, too: all "
            f"wrong answers together have a probability of at most {delta}."
        )
    if verdict.counts.flaws:
        lines.append(f"None of this holds here: {'; '.join(verdict.counts.flaws)}.")
    elif verdict.answer and not verdict.certified:
        lines.append("For this answer it is stated under the condition that the local search missed nothing.")
    if verdict.certificate is not None:
        lines.append("The proof can be checked without the solver that found it: verdict.verify().")
    return tuple(lines)


def _recipe(verdict: Verdict) -> tuple[str, ...]:
    if verdict.about == "difference":
        call = f"pt.compare(task_a, task_b, sim, delta={verdict.delta:g}, margin={verdict.threshold:g}, rng=seed)"
    else:
        call = f"pt.decide(task, sim, threshold={verdict.threshold:g}, delta={verdict.delta:g}, rng=seed)"
    return ("import policytest as pt", "", f"verdict = {call}", 'pt.report.write(verdict, "report.html")')
