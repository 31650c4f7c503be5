"""A household's data, for pages that are looked at."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.console.serving import say, turn

NOW = datetime.now(UTC)


def furnish(api: httpx.Client) -> dict[str, str]:
    """Store conversations, notes and clients; return the ids of the conversations by subject."""
    clients = _clients(api)
    made: dict[str, str] = {}
    for subject, session, days, lines, fields in _CONVERSATIONS:
        made[subject] = turn(api, session, *_spoken(lines, days), channel=fields.get("channel", "text"))
        changes = {name: value for name, value in fields.items() if name not in ("channel", "client")}
        api.patch(f"/v1/conversations/{made[subject]}", json={"subject": subject, **changes})
        if "client" in fields:
            client = clients[fields["client"]]
            body = {"client_id": client["id"], "client_name": client["name"]}
            assert api.put(f"/v1/conversations/{made[subject]}/client", json=body).is_success
    _tools(api, made["Weather for Saturday"])
    for text, tags in _NOTES:
        body = {"text": text, "tags": tags, "conversation_id": made["Dinner with Ann"]}
        assert api.post("/v1/notes", json=body).is_success
    _people(api, made["Roof repair"])
    made["branch"] = _branch(api, made["Dinner with Ann"])
    return made


def _people(api: httpx.Client, conversation: str) -> None:
    """Add the people of the roof: one writes, one has read, one is a guest."""
    path = f"/v1/conversations/{conversation}"
    for name, fields in _PEOPLE.items():
        assert api.put(f"{path}/participants/{name}", json=fields).is_success
    wrote = say("user", "Wednesday the 18th would do. @Erin, is the scaffold there by then?", author="sam")
    assert api.post(f"{path}/turns", json={"messages": [wrote]}).is_success
    last = api.get(f"{path}/messages").json()["entries"][-1]["message"]["message_id"]
    marker = {"participant_id": "erin", "message_id": last}
    assert api.post(f"{path}/read-markers", json=marker).is_success


def _branch(api: httpx.Client, conversation: str) -> str:
    """Fork before the last answer, and answer differently."""
    path = f"/v1/conversations/{conversation}"
    entries = api.get(f"{path}/messages").json()["entries"]
    at = {"message_id": entries[-2]["message"]["message_id"], "subject": "Something without meat"}
    branch: str = api.post(f"{path}/branches", json=at).json()["id"]
    asked = say("user", "Something without meat, then. No walnuts!")
    answer = say("assistant", "A leek risotto, with lemon and thyme. 35 minutes.", agent_name="cook")
    body = {"messages": [asked, answer]}
    assert api.post(f"/v1/conversations/{branch}/turns", json=body).is_success
    return branch


def _spoken(lines: list[tuple[str, str]], days: float) -> list[dict[str, Any]]:
    start = NOW - timedelta(days=days)
    return [
        say(
            "user" if who == "user" else "assistant",
            text,
            timestamp=(start + timedelta(minutes=number)).isoformat(),
            **({} if who == "user" else {"agent_name": who}),
        )
        for number, (who, text) in enumerate(lines)
    ]


def _tools(api: httpx.Client, conversation: str) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "forecast", "input": {"place": "Oslo", "day": "Saturday"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": "Sun until four, then clouds. 17 degrees.",
    }
    body = {
        "messages": [say("user", "And in Oslo?"), say("assistant", [call]), say("user", [result])],
        "dialect": "anthropic",
    }
    assert api.post(f"/v1/conversations/{conversation}/turns", json=body).is_success
    final = {"messages": [say("assistant", "Sun until four, 17 degrees. Take a jacket for the evening.")]}
    assert api.post(f"/v1/conversations/{conversation}/turns", json=final).is_success


def _clients(api: httpx.Client) -> dict[str, dict[str, Any]]:
    people = (
        {"name": "Ann Baker", "nicknames": ["Annie"], "company": "Baker & Sons", "email": "ann@example.org"},
        {"name": "Ann Miller", "company": "Miller Roofing", "phone": "+44 20 7946 0018"},
        {"name": "Jonas Berg", "email": "jonas@example.org", "notes": "Plumber, weekdays only"},
        {"name": "Priya Nair", "nicknames": ["Pri"], "company": "Nair Dental", "phone": "+44 20 7946 0122"},
    )
    return {person["name"]: api.post("/v1/clients", json=person).json() for person in people}  # type: ignore[misc]


_PEOPLE = {
    "erin": {"name": "Erin", "role": "manager"},
    "sam": {"name": "Sam Okafor", "role": "member"},
    "miller": {"name": "Ann Miller", "role": "guest", "may_write": True},
}

_NOTES: tuple[tuple[str, list[str]], ...] = (
    ("I like leeks and cannot stand coriander", ["food"]),
    ("The bedroom lights are dim at 9 pm", ["home"]),
    ("Ann is allergic to walnuts", ["food", "important"]),
    ("My name is Erin", []),
)

_CONVERSATIONS: tuple[tuple[str, str, float, list[tuple[str, str]], dict[str, Any]], ...] = (
    (
        "Dentist on Tuesday",
        "phone",
        6,
        [
            ("user", "Move my appointment with Priya Nair to Tuesday, please."),
            ("secretary", "Tuesday at 9:15 is free. Shall I take it?"),
            ("user", "Yes."),
            ("secretary", "Booked: Tuesday, 9:15, Nair Dental. I will remind you on Monday evening."),
        ],
        {"channel": "phone", "status": "resolved", "client": "Priya Nair", "tags": ["health"]},
    ),
    (
        "Who called about the gutter?",
        "hall",
        4,
        [
            ("user", "Ann said she would come on Friday about the gutter."),
            ("recall", "I keep that in our history."),
        ],
        {"status": "pending", "tags": ["house"]},
    ),
    (
        "Roof repair",
        "office",
        2.2,
        [
            ("user", "The roof leaks above the stairs. What did the roofer offer?"),
            (
                "secretary",
                "Miller Roofing offered 1,840 for new tiles and flashing, valid until the end of the month.",
            ),
            ("user", "Ask them for a date before the 20th."),
            ("secretary", "I wrote to Ann Miller. She answers within two days."),
        ],
        {
            "priority": "high",
            "client": "Ann Miller",
            "assigned_to": "Erin",
            "tags": ["house"],
            "notes": "Offer expires soon",
        },
    ),
    (
        "Weather for Saturday",
        "terrace",
        1.1,
        [
            ("user", "Will it rain on Saturday?"),
            ("weather", "No rain before Sunday morning. **17 degrees** at noon, light wind from the west."),
        ],
        {"channel": "voice"},
    ),
    (
        "Dinner with Ann",
        "kitchen",
        0.05,
        [
            ("user", "Ann Baker comes for dinner on Friday. What did she like last time?"),
            ("cook", "The leek tart, and the lemon chicken. She asked for the recipe of the tart."),
            ("user", "Then the chicken again. No walnuts!"),
            (
                "cook",
                "Lemon chicken for four:\n\n- one chicken, about 1.6 kg\n- two lemons, a bulb of garlic\n"
                "- thyme, olive oil\n\n"
                "In the oven at 180 degrees for 70 minutes. No walnuts in the salad, noted.",
            ),
        ],
        {"client": "Ann Baker", "tags": ["food", "friends"], "priority": "normal"},
    ),
)
