"""The options that several commands share, each defined once, most of them in groups."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policytest.cli.exit_codes import debugging
from policytest.cli.groups import Only as Only
from policytest.cli.groups import option
from policytest.cli.inputs import BUILT_IN, is_program

if TYPE_CHECKING:
    from policytest.cli.progress import Lines


def _set_debug(wanted: bool) -> None:
    if wanted:
        debugging.set(True)


def _whole(text: str) -> int:
    """A whole number, also as 1e6."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number != int(number):
        raise typer.BadParameter(f"{text} is not a whole number")
    return int(text) if text.lstrip("+-").isdigit() else int(number)


def _steps(text: str) -> int | str:
    """A number of steps, or the words that stand for an environment's."""
    return text if text == "time limit" else _whole(text)


# ---------------------------------------------------------------- names

OF_EPISODES = ("returns", "large-sample")
OnePolicyMethod = StrEnum("OnePolicyMethod", ["betting", "ptst", "boxes", "monte-carlo", "returns", "large-sample"])
LogMethod = StrEnum("LogMethod", ["betting", "log-betting", "ptst", "boxes", "monte-carlo", "large-sample"])
PairsMethod = StrEnum("PairsMethod", ["betting", "ptst", "returns", "large-sample"])
ValueMethod = StrEnum("ValueMethod", ["betting", "ptst", "returns", "large-sample"])
SearchMethod = StrEnum("SearchMethod", ["betting", "ptst", "klb-ts"])
BoundaryName = StrEnum("BoundaryName", ["mixture", "paper"])
AllocationName = StrEnum("AllocationName", ["uniform", "optimal", "adaptive", "forward"])
"""Names in `policytest.methods.names`."""
OnRange = StrEnum("OnRange", ["refuse", "warn"])
SupportName = StrEnum("SupportName", ["kernel"])
"""The word of the task file."""

Assumption = StrEnum("Assumption", ["markov", "episodes"])
LogAssumption = StrEnum("LogAssumption", ["markov", "propensities", "episodes"])
"""What is assumed of the process: states and actions with unknown transition probabilities, or only episodes."""

QUESTION, METHOD, DATA, SAMPLING, EPISODES = "Question", "Method", "Data", "Sampling", "Episodes"
"""Headings of groups, for the options of one command that belong there."""


SEED, HIDE = "Seed of the random number generator.", "Hide row counts below N (privacy)."
REWARDS_LIE = "Where every reward of an episode lies; inf or -inf is an end that is not known."
RETURNS_LIE = "Where the return of every episode lies; with one end alone (-1000 inf) one answer can be proved."
ON_RANGE = "What becomes of a return outside its range: an error, or a warning and the end of the certificate."
"""The help of options that are in several groups."""

# ---------------------------------------------------------------- options of their own

