"""A result read back from its JSON: what it holds is as it was; what it does not hold (kernels, tasks) is absent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.files import read_file
from policytest._base.table import Document
from policytest.data.counts import flaws
from policytest.data.episodes import POLICIES
from policytest.data.returns import Histogram, Tails
from policytest.mdp.task import Names
from policytest.methods.run import Found, Outcome
from policytest.results.by_task import ByTask, TaskAnswer
from policytest.results.changes import Change
from policytest.results.estimate import Estimate
from policytest.results.forecast import Forecast
from policytest.results.ladder import ANSWERS, Alongside, AssumptionLadder, Rung
from policytest.results.plan import Plan, Powered
from policytest.results.provenance import Provenance
from policytest.results.saved import SavedForecast, Visits
from policytest.results.selection import Contender, Selection
from policytest.results.sentences import REFUTED, TWO_SIDED
from policytest.results.verdict import Verdict
from policytest.worst_case import Status
from policytest.worst_case.lower_bound import Allocation

Result = Verdict | Estimate | Plan | Selection
Reader = Callable[[Any], Any]
SCHEMAS = (1, 2)
OPEN_UNIT = float(np.nextafter(0, 1)), float(np.nextafter(1, 0))  # the ends of (0, 1) in double precision
OPTIONAL: Document = {"lower_bound": None, "solves": 0, "method": "", "interval_kind": TWO_SIDED, "versions": {}}
"""What a document may lack although every result has it."""
NO_NUMBER = ("lower_bound", "estimate", "bound", "saving")
"""What null stands for in these: there is no number."""
LARGEST = 1e300
"""Numbers that are drawn stay below, so that their differences do not overflow."""
PROBABILITY = (0, 1, "a probability, from 0 to 1")
LIMITS = {
    "delta": (*OPEN_UNIT, "strictly between 0 and 1"),
    "indifference": (0, LARGEST, "a distance, from 0 on"),
    "observed": PROBABILITY,
    "needed": PROBABILITY,
}
"""Between which numbers these are, and what they are."""


def read(path: str | os.PathLike[str]) -> Result:
    """The result that a file holds, as `to_json` wrote it."""
    try:
        text = read_file(path).decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a JSON document (it is not text)") from None
    return parse(text, str(path))


def parse(text: str, path: str) -> Result:
    """The result that a JSON document describes; ``path`` is its name in errors."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not a JSON document ({error}); pass what `policytest decide --json` printed"
        ) from None
    try:
        return from_data(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def from_data(data: object) -> Result:
    """The result that these data describe: a Verdict, an Estimate, a Plan or a Selection."""
    if not isinstance(data, Mapping):
        raise InputError(f"the document is a {type(data).__name__}, expected an object with the key schema")
    if (schema := data.get("schema")) not in SCHEMAS:
        raise InputError(f"schema is {schema!r}, expected {' or '.join(map(str, SCHEMAS))}; is it a policytest result?")
    for key, make in (("answer", _verdict), ("epsilon", _estimate), ("saving", _plan), ("settled", _selection)):
        if key in data:
            try:
                return make(dict(data))
            except KeyError as error:
                raise InputError(f"the key {error.args[0]!r} is missing; is the document complete?") from None
            except (TypeError, ValueError, AttributeError, OverflowError) as error:
                raise InputError(f"the document does not describe a result ({error})") from None
    raise InputError("no kind of result has these keys; pass a verdict, an estimate, a plan or a selection")


def _ends(given: Iterable[float]) -> tuple[float, float]:
    first, second = given
    return float(first), float(second)


def _range(given: Iterable[float | None]) -> tuple[float, ...]:
    """(mean, low, high); null where there is none."""
    mean, low, high = (np.nan if number is None else float(number) for number in given)
    return mean, low, high


def _optional(read: Reader) -> Reader:
    return lambda given: None if given is None else read(given)


def _by_name(read: Reader) -> Reader:
    return lambda given: {str(name): read(value) for name, value in given.items()}


READERS: dict[str, Reader] = {
    "bool": lambda given: given,
    "float": float,
    "int": int,
    "str": str,
    "tuple[float, float]": _ends,
    "float | None": _optional(float),
    "int | None": _optional(int),
    "str | None": _optional(str),
    "tuple[float, float] | None": _optional(_ends),
    "tuple[str, ...]": lambda given: tuple(map(str, given)),
    "frozenset[str]": lambda given: frozenset(map(str, given)),
    "dict[str, float]": _by_name(float),
    "dict[str, tuple[float, float]]": _by_name(_ends),
    "dict[str, Range]": _by_name(_range),
    "Mapping[str, str]": _by_name(str),
}
"""How fields of these types are read."""


def _fields(kind: type, data: Document) -> Document:
    """What a document has of the fields of a record, each read as its type says; not those of other types."""
    found, data = {}, {**OPTIONAL, **data}
    for field in fields(kind):
        name, type_name = field.name, str(field.type)
        has_default = not (field.default is field.default_factory is MISSING)
        if type_name not in READERS or (has_default and name not in data):
            continue
        given = np.nan if data[name] is None and name in NO_NUMBER else data[name]
        found[name] = value = READERS[type_name](given)
        if type_name == "bool" and type(value) is not bool:  # a report must not call proved what is not
            raise InputError(f"{name} is {value!r}; it is true or false")
        if name in LIMITS and not LIMITS[name][0] <= value <= LIMITS[name][1]:
            raise InputError(f"{name} is {value}; it is {LIMITS[name][2]}")
    return found


def _verdict(data: Document) -> Verdict:
    if data["schema"] == 2:  # in schema 1 the keys of these two groups are beside the others
        data = {**data["proof"], **data["provenance"], **data}
    if (answer := data["answer"]) not in ("above", "below", "within", None):
        raise InputError(f'answer is {answer!r}; it is "above", "below", "within" or null')
    found, counts, names, ladder = _fields(Verdict, data), _visits(data), _names(data), data.get("ladder")
    changes = tuple(_change(change, counts.visits, names) for change in data.get("changes", ()))
    found |= {
        "task": names,
        "interval": _interval(data),
        "counts": replace(counts, changes=changes),
        "proof": Outcome(nearest=Found(**_fields(Found, data)), **_fields(Outcome, data)),
        "provenance": Provenance(**_fields(Provenance, data)),
        "forecast": _forecast(data.get("still_needed")),
        "alongside": Alongside(
            **_fields(Alongside, data), ladder=None if ladder is None else _ladder(ladder), by_task=_by_task(data)
        ),
    }
    return Verdict(**found)


def _forecast(more: Document | None) -> Forecast:
    return Forecast() if more is None else Forecast(SavedForecast(str(more["words"]), more))


def _ladder(data: Document) -> AssumptionLadder:
    for rung in data["rungs"]:
        if rung["answer"] not in ANSWERS:
            raise ValueError(f"the answer of a rung is {rung['answer']!r}")
    if not data["rungs"]:
        raise ValueError("the ladder has no rungs")
    rungs = tuple(Rung(**_fields(Rung, rung)) for rung in data["rungs"])
    return AssumptionLadder(rungs, **_fields(AssumptionLadder, data))


def _by_task(data: Document) -> ByTask | None:
    """The answers of tasks, where a verdict has them."""
    if (found := data.get("by_task")) is None:
        return None
    tasks = []
    for one in found["tasks"]:
        if one["answer"] not in ANSWERS:
            raise ValueError(f"the answer of a task is {one['answer']!r}")
        ends = _ends(one["interval"])
        tasks.append(TaskAnswer(str(one["task"]), int(one["outcomes"]), float(one["estimate"]), ends, one["answer"]))
    return ByTask(tuple(tasks), **_fields(ByTask, found))


def _change(data: Document, visits: IntArray, names: Names) -> Change:
    found = {"words": "", **data, "successor": data["next"], "visits": 0}
    change = Change(**_fields(Change, found))
    s, a = change.state, change.action
    for index, labels in ((s, names.states), (a, names.actions), (change.successor, names.states)):
        if labels is not None and not 0 <= index < len(labels):
            raise InputError(f"changes has the index {index}, where there are {len(labels)} names")
    is_counted = visits.ndim == 2 and 0 <= s < visits.shape[0] and 0 <= a < visits.shape[1]
    return replace(change, visits=int(visits[s, a])) if is_counted else change


def _estimate(data: Document) -> Estimate:
    lower, upper = _interval(data)
    whole = {**data, "lower": lower, "upper": upper}
    return Estimate(**_fields(Estimate, whole), counts=_visits(data), task=_names(data))


def _plan(data: Document) -> Plan:
    before = set(data.get("sensitivity", {}).get("values", ()))  # older files have the ends of the values guessed
    found = _fields(Plan, {"guesses": max(len(before), 1), **data})
    (low, high), weights = found["time"], np.asarray(data["allocation"], dtype=float)
    allocation = Allocation(weights, high, 1.0 / low if low > 0 else np.inf, Status.CONVERGED)
    names = _names(data, weights.shape)
    if data.get("power") is not None:
        found["powered"] = Powered(**{name: data["power"][name] for name in Powered._fields})
    return Plan(**found, task=names, allocation=None if data["allocation"] is None else allocation, methods={})


def _selection(data: Document) -> Selection:
    settled, questions = data["settled"]
    agents = tuple(_contender(one) for one in data.get("agents", ()))
    policy = str(data["policy"]) if agents else _table(data, "policy")
    names = _names(data, np.shape(policy) or None)
    values = np.array([one.value for one in agents]) if agents else _table(data, "values", 1)
    found = _fields(Selection, {**data, "settled": settled, "questions": questions})
    found |= {"policy": policy, "values": values, "counts": _visits(data), "agents": agents}
    found |= {"states": names.states, "actions": names.actions, "assumptions": names.assumptions}
    return Selection(**found)


def _contender(data: Document) -> Contender:
    """What a document says of an agent; null stands for the mean of no episodes."""
    value = np.nan if data["value"] is None else float(data["value"])
    ends, count = _ends((data["lower"], data["upper"])), int(data["episodes"])
    if not (abs(value) < LARGEST or np.isnan(value)) or np.isnan(ends).any() or count < 0:
        raise InputError(f"agents has {data['value']!r} with {data['episodes']!r} episodes, which is not a mean return")
    if type(data["is_in"]) is not bool:
        raise InputError(f"agents: is_in is {data['is_in']!r}; it is true or false")
    return Contender(str(data["name"]), value, *ends, count, data["is_in"])


def _names(data: Document, shape: tuple[int, ...] | None = None) -> Names:
    """The names of states and actions, one for each row and column of its table, and what is said of the task."""
    shape = np.shape(data.get("visits", ())) if shape is None else shape
    found: list[tuple[str, ...] | None] = []
    for axis, key in enumerate(("states", "actions")):
        labels = data.get(key)
        if labels is not None and (not isinstance(labels, list) or (len(shape) == 2 and len(labels) != shape[axis])):
            raise InputError(f"{key} is not a list of {shape[axis] if len(shape) == 2 else ''} names")
        found.append(None if labels is None else tuple(map(str, labels)))
    assumptions = data.get("assumptions", [])
    if not isinstance(assumptions, list):
        raise InputError(f"assumptions is {assumptions!r}; it is a list of sentences")
    which = data.get("agent_policy", "")
    if which not in ("", *POLICIES):
        raise InputError(f"agent_policy is {which!r}; it is {' or '.join(POLICIES)}")
    rivals = data.get("rivals", ())
    if len(rivals) not in (0, 2):
        raise InputError(f"rivals is {rivals!r}; it is a list of two names")
    return Names(found[0], found[1], tuple(map(str, assumptions)), which, tuple(map(str, rivals)))


def _visits(data: Document) -> Visits:
    table = np.asarray(data.get("visits", np.zeros((0, 0))), dtype=np.int64)
    found = Visits(table, **_fields(Visits, data), histogram=_histogram(data), tails=_tails(data.get("tails")))
    if "flaws" not in data:  # of an earlier version
        return replace(found, flaws=flaws(found.selected, found.other_rewards))
    return replace(found, flaws=tuple(words for words in found.flaws if words != REFUTED))  # of the ladder


def _histogram(data: Document) -> Histogram | None:
    """The returns of episodes, where a document has them."""
    if data.get("returns") is None:
        return None
    edges = np.asarray(data["returns"]["edges"], dtype=np.float64)
    episodes = np.asarray(data["returns"]["episodes"], dtype=np.int64)
    if edges.ndim != 1 or episodes.shape != (len(edges) - 1,) or episodes.min() < 0 or not (np.diff(edges) > 0).all():
        raise InputError("returns is not a histogram: edges must rise, with a number of episodes between each two")
    if not (np.abs(edges) < LARGEST).all():
        raise InputError(f"returns.edges has numbers beyond {LARGEST:g}")
    return Histogram(edges, episodes)


def _tails(data: Document | None) -> Tails | None:
    """How heavy the tails of returns are, where a document says it."""
    return None if data is None else Tails(*(float(data[name]) for name in Tails._fields))


def _table(data: Document, key: str, axes: int = 2) -> FloatArray:
    table: FloatArray = np.asarray(data[key], dtype=float)
    if table.ndim != axes or not table.size or not (np.abs(table) < LARGEST).all():
        raise InputError(f"{key} has shape {table.shape}; it is a table of numbers with {axes} axes")
    return table


def _interval(data: Document) -> tuple[float, float]:
    lower, upper = _ends(data["interval"])
    if any(LARGEST <= abs(end) < np.inf for end in (lower, upper)):
        raise InputError(f"interval is {[lower, upper]}; it has a lower and an upper end")
    return lower, upper
