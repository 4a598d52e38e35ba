"""How many samples does it take to tell whether the policy of the paper's 5x5 instance is worth more than 0?"""

import math

import policytest as pt

instance = pt.instances.paper(5)
task, kernel = instance.task, instance.kernel

print("The paper's instance with 5 states and 5 actions: is the value of the policy above 0?")
print("(the first run compiles some code once, which takes about half a minute)", flush=True)
print(f"  value of the policy        {pt.value(task, kernel):.6f}")
low, high = pt.value_range(task)
print(f"  over all kernels           {low:.6f} to {high:.6f}")

bound = pt.characteristic_time(task, kernel)
best = pt.optimal_allocation(task, kernel)
print("\nThe lower bound of all tests on the mean number of samples: T* kl(delta, 1-delta)")
print(f"  T*, every pair equally     {bound.time:.2f}")
print(f"  T*, the best allocation    {best.time:.2f}   (no allocation is below {1 / best.upper_bound:.2f})")
for delta in (0.05, 1e-3, 1e-15):
    samples = math.ceil(bound.time * (1 - 2 * delta) * math.log((1 - delta) / delta))
    print(f"  delta = {delta:<8g}           {samples} samples, every pair equally")

print("\nThe confusing kernel: the nearest one under which the policy is worth 0. Its rows that differ most:")
confusing = bound.kernel
assert confusing is not None  # 0 lies inside the range of values, so some kernel reaches it
shift = abs(confusing - kernel)
for rank in shift.max(axis=2).ravel().argsort()[::-1][:3]:
    s, a = divmod(int(rank), task.n_actions)
    x = int(shift[s, a].argmax())
    print(f"  from state {s} with action {a} to state {x}: {kernel[s, a, x]:.3f} becomes {confusing[s, a, x]:.3f}")
print(f"  value under it             {pt.value(task, confusing):.1e}")
print("\nNot certified: these T* come from a local search. Each is proved to be at least what is shown, not at most.")
