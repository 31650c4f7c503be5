"""Which lifetime applies, and why: the rule by itself, and on every store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aforesaid
from aforesaid.errors import ConversationNotFound, InvalidInput, InvalidSetting, StoreDamaged
from aforesaid.memory.options import retention_in
from aforesaid.model.conversations import CHANNELS, Channel, Conversation, started
from aforesaid.model.ids import new_id
from aforesaid.model.lifetimes import RetentionRules, decode_rules, encode_rules, lifetime_of
from aforesaid.settings import RetentionConfig, Settings
from aforesaid.testing import FixedClock
from tests.servers.remote import open_at

DAY = timedelta(days=1)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def record(**fields: Any) -> Conversation:
    return started(new_id(), now=NOW, **fields)


class TestTheRule:
    def test_the_most_specific_rule_decides(self) -> None:
        one = record(channel="email", tags=("legal",))
        own = RetentionRules(
            owner=4 * DAY,
            channels={"email": 3 * DAY},
            tags={"legal": 2 * DAY},
            conversations={one.id: DAY},
        )
        steps = []
        for rules in (
            own,
            RetentionRules(owner=4 * DAY, channels={"email": 3 * DAY}, tags={"legal": 2 * DAY}),
            RetentionRules(owner=4 * DAY, channels={"email": 3 * DAY}),
            RetentionRules(owner=4 * DAY),
            RetentionRules(),
        ):
            applied = lifetime_of(one, rules, default=5 * DAY)
            steps.append((applied.step, applied.ttl))
        assert steps == [
            ("conversation", DAY),
            ("tag", 2 * DAY),
            ("channel", 3 * DAY),
            ("owner", 4 * DAY),
            ("default", 5 * DAY),
        ]

    def test_what_the_owner_set_goes_before_what_the_memory_was_opened_with(self) -> None:
        given_rules = RetentionRules(channels={"text": DAY}, owner=DAY)
        own = RetentionRules(channels={"text": 9 * DAY})
        assert lifetime_of(record(channel="text"), own, given=given_rules).ttl == 9 * DAY
        assert lifetime_of(record(channel="email"), own, given=given_rules).why == "1 day, by owner"

    def test_of_several_tags_the_shortest_lifetime_counts_and_keeping_is_the_longest(self) -> None:
        rules = RetentionRules(tags={"a": None, "b": 2 * DAY, "c": DAY, "d": DAY})
        assert lifetime_of(record(tags=("a", "b")), rules).name == "b"
        assert lifetime_of(record(tags=("d", "c", "b")), rules).why == "1 day, by tag c"
        assert lifetime_of(record(tags=("a",)), rules).ttl is None
        assert lifetime_of(record(tags=("x",)), rules).step == "default"

    lifetimes = st.none() | st.timedeltas(timedelta(seconds=1), timedelta(days=9999))

    @given(
        owner=lifetimes,
        channels=st.dictionaries(st.sampled_from(CHANNELS), lifetimes),
        tags=st.dictionaries(st.text("abc", min_size=1, max_size=3), lifetimes, max_size=4),
        conversations=st.dictionaries(st.uuids().map(str), lifetimes, max_size=3),
    )
    def test_rules_are_stored_and_read_back_equal(self, **fields: Any) -> None:
        rules = RetentionRules(**fields)
        assert decode_rules(encode_rules(rules)) == rules

    @pytest.mark.parametrize(
        "fields",
        [
            {"owner": timedelta(0)},
            {"channels": {"smoke signals": DAY}},
            {"tags": {"x": 7}},
            {"conversations": {"a\0b": DAY}},
            {"tags": ["x"]},
        ],
    )
    def test_what_is_no_rule_is_refused(self, fields: Any) -> None:
        with pytest.raises(InvalidInput):
            RetentionRules(**fields)

    def test_rules_that_cannot_be_read_are_said_to_be(self) -> None:
        with pytest.raises(StoreDamaged, match="retention rules"):
            decode_rules(b'{"owner": 7}')


class TestOnEveryStore:
    async def test_a_new_conversation_gets_the_lifetime_of_its_rule(self, memory: aforesaid.Memory) -> None:
        erin = memory.of("erin")
        await erin.set_retention(RetentionRules(channels={"voice": DAY, "email": None}))
        lifetimes = {}
        channels: list[Channel] = ["voice", "email", "text"]
        for channel in channels:
            made = await erin.get_or_create_conversation(channel, channel=channel)
            lifetimes[channel] = made.ttl
            assert (await erin.get_conversation(made.id)).ttl == made.ttl
        assert lifetimes == {"voice": DAY, "email": None, "text": 30 * DAY}
        bob = await memory.of("bob").get_or_create_conversation("x", channel="voice")
        assert bob.ttl == 30 * DAY

    async def test_rules_are_seen_by_every_process_and_apply_to_what_is_there(
        self, memory: aforesaid.Memory
    ) -> None:
        one, other = memory.of("erin"), memory.of("erin")
        made = await one.get_or_create_conversation("kitchen")
        assert await other.set_retention(RetentionRules(owner=7 * DAY)) == 1
        assert (await one.get_conversation(made.id)).ttl == 7 * DAY
        assert await one.retention() == RetentionRules(owner=7 * DAY)
        assert (await one.lifetime(made.id)).why == "7 days, by owner"
        assert await other.set_retention(RetentionRules(owner=7 * DAY)) == 0
        assert await other.set_retention(RetentionRules()) == 1
        assert (await one.get_conversation(made.id)).ttl == 30 * DAY

    async def test_tags_and_channels_that_change_change_the_lifetime(self, memory: aforesaid.Memory) -> None:
        erin = memory.of("erin")
        await erin.set_retention(RetentionRules(tags={"legal": None}, channels={"email": 2 * DAY}))
        made = await erin.get_or_create_conversation("kitchen")
        assert (await erin.update_metadata(made.id, channel="email")).ttl == 2 * DAY
        assert (await erin.update_metadata(made.id, tags=["legal"])).ttl is None
        assert (await erin.update_metadata(made.id, subject="x")).ttl is None
        assert (await erin.update_metadata(made.id, clear=["tags"])).ttl == 2 * DAY
        chat = aforesaid.ChatHistory(erin)
        await erin.set_retention(RetentionRules(tags={"chat:+1": DAY}))
        saved = await chat.save_turn("+1", [{"role": "user", "content": "hello"}])
        assert saved is not None
        assert saved.conversation.ttl == DAY

    async def test_a_lifetime_of_its_own_stays_through_every_change_of_rules(
        self, memory: aforesaid.Memory
    ) -> None:
        erin = memory.of("erin")
        made = await erin.get_or_create_conversation("kitchen")
        await erin.update_metadata(made.id, ttl=3 * DAY)
        await erin.set_retention(RetentionRules(owner=DAY, channels={"voice": DAY}))
        assert (await erin.get_conversation(made.id)).ttl == 3 * DAY
        assert (await erin.lifetime(made.id)).step == "conversation"
        await erin.set_retention(RetentionRules(owner=DAY), inherit=[made.id])
        assert (await erin.get_conversation(made.id)).ttl == DAY
        await erin.update_metadata(made.id, clear=["ttl"])
        assert (await erin.lifetime(made.id)).ttl is None

    async def test_a_rule_goes_with_its_conversation(self, memory: aforesaid.Memory) -> None:
        erin = memory.of("erin")
        made = await erin.get_or_create_conversation("kitchen")
        await erin.update_metadata(made.id, ttl=3 * DAY)
        await erin.erase(made.id)
        assert (await erin.retention()).conversations == {}

    async def test_a_dry_run_says_what_will_go_and_why(
        self, memory: aforesaid.Memory, clock: FixedClock
    ) -> None:
        erin, bob = memory.of("erin"), memory.of("bob")
        await erin.set_retention(RetentionRules(channels={"voice": DAY}))
        short = await erin.get_or_create_conversation("a", channel="voice")
        await erin.add_message(short.id, "user", "secret")
        await erin.get_or_create_conversation("b", channel="email")
        other = await bob.get_or_create_conversation("a")
        await bob.update_metadata(other.id, ttl=2 * DAY)
        assert await erin.expiring() == []
        (soon,) = await erin.expiring(within=DAY)
        assert (soon.conversation_id, soon.messages) == (short.id, 1)
        assert soon.why == "1 day, by channel voice"
        clock.advance(2 * DAY)
        going = await memory.would_purge()
        assert [(owner, one.conversation_id) for owner, one in going] == [
            ("erin", short.id),
            ("bob", other.id),
        ]
        assert going[1][1].why == f"2 days, by conversation {other.id}"
        assert await memory.would_purge() == going, "a dry run removes nothing"
        assert await memory.purge_expired() == 2
        assert await memory.would_purge() == []
        with pytest.raises(ConversationNotFound):
            await erin.lifetime(short.id)

    async def test_rules_from_settings(self, url: str, clock: FixedClock) -> None:
        environ = {
            "AFORESAID_TTL_CHANNELS": "voice=7, email=0",
            "AFORESAID_TTL_TAGS": "small talk=1",
            "AFORESAID_TTL_OWNERS": "kiosk=2",
        }
        config = Settings.load(environ=environ).retention
        async with open_at(
            url,
            clock=clock,
            sweep_every=None,
            ttl=config.ttl,
            retention=retention_in(config),
        ) as memory:
            kiosk, erin = memory.of("kiosk"), memory.of("erin")
            assert (await kiosk.get_or_create_conversation("a", channel="text")).ttl == 2 * DAY
            assert (await kiosk.get_or_create_conversation("b", channel="voice")).ttl == 7 * DAY
            assert (await erin.get_or_create_conversation("a", channel="text")).ttl == 30 * DAY
            mail = await erin.get_or_create_conversation("b", channel="email")
            assert mail.ttl is None
            assert (await erin.update_metadata(mail.id, tags=["small talk"])).ttl == DAY
            await kiosk.set_retention(RetentionRules(channels={"voice": None}))
            assert (await kiosk.get_or_create_conversation("c", channel="voice")).ttl is None

    async def test_an_idle_session_starts_afresh_and_the_old_conversation_stays(
        self, memory: aforesaid.Memory, clock: FixedClock
    ) -> None:
        chat = aforesaid.ChatHistory(memory.of("erin"), keep=True)
        first = await chat.save_turn("+1", [{"role": "user", "content": "before"}])
        clock.advance(timedelta(minutes=30))
        assert len(await chat.get_history("+1")) == 1, "half an hour to the second is not longer"
        clock.advance(timedelta(seconds=1))
        assert await chat.get_history("+1") == []
        second = await chat.save_turn("+1", [{"role": "user", "content": "after"}])
        assert first is not None
        assert second is not None
        assert first.conversation.id != second.conversation.id
        assert len(await chat.get_history("+1")) == 1
        assert len(await memory.of("erin").messages(first.conversation.id)) == 1
        clock.advance(30 * DAY)
        with pytest.raises(ConversationNotFound):
            await memory.of("erin").get_conversation(first.conversation.id)


async def test_unreadable_rules_do_not_prevent_turns(caplog: pytest.LogCaptureFixture) -> None:
    async with aforesaid.open("memory://", retention=aforesaid.Retention(sweep_every=None)) as memory:
        erin = memory.of("erin")
        await erin.store.put_document("retention", "rules", b"no rules")
        made = await erin.get_or_create_conversation("kitchen")
        assert made.ttl == 30 * DAY
        assert (await erin.add_message(made.id, "user", "hello")).message_count == 1
        assert "does not follow the retention rules yet" in caplog.text
        with pytest.raises(StoreDamaged):
            await erin.apply_retention()
        await erin.store.delete_document("retention", "rules")
        await erin.set_retention(RetentionRules(owner=DAY))
        assert (await erin.get_conversation(made.id)).ttl == DAY


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AFORESAID_TTL_CHANNELS", "voice"),
        ("AFORESAID_TTL_CHANNELS", "voice=x"),
        ("AFORESAID_TTL_TAGS", "=3"),
        ("AFORESAID_TTL_OWNERS", "erin=-1"),
    ],
)
def test_settings_that_are_no_rules_name_their_variable(variable: str, value: str) -> None:
    with pytest.raises(InvalidSetting, match=variable):
        Settings.load(environ={variable: value})


def test_settings_take_mappings_from_a_file() -> None:
    config = RetentionConfig.from_mapping({"ttl_channels": {"voice": 7}, "ttl_tags": {"legal": 0}})
    assert retention_in(config).rules == RetentionRules(channels={"voice": 7 * DAY}, tags={"legal": None})
