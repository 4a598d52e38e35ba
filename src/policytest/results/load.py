"""A result read back from its JSON: what it holds is as it was; what it does not hold (kernels, tasks) is absent."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.files import read_file
from policytest._base.table import Document
from policytest.data.counts import flaws
from policytest.data.episodes import POLICIES
from policytest.data.returns import Histogram
from policytest.mdp.task import Names
from policytest.methods.run import Outcome
from policytest.results.alongside import Alongside
from policytest.results.changes import Change
from policytest.results.estimate import Estimate
from policytest.results.forecast import Forecast
from policytest.results.ladder import AssumptionLadder
from policytest.results.plan import Plan
from policytest.results.provenance import Provenance
from policytest.results.saved import SavedForecast, Visits
from policytest.results.selection import Selection
from policytest.results.sentences import REFUTED, TWO_SIDED
from policytest.results.verdict import Verdict
from policytest.worst_case import Status
from policytest.worst_case.lower_bound import Allocation

Result = Verdict | Estimate | Plan | Selection
SCHEMAS = (1, 2)
OPEN_UNIT = float(np.nextafter(0, 1)), float(np.nextafter(1, 0))  # the ends of (0, 1) in double precision
OPTIONAL = {"lower_bound": np.nan, "solves": 0, "method": ""}
"""What a document may lack although every result has it."""
NO_NUMBER = ("lower_bound", "estimate", "bound", "saving")
"""What null stands for in these: there is no number."""
LARGEST = 1e300
"""Numbers that are drawn stay below, so that their differences do not overflow."""


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


def _plain(kind: type, data: Document) -> Document:
    """The fields of a result that are numbers, strings, or true and false."""
    found: Document = {}
    for field in fields(kind):
        if field.type == "bool":
            found[field.name] = _truth(data, field.name)
        elif make := {"float": float, "int": int, "str": str}.get(str(field.type)):
            default = OPTIONAL.get(field.name, field.default)
            given = data[field.name] if default is MISSING else data.get(field.name, default)
            found[field.name] = _number(given) if field.name in NO_NUMBER else make(given)
    if "delta" in found:
        found["delta"] = _between(data, "delta", *OPEN_UNIT, "strictly between 0 and 1")
    return found


def _verdict(data: Document) -> Verdict:
    if data["schema"] == 2:  # in schema 1 the keys of these two groups are beside the others
        data = {**data["proof"], **data["provenance"], **data}
    answer, names = data["answer"], _names(data)
    if answer not in ("above", "below", "within", None):
        raise InputError(f'answer is {answer!r}; it is "above", "below", "within" or null')
    counts = _visits(data)
    changes = tuple(_change(change, counts.visits, names) for change in data.get("changes", ()))
    one_look, ladder, seed = (data.get(key) for key in ("one_look", "ladder", "seed"))
    return Verdict(
        **{
            **_plain(Verdict, data),
            "task": names,
            "answer": answer,
            "interval": _interval(data),
            "counts": counts._replace(changes=changes),
            "indifference": _between(data, "indifference", 0, LARGEST, "a distance, from 0 on", 0.0),
            "proof": Outcome(
                **_plain(Outcome, data),
                evidence=_pair(data, "evidence"),
                witness=None,
                dimension=None if data.get("dimension") is None else float(data["dimension"]),
                proved=None if data.get("proved") is None else _pair(data, "proved"),
                refuted=None if data.get("refuted") is None else _pair(data, "refuted"),
            ),
            "provenance": Provenance(
                str(data.get("method", "")),
                seed=None if seed is None else int(seed),
                interval_kind=str(data.get("interval_kind", TWO_SIDED)),
                versions={str(name): str(version) for name, version in data.get("versions", {}).items()},
            ),
            "forecast": _forecast(data.get("still_needed")),
            "alongside": Alongside(
                None if one_look is None else _pair(data, "one_look"),
                None if ladder is None else AssumptionLadder.of_data(ladder),
            ),
        }
    )


def _forecast(more: Document | None) -> Forecast:
    return Forecast() if more is None else Forecast(SavedForecast(str(more["words"]), more))


def _change(data: Document, visits: IntArray, names: Names) -> Change:
    s, a, x = (int(data[key]) for key in ("state", "action", "next"))
    for index, labels in ((s, names.states), (a, names.actions), (x, names.states)):
        if labels is not None and not 0 <= index < len(labels):
            raise InputError(f"changes has the index {index}, where there are {len(labels)} names")
    times = int(visits[s, a]) if visits.ndim == 2 and 0 <= s < visits.shape[0] and 0 <= a < visits.shape[1] else 0
    before, after = (_between(data, key, 0, 1, "a probability, from 0 to 1") for key in ("observed", "needed"))
    return Change(s, a, x, before, after, times, str(data.get("words", "")))


def _estimate(data: Document) -> Estimate:
    lower, upper = _interval(data)
    whole = {**data, "lower": lower, "upper": upper}
    return Estimate(**_plain(Estimate, whole), counts=_visits(data), task=_names(data))


def _plan(data: Document) -> Plan:
    low, high = _pair(data, "time")
    before = set(data.get("sensitivity", {}).get("values", ()))  # older files have the ends of the values guessed
    weights = np.asarray(data["allocation"], dtype=float)
    whole = {
        **_plain(Plan, data),
        "task": _names(data, weights.shape),
        "time": (low, high),
        "allocation": Allocation(weights, high, 1.0 / low if low > 0 else np.inf, Status.CONVERGED),
        "samples": _ranges(data["samples"]),
        "episodes": _ranges(data.get("episodes", {})),
        "runs": {str(name): (float(low), float(high)) for name, (low, high) in data.get("runs", {}).items()},
        "methods": {},
        "at_least": frozenset(map(str, data["at_least"])),
        "notes": tuple(map(str, data.get("notes", ()))),
        "guesses": int(data.get("guesses", max(len(before), 1))),
        "sure": {str(name): float(share) for name, share in data.get("sure", {}).items()},
    }
    if data["allocation"] is None:
        whole["allocation"] = None
    return Plan(**whole)


def _ranges(given: Document) -> dict[str, tuple[float, float, float]]:
    """(mean, low, high) by name."""
    return {str(name): (_number(a), _number(b), _number(c)) for name, (a, b, c) in given.items()}


def _selection(data: Document) -> Selection:
    settled, questions = data["settled"]
    policy, index = _table(data, "policy"), data["index"]
    names = _names(data, policy.shape)
    whole = {
        **_plain(Selection, {**data, "settled": settled, "questions": questions}),
        "policy": policy,
        "index": None if index is None else int(index),
        "values": _table(data, "values", 1),
        "counts": _visits(data),
        **{name: getattr(names, name) for name in ("states", "actions", "assumptions")},
    }
    return Selection(**whole)


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
    return Names(found[0], found[1], tuple(map(str, assumptions)), which)


def _visits(data: Document) -> Visits:
    table = np.asarray(data.get("visits", np.zeros((0, 0))), dtype=np.int64)
    selected, other = (_truth(data, name) if name in data else False for name in ("selected", "other_rewards"))
    episodes = int(data["episodes"]) if "episodes" in data else None
    refutes_model = _truth(data, "refutes_model") if "refutes_model" in data else False
    return Visits(table, selected, other, episodes, _histogram(data), _flaws(data, selected, other), refutes_model)


def _flaws(data: Document, selected: bool, other_rewards: bool) -> tuple[str, ...]:
    """What is wrong with the data, in words; that of the ladder is said by the ladder."""
    if "flaws" not in data:  # of an earlier version
        return flaws(selected, other_rewards)
    return tuple(words for words in map(str, data["flaws"]) if words != REFUTED)


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


def _table(data: Document, key: str, axes: int = 2) -> FloatArray:
    table: FloatArray = np.asarray(data[key], dtype=float)
    if table.ndim != axes or not table.size or not (np.abs(table) < LARGEST).all():
        raise InputError(f"{key} has shape {table.shape}; it is a table of numbers with {axes} axes")
    return table


def _number(value: float | str | None) -> float:
    """A number; null is written where there is none."""
    return np.nan if value is None else float(value)


def _interval(data: Document) -> tuple[float, float]:
    lower, upper = _pair(data, "interval")
    if any(LARGEST <= abs(end) < np.inf for end in (lower, upper)):
        raise InputError(f"interval is {[lower, upper]}; it has a lower and an upper end")
    return lower, upper


def _between(data: Document, key: str, low: float, high: float, words: str, default: object = None) -> float:
    """A number from ``low`` to ``high``."""
    number = float(data[key] if default is None else data.get(key, default))
    if not low <= number <= high:
        raise InputError(f"{key} is {number}; it is {words}")
    return number


def _pair(data: Document, key: str) -> tuple[float, float]:
    first, second = data[key]
    return float(first), float(second)


def _truth(data: Document, key: str) -> bool:
    """True or false, nothing that merely looks like it: a report must not call proved what is not."""
    if not isinstance(data[key], bool):
        raise InputError(f"{key} is {data[key]!r}; it is true or false")
    return bool(data[key])
