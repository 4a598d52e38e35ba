"""The paper's experiment, small: stopping times against delta on its 2- and 3-state instances, a few seeds.

The whole figure, with 30 seeds and all three instances:   policytest study paper --out paper-study --figure figure.svg
"""

import policytest as pt

sweep = pt.study.sweep(
    {
        "title": "The paper's experiment, small",
        "instances": {"2x2": {"paper": 2}, "3x3": {"paper": 3}},
        "methods": {
            "PTST, paper's boundary": {"method": "PTST", "boundary": "paper", "solver": "projection-free"},
            "PTST, mixture": {"method": "PTST", "solver": "projection-free"},
            "TDBetting": {},
        },
        "deltas": [1e-15, 1e-8, 1e-2],
        "seeds": 5,
        "max_samples": 1_000_000,
    }
)
found = pt.study.run(sweep, jobs=1)
print(found)
for instance in ("2x2", "3x3"):
    means = {row["method"]: row["mean"] for row in found.means if row["instance"] == instance and row["delta"] == 1e-2}
    ratio = means["PTST, paper's boundary"] / means["TDBetting"]
    print(f"{instance}: at delta = 0.01 the paper's rule takes {ratio:.0f} times the samples of the default")
wrong = sum(row["correct"] is False for row in found.table)
print(f"wrong answers: {wrong} of {len(found.table)}")
