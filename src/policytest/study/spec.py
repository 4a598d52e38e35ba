"""From a description, in Python or TOML, to a sweep. Everything wrong with it is an error before the first run.

The keys, with what they mean, are listed in ``docs/studies.md``. A description is plain data (strings, numbers, lists,
tables); in Python an instance may also be an `Instance`, a `Model` or `Episodes`, and a method one such as ``PTST()``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest._base.text import did_you_mean
from policytest.data.episodes import Episodes
from policytest.kl.boundaries import Boundary, MixtureBoundary
from policytest.mdp import instances
from policytest.mdp.instances import Instance
from policytest.methods import names
from policytest.methods.return_betting import ReturnBetting
from policytest.methods.run import Method
from policytest.questions.driver import sampling_limit
from policytest.sources.environments.episodes import AskedEpisodes, episodes_at
from policytest.sources.tasks import toml
from policytest.sources.tasks.files import Model, companions, load_model
from policytest.study.cells import Problem, Sweep, Trial, check_deltas, check_name, check_seeds, placed, repeated

KEYS = ("title", "instances", "methods", "deltas", "seeds", "threshold", "max_samples", "bounds")
QUICK_CAP = 20_000
"""Samples of a run of a quick study, at most."""
GENERATED: dict[str, tuple[Callable[..., Instance], tuple[str, ...], tuple[str, ...], str]] = {
    "random": (instances.random, ("seed", "S", "A"), ("successors", "discount"), "{seed = 1, S = 20, A = 4}"),
    "grid_world": (instances.grid_world, ("width", "height"), ("slip", "discount"), "{width = 4, height = 3}"),
}
"""Instances that are made from settings: the function, the settings it must have, those it may have, an example."""
SOURCES = ("paper", *GENERATED, "file", "episodes")
INSTANCE_KEYS = (*SOURCES[:-1], "constants", "threshold", "gap", "alternative")
EPISODE_KEYS = ("episodes", "threshold", "value", *AskedEpisodes._fields)
OF_A_TRIAL = ("method", "instances", "max_samples")


def read(path: str | PathLike[str]) -> Sweep:
    """The sweep that a TOML file describes; files it names are sought beside it."""
    path = Path(path)
    try:
        content = toml.read(path)
        content.setdefault("title", path.stem)
        return sweep(content, folder=path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def files_of(path: str | PathLike[str]) -> list[Path]:
    """The file of a study that can be read, and the files of the models that it names."""
    path = Path(path)
    given = toml.read(path)["instances"]
    entries = [*given.values()] if isinstance(given, Mapping) else given
    found = [entry["file"] if isinstance(entry, Mapping) and "file" in entry else entry for entry in entries]
    return [path, *(file for name in found if isinstance(name, str) for file in companions(path.parent / name))]


def sweep(description: Mapping[str, Any], folder: str | PathLike[str] = ".") -> Sweep:
    """The sweep that these keys describe; ``folder`` is where the files it names are sought.

    >>> small = sweep({"instances": ["paper-2"], "methods": ["TDBetting", "PTST"], "deltas": [0.1], "seeds": 3})
    >>> len(small.cells)
    6
    """
    _known_keys("the study", description, KEYS)
    for key in ("instances", "methods", "deltas"):
        if key not in description:
            raise InputError(f"the key {key} is missing; add it")
    shared = {key: description[key] for key in ("threshold", "max_samples") if key in description}
    problems = [
        _problem(name, given, Path(folder), shared.get("threshold"))
        for name, given in _named("instances", description["instances"], _built_in_name).items()
    ]
    trials: list[Trial] = []
    for name, given in _named("methods", description["methods"], lambda text: {"method": text}).items():
        trials += _trials(name, given, problems, shared.get("max_samples"))
    order = {problem.name: index for index, problem in enumerate(problems)}
    trials.sort(key=lambda trial: order[trial.problem.name])  # stable: methods stay in their order
    bounds = description.get("bounds", True)
    if not isinstance(bounds, bool):
        raise InputError(f"bounds is {bounds!r}; it must be true or false")
    return Sweep(
        check_name("the study", description.get("title", "study")),
        tuple(trials),
        check_deltas(description["deltas"]),
        check_seeds(description.get("seeds", 30)),
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


def _built_in_name(text: str) -> dict[str, Any]:
    """paper-2, paper-3, paper-5 and grid-world, as on the command line; else a file."""
    if text in ("paper-2", "paper-3", "paper-5"):
        return {"paper": int(text[-1])}
    if text == "grid-world":
        return {"grid_world": {"width": 4, "height": 3}}
    if not Path(text).suffix:
        known = ("paper-2", "paper-3", "paper-5", "grid-world")
        names.unknown_name("instances", text, known, "or a .json, .toml, .npz, .drn or .tra file")
    return {"file": text}


def _problem(name: str, given: object, folder: Path, threshold: object) -> Problem:
    place = f"instances.{name}"
    if isinstance(given, Episodes) or (isinstance(given, Mapping) and "episodes" in given):
        return _episodes(name, given, threshold)
    if isinstance(given, Instance | Model):
        given = {"object": given}
    elif not isinstance(given, Mapping):
        raise InputError(f"{place} is {given!r}; pass a table such as {{paper = 2}}")
    else:
        _known_keys(place, given, INSTANCE_KEYS)
    kinds = [key for key in (*SOURCES, "object") if key in given]
    if len(kinds) != 1:
        raise InputError(f"{place} has {' and '.join(kinds) or 'no source'}; give one of {', '.join(SOURCES)}")
    with placed(place):
        found = _source(kinds[0], given[kinds[0]], folder, given.get("constants"))
        if found.kernel is None:
            raise InputError("it has no kernel to sample from", "add the key kernel to the file")
        alternative = given.get("alternative", getattr(found, "alternative_policy", None))
        if alternative is not None:
            alternative = arrays.real_array("alternative", alternative, found.task.policy.shape)
        problem = Problem(check_name("an instance", name), found.task, found.kernel, math.nan, alternative)
        return dataclasses.replace(problem, threshold=_threshold(problem, given, found, threshold))


def _episodes(name: str, given: Any, shared: Any) -> Problem:
    """Episodes by their address and what is said about them; or an `Episodes`."""
    place, table = f"instances.{name}", given if isinstance(given, Mapping) else {}
    _known_keys(place, table, EPISODE_KEYS)
    with placed(place):
        about, asked = given, {key: table[key] for key in AskedEpisodes._fields if key in table}
        source = repr((table["episodes"], asked)) if table else ""
        if table:
            arrays.instance("episodes", address := table["episodes"], str, " such as gym:CartPole-v1")
            about = episodes_at(address, AskedEpisodes(**asked))
        bar = table.get("threshold", shared)
        if bar is None:
            raise InputError("it has no threshold; add threshold = R, to it or to the study")
        mean = arrays.real_number("value", table["value"]) if "value" in table else math.nan
        bar = arrays.real_number("threshold", bar)
        return Problem(check_name("an instance", name), about, None, bar, mean=mean, source=source)


def _source(kind: str, given: object, folder: Path, constants: Any) -> Any:
    if constants is not None and kind != "file":
        raise InputError("constants are for a file with a program in PRISM's language; leave them out")
    if kind == "object":
        return given
    if kind == "file":
        if not isinstance(given, str):
            raise InputError(f"file is {given!r}; pass the path of a .json, .toml, .npz, .drn or .tra file")
        return load_model(folder / given, constants=constants)
    if kind == "paper":
        return instances.paper(arrays.whole_number("paper", given))
    make, needed, more, example = GENERATED[kind]
    if not isinstance(given, Mapping):
        raise InputError(f"{kind} is {given!r}; pass a table such as {example}")
    _known_keys(kind, given, (*needed, *more))
    if missing := [key for key in needed if key not in given]:
        raise InputError(f"{kind} lacks {', '.join(missing)}; add {'it' if len(missing) == 1 else 'them'}")
    if kind == "random" and arrays.whole_number("seed", given["seed"]) < 0:
        raise InputError(f"seed is {given['seed']}; it cannot be negative")
    return make(**given)


def _threshold(problem: Problem, given: Mapping[str, Any], found: Any, shared: Any) -> float:
    """Its own threshold, or V minus its gap; else the file's; else the study's; else the paper's."""
    if "gap" in given:
        if "threshold" in given:
            raise InputError("it has a threshold and a gap; keep one")
        return problem.value - arrays.real_number("gap", given["gap"])
    own = found.threshold if isinstance(found, Model) else None
    for candidate in (given.get("threshold"), own, shared, found.threshold):  # last, the 0 of the paper's instances
        if candidate is not None:
            return arrays.real_number("threshold", candidate)
    raise InputError("it has no threshold; add threshold = R, or gap = V - R, to it or to the study")


