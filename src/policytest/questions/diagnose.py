r"""Does a log look as the test assumes? Two assumptions can be tested on the data, one cannot.

A verdict from recorded transitions rests on a model: whenever action a is taken in state s, the next state x is drawn
from p(.|s,a), whatever happened before. For a *label* u of a row that is known before x is drawn, that says

    P(x | past, u, s, a) = p(x|s,a).

The labels tested here are the previous state and the previous action (is the process *Markov*?), and the period of the
log, quarters of its rows, and before or after each of their boundaries (is it *stationary*?).

How the evidence is weighed is told in `independence_test`: an e-value, which is valid however the actions were
chosen and however few rows there are of a kind. The periods are those of a log whose length was not chosen by looking
at it. Everything is a function of grouped counts; the work is bounded by the number of distinct cells.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
import scipy

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.questions.independence_test import Cells, grouped
from policytest.questions.recorded import recorded
from policytest.results.diagnosis import Diagnosis, Finding, Offender, holm

PERIODS = 4


def diagnose(
    task: Task, data: Transitions, episodes: object = None, periods: int = PERIODS, level: float = 0.05
) -> Diagnosis:
    """Do these transitions look Markov and stationary?

    Pairs that the policy never takes, and rows whose successor is known, do not matter and are left out.

    Parameters
    ----------
    data
        `Transitions` in the order in which they were observed. Counts have lost the order, and cannot be diagnosed.
    episodes
        One label for each row: rows with the same label follow each other. None: a row follows the one above it if it
        begins in the state in which that one ended.
    periods
        The number of equal parts into which the log is cut, to look for changes over time.
    level
        The largest corrected p-value to warn of.

    >>> import numpy as np
    >>> task = Task(rewards=[[1.0], [0.0]], policy=[[1.0], [1.0]], initial=[1.0, 0.0], discount=0.5)
    >>> path = np.arange(401) // 2 % 2  # 0, 0, 1, 1, 0, 0, ...: what follows depends on the state before
    >>> found = diagnose(task, Transitions(path[:-1], np.zeros(400, int), path[1:]))
    >>> [finding.key for finding in found.findings if finding.adjusted < 0.05]
    ['previous_state']
    """
    arrays.instance("task", task, Task)
    arrays.instance("data", data, Transitions, "; counts have lost the order of the rows")
    recorded(task, data)
    total = len(data)
    if arrays.whole_number("periods", periods) < 2:
        raise InputError(f"periods is {periods}; to compare, at least 2 are needed")
    before, now, broken = followers(data.s, data.x, _episode_numbers(episodes, total))
    ones = np.ones(total, dtype=np.int64)
    lagged = (data.s[before], data.a[before], data.s[now], data.a[now], data.x[now], ones[now])
    period = np.arange(total) * periods // max(total, 1)
    return diagnose_grouped(task, lagged, (period, data.s, data.a, data.x, ones), level, periods, broken)


def diagnose_grouped(
    task: Task,
    lagged: Sequence[object] | None = None,
    by_period: Sequence[object] | None = None,
    level: float = 0.05,
    periods: int = PERIODS,
    broken: int = 0,
) -> Diagnosis:
    """The same from grouped counts, which an engine can make of a large log.

    ``lagged`` is six columns: the previous state and action, s, a, x, and how many such rows there are (only rows that
    follow another one); ``by_period`` is five: the period, 0 to periods-1, then s, a, x and how many. A table that is
    None is not tested.
    """
    arrays.instance("task", task, Task)
    level = arrays.real_number("level", level)
    if not 0.0 < level < 1.0:
        raise InputError(f"level is {level}; it is a probability between 0 and 1")
    findings = []
    total = 0
    lagged = None if lagged is None else _columns("lagged", lagged, (task.n_states, task.n_actions), task)
    by_period = None if by_period is None else _columns("by_period", by_period, (periods,), task)
    if lagged is not None:
        total = int(lagged[-1].sum())
        s, a, *rest = _matters(task, lagged)
        findings.append(_tested(task, "previous_state", "the previous state", s, rest))
        if task.n_actions > 1:
            findings.append(_tested(task, "previous_action", "the previous action", a, rest))
    if by_period is not None:
        total = max(total, int(by_period[-1].sum()))
        period, *rest = _matters(task, by_period)
        findings.append(_over_time(task, period, rest, periods))
    return Diagnosis(holm(findings), level, total, broken)


# ---------------------------------------------------------------- the tests


def _tested(task: Task, key: str, words: str, label: IntArray, rest: Sequence[IntArray]) -> Finding:
    pair, x, n = rest
    if not n.size:
        why = "no row follows another one" if key != "period" else "no rows of pairs that matter"
        return Finding(key, words, 0, 0.0, 0.0, reason=why)
    cells = Cells(pair, label, x, n)
    evidence, each = cells.log_e(int(task.layout.unknown_pairs.sum()))
    worst = _offender(task, cells, each, words)
    return Finding(key, words, int(cells.n.sum()), evidence, cells.effect(), cells.g_test(), worst)


def _over_time(task: Task, period: IntArray, rest: Sequence[IntArray], periods: int) -> Finding:
    """All periods apart, and before against after each boundary: the average of the e-values, and the best of them."""
    found = _tested(task, "period", "the period of the log", period, rest)
    if found.reason:
        return found
    tried = [found] if periods > 2 else []
    for cut in range(1, periods):
        split = _tested(task, "period", "the time, early or late", (period >= cut).astype(np.int64), rest)
        tried.append(replace(split, split=cut / periods))
    evidence = float(scipy.special.logsumexp([one.evidence for one in tried])) - math.log(len(tried))
    best = max(tried, key=lambda one: one.evidence)
    usual = [one.g_test for one in tried if not math.isnan(one.g_test)]
    g_test = min(1.0, min(usual) * len(tried)) if usual else math.nan
    return replace(best, evidence=evidence, g_test=g_test)


def _offender(task: Task, cells: Cells, each: FloatArray, words: str) -> Offender:
    k = int(np.argmax(each))
    mine = np.flatnonzero(cells.k == k)
    best = int(mine[np.argmax(cells.surprise[mine])])
    among = int(cells.arm_n[cells.arm_of[best]])
    share, overall = cells.n[best] / among, cells.column_n[cells.column[best]] / cells.visits[k]
    s, a = divmod(int(cells.pair[best]), task.n_actions)
    label, x = int(cells.label[best]), int(cells.x[best])
    when = _when(words, label, task)
    said = (
        f"{task.place(int(cells.pair[best]), x)}: {when} a share of {share:.3g} ({plural(among, 'row')}), "
        f"over all {overall:.3g} ({plural(int(cells.visits[k]), 'row')})"
    )
    return Offender(s, a, float(each[k]), int(cells.visits[k]), label, among, x, float(share), float(overall), said)


def _when(words: str, label: int, task: Task) -> str:
    if words == "the previous state":
        return f"coming from state {_name(label, task.states)}"
    if words == "the previous action":
        return f"after action {_name(label, task.actions)}"
    return f"in period {label + 1}" if words == "the period of the log" else "later" if label else "earlier"


# ---------------------------------------------------------------- tables


def followers(
    s: IntArray, x: IntArray, episode: IntArray | None, known: BoolArray | None = None
) -> tuple[IntArray, IntArray, int]:
    """Rows that are followed, the rows that follow them, and how many rows of an episode do not begin where one ended.

    A row follows the one before it, in its episode, if it begins in the state in which that one ended; only rows that
    are ``known`` are looked at.
    """
    order = np.arange(len(s)) if episode is None else np.argsort(episode, kind="stable")
    before, now = order[:-1], order[1:]
    same = np.ones(len(now), dtype=bool) if known is None else known[before] & known[now]
    if episode is not None:
        same = same & (episode[before] == episode[now])
    joined = same & (x[before] == s[now])
    return before[joined], now[joined], 0 if episode is None else int((same & ~joined).sum())


def _episode_numbers(episodes: object, total: int) -> IntArray | None:
    """The episode of each row as a number."""
    if episodes is None:
        return None
    labels = arrays.any_array("episodes", episodes)
    if labels.shape != (total,):
        raise InputError(
            f"episodes has shape {labels.shape}, but there are {plural(total, 'transition')}; pass one label for each"
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InputError(f"episodes[{int(np.argmax(np.isnan(labels)))}] is nan; every row needs its episode")
    try:
        return np.unique(labels, return_inverse=True)[1].ravel()
    except TypeError:
        raise InputError("episodes holds labels that cannot be compared; pass numbers or strings") from None


def _columns(name: str, table: Sequence[object], sizes: tuple[int, ...], task: Task) -> list[IntArray]:
    """Columns of whole numbers in range, without empty groups."""
    sizes = (*sizes, task.n_states, task.n_actions, task.n_states, 2**62)
    if len(table) != len(sizes):
        raise InputError(f"{name} has {len(table)} columns, expected {len(sizes)}")
    columns = [arrays.index_list(f"{name}[{i}]", table[i], size) for i, size in enumerate(sizes)]
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"{name} has columns of {', '.join(str(len(c)) for c in columns)} rows; pass equal lengths")
    keep = columns[-1] > 0
    return [column[keep] for column in columns]


def _matters(task: Task, columns: Sequence[IntArray]) -> list[IntArray]:
    """The labels, the pair, x and n, of the rows of pairs that the policy takes and whose successor is not known."""
    *labels, s, a, x, n = columns
    keep = task.layout.unknown_pairs[s, a]
    *columns, n = (column[keep] for column in (*labels, s * task.n_actions + a, x, n))
    distinct, n = grouped(columns, n)
    return [*distinct, n]


def _name(index: int, names: Sequence[Hashable] | None) -> str:
    return str(index) if names is None else f"{index} {names[index]!r}"
