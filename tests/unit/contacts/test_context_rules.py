"""Test the context around a name: initials, companies, relatives, families, houses, corrections, Italian."""

import pytest
from benchmarks.clients import contact

from aforesaid.contacts.identification import identify
from aforesaid.contacts.name_index import NameIndex

PEOPLE = (
    "Anna Long",
    "Ina Hope",
    "Mark Thompson",
    "Rose Delgado",
    "Karl Vogel",
    "Greta Hoffman",
    "Harold Finch",
    "Susan Miller",
    "David Millar",
    "Hans Müller",
    "Petra Möller",
    "Catherine Schroeder",
    "Giuseppe Ferrari",
    "Lucia Bianchi",
    "Marco Rossi",
    "Antonio Russo",
    "Pedro Núñez",
)


def index(*names: str) -> NameIndex:
    return NameIndex(contact({"name": name}) for name in names or PEOPLE)


def named(text: str, *names: str, by_ear: bool = False) -> str | None:
    match = identify(text, index(*names), by_ear=by_ear)
    return None if match is None or match.client is None else match.client.name


@pytest.mark.parametrize(
    "text",
    [
        "It was a long day",
        "it was a long day",
        "A Long Day",
        "I hope so",
        "i hope so",
        "I Hope",
    ],
)
@pytest.mark.parametrize("by_ear", [False, True])
def test_words_of_one_letter_are_not_initials(text: str, by_ear: bool) -> None:
    assert identify(text, index(), by_ear=by_ear) is None


def test_words_of_one_letter_do_not_join_names() -> None:
    both = ("Anna Long", "Anna Short")
    assert named("i told anna a long story", *both) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [("A. Long called", "Anna Long"), ("write to I. Hope", "Ina Hope"), ("H Finch called", "Harold Finch")],
)
def test_initials_with_a_point_or_that_are_no_words_count(text: str, name: str) -> None:
    assert named(text) == name


@pytest.mark.parametrize("text", ["Call Sanders", "Sanders called", "the Sanders invoice"])
def test_a_company_of_one_word_competes_with_people_of_that_name(text: str) -> None:
    names = ("Sanders LLC", "Paul Sanders", "Rita Sanders")
    match = identify(text, index(*names))
    assert match is not None
    assert match.client is None
    assert {one.contact.name for one in match.candidates} == set(names)


def test_a_company_of_one_word_is_named_by_its_legal_form_or_without_rivals() -> None:
    assert named("Call Sanders LLC", "Sanders LLC", "Paul Sanders") == "Sanders LLC"
    assert named("Call Sanders", "Sanders LLC", "Paul Young") == "Sanders LLC"


@pytest.mark.parametrize(
    "text",
    [
        "Uncle Mark is coming for dinner",
        "Call Aunt Rose",
        "aunt rose called",
        "Onkel Karl hat angerufen",
        "Zio Marco ha chiamato",
        "La tía Rose llamó",
        "My sister Anna wants a cake",
    ],
)
def test_relatives_are_not_clients(text: str) -> None:
    assert identify(text, index()) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("We are at the Hoffman place until noon", "Greta Hoffman"),
        ("i left my drill at the hoffman place", "Greta Hoffman"),
        ("The Finches want a new kitchen", "Harold Finch"),
        ("Die Müllers haben angerufen", "Hans Müller"),
        ("I Rossi vogliono un preventivo", "Marco Rossi"),
        ("Los Núñez quieren un presupuesto", "Pedro Núñez"),
    ],
)
def test_a_house_or_a_family_names_the_client(text: str, name: str) -> None:
    assert named(text) == name


@pytest.mark.parametrize(
    "text",
    ["Turn left at Hoffman Place", "I fed the finches in the garden", "Book a table at the Hoffman bar"],
)
def test_streets_and_birds_are_not_families(text: str) -> None:
    assert identify(text, index()) is None


def test_a_plural_that_belongs_to_something_is_no_family() -> None:
    assert named("The Rivers of the region are high, tell the customer", "April Rivers") is None
    assert named("The Rivers called the office", "April Rivers") == "April Rivers"


def test_a_verb_after_the_client_is_no_name() -> None:
    names = ("Will Turner", "Mark Thompson")
    assert named("the client will call", *names, by_ear=True) is None
    assert named("Please call the client Will", *names) == "Will Turner"
    assert named("the client will turner called", *names, by_ear=True) == "Will Turner"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("not Miller, Millar", "David Millar"),
        ("Not Miller. Millar.", "David Millar"),
        ("Millar, not Miller", "David Millar"),
        ("sorry, I mean Harold Finch", "Harold Finch"),
        ("Call Rose Delgado. Sorry, I meant Harold Finch.", "Harold Finch"),
        ("no, it's Harold Finch, not Rose Delgado", "Harold Finch"),
        ("I said Harold Finch instead of Rose Delgado", "Harold Finch"),
        ("Nicht Müller, sondern Möller", "Petra Möller"),
        ("Entschuldigung, ich meine Petra Möller", "Petra Möller"),
        ("Non Rossi, Russo", "Antonio Russo"),
        ("Scusa, volevo dire Lucia Bianchi", "Lucia Bianchi"),
        ("No Rossi, sino Núñez", "Pedro Núñez"),
        ("Perdón, quise decir Pedro Núñez", "Pedro Núñez"),
    ],
)
@pytest.mark.parametrize("by_ear", [False, True])
def test_a_correction_names_the_client_that_replaces_the_other(text: str, name: str, by_ear: bool) -> None:
    assert named(text, by_ear=by_ear) == name


def test_a_rejected_name_alone_is_no_client() -> None:
    assert identify("No, not Rose Delgado", index()) is None
    assert named("Do not call Rose Delgado") == "Rose Delgado"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("call harald fintch", "Harold Finch"),
        ("katrin shreder called about the roof", "Catherine Schroeder"),
        ("send it to jusepe ferari", "Giuseppe Ferrari"),
        ("lutschia bianki hat angerufen", "Lucia Bianchi"),
    ],
)
def test_two_misheard_words_still_name_the_client(text: str, name: str) -> None:
    assert named(text, by_ear=True) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Chiama il signor Ferrari", "Giuseppe Ferrari"),
        ("La signora Bianchi vuole un preventivo", "Lucia Bianchi"),
        ("Manda la fattura a Beppe Ferrari", "Giuseppe Ferrari"),
        ("Ho parlato con Rossi della caldaia", "Marco Rossi"),
        ("la caldaia di rossi perde acqua", "Marco Rossi"),
        ("L'appuntamento del dottor Russo è domani", "Antonio Russo"),
        ("la fattura dell'ingegner Ferrari", "Giuseppe Ferrari"),
        ("Bianchi ha disdetto l'ordine", "Lucia Bianchi"),
    ],
)
def test_italian_names_its_clients(text: str, name: str) -> None:
    assert named(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "Ho comprato due magliette rossi",
        "i fiori bianchi sono sul tavolo",
        "La Ferrari rossa è molto veloce",
        "Ho visto Paolo Rossi alla televisione",
    ],
)
def test_italian_words_are_not_clients(text: str) -> None:
    assert named(text) is None
