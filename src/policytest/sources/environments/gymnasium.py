r"""Gymnasium environments with numbered observations and actions, as tasks to be tested.

    lake = sources.gymnasium("FrozenLake-v1", policy, discount=0.99)
    decide(lake.task, lake.simulator, threshold=0.3)

An environment with a table ``P`` gives an exact simulator, and the exact value of the policy to compare a verdict with:
see `policytest.sources.environments.table`. One without is stepped: see `policytest.sources.environments.stepping`.

*Time limits.* The discounted value has no horizon: what a `TimeLimit` cuts off is part of it. A time limit is therefore
never an end; around the environment it is taken off. With ``horizon="time limit"`` the value is that of the first
steps, as many as the limit allows.

*What the guarantee means.* The test knows rewards, policy, discount, which arrivals end an episode, and the start where
that is stated; it does not know the kernel, even if the environment does. If V <= threshold, the probability of ever
answering "above" is at most delta, and likewise on the other side, provided that the environment is what it says it is:
Markov in its observations, with rewards a function of (s, a, next state).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from policytest._base import arrays, errors
from policytest._base.arrays import FloatArray, Kernel
from policytest._base.errors import InputError
from policytest._base.rows import looping
from policytest._base.table import Row, Shown, Table
from policytest._base.text import number, plural
from policytest.data.simulators import TabularSimulator
from policytest.data.walks import called, made
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task, tell_of_both
from policytest.mdp.values import value
from policytest.sources.environments.bins import Bins
from policytest.sources.environments.stepping import (
    OBSERVATIONS_ARE_MARKOV,
    Asked,
    Given,
    Stepped,
    Stepping,
    given_initial,
    given_rewards,
    given_states,
    stepped_task,
)
from policytest.sources.environments.table import Rules, asked_task, read_table, rules
from policytest.sources.labels import Names, Places
from policytest.sources.tasks.by_name import Content
from policytest.sources.tasks.policy import discrete, places, places_shown, policy_table
from policytest.sources.tasks.policy_files import load_policy

HARMLESS = (
    "TimeLimit",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "HumanRendering",
    "Autoreset",
    "RenderCollection",
)
"""Wrappers that change neither observations nor actions, rewards or ends, so that the table underneath holds."""
STARTS = ("initial_state_distrib", "isd")
PREFIX = "gym:"
SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
TIME_LIMIT = "time limit"
OWN_OPTIONS = ("known_support", "ambiguous", "policy", "discount")


@dataclass(frozen=True, eq=False)
class Environment(Shown):
    """An environment as something to be tested.

    Attributes
    ----------
    task, simulator
        For `decide` and all the others.
    kernel, value
        The true kernel and the exact value of the policy, where the environment has a table; otherwise None.
    name
        Of the environment.
    notes
        What was made of time limits, ends and ambiguous arrivals.
    """

    task: Task = field(repr=False)
    simulator: TabularSimulator | Stepping = field(repr=False)
    kernel: Kernel | None = field(repr=False)
    value: float | None
    name: str
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> Table:
        """What there is, as one table."""
        task = self.task
        ends = len(task.ends)
        rows = [
            Row("states", number(task.n_states), key="states", raw=task.n_states),
            Row("actions", number(task.n_actions), key="actions", raw=task.n_actions),
            Row("discount", number(task.discount), key="discount", raw=task.discount),
            Row("ended states", number(ends), key="ended", raw=ends),
            Row("rewards on", _rewards_on(task)),
            Row("samples from", "its table" if self.kernel is not None else "its steps"),
        ]
        if task.horizon is not None:
            from_start = ", one of them from the start" if getattr(self.simulator, "starts_unknown", False) else ""
            rows.insert(3, Row("horizon", number(task.horizon), f"steps{from_start}", "horizon", task.horizon))
        if self.value is not None:
            rows.append(Row("exact value", number(self.value), "of the policy, by its table", "value", self.value))
        title = f"{self.name}: {plural(task.n_states, 'state')}, {plural(task.n_actions, 'action')}"
        return Table(title, tuple(rows), self.notes)


def _rewards_on(task: Task) -> str:
    if task.observes_rewards:
        return "every step, observed"
    return "(s, a, next state)" if task.rewards_on_successor else "(s, a)"


def gymnasium(
    env: object,
    policy: object,
    discount: float | None = None,
    *,
    horizon: int | str | None = None,
    goal: object = None,
    avoid: Collection[object] = (),
    options: Mapping[str, object] | None = None,
    rewards: object = None,
    initial: object = None,
    terminal: object = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    known_support: bool = False,
    ambiguous: str = "refuse",
    table: bool | None = None,
) -> Environment:
    """An environment and a policy, as a task, a simulator and, where there is a table, the exact value.

    Parameters
    ----------
    env
        A Gymnasium environment with Discrete observations and actions, its id, or its EnvSpec.
    policy
        Anything that `policytest.sources.policy` takes. Functions and agents are shown observations.
    discount
        gamma in [0, 1]; not needed where a goal is asked for. With 1 see `Task`: episodes must end, or have a horizon.
    horizon
        The number of steps of an episode, if it is limited; or "time limit": that of the environment.
    goal, avoid
        States: the value is the probability of reaching a goal, before any state to avoid.
    options
        Of `gymnasium.make`, such as ``{"map_name": "8x8"}``, where an id or a spec is given.
    rewards
        r[s,a], r[s,a,x] or a function of (s, a, next state) as the environment numbers them. An environment without a
        table needs them; every reward that is paid, or listed, is compared with them. Or `Observed(low, high)`:
        the environment is stepped, and rewards are those that it pays, between these numbers.
    initial
        rho[s], or the state in which all episodes start. Otherwise that of the table's environment
        (``initial_state_distrib`` or ``isd``); without a table the start is part of what is unknown.
    terminal
        Without a table: the states that end episodes, where it is the state that does. Saves copies of states.
    states, actions
        Names.
    known_support
        Whether the successors that the table lists are known to be all there are. By default the test does not know
        which transitions are possible, just as if it had to find out in the world.
    ambiguous
        "refuse", or "split": what to do where one (s, a, next state) has two rewards, or is an end and is none.
    table
        None: use the table if there is one. False: step the environment. True: refuse one without a table.

    >>> lake = gymnasium("FrozenLake-v1", "uniform", 0.9)
    >>> lake.task.n_states, round(lake.value, 5)
    (16, 0.00448)
    """
    env = _environment(env, options)
    at = places_shown(discrete(env, "observation_space"), discrete(env, "action_space"), states, actions)
    arrays.one_of("ambiguous", ambiguous, ("refuse", "split"))
    limit, inner = _without_limit(env)
    steps = _horizon(horizon, limit, env)
    asked = _asked(steps, goal, avoid, at, {"discount": discount, "rewards": rewards, "terminal": terminal})
    gamma = 1.0 if discount is None else discount
    if isinstance(rewards, Observed):
        if table:
            raise InputError("rewards are observed by stepping the environment; leave table out")
        table = False
    P = _table_of(env, table)
    notes = _limit_notes(limit, steps, "discounted value" if gamma < 1 else "value")
    if P is None:
        if known_support:
            raise InputError("known_support is for tables; an environment that is stepped lists no successors")
        return _stepped(inner, at, Given(policy, gamma, rewards, initial, terminal, asked), notes)
    if terminal is not None:
        raise InputError("terminal is for environments that are stepped; the table says what ends an episode")
    listed = read_table(P, at)
    rho = _initial(env, initial, at)
    said: Any = None if rewards is None else given_rewards(rewards, at)
    found = rules(listed, at, rho, split=ambiguous == "split", known_support=bool(known_support), rewards=said)
    pi = policy_table(policy, at, free=np.flatnonzero(found.absorbing[: at.n_states]))[found.origin]
    pi[at.n_states :][found.absorbing[at.n_states :]] = np.eye(at.n_actions)[0]
    task, kernel = _tabular(found, pi, gamma, asked, at.actions.own_names)
    exact = value(task, kernel)
    return Environment(task, TabularSimulator(kernel), kernel, exact, called(env), (*notes, *found.notes))


def _tabular(found: Rules, pi: FloatArray, discount: float, asked: Asked, actions: Names) -> tuple[Task, Kernel]:
    """The task on the rules of a table, and its kernel; goals and states to avoid are followed by themselves."""
    known: Content = {"policy": pi, "initial": found.initial, "support": found.support, "actions": actions}
    goal, over, kernel = None, found.absorbing, found.kernel
    if asked.goal is not None and asked.over is not None:
        goal, over = asked.goal[found.origin], asked.over[found.origin] | over
        kernel = looping(kernel, np.flatnonzero(over))
    return asked_task(found.rewards, over, goal, discount, asked.horizon, states=found.states, **known), kernel


def _horizon(horizon: int | str | None, limit: int, env: object) -> int | None:
    """The steps of an episode, from a number or from the time limit of the environment."""
    if not isinstance(horizon, str):
        return horizon
    if horizon != TIME_LIMIT:
        raise InputError(f'horizon is {horizon!r}; pass a number of steps, or "{TIME_LIMIT}"')
    if not limit:
        raise InputError(f'horizon is "{TIME_LIMIT}", and {called(env)} has none; pass the number of steps')
    return limit


def _asked(horizon: int | None, goal: object, avoid: Collection[object], at: Places, others: Content) -> Asked:
    """The question beside discounted rewards, checked: a goal leaves no room for another."""
    if goal is None:
        if others["discount"] is None:
            raise InputError("discount is missing; pass it, or the goal whose probability is asked for")
        if len(avoid):
            raise InputError("avoid belongs to goal, the states to reach; add goal")
        return Asked(horizon)
    for name, given in others.items():
        if given is not None and not (name == "discount" and given == 1):
            raise InputError(
                f"goal asks for the probability of reaching it; leave {name} out"
                + (", and name states that end an episode in avoid" if name == "terminal" else "")
            )
    goals, avoided = given_states("goal", goal, at), given_states("avoid", avoid, at)
    tell_of_both(np.flatnonzero(goals & avoided), at.states.own_names)
    return Asked(horizon, goals, avoided & ~goals)


def _limit_notes(limit: int, horizon: int | None, what: str) -> list[str]:
    """What was made of the time limit."""
    if not limit:
        return []
    if horizon is None:
        return [f"The time limit of {limit:,} steps is not an end: the {what} goes on beyond it."]
    same = "is the horizon" if limit == horizon else f"is not the horizon, which has {horizon:,}"
    return [f"The time limit of {limit:,} steps {same}."]


def from_address(address: str, policy: object, discount: float | None, **question: object) -> Environment:
    """The environment at an address such as "gym:FrozenLake-v1?map_name=8x8&is_slippery=true", for the command line.

    What follows the question mark are options of `gymnasium.make`, and known_support, ambiguous, policy and discount.
    An option that is true or false is written so, or as yes, no, on, off, 1, 0; nothing else is taken for it.
    The policy is a file, or "uniform". ``question`` are horizon, goal, avoid and known_support, as for `gymnasium`.
    """
    name, options = parsed_address(address)
    own: Content = {key: options.pop(key) for key in OWN_OPTIONS if key in options}
    stated, rate = own.pop("policy", None), own.pop("discount", None)
    policy, discount = policy or stated, rate if discount is None else discount
    if discount is None and "goal" not in question:
        raise InputError(
            f"{address} has no discount; pass --discount 0.9, or write discount=0.9 behind its question mark"
        )
    if policy is None:
        raise InputError(f"{address} has no policy; pass --policy FILE, or write policy=FILE (or uniform) behind it")
    env = _environment(name, options)
    if policy != "uniform":
        at = places(env)
        policy = load_policy(str(policy), (at.states.own_names or at.n_states, at.actions.own_names or at.n_actions))
    try:
        return gymnasium(env, policy, discount, table=True, **(own | question))
    except InputError as error:
        told = str(error).replace('pass ambiguous="split"', "write &ambiguous=split behind the address")
        told = told.replace("pass known_support=True", "write &known_support=true behind the address")
        raise InputError(f"{address}: {told}") from None


def parsed_address(address: str) -> tuple[str, Content]:
    """The id of an environment, and the options behind the question mark."""
    name, _, query = address.removeprefix(PREFIX).partition("?")
    if not name:
        raise InputError(f"{address!r} names no environment; write {PREFIX}FrozenLake-v1, for instance")
    try:
        listed = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise InputError(f"{address}: options are written ?name=value&other=value") from None
    defaults = _defaults(name)
    options = {key: _option(key, text, defaults.get(key)) for key, text in listed}
    if len(options) < len(listed):
        raise InputError(f"{address}: an option is there twice; keep one")
    return name, options


def _defaults(name: str) -> Content:
    """The options of an environment as they are if nothing is said; those that can be known without making it."""
    found: Content = {"known_support": False}
    gym = errors.needs("gymnasium", "gym")
    with contextlib.suppress(Exception):  # `gymnasium.make` will say what is wrong
        module, _, name = name.rpartition(":")
        if module:
            importlib.import_module(module)
        spec = gym.spec(name)
        maker = (
            spec.entry_point if callable(spec.entry_point) else gym.envs.registration.load_env_creator(spec.entry_point)
        )
        parameters = inspect.signature(maker).parameters.values()
        found |= {one.name: one.default for one in parameters if one.default is not one.empty}
        found |= spec.kwargs
    return found


def _option(key: str, text: str, default: object = None) -> bool | int | float | str | None:
    """A number, true, false or none; otherwise the text itself. Where the default is true or false, one of these."""
    if isinstance(default, bool):
        if text.lower() not in SWITCHES:
            raise InputError(f"{key} is {text!r}; it is true or false")
        return SWITCHES[text.lower()]
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# ---------------------------------------------------------------- what is asked of an environment


def _environment(env: Any, options: Mapping[str, object] | None) -> Any:
    """The environment itself, made if it was named."""
    if not isinstance(env, str) and type(env).__name__ != "EnvSpec":
        if options:
            raise InputError(
                "options belong to an environment that is made here, from its id; this one is made already"
            )
        if hasattr(env, "single_observation_space"):
            raise InputError("env is a vector of environments; pass a single one, such as gymnasium.make(id)")
        if not all(hasattr(env, name) for name in ("observation_space", "action_space", "reset", "step")):
            raise InputError(f"env is a {type(env).__name__}; pass a Gymnasium environment, or its id")
        return env
    return made(env, **(options or {}))


def _wrappers(env: object) -> list[Any]:
    """The environment and all that is inside it, from the outside."""
    layers = [env]
    while hasattr(layers[-1], "env") and getattr(layers[-1], "unwrapped", None) is not layers[-1]:
        layers.append(layers[-1].env)
    return layers


def _without_limit(env: Any) -> tuple[int, Any]:
    """The time limit, 0 if there is none, and the environment without it where it is on the outside."""
    limits = [layer for layer in _wrappers(env) if type(layer).__name__ == "TimeLimit"]
    steps = min((int(getattr(layer, "_max_episode_steps", 0)) for layer in limits), default=0)
    while type(env).__name__ == "TimeLimit":
        env = env.env
    return steps, env


def _table_of(env: object, wanted: bool | None) -> Any:
    """The table ``P`` under all wrappers, if it is to be used."""
    if wanted is False:
        return None
    *around, core = _wrappers(env)
    P = getattr(core, "P", None)
    if P is None:
        if wanted:
            raise InputError(f"{called(env)} has no table P; it can be stepped from Python, with rewards=")
        return None
    for layer in around:
        if type(layer).__name__ not in HARMLESS:
            raise InputError(
                f"env is wrapped in {type(layer).__name__}, which may change what the table P says; pass env.unwrapped "
                "to ignore the wrapper, or table=False and rewards= to step the environment as it is"
            )
    return P


def _initial(env: object, given: object, at: Places) -> FloatArray:
    if given is not None:
        return given_initial(given, at)
    for name in STARTS:
        found = getattr(_wrappers(env)[-1], name, None)
        if found is not None:
            rho = arrays.real_array(f"env.{name}", found, (at.n_states,))
            return arrays.probability_rows(f"env.{name}", rho)
    raise InputError("env does not say where it starts (initial_state_distrib); pass initial, rho[s] or the state")


def _stepped(env: Stepped, at: Places, given: Given, notes: list[str]) -> Environment:
    if given.rewards is None and given.asked.goal is None:
        raise InputError(
            f"{called(env)} has no table P; pass rewards: r[s,a], r[s,a,x], a function of (s, a, next state), or "
            "Observed(low, high), the range of those that it pays"
        )
    cells = [layer.bins for layer in _wrappers(env) if isinstance(getattr(layer, "bins", None), Bins)]
    rests_on = tuple(one for bins in cells for one in bins.assumptions) or (OBSERVATIONS_ARE_MARKOV,)
    task, layout, pi = stepped_task(at, given, rests_on)
    if layout.start >= 0:
        divided = ", and rewards are divided by discount" if task.discount < 1 else ""
        notes.append(f'Where episodes start is unknown: a state "start" was added{divided}.')
    if layout.endings and layout.asked.goal is None:
        notes.append(
            "An episode that ends leads to an added absorbing state with reward 0. Any state may also be entered "
            "without an end: pass terminal, the states that always end an episode, for narrower ranges of the value."
        )
    return Environment(task, Stepping(env, at, task, layout, pi), None, None, called(env), tuple(notes))
