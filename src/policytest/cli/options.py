"""The options that several commands share, each defined once."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from policytest.cli.exit_codes import debugging
from policytest.cli.inputs import BUILT_IN


def _set_debug(wanted: bool) -> None:
    if wanted:
        debugging.set(True)


def _whole(text: str) -> int:
    """A whole number, also as 1e6."""
    number = float(text)
    if not math.isfinite(number) or number != int(number):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdigit() else int(number)


def _steps(text: str) -> int | str:
    """A number of steps, or the words that stand for an environment's."""
    return text if text == "time limit" else _whole(text)


OnePolicyMethod = StrEnum("OnePolicyMethod", ["betting", "ptst", "boxes", "monte-carlo", "returns"])
LogMethod = StrEnum("LogMethod", ["betting", "log-betting", "ptst", "boxes", "monte-carlo"])
PairsMethod = StrEnum("PairsMethod", ["betting", "ptst"])
ValueMethod = StrEnum("ValueMethod", ["betting", "ptst", "returns"])
SearchMethod = StrEnum("SearchMethod", ["betting", "ptst", "klb-ts"])
BoundaryName = StrEnum("BoundaryName", ["mixture", "paper"])
AllocationName = StrEnum("AllocationName", ["uniform", "optimal", "adaptive", "forward"])
"""Names in `policytest.methods.names`."""
SupportName = StrEnum("SupportName", ["kernel"])
"""The word of the task file."""

Assumption = StrEnum("Assumption", ["markov", "episodes"])
LogAssumption = StrEnum("LogAssumption", ["markov", "propensities", "episodes"])
"""What is assumed of the process: states and actions with unknown transition probabilities, or only episodes."""

Debug = Annotated[
    bool, typer.Option("--debug", callback=_set_debug, is_eager=True, help="Show the traceback of an error.")
]
Delta = Annotated[float, typer.Option(help="The largest allowed probability of a wrong answer.")]
Seed = Annotated[int, typer.Option(help="Seed of the random number generator.")]
ModelName = Annotated[
    str,
    typer.Argument(
        help=f"A task file, an environment such as gym:FrozenLake-v1?map_name=8x8, or one of: {', '.join(BUILT_IN)}."
    ),
]
PolicyName = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="Use this policy instead of the model's: a policy file, or uniform."),
]
Discount = Annotated[float | None, typer.Option(help="Use this discount instead of the model's.")]
RewardModel = Annotated[
    str | None,
    typer.Option("--rewards", metavar="NAME", help='Which reward model of a .drn or .tra file; "" is the unnamed one.'),
]
InitialState = Annotated[
    str | None,
    typer.Option(
        "--initial",
        metavar="STATE",
        help="Start in this state, in the states with this label, or (log) as the log says.",
    ),
]
Horizon = Annotated[
    Any,
    typer.Option(
        parser=_steps,
        metavar="STEPS",
        help='Let an episode have this many steps, instead of the model\'s; "time limit": as the environment says.',
    ),
]
Goal = Annotated[
    list[str] | None,
    typer.Option(
        "--goal",
        metavar="STATE",
        help="Ask for the probability of reaching this state, label or condition (d!=6); may be repeated.",
    ),
]
Avoid = Annotated[
    list[str] | None,
    typer.Option(
        "--avoid",
        metavar="STATE",
        help="With --goal: do not pass this state, label or condition on the way (a goal is reached all the same); may "
        "be repeated.",
    ),
]
Terminal = Annotated[
    list[str] | None,
    typer.Option(
        "--terminal",
        metavar="STATE",
        help="End episodes in this state, label or condition of a model checker's file; may be repeated.",
    ),
]
Support = Annotated[
    SupportName | None,
    typer.Option(
        help="kernel: the test knows which successors the model's kernel allows, and not how likely they are."
    ),
]
Constants = Annotated[
    list[str] | None,
    typer.Option(
        "--const",
        metavar="NAME=VALUE",
        help="The value of a constant that a program in PRISM's language leaves undefined; may be repeated.",
    ),
]
MaxSamples = Annotated[
    int | None, typer.Option(parser=_whole, metavar="N", help="Stop undecided after N samples, for example 1e6.")
]
MaxSeconds = Annotated[
    float | None, typer.Option("--max-seconds", metavar="SECONDS", help="Stop undecided after this many seconds.")
]
SimulatorPlace = Annotated[
    str | None, typer.Option("--simulator", help="Sample from this Python object: package.module:name.")
]
Assume = Annotated[
    Assumption,
    typer.Option(help="markov: a table of states and actions; episodes: any environment with any agent (--agent)."),
]
AgentPlace = Annotated[
    str | None,
    typer.Option("--agent", metavar="PLACE", help="With --assume episodes: the agent, as package.module:name."),
]
CriticPlace = Annotated[
    str | None,
    typer.Option("--critic", metavar="PLACE", help="What is expected of the rest of an episode: package.module:name."),
]
RewardRange = Annotated[
    tuple[float, float] | None,
    typer.Option("--reward-range", metavar="LOW HIGH", help="Where every reward of an episode lies."),
]
ReturnRange = Annotated[
    tuple[float, float] | None,
    typer.Option("--return-range", metavar="LOW HIGH", help="Where the return of every episode lies."),
]
Vector = Annotated[
    int | None, typer.Option("--vector", metavar="N", help="Run N environments at once (gymnasium.make_vec).")
]
Batched = Annotated[
    bool, typer.Option("--batched", help="With --vector: call the agent with all observations at once.")
]
Stochastic = Annotated[
    bool,
    typer.Option(
        "--stochastic",
        help="Let an agent with predict sample its actions (deterministic=False); by default it does not.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the result as a web page.")]
