"""Groups of options: each command has what it had before there were groups, and ``--help`` shows them together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from policytest.cli import COMMANDS, app, groups, main
from policytest.cli.groups import Grouped, Only, as_typed, flat, option

COMMAND = typer.main.get_command(app)
HEADINGS = {
    "decide": ["Question", "Method", "Data", "Sampling", "Episodes", "Output"],
    "assess": ["Question", "Method", "Data", "Counts", "Episodes", "Trials", "Output"],
    "watch": ["Question", "Method", "Data", "Sampling", "Trials", "Output"],
    "evaluate": ["Question", "Method", "Data", "Sampling", "Episodes", "Output"],
    "compare": ["Question", "Method", "Data", "Sampling", "Episodes", "Trials", "Output"],
    "plan": ["Question", "Data", "Episodes", "Output"],
    "identify": ["Question", "Method", "Data", "Sampling", "Episodes", "Trials", "Output"],
    "study": ["Output"],
    "demo": ["Question"],
    "selftest": ["Output"],
}


def options(name):
    """The options of a command, but for --help."""
    params = [one for one in COMMAND.commands[name].params if one.param_type_name == "option"]
    return {next(word for word in one.opts if word.startswith("--")) for one in params}


@pytest.mark.parametrize("name", [command.__name__ for command in COMMANDS])
def test_help_shows_each_option_once_under_its_group(name, capsys):
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    headings = [found for found in re.findall(r"^(\w+):$", shown, re.MULTILINE) if found != "Arguments"]
    assert headings == [*HEADINGS.get(name, []), "Options"]
    listed = re.findall(r"^  (?:-h, )?(--[\w-]+)", shown, re.MULTILINE)
    assert sorted(listed) == sorted({*options(name), "--help"})
    assert re.findall(r"^  .*(--debug|--help)", shown.split("\nOptions:\n")[1], re.MULTILINE)[-2:] == [
        "--debug",
        "--help",
    ]


def test_commands_that_share_a_group_have_the_same_options_of_it():
    asked = {"--policy", "--discount", "--rewards", "--initial", "--horizon", "--goal", "--avoid", "--terminal"}
    for name, headings in HEADINGS.items():
        assert (asked <= options(name)) == ("Question" in headings and name != "demo")
        assert ({"--json", "--quiet", "--html"} <= options(name)) == ("Output" in headings)
    assert "--checkpoint" in options("compare")
    assert "--checkpoint" not in options("evaluate")


@dataclass(frozen=True)
class Colours:
    """A group for these tests."""

    front: str = option("The colour of letters.", default="black")
    back_ground: int | str | None = option("The colour behind.", "COLOUR", parser=lambda text: text.upper())
    bold: bool = option("Thick letters.", default=False)
    tags: list[str] | None = option("Words; may be repeated.")


def called(command, words):
    """What a command of these tests was called with."""
    found = []
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    made.command(cls=Grouped)(flat(command(found), debug=Annotated[bool, typer.Option("--debug")]))
    typer.main.get_command(made)(words, standalone_mode=False)
    return found


def test_a_group_arrives_as_one_argument():
    def command(found):
        def paint(what: str, *, colours: Colours) -> int:
            found.append((what, colours))
            return 0

        paint.__annotations__ = {"what": str, "colours": Colours, "return": int}
        return paint

    assert called(command, ["door"]) == [("door", Colours())]
    words = ["door", "--back-ground", "red", "--bold", "--tags", "a", "--tags", "b", "--debug"]
    assert called(command, words) == [("door", Colours(back_ground="RED", bold=True, tags=["a", "b"]))]
    assert as_typed(Colours(bold=True)) == {
        "--front": "black",
        "--back-ground": None,
        "--bold": True,
        "--tags": None,
    }
    with pytest.raises(Exception, match=r"No such option.*--no-bold"):
        called(command, ["door", "--no-bold"])


def test_a_command_may_have_some_options_of_a_group_only():
    def command(found):
        def paint(colours: Colours) -> int:
            found.append(colours)
            return 0

        paint.__annotations__ = {"colours": Annotated[Colours, Only("front")], "return": int}
        return paint

    assert called(command, ["--front", "blue"]) == [Colours(front="blue")]
    with pytest.raises(Exception, match=r"No such option.*--bold"):
        called(command, ["--bold"])


def test_a_name_that_is_not_in_the_group_is_noticed():
    with pytest.raises(ValueError, match="Colours has no fornt"):
        list(groups._options(Colours, Only("front", "fornt")))
