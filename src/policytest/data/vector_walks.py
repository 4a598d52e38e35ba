"""A vector of environments and an agent, step by step: `gymnasium.vector.VectorEnv`, in any of its autoreset modes.

Vectors of Stable-Baselines3 are adapted in `vec_envs`.

What a step tells is the same for all modes. They differ in when a row (a sub-environment) whose episode is over begins
the next one (Gymnasium's `AutoresetMode`):

    SAME_STEP   within the step that ended it
    NEXT_STEP   at the next step, which moves the other rows, ignores the action of this one, and pays it nothing
    DISABLED    where it is asked to: ``reset(options={"reset_mask": rows})``

*A seed for each episode.* The rows of `SyncVectorEnv` and `AsyncVectorEnv` can be reset at any time, each with a seed,
also right after they have begun by themselves. Other vectors are seeded once, when all rows are reset; from then on a
row goes on with the random numbers that its earlier episodes have left.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray
from policytest._base.errors import InputError
from policytest.data.agent_copies import AgentCopies
from policytest.data.shared_generators import SharedGenerators
from policytest.data.trained_agents import loaded, prepared, takes_masks
from policytest.data.vec_envs import SINGLE, VecEnvAdapter, is_vec_env
from policytest.data.walks import LARGEST_SEED, NO_AGENT, AgentAdapter, called, first_observation, five_parts

MODES = ("NEXT_STEP", "SAME_STEP", "DISABLED")


class Stepped(NamedTuple):
    """One step of all rows: the rewards, which episodes ended, and which rows were only reset (None: none)."""

    rewards: FloatArray
    ended: BoolArray
    only_reset: BoolArray | None


class Desk:
    """Who steps a vector at present."""

    user: object = None

    def serve(self, user: object) -> None:
        """From now on this one steps it."""
        self.user = user


class VectorWalk:
    """A vector of environments and an agent.

    The agent is called for each row, or once for all rows where ``batched``. ``user`` is whoever steps it at present: a
    supply that finds another one there has to begin again. It is stepped inside ``with walk.turn``.
    """

    def __init__(self, env: Any, agent: object, batched: bool, deterministic: bool) -> None:
        self.env, self.batched, self.n = env, batched, int(env.num_envs)
        adapter = env if isinstance(env, VecEnvAdapter) else None
        masks = None if adapter is None else adapter.masks
        self.act = AgentAdapter(prepared(agent, env, masks), deterministic)
        self.name, self.policy = called(env), self.act.policy
        self.turn, self.rounding = SharedGenerators(keeps=True), 0.0 if adapter is None else SINGLE
        self.copies: AgentCopies | None = None
        if callable(getattr(agent, "reset", None)):
            if batched:
                raise InputError(
                    "agent has reset, so it remembers one episode; with batched=True it is called for all at once: "
                    "leave batched out, and each environment has its own copy of the agent"
                )
            self.copies = AgentCopies(agent, self.n, deterministic)
        self.check_episode = None if adapter is None else adapter.check_episode
        self.mode = _mode(env)
        self.is_plain = hasattr(env.unwrapped, "env_fns")  # SyncVectorEnv and AsyncVectorEnv: a seed for each episode
        self.can_reset_rows = self.is_plain or self.mode == "DISABLED"
        self.time_limit = _time_limit(env)
        self.utils: Any = importlib.import_module("gymnasium.vector.utils")
        self.desk = Desk()

    @property
    def user(self) -> object:
        """Who steps the vector at present."""
        return self.desk.user

    def serve(self, user: object) -> None:
        """From now on this one steps it; None: whoever comes next begins again."""
        self.desk.serve(user)

    def is_of(self, other: VectorWalk) -> bool:
        """Whether the two step the same vector."""
        return bool(self.env.unwrapped is other.env.unwrapped)

    def share_with(self, other: VectorWalk) -> None:
        """The two step the same vector, with different agents: each notices that the other one has stepped it."""
        self.desk = other.desk

    def begin(self, seed: int, own: list[int] | None = None) -> None:
        """Reset all rows; the seed fixes what follows. ``own`` are seeds of the rows, in the place of its own."""
        self.turn.seed(seed)
        self.rng = self.act.begin(seed, getattr(self.env, "action_space", None))
        if self.copies is not None:
            self.copies.begin(seed)
        self.starts = np.ones(self.n, dtype=np.bool_)  # rows in which an episode begins
        self.memory: Any = None if self.batched else [None] * self.n
        seeds = own or np.random.default_rng(seed).integers(LARGEST_SEED, size=self.n).tolist()
        self.observations = first_observation(self.env.reset(seed=seeds if self.is_plain else seed))
        self.waiting: BoolArray | None = None  # rows that the next step only resets

    def step(self) -> Stepped:
        """One step of the agent in every row."""
        actions = self._actions()
        self.observations, rewards, terminated, truncated, self.infos = five_parts(self.env.step(actions))
        only_reset, self.waiting = self.waiting, None
        self.starts = np.zeros(self.n, dtype=np.bool_) if only_reset is None else only_reset
        ended = self._flags("terminated", terminated) | self._flags("truncated", truncated)
        paid = np.asarray(rewards)
        if paid.dtype.kind not in "biuf" or paid.shape != (self.n,):
            raise InputError(
                f"env.step answered the rewards {arrays.shown(rewards)}; it must return {self.n} numbers, one for each "
                "environment"
            )
        return Stepped(paid.astype(np.float64, copy=False), ended, only_reset)

    def last_info(self, row: int, ended: bool) -> dict[str, Any]:
        """The info of the latest step of a row, which ended its episode or did not."""
        info = row_info(self.infos, row)
        return info.get("final_info", {}) if ended and self.mode == "SAME_STEP" else info

    def _flags(self, name: str, given: object) -> BoolArray:
        """``terminated`` or ``truncated`` of all rows."""
        found = np.asarray(given)
        if found.dtype.kind in "iu" and ((found == 0) | (found == 1)).all():
            found = found.astype(np.bool_)
        if found.dtype != np.bool_ or found.shape != (self.n,):
            raise InputError(
                f"env.step answered {name}={arrays.shown(given)}; it must return {self.n} truth values, one for each "
                "environment"
            )
        return found

    def renew(self, ended: BoolArray, cut: BoolArray) -> BoolArray:
        """Go on after a step that ended some rows, where ``cut`` are over for another reason; the rows that have begun.

        A cut row that cannot be reset on its own goes on until its environment ends it.
        """
        if self.mode == "NEXT_STEP":
            self.waiting = ended if np.count_nonzero(ended) else None
        begun = ended if self.mode != "NEXT_STEP" else np.zeros(self.n, dtype=np.bool_)
        if self.can_reset_rows:
            begun = begun | cut
            asked = begun if self.mode == "DISABLED" else cut
            if np.count_nonzero(asked):
                self.observations = first_observation(self.env.reset(options={"reset_mask": asked.copy()}))
        self.starts = self.starts | begun
        return begun

    def renew_from(self, seeds: list[int | None], over: BoolArray) -> BoolArray:
        """The same where each of the rows that are over begins at once, with a seed of its own; None: without one."""
        self.observations = first_observation(self.env.reset(seed=seeds, options={"reset_mask": over.copy()}))
        self.starts = self.starts | over
        return over

    def _act(self, row: int, observation: object, memory: object, starts: BoolArray) -> tuple[object, object]:
        if self.copies is not None:
            return self.copies.act(row, observation, memory, starts)
        return self.act(observation, self.rng, memory, starts)

    def _actions(self) -> object:
        if not self.batched:
            rows = self.utils.iterate(self.env.observation_space, self.observations)
            found = [
                self._act(i, row, memory, self.starts[i : i + 1])
                for i, (row, memory) in enumerate(zip(rows, self.memory, strict=True))
            ]
            chosen, self.memory = [action for action, _ in found], [memory for _, memory in found]
            space = self.env.single_action_space
            return self.utils.concatenate(space, chosen, self.utils.create_empty_array(space, self.n))
        actions, self.memory = self.act(self.observations, self.rng, self.memory, self.starts)
        if isinstance(actions, dict | tuple):  # of a space of several parts
            return actions
        actions = np.asarray(actions)
        if actions.shape[:1] != (self.n,):
            raise InputError(
                f"agent returned actions of shape {actions.shape} for {self.n} observations; with batched=True, and "
                "its predict with a VecEnv, it is called with all of them and must return one action for each"
            )
        return actions.astype(np.int64) if actions.dtype == np.bool_ else actions


def row_info(infos: Any, row: int) -> dict[str, Any]:
    """What the infos of a vector say of one row: arrays, beside masks such as ``_key`` for ``key``, or a list.

    >>> row_info({"score": np.array([0.0, 2.0]), "_score": np.array([False, True])}, 1)
    {'score': np.float64(2.0)}
    >>> row_info({"score": np.array([0.0, 2.0]), "_score": np.array([False, True])}, 0)
    {}
    """
    if isinstance(infos, list | tuple):
        return dict(infos[row])
    found: dict[str, Any] = {}
    for key, column in infos.items():
        known = infos.get(f"_{key}")
        if (key[:1] == "_" and key[1:] in infos) or (known is not None and not known[row]):
            continue
        if isinstance(column, dict):
            found[key] = row_info(column, row)
        else:
            found[key] = column[row] if isinstance(column, np.ndarray | list | tuple) and len(column) > row else column
    return found


def vector_of(env: Any, agent: object, batched: bool, deterministic: bool) -> VectorWalk | None:
    """The vector of environments with its agent; None where ``env`` is another thing."""
    if not hasattr(env, "num_envs"):
        return None
    if agent is None:
        raise InputError(NO_AGENT)
    agent = loaded(agent)
    if hasattr(env, "single_observation_space"):
        if takes_masks(agent):
            raise InputError(
                f"agent is a {type(agent).__name__}, which is told the allowed actions; pass one environment, or a "
                "VecEnv of Stable-Baselines3"
            )
        return VectorWalk(env, agent, batched, deterministic)
    if not is_vec_env(env):
        raise InputError(
            f"env is a {type(env).__name__}, a vector of environments that is neither Gymnasium's nor "
            "Stable-Baselines3's; pass one of gymnasium.make_vec, or one environment"
        )
    at_once = callable(getattr(agent, "predict", None)) and not callable(getattr(agent, "reset", None))
    return VectorWalk(VecEnvAdapter(env), agent, batched or at_once, deterministic)


def _mode(env: Any) -> str:
    """The autoreset mode that the environment declares."""
    given = (env.metadata or {}).get("autoreset_mode")
    name = str(getattr(given, "name", given))
    if name not in MODES:
        raise InputError(
            f'env.metadata["autoreset_mode"] is {given!r}; it must say when an environment of the vector begins its '
            f"next episode: gymnasium.vector.AutoresetMode.{', '.join(MODES)}"
        )
    return name


def _time_limit(env: Any) -> int | None:
    """The number of steps after which every row is truncated, where the environment says so."""
    specs = [getattr(each, "spec", None) for each in (env, *getattr(env.unwrapped, "envs", ())[:1])]
    for spec in specs:
        limit = None if spec is None else spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
        if limit is not None:
            return int(limit)
    return None
