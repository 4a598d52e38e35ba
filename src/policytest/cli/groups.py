"""Options, each declared with `option`: as the default of a command's argument, or as a field of a group.

A group is a dataclass of options that several commands share, and that ``--help`` shows together. A command takes it as
one argument. `flat` makes its fields options of the command, all of them or those that `Only` names, under the name of
the dataclass; `Grouped` prints them so.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import Field, field, fields, is_dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class Grouped(TyperCommand):
    """A command whose ``--help`` shows each group of options under its heading."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments first; options that belong to no group last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            heading = "Arguments" if one.param_type_name == "argument" else "Options"
            if (record := one.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(one, "rich_help_panel", None) or heading, []).append(record)
        sections["Options"] = sections.pop("Options")  # where --help is
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class Only:
    """Beside a group in ``Annotated``: the command has only these of its options; the others keep their defaults."""

    def __init__(self, *names: str) -> None:
        self.names = names


REQUIRED = inspect.Parameter.empty
"""The default of an option that must be given."""


def option(
    help: str, metavar: str | None = None, *, default: object = None, under: str | None = None, **settings: object
) -> Any:
    """An option; ``settings`` are those of `typer.Option`. False by default makes it a flag without ``--no-...``.

    ``under`` is the heading of an option that one command has; that of a field is the name of its group.
    """
    return field(default=default, metadata={"help": help, "metavar": metavar, "rich_help_panel": under, **settings})


def as_typed(group: object) -> dict[str, object]:
    """What the options of a group are called on the command line, and their values."""
    return {dashed(name): value for name, value in vars(group).items()}


def dashed(name: str) -> str:
    """An argument as it is typed.

    >>> dashed("by_episode")
    '--by-episode'
    """
    return f"--{name.replace('_', '-')}"


def flat(command: Callable[..., int], **flags: object) -> Callable[..., int]:
    """The command with one argument for each option, which is what Typer reads; it is not told of ``flags``."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[Callable[..., object], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        group, *extras = typing.get_args(hints[name]) or (hints[name],)
        if is_dataclass(group):
            options = list(_options(group, *extras))  # type: ignore[arg-type]
            groups[name] = group, [one.name for one in options]  # type: ignore[assignment]
            parameters += options
        elif isinstance(parameter.default, Field):
            parameters.append(_option(name, hints[name], parameter.default))
        else:
            parameters.append(_keyword(name, hints[name], parameter.default))

    parameters += [_keyword(name, annotation, False) for name, annotation in flags.items()]

    @functools.wraps(command)
    def run(**options: object) -> int:
        own = {name: value for name, value in options.items() if name in hints}
        for name, (group, names) in groups.items():
            own[name] = group(**{one: options[one] for one in names})
        return command(**own)

    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _options(group: type, only: Only | None = None) -> Iterator[inspect.Parameter]:
    """The fields of a group as arguments, each with the name of the group as its heading unless it has its own."""
    hints = typing.get_type_hints(group)
    names = set(hints if only is None else only.names)
    if names - hints.keys():
        raise ValueError(f"{group.__name__} has no {', '.join(sorted(names - hints.keys()))}")
    for one in fields(group):
        if one.name in names:
            heading = one.metadata["rich_help_panel"] or group.__name__
            yield _option(one.name, hints[one.name], one, rich_help_panel=heading)


def _option(name: str, kind: object, one: Field[object], **settings: object) -> inspect.Parameter:
    """A declared option as an argument."""
    told = {**one.metadata, **settings}
    names = told.pop("names", (dashed(name),) if one.default is False else ())
    if len(typing.get_args(kind)) > 2:
        kind = Any  # Typer knows no unions; the parser says what it is
    return _keyword(name, Annotated[kind, typer.Option(*names, **told)], one.default)


def _keyword(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
