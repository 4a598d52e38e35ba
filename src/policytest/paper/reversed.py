r"""The reversed MDP: the kernel becomes the policy, the policy becomes the kernel.

Sections 5.3 and 5.4 of the paper. Finding the worst kernel for a fixed policy is itself a policy optimisation
problem, in an MDP whose states are the pairs (s,a), whose actions are the next states x, and in which

    rho_bar(s,a)              = rho_s pi(a|s)          where it starts,
    pi_bar(x | (s,a))         = q(x|s,a)               the kernel, now a policy,
    p_bar((x',a') | (s,a), x) = pi(a'|x) 1{x' = x}     the policy, now a kernel,
    r_bar((s,a), x)           = r(s,a)  (or r(s,a,x)).

Its state values are V_bar(s,a) = Q_q(s,a), its action values Q_bar((s,a), x) = r + gamma V_q(x), its value is
V_q(rho). What is known of policy gradients therefore carries over to kernels: the performance difference lemma
becomes the simulation lemma (`simulation_gap`), the policy gradient theorem gives `value_gradient`, and the
gradient is Lipschitz (`smoothness_constant`).

*What a partial derivative means.* A kernel's rows sum to 1, so no entry can move alone. The paper's formulas are
the partial derivatives once functions of q are extended to all arrays by the linear system of the reversed MDP,

    V_q(s) = sum_a pi(a|s) sum_x q(x|s,a) [ r(s,a,x) + gamma V_q(x) ],

in which the reward, too, is multiplied by q. Another extension changes the gradient by a constant on each row,
which directions that keep the row sums do not see.

Departures from the paper: rewards may depend on the next state, and the lemmas hold with r(s,a) + gamma V(x) read
as r(s,a,x) + gamma V(x); occupancies d are *unnormalised*, so the paper's d/(1-gamma) is our d; pi may have zeros,
and a pair with pi(a|s) = 0 then has a value Q_q(s,a), though V_q does not depend on it.

Everything here is for dense kernels [S,A,S], written to be read and to be tested against: the explicit reversed
MDP is plain linear algebra on pairs and shares no code with `policytest.mdp.task`. Pairs are numbered s*A + a.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel
from policytest._base.errors import InputError
from policytest.mdp.task import Task
from policytest.mdp.values import occupancy, state_values

REVERSED_LIMIT = 20_000_000
"""The most entries of the explicit transitions [S*A, S, S*A]."""
DENSE_LIMIT = 50_000_000
"""The most entries of a dense kernel or gradient [S,A,S]."""


@dataclass(frozen=True, eq=False)
class ReversedMDP:
    """The reversed MDP written out: states are pairs s*A + a, actions are next states x.

    Its methods take a policy pi_bar[pair, x], the kernel seen as a policy. Rows that do not sum to 1 are let
    through on purpose: the linear systems then give the extension whose partial derivatives are eqs. (PG1)-(PG2).

    Paper: subsec:reversed MDP.

    Parameters
    ----------
    initial
        rho_bar[pair], shape [S*A].
    transitions
        p_bar[pair, x, next pair], shape [S*A, S, S*A].
    rewards
        r_bar[pair, x], shape [S*A, S].
    discount
        gamma, that of the task.
    """

    initial: FloatArray
    transitions: FloatArray
    rewards: FloatArray
    discount: float

    def policy(self, kernel: Kernel) -> FloatArray:
        """[S*A, S] the kernel q[s,a,x] as a policy, pi_bar(x | (s,a)) = q(x|s,a).

        Paper: subsec:reversed MDP.
        """
        _refuse_sparse("kernel", kernel, "kernel.toarray().reshape(S, A, S)")
        pairs, S = self.rewards.shape
        return arrays.real_array("kernel", kernel, (S, pairs // S, S)).reshape(pairs, S)

    def state_values(self, policy_bar: FloatArray) -> FloatArray:
        """[S*A] the values of the pairs: V_bar = sum_x pi_bar(x|.) [ r_bar + gamma sum p_bar V_bar ].

        Paper: eq:V bar.
        """
        policy_bar = self._checked(policy_bar)
        gains = np.einsum("kx,kx->k", policy_bar, self.rewards)
        return np.asarray(np.linalg.solve(self._one_minus_discounted(policy_bar), gains))

    def action_values(self, policy_bar: FloatArray) -> FloatArray:
        """[S*A, S] the values of pair and next state: Q_bar(., x) = r_bar(., x) + gamma sum p_bar V_bar.

        Paper: eq:Q bar.
        """
        values = self.state_values(policy_bar)
        return np.asarray(self.rewards + self.discount * np.einsum("kxl,l->kx", self.transitions, values))

    def occupancy(self, policy_bar: FloatArray) -> FloatArray:
        """[S*A] the unnormalised occupancy of the pairs, which sums to 1/(1-gamma) if the rows of pi_bar sum to 1.

            d_bar(l) = rho_bar(l) + gamma sum_{k,x} d_bar(k) pi_bar(x|k) p_bar(l|k,x)

        Paper: subsec:reversed MDP, where d is (1-gamma) times this.
        """
        policy_bar = self._checked(policy_bar)
        return np.asarray(np.linalg.solve(self._one_minus_discounted(policy_bar).T, self.initial))

    def value(self, policy_bar: FloatArray) -> float:
        """The value sum rho_bar V_bar, equal to V_q(rho). Paper: subsec:reversed MDP."""
        return float(self.initial @ self.state_values(policy_bar))

    def _checked(self, policy_bar: FloatArray) -> FloatArray:
        _refuse_sparse("policy_bar", policy_bar, "policy_bar.toarray()")
        return arrays.real_array("policy_bar", policy_bar, self.rewards.shape)

    def _one_minus_discounted(self, policy_bar: FloatArray) -> FloatArray:
        """[S*A, S*A] I - gamma P_bar with P_bar(l|k) = sum_x pi_bar(x|k) p_bar(l|k,x)."""
        moves = np.einsum("kx,kxl->kl", policy_bar, self.transitions)
        return np.asarray(np.eye(len(moves)) - self.discount * moves)


def reverse(task: Task) -> ReversedMDP:
    """The reversed MDP of a task.

    Paper: subsec:reversed MDP.

    >>> from policytest import instances
    >>> two = instances.paper(2)
    >>> mdp = reverse(two.task)
    >>> mdp.transitions.shape
    (4, 2, 4)
    >>> round(mdp.value(mdp.policy(two.kernel)), 8)  # the value of the policy itself
    0.20923298
    """
    task.check_discounted_table("the reversed MDP")
    S, A = task.n_states, task.n_actions
    _check_size(f"the reversed MDP's transitions [{S * A}, {S}, {S * A}]", S * A * S * S * A, REVERSED_LIMIT)
    arrivals = np.einsum("xy,xa->xya", np.eye(S), task.policy).reshape(S, S * A)
    mdp = ReversedMDP(
        initial=(task.initial[:, None] * task.policy).ravel(),
        transitions=np.tile(arrivals, (S * A, 1, 1)),
        rewards=_reward_table(task).reshape(S * A, S).copy(),
        discount=task.discount,
    )
    for array in (mdp.initial, mdp.transitions, mdp.rewards):
        array.flags.writeable = False
    return mdp


def pair_values(task: Task, kernel: Kernel) -> FloatArray:
    """[S,A] the values of state-action pairs, Q_q(s,a) = sum_x q(x|s,a) [ r(s,a,x) + gamma V_q(x) ].

    Paper: subsec:MDP. Every row must be a probability vector, those with pi(a|s) = 0 included.

    >>> from policytest import instances
    >>> task, (p, q1, q2) = instances.nonconvex()
    >>> pair_values(task, q1).round(2).tolist()  # -0.88 once and then 0.12 for ever; 0.12 for ever, twice
    [[0.2], [1.2], [1.2]]
    """
    q = _dense_kernel(task, "kernel", kernel, every_row=True)
    return np.asarray(np.einsum("sax,sax->sa", q, _successor_values(task, q)))


def pair_occupancy(task: Task, kernel: Kernel, s: int, a: int) -> FloatArray:
    """[S,A] the unnormalised occupancy d_{q,s,a}(s',a') = sum_t gamma^t P(s_t = s', a_t = a' | s_0 = s, a_0 = a).

    Paper: subsec:MDP, where d is (1-gamma) times this. It sums to 1/(1-gamma).

    >>> from policytest import instances
    >>> task, (p, q1, q2) = instances.nonconvex()
    >>> pair_occupancy(task, q1, 0, 0).round(9).tolist()  # one step in state 0, then in state 1 for ever
    [[1.0], [9.0], [0.0]]
    """
    q = _dense_kernel(task, "kernel", kernel, every_row=True)
    s, a = _index("s", s, task.n_states), _index("a", a, task.n_actions)
    later = np.linalg.solve(_one_minus_discounted(task, q).T, task.discount * q[s, a])
    visits = later[:, None] * task.policy
    visits[s, a] += 1.0
    return np.asarray(visits)


def simulation_gap(task: Task, p: Kernel, p_tilde: Kernel) -> FloatArray:
    """[S,A] what the simulation lemma says of Q_p(s,a) - Q_p_tilde(s,a): the right side of the lemma.

        sum_{s',a'} d_{p,s,a}(s',a') D(s',a'),
        D(s',a') = sum_x (p(x|s',a') - p_tilde(x|s',a')) (r(s',a',x) + gamma V_p_tilde(x)),

    in which the reward cancels when it does not depend on x. All pairs (s,a) are served by one linear solve.

    Paper: lem:simulation.

    >>> from policytest import instances
    >>> task, (p, q1, q2) = instances.nonconvex()
    >>> bool(np.allclose(simulation_gap(task, p, q1), pair_values(task, p) - pair_values(task, q1)))
    True
    """
    p = _dense_kernel(task, "p", p, every_row=True)
    p_tilde = _dense_kernel(task, "p_tilde", p_tilde, every_row=True)
    surplus = np.einsum("sax,sax->sa", p - p_tilde, _successor_values(task, p_tilde))
    from_state = np.linalg.solve(_one_minus_discounted(task, p), np.einsum("sa,sa->s", task.policy, surplus))
    return np.asarray(surplus + task.discount * np.einsum("sax,x->sa", p, from_state))


def pair_value_gradient(task: Task, kernel: Kernel, s: int, a: int) -> FloatArray:
    """[S,A,S] the gradient of Q_q(s,a) in q: entry (s',a',x) is d_{q,s,a}(s',a') (r(s',a',x) + gamma V_q(x)).

    Paper: eq:PG1.

    >>> from policytest import instances
    >>> two = instances.paper(2)
    >>> pair_value_gradient(two.task, two.kernel, 0, 1).shape
    (2, 2, 2)
    """
    q = _dense_kernel(task, "kernel", kernel, every_row=True)
    return np.asarray(pair_occupancy(task, q, s, a)[:, :, None] * _successor_values(task, q))


def value_gradient(task: Task, kernel: Kernel) -> FloatArray:
    """[S,A,S] the gradient of V_q(rho) in q: entry (s,a,x) is d_q(s) pi(a|s) (r(s,a,x) + gamma V_q(x)).

    Paper: eq:PG2.

    >>> from policytest import instances
    >>> task, (p, q1, q2) = instances.nonconvex()
    >>> value_gradient(task, q1)[2, 0].round(2).tolist()  # d(2) = 10/3 times 0.12 + 0.9 V, V = 0.2, 1.2, 1.2
    [1.0, 4.0, 4.0]
    """
    q = _dense_kernel(task, "kernel", kernel)
    visits = occupancy(task, q)[:, None] * task.policy
    return np.asarray(visits[:, :, None] * _successor_values(task, q))


def smoothness_constant(task: Task) -> float:
    """The Lipschitz constant of the gradient of every Q_q(s,a), and so of V_q(rho): 2 gamma S r_max/(1-gamma)^3.

    For any two kernels |grad Q_p - grad Q_p_tilde|_2 <= constant |p - p_tilde|_2, norms over all S*A*S entries;
    r_max is the largest |r| over all entries of the rewards.

    Paper: lem:smoothness_parameter.

    >>> task = Task(rewards=[[1.0], [-2.0]], policy=[[1.0], [1.0]], initial=[0.5, 0.5], discount=0.5)
    >>> smoothness_constant(task)
    32.0
    """
    task.check_discounted_table("this constant")
    rewards = task.rewards.data if arrays.is_sparse(task.rewards) else task.rewards
    r_max = float(np.abs(rewards).max(initial=0.0))
    return 2.0 * task.discount * task.n_states * r_max / (1.0 - task.discount) ** 3


def _successor_values(task: Task, q: FloatArray) -> FloatArray:
    """[S,A,S] r(s,a,x) + gamma V_q(x)."""
    return np.asarray(_reward_table(task) + task.discount * state_values(task, q))


def _one_minus_discounted(task: Task, q: FloatArray) -> FloatArray:
    """[S,S] I - gamma P with P(x|s) = sum_a pi(a|s) q(x|s,a)."""
    return np.asarray(np.eye(task.n_states) - task.discount * np.einsum("sa,sax->sx", task.policy, q))


def _reward_table(task: Task) -> FloatArray:
    """[S,A,S] r(s,a,x), constant in x where the reward is on (s,a)."""
    shape = (task.n_states, task.n_actions, task.n_states)
    if arrays.is_sparse(task.rewards):
        return np.asarray(task.rewards.toarray().reshape(shape))
    return np.broadcast_to(task.rewards if task.rewards_on_successor else task.rewards[:, :, None], shape)


def _dense_kernel(task: Task, name: str, kernel: Kernel, every_row: bool = False) -> FloatArray:
    """A checked dense kernel; with ``every_row`` also the rows that the policy never takes are checked."""
    _refuse_sparse(name, kernel, f"{name}.toarray().reshape(S, A, S)")
    task.check_discounted_table("the reversed MDP")
    S, A = task.n_states, task.n_actions
    _check_size(f"an array [{S}, {A}, {S}]", S * A * S, DENSE_LIMIT)
    q: FloatArray = task.check_kernel(name, kernel)
    wrong = np.abs(q.sum(axis=2) - 1.0) > arrays.SUM_TOLERANCE
    if every_row and wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"{name} at {task.place(first)} sums to {q.reshape(-1, S)[first].sum():.9g}, not 1; the policy never "
            "takes this pair, but values of pairs need its row: fill it with a probability vector"
        )
    return q


def _refuse_sparse(name: str, kernel: object, dense: str) -> None:
    if arrays.is_sparse(kernel):
        raise InputError(
            f"{name} is sparse and the reversed MDP is dense; pass {dense} if S is small, or use "
            "`value`, `state_values` and `occupancy`, which take sparse kernels"
        )


def _check_size(what: str, entries: int, limit: int) -> None:
    if entries > limit:
        raise InputError(
            f"{what} would have {entries:,} entries, more than the limit of {limit:,}; for tasks of this size use "
            "`value`, `state_values` and `occupancy`, which take sparse kernels"
        )


def _index(name: str, value: object, count: int) -> int:
    number = arrays.whole_number(name, value)
    if not 0 <= number < count:
        raise InputError(f"{name} is {number}; it must lie in 0..{count - 1}")
    return number
