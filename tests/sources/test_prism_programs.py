"""Programs in PRISM's language: constants without a value, and what Storm refuses.

Storm is optional. The stand-in does what stormpy 2.0 was seen to do with one program: it knows its constants, and
raises an error of its own class (which is not a RuntimeError) where one has no value. Where stormpy is installed
(``make test-storm``) the same tests are run with it.
"""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import policytest as pt
from paths import ROOT
from policytest._base.errors import InputError
from policytest.cli import main
from policytest.sources import load_model
from policytest.study.spec import sweep
from source_builders import assert_model_refused

PROGRAM = """dtmc
const int N;
const double p;
const bool fair;
const int M = 2*N;
module gambler
  x : [0..M] init N;
  [] x>0 & x<M & fair -> 0.5 : (x'=x+1) + 0.5 : (x'=x-1);
  [] x>0 & x<M & !fair -> p : (x'=x+1) + 1-p : (x'=x-1);
  [] x=0 | x=M -> true;
endmodule
label "rich" = x=M;
label "broke" = x=0;
label "twice" = x=2*M;
"""
CONSTANTS = {"N": 1, "p": 0.25, "fair": False}
ASK = ["--goal", "rich", "--avoid", "broke", "--support", "kernel", "--threshold", "0.5", "--quiet"]
GIVEN = ["--const", "N=1,p=1/4", "--const", "fair=false"]


class StandIn(ModuleType):
    """What `prism_program` uses of stormpy, for `PROGRAM` alone."""

    class StormError(Exception):
        """Not a RuntimeError."""

    class Constant(SimpleNamespace):
        """name, type, defined."""

    Rational = Fraction

    def parse_prism_program(self, path):
        kinds = re.findall(r"const (\w+) (\w+)( =)?", Path(path).read_text())
        types = {
            kind: SimpleNamespace(is_integer=kind == "int", is_boolean=kind == "bool", is_rational=kind == "double")
            for kind in ("int", "bool", "double")
        }
        constants = [self.Constant(name=name, type=types[kind], defined=bool(value)) for kind, name, value in kinds]
        return SimpleNamespace(
            constants=constants,
            get_undefined_constants=lambda: [one for one in constants if not one.defined],
            values={},
        )

    def instantiate_constants(self, program, values):
        if not 0 <= values["p"] <= 1:
            raise RuntimeError("IllegalArgumentException: Substitution yielding negative probabilities in 'p'.")
        labels = [SimpleNamespace(name=name) for name in ("rich", "broke", "twice")]
        return SimpleNamespace(values=values, get_undefined_constants=list, labels=labels), []

    @property
    def build_model(self):
        def build(program, options):
            if program.get_undefined_constants():
                raise self.StormError("Model still contains undefined constants which influence the graph structure.")
            return program.values

        return {Fraction: build}

    def BuilderOptions(self, build_full):  # noqa: N802
        return build_full

    def export_to_drn(self, values, path):
        n, up = values["N"], Fraction(1, 2) if values["fair"] else values["p"]
        lines = ["@type: DTMC", "@parameters", "", "@reward_models", "", "@nr_states", str(2 * n + 1)]
        lines += ["@nr_choices", str(2 * n + 1), "@model"]
        for x in range(2 * n + 1):
            marks = ["init"] * (x == n) + ["rich"] * (x == 2 * n) + ["broke"] * (x == 0)
            lines += [f"state {x} {' '.join(marks)}", f"//[x={x}]", "\taction 0"]
            over = x in (0, 2 * n)
            lines += [f"\t\t{x} : 1"] if over else [f"\t\t{x - 1} : {1 - up}", f"\t\t{x + 1} : {up}"]
        Path(path).write_text("\n".join([*lines, ""]))


