"""Contacts from CSV files: headers in several forms, nothing lost, done twice is done once."""

import pytest

import aforesaid
from aforesaid.contacts.book import Contacts
from aforesaid.errors import InvalidInput
from aforesaid.model.ids import new_id


@pytest.fixture
def contacts() -> Contacts:
    return aforesaid.ConversationManager().clients


async def test_the_usual_headers_in_any_case_and_order(contacts: Contacts) -> None:
    done = await contacts.import_csv(
        "\ufeffE-Mail;Name;Nickname(s);Phone;Company\n"
        "bob@example.org;Robert Smith;Bob, Bobby;+1 555 0100;Acme\n"
    )
    (bob,) = done.added
    assert (bob.name, bob.nicknames, bob.email, bob.phone, bob.company) == (
        "Robert Smith",
        ("Bob", "Bobby"),
        "bob@example.org",
        "+1 555 0100",
        "Acme",
    )


async def test_first_and_last_names_are_put_together(contacts: Contacts) -> None:
    done = await contacts.import_csv("Vorname,Nachname\nJürgen,Müller\n")
    assert [one.name for one in done.added] == ["Jürgen Müller"]


async def test_bad_lines_are_reported_with_their_numbers_and_the_others_imported(contacts: Contacts) -> None:
    text = (
        "name,email,phone\n"
        "Ann,ann@example.org,12\n"
        "Bo,no address,34\n"
        '"Cy\nlong",cy@example.org,56\n'
        ",dan@example.org,78\n"
        "\n"
        "Eve,eve@example.org,90,too many\n"
        "Fay,fay@example.org,no digits\n"
        "Gus,gus@example.org,11\n"
    )
    done = await contacts.import_csv(text)
    assert [one.name for one in done.added] == ["Ann", "Cy\nlong", "Gus"]
    assert [(one.line, one.text) for one in done.bad] == [
        (3, "Bo,no address,34"),
        (6, ",dan@example.org,78"),
        (8, "Eve,eve@example.org,90,too many"),
        (9, "Fay,fay@example.org,no digits"),
    ]
    assert "email" in done.bad[0].reason


@pytest.mark.parametrize("mark", ["\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
async def test_only_a_line_break_ends_a_line(contacts: Contacts, mark: str) -> None:
    text = f'name,notes\nErin,likes{mark}tea\r\nBo,"much{mark}\rmore"\r,nobody\nAnn,'
    done = await contacts.import_csv(text)
    assert [(one.name, one.notes) for one in done.added] == [
        ("Erin", f"likes{mark}tea"),
        ("Bo", f"much{mark}\rmore"),
        ("Ann", None),
    ]
    assert [(one.line, one.text) for one in done.bad] == [(5, ",nobody")]


async def test_a_quote_that_never_ends_is_reported(contacts: Contacts) -> None:
    done = await contacts.import_csv('name\nAnn\n"Bo\nCy\n')
    assert [one.name for one in done.added] == ["Ann"]
    assert [one.line for one in done.bad] == [3]
    assert "Cy" in done.bad[0].text


async def test_columns_of_other_kinds_go_into_the_notes(contacts: Contacts) -> None:
    done = await contacts.import_csv("name,phone,mobile,Birthday\nAnn,12,34,1 May\n")
    assert done.added[0].notes == "phone: 34\nBirthday: 1 May"


async def test_an_import_done_twice_is_done_once(contacts: Contacts) -> None:
    text = "name,email\nAnn,ann@example.org\nANN,ann@example.org\nBo,\n"
    first = await contacts.import_csv(text)
    again = await contacts.import_csv(text)
    assert (len(first.added), first.known) == (2, 1)
    assert (again.added, again.known) == ((), 3)


async def test_a_line_with_an_id_changes_that_contact(contacts: Contacts) -> None:
    ann = await contacts.add("Ann", phone="12")
    other = new_id()
    done = await contacts.import_csv(
        f"id,name,phone\n{ann.id},Ann Smith,\n{other},Bo,\n{ann.id},Ann Smith,12\n7,Cy,\n"
    )
    assert [(one.id, one.name, one.phone) for one in done.updated] == [(ann.id, "Ann Smith", "12")]
    assert [(one.id, one.name) for one in done.added] == [(other, "Bo")]
    assert done.known == 1
    assert [one.line for one in done.bad] == [5]


@pytest.mark.parametrize("text", ["", "\n", "phone,email\n1,a@b.c\n", 7, None])
async def test_a_file_without_names_is_refused(contacts: Contacts, text: object) -> None:
    with pytest.raises(InvalidInput):
        await contacts.import_csv(text)  # type: ignore[arg-type]
    assert (await contacts.list()).contacts == ()
