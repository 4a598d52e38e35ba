"""How the .drn files, values.json and questions.json were made: Storm 1.13 or later (stormpy 2.0.0 was used).

Every model is exported twice: NAME.drn in double precision, as Storm does by default, and NAME.exact.drn in fractions.
values.json has for every reward model ("" is the unnamed one) the least and the largest expected discounted reward over
all policies, at discount 0.95. Storm discounts only in double precision, and cannot select an unnamed reward model
beside others, so these are computed by its exact engine on a model in which every step ends the run with probability
1 - 0.95: the reward until then. Where Storm can discount it must agree.

questions.json has values of questions about labels (the first label of a model is the goal, the second one is to be
avoided) and about conditions on variables. Storm's exact engine answers them, for the policy that takes every action
equally often (Storm chooses so where the commands of a chain overlap) and for the scheduler that reaches the goal most
likely, which NAME.scheduler.json has.

The chain coin.tra, in Storm's explicit format with rewards on states and on transitions, was written by hand; its value
is the discounted one, in double precision.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import stormpy
import stormpy.io

HERE = Path(__file__).parent
CONDITIONS = {
    "die": ("s=3 | s=4", "s!=3 & s>2"),
    "gambler": ("m=4 | m=1", "!(m>=1)"),
    "network": ("s=c & s>0", "!(c=0)"),
    "repair": ("s>=2", "!(s=2) & s!=0"),
    "robot": ("at>1", "(at=1 | at=2) & !(at<1)"),
    "walk": ("(x=0 | x=4)", "x<=3 & x!=2"),
}
"""States to reach and states to avoid, which may overlap: here and in PRISM they are written alike."""
LABELS = ("reached", "avoided")
"""What Storm calls them."""
CLOCK = "  [{0}] on -> 0.95 : true + 0.05 : (on'=false);\n"


def ending(source: str) -> str:
    """The model with a clock that may stop at every step; its unnamed parts have names."""
    source = re.sub(r"^rewards *$", 'rewards "unnamed"', source, flags=re.MULTILINE).replace("[]", "[tau]")
    actions = sorted(set(re.findall(r"^ *\[(\w+)\].*->", source, flags=re.MULTILINE)))
    return (
        source
        + "module clock\n  on : bool init true;\n"
        + "".join(map(CLOCK.format, actions))
        + "endmodule\n"
        + 'label "over" = !on;\n'
    )


def labels_of(source: str) -> list[str]:
    """The labels of a program, in its order."""
    return re.findall(r'^label "(\w+)"', source, flags=re.MULTILINE)


def built(source: str, numbers: type):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.prism")
        path.write_text(source)
        program = stormpy.parse_prism_program(path)
    return program, stormpy.build_model[numbers](program, options=stormpy.BuilderOptions(build_full=True))


def checked(program, model, formula: str):
    return stormpy.model_checking(model, stormpy.parse_properties(formula, program)[0]).get_value(
        model.initial_states[0]
    )


def goals(goal: str, avoid: str) -> Iterator[tuple[dict, str]]:
    """Questions about labels, or conditions, as options of policytest, and as formulas."""
    asked = {"goal": [goal]}
    yield asked, f'P=? [F "{goal}"]'
    yield {**asked, "horizon": 1}, f'P=? [F<=1 "{goal}"]'
    yield {**asked, "horizon": 6}, f'P=? [F<=6 "{goal}"]'
    asked = {"goal": [goal], "avoid": [avoid]}
    yield asked, f'P=? [!"{avoid}" U "{goal}"]'
    yield {**asked, "horizon": 6}, f'P=? [!"{avoid}" U<=6 "{goal}"]'


def totals(name: str, goal: str, avoid: str) -> Iterator[tuple[dict, str]]:
    """Questions about the reward model of this name."""
    asked, of_name = {"rewards": "" if name == "unnamed" else name, "discount": 1}, f'R{{"{name}"}}=?'
    yield {**asked, "terminal": [goal]}, f'{of_name} [F "{goal}"]'
    yield {**asked, "terminal": [goal, avoid]}, f'{of_name} [F "{goal}" | "{avoid}"]'
    yield {**asked, "horizon": 7}, f"{of_name} [C<=7]"


def answered(program, chain, source: str, conditions: tuple[str, ...]) -> Iterator[dict]:
    """The questions that have a finite answer, with it."""
    labels, names = labels_of(source)[:2], list(chain.reward_models)
    of_conditions = goals(*conditions) if conditions else ()
    of_totals = (question for name in names for question in totals(name, *labels))
    for asked, formula in (*goals(*labels), *of_conditions, *of_totals):
        for label, condition in zip(LABELS, conditions, strict=False):
            formula = formula.replace(f'"{condition}"', f'"{label}"')
        value = checked(program, chain, formula)
        if str(value) != "inf":
            yield {**asked, "value": float(value)}


def questions_of(path: Path, folder: Path) -> dict[str, list[dict]]:
    """Questions about a program with Storm's answers, by policy; a scheduler that it makes is put into the folder."""
    source = re.sub(r"^rewards *$", 'rewards "unnamed"', path.read_text(), flags=re.MULTILINE)
    conditions = CONDITIONS.get(path.stem, ())
    source += "".join(f'label "{label}" = {said};\n' for label, said in zip(LABELS, conditions, strict=False))
    uniform = built(source.replace("mdp", "dtmc", 1), stormpy.Rational)
    found = {"uniform": list(answered(*uniform, source, conditions))}
    if not source.startswith("mdp"):
        return found
    program, model = built(source, stormpy.Rational)
    goal = labels_of(source)[0]
    formula = stormpy.parse_properties(f'Pmax=? [F "{goal}"]', program)[0]
    scheduler = stormpy.model_checking(model, formula, extract_scheduler=True).get_scheduler()
    name = path.with_suffix(".scheduler.json").name
    (folder / name).write_text(scheduler.to_json_str(model, skip_unique_choices=path.stem == "robot") + "\n")
    return {**found, name: list(answered(program, model.apply_scheduler(scheduler), source, conditions))}


