"""Writes what the tutorial's commands and the README's example print today into these pages.

    python docs/make_transcripts.py

Only lines that are shown change; "..." stands for what is left out. A shown line is replaced by the printed line that
differs from it in numbers, names of places and spaces alone; what else has changed is for a person to edit.
`tests/test_docs.py` says whether pages and commands agree.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSOLE = re.compile(r"(?<=^```console\n)(?:\$ .*?)(?=^```$)", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"(?<=^```python\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
CHANGING = re.compile(r"\([^()]*\)|[\d.,]*\d(?:e-\d+)?")
QUOTED = re.compile(r"(answer(?:ed)? after )[\d,]+( (?:transitions )?of )[\d,]+(?<!,)")
LAST = r"\$ policytest assess shop/paid\.toml shop/log\.csv.*?\n  samples +([\d,]+)\n.*?\nData: ([\d,]+) transitions"


def pattern_of(line: str) -> str:
    """A line without its numbers, what is in brackets, and spaces."""
    return re.sub(r"\s", "", CHANGING.sub("", line))


def refreshed(shown: str, happened: str) -> str:
    """What a page shows of a command, with the numbers that it prints now."""
    printed, found = [line.rstrip() for line in happened.splitlines()], []
    for line in shown.splitlines():
        whole = line.removesuffix("...").rstrip()
        looked_for = pattern_of(whole)
        are_alike = str.startswith if whole != line else str.__eq__
        matches = [one for one in printed if are_alike(pattern_of(one), looked_for)]
        if not whole or not matches:
            found.append(line)
            continue
        del printed[: printed.index(matches[0]) + 1]
        found.append(matches[0] if whole == line else f"{beginning(matches[0], whole)} ...")
    return "".join(f"{line}\n" for line in found)


def beginning(line: str, like: str) -> str:
    """As much of a line as another one shows of it."""
    looked_for, many = pattern_of(like), len(CHANGING.findall(like))
    starts = (line[:end] for end in range(len(line), 0, -1))
    return next(
        part for part in starts if pattern_of(part) == looked_for and len(CHANGING.findall(part)) == many
    ).rstrip()


def output(command: list[str] | str, folder: str) -> str:
    """What a command prints."""
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=folder, env=environment, shell=isinstance(command, str), stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def transcript(block: str, folder: str) -> str:
    """A block of commands, each run in the folder, with what it prints."""
    found = ""
    for part in block.split("$ ")[1:]:
        line, _, shown = part.partition("\n")
        words = shlex.split(line)
        ours = words[0] == "policytest"
        happened = output([sys.executable, "-m", *words] if ours else line, folder)
        found += f"$ {line}\n{refreshed(shown, happened)}"
    return found


def example(code: str, folder: str) -> str:
    """A program, with what its calls of print print behind them."""
    printed = iter(output([sys.executable, "-c", code], folder).splitlines())
    return re.sub(r"^(print\(.*\)  # ).*$", lambda line: line.group(1) + next(printed), code, flags=re.MULTILINE)


def main() -> None:
    """Rewrite both pages, and the sentences that repeat the tutorial's answer."""
    tutorial, readme = ROOT / "docs" / "tutorial.md", ROOT / "README.md"
    with tempfile.TemporaryDirectory() as folder:
        text = tutorial.read_text(encoding="utf-8")
        text = CONSOLE.sub(lambda block: transcript(block.group(), folder), text)
        tutorial.write_text(text, encoding="utf-8")
        (row, rows), *_ = re.findall(LAST, text, re.DOTALL)
        for page in (tutorial, tutorial.with_name("faq.md"), tutorial.with_name("command-line.md")):
            text = page.read_text(encoding="utf-8")
            page.write_text(QUOTED.sub(rf"\g<1>{row}\g<2>{rows}", text), encoding="utf-8")
        text = readme.read_text(encoding="utf-8")
        readme.write_text(EXAMPLE.sub(lambda block: example(block.group(), folder), text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
