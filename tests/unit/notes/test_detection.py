"""Preferences and facts in users' messages become notes, with their source, and can be undone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import aforesaid
from aforesaid.contracts import Ask, DetectedNote, OnText, Reply
from aforesaid.errors import AgentUnavailable, InvalidSetting
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.notes.detection import DETECTED, NoteDetection
from aforesaid.notes.detectors import AgentDetector, notes_in_text
from aforesaid.notes.records import Source
from aforesaid.settings import ConversationConfig


@pytest.fixture
async def memory() -> AsyncIterator[aforesaid.Memory]:
    async with opened(detector="rules") as memory:
        yield memory


def opened(**models: Any) -> aforesaid.Memory:
    return aforesaid.open("memory://", models=aforesaid.Models(embedder=None, **models))


async def say(
    memory: aforesaid.Memory, text: object, *, message_id: str | None = None
) -> ConversationManager:
    erin = memory.of("erin")
    await erin.add_message("kitchen", "user", text, message_id=message_id)
    await memory.note_detection.wait_until_idle()
    return erin


async def texts(manager: ConversationManager) -> list[str]:
    return [note.text for note in await manager.notes()]


@pytest.mark.requirement("001-003")
async def test_a_preference_said_in_one_conversation_is_in_the_next(memory: aforesaid.Memory) -> None:
    erin = await say(memory, "Turn the lights on. I prefer the lights dim in the evening!", message_id="m1")
    (note,) = await erin.notes(tag=DETECTED)
    assert note.text == "I prefer the lights dim in the evening"
    record = await erin.get_conversation("kitchen")
    assert note.source == Source(conversation_id=record.id, message_id="m1")
    await erin.add_message("bedroom", "user", "Good evening")
    context = await erin.load_context("bedroom")
    assert "I prefer the lights dim in the evening" in str(context.messages[0].content)
    assert await memory.of("bob").notes() == []


@pytest.mark.requirement("001-003")
async def test_an_undone_note_makes_the_replaced_one_valid_again(
    memory: aforesaid.Memory,
) -> None:
    erin = memory.of("erin")
    await erin.remember("I live in Rome", subject="where I live")
    await say(memory, "By the way, I live in Paris")
    (note,) = await erin.notes()
    assert (note.text, note.tags) == ("I live in Paris", (DETECTED,))
    assert [one.text for one in await erin.forget(note.id, keep_replaced=True)] == ["I live in Paris"]
    assert await texts(erin) == ["I live in Rome"]
    await say(memory, "I live in Oslo")
    (note,) = await erin.notes()
    await erin.forget(note.id)
    assert await erin.notes(history=True) == [], "without keep_replaced, all of the subject is gone"


async def test_nothing_is_detected_by_default() -> None:
    async with aforesaid.open("memory://") as memory:
        erin = await say(memory, "I prefer tea")
        assert await erin.notes() == []
        await erin.append("kitchen", [Message(role="user", content="Remember that I prefer tea")])
    config = ConversationConfig(detect_notes="rules")
    async with aforesaid.open("memory://", config=config) as memory:
        assert await texts(await say(memory, "I prefer tea")) == ["I prefer tea"]
    with pytest.raises(InvalidSetting, match="detector"):
        aforesaid.open("memory://", models=aforesaid.Models(detector="magic"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ("I love jazz.", "I love jazz"),
        ("I don’t like cilantro", "I don't like cilantro"),
        ("Hey, please call me Erin", "call me Erin"),
        ("I'm allergic to peanuts!", "I'm allergic to peanuts"),
        ("We are vegetarians", "We are vegetarians"),
        ("My favourite colour is green", "My favourite colour is green"),
        ("Our dog's name is Rex", "Our dog's name is Rex"),
        ("I work as a nurse", "I work as a nurse"),
        ("We have two kids", "We have two kids"),
        ("I usually get up at 6:30", "I usually get up at 6:30"),
        ("Always answer in German", "Always answer in German"),
        ("From now on, dim the lights at 9 pm", "dim the lights at 9 pm"),
        ("Remember that the spare key is with Ann", "the spare key is with Ann"),
        ("We keep the ladder in the garage", "We keep the ladder in the garage"),
        ("The heater is called Big Bertha", "The heater is called Big Bertha"),
    ],
)
def test_a_lasting_statement_is_a_note(said: str, noted: str) -> None:
    assert [note.text for note in notes_in_text(f"What is the time? Hm\n{said}\nThanks.")] == [noted]


@pytest.mark.parametrize(
    "said",
    [
        "Do I like jazz?",
        "I would like a table for two",
        "I'd prefer the window seat",
        "I like this one",
        "I like it if it rains",
        "Ann said I like jazz",
        "I am tired",
        "I work at home today",
        "My phone is dead",
        "Remember to buy milk",
        "Remember that my password is tulip",
        "My PIN is 1234",
        "Call me back later",
        "Turn on the lights",
        "I love " + "long stories " * 30,
        "",
    ],
)
def test_a_passing_or_secret_statement_is_none(said: str) -> None:
    assert list(notes_in_text(said)) == []


STATEMENTS = {
    "german": (
        "Ich mag Jazz", "Ich mag keinen Koriander", "Nenn mich Erin", "Ich bin allergisch gegen Erdnüsse",
        "Wir sind Vegetarier", "Meine Lieblingsfarbe ist Grün", "Unser Hund heißt Rex",
        "Ich arbeite als Pflegerin", "Wir haben zwei Kinder", "Ich stehe normalerweise um 6:30 Uhr auf",
        "Antworte immer auf Englisch", "Wir bewahren die Leiter in der Garage auf",
        "Ich trinke keinen Kaffee", "Ich wohne in Wien",
    ),
    "italian": (
        "Mi piace il jazz", "Non mi piace il coriandolo", "Mi chiamo Erin", "Sono allergica alle arachidi",
        "Siamo vegetariani", "Il mio colore preferito è il verde", "Il nostro cane si chiama Rex",
        "Lavoro come infermiera", "Abbiamo due figli", "Mangio sempre alle otto",
        "Rispondimi sempre in inglese", "Teniamo la scala nel garage", "Non bevo caffè", "Abito a Roma",
    ),
    "spanish": (
        "Me gusta el jazz", "No me gusta el cilantro", "Llámame Erin", "Soy alérgica a los cacahuetes",
        "Somos vegetarianos", "Mi color favorito es el verde", "Nuestro perro se llama Rex",
        "Trabajo como enfermera", "Tenemos dos hijos", "Siempre me levanto a las seis",
        "Responde siempre en inglés", "Guardamos la escalera en el garaje", "No bebo café",
        "Vivo en Madrid",
    ),
    "french": (
        "J'aime le jazz", "Je n'aime pas la coriandre", "Appelle-moi Erin",
        "Je suis allergique aux cacahuètes",
        "Nous sommes végétariens", "Ma couleur préférée est le vert", "Notre chien s'appelle Rex",
        "Je travaille comme infirmière", "Nous avons deux enfants", "Je me lève toujours à six heures",
        "Réponds toujours en anglais", "Nous rangeons l'échelle dans le garage", "Je ne bois pas de café",
        "J'habite à Paris",
    ),
    "dutch": (
        "Ik hou van jazz", "Ik hou niet van koriander", "Noem me Erin", "Ik ben allergisch voor pinda's",
        "We zijn vegetariërs", "Mijn lievelingskleur is groen", "Onze hond heet Rex",
        "Ik werk als verpleegkundige", "We hebben twee kinderen", "Ik sta meestal om half zeven op",
        "Antwoord altijd in het Engels", "We bewaren de ladder in de garage", "Ik drink geen koffie",
        "Ik woon in Utrecht",
    ),
}  # fmt: skip
NO_STATEMENTS = {
    "german": (
        "Mag ich Jazz?", "Ich möchte einen Tisch für zwei", "Ich mag das heute nicht",
        "Anna sagt, ich mag Jazz",
        "Anna mag Jazz", "Ich bin müde", "Ich arbeite heute zu Hause", "Mein Handy ist leer",
        "Vergiss nicht, Milch zu kaufen", "Merk dir, dass mein Passwort Tulpe ist", "Meine PIN ist 1234",
        "Mach das Licht an", "Ich mag es, wenn es regnet", "Meine Frau hat gesagt, wir wohnen in Wien",
    ),
    "italian": (
        "Mi piace il jazz?", "Vorrei un tavolo per due", "Oggi mi piace il silenzio",
        "Anna dice che mi piace il jazz", "A Anna piace il jazz", "Sono stanca", "Oggi lavoro da casa",
        "Il mio telefono è scarico", "Ricordati di comprare il latte",
        "Ricorda che la mia password è tulipano", "Il mio pin è 1234", "Accendi la luce",
        "Mi piace se piove", "Lei vive a Roma",
    ),
    "spanish": (
        "¿Me gusta el jazz?", "Me gustaría una mesa para dos", "Hoy me gusta el silencio",
        "Ana dice que me gusta el jazz", "A Ana le gusta el jazz", "Estoy cansada", "Hoy trabajo en casa",
        "Mi móvil no tiene batería", "Recuerda comprar leche", "Recuerda que mi contraseña es tulipán",
        "Mi pin es 1234", "Enciende la luz", "Me gusta si llueve", "Ella vive en Madrid",
    ),
    "french": (
        "Est-ce que j'aime le jazz ?", "Je voudrais une table pour deux", "Aujourd'hui j'aime le silence",
        "Anne dit que j'aime le jazz", "Anne aime le jazz", "Je suis fatiguée",
        "Je travaille à la maison aujourd'hui", "Mon téléphone est vide", "N'oublie pas d'acheter du lait",
        "Note que mon mot de passe est tulipe", "Mon code PIN est 1234", "Allume la lumière",
        "J'aime s'il pleut", "Elle habite à Paris",
    ),
    "dutch": (
        "Hou ik van jazz?", "Ik zou graag een tafel voor twee willen", "Ik hou vandaag niet van lawaai",
        "Anna zegt dat ik van jazz hou", "Anna houdt van jazz", "Ik ben moe", "Ik werk vandaag thuis",
        "Mijn telefoon is leeg", "Vergeet niet melk te kopen", "Onthoud dat mijn wachtwoord tulp is",
        "Mijn pincode is 1234", "Doe het licht aan", "Ik hou van regen als het warm is",
        "Zij woont in Utrecht",
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", STATEMENTS)
def test_a_lasting_statement_in_another_language_is_a_note(language: str) -> None:
    said = STATEMENTS[language]
    assert [note.text for note in notes_in_text("\n".join(said))] == list(said)


@pytest.mark.parametrize("language", NO_STATEMENTS)
def test_a_question_a_wish_or_another_persons_preference_is_none(language: str) -> None:
    found = [note.text for said in NO_STATEMENTS[language] for note in notes_in_text(said)]
    assert found == []


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("Ich mag Kaffee", "Ich mag keinen Kaffee"),
        ("Mi piace il caffè", "Non mi piace il caffè"),
        ("Me gusta el café", "No me gusta el café"),
        ("J'aime le café", "Je n'aime pas le café"),
        ("Ik hou van koffie", "Ik hou niet van koffie"),
    ],
)
def test_an_opposite_opinion_has_the_same_subject(first: str, then: str) -> None:
    (one,), (other,) = notes_in_text(first), notes_in_text(then)
    assert one.subject == other.subject
    assert one.subject is not None


async def test_an_opposite_opinion_replaces_the_first(memory: aforesaid.Memory) -> None:
    await say(memory, "I like coffee")
    erin = await say(memory, "I don't like coffee")
    assert await texts(erin) == ["I don't like coffee"]
    assert len(await erin.notes(history=True)) == 2


async def test_only_new_messages_of_the_user_are_searched(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    await erin.add_message("kitchen", "assistant", "I love jazz")
    await say(memory, "I love jazz", message_id="m1")
    (note,) = await erin.notes()
    await erin.forget(note.id)
    await say(memory, "I love jazz", message_id="m1")
    assert await erin.notes() == [], "a message that is sent again is not searched again"


async def test_a_note_that_is_known_keeps_its_first_source(memory: aforesaid.Memory) -> None:
    await say(memory, "I love jazz", message_id="m1")
    erin = await say(memory, "I love jazz", message_id="m2")
    (note,) = await erin.notes()
    assert note.source is not None
    assert note.source.message_id == "m1"


class Slow:
    """A detector that waits until the test continues."""

    name = "slow"

    def __init__(self) -> None:
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def detect(self, message: Message) -> Sequence[DetectedNote]:
        self.asked.set()
        await self.goes_on.wait()
        return [DetectedNote(text="The code is 42")]


async def test_a_message_erased_during_detection_leaves_no_note() -> None:
    slow = Slow()
    async with opened(detector=slow) as memory:
        erin = memory.of("erin")
        await erin.add_message("kitchen", "user", "The code is 42", message_id="m1")
        await erin.add_message("hall", "user", "The code is 42")
        waiting = asyncio.create_task(memory.note_detection.wait_until_idle())
        await slow.asked.wait()
        await erin.erase("kitchen")
        await erin.erase("hall")
        slow.goes_on.set()
        await waiting
        assert await erin.notes(history=True) == []


class Failing:
    name = "failing"

    async def detect(self, message: Message) -> Sequence[DetectedNote]:
        if message.content == "first":
            raise AgentUnavailable("the model is away")
        if message.content == "second":
            raise ValueError("a mistake in an application")
        return [DetectedNote(text="  ")] if message.content == "third" else [DetectedNote(text="I love jazz")]


async def test_a_failing_detector_affects_no_conversation(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(detector=Failing()) as memory:
        with caplog.at_level(logging.WARNING, logger="aforesaid.notes"):
            for text in ("first", "second", "third", "fourth"):
                erin = await say(memory, text)
        assert await texts(erin) == ["I love jazz"]
        assert (await erin.get_conversation("kitchen")).message_count == 4
    assert len([one for one in caplog.records if "no notes detected" in one.message]) == 3


class Model:
    """An agent that answers with this text."""

    name = "model"
    dialect = "plain"

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        self.asked.append(str(ask.messages[0].content))
        return Reply(messages=(Message(role="assistant", content=self.answer),))

    async def close(self) -> None:
        """Nothing to release."""


@pytest.mark.requirement("001-003")
async def test_the_callers_model_detects_in_any_language() -> None:
    model = Model('```json\n[{"text": "Erin trinkt keinen Kaffee", "subject": "Kaffee"}]\n```')
    async with opened(detector=AgentDetector(model)) as memory:
        erin = await say(memory, "Kaffee ist nichts für mich")
        await say(memory, "   ")
        (note,) = await erin.notes(tag=DETECTED)
        assert (note.text, note.subject) == ("Erin trinkt keinen Kaffee", "Kaffee")
    assert model.asked == ["Kaffee ist nichts für mich"]


@pytest.mark.parametrize("answer", ["nothing", "[1]", '{"text": "x"}'])
async def test_an_answer_that_is_no_list_of_notes_is_refused(answer: str) -> None:
    with pytest.raises(AgentUnavailable, match="JSON array"):
        await AgentDetector(Model(answer)).detect(Message(role="user", content="I love jazz"))


async def test_the_queue_is_bounded_and_processed_on_close(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(detector="rules") as memory:
        memory.note_detection = NoteDetection(memory.note_detection.detector, most_waiting=2)
        erin = memory.of("erin")
        for genre in ("jazz", "soul", "funk"):
            await erin.add_message("kitchen", "user", f"I love {genre}")
        await memory.note_detection.close()
        assert await texts(erin) == ["I love soul", "I love funk"]
        await say(memory, "I love rock")
        assert len(await texts(erin)) == 2, "closed"