# ---------------------------------------------------------------- methods


def _trials(name: str, given: Any, problems: list[Problem], limit: Any) -> list[Trial]:
    place = f"methods.{name}"
    check_name("a method", name)
    where = {problem.name: problem for problem in problems}
    if not isinstance(given, Mapping):
        if isinstance(given, type) or not all(hasattr(given, part) for part in ("start", "replay", "describe")):
            raise InputError(f'{place} is {given!r}; pass a table such as {{method = "PTST"}}, or PTST()')
        limit = _limit(place, limit)
        return [_trial(place, problem, name, given, limit) for problem in problems]
    entry = names.method_entry(f"{place}.method", given.get("method", name))
    _known_keys(place, given, (*OF_A_TRIAL, *entry.settings))
    limit = _limit(place, given.get("max_samples", limit))
    chosen = given.get("instances", list(where))
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise InputError(f"{place}.instances is {chosen!r}; pass a list of names of instances")
    trials = []
    for instance in chosen:
        if instance not in where:
            names.unknown_name(f"{place}.instances", instance, where)
        options = {key: given[key] for key in entry.settings if key in given}
        with placed(place):
            problem = where[instance]
            trials.append(_trial(place, problem, name, _made(entry, options, problem), limit))
    return trials


def _trial(place: str, problem: Problem, name: str, method: Any, limit: int | None) -> Trial:
    """A method on a problem; ReturnBetting is the method of episodes, and of nothing else."""
    of_episodes = isinstance(problem.task, Episodes)
    if of_episodes != isinstance(method, ReturnBetting):
        kind = "has episodes, whose method is ReturnBetting" if of_episodes else "is a Markov task"
        raise InputError(
            f"{place}: {method.describe()} cannot be used on {problem.name!r}, which {kind}",
            f"name the instances of each method: {place}.instances = [...]",
        )
    return Trial(problem, name, method, limit)


