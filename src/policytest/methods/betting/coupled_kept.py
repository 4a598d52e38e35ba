"""A comparison by betting, kept as arrays, and taken up again; what cannot have arisen is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.compiled import rollouts
from policytest._base.errors import InputError
from policytest.data.randomness import kept_extra, restored, stored
from policytest.methods.betting.coupling import Half
from policytest.methods.betting.run import LARGEST_BLOCK


def keep(run: Any) -> dict[str, Any]:
    """All that is needed to go on later, as arrays."""
    bets, plan = run.stretches(), run.plan
    kept: dict[str, Any] = {
        "progress": np.array([run.samples, run.rollouts, run.block, run.idle], dtype=np.int64),
        "refit_at": np.array([run.refit_at, run.look_at]),
        "capital": run.capital.copy(),
        "walker": run.walker.copy(),
        "numbers": run.numbers.copy(),
        "recent": run.recent.copy(),
        "lengths": np.array([len(sums) for sums, *_ in bets], dtype=np.int64),
        "sums": np.concatenate([np.zeros(0), *(sums for sums, *_ in bets)]),
        "stretches": np.array([rest for _, *rest in bets]).reshape(-1, 3),
        "fractions": np.array(run.fractions).reshape(-1, run.capital.shape[1]),
        "plan": np.array([plan.L, plan.sign, plan.lead]),
        "plan_bets": plan.bets,
        "generator": stored(run.source.rng),
        "extra": np.array([run.source.extra]),
    }
    for letter, half in (("a", plan.a), ("b", plan.b)):
        kept.update({f"plan_{letter}_V": half.V, f"plan_{letter}_base": half.base})
    kept.update({f"tally.{name}": value for name, value in run.tally.state().items()})
    return kept


def take_up(run: Any, state: dict[str, Any]) -> None:
    """Go on from a kept state; one that cannot have arisen is refused."""
    shape = run.capital.shape
    try:
        run.samples, run.rollouts, run.block, run.idle = (int(part) for part in state["progress"])
        run.pool.samples = run.samples
        run.refit_at, run.look_at = map(float, state["refit_at"])
        run.capital, run.walker, run.numbers, run.recent = (
            np.array(state[name], dtype=np.float64) for name in ("capital", "walker", "numbers", "recent")
        )
        if run.capital.shape != shape:
            raise ValueError("the capital is that of other bets")
        run.tally.restore({name[6:]: value for name, value in state.items() if name.startswith("tally.")})
        parts = np.split(state["sums"], np.cumsum(state["lengths"])[:-1]) if len(state["lengths"]) else []
        run.bets = [([part], *map(float, rest)) for part, rest in zip(parts, state["stretches"], strict=True)]
        run.fractions = list(np.array(state["fractions"], dtype=np.float64))
        run.plan = _kept_plan(run, state)
        run.source.rng = restored(state["generator"])
        run.source.extra = kept_extra(state)
        _check(run)
    except (KeyError, ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"resume: what was kept is not a state of this run ({error}); start again") from None


def _kept_plan(run: Any, state: dict[str, Any]) -> Any:
    """The plan from its values and advantages: worst paths and the range are computed again, and must agree."""
    L, sign, lead = map(float, state["plan"])
    if sign not in (1.0, -1.0):
        raise ValueError("the plan has no side")
    halves = []
    for letter, side, sense in (("a", run.a, sign), ("b", run.b, -sign)):
        V, base = np.array(state[f"plan_{letter}_V"]), np.array(state[f"plan_{letter}_base"])
        if V.shape != (run.task.n_states,) or base.shape != side.reward.shape:
            raise ValueError("the plan does not fit the task")
        mean = np.bincount(run.tally.rows.state, side.prob * base, minlength=len(V))
        centre = np.zeros(len(V)) if side.on_successor else side.policy_reward
        if not np.abs(mean - centre).max() <= 1e-9 * (np.abs(V).max() + np.abs(base).max()):
            raise ValueError("the plan's advantages are not centred")
        halves.append(Half(V, side.worst(V, base, sense), base, side.gain))
    again = run.joined(halves[0], halves[1], sign)
    bets = np.array(state["plan_bets"], dtype=np.float64)
    size = 1e-9 * (abs(again.L) + abs(again.lead))
    if bets.shape != run.capital.shape[1:] or not ((bets > 0) & (bets < 1)).all():
        raise ValueError("the bets are not fractions")
    if not (abs(again.L - L) <= size and abs(again.lead - lead) <= size):
        raise ValueError("the plan is not sound")
    return again._replace(bets=bets, L=L, lead=lead)


def _check(run: Any) -> None:
    """Refuse capital that the recorded rollouts do not make, and impossible rollouts."""
    if run.samples != run.tally.n[run.tally.unknown].sum() or not 0 < run.block <= LARGEST_BLOCK:
        raise ValueError("the number of samples is not that of the counts")
    if run.rollouts != sum(len(sums) for sums, *_ in run.stretches()) or not np.isfinite(run.refit_at):
        raise ValueError("the number of rollouts is not that of the sums")
    if run.numbers.ndim != 2 or run.numbers.shape[1] != 3 or not ((run.numbers >= 0) & (run.numbers < 1)).all():
        raise ValueError("what was drawn ahead are not random numbers")
    _check_walker(run)
    capital = np.zeros((2, run.capital.shape[1]))
    for (sums, L, value, sign), fractions in zip(run.stretches(), run.fractions, strict=True):
        lead = sign * value
        capital[0 if sign > 0 else 1] += np.log1p(np.outer((lead + sums) / (L - lead), fractions)).sum(axis=0)
    if run.recent.shape != (2,) or not np.allclose(capital, run.capital, rtol=1e-9, atol=1e-9):
        raise ValueError("the capital is not that of the rollouts")


def _check_walker(run: Any) -> None:
    """A rollout on its way is somewhere, with weights, and above its range."""
    walker, S = run.walker, run.task.n_states
    sound = walker.shape == (6,) and np.isfinite(walker).all()
    if not sound or not 0 <= walker[0] == int(walker[0]) <= rollouts.B_NEXT:
        raise ValueError("the rollout on its way is not possible")
    if walker[0] != 0.0:
        places, weights = walker[[1, 4]], walker[[3, 5]]
        sound = (places == places.astype(int)).all() and 0 <= places[0] < S and -1 <= places[1] < S
        sound = sound and ((weights >= 0) & (weights <= 1.0 / rollouts.SMALLEST_CHANCE**2)).all()
        apart = walker[0] != rollouts.TOGETHER
        if not sound or (apart and places[1] < 0) or (run.pending() <= np.log(1e-14)).any():
            raise ValueError("the rollout on its way is not possible")