Threshold = Annotated[
    float | None, typer.Option(help="The threshold R to compare the value with. Required, unless the task file has it.")
]
AcceptUncertified = Annotated[
    bool,
    typer.Option(
        "--accept-uncertified",
        help="Exit with the code of an answer that is not certified, instead of 3; never if the data refute the model.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="PART=NAME", help="Your name of a column, such as s=state; may be repeated."),
]
AssumeOfLog = Annotated[
    LogAssumption,
    typer.Option(
        help="What the answer may rest on: a Markov table; or the episodes of the log alone, with the propensities of "
        "their actions, or as those of the policy itself. The last two need no task file."
    ),
]
Ladder = Annotated[
    bool,
    typer.Option(
        "--ladder",
        help="Also ask the episodes alone, by their propensities, or, without such a column, as those of this policy, "
        "which must then be the one that made the log; "
        "warn if they refute the Markov table.",
    ),
]
SmallestPropensity = Annotated[
    float | None,
    typer.Option(
        "--smallest-propensity",
        metavar="P",
        help="No action, logged or not, had a smaller propensity: known before the data, not taken from the log. "
        "Narrows intervals.",
    ),
]
LogFiles = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="FILE", help="Look at a log with an order column, instead of sampling."),
]
ByEpisode = Annotated[
    bool,
    typer.Option(
        "--by-episode",
        help="Take one episode after another, by their ids assigned at their start: for an order that restarts.",
    ),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        "--skip",
        metavar="PART",
        help="Drop rows whose state (s) or action (a) is not in the task; last: episodes may stop without an end.",
    ),
]
SuppressBelow = Annotated[int, typer.Option(min=0, metavar="N", help="Hide row counts below N (privacy).")]
Boundary = Annotated[BoundaryName | None, typer.Option(help="The boundary of the method ptst.")]
Prior = Annotated[float | None, typer.Option(help="The Dirichlet prior of the mixture boundary; by default 0.5.")]
Allocation = Annotated[
    AllocationName | None, typer.Option(help="Which state-action pairs ptst samples; by default uniform.")
]
Checkpoint = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Save the run in this file; if it exists, resume from it.")
]
