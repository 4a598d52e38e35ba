"""Planning a simulation budget: how many samples will the test take, which method, and do we have enough?

A pilot of some draws for each pair is planned with, since the kernel is not known. The plan states a range: what the
pilot leaves open. Then the test is run, and stopped at the budget if it must be; an undecided run says what is missing.
"""

import numpy as np

import policytest as pt

three = pt.instances.paper(3)
task, sim = three.task, pt.TabularSimulator(three.kernel)  # three.kernel is what nobody knows
rng = np.random.default_rng(5)

pilot = pt.Counts(task.n_states, task.n_actions)
pairs = np.array([(s, a) for s in range(3) for a in range(3)] * 200)
pilot.record(pairs[:, 0], pairs[:, 1], sim.draw(pairs[:, 0], pairs[:, 1], rng))

plan = pt.plan(
    task,
    pilot,
    threshold=0.0,
    delta=0.05,
    methods={"TDBetting": pt.TDBetting(), "PTST": pt.PTST(solver=pt.ProjectionFree())},
    runs=16,
)
print(f"after a pilot of {pilot.total} draws:")
for name, (mean, low, high) in plan.samples.items():
    print(f"  {name}: about {mean:,.0f} samples, between {low:,.0f} and {high:,.0f}")
print(f"  lower bound on the mean of any test, if the pilot is right: {plan.bound:,.0f}")

budget = 200
verdict = pt.decide(task, sim, threshold=0.0, delta=0.05, rng=0, max_samples=budget)
print(f"with a budget of {budget}: {verdict.answer or 'not settled'}")
if verdict.answer is None:
    print(f"  {verdict.still_needed().words}")
    verdict = pt.decide(task, sim, threshold=0.0, delta=0.05, resume=verdict)  # the same run goes on
    print(f"resumed: {verdict.answer} after {verdict.samples} samples")
