"""From a description, in Python or TOML, to a sweep. Everything wrong with it is an error before the first run.

The keys, with what they mean, are listed in ``docs/studies.md``. A description is plain data (strings, numbers, lists,
tables); in Python an instance may also be an `Instance`, a `Model` or `Episodes`, and a method one such as ``PTST()``.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from functools import singledispatch
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from policytest._base import arrays
from policytest._base.errors import InputError, naming
from policytest._base.text import did_you_mean
from policytest.data.episodes import Episodes
from policytest.kl.boundaries import Boundary, MixtureBoundary
from policytest.mdp import instances
from policytest.mdp.instances import Instance
from policytest.mdp.values import value
from policytest.methods import names
from policytest.methods.run import Method, traits_of
from policytest.questions.driver import sampling_limit
from policytest.sources.environments.episodes import AskedEpisodes, episodes_at
from policytest.sources.tasks import toml
from policytest.sources.tasks.files import Model, companions, load_model
from policytest.study.cells import Problem, Sweep, Trial, check_name, check_seeds, distinct, listed, placed

Description: TypeAlias = Mapping[str, Any]
"""A table of keys and values, as TOML has them; each value is checked where it is read."""
KEYS = ("title", "instances", "methods", "deltas", "seeds", "threshold", "max_samples", "bounds")
QUICK_CAP = 20_000
"""Samples of a run of a quick study, at most."""
GENERATED: dict[str, tuple[Callable[..., Instance], tuple[str, ...], tuple[str, ...], str]] = {
    "random": (instances.random, ("seed", "S", "A"), ("successors", "discount"), "{seed = 1, S = 20, A = 4}"),
    "grid_world": (instances.grid_world, ("width", "height"), ("slip", "discount"), "{width = 4, height = 3}"),
}
"""Instances that are made from settings: the function, the settings it must have, those it may have, an example."""
BUILT_IN: dict[str, Description] = {
    **{f"paper-{n}": {"paper": n} for n in (2, 3, 5)},
    "grid-world": {"grid_world": {"width": 4, "height": 3}},
}
"""Instances that a name describes, as on the command line."""
SOURCES = ("paper", *GENERATED, "file", "episodes")
INSTANCE_KEYS = (*SOURCES[:-1], "constants", "threshold", "gap", "alternative")
EPISODE_KEYS = ("episodes", "threshold", "value", *AskedEpisodes._fields)
NONE: Description = MappingProxyType({})
OF_A_TRIAL = ("method", "instances", "max_samples")


def read(path: str | PathLike[str]) -> Sweep:
    """The sweep that a TOML file describes; files it names are sought beside it."""
    path = Path(path)
    with naming(path):
        return sweep({"title": path.stem, **toml.read(path)}, folder=path.parent)


def files_of(path: str | PathLike[str]) -> list[Path]:
    """The file of a study that can be read, and the files of the models that it names."""
    path = Path(path)
    given = _named("instances", toml.read(path)["instances"], _built_in).values()
    own = [entry["file"] for entry in given if isinstance(entry, Mapping) and "file" in entry]
    return [path, *(file for name in own for file in companions(path.parent / name))]


def sweep(description: Description, folder: str | PathLike[str] = ".") -> Sweep:
    """The sweep that these keys describe; ``folder`` is where the files it names are sought.

    >>> small = sweep({"instances": ["paper-2"], "methods": ["TDBetting", "PTST"], "deltas": [0.1], "seeds": 3})
    >>> len(small.cells)
    6
    """
    _table("the study", description, KEYS)
    for key in ("instances", "methods", "deltas"):
        if key not in description:
            raise InputError(f"the key {key} is missing; add it")
    problems = {
        name: _problem(given, name, Path(folder), description.get("threshold"))
        for name, given in _named("instances", description["instances"], _built_in).items()
    }
    trials: list[Trial] = []
    for name, given in _named("methods", description["methods"], lambda text: {"method": text}).items():
        trials += _trials(name, given, problems, description.get("max_samples"))
    order = list(problems)
    trials.sort(key=lambda trial: order.index(trial.problem.name))  # stable: methods stay in their order
    bounds = description.get("bounds", True)
    if not isinstance(bounds, bool):
        raise InputError(f"bounds is {bounds!r}; it must be true or false")
    return Sweep(
        check_name("the study", description.get("title", "study")),
        tuple(trials),
        description["deltas"],
        description.get("seeds", 30),
        bounds,
    )


def with_seeds(plan: Sweep, seeds: object) -> Sweep:
    """The same sweep with other seeds: how many, or a list."""
    return dataclasses.replace(plan, seeds=check_seeds(seeds))


def quickly(plan: Sweep) -> Sweep:
    """A small version of a sweep, to see that it works: two seeds, and short runs."""
    limits = [QUICK_CAP if trial.max_samples is None else min(trial.max_samples, QUICK_CAP) for trial in plan.trials]
    trials = [dataclasses.replace(t, max_samples=limit) for t, limit in zip(plan.trials, limits, strict=True)]
    return dataclasses.replace(plan, title=f"{plan.title}, quickly", trials=tuple(trials), seeds=plan.seeds[:2])


# ---------------------------------------------------------------- instances


def _built_in(text: str) -> Description:
    """An instance by its name; else a file."""
    if text not in BUILT_IN and not Path(text).suffix:
        names.unknown_name("instances", text, BUILT_IN, "or a .json, .toml, .npz, .drn or .tra file")
    return BUILT_IN.get(text, {"file": text})


@singledispatch
def _problem(given: object, name: str, folder: Path, shared: object) -> Problem:
    """The instance that is given, or described by a table; ``shared`` is the threshold of the study."""
    place = f"instances.{name}"
    if isinstance(given, Mapping) and "episodes" in given:
        table = _table(place, given, EPISODE_KEYS)
        with placed(place):
            arrays.instance("episodes", address := table["episodes"], str, " such as gym:CartPole-v1")
            asked = {key: table[key] for key in AskedEpisodes._fields if key in table}
            about = episodes_at(address, AskedEpisodes(**asked))
        return _with_episodes(about, name, folder, shared, table, repr((address, asked)))
    table = _table(place, given, INSTANCE_KEYS, "such as {paper = 2}")
    kinds = [key for key in SOURCES if key in table]
    if len(kinds) != 1:
        raise InputError(f"{place} has {' and '.join(kinds) or 'no source'}; give one of {', '.join(SOURCES)}")
    with placed(place):
        found = _source(kinds[0], table[kinds[0]], folder, table.get("constants"))
    return _with_kernel(found, name, folder, shared, table)


@_problem.register
def _with_kernel(found: Instance | Model, name: str, _: Path, shared: object, table: Description = NONE) -> Problem:
    """A task and its kernel, with what a table says about them."""
    with placed(f"instances.{name}"):
        if found.kernel is None:
            raise InputError("it has no kernel to sample from", "add the key kernel to the file")
        alternative = table.get("alternative", getattr(found, "alternative_policy", None))
        if alternative is not None:
            alternative = arrays.real_array("alternative", alternative, found.task.policy.shape)
        check_name("an instance", name)
        return Problem(name, found.task, found.kernel, _threshold(table, found, shared), alternative)


@_problem.register
def _with_episodes(
    about: Episodes, name: str, _: Path, shared: object, table: Description = NONE, source: str = ""
) -> Problem:
    """Episodes, with what a table says about them, and where they are."""
    with placed(f"instances.{name}"):
        if (bar := table.get("threshold", shared)) is None:
            raise InputError("it has no threshold; add threshold = R, to it or to the study")
        mean = arrays.real_number("value", table["value"]) if "value" in table else math.nan
        bar = arrays.real_number("threshold", bar)
        return Problem(check_name("an instance", name), about, None, bar, mean=mean, source=source)


def _source(kind: str, given: object, folder: Path, constants: Any) -> Instance | Model:
    """The instance or the model that this kind of description leads to."""
    if constants is not None and kind != "file":
        raise InputError("constants are for a file with a program in PRISM's language; leave them out")
    if kind == "file":
        if not isinstance(given, str):
            raise InputError(f"file is {given!r}; pass the path of a .json, .toml, .npz, .drn or .tra file")
        return load_model(folder / given, constants=constants)
    if kind == "paper":
        return instances.paper(arrays.whole_number("paper", given))
    make, needed, more, example = GENERATED[kind]
    table = _table(kind, given, (*needed, *more), f"such as {example}")
    if missing := [key for key in needed if key not in table]:
        raise InputError(f"{kind} lacks {', '.join(missing)}; add {'it' if len(missing) == 1 else 'them'}")
    if kind == "random" and arrays.whole_number("seed", table["seed"]) < 0:
        raise InputError(f"seed is {table['seed']}; it cannot be negative")
    return make(**table)


def _threshold(given: Description, found: Instance | Model, shared: object) -> float:
    """Its own threshold, or V minus its gap; else the file's; else the study's; else the paper's."""
    if "gap" in given:
        if "threshold" in given:
            raise InputError("it has a threshold and a gap; keep one")
        return value(found.task, found.kernel) - arrays.real_number("gap", given["gap"])
    own = found.threshold if isinstance(found, Model) else None
    for candidate in (given.get("threshold"), own, shared, found.threshold):  # last, the 0 of the paper's instances
        if candidate is not None:
            return arrays.real_number("threshold", candidate)
    raise InputError("it has no threshold; add threshold = R, or gap = V - R, to it or to the study")


