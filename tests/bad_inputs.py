"""A table of bad inputs for the command line: files, the command, and words that the message must have.

Each must end with exit code 2, one message that names the file or the option, no traceback, and every file as it was.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

MODEL = {
    "states": ["wet", "dry"],
    "actions": ["go", "stay"],
    "rewards": [[1.0, 0.0], [0.5, -1.0]],
    "policy": [[0.5, 0.5], [0.25, 0.75]],
    "initial": [0.25, 0.75],
    "discount": 0.5,
    "threshold": 0.1,
    "support": [[[1, 1], [1, 0]], [[1, 1], [1, 1]]],
    "kernel": [[[0.1, 0.9], [1.0, 0.0]], [[0.5, 0.5], [0.2, 0.8]]],
}
LOG = "s,a,s_next\nwet,go,dry\ndry,stay,wet\ndry,go,dry\nwet,stay,wet\n"
KEPT = "this file was here before\n"


def picture(folder: Path) -> dict[str, object]:
    """Every name under the folder and what is there, byte for byte."""
    return {
        str(path.relative_to(folder)): (
            os.readlink(path) if path.is_symlink() else "folder" if path.is_dir() else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_dir() or os.access(path, os.R_OK)
    }


class Folder:
    """Stands for a folder, instead of the content of a file."""


class Link(str):
    """Stands for a link to another name."""


class Secret(str):
    """The content of a file that may not be read."""


class Bad(NamedTuple):
    """One bad input."""

    argv: list[str]
    words: list[str]
    files: dict[str, object] = {}  # noqa: RUF012


def model(**changes: object) -> str:
    """The good model with some keys changed; None removes one."""
    return json.dumps({key: value for key, value in (MODEL | changes).items() if value is not None})


def npz(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def lying_npz() -> bytes:
    """An archive whose header promises 8 TB."""
    header, buffer = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("policy.npy", header.getvalue() + bytes(8))
    return buffer.getvalue()


def arrays(**changes: object) -> dict[str, object]:
    tables = {key: np.array(MODEL[key], dtype=float) for key in ("rewards", "policy", "initial", "discount", "kernel")}
    return {**tables, **changes}


def decide(name: str, content: object, *words: str, options: tuple[str, ...] = (), **files: object) -> Bad:
    """``policytest decide`` on a bad model."""
    argv = ["decide", name, "--quiet", "--max-samples", "1", *options]
    return Bad(argv, [name, *words], {name: content, **{k.replace("_", "."): v for k, v in files.items()}})


def option(*argv: str, words: tuple[str, ...] = ()) -> Bad:
    """A good model, and a bad option."""
    return Bad([*argv], list(words), {"model.json": model(), "log.csv": LOG})


def assess(log: object, *words: str, name: str = "log.csv", options: tuple[str, ...] = ()) -> Bad:
    """``policytest assess`` of a bad log."""
    return Bad(["assess", "model.json", name, "--quiet", *options], list(words), {"model.json": model(), name: log})


DRN = "@type: MDP\n@reward_models\nr\n@nr_states\n1\n@model\nstate 0 [1] init\naction 0\n0 : 1\n"
GIVEN = ("--discount", "0.5", "--policy", "uniform")

CASES = {
    # ------------------------------------------------ models that cannot be read
    "no such model": decide("nowhere.json", Link("gone.json"), "cannot be read"),
    "no such name": option("decide", "papper-2", words=("papper-2", "paper-2")),
    "no model at all": option("decide", words=("model",)),
    "folder for a model": decide("model.json", Folder(), "cannot be read"),
    "links in a circle": decide("model.json", Link("model.json"), "cannot be read"),
    "model that may not be read": decide("model.json", Secret(model()), "cannot be read"),
    "empty model": decide("model.json", "", "line 1"),
    "model cut short": decide("model.json", model()[:100], "line 1", "not valid JSON"),
    "model in another encoding": decide("model.json", model(states=["näß", "b"]).encode().replace(b"\\u00e4", b"\xe4")),
    "model that is binary": decide("model.json", bytes(range(256)), "UTF-8"),
    "model of another format": decide("model.yaml", model(), "'.yaml'", ".json"),
    "model without an ending": decide("model", model(), "no suffix"),
    "CSV for a model": decide("log.csv", LOG, "'.csv'"),
    "nested model": decide("model.json", "[" * 50_000, "nested"),
    "list for a model": decide("model.json", "[1, 2]", "list"),
    "key twice": decide("model.json", '{"discount": 0.5, "discount": 0.9}', "'discount' is repeated"),
    "TOML cut short": decide("model.toml", "states = [\n", "not valid TOML"),
    "NPZ that is none": decide("model.npz", "hello", "not an NPZ file"),
    "NPZ cut short": decide("model.npz", npz(**arrays())[:-30], "cannot be read"),
    "NPZ with pickles": decide("model.npz", npz(**arrays(rewards=np.array([{}], dtype=object))), "pickled"),
    "NPZ that promises too much": decide("model.npz", lying_npz(), "policy"),
    "DRN cut short": decide("model.drn", DRN.replace("0 : 1\n", ""), "no transitions", options=GIVEN),
    "DRN with parameters": decide("model.drn", DRN.replace("@reward", "@parameters\np\n@reward"), "p", options=GIVEN),
    "DRN without a discount": decide("model.drn", DRN, "discount", "--discount"),
    "PRISM file cut short": decide("model.tra", "2 2 2\n0 0 1 1\n", "cut short", options=GIVEN),
    # ------------------------------------------------ models that make no sense
    "key missing": decide("model.json", model(policy=None), "missing: policy"),
    "key misspelt": decide("model.json", model(rewards=None, reward=[[1]]), "did you mean 'rewards'?"),
    "discount 1": decide("model.json", model(discount=1), "discount is 1"),
    "discount in words": decide("model.json", model(discount="high"), "discount"),
    "NaN reward": decide("model.json", model().replace("-1.0", "NaN"), "rewards[1, 1] is nan"),
    "infinite reward": decide("model.json", model().replace("-1.0", "1e999"), "rewards[1, 1] is inf"),
    "huge number": decide("model.json", model(rewards=[[10**400, 0], [0, 0]]), "out of range"),
    "number of many digits": decide("model.json", model().replace("-1.0", "1" * 5000), "number cannot be read"),
    "text among numbers": decide("model.json", model(rewards=[["1", 0], [0, 0]]), "rewards", "text"),
    "rows of different lengths": decide("model.json", model(rewards=[[1, 0], [0]]), "rewards"),
    "negative probability": decide("model.json", model(policy=[[1.5, -0.5], [1, 0]]), "policy[0, 1] is -0.5"),
    "row that does not sum to 1": decide("model.json", model(policy=[[0.5, 0.4], [1, 0]]), "policy[0] sums to 0.9"),
    "kernel row": decide("model.json", model(kernel=[[[0.1, 0.8], [1, 0]], [[1, 0], [1, 0]]]), "kernel", "sums to 0.9"),
    "kernel against the support": decide("model.json", model(kernel=[[[1, 0], [0.5, 0.5]]] * 2), "support"),
    "no kernel": decide("model.json", model(kernel=None), "no kernel", "--simulator"),
    "names that repeat": decide("model.json", model(states=["a", "a"]), "states[1] repeats 'a'"),
    "unknown name": decide("model.json", model(policy={"wte": "go", "dry": "go"}), "'wte'", "'wet'"),
    "entry twice": decide("model.json", model(rewards=[{"s": "wet", "r": 1}] * 2), "rewards[1] is given twice"),
    "sparse parts": decide(
        "model.json", model(kernel={"data": [1], "indices": [9], "indptr": [0], "shape": [4, 2]}), "kernel"
    ),
    # ------------------------------------------------ policies
    "no such policy": decide("model.json", model(), "nowhere.csv", options=("--policy", "nowhere.csv")),
    "policy of another task": decide(
        "model.json",
        model(),
        "policy.csv",
        "'hot'",
        options=("--policy", "policy.csv"),
        policy_csv="state,action\nhot,go\n",
    ),
    "policy that is a folder": decide(
        "model.json", model(), "policy.csv", options=("--policy", "policy.csv"), policy_csv=Folder()
    ),
    "policy of another format": decide(
        "model.json", model(), "policy.txt", options=("--policy", "policy.txt"), policy_txt="go"
    ),
    # ------------------------------------------------ options
    "unknown command": option("decode", "model.json", words=("decode",)),
    "unknown option": option("decide", "model.json", "--detla", "0.1", words=("--detla",)),
    "delta 0": option("decide", "model.json", "--quiet", "--delta", "0", words=("delta is 0",)),
    "delta 1": option("decide", "model.json", "--quiet", "--delta", "1", words=("delta is 1",)),
    "delta nan": option("decide", "model.json", "--quiet", "--delta", "nan", words=("delta is nan",)),
    "delta in words": option("decide", "model.json", "--delta", "small", words=("--delta",)),
    "threshold nan": option("decide", "model.json", "--quiet", "--threshold", "nan", words=("threshold is nan",)),
    "discount 1 as an option": option("decide", "model.json", "--quiet", "--discount", "1", words=("discount is 1",)),
    "negative samples": option(
        "decide", "model.json", "--quiet", "--max-samples", "-5", words=("--max-samples is -5",)
    ),
    "half a sample": option("decide", "model.json", "--max-samples", "1.5", words=("--max-samples", "1.5")),
    "endless samples": option("decide", "model.json", "--max-samples", "inf", words=("--max-samples", "inf")),
    "samples that are no number": option(
        "decide", "model.json", "--max-samples", "nan", words=("--max-samples", "nan")
    ),
    **{
        f"samples that {command[0]} cannot count": option(
            *command, "--quiet", "--max-samples", count, words=("--max-samples is",)
        )
        for command, count in (
            (("decide", "model.json", "--threshold", "0.1"), str(2**63)),
            (("evaluate", "model.json", "--epsilon", "1"), str(2**62 + 1)),
            (("compare", "model.json", "model.json"), str(2**64)),
            (("identify", "model.json"), "1e300"),
            (("watch", "model.json", "log.csv", "--threshold", "0.1"), "1e20"),
        )
    },
    "discount too near 1": option(
        *("decide", "model.json", "--quiet", "--threshold", "0.1", "--discount", "0.9999999999999999"),
        words=("no value is returned", "discount"),
    ),
    "runs beyond counting": option("selftest", "--runs", "1" + "0" * 30, words=("--runs",)),
    "policy of very many columns": decide(
        "model.json",
        model(),
        "policy.csv",
        "expected state, action",
        options=("--policy", "policy.csv"),
        policy_csv=",".join(map(str, range(100_000))),
    ),
    "option of very many characters": option("decide", "model.json", "--" + "x" * 100_000, words=("xxx",)),
    "more names than fit into a table": decide(
        "model.json",
        model(
            states=[f"s{i}" for i in range(10_000)],
            actions=[f"a{i}" for i in range(10_000)],
            policy={"s0": "a0"},
            rewards={"s0": 1},
            initial={"s0": 1},
            support=None,
            kernel=None,
        ),
        "10,000 states with 10,000 actions",
    ),
    "name of very many characters": decide("model.json", model(policy={"wte" * 10_000: "go"}), "wte"),
    "row that sums to almost 1": decide("model.json", model(policy=[[0.5, 0.5000001], [0.25, 0.75]]), "1.0000001"),
    "switch of an environment": option(
        "decide", "gym:FrozenLake-v1?is_slippery=maybe&discount=0.9&policy=uniform", words=("is_slippery is 'maybe'",)
    ),
    "page over the model": option("decide", "model.json", "--html", "model.json", words=("is read by this command",)),
    "page over the log": assess(LOG, "is read by this command", options=("--html", "log.csv")),
    "seed below 0": Bad(["init", "new", "--seed", "-1"], ["seed is -1"]),
    "no such method": option("decide", "model.json", "--method", "guess", words=("--method", "guess")),
    "epsilon missing": option("evaluate", "model.json", words=("--epsilon",)),
    "epsilon negative": option("evaluate", "model.json", "--quiet", "--epsilon", "-1", words=("epsilon is -1",)),
    "simulator without a name": option(
        "decide", "model.json", "--quiet", "--simulator", "module", words=("--simulator",)
    ),
    "simulator that is not there": option("decide", "model.json", "--simulator", "no.such:thing", words=("no.such",)),
    "page in no folder": option("decide", "model.json", "--html", "nowhere/page.html", words=("nowhere/page.html",)),
    "page that is a folder": Bad(
        ["decide", "model.json", "--html", "page"], ["page is a folder"], {"model.json": model(), "page": Folder()}
    ),
    "checkpoint of something else": Bad(
        ["decide", "model.json", "--quiet", "--checkpoint", "kept.txt"], ["kept.txt"], {"model.json": model()}
    ),
    # ------------------------------------------------ logs
    "no such log": option("assess", "model.json", "nowhere.csv", "--quiet", words=("nowhere.csv",)),
    "no log at all": option("assess", "model.json", words=("no log",)),
    "empty log": assess("", "log.csv"),
    "log of a heading": assess("s,a,s_next\n", "no rows"),
    "log with other columns": assess(LOG.replace("s,a,s_next", "state,action,next"), "s"),
    "log with short rows": assess("s,a,s_next\nwet,go\n", "log.csv"),
    "unknown state in a log": assess(LOG + "wte,go,dry\n", "wte"),
    "unknown action in a log": assess(LOG + "wet,run,dry\n", "run"),
    "unknown next state in a log": assess(LOG + "wet,go,hot\n", "hot"),
    "label missing in a log": assess(LOG + ",go,dry\n", "s"),
    "log outside the support": assess(LOG + "wet,stay,dry\n", "support"),
    "negative count": assess("s,a,s_next,count\nwet,go,dry,-1\n", "count"),
    "fractional count": assess("s,a,s_next,count\nwet,go,dry,1.5\n", "count"),
    "huge count": assess(f"s,a,s_next,count\nwet,go,dry,{2**63}\n", "count"),
    "count in words": assess("s,a,s_next,count\nwet,go,dry,many\n", "count"),
    "reward that contradicts": assess("s,a,s_next,reward\nwet,go,dry,7\n", "reward"),
    "key twice in a log": assess("s,a,s_next,order,episode\nwet,go,dry,1,a\ndry,stay,wet,1,a\n", "order"),
    "order missing in a log": assess("s,a,s_next,order\nwet,go,dry,1\ndry,stay,wet,\n", "order"),
    "sums in order": assess(
        "s,a,s_next,order,count\nwet,go,dry,1,2\n", "count above 1", options=("--method", "betting")
    ),
    "late key in JSON lines": assess(
        '{"s": "wet", "a": "go", "s_next": "dry"}\n' * 200 + '{"s": "wet", "a": "go", "s_next": "dry", "count": 9}\n',
        "the key 'count' is not in the first line",
        name="log.jsonl",
    ),
    "folder without logs": assess(Folder(), "folder", name="folder"),
    "links in a circle for a log": assess(Link("log.csv"), "log.csv"),
    "Parquet that is none": assess(LOG, "log.parquet", name="log.parquet"),
    "log of another format": assess(LOG, "log.xlsx", name="log.xlsx"),
    "log that is binary": assess(b"s,a,s_next\n\xff\xfe,go,dry\n", "log.csv"),
    "JSON lines cut short": assess(
        '{"s": "wet", "a": "go", "s_next": "dry"}\n{"s": "we', "log.jsonl", name="log.jsonl"
    ),
    "column option": assess(LOG, "--column", options=("--column", "state")),
    "column that is not there": assess(LOG, "state", options=("--column", "s=state")),
    "delta of assess": assess(LOG, "delta is 2", options=("--delta", "2")),
    "counts that are none": assess(LOG, "kept.txt", options=("--add-to", "kept.txt")),
    # ------------------------------------------------ other commands
    "comparison with nothing": option("compare", "model.json", words=("other",)),
    "comparison with another task": Bad(
        ["compare", "model.json", "paper-3", "--max-samples", "1"], ["task_b"], {"model.json": model()}
    ),
    "plan without a kernel": Bad(["plan", "model.json"], ["no kernel"], {"model.json": model(kernel=None)}),
    "result that is none": option("report", "kept.txt", "--out", "page.html", words=("kept.txt",)),
    "result of something else": option("report", "model.json", "--out", "page.html", words=("model.json", "schema")),
    "result that is not there": option("report", "nowhere.json", "--out", "page.html", words=("nowhere.json",)),
    "study that is none": option("study", "kept.txt", words=("kept.txt",)),
    "study that is not there": option("study", "nowhere.toml", words=("nowhere.toml",)),
    "watch for fewer than no samples": Bad(
        ["watch", "model.json", "log.csv", "--max-samples", "-5"],
        ["--max-samples is -5"],
        {"model.json": model(), "log.csv": LOG},
    ),
    "watch of sums": Bad(
        ["watch", "model.json", "log.csv", "--no-follow", "--quiet"],
        ["count is '2'", "line 2"],
        {"model.json": model(), "log.csv": "s,a,s_next,count\nwet,go,dry,2\n"},
    ),
    "watch of what is not there": option("watch", "model.json", "nowhere.csv", words=("nowhere.csv",)),
    "folder that is there already": Bad(["init", "kept.txt"], ["kept.txt"]),
    "environment that is not there": option("decide", "gym:NoSuch-v0", "--policy", "uniform", words=("NoSuch",)),
}
