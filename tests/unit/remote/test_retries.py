"""What is sent again, when, and when no more: the rules, played without a network."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidSetting,
    NotFound,
    StoreForeign,
    StoreUnavailable,
    TooManyRequests,
)
from aforesaid.protocol import problem_of, to_json
from aforesaid.remote.attempts import (
    Done,
    Failure,
    Outcome,
    Pause,
    RetryPolicy,
    Send,
    advance,
    retry_after,
    steps_of,
)
from aforesaid.remote.calls import Answer, Call, path_of, reader

GOOD = Answer(status=200, headers={"content-type": "application/json"}, content=b'{"a": 1}')
AWAY = Failure(error=StoreUnavailable("away"))
UNSENT = Failure(error=StoreUnavailable("nobody there"), may_have_arrived=False)


def problem(error: AforesaidError, status: int, **headers: str) -> Answer:
    return Answer(
        status=status,
        headers={"content-type": "application/problem+json", **headers},
        content=to_json(problem_of(error, status=status)),
    )


def call(**fields: Any) -> Call[Any]:
    return Call(method="POST", path="/v1/x?q=secret", read=reader(lambda document: document["a"]), **fields)


def play(outcomes: list[Outcome], described: Call[Any], **patience: Any) -> tuple[Any, list[Send | Pause]]:
    """What comes of it, and the steps that were taken."""
    course = steps_of(described, RetryPolicy(**patience), clock=lambda: 0.0, chance=lambda: 0.5)
    steps: list[Send | Pause] = []
    left = iter(outcomes)
    try:
        step = advance(course, None)
        while not isinstance(step, Done):
            steps.append(step)
            step = advance(course, next(left) if isinstance(step, Send) else None)
    except AforesaidError as error:
        return error, steps
    return step.value, steps


def attempts(steps: list[Send | Pause]) -> int:
    return sum(isinstance(step, Send) for step in steps)


def test_what_is_answered_is_asked_once() -> None:
    assert play([GOOD], call())[0] == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_come_through_later_is_sent_again(status: int) -> None:
    given, steps = play([Answer(status=status), Answer(status=status), GOOD], call())
    assert (given, attempts(steps)) == (1, 3)
    pauses = [step.seconds for step in steps if isinstance(step, Pause)]
    assert pauses == pytest.approx([0.075, 0.15])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500, 501])
def test_what_would_be_refused_again_is_not_sent_again(status: int) -> None:
    assert attempts(play([Answer(status=status)], call())[1]) == 1


def test_after_the_last_attempt_the_error_comes_out() -> None:
    given, steps = play([AWAY] * 9, call(), attempts=3)
    assert (given, attempts(steps)) == (AWAY.error, 3)


def test_what_must_not_be_done_twice_is_sent_again_only_where_it_never_arrived() -> None:
    once = call(repeatable=False)
    assert play([UNSENT, GOOD], once)[0] == 1
    assert play([Answer(status=429), GOOD], once)[0] == 1
    assert attempts(play([Answer(status=503)], once)[1]) == 1
    given, steps = play([AWAY, GOOD], once)
    assert attempts(steps) == 1
    assert isinstance(given, StoreUnavailable)
    assert "it is unknown whether" in str(given)
    assert "secret" not in str(given), "what stands in a query is somebody's words"


def test_a_server_that_asks_for_time_gets_it_or_is_not_waited_for() -> None:
    _, steps = play([Answer(status=503, headers={"retry-after": "3"}), GOOD], call())
    assert Pause(seconds=3.0) in steps
    limited = problem(TooManyRequests(), 429, **{"retry-after": "60"})
    given, steps = play([limited, GOOD], call())
    assert attempts(steps) == 1
    assert isinstance(given, TooManyRequests)
    assert given.retry_after == 60


def test_a_deadline_is_for_all_attempts_together() -> None:
    now = [0.0]
    course = steps_of(
        call(deadline=1.0), RetryPolicy(first_pause=0.4), clock=lambda: now[0], chance=lambda: 0.99
    )
    assert advance(course, None) == Send(timeout=1.0)
    assert isinstance(advance(course, AWAY), Pause)
    now[0] = 0.9
    second = advance(course, None)
    assert isinstance(second, Send)
    assert second.is_retry
    assert second.timeout == pytest.approx(0.1)
    with pytest.raises(StoreUnavailable, match="away"):
        advance(course, AWAY)


def test_something_else_can_stand_in_for_a_server_that_is_away_but_not_for_its_word() -> None:
    instead = call(fallback=lambda error: f"instead: {error}")
    assert play([AWAY] * 4, instead)[0] == "instead: away"
    refused, _ = play([problem(ConversationNotFound("x"), 404)], instead)
    assert isinstance(refused, ConversationNotFound)


def test_what_is_not_there_can_be_a_value() -> None:
    assert play([problem(NotFound(), 404)], call(on_not_found=lambda error: None))[0] is None
    elsewhere = Answer(status=404, headers={"content-type": "text/html"}, content=b"<p>nginx</p>")
    assert isinstance(play([elsewhere], call(on_not_found=lambda error: None))[0], StoreForeign)


def test_a_mapped_call_maps_whatever_it_gives() -> None:
    described = call(fallback=lambda error: 7).map(lambda number: number * 2)
    assert play([GOOD], described)[0] == 2
    assert play([AWAY] * 4, described)[0] == 14


@given(attempt=st.integers(1, 60), chance=st.floats(0, 1, exclude_max=True))
def test_pauses_grow_within_their_bound(attempt: int, chance: float) -> None:
    patience = RetryPolicy()
    pause = patience.pause(attempt, chance=chance)
    assert 0 < pause <= patience.longest_pause
    assert pause <= patience.pause(attempt + 1, chance=chance)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("7", 7.0),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("٣", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(given: str, seconds: float | None) -> None:
    assert retry_after(Answer(status=503, headers={"retry-after": given})) == seconds


@pytest.mark.parametrize(
    "fields", [{"attempts": 0}, {"attempts": True}, {"timeout": 0}, {"timeout": "1"}, {"longest_pause": -1}]
)
def test_what_is_no_patience_is_refused(fields: Any) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(fields))):
        RetryPolicy(**fields)


@given(st.text(min_size=1), st.text(), st.lists(st.text(), max_size=3))
def test_a_segment_stays_one_whatever_is_in_it(segment: str, value: str, values: list[str]) -> None:
    from urllib.parse import parse_qs, unquote, urlsplit

    path = path_of("v1", segment, query={"q": value, "many": tuple(values), "none": None, "flag": True})
    parts = urlsplit(path)
    assert [unquote(part) for part in parts.path.split("/")] == ["", "v1", segment]
    asked = parse_qs(parts.query, keep_blank_values=True)
    assert asked == {"q": [value], "flag": ["true"]} | ({"many": values} if values else {})
