"""A plan as part of a kept state: its values and advantages are kept, the rest is computed again and must agree."""

from __future__ import annotations

import numpy as np

from policytest._base.arrays import Arrays
from policytest.eprocess.capital import EProcess
from policytest.payoffs import splitting
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.td_rollouts import Rollouts


def state_of(plan: BettingPlan) -> Arrays:
    """The plan, as arrays."""
    mirrored = plan.mirrored
    kept = {
        "numbers": np.array([plan.L, plan.sign, plan.lead, plan.wider]),
        "B": plan.B,
        "fractions": plan.fractions,
        "wide": plan.wide,
        "targets": plan.targets,
        "mirrored": np.zeros(0) if mirrored is None else np.append(mirrored.fractions, mirrored.wide),
    }
    for name, part in zip("ab", plan.parts, strict=False):
        kept.update({f"{name}.V": part.V, f"{name}.base": part.base})
    return kept


def restored(payoff: Rollouts, process: EProcess, state: Arrays, serves_both: bool) -> BettingPlan:
    """The plan of a kept state; one that cannot have been made is refused."""
    L, sign, lead, wider = map(float, state["numbers"])
    parts = "ab"[: len(payoff.policies)]
    values, bases = ([np.array(state[f"{part}.{name}"]) for part in parts] for name in ("V", "base"))
    fractions, wide, targets, mirrored, B = (
        np.array(state[name], dtype=np.float64) for name in ("fractions", "wide", "targets", "mirrored", "B")
    )
    sizes = []
    for policy, V, base in zip(payoff.policies, values, bases, strict=True):
        if V.shape != policy.V.shape or base.shape != (policy.layers * len(policy.prob),) or sign not in (1.0, -1.0):
            raise ValueError("the plan does not fit the task")
        sizes.append(1e-9 * float(np.abs(V).max() + np.abs(base).max()))
        if not policy.is_centred(base, sizes[-1]):
            raise ValueError("the advantages are not centred")
        policy.take_values(V)
    if not 1.0 <= wider <= splitting.WIDEST:
        raise ValueError("the range is none of those to choose from")
    again, scale = payoff.planned(values, bases, sign).widened(wider), 1.0 - payoff.task.discount or 1.0
    mine, its = np.append(again.B, again.L), np.append(B, L)
    off = scale * np.abs(mine[mine != its] - its[mine != its]).max(initial=0.0)
    if not max(abs(again.lead - lead), off) <= sum(sizes):
        raise ValueError("the plan is not sound")
    if len(targets) and not (targets.shape == again.B.shape and (targets >= splitting.LEAST_TARGET).all()):
        raise ValueError("the plan does not fit the task")
    plan = again._replace(fractions=fractions, wide=wide, L=L, lead=lead, targets=targets)
    process.of_rows(process.as_rows([plan.bet]))
    if payoff.may_serve_both and (mirrored.size or serves_both):
        plan = payoff.with_other_side(plan).widened(plan.wider)
    if (plan.mirrored is None) != (not mirrored.size):
        raise ValueError("the plan does not fit the question")
    if plan.mirrored is not None:
        other = plan.mirrored._replace(fractions=mirrored[: len(fractions)], wide=mirrored[len(fractions) :])
        process.of_rows(process.as_rows([other.bet]))
        plan = plan._replace(mirrored=other)
    return plan
