"""Short histories of everyday life with paraphrased questions: few words shared, often none.

Other sets ask whole sentences of long histories. People also type a word or two into a short one. The first
half was used to calibrate relevance; the second half was not.
"""

from datetime import UTC, datetime, timedelta

from aforesaid.model.messages import Message
from benchmarks.search_eval.labelled import LabelledSet, Person, Question, Spot

# Messages of a person, each with the questions that it answers.
_LIVES: dict[str, dict[str, tuple[str, ...]]] = {
    "garden": {
        "I planted leeks and carrots behind the shed.": ("vegetables", "what is growing in my garden?"),
        "The lawn mower broke, the blade is bent.": ("garden tools", "which machine is damaged?"),
        "Our cat Mimi had four kittens in May.": ("pets", "how many baby animals were born?"),
        "I paid 240 euros for the new greenhouse.": ("cost of the glass house", "how much did I spend?"),
        "The neighbour complains about the hedge.": ("trouble with the people next door",),
        "Water the tomatoes every evening.": ("when do plants need watering?",),
        "It will rain all week.": ("weather forecast",),
        "Please turn off the fountain at night.": ("switch off the water at bedtime",),
    },
    "health": {
        "I am allergic to nuts, remember that for recipes.": ("what can I not eat?", "food intolerance"),
        "The dentist wants to pull a wisdom tooth.": ("oral surgery", "problem with my teeth"),
        "I run five kilometres before breakfast.": ("morning exercise", "my sport"),
        "My blood pressure was too high last week.": ("medical results", "is my heart healthy?"),
        "I take my pills with dinner.": ("medicine", "when do I take my medication?"),
        "Doctor Weber is on holiday until Monday.": ("is my physician away?",),
        "I sleep badly when the street is loud.": ("trouble falling asleep because of noise",),
        "Thanks, good night!": (),
    },
    "family": {
        "My daughter Anna starts school in September.": ("education of my kid", "when do lessons begin?"),
        "My mother turns seventy on the third of June.": ("mum's birthday", "family celebration"),
        "We got married in Lisbon ten years ago.": ("our wedding", "where was the ceremony?"),
        "My brother lost his job at the factory.": ("unemployment", "who was fired?"),
        "Grandpa plays chess in the club on Fridays.": ("board games", "hobby of my grandfather"),
        "The babysitter comes at seven.": ("who looks after the children tonight?",),
        "Our son wants a bicycle for Christmas.": ("present for the boy", "gift ideas"),
        "OK": (),
    },
    "home": {
        "The plumber comes on Thursday to repair the kitchen tap.": ("water leak", "who fixes the sink?"),
        "The spare key is under the flower pot.": ("how do I get in without my keys?",),
        "We pay 950 euros of rent.": ("monthly cost of the apartment", "housing costs"),
        "Turn the heating in the bathroom to 22 degrees.": ("how warm is it in the shower room?",),
        "The washing machine makes a terrible noise.": ("laundry appliance is loud",),
        "The wifi password is written on the router.": ("internet access", "how do guests get online?"),
        "The bins are collected on Tuesday.": ("garbage day", "when is the trash picked up?"),
        "Thanks!": (),
    },
    "work": {
        "My boss moved the meeting to Friday.": ("appointment was rescheduled", "office calendar"),
        "I quit my job at the bank in March.": ("resignation", "when did I leave my employer?"),
        "The train to the office was late again.": ("commute problems", "delayed railway"),
        "I earn three thousand a month now.": ("my salary", "income"),
        "Maria from accounting helped me with the invoice.": ("which colleague supported me?",),
        "I give a talk about solar panels next week.": ("presentation on renewable energy",),
        "The printer on the second floor has no paper.": ("office equipment",),
        "Sure, sounds good.": (),
    },
    "travel": {
        "We fly to Rome on the tenth of August.": ("holiday plans", "trip to Italy"),
        "The hotel has a pool and no breakfast.": ("accommodation", "can I swim where we stay?"),
        "I lost my passport at the airport.": ("missing travel document", "what did I lose?"),
        "We want to see the Colosseum and the Vatican.": ("sightseeing", "tourist attractions"),
        "The rental car costs forty euros a day.": ("price of the vehicle", "hire a car"),
        "I get seasick on ferries.": ("feeling ill on boats",),
        "Pack the sunscreen and the blue suitcase.": ("luggage", "what goes in the bag?"),
        "Yes please": (),
    },
}
CALIBRATED_ON = ("garden", "health", "family")


def households(names: tuple[str, ...] | None = None) -> LabelledSet:
    """Return the histories as a set: those with these names, or those that calibrate nothing."""
    chosen = names or tuple(name for name in _LIVES if name not in CALIBRATED_ON)
    return LabelledSet(name="everyday", people=[_person(name) for name in chosen])


def _person(name: str) -> Person:
    started = datetime(2026, 3, 2, 8, tzinfo=UTC)
    messages, questions = [], []
    for at, (text, asked) in enumerate(_LIVES[name].items(), 1):
        messages.append(Message(role="user", content=text, timestamp=started + at * timedelta(hours=5)))
        questions += [
            Question(text=one, category="paraphrase", gold=frozenset({Spot(0, at)})) for one in asked
        ]
    return Person(name=name, sessions=[messages], questions=questions)
