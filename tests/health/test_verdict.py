"""States, their one order, and their exit codes."""

from __future__ import annotations

from itertools import permutations

import pytest

from trtllm_kit.health.verdict import Finding, Kind, State, worst


def test_the_severity_order_is_critical_unknown_warning_ok() -> None:
    """A confirmed critical outranks an unknown, which outranks a warning."""
    for states in permutations(State):
        assert [State.OK, State.WARNING, State.UNKNOWN, State.CRITICAL] == sorted(states, key=lambda s: s.severity)


@pytest.mark.parametrize(
    ("state", "code"), [(State.OK, 0), (State.WARNING, 1), (State.CRITICAL, 2), (State.UNKNOWN, 3)]
)
def test_exit_codes_are_those_of_nagios(state: State, code: int) -> None:
    """The codes are the plugin interface's, whose order is not the severity order."""
    assert code == state.exit_code


def test_nothing_looked_at_is_unknown() -> None:
    """Without any state there is no OK."""
    assert State.UNKNOWN is worst([])


def test_the_worst_state_wins() -> None:
    """One critical among unknowns is critical."""
    assert State.CRITICAL is worst([State.OK, State.UNKNOWN, State.CRITICAL, State.WARNING])
    assert State.UNKNOWN is worst([State.WARNING, State.UNKNOWN, State.OK])


def test_a_title_names_the_subject_when_there_is_one() -> None:
    """The subject stands in brackets behind the rule."""
    assert "r (m/1)" == Finding("r", "m/1", State.OK, Kind.WITHIN, "").title
    assert "r" == Finding("r", "", State.OK, Kind.WITHIN, "").title