def _made(entry: names.Named, options: dict[str, Any], problem: Problem) -> Method:
    """The method with these settings, for this problem."""
    readers: dict[str, Callable[[Any], Any]] = {
        "boundary": _boundary,
        "solver": _solver,
        "allocation": lambda given: _allocation(given, problem),
    }
    options = {key: readers[key](given) if key in readers else given for key, given in options.items()}
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


def _solver(given: object) -> Any:
    """A name, or a table with the name and settings."""
    table = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = table.pop("name", None)
    if name not in names.SOLVERS:
        names.unknown_name("solver", name, names.SOLVERS)
    make: Any = names.SOLVERS[name].load()
    _known_keys(f"solver {name}", table, tuple(part.name for part in dataclasses.fields(make)))
    return make(**table)


def _allocation(given: object, problem: Problem) -> Any:
    if not isinstance(given, str):
        return arrays.real_array("allocation", given, problem.task.policy.shape)
    if given not in names.SAMPLING_RULES:
        names.unknown_name("allocation", given, names.SAMPLING_RULES, "or shares [S,A]")
    return names.make_sampling_rule(given, problem.kernel)


def _limit(place: str, limit: Any) -> int | None:
    with placed(place):
        sampling_limit(limit)
    return None if limit is None else int(limit)


# ---------------------------------------------------------------- shared


def _named(kind: str, given: object, from_name: Callable[[str], Any]) -> dict[str, Any]:
    """Name -> description: a table, or a list of names that say it all."""
    if isinstance(given, Mapping):
        return {name: from_name(entry) if isinstance(entry, str) else entry for name, entry in given.items()}
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{kind} is {given!r}; pass a table of them, or a list of names")
    listed = list(given)
    if not listed:
        raise InputError(f"{kind} is empty; add one")
    wrong = next((name for name in listed if not isinstance(name, str)), None)
    if wrong is not None:
        raise InputError(f"{kind} has the entry {wrong!r}; a list has names only: describe it in a table")
    if twice := repeated(listed):
        raise InputError(f"{kind} has {twice[0]!r} twice; keep one")
    return {name: from_name(name) for name in listed}


def _known_keys(place: str, given: object, known: tuple[str, ...]) -> None:
    if not isinstance(given, Mapping):
        raise InputError(f"{place} is {given!r}; pass a table of keys and values")
    for key in given:
        if key not in known:
            listed = f"known are {', '.join(known)}" if known else "it has none"
            raise InputError(f"{place}: unknown key {key!r}", did_you_mean(key, known, listed))