ModelName = Annotated[
    str,
    typer.Argument(
        help="A task file, an environment such as gym:FrozenLake-v1?map_name=8x8, or one of: "
        f"{', '.join(BUILT_IN)}. In assess, watch, compare and identify also a table with a row a trial."
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", callback=_set_debug, is_eager=True, help="Show the traceback of an error.")
]
THRESHOLD = option("The threshold R to compare the value with. Required, unless the task file has it.", under=QUESTION)
DELTA = option("The largest allowed probability of a wrong answer.", default=0.05, under=QUESTION)
Range = tuple[float, float] | None

# ---------------------------------------------------------------- groups


@dataclass(frozen=True)
class Question:
    """What the options say about the question, in place of what the model says; None where they say nothing."""

    policy: str | None = option("Use this policy instead of the model's: a policy file, or uniform.", "FILE")
    discount: float | None = option("Use this discount instead of the model's.")
    rewards: str | None = option('Which reward model of a .drn or .tra file; "" is the unnamed one.', "NAME")
    initial: str | None = option(
        "Start in this state, in the states with this label, or (log) as the log says.", "STATE"
    )
    horizon: int | str | None = option(
        'Let an episode have this many steps, instead of the model\'s; "time limit": as the environment says.',
        "STEPS",
        parser=_steps,
    )
    goal: list[str] | None = option(
        "Ask for the probability of reaching this state, label or condition (d!=6); may be repeated.", "STATE"
    )
    avoid: list[str] | None = option(
        "With --goal: do not pass this state, label or condition on the way (a goal is reached all the same); "
        "may be repeated.",
        "STATE",
    )
    terminal: list[str] | None = option(
        "End episodes in this state, label or condition of a model checker's file; may be repeated.", "STATE"
    )
    support: SupportName | None = option(
        "kernel: the test knows which successors the model's kernel allows, and not how likely they are."
    )
    const: list[str] | None = option(
        "The value of a constant that a program in PRISM's language leaves undefined; may be repeated.", "NAME=VALUE"
    )

    def of_another(self, model: str, policy: str | None = None) -> Question:
        """The same question about a second model, with its own policy; it need not be a program with constants."""
        return replace(self, policy=policy, const=self.const if is_program(model) else None)


@dataclass(frozen=True)
class Method:
    """Settings of the method ptst."""

    boundary: BoundaryName | None = option("The boundary of the method ptst.")
    prior: float | None = option("The Dirichlet prior of the mixture boundary; by default 0.5.")
    allocation: AllocationName | None = option("Which state-action pairs ptst samples; by default uniform.")


@dataclass(frozen=True)
class Data:
    """What is sampled from; or the rows of a log in their order, and how to read them."""

    simulator: str | None = option("Sample from this Python object: package.module:name.")
    log: list[str] | None = option("Look at a log with an order column, instead of sampling.", "FILE")
    column: list[str] | None = option("Your name of a column, such as s=state; may be repeated.", "PART=NAME")
    skip: list[str] | None = option(
        "Drop rows whose state (s) or action (a) is not in the task; last: episodes may stop without an end.", "PART"
    )
    by_episode: bool = option(
        "Take one episode after another, by their ids assigned at their start: for an order that restarts.",
        default=False,
    )


@dataclass(frozen=True)
class Sampling:
    """How long a run goes on, and where it is kept."""

    seed: int = option(SEED, default=0)
    max_samples: int | None = option("Stop undecided after N samples, for example 1e6.", "N", parser=_whole)
    max_seconds: float | None = option("Stop undecided after this many seconds.", "SECONDS")
    budget: int | None = option(
        "The most transitions, episodes (of all agents) or pairs of episodes that there will be, fixed beforehand: "
        "bets aim at an answer by then. By default the task file's.",
        "N",
        parser=_whole,
    )
    parallel: int = option("Have N rollouts, or episodes, under way at once.", "N", default=1)
    checkpoint: Path | None = option("Save the run in this file; if it exists, resume from it.", "FILE")

    def settings(self, shown: Lines, budget: int | None) -> dict[str, Any]:
        """The same as arguments of a test, which shows its progress there; with this budget."""
        kept = self.checkpoint is not None and self.checkpoint.exists()
        return {
            "rng": self.seed,
            "max_samples": self.max_samples,
            "max_seconds": self.max_seconds,
            "budget": budget,
            "parallel": self.parallel,
            "checkpoint": self.checkpoint,
            "resume": self.checkpoint if kept else None,
            "progress": shown,
        }


@dataclass(frozen=True)
class Episodes:
    """What is said of an environment and an agent of which nothing else is assumed."""

    assume: Assumption = option(
        "markov: a table of states and actions; episodes: any environment with any agent (--agent).",
        default=Assumption.markov,
    )
    agent: str | None = option(
        "With --assume episodes: the agent, as package.module:name; or the file that Stable-Baselines3 saved, "
        "model.zip or ppo:model.zip.",
        "PLACE",
    )
    critic: str | None = option("What is expected of the rest of an episode: package.module:name.", "PLACE")
    reward_range: Range = option(REWARDS_LIE, "LOW HIGH")
    return_range: Range = option(RETURNS_LIE, "LOW HIGH")
    on_range: OnRange | None = option(ON_RANGE)
    outcome: str | None = option(
        'What counts of an episode, in place of its return: "at least 200", a key of the info of its last step such as '
        "is_success, or a function of (rewards, info), package.module:name.",
        "OUTCOME",
    )
    vector: int | None = option("Run N environments at once (gymnasium.make_vec).", "N")
    batched: bool = option("With --vector: call the agent with all observations at once.", default=False)
    stochastic: bool = option(
        "Let an agent with predict sample its actions (deterministic=False); by default it does not.", default=False
    )


OF_SEVERAL = "assume", "reward_range", "return_range", "on_range", "outcome", "vector", "batched", "stochastic"
"""What is said of the episodes of more than one agent."""


@dataclass(frozen=True)
class Output:
    """Where the answer goes, and what the exit code may say."""

    json: bool = option("Print one JSON document.", default=False)
    quiet: bool = option("Show no progress.", default=False)
    html: Path | None = option("Also write the result as a web page.", "FILE")
    accept_uncertified: bool = option(
        "Exit with the code of an answer that is not certified, instead of 3; never if the data refute the model.",
        default=False,
    )


Shown = Annotated[Output, Only("json", "quiet", "html")]
"""For a result that has no answer to accept."""
