"""What a command line names, found: the model, the simulator, the method.

Everything wrong with them is an `InputError` before the first sample is drawn. Heavy imports are inside the functions,
so that ``policytest --help`` does not wait for them.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from policytest._base.errors import InputError
from policytest._base.text import did_you_mean
from policytest.cli.groups import as_typed

if TYPE_CHECKING:
    from policytest._base.arrays import Kernel
    from policytest.cli.options import Data, Question
    from policytest.cli.options import Episodes as EpisodeOptions
    from policytest.cli.options import Method as MethodOptions
    from policytest.data.episodes import Episodes
    from policytest.data.simulators import SimulatorLike
    from policytest.data.transitions import Transitions
    from policytest.mdp.instances import Instance
    from policytest.mdp.task import Task
    from policytest.sources.logged.log import Log
    from policytest.sources.tasks.files import Model

BUILT_IN: dict[str, Callable[[ModuleType], Instance]] = {
    "paper-2": lambda instances: instances.paper(2),
    "paper-3": lambda instances: instances.paper(3),
    "paper-5": lambda instances: instances.paper(5),
    "grid-world": lambda instances: instances.grid_world(4, 3),
}
"""Models that need no file; each takes the module `instances`."""


def is_program(name: str) -> bool:
    """Whether a model is a program in PRISM's language."""
    from policytest.sources.tasks.model_checkers.prism_program import ENDINGS

    return Path(name).suffix.lower() in ENDINGS and not name.startswith("gym:")


def find_model(name: str, question: Question | None = None) -> Model:
    """The built-in instance of this name, the environment at a gym: address, or what the file holds."""
    from policytest.sources.tasks.files import CHECKED, LISTED, Model, load_model
    from policytest.sources.tasks.keys import changed, check_question

    said = vars(question) if question else {}
    given: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
    policy = given.pop("policy", None)
    if "rewards" in given and Path(name).suffix.lower() not in CHECKED:
        raise InputError(f"--rewards names a reward model of a {' or '.join(LISTED)} file, and {name} is not one")
    if "const" in given:
        if not is_program(name):
            raise InputError(f"--const is for programs in PRISM's language (.prism, .nm, .pm), and {name} is not one")
        given["constants"] = _constants(given.pop("const"))
    for key in ("initial", "terminal"):
        if key in given and (name.startswith("gym:") or name in BUILT_IN):
            raise InputError(f"--{key} is for task files, and {name} is not one")

    if name.startswith("gym:"):
        from policytest.sources.environments.gymnasium import from_address

        check_question(given)
        if given.pop("support", None):
            given["known_support"] = True
        found = from_address(name, policy, given.pop("discount", None), **given)
        return Model(found.task, found.kernel)
    if isinstance(given.get("horizon"), str):
        raise InputError(f"--horizon is {given['horizon']!r}, and {name} has none; pass a number of steps")
    if name in BUILT_IN:
        instance = BUILT_IN[name](importlib.import_module("policytest.mdp.instances"))
        return changed(Model(_with_policy(instance.task, policy), instance.kernel, instance.threshold), given)
    if not Path(name).suffix and not os.path.exists(name):
        others = f"pass a task file (.json, .toml, .npz, .drn, .tra), or one of {', '.join(BUILT_IN)}"
        raise InputError(f"there is no model {name!r}", did_you_mean(name, BUILT_IN, others))
    known_support = given.pop("support", None) is not None
    return load_model(name, **given, policy=policy, known_support=known_support)


def _constants(given: list[str]) -> dict[str, str]:
    """The values that ``--const N=4 --const p=0.5`` and ``--const N=4,p=0.5`` describe."""
    constants: dict[str, str] = {}
    for entry in (part.strip() for text in given for part in text.split(",")):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or not name or not value:
            raise InputError(f"--const is {entry!r}; it must look like N=4: the constant, then its value")
        if name in constants:
            raise InputError(f"--const gives {name} two values; keep one")
        constants[name] = value
    return constants


def about_model(name: str, agent: str | None) -> str:
    """What a report says of the model."""
    return f"Model: {name}" if agent is None else f"Environment: {name}. Agent: {agent}."


