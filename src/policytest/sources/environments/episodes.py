"""`Episodes` by address, for the command line and for studies.

gym:CartPole-v1                  an environment of Gymnasium; its options follow a question mark
python:package.module:name       an environment, a function run(rng), or Episodes
"""

from __future__ import annotations

import math
from typing import NamedTuple

from policytest._base import arrays, errors
from policytest._base.errors import InputError
from policytest.data.episodes import Episodes
from policytest.data.ranges import REFUSE, Range, ends_of
from policytest.data.trained_agents import is_file
from policytest.data.walks import NO_AGENT, made
from policytest.sources.environments.gymnasium import OWN_OPTIONS, PREFIX, parsed_address
from policytest.sources.imported import imported, instance_of

PYTHON = "python:"


class AskedEpisodes(NamedTuple):
    """What is said about episodes beside their address; agent and critic are places package.module:name.

    So is an outcome, unless it is "at least 200", "at most 10" or a key of the info of the last step; an agent may be
    the file of a trained one, model.zip or ppo:model.zip.
    """

    agent: str | None = None
    horizon: int | str | None = None
    reward_range: Range | None = None
    return_range: Range | None = None
    discount: float | None = None
    critic: str | None = None
    vector: int | None = None
    batched: bool = False
    stochastic: bool = False
    outcome: str | None = None
    on_range: str | None = None


def episodes_at(address: str, asked: AskedEpisodes, dashes: str = "") -> Episodes:
    """The episodes at an address; ``dashes`` are written before the names of arguments in errors."""
    if address.startswith(PYTHON):
        env = _python(address, asked, dashes)
        if isinstance(env, Episodes):
            return env
        discount = None
    elif address.startswith(PREFIX):
        env, discount = _gymnasium(address, asked.vector)
    else:
        raise InputError(f"{address!r} has no episodes; pass {PREFIX}CartPole-v1, or {PYTHON}package.module:name")
    agent, critic, outcome = (
        place if is_plain(name, place) else _at(dashes + name, place)
        for name, place in (("agent", asked.agent), ("critic", asked.critic), ("outcome", asked.outcome))
    )
    given = asked.discount if asked.discount is not None else discount
    ranges = asked.reward_range, asked.return_range
    if ranges == (None, None):
        ranges = _declared(env), None
    try:
        return Episodes(
            env,
            agent,
            horizon=None if isinstance(asked.horizon, str) else asked.horizon,
            reward_range=ranges[0],
            return_range=ranges[1],
            discount=1.0 if given is None else given,
            critic=critic,
            batched=asked.batched,
            deterministic=not arrays.flag("stochastic", asked.stochastic),
            outcome=outcome,
            on_range=REFUSE if asked.on_range is None else str(asked.on_range),
        )
    except InputError as error:
        raise InputError(f"{address}: {_spelled(str(error), dashes)}") from None


def is_plain(name: str, place: str | None) -> bool:
    """Whether this is not a place package.module:name, but words for an outcome, or the file of an agent.

    >>> is_plain("outcome", "at least 200"), is_plain("agent", "ppo:model.zip"), is_plain("agent", "agents:agent")
    (True, True, False)
    """
    return (name == "outcome" and ":" not in str(place)) or (name == "agent" and is_file(place))


def _at(argument: str, place: str | None) -> object:
    """The object at a place; None without one."""
    return None if place is None else instance_of(argument, place, imported(argument, place))


def _spelled(told: str, dashes: str) -> str:
    """An error of `Episodes` with the names that arguments have here."""
    if told == NO_AGENT:
        return "no agent; " + (f"pass {dashes}agent package.module:name" if dashes else 'add agent = "module:name"')
    told = told.replace("deterministic=False", f"{dashes}stochastic").replace(
        "deterministic is for", f"{dashes}stochastic is for"
    )
    if not dashes:
        return told
    for name in ("return_range", "reward_range"):
        told = told.replace(f"{name}=(low, high)", f"{dashes}{name.replace('_', '-')} LOW HIGH")
    return told.replace("with a horizon or a discount below 1", f"with {dashes}horizon N or {dashes}discount below 1")


def _gymnasium(address: str, vector: int | None) -> tuple[object, float | None]:
    """The environment, or a vector of them, and the discount behind the question mark."""
    name, options = parsed_address(address)
    discount = options.pop("discount", None)
    if wrong := [key for key in OWN_OPTIONS if options.pop(key, None)]:
        raise InputError(f"{address}: {wrong[0]} is for an environment that is read as a table; leave it out")
    if vector is None:
        return made(name, **options), discount
    if vector < 1:
        raise InputError(f"vector is {vector}; pass the number of environments that run at once")
    gym = errors.needs("gymnasium", "gym")
    try:
        return gym.make_vec(name, num_envs=vector, **options), discount
    except Exception as error:
        raise InputError(f"{address}: no vector of it can be made: {errors.first_line(error)}") from error


def _python(address: str, asked: AskedEpisodes, dashes: str) -> object:
    """The environment, the function or the `Episodes` at a place."""
    place = address.removeprefix(PYTHON)
    found = instance_of("the model", place, imported("the model", place))
    if asked.vector is not None:
        raise InputError(f"{dashes}vector is for {PREFIX} addresses; name a vector of environments instead")
    if isinstance(found, Episodes) and asked != AskedEpisodes():
        name = next(key for key, given in asked._asdict().items() if given not in (None, False))
        raise InputError(f"{address} is an Episodes, which says all itself; leave {dashes}{name.replace('_', '-')} out")
    return found


def _declared(env: object) -> Range | None:
    """The range of rewards that an environment declares, if it is finite."""
    given = getattr(getattr(env, "unwrapped", env), "reward_range", None)
    if not isinstance(given, tuple | list) or len(given) != 2 or not all(map(math.isfinite, given)):
        return None
    return ends_of("env.reward_range", given)
