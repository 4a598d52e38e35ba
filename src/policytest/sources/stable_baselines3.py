"""What only Stable-Baselines3 needs: a callback that stops its training as soon as the agent is good enough.

Importing this module imports neither Stable-Baselines3 nor PyTorch; making a callback does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

from policytest._base import arrays, errors
from policytest._base.errors import InputError
from policytest._base.text import number, plural
from policytest.data.episodes import Episodes
from policytest.data.trained_agents import EXTRA
from policytest.methods.run import Method
from policytest.questions.in_training import InTraining
from policytest.results.verdict import Verdict

PLACE = "policytest"


class StopWhenGoodEnough:
    """A callback for `model.learn(..., callback=...)`: test the agent from time to time, and stop at "above".

    The agent is tested as it is at that moment, with its weights frozen, in an environment of its own. `delta` is
    shared out over the checkpoints (`InTraining`): the probability that training stops with an agent whose value is at
    most the threshold is at most ``delta``. Nothing is learned between the test and the end of `learn`, so the model is
    then the one that was tested.

    Parameters
    ----------
    env
        Where to test, not where to train: an environment, its id or a vector of them, as in `Episodes`; or a function
        of the model that returns `Episodes`. If training normalises observations (`VecNormalize`), so does the test.
    threshold, delta
        The question: is the value above this, with this probability of error over the whole training?
    check_freq, first_check
        The number of steps of training between two tests, and before the first (by default the same).
    budget, checkpoints, method, seed, parallel
        As in `InTraining`: the most episodes of a test; the number of tests, if it is fixed beforehand. Answers
        that are not certified, such as large-sample ones, do not stop the training.
    verbose
        1: print a line after each test.
    **episodes
        What `Episodes` takes besides: ``outcome``, ``return_range``, ``reward_range``, ``deterministic``, ...

    Attributes
    ----------
    verdict
        That of the latest checkpoint; its ``delta`` is the share of this checkpoint.
    testing
        The `InTraining` with the number of checkpoints, and the sum of their shares; ``testing.words`` is the promise.

    It records ``policytest/evidence_above``, ``evidence_below``, ``required``, ``estimate``, ``lower``, ``upper``,
    ``episodes`` and ``delta_spent`` with the logger of the model, so that TensorBoard shows them.
    """

    model: Any  # by BaseCallback
    logger: Any
    num_timesteps: int
    training_env: Any
    verbose: int

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """An instance of this class and of SB3's `BaseCallback`, which is imported now."""
        of: Any = cls
        kind: type[Self] = callback_of(of)
        return object.__new__(kind)

    def __init__(
        self,
        env: Any,
        threshold: float,
        delta: float = 0.05,
        check_freq: int = 10_000,
        first_check: int | None = None,
        budget: int = 100,
        checkpoints: int | None = None,
        method: Method | None = None,
        seed: int = 0,
        parallel: int = 1,
        verbose: int = 0,
        **episodes: Any,
    ) -> None:
        super().__init__(verbose)  # type: ignore[call-arg]
        self.testing = InTraining(threshold, delta, budget, checkpoints, method, seed, parallel)
        self.check_freq = arrays.whole_number("check_freq", check_freq)
        self.first_check = self.check_freq if first_check is None else arrays.whole_number("first_check", first_check)
        arrays.positive(check_freq=self.check_freq, first_check=self.first_check)
        if is_maker(env) and episodes:
            raise InputError(
                f"env is a function that makes Episodes, and {next(iter(episodes))} is for an environment; let the "
                "function pass it"
            )
        self.env, self.settings = env, episodes
        self.verdict: Verdict | None = None

    def _on_training_start(self) -> None:
        """Make the episodes, so that what is wrong with them is told before the training."""
        if self._trains_in(self.env):
            raise InputError("env is where the agent is trained, and a test would move it; pass another one")
        made = self.env(self.model) if is_maker(self.env) else Episodes(self.env, self.model, **self.settings)
        if not isinstance(made, Episodes):
            raise InputError(f"env is a function that returned {arrays.shown(made)}; it must return Episodes")
        self.episodes = made
        self._synchronise()
        self.next_check = self.num_timesteps + self.first_check

    def _trains_in(self, env: Any) -> bool:
        training = self.training_env.unwrapped
        inside = [each.unwrapped for each in getattr(training, "envs", ())]
        return any(getattr(env, "unwrapped", env) is each for each in (training, *inside))

    def _on_step(self) -> bool:
        """Whether to go on with the training."""
        if self.num_timesteps < self.next_check:
            return True
        self.next_check = self.num_timesteps + self.check_freq
        self._synchronise()
        with _as_it_was(self.model.action_space):
            self.verdict = self.testing.decide(self.episodes)
        self._record(self.verdict)
        return not self.testing.good_enough

    def _synchronise(self) -> None:
        """Normalise as the training does at present, if the environment of the test has a `VecNormalize` of its own."""
        env = self.episodes.env
        if self.model.get_vec_normalize_env() is None or not hasattr(env, "norm_obs"):
            return
        vec_env = errors.needs("stable_baselines3.common.vec_env", EXTRA)
        try:
            vec_env.sync_envs_normalization(self.training_env, env)
        except (AssertionError, AttributeError) as error:
            raise InputError(
                "env has other wrappers than the training, so that its VecNormalize cannot follow",
                "wrap it in the same way, or pass an environment without a VecNormalize: the test then normalises "
                "observations itself",
            ) from error

    def _record(self, verdict: Verdict) -> None:
        """Tell the logger, and whoever watches."""
        (above, below), (lower, upper) = verdict.evidence, verdict.interval
        episodes = verdict.counts.episodes
        told = {
            "evidence_above": above,
            "evidence_below": below,
            "required": verdict.required,
            "estimate": verdict.estimate,
            "lower": lower,
            "upper": upper,
            "episodes": episodes,
            "delta_spent": self.testing.spent,
        }
        for name, value in told.items():
            if math.isfinite(value):
                self.logger.record(f"{PLACE}/{name}", value)
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)
        if self.verbose:
            answer = verdict.answer or "undecided"
            print(
                f"checkpoint {self.testing.tested}, {self.num_timesteps:,} steps: {answer} after "
                f"{plural(episodes, 'episode')}, estimate {number(verdict.estimate)}"
            )


def is_maker(env: object) -> bool:
    """Whether ``env`` is a function of the model that makes `Episodes`."""
    return callable(env) and not hasattr(env, "reset")


@contextmanager
def _as_it_was(space: Any) -> Iterator[None]:
    """An action space from which the training samples is seeded by a test, and goes on afterwards as if it were not."""
    rng = getattr(space, "np_random", None)
    before = None if rng is None else rng.bit_generator.state
    try:
        yield
    finally:
        if before is not None:
            space.np_random.bit_generator.state = before


@cache
def callback_of(kind: Any) -> Any:
    """This class as a callback."""
    base = errors.needs("stable_baselines3.common.callbacks", EXTRA).BaseCallback
    if issubclass(kind, base):
        return kind
    return type(base)(kind.__name__, (kind, base), {"__module__": kind.__module__, "__doc__": kind.__doc__})
