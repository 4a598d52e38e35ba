"""The questions about data, asked of a log wherever it lies: a path, a data frame, or a `Log`.

`assess` and `value_interval` of `policytest` are these. They read the log with `logs`, take its rows in their order
where it has one and its counts where not, and hand them to the question itself. Counts and transitions are handed over
as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.methods.large_sample import LargeSample
from policytest.methods.log_betting import LogBetting
from policytest.methods.ptst import PTST
from policytest.methods.run import Method
from policytest.methods.td_betting import TDBetting
from policytest.questions import assess as assess_module
from policytest.questions import evaluate
from policytest.questions.ladder import with_ladder
from policytest.results.estimate import Interval
from policytest.results.verdict import Verdict
from policytest.sources.environments.bins import Bins
from policytest.sources.logged.diagnose import diagnosed_log
from policytest.sources.logged.log import Log
from policytest.sources.logged.paths import is_path
from policytest.sources.logged.read import logs

Columns = Mapping[str, str | None] | None


def assess(
    task: Task | LoggedEpisodes,
    data: Any = None,
    threshold: float | None = None,
    delta: float = 0.05,
    method: Method | None = None,
    design: str = "adaptive",
    *,
    columns: Columns = None,
    skip: Sequence[str] = (),
    by_episode: bool = False,
    bins: Bins | None = None,
    episodes: LoggedEpisodes | None = None,
    budget: int | None = None,
) -> Verdict:
    """Do these data settle it already? Counts are looked at once; transitions in their order, up to the first answer.

    The guarantee is that of `decide`, for data collected by any rule that did not look ahead. Where states are cells
    (bins), the data are diagnosed as well: if they refute that the cells are Markov, or have no order that could tell,
    the answer is not certified. Betting forms its own
    rollouts from the recorded draws of each pair, each used once. ``samples`` of the verdict is the row at which the
    answer was reached.

    Parameters
    ----------
    task
        The `Task`; or `LoggedEpisodes`, which need no table and no ``data``: ``assess(log, threshold=R)``. The estimate
        and the interval then rest on all episodes.
    data
        A path (CSV, Parquet, JSON lines; also a folder or a list), a data frame, a log of `policytest.sources.logs`,
        `Counts`, or `Transitions`. A log is taken in its order where it has one, and as counts where not.
    method
        `PTST()` for counts unless given, and `RectangularKL()` in tasks too large for its proofs; for rows in their
        order `LogBetting()`.
    design
        How counts were collected: "adaptive" (each pair may have been chosen after seeing the earlier ones) or "fixed"
        (how often each pair is drawn was fixed beforehand), which only betting on counts needs.
    columns, skip, by_episode, bins
        How to read a path or a data frame; see `policytest.sources.logs` and `Log.transitions`.
    episodes
        Of a task: the episodes of the same log, to ask the same without the Markov property. The verdict then has a
        ``ladder``, and where the episodes contradict the table it warns and is not certified.
    budget
        Of `LoggedEpisodes`: how many of them, in each task, there will be at most, fixed before the first one. Bets aim
        at an answer by then.

    >>> import policytest as pt, pandas as pd
    >>> two = pt.instances.paper(2)
    >>> frame = pd.DataFrame({"state": [0, 1], "action": [0, 0], "next": [1, 0], "order": [1, 2]})
    >>> names = {"s": "state", "a": "action", "s_next": "next"}
    >>> pt.assess(two.task, frame, threshold=0.0, columns=names).samples
    2
    """
    seen = observed(task, data, columns, skip, by_episode, bins)
    verdict = assess_module.assess(task, seen, threshold, delta, method, design, budget)
    if episodes is None:
        return verdict
    if isinstance(task, LoggedEpisodes):
        raise InputError("episodes is for a task, and LoggedEpisodes were passed in its place; leave it out")
    return with_ladder(verdict, seen.counts if isinstance(seen, Log) else seen, episodes, stacklevel=3)


def value_interval(
    task: Task | LoggedEpisodes,
    data: Any = None,
    delta: float = 0.05,
    method: PTST | TDBetting | LogBetting | LargeSample | None = None,
    looks: str = "any",
    budget: int | None = None,
    *,
    columns: Columns = None,
    skip: Sequence[str] = (),
    by_episode: bool = False,
    bins: Bins | None = None,
) -> Interval:
    """An interval that contains the value with probability at least 1-delta, whenever the data are looked at.

    Counts: the range of values over the KL ball, by `PTST(...)`'s boundary and solver. Transitions: the thresholds that
    betting does not refute, by `LogBetting()` unless ``method`` says otherwise. With ``looks="one"``: the usual
    interval for one look at a finished log, approximate and not certified
    (`policytest.questions.one_look`). `LoggedEpisodes` stand in the place of the task and of the data. ``budget``: how
    many of them there will be at most, fixed before the first one; the interval is then by bets that aim at the end of
    it, certified, and valid before, too. ``data``, ``columns``, ``skip``, ``by_episode`` and ``bins`` are as
    in `assess`.

    >>> import numpy as np, policytest as pt
    >>> two = pt.instances.paper(2)
    >>> found = pt.value_interval(two.task, pt.Counts.from_array(np.rint(1e4 * two.kernel)))
    >>> pt.value(two.task, two.kernel) in found, found.certified
    (True, True)
    """
    seen = observed(task, data, columns, skip, by_episode, bins)
    return evaluate.value_interval(task, seen, delta, method, looks, budget)


def observed(
    task: Task | LoggedEpisodes, data: Any, columns: Columns, skip: Sequence[str], by_episode: bool, bins: Bins | None
) -> Any:
    """Transitions in their order, or counts: of a path, a data frame or a log; other data as they are."""
    if isinstance(task, LoggedEpisodes):
        if columns or skip or bins is not None or by_episode:
            raise InputError("columns, skip, by_episode and bins are for the rows of a table; leave them out")
        return data
    frame = is_path(data) or hasattr(type(data), "columns") or hasattr(data, "get_fragments")
    if not isinstance(data, Log) and frame:
        arrays.instance("task", task, Task)
        data = logs(data, task, columns=columns, skip=skip, bins=bins)
    elif columns or skip or bins is not None:
        raise InputError("columns, skip and bins are for a path or a data frame; data was read already: leave them out")
    if isinstance(data, Log):
        return diagnosed_log(task, data, by_episode).observed(by_episode)
    if by_episode and isinstance(data, Counts | Transitions):
        raise InputError("by_episode is for logs, and data has no episodes; leave it out")
    return data
