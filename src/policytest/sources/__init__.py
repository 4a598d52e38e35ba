"""Where tasks and data come from. Formats with a dependency of their own import it only when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from policytest.sources.tasks.files import Model, load_model, save_model
from policytest.sources.tasks.policy_files import load_policy, save_policy

if TYPE_CHECKING:
    from policytest.sources import stable_baselines3 as stable_baselines3
    from policytest.sources.environments.bins import Bins, discretise
    from policytest.sources.environments.gymnasium import Environment, gymnasium
    from policytest.sources.environments.minari import Dataset, minari
    from policytest.sources.logged.diagnose import diagnose_log
    from policytest.sources.logged.episodes import logged_episodes
    from policytest.sources.logged.log import Log
    from policytest.sources.logged.read import logs
    from policytest.sources.logged.trials import Trials, trials
    from policytest.sources.tasks.policy import policy
    from policytest.sources.tasks.start import start_from_log

# Imported on first use.
_HOME = {
    "Bins": "environments.bins",
    "Dataset": "environments.minari",
    "Environment": "environments.gymnasium",
    "Log": "logged.log",
    "diagnose_log": "logged.diagnose",
    "discretise": "environments.bins",
    "gymnasium": "environments.gymnasium",
    "logged_episodes": "logged.episodes",
    "logs": "logged.read",
    "Trials": "logged.trials",
    "trials": "logged.trials",
    "minari": "environments.minari",
    "policy": "tasks.policy",
    "start_from_log": "tasks.start",
}

# Modules with a library of their own.
_MODULES = ("stable_baselines3",)

__all__ = [
    "Bins",
    "Dataset",
    "Environment",
    "Log",
    "Model",
    "Trials",
    "diagnose_log",
    "discretise",
    "gymnasium",
    "load_model",
    "load_policy",
    "logged_episodes",
    "logs",
    "minari",
    "policy",
    "save_model",
    "save_policy",
    "stable_baselines3",
    "start_from_log",
    "trials",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"policytest.sources.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'policytest.sources' has no attribute {name!r}")
    return getattr(importlib.import_module(f"policytest.sources.{_HOME[name]}"), name)
