"""Every error of ours crosses the wire: as a problem, and as the same error again."""

import inspect
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid import errors
from aforesaid.errors import AforesaidError
from aforesaid.protocol import error_of, problem_of, status_of, to_json

TEXT = st.text(max_size=30)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "value": st.none() | st.integers() | TEXT | st.lists(st.integers(), max_size=3) | st.floats(),
    "expected": st.integers(min_value=0, max_value=2**53 - 1),
    "actual": st.integers(min_value=0, max_value=2**53 - 1),
    "needed": st.integers(min_value=0, max_value=2**53 - 1),
    "budget": st.integers(min_value=0, max_value=2**53 - 1),
    "steps": st.integers(min_value=0, max_value=1000),
    "status": st.none() | st.integers(min_value=100, max_value=599),
    "retry_after": st.none() | st.floats(min_value=0, max_value=1000),
}
"""What errors are made of, by name; everything else is text."""


def every_kind(kind: type[AforesaidError] = AforesaidError) -> list[type[AforesaidError]]:
    below = [each for child in kind.__subclasses__() for each in every_kind(child)]
    return [each for each in (kind, *below) if each.__module__ == errors.__name__]


KINDS = every_kind()


@st.composite
def any_error(draw: st.DrawFn) -> AforesaidError:
    """An error of any kind, with any data that it can carry."""
    kind = draw(st.sampled_from(KINDS))
    positional, named = [], {}
    for name, parameter in inspect.signature(kind).parameters.items():
        value = draw(VALUES.get(name, TEXT))
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[name] = value
        else:
            positional.append(value)
    return kind(*positional, **named)


def over_the_wire(error: AforesaidError) -> AforesaidError:
    problem = json.loads(to_json(problem_of(error)))
    return error_of(problem, status=problem["status"])


@given(any_error())
def test_an_error_is_raised_again_as_the_same_kind_with_the_same_data(error: AforesaidError) -> None:
    again = over_the_wire(error)
    assert type(again) is type(error)
    assert vars(again).keys() == vars(error).keys()
    for name, value in vars(error).items():
        if isinstance(value, str | bool) and len(str(value)) <= 200 and value == str(value):
            assert vars(again)[name] == value or not value.isprintable()
        elif isinstance(value, int) and abs(value) < 2**53:
            assert vars(again)[name] == value


@given(any_error())
def test_words_about_the_inside_stay_inside(error: AforesaidError) -> None:
    """Paths, hosts and provider texts are for the server's log; all else is in the response unchanged."""
    inside = isinstance(
        error, errors.StoreError | errors.AgentError | errors.EncoderFailed | errors.TranscriberError
    )
    describe = problem_of(error)["detail"]
    assert describe == (type(error).__doc__ if inside else str(error))


@given(any_error())
def test_a_problem_has_the_members_of_the_rfc(error: AforesaidError) -> None:
    problem = problem_of(error)
    assert problem["type"].startswith("urn:aforesaid:problem:")
    assert problem["title"]
    assert problem["status"] == status_of(error)
    assert 400 <= problem["status"] <= 599


def test_marks_of_other_code_on_an_error_are_not_revealed() -> None:
    error = errors.NotFound("gone")
    error._seen_by_somebody = True  # type: ignore[attr-defined]
    assert problem_of(error).keys() == {"type", "title", "status", "detail"}
    assert vars(error_of({"_seen_by_somebody": True}, status=404)) == {}


def test_each_kind_has_a_type_of_its_own() -> None:
    types = {problem_of(error_of({}, status=500))["type"]}
    types |= {problem_of(kind.__new__(kind))["type"] for kind in KINDS}
    assert len(types) == len(KINDS)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, errors.NotFound),
        (401, errors.NotAuthenticated),
        (429, errors.TooManyRequests),
        (413, errors.TooLarge),
        (502, errors.StoreUnavailable),
        (418, AforesaidError),
    ],
)
def test_a_response_that_is_no_problem_of_ours_is_distinguished_by_its_status(
    status: int, kind: type[AforesaidError]
) -> None:
    error = error_of({"title": "Gateway says no"}, status=status)
    assert type(error) is kind
    assert str(error) == "Gateway says no"


def test_an_error_read_from_a_foreign_answer_has_all_its_data() -> None:
    error = error_of({}, status=429)
    assert isinstance(error, errors.TooManyRequests)
    assert error.retry_after is None


@pytest.mark.parametrize(
    ("value", "sent"), [(2**53 - 1, 2**53 - 1), (2**53, str(2**53)), (-(2**53), str(-(2**53)))]
)
def test_an_integer_that_json_clients_would_round_is_sent_as_text(value: int, sent: object) -> None:
    problem = json.loads(to_json(problem_of(errors.InvalidInput("too large", field="limit", value=value))))
    assert problem["value"] == sent
