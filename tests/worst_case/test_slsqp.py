"""The experiments' heuristic: reproduced, and shown not to reach the optimum."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt

# (S, T* at the uniform allocation, what the heuristic reports at the radius where the true minimum is 0)
REPORTED = [(2, 31.356532, 0.191), (3, 244.863278, 0.0775), (5, 62.799474, 0.147)]


@pytest.mark.parametrize(("n", "time", "reported"), REPORTED)
def test_the_heuristic_stops_far_above_the_minimum(n, time, reported):
    """At the radius 1/T* the minimum of the value is 0; twenty steps of length 1/400 stay near the start."""
    instance = pt.instances.paper(n)
    ball = pt.KLBall(instance.kernel, np.full((n, n), 1 / n**2), 1 / time)
    heuristic = pt.extreme_value(instance.task, ball, solver=pt.SLSQPHeuristic())
    exact = pt.extreme_value(instance.task, ball)
    assert exact.upper == pytest.approx(0.0, abs=1e-7)
    assert heuristic.upper == pytest.approx(reported, abs=6e-4)
    assert heuristic.kernel in ball
    assert heuristic.status is pt.Status.HEURISTIC
    assert not heuristic.certified


def test_many_longer_steps_do_reach_it():
    """The control: it is the step rule that falls short, not the projection."""
    instance = pt.instances.paper(2)
    ball = pt.KLBall(instance.kernel, np.full((2, 2), 0.25), 1 / 31.356532)
    patient = pt.extreme_value(instance.task, ball, solver=pt.SLSQPHeuristic(smoothness=10.0, steps=100))
    assert patient.upper == pytest.approx(0.0, abs=1e-4)


def test_unseen_successors_are_in_the_heuristics_ball():
    task = pt.Task([[1.0], [0.0]], np.ones((2, 1)), [0.5, 0.5], discount=0.5)
    centre = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    ball = pt.KLBall(centre, np.full((2, 1), 0.5), 0.1)
    found = pt.extreme_value(task, ball, solver=pt.SLSQPHeuristic(smoothness=1.0))
    assert found.kernel[0, 0, 1] > 0.05
    assert found.kernel in ball


def test_a_distance_out_of_the_heuristics_reach_is_said():
    instance = pt.instances.paper(2)
    found = pt.nearest_kernel(
        instance.task, instance.kernel, np.full((2, 2), 0.25), 0.0, solver=pt.SLSQPHeuristic(bisections=3)
    )
    assert found.kernel is None
    assert found.upper == np.inf
    assert found.status is pt.Status.NOT_REACHED
