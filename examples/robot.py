"""A log as robots write it: 200 cells of a hall with walls, and 60,000 steps of one that went about at random.

Writes `task.toml` and `log.csv` into a folder (the first argument). The policy goes the shortest way to the dock; a
step slips to a side now and then, costs 0.5, and the dock pays 100. That a step leads to a neighbour at most is known
and declared (`support`), which saves data. Is the policy worth more than 30?

    policytest assess task.toml log.csv --column s=cell --column a=move --column s_next=next_cell \
        --column order=step --column reward=paid
"""

import csv
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

HALL = """\
....................
.####.####...##..##.
.#..............#...
.#.####.##.####.#.#.
....................
...##..###...##.....
....................
.##.####............
....................
....................
....................
...................."""
MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
FREE = {(r, c): None for r, line in enumerate(HALL.splitlines()) for c, sign in enumerate(line) if sign == "."}
CELLS = {at: f"r{at[0]}c{at[1]}" for at in FREE}
START, DOCK, SLIP = (0, 0), (9, 14), 0.1


def moved(at: tuple[int, int], move: str) -> tuple[int, int]:
    """Where a step leads, a wall or the border being no way."""
    to = (at[0] + MOVES[move][0], at[1] + MOVES[move][1])
    return to if to in CELLS else at


def task() -> str:
    """The shortest ways to the dock by breadth first, and the neighbours of each cell."""
    distance, front = {DOCK: 0}, [DOCK]
    for at in front:
        new = [to for move in MOVES for to in [moved(at, move)] if to not in distance]
        distance |= dict.fromkeys(new, distance[at] + 1)
        front += new
    policy = {CELLS[at]: min(MOVES, key=lambda move: distance[moved(at, move)]) for at in CELLS}
    near = {CELLS[at]: sorted({CELLS[at], *(CELLS[moved(at, move)] for move in MOVES)}) for at in CELLS if at != DOCK}
    lines = [f"states = {json.dumps([*CELLS.values()])}", f"actions = {json.dumps([*MOVES])}", "discount = 0.98"]
    lines += ["threshold = 30", f'initial = "{CELLS[START]}"', f'terminal = ["{CELLS[DOCK]}"]']
    lines += [f'rewards = [{{ r = -0.5 }}, {{ s_next = "{CELLS[DOCK]}", r = 100 }}]', "[policy]"]
    lines += [f'{cell} = "{move}"' for cell, move in policy.items()] + ["[support]"]
    return "\n".join(lines + [f"{cell} = {json.dumps(cells)}" for cell, cells in near.items()]) + "\n"


def write(folder: Path, steps: int = 60_000, seed: int = 0) -> None:
    """One run after another, each from the start to the dock."""
    rng, at, run, rows, names = np.random.default_rng(seed), START, 0, [], list(MOVES)
    for step in range(steps):
        move = int(rng.integers(4))
        slip = rng.choice([0, 1, 3], p=[1 - 2 * SLIP, SLIP, SLIP])
        to = moved(at, names[(move + slip) % 4])
        rows.append((run, step, CELLS[at], names[move], CELLS[to], 100 if to == DOCK else -0.5))
        at, run = (START, run + 1) if to == DOCK else (to, run)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.toml").write_text(task())
    with (folder / "log.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("run", "step", "cell", "move", "next_cell", "paid"), *rows])
    print(f"{len(rows)} rows in {folder}, {len(CELLS)} cells")


write(Path(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp()))
