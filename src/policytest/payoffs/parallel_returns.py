r"""Episodes in several processes at once, settled in the order in which they begin.

Number the episodes as they begin; each has the seed that it would have if they were run one by one, and its return is
a function of its seed and its plan. With M workers

    episode j begins when episode j - M is settled, with the plan of that moment, and is settled after episode j - 1;

one that is over early waits. So neither the order, nor a plan, nor a fraction depends on how fast workers are.

*Validity.* Let H_j be what the seeds of episodes 1 .. j determine. The plan of episode j rests on episodes 1 .. j-M and
its fraction on 1 .. j-1: both are known given H_{j-1}. Its seed is drawn independently of them, so its outcome has mean
V given H_{j-1}, and the bet on it is fair. Three rules that are as easy to write are not: to settle episodes when they
are over (the short ones come first), to let a fraction depend on the transitions made so far (some are those of episode
j, which is under way), and to let it depend on a plan that has learnt from episode j.

Without a critic there is no plan: the returns, the evidence and the answer are those of one episode after the other. At
the end of a run up to M - 1 episodes are under way. They are waited for, and their transitions count (``extra``), so
that the number does not depend on workers either; after Ctrl-C, or when time is up, they are given up. What is kept of
a run is what would be kept if they had not begun, apart from their plans: a run that goes on begins them again with
the same seeds and the same plans, in as many processes as it likes.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

from policytest._base import errors
from policytest._base.arrays import Arrays
from policytest._base.errors import InputError
from policytest.data.episodes import Episodes
from policytest.data.processes import DEATHS, Call, Died, Processes, Stopped, pickled
from policytest.data.trained_agents import sendable
from policytest.data.walks import LARGEST_SEED, Walk
from policytest.payoffs.outcomes import EpisodeSupply
from policytest.payoffs.returns import DrawnEpisodes, GivenUp, WholeEpisodes

REMEDIES = {
    "env": "pass the id of an environment, or a function run(rng) that makes what it needs where it is called",
    "agent": "pass a function, or an object, that loads what it needs where it is called first",
    "critic": "pass a function that loads what it needs where it is called first",
    "score": "leave out of it what cannot be pickled",
    "outcome": "leave out of it what cannot be pickled",
}
"""Of what cannot be sent to a process, beside running one episode after the other."""


class UnderWay(NamedTuple):
    """An episode that has begun."""

    seed: int
    plan: Any
    call: Call


class ParallelEpisodes(DrawnEpisodes):
    """The episodes of another supply, in so many processes."""

    def __init__(self, supply: DrawnEpisodes, workers: int) -> None:
        super().__init__(supply.player, supply.rng)
        self.workers, self.unfinished = workers, 0
        self.made = pickled_player(self.player)
        self.under_way: deque[UnderWay] = deque()
        self.processes: Processes | None = None

    def next(self, most: float) -> Any:
        """The episode that is next in the order of their beginnings; ``rng`` is where its seed is drawn."""
        self.given_up = self.unfinished = 0
        try:
            with self.at_work():
                self._begin(most)
                seen = self._seen(most)
        except Stopped:
            return None
        except BaseException:
            self.close()
            raise
        if (at := self._given_up_at(seen, most)) is not None:
            self.given_up = at
            return None
        self.rng.integers(LARGEST_SEED)
        self.under_way.popleft()
        return self.player.settled(seen)

    def _begin(self, most: float) -> None:
        """Begin episodes, as far as workers, and the episodes that are left, allow."""
        if self.processes is None:
            self.processes = Processes(self.made, self.workers)
        if not self.under_way:
            self.ahead = copy.deepcopy(self.rng)
        while len(self.under_way) < min(self.workers, self.episodes_left):
            seed, plan = int(self.ahead.integers(LARGEST_SEED)), self.player.plan_of(len(self.under_way))
            self.under_way.append(UnderWay(seed, plan, self.processes.begin(seed, plan, most)))

    def _seen(self, most: float) -> Any:
        """What the first of them has shown, if it was allowed ``most`` transitions."""
        seed, plan, call = self.under_way[0]
        while isinstance(seen := self._result(seed, call), GivenUp) and seen.steps < most:
            assert self.processes is not None
            call = self.processes.begin(seed, plan, most)
            self.under_way[0] = UnderWay(seed, plan, call)
        return seen

    def _result(self, seed: int, call: Call) -> Any:
        assert self.processes is not None
        try:
            return self.processes.result(call, self.stop)
        except Died as error:
            raise InputError(
                f"the episode with seed {seed} has ended its process {DEATHS} times: out of memory, killed, or by the "
                "environment itself",
                "run it in this process to see which: leave parallel out (it is then 1)",
            ) from error
        except Stopped:
            raise
        except BaseException as error:
            error.add_note(f"raised in the episode with seed {seed}")
            raise

    def _given_up_at(self, seen: Any, most: float) -> int | None:
        """The step at which an episode was given up, or would have been with so many transitions allowed."""
        return min(seen.steps, int(most)) if isinstance(seen, GivenUp) else self.player.given_up_at(seen, most)

    def examine(self) -> None:
        """Nothing is run in this process."""

    # ------------------------------------------------------------ the end

    def wait(self) -> None:
        """Wait for the episodes that have begun, unless the run is stopped, and count their steps."""
        if self.under_way:
            self.given_up = 0  # the first of them
        for seed, _, call in self.under_way:
            try:
                seen = self._result(seed, call)
            except Exception:  # it was stopped, or it failed, and is not part of the run
                continue
            self.unfinished += seen.steps if isinstance(seen, GivenUp) else self.player.steps_of(seen)
        self.under_way.clear()

    def close(self) -> None:
        """End the processes: what is under way is given up."""
        if self.processes is not None:
            self.processes.close()
        self.processes = None
        self.under_way.clear()

    @property
    def extra(self) -> int:
        """The steps of the episode that was given up, and of those under way at the end."""
        return self.given_up + self.unfinished

    def restore(self, state: Arrays) -> None:
        """Go on with the seeds that come next."""
        super().restore(state)
        self.close()


def in_processes(supply: EpisodeSupply, workers: int) -> ParallelEpisodes:
    """The episodes of a supply in so many processes; refused of vectors."""
    if not isinstance(supply, DrawnEpisodes):
        raise InputError(
            "parallel: a vector of environments runs several episodes at once by itself",
            "leave parallel out (it is then 1), or pass one environment in the place of the vector",
        )
    return ParallelEpisodes(supply, workers)


# ---------------------------------------------------------------- what a process needs


def pickled_player(player: WholeEpisodes) -> bytes:
    """What makes a copy of a player in another process."""
    parts = [_recipe(one) for one in player.agents]
    try:
        return pickled(partial(made_player, type(player), parts))
    except InputError:
        raise
    except Exception as error:
        for part in parts:
            for name, remedy in REMEDIES.items():
                _check_one(name, part[name], remedy)
        raise _cannot_be_sent("env", error, REMEDIES["env"]) from error


def made_player(kind: Callable[..., WholeEpisodes], parts: list[dict[str, Any]]) -> Callable[..., Any]:
    """The copy, as a function that runs an episode."""
    player = kind(*(Episodes(**part) for part in parts))

    def run(seed: int, plan: Any, most: float) -> Any:
        player.allow(most)
        try:
            return player.run(seed, plan)
        except GivenUp as given_up:
            return given_up

    return run


def _recipe(episodes: Episodes) -> dict[str, Any]:
    """What they are made from; of the id of an environment, what it stands for in this process."""
    parts = {each.name: getattr(episodes, each.name) for each in fields(episodes) if each.init}
    walk = episodes.walk
    if isinstance(walk, Walk):
        env: Any = walk.env
        parts["agent"] = sendable(walk.agent)
        parts["env"] = env.spec if isinstance(episodes.env, str) else episodes.env
    return parts


def _check_one(name: str, part: object, remedy: str) -> None:
    try:
        pickled(part)
    except Exception as error:
        raise _cannot_be_sent(name, error, remedy) from error


def _cannot_be_sent(name: str, error: Exception, remedy: str) -> InputError:
    return InputError(
        f"parallel: {name} cannot be sent to another process ({type(error).__name__}: {errors.first_line(error)})",
        f"{remedy}; or leave parallel out (it is then 1)",
    )
