"""``policytest assess`` without a Markov table: by the episodes of a log, with or without propensities."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.cli import options as o
from policytest.cli.groups import as_typed, option
from policytest.cli.inputs import find_method, find_model, named_columns

if TYPE_CHECKING:
    from policytest.data.logged_episodes import LoggedEpisodes
    from policytest.results.verdict import Verdict
    from policytest.sources.tasks.files import Model

OF_A_TABLE = ("s_next", "count")
OF_EPISODES = ("propensity", "target")
"""Columns that only one of the two ways of reading a log knows."""


@dataclass(frozen=True)
class Episodes:
    """What is said of the episodes of a log."""

    assume: o.LogAssumption = option(
        "What the answer may rest on: a Markov table; or the episodes of the log alone, with the propensities "
        "of their actions, or as those of the policy itself. The last two need no task file.",
        default=o.LogAssumption.markov,
    )
    ladder: bool = option(
        "Also ask the episodes alone, by their propensities, or, without such a column, as those of this "
        "policy, which must then be the one that made the log; warn if they refute the Markov table.",
        default=False,
    )
    reward_range: o.Range = option(o.REWARDS_LIE, "LOW HIGH")
    return_range: o.Range = option(o.RETURNS_LIE, "LOW HIGH")
    on_range: o.OnRange | None = option(o.ON_RANGE)
    cut: bool = option("Drop the rows of an episode after --horizon of them.", default=False)
    smallest_propensity: float | None = option(
        "No action, logged or not, had a smaller propensity: known before the data, not taken from the log. "
        "Narrows intervals.",
        "P",
    )

    def check_unused(self) -> None:
        """Refuse ranges where a Markov table is assumed."""
        for name, value in as_typed(self).items():
            if value is not None and value is not False and name not in ("--assume", "--ladder"):
                raise InputError(f"{name} is for episodes; add --assume propensities, --assume episodes or --ladder")


def is_log(name: str) -> bool:
    """Whether a name is that of a log, not of a task: by its suffix, or since it is a folder or a pattern."""
    from policytest.sources.logged.paths import KINDS

    plain = name.removesuffix(".gz")
    return Path(plain).suffix.lower() in KINDS or any(letter in name for letter in "*?[") or Path(name).is_dir()


def table_columns(columns: list[str] | None) -> list[str] | None:
    """Those of ``--column`` that a log of transitions has."""
    return [entry for entry in columns or () if entry.partition("=")[0] not in OF_EPISODES] or None


def read_episodes(
    files: list[str], columns: list[str] | None, model: Model | None, question: o.Question, about: Episodes
) -> LoggedEpisodes:
    """The episodes of these files; without their propensities where only episodes are assumed."""
    from policytest.sources.logged.episodes import logged_episodes

    if isinstance(question.horizon, str):
        raise InputError(f"--horizon is {question.horizon!r}, and a log has none; pass a number of steps")
    mapping = {role: name for role, name in named_columns(columns).items() if role not in OF_A_TABLE}
    mapping |= dict.fromkeys(OF_EPISODES) if about.assume == "episodes" else {}
    found = logged_episodes(
        files if len(files) > 1 else files[0],
        columns=mapping,
        task=None if model is None else model.task,
        bins=None if model is None else model.bins,
        discount=None if model is not None else question.discount,
        horizon=None if model is not None else question.horizon,
        reward_range=about.reward_range,
        return_range=about.return_range,
        on_range=str(about.on_range or "refuse"),
        cut=about.cut,
        smallest_propensity=about.smallest_propensity,
    )
    if about.assume == "propensities" and not found.weighted:
        raise InputError(
            "--assume propensities: the log has no column propensity", "name it with --column propensity=NAME"
        )
    return found


def assess_episodes(
    names: list[str],
    threshold: float | None,
    delta: float,
    columns: list[str] | None,
    question: o.Question,
    episodes: Episodes,
    method: str | None = None,
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict, and what it is about; the first name may be that of a task."""
    from policytest.questions.assess import assess

    model = None if is_log(names[0]) else find_model(names[0], question)
    files = names if model is None else names[1:]
    if model is None:
        for name, value in as_typed(question).items():
            if value is not None and name not in ("--discount", "--horizon"):
                raise InputError(f"{name} is for a task, and none is named; name a task file before the log")
    bar = threshold if threshold is not None or model is None else model.threshold
    if bar is None:
        raise InputError("no threshold: pass --threshold R")
    log = read_episodes(files, columns, model, question, episodes)
    about = (*((f"Model: {names[0]}",) if model is not None else ()), f"Data: {described(log)}.")
    return assess(log, threshold=bar, delta=delta, method=find_method(method)), about


def described(log: LoggedEpisodes) -> str:
    """How much there is."""
    by = " with propensities" if log.weighted else ""
    return f"{plural(log.n_episodes, 'episode')}{by}, {plural(len(log), 'row')}"
