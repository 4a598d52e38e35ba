"""How the .drn and .scheduler.json files beside this script were made, with Storm (stormpy 2.0.0 was used).

    python benchmarks/models/export.py

`questions.json` has the question of each program in PRISM's language, as options of `policytest.sources.load_model`,
and the formula whose scheduler resolves its choices; where there is none all choices are equally likely. Models are
written in fractions, and schedulers by the numbers of states and choices. Storm's own value of each question is printed
and kept in `values.json`, which the tests compare with.
"""

from __future__ import annotations

import importlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CONSTANTS = re.compile(r"^const int (\w+); *(?://.*)?$", flags=re.MULTILINE)


def source_of(name: str, question: dict[str, Any]) -> str:
    """The program of a question, with its constants filled in."""
    constants = question.get("constants", {})
    stem = name.rpartition("_")[0] if constants else name
    text = (HERE / f"{stem}.pm").read_text(encoding="utf-8")
    return CONSTANTS.sub(lambda found: f"const int {found[1]} = {constants[found[1]]};", text)


def built(storm: Any, source: str) -> tuple[Any, Any]:
    """The program and its model, with exact numbers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pm")
        path.write_text(source, encoding="utf-8")
        program = storm.parse_prism_program(str(path))
    return program, storm.build_model[storm.Rational](program, options=storm.BuilderOptions(build_full=True))


def formula_of(question: dict[str, Any]) -> str:
    """The question as Storm asks it of a chain."""
    steps = f"<={question['horizon']}" if "horizon" in question else ""
    if "rewards" in question:
        return f'R{{"{question["rewards"]}"}}=? [C{steps}]'
    before = '!"avoid" U' if "avoid" in question else "F"
    return f'P=? [{before}{steps} "goal"]'


def choices_of(scheduler: Any, model: Any) -> list[dict[str, Any]]:
    """A scheduler as Storm writes it, by numbers alone."""
    first, found = model.transition_matrix.get_row_group_start, []
    for s in range(model.nr_states):
        choice = scheduler.get_choice(s).get_deterministic_choice()
        found.append({"s": s, "c": [{"index": first(s) + choice, "prob": 1}]})
    return found


def main() -> None:
    """Write all files."""
    storm, values = importlib.import_module("stormpy"), {}
    write = importlib.import_module("stormpy.io").export_to_drn
    questions = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))
    for name, question in questions.items():
        source = source_of(name, question)
        program, model = built(storm, source)
        write(model, str(HERE / f"{name}.drn"))
        if "scheduler" in question:
            asked = storm.parse_properties(question["scheduler"], program)[0]
            scheduler = storm.model_checking(model, asked, extract_scheduler=True).get_scheduler()
            lines = ",\n".join(json.dumps(entry) for entry in choices_of(scheduler, model))
            (HERE / f"{name}.scheduler.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
            chain = model.apply_scheduler(scheduler)
        else:  # of overlapping commands of a chain Storm takes each equally often
            program, chain = built(storm, re.sub(r"^mdp", "dtmc", source, flags=re.MULTILINE))
        asked = storm.parse_properties(formula_of(question), program)[0]
        values[name] = float(storm.model_checking(chain, asked).get_value(chain.initial_states[0]))
        print(f"{name:20} {model.nr_states:5} states {model.nr_choices:5} choices   {values[name]:.6g}")
    (HERE / "values.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
