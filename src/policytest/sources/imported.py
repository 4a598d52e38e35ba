"""Python objects by their place, package.module:name, for the command line and for studies."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from policytest._base.errors import InputError
from policytest._base.text import did_you_mean


def imported(argument: str, place: str) -> Any:
    """The object at package.module:name, with the current folder as the last of the places to import from.

    ``argument`` is where the place was given, for errors.
    """
    module, _, name = place.partition(":")
    if not module or not name:
        raise InputError(f"{argument} is {place!r}; it must look like package.module:name")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: no file there may stand for a module that is installed
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{argument}: importing {module} failed with {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            remedy = did_you_mean(part, dir(found), "check the name after the colon")
            raise InputError(f"{argument}: {module} has no {name!r}", remedy)
        found = getattr(found, part)
    return found


def instance_of(argument: str, place: str, found: Any) -> Any:
    """The object; of a class, one that is made without arguments."""
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        raise InputError(
            f"{argument}: {place} is a class, and calling it without arguments failed with "
            f"{type(error).__name__}: {error}; name an object made from it instead"
        ) from error
