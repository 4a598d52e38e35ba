"""``policytest assess`` without a Markov table: by the episodes of a log, with or without propensities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.cli.inputs import Asked, find_model, named_columns
from policytest.cli.output import show, write_report

if TYPE_CHECKING:
    from policytest.data.logged_episodes import LoggedEpisodes
    from policytest.results.verdict import Verdict
    from policytest.sources.tasks.files import Model

OF_A_TABLE = ("s_next", "count")
OF_EPISODES = ("propensity", "target")
"""Columns that only one of the two ways of reading a log knows."""
OF_A_TASK = ("rewards", "initial", "goal", "avoid", "terminal", "support", "const")


class Ranges(NamedTuple):
    """What the options say about rewards, returns and propensities."""

    reward: tuple[float, float] | None = None
    returns: tuple[float, float] | None = None
    smallest_propensity: float | None = None

    def check_unused(self) -> None:
        """Refuse them where a Markov table is assumed."""
        for option, value in zip(("--reward-range", "--return-range", "--smallest-propensity"), self, strict=True):
            if value is not None:
                raise InputError(f"{option} is for episodes; add --assume propensities, --assume episodes or --ladder")


def is_log(name: str) -> bool:
    """Whether a name is that of a log, not of a task: by its suffix, or since it is a folder or a pattern."""
    from policytest.sources.logged.paths import KINDS

    plain = name.removesuffix(".gz")
    return Path(plain).suffix.lower() in KINDS or any(letter in name for letter in "*?[") or Path(name).is_dir()


def table_columns(columns: list[str] | None) -> list[str] | None:
    """Those of ``--column`` that a log of transitions has."""
    return [entry for entry in columns or () if entry.partition("=")[0] not in OF_EPISODES] or None


def read_episodes(
    files: list[str], assume: str, columns: list[str] | None, model: Model | None, asked: Asked, ranges: Ranges
) -> LoggedEpisodes:
    """The episodes of these files; without their propensities where only episodes are assumed."""
    from policytest.sources.logged.episodes import logged_episodes

    if isinstance(asked.horizon, str):
        raise InputError(f"--horizon is {asked.horizon!r}, and a log has none; pass a number of steps")
    mapping = {role: name for role, name in named_columns(columns).items() if role not in OF_A_TABLE}
    mapping |= dict.fromkeys(OF_EPISODES) if assume == "episodes" else {}
    found = logged_episodes(
        files if len(files) > 1 else files[0],
        columns=mapping,
        task=None if model is None else model.task,
        bins=None if model is None else model.bins,
        discount=None if model is not None else asked.discount,
        horizon=None if model is not None else asked.horizon,
        reward_range=ranges.reward,
        return_range=ranges.returns,
        smallest_propensity=ranges.smallest_propensity,
    )
    if assume == "propensities" and not found.weighted:
        raise InputError(
            "--assume propensities: the log has no column propensity", "name it with --column propensity=NAME"
        )
    return found


def assess_episodes(
    names: list[str],
    assume: str,
    threshold: float | None,
    delta: float,
    columns: list[str] | None,
    policy: str | None,
    asked: Asked,
    ranges: Ranges,
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict, and what it is about; the first name may be that of a task."""
    from policytest.questions.assess import assess

    model = None if is_log(names[0]) else find_model(names[0], policy, asked)
    files = names if model is None else names[1:]
    if model is None:
        for option, value in (("--policy", policy), *((f"--{key}", getattr(asked, key)) for key in OF_A_TASK)):
            if value is not None:
                raise InputError(f"{option} is for a task, and none is named; name a task file before the log")
    bar = threshold if threshold is not None or model is None else model.threshold
    if bar is None:
        raise InputError("no threshold: pass --threshold R")
    log = read_episodes(files, assume, columns, model, asked, ranges)
    about = (*((f"Model: {names[0]}",) if model is not None else ()), f"Data: {described(log)}.")
    return assess(log, threshold=bar, delta=delta), about


def described(log: LoggedEpisodes) -> str:
    """How much there is."""
    by = " with propensities" if log.weighted else ""
    return f"{plural(log.n_episodes, 'episode')}{by}, {plural(len(log), 'row')}"


def show_episodes(verdict: Verdict, about: tuple[str, ...], json: bool, html: Path | None) -> None:
    """The verdict on stdout, and as a page."""
    show(verdict, json, None, "", "")
    if html is not None:
        write_report(html, verdict, "Is this policy good enough?", about)
