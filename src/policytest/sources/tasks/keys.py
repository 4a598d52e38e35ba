r"""From the keys and values of a task file, in whichever format, to a checked task.

The keys are the same in every format:

| key | what | |
|---|---|---|
| rewards | r[s,a], or r[s,a,x] | required, or one of the next three |
| reward_range | [low, high], numbers or tables [s,a]: rewards come with the data | in the place of rewards |
| reward_values | numbers: rewards come with the data, and are among these | in the place of rewards |
| goal | states: the value is the probability of reaching one of them | in the place of rewards and discount |
| avoid | states that must not come before the goal | optional, with goal |
| policy | pi[s,a] | required |
| initial | rho[s]; or "log": the first states of the log tell | required |
| discount | gamma in [0, 1] | required |
| horizon | the number of steps of an episode, if it is limited | optional |
| total_rewards | [low, high]: bounds on the total of any episode, for discount 1 without a horizon | optional |
| support | allowed successors [s,a,x], true or false; or "kernel" | optional |
| start | the state that stands for the start of episodes, where "log" has added one | optional |
| available | which actions there are in a state: [s,a], true or false, or {state: [action, ...]} | optional |
| states, actions | names: strings, numbers, or lists of them (read as tuples) | optional |
| terminal | states in which an episode ends, by name or index | optional |
| kernel | p[s,a,x], to sample from | optional |
| bins | {column: {edges, names}}: states are cells of number columns of a log, cut at the edges | optional |
| assumptions | what the model rests on, as sentences that can follow "if": see `Task` | optional |
| threshold | R, the bar the value is compared with | optional |
| budget | the most samples that there will be, fixed beforehand | optional |
| normalise | true: rescale the rows of policy, initial and kernel to sum to 1 (rounded tables) | optional |

Rewards, support and kernel may be sparse, a matrix of shape (S*A, S) with row s*A + a in compressed sparse rows: its
parts data, indices, indptr and shape. Or they are given by names; see `policytest.sources.tasks.by_name`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel, SparseArray
from policytest._base.errors import InputError
from policytest._base.rows import looping
from policytest._base.text import did_you_mean
from policytest.mdp.observed import Observed
from policytest.mdp.task import DENSE_REWARD_LIMIT, Task, truth_table
from policytest.sources.environments.bins import Bins, from_cuts
from policytest.sources.labels import Places, as_name, places_of
from policytest.sources.tasks import by_name
from policytest.sources.tasks.by_name import Content, Offer
from policytest.sources.tasks.policy import policy_table
from policytest.sources.tasks.start import FROM_LOG, start_from_log

REQUIRED = ("rewards", "policy", "initial", "discount")
OBSERVED = ("reward_range", "reward_values")  # in the place of rewards
OPTIONAL = (
    *OBSERVED,
    "goal",
    "avoid",
    "horizon",
    "total_rewards",
    "support",
    "available",
    "start",
    "bins",
    "states",
    "actions",
    "terminal",
    "kernel",
    "threshold",
    "budget",
    "normalise",
    "assumptions",
)
NAMES = ("states", "actions")
ENDS = ("terminal", "goal", "avoid")  # lists of states in which episodes end
LABELS = (*NAMES, *ENDS)  # lists of names
LISTS = (*LABELS, "assumptions")
COUNTS = "start", "horizon", "budget"  # whole numbers
QUESTION = ("rewards", *OBSERVED, "total_rewards", "discount", "avoid", "threshold")
"""What a goal that is passed does away with: these belong to another question."""
TABLES = ("rewards", "support", "kernel")
PARTS = ("data", "indices", "indptr", "shape")


@dataclass(frozen=True, eq=False)
class Model:
    """What a task file holds: a task, perhaps the kernel that plays the truth, a threshold, a budget, bins for logs.

    ``offer`` is what a model checker's file says beside: how it numbers choices, and its labels.
    """

    task: Task
    kernel: Kernel | None = None
    threshold: float | None = None
    bins: Bins | None = None
    offer: Offer | None = None
    budget: int | None = None


def model(content: Content, offer: Offer | None = None) -> Model:
    """Keys and values, from any format, as a checked model."""
    check_keys(content)
    check_question(content)
    bins = from_cuts(content["bins"]) if "bins" in content else None
    normalise = arrays.flag("normalise", _scalar(content.get("normalise", False)))
    content = _typed(content if bins is None else _of_cells(content, bins))
    if "available" in content:
        offer = _offer(content["available"], content, offer)
    if offer is not None and ("available" in content or not offer.available.all()):
        content["available"] = offer.available
    ends = _ends(content, places_named(content, "goal", offer)) if "goal" in content else {}
    from_log = _from_log(content, offer)
    if from_log:
        content["initial"] = _anywhere(content, ends)
    content = resolved(content, offer, normalise)
    kernel, threshold, budget = (content.pop(key, None) for key in ("kernel", "threshold", "budget"))
    try:
        task = _task(content, ends, normalise)
        task = start_from_log(task, ends.get("goal", [])) if from_log else task
        if kernel is not None:
            kernel = arrays.kernel("kernel", kernel, task.n_states, task.n_actions)
            kernel = _rescaled(kernel) if normalise else kernel
            kernel = consistent(task, looping(kernel, {s for states in ends.values() for s in states}))
        if threshold is not None:
            threshold = arrays.real_number("threshold", threshold)
        if budget is not None:
            arrays.positive(budget=budget)
    except OverflowError as error:
        raise InputError(f"a number is out of range ({error}); use numbers below 1e308") from None
    return Model(task, kernel, threshold, bins, offer, budget)


def _typed(content: Content) -> Content:
    """Names as tuples, numbers and tables of numbers as such; without the keys that are no argument of a task."""
    found = {key: value for key, value in content.items() if key not in ("bins", "normalise")}
    found |= {name: names_of(name, found[name]) for name in LISTS if name in found}
    found = {key: _array(key, value) for key, value in found.items()}
    return found | {key: arrays.whole_number(key, _scalar(found[key])) for key in COUNTS if key in found}


def check_question(content: Content) -> None:
    """Refuse keys that ask two questions at once."""
    for key in OBSERVED:
        if "rewards" in content and key in content:
            raise InputError(
                f"rewards and {key} exclude each other; keep rewards, or the {key[7:]} of those in the data"
            )
    if "goal" not in content:
        if "avoid" in content:
            raise InputError("avoid belongs to goal, the states to reach; add goal, or name the states in terminal")
        return
    if not names_of("goal", content["goal"]):
        raise InputError("goal is empty; list the states to reach, by name or by index")
    for key in ("rewards", *OBSERVED, "total_rewards"):
        if key in content:
            raise InputError(
                f"goal asks for the probability of reaching it, and {key} for a mean reward; remove one of them (for "
                "the reward until some states are reached, name them in terminal instead)"
            )
    if _scalar(content.get("discount", 1)) != 1:
        raise InputError(f"goal asks for a probability, and discount is {content['discount']}; leave discount out")


def _ends(content: Content, at: Places) -> dict[str, list[int]]:
    """The states to reach and those that must not come before; other states in which episodes end are among these."""
    found = {key: [at.states.find(key, name) for name in content.get(key) or ()] for key in ENDS}
    goal, avoid = found["goal"], found["avoid"]
    return {"goal": goal, "avoid": avoid + [s for s in found["terminal"] if s not in {*goal, *avoid}]}


def _anywhere(content: Content, ends: dict[str, list[int]]) -> dict[Hashable, float]:
    """A state in which nothing ends, in the place of the initial distribution that the log will tell."""
    over = {s for states in ends.values() for s in states}
    s = next(s for s in range(len(over) + 1) if s not in over)
    return {content["states"][s] if "states" in content else s: 1.0}


def _observed(given: object, values: object) -> Observed:
    """Rewards that come with the data, from [low, high] and their values; one of the two may be missing."""
    if values is not None:
        values = arrays.real_array("reward_values", values, (None,))
    if given is None:
        return Observed(values=values)
    ends = arrays.real_array("reward_range", given)
    if ends.shape[:1] != (2,) or ends.ndim not in (1, 3):
        raise InputError(f"reward_range has shape {ends.shape}; write [low, high], two numbers or two tables [s][a]")
    if (ends[0] > ends[1]).any():
        low, high = (float(end[ends[0] > ends[1]][0]) for end in ends)
        raise InputError(f"reward_range has the low end {low:g} above the high end {high:g}; write [low, high]")
    return Observed(ends[0], ends[1], values)


def _task(content: Content, ends: dict[str, list[int]], normalise: bool) -> Task:
    """The task with these arguments; with a goal that whose value is the probability of reaching it."""
    if not content.keys().isdisjoint(OBSERVED):
        content["rewards"] = _observed(content.pop("reward_range", None), content.pop("reward_values", None))
    if not ends:
        return Task(**content, normalise=normalise)
    rest = {key: value for key, value in content.items() if key not in (*ENDS, "discount", "horizon")}
    S, A = np.shape(rest["policy"])
    if S * A * S > DENSE_REWARD_LIMIT and not arrays.is_sparse(rest.get("support")):
        raise InputError(
            f'goal: with {S:,} states the support must be sparse; write support = "kernel", or list the successors'
        )
    names = content.get("states") or range(S)
    goal, avoid = ([names[s] for s in ends[key]] for key in ("goal", "avoid"))
    return Task.reaching(goal, avoid, within=content.get("horizon"), normalise=normalise, **rest)


def _of_cells(content: Content, bins: Bins) -> Content:
    """The content whose states are the cells, and after them those of its states that have no number.

    ``states`` names only the latter where they are fewer than the cells, or all of them end an episode; otherwise the
    first of them are other names of the cells.
    """
    states = names_of("states", content.get("states", ()))
    over = [name for key in ENDS for name in names_of(key, content.get(key, ()))]
    if len(states) < bins.n_states or all(state in over for state in states):
        if twice := [state for state in states if state in bins.states]:
            raise InputError(
                f"states has {twice[0]!r}, which is a cell of bins; list only the states that have no number, or a "
                f"name for each of the {bins.n_states} cells"
            )
        states = (*bins.states, *states)
    rests_on = [*content.get("assumptions", ()), *bins.assumptions]
    return {**content, "states": states, "assumptions": list(dict.fromkeys(rests_on))}


def _from_log(content: Content, offer: Offer | None) -> bool:
    """Whether the log is to tell where episodes start."""
    named = (*content.get("states", ()), *(offer.groups if offer is not None else ()))
    if FROM_LOG in named or not by_name.is_word(content["initial"], FROM_LOG):
        return False
    if "kernel" in content:
        raise InputError('initial is "log", and a kernel to sample from does not tell where episodes start; remove one')
    return True


def storable(found: Model) -> Content:
    """A model as keys and values that any format can hold."""
    task, bins = found.task, found.bins
    content = {name: getattr(task, name) for name in (*REQUIRED, "horizon", "support", "available")}
    if task.total_rewards is not None:
        content["total_rewards"] = list(task.total_rewards)
    if task.observes_rewards:
        content = {"reward_range": _reward_range(task), **content, "rewards": None}
        content["reward_values"] = task.rewards.values
    content |= {name: storable_names(name, getattr(task, name)) for name in (*NAMES, "terminal")}
    if task.goal and _asks_for_goal(task):
        avoided = [label for label in task.terminal or () if label not in task.goal]
        content |= {"goal": storable_names("goal", task.goal), "avoid": storable_names("avoid", avoided) or None}
        content |= dict.fromkeys(("rewards", "discount", "terminal"))
    content["start"] = task.start
    content["assumptions"] = (
        list(dict.fromkeys((*task.assumptions, *(() if bins is None else bins.assumptions)))) or None
    )
    content["kernel"] = None if found.kernel is None else consistent(task, found.kernel)
    content["threshold"] = None if found.threshold is None else arrays.real_number("threshold", found.threshold)
    content["budget"] = found.budget
    content["bins"] = None if bins is None else _storable_bins(task, bins)
    return {key: value for key, value in content.items() if value is not None}


def _asks_for_goal(task: Task) -> bool:
    """Whether a goal, and states to avoid, say all about the rewards: those of `Task.reaching`."""
    if task.total_rewards is not None or task.observes_rewards or task.discount < 1:
        return False
    avoided = [label for label in task.terminal or () if label not in (task.goal or ())]
    known: Content = {name: getattr(task, name) for name in ("policy", "initial", "support", "states", "start")}
    again = Task.reaching(task.goal or (), avoided, within=task.horizon, **known)
    if arrays.is_sparse(again.rewards) != arrays.is_sparse(task.rewards):
        return False
    return not abs(again.rewards - task.rewards).sum()


def _storable_bins(task: Task, bins: Bins) -> Content:
    """Bins as a file holds them; the first states of the task are their cells."""
    if task.states is None or task.n_states < bins.n_states:
        raise InputError(f"bins have {bins.n_states} cells; pass a task that names them first: states=bins.states")
    return {
        column: cut | ({"names": storable_names(f"bins.{column}.names", cut["names"])} if "names" in cut else {})
        for column, cut in bins.cuts.items()
    }


def _reward_range(task: Task) -> list[float] | FloatArray:
    """[low, high] as two numbers if they hold wherever an episode goes on, otherwise as two tables."""
    both = np.array([task.rewards.low, task.rewards.high])
    going_on = np.delete(both, task.ends, axis=1).reshape(2, -1)
    same = going_on.shape[1] > 0 and (going_on == going_on[:, :1]).all()
    return going_on[:, 0].tolist() if same else both


def overridden(content: Content, given: Content) -> Content:
    """The content with what was passed in its place; with a goal that is passed it is another question."""
    gone = QUESTION if "goal" in given else ("total_rewards",) if "horizon" in given else ()
    return {key: value for key, value in content.items() if key not in gone} | given


def changed(found: Model, given: Content) -> Model:
    """A model with what was passed in the place of its own."""
    if not given:
        return found
    return model(overridden(storable(found), given))


# ---------------------------------------------------------------- keys and values


def required_keys(content: Iterable[str]) -> tuple[str, ...]:
    """The keys that must be there: a range, or a goal, stands in the place of rewards; a goal says the discount too."""
    content = set(content)
    instead = ("rewards", "discount") if "goal" in content else ("rewards",) if content & {*OBSERVED} else ()
    return tuple(key for key in REQUIRED if key not in instead)


def check_keys(content: Iterable[str], required: Iterable[str] | None = None) -> None:
    """Refuse keys that are not known, and the absence of those that must be there."""
    known = REQUIRED + OPTIONAL
    content = list(content)
    required = required_keys(content) if required is None else required
    for key in content:
        if key not in known:
            raise InputError(f"unknown key {key!r}; {did_you_mean(key, known) or 'known are ' + ', '.join(known)}")
    missing = [key for key in required if key not in content]
    if missing:
        raise InputError(f"required {'keys are' if missing[1:] else 'key is'} missing: {', '.join(missing)}; add them")


def _scalar(value: object) -> object:
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def _array(key: str, value: object) -> object:
    """Lists of numbers as arrays; text among them is refused, where NumPy would read it as numbers."""
    if key in LISTS or isinstance(value, np.ndarray) or arrays.is_sparse(value) or by_name.by_names(value):
        if key in ("discount", "threshold") and isinstance(value, str):
            raise InputError(f"{key} is {value!r}, which is text; write a number without quotes")
        return value
    try:
        array = np.array(value)
    except OverflowError:  # refused where its place is known
        return value
    except ValueError:
        raise InputError(
            f"{key} is not an array of numbers (its rows have different lengths); make them equal"
        ) from None
    if array.dtype.kind in "USO" and any(isinstance(item, str) for item in np.ravel(array)[:10_000].tolist()):
        raise InputError(f"{key} is not an array of numbers (there is text in it); write numbers without quotes")
    return array if array.dtype.kind in "biuf" else value


def names_of(name: str, value: object) -> tuple[Hashable, ...]:
    """A list of names from a file, lists among them as tuples."""
    if not isinstance(value, list | tuple):
        raise InputError(f"{name} is {value!r}; it must be a list of names")
    return tuple(as_name(item) for item in value)


def storable_names(name: str, labels: Iterable[Hashable] | None) -> list[object] | None:
    """Names as JSON can hold them."""

    def plain(label: object, index: int) -> object:
        match label.item() if isinstance(label, np.generic) else label:
            case tuple() as parts:
                return [plain(part, index) for part in parts]
            case None | str() | int() as found:
                return found
            case float() as found if math.isfinite(found):
                return found
        raise InputError(
            f"{name}[{index}] is {label!r}; a file holds names that are strings, numbers or tuples of them"
        )

    return None if labels is None else [plain(label, index) for index, label in enumerate(labels)]


def from_parts(content: Content) -> Content:
    """The content with sparse tables that are given as their parts put together."""
    states = content.get("states")
    is_state = set(map(str, states)) if isinstance(states, list) else set()
    return {
        key: csr(key, value)
        if key in TABLES and isinstance(value, dict) and any(part in value and part not in is_state for part in PARTS)
        else value
        for key, value in content.items()
    }


def csr(name: str, parts: Mapping[str, object]) -> SparseArray:
    """A sparse table from its four parts, refused unless they fit together."""
    if sorted(parts) != sorted(PARTS):
        raise InputError(f"{name} has the parts {', '.join(sorted(parts))}; a sparse table has {', '.join(PARTS)}")
    data = arrays.real_array(f"{name}.data", parts["data"], (None,))
    rule = "it must hold whole numbers"
    whole = {part: arrays.whole_array(f"{name}.{part}", parts[part], 2**53, rule, "iuf") for part in PARTS[1:]}
    arrays.check_shape(f"{name}.shape", whole["shape"].shape, (2,))
    try:
        table = sparse.csr_array((data, whole["indices"], whole["indptr"]), shape=tuple(whole["shape"].tolist()))
        table.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"{name} is not a sparse table: {error}; write it again with save_model") from None
    return table


# ---------------------------------------------------------------- tables by names


def resolved(content: Content, offer: Offer | None = None, normalise: bool = False) -> Content:
    """The content with every table that is given by names as an array."""
    start = content.get("initial")
    if isinstance(start, np.ndarray) and start.ndim == 0 and start.dtype.kind in "iu":  # one state, by its number
        content = {**content, "initial": {start.item(): 1.0}}
    by_names = [key for key in ("policy", "initial", *TABLES) if by_name.by_names(content.get(key))]
    pi = content.get("policy")
    if isinstance(pi, np.ndarray) and pi.ndim == 1:  # an action for each state, by its number
        by_names.append("policy")
    if not by_names:
        return content
    at = places_named(content, by_names[0], offer)
    content = dict(content)
    readers: dict[str, Callable[[object], object]] = {  # in this order: the support may be the kernel's
        "kernel": lambda value: by_name.kernel(_ended(value, at), at),
        "support": lambda value: by_name.support(value, at, content.get("kernel")),
        "rewards": lambda value: by_name.rewards(value, at),
        "policy": lambda value: policy(value, at, offer, normalise),
        "initial": lambda value: by_name.initial(value, at, offer),
    }
    for key, read in readers.items():
        if key in by_names:
            content[key] = read(content[key])
    return content


def _offer(available: object, content: Content, offer: Offer | None) -> Offer:
    """The actions that there are in each state, from a table or from {state: [action, ...]}."""
    if offer is not None:
        raise InputError("available is for task files; the model's own file says which actions there are")
    at = places_named(content, "available")
    if isinstance(available, dict):
        return Offer(by_name.available(available, at), {})
    table = arrays.real_array("available", available, (at.n_states, at.n_actions))
    if not table.any(axis=1).all():
        raise InputError(
            f"available names no action in state {at.states.label(int(table.any(axis=1).argmin()))}; add one"
        )
    return Offer(truth_table("available", table), {})


def _ended(kernel: object, at: Places) -> object:
    """A kernel by names, in which terminal states that it does not name are followed by themselves."""
    if not isinstance(kernel, dict):
        return kernel
    actions = [at.actions.name(a) for a in range(at.n_actions)]
    ends = [at.states.name(s) for s in at.ends]
    missing = [state for state in ends if state not in kernel and str(state) not in kernel]
    return {**kernel, **{state: {action: {state: 1.0} for action in actions} for state in missing}}


def policy(value: object, at: Places, offer: Offer | None = None, normalise: bool = False) -> FloatArray:
    """[S,A] from what `policytest.sources.tasks.policy` understands; "uniform" is over the actions that are offered."""
    if offer is not None and by_name.is_word(value, "uniform"):
        return np.asarray(offer.available / offer.available.sum(axis=1, keepdims=True))
    return policy_table(value, at, normalise, at.free)


def places_named(content: Content, given: str, offer: Offer | None = None) -> Places:
    """States and actions: their lists of names, or the sizes of what is given as an array."""
    sizes = list(offer.available.shape) if offer is not None else _sizes(content)
    counts: list[int] = []
    for key, size in zip(NAMES, sizes, strict=True):
        labels = content.get(key)
        count = size if labels is None else len(labels)
        if count is None:
            raise InputError(f"{given} is given by names, but {key} is missing; list the names there")
        if labels is not None:
            arrays.names(key, labels, count if size is None else size)
        counts.append(count)
    S, A = counts
    by_name.check_size(S, A)
    at = places_of(S, A, *(content.get(key) for key in NAMES))
    ends = dict.fromkeys(at.states.find(key, name) for key in ENDS for name in content.get(key) or ())
    return at._replace(ends=tuple(ends))


def _sizes(content: Content) -> list[int | None]:
    """S and A as far as arrays show them."""
    for key in ("policy", *TABLES):
        shape: tuple[int, ...] = getattr(content.get(key), "shape", ())
        if len(shape) == 3 or (len(shape) == 2 and not arrays.is_sparse(content[key])):
            return [int(shape[0]), int(shape[1])]
    return [None, None]


# ---------------------------------------------------------------- kernels


def consistent(task: Task, kernel: object) -> Kernel:
    """A kernel whose rows are distributions on the task's support."""
    checked = task.check_kernel("kernel", kernel)
    task.rows_of("kernel", checked)
    return checked


def _rescaled(kernel: Kernel) -> Kernel:
    """The kernel with each row that has a positive sum divided by it."""
    S = kernel.shape[-1]
    totals = arrays.row_totals(kernel, slice(None), S)
    return arrays.divided(kernel, np.where(totals > 0, totals, 1.0), S)