def find_task(
    name: str, episodes: EpisodeOptions, question: Question, of_tables: Mapping[str, object]
) -> tuple[Task | Episodes, Model | None]:
    """The task of a model, and the model; or the episodes that --assume episodes asks for, which have none.

    ``of_tables`` are options of Markov tasks, beside those of the question; whatever does not apply is refused.
    """
    said = as_typed(episodes)
    if said.pop("--assume") == "markov":
        for option, value in said.items():
            if value:
                raise InputError(f"{option} is for episodes; add --assume episodes")
        model = find_model(name, question)
        return model.task, model
    from policytest.sources.environments.episodes import AskedEpisodes, episodes_at

    for option, value in {"--policy": question.policy, **of_tables, **as_typed(question)}.items():
        if value and option not in ("--horizon", "--discount"):
            raise InputError(f"{option} is for a Markov task, and --assume episodes has no table; leave it out")
    about = {key: value for key, value in vars(episodes).items() if key != "assume"}
    return episodes_at(name, AskedEpisodes(**about, horizon=question.horizon, discount=question.discount), "--"), None


def find_agent(
    name: str, agent: str, episodes: EpisodeOptions, question: Question, of_tables: Mapping[str, object]
) -> Episodes:
    """The episodes of one of several agents in the same environment; or those at another address."""
    if agent.startswith(("gym:", "python:")):
        found, _ = find_task(agent, replace(episodes, agent=None), question, of_tables)
    else:
        found, _ = find_task(name, replace(episodes, agent=agent), question, of_tables)
    return found  # type: ignore[return-value]


def _with_policy(task: Task, policy: str | None) -> Task:
    """The task with another policy: "uniform", or a file."""
    from policytest.sources.tasks.policy import policy as policy_array
    from policytest.sources.tasks.policy_files import load_policy

    if policy is None:
        return task
    return replace(task, policy=policy_array(policy, task) if policy == "uniform" else load_policy(policy, task))


def the_bar(threshold: float | None, model: Model | None) -> float:
    """The threshold of the command line, otherwise the file's; a forgotten one must not deploy anything."""
    bar = threshold if threshold is not None or model is None else model.threshold
    if bar is None:
        raise InputError("no threshold: pass --threshold R, or add `threshold = R` to the task file")
    return bar


def the_budget(budget: int | None, model: Model | None) -> int | None:
    """The budget of the command line, otherwise the file's."""
    return budget if budget is not None or model is None else model.budget


def find_policy(file: str, model: Model) -> Task:
    """The task of the model with the policy that a file holds."""
    from policytest.sources.labels import places_in
    from policytest.sources.tasks.policy_files import read_policy

    return replace(model.task, policy=read_policy(Path(file), places_in(model.task), model.offer))


def is_policy(name: str) -> bool:
    """Whether a file holds a policy and nothing else: CSV, or JSON that is a list, such as a scheduler of Storm."""
    if name.startswith("gym:") or Path(name).suffix.lower() != ".json":
        return Path(name).suffix.lower() == ".csv" and not name.startswith("gym:")
    from policytest._base.files import opened

    try:
        with opened(name) as file:
            return file.read(100).lstrip().startswith(b"[")
    except OSError:  # said where it is read
        return False


def find_simulator(place: str | None, model: Model, name: str) -> SimulatorLike:
    """What ``--simulator`` names, or the model's own kernel."""
    from policytest.data.simulators import TabularSimulator
    from policytest.sources.imported import imported

    if place is not None:
        return _usable(place, imported("--simulator", place))
    if model.kernel is None:
        raise InputError(
            f"{name} has no kernel to sample from; add the key kernel to it, or pass --simulator package.module:name"
        )
    return TabularSimulator(model.kernel)


def _usable(place: str, found: object) -> SimulatorLike:
    """A simulator: an object with `draw`, a function like `draw`, or a class of such objects, which is called."""
    from policytest.data.simulators import takes_three
    from policytest.sources.imported import instance_of

    kind = "an object" if not isinstance(found, type) else "a class"
    made: SimulatorLike = instance_of("--simulator", place, found)
    draw = getattr(made, "draw", made)
    expected = "expected an object with a method draw(states, actions, rng), or such a function"
    if not callable(draw):
        raise InputError(f"--simulator: {place} is {kind} of type {type(made).__name__} without draw; {expected}")
    if not takes_three(draw):
        raise InputError(
            f"--simulator: {place} is {kind} whose call signature is {inspect.signature(draw)}; {expected} "
            "(a function that makes simulators is not called: name what it makes)"
        )
    return made