def values_of(path: Path) -> dict[str, list[float]]:
    """The least and the largest discounted value of a program, by reward model."""
    source = path.read_text()
    double, exact = built(source, float), built(ending(source), stormpy.Rational)
    least, largest = ("min", "max") if source.startswith("mdp") else ("", "")
    values = {}
    for name in re.findall(r'^rewards *(?:"(\w+)")? *$', source, flags=re.MULTILINE):
        of_name = f'R{{"{name or "unnamed"}"}}'
        ends = [float(checked(*exact, f'{of_name}{end}=? [F "over"]')) for end in (least, largest)]
        values[name] = ends
        if name:
            found = [checked(*double, f"{of_name}{end}=? [Cdiscount=0.95]") for end in (least, largest)]
            assert all(abs(a - b) < 1e-5 * max(1.0, b) for a, b in zip(found, ends, strict=True)), (path, name)
    return values


def main() -> None:
    """Write all files."""
    values, questions = {}, {}
    for path in sorted(HERE.glob("*.prism")):
        for numbers, ending_of_name in ((float, ".drn"), (stormpy.Rational, ".exact.drn")):
            _, model = built(path.read_text(), numbers)
            stormpy.io.export_to_drn(model, path.with_suffix(ending_of_name))
        values[path.stem], questions[path.stem] = values_of(path), questions_of(path, HERE)
    lines = re.sub(r"\n {4,}|\n {3}(?=[\]}])", " ", json.dumps(questions, indent=1))
    (HERE / "questions.json").write_text(lines + "\n")
    files = {"state_rewards": HERE / "coin.state.rew", "transition_rewards": HERE / "coin.trans.rew"}
    coin = stormpy.build_model_from_explicit(HERE / "coin.tra", HERE / "coin.lab", **files)
    value = stormpy.model_checking(coin, stormpy.parse_properties("R=? [Cdiscount=0.95]")[0]).get_value(0)
    values["coin"] = {"": [value] * 2}
    (HERE / "values.json").write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
