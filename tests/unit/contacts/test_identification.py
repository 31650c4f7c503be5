"""Whom a text names: the rules one by one, and what must hold for any names."""

import gc
from collections.abc import Sequence
from typing import Literal
from unicodedata import normalize

import pytest
from benchmarks.clients import contact, many
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.contacts.identification import identify
from aforesaid.contacts.name_index import NameIndex
from aforesaid.contacts.names import distance, similarity, skeleton, sound
from aforesaid.model.contacts import CERTAIN, Contact
from tests.examples import examples


def index(*names: str) -> NameIndex:
    return NameIndex(contact({"name": name}) for name in names)


def named(text: str, *names: str, by_ear: bool = False) -> str | None:
    """The one client that the text names."""
    match = identify(text, index(*names), by_ear=by_ear)
    return None if match is None or match.client is None else match.client.name


def candidates(text: str, *names: str, by_ear: bool = False) -> set[str]:
    match = identify(text, index(*names), by_ear=by_ear)
    assert match is None or match.client is None
    return set() if match is None else {one.contact.name for one in match.candidates}


@pytest.mark.parametrize(
    "text",
    [
        "Queen Grace opened the bridge",
        "Santa Grace è a Firenze",
        "The baby is called Grace",
        "Il gatto si chiama Grace",
        "How do you spell Grace?",
        "El barrio de Grace es tranquilo",
        "Me and Grace went fishing",
        "Grace und ich gehen ins Kino",
        "Spiel Mozart von Grace",
        "Die Nachbarin Grace gießt die Blumen",
    ],
)
def test_a_given_name_of_somebody_else_names_no_client(text: str) -> None:
    assert identify(text, index("Grace Hopkins", "Zoe Abernathy")) is None


@pytest.mark.parametrize("text", ["I dreamed about Grace", "Is Grace a Greek name?", "Robert's Rules apply"])
def test_without_business_a_single_name_is_only_a_candidate(text: str) -> None:
    assert candidates(text, "Grace Hopkins", "Robert Smith")


@pytest.mark.parametrize(
    "text",
    [
        "Call Grace",
        "Grace wants an offer",
        "The invoice for Grace is ready",
        "Play the message from Grace",
        "Chiama Grace",
    ],
)
def test_with_business_a_single_name_names_the_client(text: str) -> None:
    assert named(text, "Grace Hopkins", "Robert Smith") == "Grace Hopkins"


def test_a_small_word_after_a_title_is_no_misspelt_name() -> None:
    assert identify("Il signore russa di notte", index("Antonio Russo")) is None
    assert named("Il signor Russo ha chiamato", "Antonio Russo") == "Antonio Russo"


def test_only_families_have_a_plural_in_es() -> None:
    assert identify("Los Ángeles está en California", index("Ángel Domínguez")) is None
    assert named("The Finches called", "Harold Finch") == "Harold Finch"


def test_the_garbage_collector_does_not_visit_the_contacts_of_an_index() -> None:
    """Otherwise a collection during the build of a large index stops the event loop."""
    contacts = many(1_000)
    # Other threads and tables that are loaded once add objects, too, but not in every build.
    assert any(tracked_objects_of(contacts) < 200 for _ in range(5))


def tracked_objects_of(contacts: Sequence[Contact]) -> int:
    """Return how many objects the collector visits in addition, for an index of these contacts."""
    gc.collect()
    before = len(gc.get_objects())
    people = NameIndex(contacts)
    gc.collect()
    assert len(people) == len(contacts)
    return len(gc.get_objects()) - before


@pytest.mark.parametrize(
    "text",
    [
        "The market opens at eight",
        "mark my words",
        "Mark the date",
        "please mark it as done",
        "a marker",
        "The landmark is famous",
    ],
)
def test_a_name_inside_a_word_or_a_word_that_is_a_name_names_no_client(text: str) -> None:
    assert identify(text, index("Mark Thompson", "Anna Schmidt")) is None


@pytest.mark.parametrize("text", ["Please call राम today", "Call राम शर्मा", "मुझे कल राम से बात करनी है"])
def test_a_vowel_sign_is_no_end_of_a_word(text: str) -> None:
    assert identify(text, index("अनिल कुमार")) is None
    assert named("अनिल कुमार called", "अनिल कुमार", "राम शर्मा") == "अनिल कुमार"


@pytest.mark.parametrize("stored", ["NFC", "NFD"])
@pytest.mark.parametrize("said", ["NFC", "NFD"])
@pytest.mark.parametrize("name", ["José Núñez", "Zoë Müller", "Андрей Йович"])
def test_letters_with_their_accents_apart_are_the_same_letters(
    stored: Literal["NFC", "NFD"], said: Literal["NFC", "NFD"], name: str
) -> None:
    kept = normalize(stored, name)
    assert named(normalize(said, f"{name} called"), kept, "Robert Smith") == kept


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Smith's invoice is wrong", "Robert Smith"),
        ("Smiths Rechnung ist falsch", "Robert Smith"),
        ("das Auto von Herrn Müller", "Hans Müller"),
        ("La facture de Mme Lefèvre", "Élodie Lefèvre"),
        ("call bobby smith", "Robert Smith"),
        ("El señor Núñez llamó", "Pedro Núñez"),
        ("Mevrouw van den Berg belt", "Petra van den Berg"),
        ("Dr. Weiss called", "Heike Weiß"),
        ("write to R. Smith", "Robert Smith"),
    ],
)
def test_possessives_titles_accents_and_initials(text: str, name: str) -> None:
    assert named(text, name, "Zoe Abernathy") == name