def stand_in():
    storm = StandIn("stormpy")
    storm.developer = SimpleNamespace(
        get_log_level=int, set_log_level=lambda level: None, LogLevel=SimpleNamespace(OFF=0)
    )
    parts = {"developer": storm.developer, "io": storm, "exceptions": storm}
    return {"stormpy": storm, **{f"stormpy.{name}": part for name, part in parts.items()}}


@pytest.fixture(params=["stand-in", "stormpy"])
def program(request, monkeypatch, tmp_path):
    """The path of the program, where Storm can read it."""
    if request.param == "stormpy":
        pytest.importorskip("stormpy", reason="stormpy is optional; make test-storm installs it")
    else:
        for name, module in stand_in().items():
            monkeypatch.setitem(sys.modules, name, module)
    path = tmp_path / "gambler.pm"
    path.write_text(PROGRAM)
    return path


def reached(path, **settings):
    model = load_model(path, goal=["rich"], avoid=["broke"], **settings)
    return pt.value(model.task, model.kernel)


def ruin(n, up):
    """The probability of 2n before 0 from n."""
    return 0.5 if up == 0.5 else 1 / (1 + ((1 - up) / up) ** n)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (CONSTANTS, ruin(1, 0.25)),
        ({"N": 3, "p": "1/3", "fair": "false"}, ruin(3, 1 / 3)),
        ({"N": 2.0, "p": 1, "fair": False}, 1.0),
        ({"N": "2", "p": "1e-3", "fair": True}, 0.5),
    ],
    ids=str,
)
def test_the_value_is_that_of_the_program_with_these_constants(program, values, expected):
    assert reached(program, constants=values) == pytest.approx(expected, rel=1e-12)


def test_constants_without_a_value_are_named_with_a_command_that_works(program, capsys):
    """Exit code 2; the options that the message names, added to the command, answer the question."""
    for given in ([], ["--const", "N=1"], ["--const", "fair=true", "--const", "N=1"]):
        assert main(["decide", str(program), *ASK, *given, "--max-samples", "10"]) == 2
        said = capsys.readouterr().err
        assert "without a value" in said
        assert all(
            (f"{name} ({kind})" in said) == (name not in str(given))
            for name, kind in (("N", "int"), ("p", "double"), ("fair", "bool"))
        )
        example = said.split("for example ")[1].split()
        assert main(["decide", str(program), *ASK, *example, "--max-samples", "10"]) == 3
        capsys.readouterr()
    assert_model_refused(
        program,
        "the program has 1 constant without a value, p (double)",
        "constants={'N': 1, 'p': 0.5, 'fair': True}",
        constants={"N": 1, "fair": True},
        goal=["rich"],
    )


WRONG = {
    "unknown": ({"Q": 1}, "the program has no constant 'Q'"),
    "misspelt": ({"fairr": True}, "did you mean 'fair'?"),
    "a variable": ({"x": 1}, "the program has no constant 'x'"),
    "defined": ({"M": 4}, "the program gives the constant M a value itself; leave M out"),
    "half": ({"N": 1.5}, "the constant N is 1.5; it must be a whole number"),
    "large": ({"N": 2**31}, "the constant N is 2147483648; it must be a whole number, at most 2,147,483,647"),
    "truth for a number": ({"N": True}, "the constant N: 'true' is not a number"),
    "text": ({"p": "much"}, "the constant p: 'much' is not a number"),
    "nan": ({"p": float("nan")}, "the constant p: 'nan' is not a number"),
    "by zero": ({"p": "1/0"}, "1/0 divides by 0"),
    "number for a truth": ({"fair": 1}, "the constant fair is 1; it must be true or false"),
    "nothing": ({"fair": None}, "the constant fair is None; it must be true or false"),
    "no probability": ({"p": 1.5}, "Storm cannot build this program", "or the values of its constants"),
}


@pytest.mark.parametrize("name", WRONG)
def test_constants_that_are_refused(program, name):
    given, *words = WRONG[name]
    assert_model_refused(program, *words, constants=CONSTANTS | given, goal=["rich"])