# ---------------------------------------------------------------- methods


def _trials(name: str, given: Any, problems: dict[str, Problem], shared: object) -> list[Trial]:
    """A method on the problems that it is for; ``shared`` is the limit of samples of the study."""
    place = f"methods.{name}"
    check_name("a method", name)
    if not isinstance(given, Mapping):
        if isinstance(given, type) or not all(hasattr(given, part) for part in ("start", "replay", "describe")):
            raise InputError(f'{place} is {given!r}; pass a table such as {{method = "PTST"}}, or PTST()')
        limit = _limit(place, shared)
        return [_trial(place, problem, name, given, limit) for problem in problems.values()]
    entry = names.method_entry(f"{place}.method", given.get("method", name))
    _table(place, given, (*OF_A_TRIAL, *entry.settings))
    limit = _limit(place, given.get("max_samples", shared))
    options = {key: given[key] for key in entry.settings if key in given}
    trials = []
    chosen = given.get("instances", list(problems))
    for instance in listed(f"{place}.instances", chosen, "a list of names of instances"):
        if instance not in problems:
            names.unknown_name(f"{place}.instances", instance, problems)
        with placed(place):
            problem = problems[instance]
            trials.append(_trial(place, problem, name, _made(entry, options, problem), limit))
    return trials


def _trial(place: str, problem: Problem, name: str, method: Method, limit: int | None) -> Trial:
    """A method on a problem; ReturnBetting and LargeSample are the methods of episodes, and of nothing else."""
    of_episodes = problem.table is None
    if of_episodes != traits_of(method).episodes:
        kind = "has episodes, whose methods are ReturnBetting and LargeSample" if of_episodes else "is a Markov task"
        raise InputError(
            f"{place}: {method.describe()} cannot be used on {problem.name!r}, which {kind}",
            f"name the instances of each method: {place}.instances = [...]",
        )
    return Trial(problem, name, method, limit)