@pytest.mark.parametrize("said", ["Margiee", "Gretta", "Maggiee Hill"])
def test_a_misspelt_short_form_names_no_client(said: str) -> None:
    assert named("Greta Hill called", "Margaret Hill") == "Margaret Hill"
    assert identify(f"{said} called", index("Margaret Hill")) is None


def test_a_title_tells_two_of_one_family_apart() -> None:
    both = ("Robert Smith", "Jane Smith")
    assert named("Mrs Smith called", *both) == "Jane Smith"
    assert named("Mr Smith called", *both) == "Robert Smith"
    assert candidates("Smith called", *both) == set(both)


def test_a_first_name_that_several_have_is_never_guessed() -> None:
    assert candidates("Call Anna today", "Anna Schmidt", "Anna Weber") == {"Anna Schmidt", "Anna Weber"}
    assert named("Call Anna today", "Anna Schmidt", "Petra Weber") == "Anna Schmidt"


def test_a_full_name_clears_up_the_first_name_beside_it() -> None:
    assert named("Anna called. Anna Schmidt wants an offer.", "Anna Schmidt", "Anna Weber") == "Anna Schmidt"


def test_two_clients_in_one_sentence_are_candidates() -> None:
    both = ("Robert Smith", "Priya Raman")
    assert candidates("Robert Smith met Priya Raman", *both) == set(both)


@pytest.mark.parametrize(
    "text", ["Peter Smith called", "peter smith called", "Is Priya Sharma there?", "ask priya patel"]
)
def test_another_person_with_one_of_the_names_is_no_client(text: str) -> None:
    assert identify(text, index("Robert Smith", "Priya Raman")) is None


def test_who_hears_cannot_tell_spellings_apart_and_who_reads_can() -> None:
    both = ("Sean Murphy", "Shaun Murphy")
    assert named("Sean Murphy called", *both) == "Sean Murphy"
    assert candidates("sean murphy called", *both, by_ear=True) == set(both)


def test_an_address_or_a_number_names_its_owner() -> None:
    people = NameIndex(
        [
            contact({"name": "Ann", "email": "Ann@Example.org"}),
            contact({"name": "Bo", "phone": "+49 (0)151 234567"}),
        ]
    )
    for text, name in (("mail ann@example.org", "Ann"), ("ring 0151 234567 back", "Bo")):
        match = identify(text, people)
        assert match is not None
        assert match.client is not None
        assert match.client.name == name


def test_nicknames_of_the_contact_and_the_company_they_work_for() -> None:
    people = NameIndex(
        [contact({"name": "Karl Vogel", "nicknames": ["Kalle"], "company": "Sunrise Yoga Ltd"})]
    )
    for text in ("Kalle called", "The lady from Sunrise Yoga called"):
        match = identify(text, people)
        assert match is not None
        assert match.client is not None


def test_a_contact_that_is_gone_or_renamed_is_found_no_more() -> None:
    ann = contact({"name": "Ann Oakley", "email": "a@b.cd"})
    people = NameIndex([ann, contact({"name": "Zoe Finch"})])
    people.remove(ann.id)
    assert identify("Ann Oakley wrote from a@b.cd, so did Ann Oakly", people) is None
    people.put(ann)
    people.put(contact({"name": "Ann Porter"} | {"email": None}))
    match = identify("Ann Oakley called", people)
    assert match is not None
    assert match.client == ann


@pytest.mark.parametrize(
    "text", ["", "   ", "😀", "1234", "…", "'", "-", "\u200b", "山田さんから電話", "Ж" * 50, "a" * 100_000]
)
def test_any_text_is_read(text: str) -> None:
    assert identify(text, index("Robert Smith", "山田太郎", "Ж")) is None


WORDS = st.text(alphabet="abcdefghijklmnopqrstuvwxyzäöüßéñ'- ", min_size=1, max_size=12)


@given(text=st.text(max_size=80), names=st.lists(st.text(min_size=1, max_size=20), max_size=5))
@examples(200)
def test_whatever_is_said_of_whomever_the_answer_holds_together(text: str, names: list[str]) -> None:
    match = identify(text, index(*names))
    if match is None:
        return
    assert match.candidates
    assert 0 < match.confidence <= 1
    assert list(match.candidates) == sorted(match.candidates, key=lambda one: -one.confidence)
    if match.client is not None:
        assert match.confidence >= CERTAIN
        assert [one.contact for one in match.candidates] == [match.client]


@given(names=st.lists(st.sampled_from([one.name for one in many(300)]), min_size=2, max_size=40, unique=True))
@examples(100)
def test_a_full_name_is_found_among_any_others_or_shown_with_its_likes(names: list[str]) -> None:
    match = identify(f"I spoke to {names[0]} today", index(*names))
    assert match is not None
    assert names[0] in {one.contact.name for one in match.candidates}
    if match.client is not None:
        assert match.client.name == names[0]


@given(one=WORDS, other=WORDS)
@examples(300)
def test_likeness_is_the_same_both_ways(one: str, other: str) -> None:
    assert distance(one, other, most=3) == distance(other, one, most=3)
    assert similarity(one, other) == similarity(other, one)
    assert similarity(one, one) == 1.0
    assert sound(one) == sound(one)
    assert skeleton(one) == skeleton(one)