@pytest.mark.parametrize("given", ["N", "=3", "N=", "N=1,,p=0.5", "N=1,N=2"])
def test_options_that_are_refused(program, given, capsys):
    assert main(["decide", str(program), *ASK, "--const", given]) == 2
    assert "--const" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["json", "drn"])
def test_constants_are_for_programs(suffix, capsys):
    path = ROOT / "tests" / "sources" / "storm" / f"values.{suffix}"
    assert_model_refused(
        path,
        "constants are for programs in PRISM's language (.prism, .nm, .pm); leave them out here",
        constants={"N": 1},
    )
    assert main(["decide", "paper-2", "--const", "N=1", "--threshold", "0"]) == 2
    assert "--const is for programs in PRISM's language (.prism, .nm, .pm), and paper-2 is not one" in (
        capsys.readouterr().err
    )


def test_every_command_that_reads_a_model_takes_constants(program, tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_text("episode,order,s,a,s_next\n" + "".join(f"{k},{k},x=1,0,x=0\n" for k in range(3)))
    only = tmp_path / "only.csv"
    only.write_text("state,action\nx=0,0\nx=1,0\nx=2,0\n")
    asked = [*ASK[:6], *GIVEN, "--quiet"]
    for command in (
        ["decide", str(program), "--threshold", "0.5"],
        ["plan", str(program), "--threshold", "0.5", "--guess", str(program)],
        ["assess", str(program), str(log), "--threshold", "0.5"],
        ["watch", str(program), str(log), "--threshold", "0.5", "--no-follow"],
        ["evaluate", str(program), "--epsilon", "0.3"],
        ["compare", str(program), str(program), "--margin", "-0.9"],
        ["identify", str(program), "--candidate", str(only)],
    ):
        assert main([*command, *asked]) in (0, 1, 3), command
    assert not [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]


def test_constants_in_a_side_file_and_in_a_study(program):
    """Those that are passed count before those of the side file, one by one."""
    side = program.with_name("gambler.task.toml")
    side.write_text('goal = ["rich"]\navoid = ["broke"]\n[constants]\nN = 2\np = "1/4"\nfair = false\n')
    assert reached(program) == pytest.approx(ruin(2, 0.25), rel=1e-12)
    assert reached(program, constants={"N": 3}) == pytest.approx(ruin(3, 0.25), rel=1e-12)
    study = {"methods": ["TDBetting"], "deltas": [0.1], "seeds": 1, "threshold": 0.5}
    entry = {"file": program.name, "constants": {"fair": "true"}}
    found = sweep({**study, "instances": {"ruin": entry}}, folder=program.parent)
    assert found.trials[0].problem.value == pytest.approx(0.5)
    with pytest.raises(InputError, match="constants are for a file with a program"):
        sweep({**study, "instances": {"ruin": {"paper": 2, "constants": {"N": 1}}}})
    side.write_text("constants = [1]\n")
    assert_model_refused(program, "constants is [1]; it is a table of values such as {N = 4}", goal=["rich"])


def test_a_label_that_no_state_has(program):
    """Nothing to avoid; but nowhere to begin, and nothing to reach."""
    values = {"constants": CONSTANTS, "initial": "x=1"}
    model = load_model(program, goal=["rich"], avoid=["twice"], **values)
    assert pt.value(model.task, model.kernel) == pytest.approx(ruin(1, 0.25))
    assert_model_refused(program, "goal: no state has the label 'twice'", goal=["twice"], **values)
    assert_model_refused(
        program, "initial: no state has the label 'twice'", goal=["rich"], constants=CONSTANTS, initial="twice"
    )


def test_without_storm_the_message_says_what_to_run(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "stormpy", None)
    path = tmp_path / "gambler.pm"
    path.write_text(PROGRAM)
    assert_model_refused(
        path, "storm --prism gambler.pm --constants N=1,p=0.25 --buildfull", constants={"N": 1, "p": 0.25}
    )