def _made(entry: names.Named, given: Description, problem: Problem) -> Method:
    """The method with these settings, for this problem."""
    readers: dict[str, Callable[[Any], object]] = {
        "boundary": _boundary,
        "solver": _solver,
        "allocation": lambda shares: _allocation(shares, problem),
    }
    options = {key: readers[key](setting) if key in readers else setting for key, setting in given.items()}
    if entry.name == "KLBTS" and options.get("policies") == 2:
        if problem.alternative is None:
            raise InputError(
                f"policies = 2 needs a second policy, and instances.{problem.name} has none",
                "add the key alternative to it, or name the instances of this method",
            )
        options["alternative"] = problem.alternative
    method: Method = entry.load()(**options)
    return method


def _boundary(given: Any) -> Boundary:
    """ "paper", "mixture", or the priors of a mixture."""
    if isinstance(given, str) and given in names.BOUNDARIES:
        return names.make_boundary(given)
    if isinstance(given, str | bool | Mapping):
        raise InputError(f"boundary is {given!r}", 'pass "paper", "mixture", or the prior of a mixture such as 0.5')
    return MixtureBoundary(given)


def _solver(given: object) -> object:
    """A name, or a table with the name and settings."""
    table = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = table.pop("name", None)
    if name not in names.SOLVERS:
        names.unknown_name("solver", name, names.SOLVERS)
    make = names.SOLVERS[name].load()
    return make(**_table(f"solver {name}", table, tuple(inspect.signature(make).parameters)))


def _allocation(given: object, problem: Problem) -> object:
    """The name of a sampling rule, or shares."""
    if not isinstance(given, str):
        return arrays.real_array("allocation", given, None if problem.table is None else problem.table.policy.shape)
    if given not in names.SAMPLING_RULES:
        names.unknown_name("allocation", given, names.SAMPLING_RULES, "or shares [S,A]")
    return names.make_sampling_rule(given, problem.kernel)


def _limit(place: str, limit: Any) -> int | None:
    with placed(place):
        return None if limit is None else sampling_limit(limit)


# ---------------------------------------------------------------- shared


def _named(kind: str, given: object, from_name: Callable[[str], Description]) -> dict[str, object]:
    """Name -> description: a table, or a list of names that say it all."""
    if isinstance(given, Mapping):
        return {name: from_name(entry) if isinstance(entry, str) else entry for name, entry in given.items()}
    entries = listed(kind, given, "a table of them, or a list of names")
    if not entries:
        raise InputError(f"{kind} is empty; add one")
    for entry in entries:
        if not isinstance(entry, str):
            raise InputError(f"{kind} has the entry {entry!r}; a list has names only: describe it in a table")
    return {name: from_name(name) for name in distinct(kind, entries, repr)}


def _table(place: str, given: object, known: tuple[str, ...], wanted: str = "of keys and values") -> Description:
    """A table in which all keys are known."""
    if not isinstance(given, Mapping):
        raise InputError(f"{place} is {given!r}; pass a table {wanted}")
    for key in given:
        if key not in known:
            others = f"known are {', '.join(known)}" if known else "it has none"
            raise InputError(f"{place}: unknown key {key!r}", did_you_mean(key, known, others))
    return given