def find_method(name: str | None, settings: MethodOptions | None = None, kernel: Kernel | None = None) -> Any:
    """The method that the options describe; None, the default one, if they say nothing."""
    from policytest.methods import names

    of_ptst = [] if settings is None else [option for option, value in as_typed(settings).items() if value is not None]
    if not of_ptst or settings is None:
        return None if name is None else names.METHODS[name].load()()
    if name not in (None, "ptst"):
        raise InputError(f"{of_ptst[0]} belongs to --method ptst, not to {name}")
    if settings.boundary == "paper" and settings.prior is not None:
        raise InputError("--prior belongs to --boundary mixture; the paper's boundary has none")
    if settings.allocation == "optimal" and kernel is None:
        raise InputError("--allocation optimal needs a kernel", "add the key kernel to the task file, or use adaptive")
    chosen: dict[str, object] = {}
    if settings.boundary is not None or settings.prior is not None:
        chosen["boundary"] = names.make_boundary(settings.boundary or "mixture", settings.prior)
    if settings.allocation is not None:
        chosen["allocation"] = names.make_sampling_rule(settings.allocation, kernel)
    return names.METHODS["ptst"].load()(**chosen)


def method_of_pairs(name: str | None, settings: MethodOptions) -> Any:
    """The method for more than one policy; None, betting, where the options say nothing."""
    if settings.allocation == "optimal":
        raise InputError("--allocation optimal is for the value of one policy; use adaptive, uniform or forward")
    return find_method(name, settings)


def check_logged(words: Iterable[str | None], log: list[str] | None) -> bool:
    """Whether the policy of the log is asked for; that needs a log."""
    from policytest.questions.logged_policy import LOGGED

    if LOGGED not in words:
        return False
    if log is None:
        raise InputError(f"{LOGGED} is the policy of a log; name its files with --log")
    return True


def checked_for(model: Model, *others: Task) -> Model:
    """The model to read a log with, so that rewards and successors are checked wherever one of the policies goes.

    Without others it is every action.
    """
    import numpy as np

    task = model.task
    every = np.ones(task.policy.shape) if task.available is None else task.available.astype(float)
    mixed = sum(other.policy for other in others) + task.policy if others else every
    return replace(model, task=replace(task, policy=mixed / mixed.sum(axis=1, keepdims=True)))


def find_source(data: Data, model: Model, name: str, tell: Callable[[str], None]) -> SimulatorLike | Transitions:
    """What is sampled from; or the rows of a log in their order."""
    if data.log is None:
        if data.column or data.skip or data.by_episode:
            raise InputError("--column, --skip and --by-episode belong to --log, which names the files")
        return find_simulator(data.simulator, model, name)
    if data.simulator is not None:
        raise InputError("--simulator is for sampling; leave it out with --log")
    from policytest.sources.logged.diagnose import diagnosed_log

    log = read_log(data.log, model, data, tell)
    return diagnosed_log(model.task, log, data.by_episode).transitions(data.by_episode)


def read_log(files: list[str], model: Model, data: Data, tell: Callable[[str], None], add_to: Log | None = None) -> Log:
    """The log in these files, folders or patterns; how far the reading is, is told."""
    from policytest.cli.progress import Reading
    from policytest.sources.logged.read import logs

    return logs(
        files if len(files) > 1 else files[0],
        model.task,
        columns=named_columns(data.column),
        skip=tuple(data.skip or ()),
        add_to=add_to,
        progress=Reading(tell),
        bins=model.bins,
    )


def named_columns(given: list[str] | None) -> dict[str, str | None]:
    """The mapping that ``--column PART=NAME`` describes; an empty name leaves that column alone."""
    columns: dict[str, str | None] = {}
    for entry in given or ():
        part, equals, name = entry.partition("=")
        if not equals or not part:
            raise InputError(f"--column is {entry!r}; it must look like s=state: the part, then your name of it")
        if part in columns:
            raise InputError(f"--column names {part!r} twice; keep one")
        columns[part] = name or None
    return columns
