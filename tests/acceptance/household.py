"""A week of household talk, and questions about it: the part to tune on, and the part never tuned on."""

from typing import NamedTuple


class Asked(NamedTuple):
    """A question, and words of the statement that answers it; None if nothing that was said answers it."""

    question: str
    answer: str | None


# What was said, by day: a Monday first.
WEEK: tuple[tuple[str, ...], ...] = (
    (
        "The plumber comes on Thursday at 10.",
        "Mia has a swimming lesson every Tuesday at half past four.",
        "The wifi password is bluewhale42.",
        "I put the spare key under the third flower pot.",
        "It is raining again.",
        "We need more dishwasher tablets.",
    ),
    (
        "Dad's birthday is on the 14th of June.",
        "The boiler was serviced by Hartmann & Sons for 240 euros.",
        "Leo is allergic to peanuts.",
        "The cat threw up on the carpet.",
        "I paid the electricity bill.",
        "Grandma likes the lemon cake from Berg's bakery.",
    ),
    (
        "The car has to go to the inspection in October.",
        "Mia's teacher is called Mrs Albright.",
        "We decided to paint the hallway light green.",
        "The vet said that the cat must take a pill every evening.",
        "The bins are collected on Friday morning.",
        "Remember that I cannot eat shellfish.",
    ),
    (
        "The plumber fixed the leak behind the washing machine.",
        "The new fridge was delivered, and its warranty ends in 2031.",
        "Leo broke his glasses at football practice.",
        "My sister arrives on Saturday with the 15:42 train.",
        "Turn the music down a bit.",
    ),
    (
        "I parked the car in Garden Street, near the chemist.",
        "The babysitter is called Jana, and she takes 12 euros an hour.",
        "We watched the film about the lighthouse keeper.",
        "The window in the guest room does not close properly.",
        "Our neighbour Tom borrowed the ladder.",
    ),
    (
        "The dentist moved my appointment to the 3rd of May.",
        "I ordered a birthday present for Dad: a fountain pen.",
        "The tomato plants need water every two days.",
        "Mia wants to be a vet.",
        "The code of the garage door is 5512.",
    ),
    (
        "We had pancakes for breakfast.",
        "The smoke detector in the kitchen has a new battery.",
        "The insurance costs 38 euros a month.",
        "I lent my drill to Susanne.",
        "The school trip goes to the castle on Wednesday.",
    ),
)

TUNED: tuple[Asked, ...] = (
    Asked("When is the plumber coming?", "comes on Thursday at 10"),
    Asked("What's the wifi password?", "bluewhale42"),
    Asked("Where is the spare key?", "third flower pot"),
    Asked("When is Dad's birthday?", "14th of June"),
    Asked("Who serviced the boiler?", "Hartmann"),
    Asked("What is Leo allergic to?", "peanuts"),
    Asked("When are the bins collected?", "Friday morning"),
    Asked("What colour will the hallway be?", "light green"),
    Asked("What is the name of Mia's teacher?", "Albright"),
    Asked("When does my sister arrive?", "15:42"),
    Asked("Where did I park the car?", "Garden Street"),
    Asked("How much does the babysitter cost?", "12 euros an hour"),
    Asked("Who borrowed the ladder?", "Tom"),
    Asked("What did I order for Dad?", "fountain pen"),
    Asked("What is the code of the garage door?", "5512"),
    Asked("Who has my drill?", "Susanne"),
    Asked("Where does the school trip go?", "castle"),
    Asked("What did the vet say about the cat?", "pill every evening"),
    Asked("When is Mia's swimming lesson?", "half past four"),
    Asked("How often do the tomatoes need water?", "every two days"),
    Asked("What can I not eat?", "shellfish"),
    Asked("How long is the warranty of the fridge?", "2031"),
    Asked("When is my dentist appointment?", "3rd of May"),
    Asked("What does Grandma like?", "lemon cake"),
    Asked("Did I pay the electricity bill?", "paid the electricity bill"),
    Asked("Who is coming on Saturday?", "My sister arrives"),
    Asked("What is the capital of Mongolia?", None),
    Asked("When is Mum's birthday?", None),
    Asked("How tall is the church tower?", None),
)

# Never tuned on: the rules and bounds of the agent were fixed before these were asked.
HELD_OUT: tuple[Asked, ...] = (
    Asked("Which film did we watch?", "lighthouse keeper"),
    Asked("How much was the boiler service?", "240 euros"),
    Asked("What did we have for breakfast?", "pancakes"),
    Asked("When does the car need its inspection?", "October"),
    Asked("Which window doesn't close?", "guest room"),
    Asked("What does Mia want to be?", "Mia wants to be a vet"),
    Asked("How much is the insurance?", "38 euros"),
    Asked("What happened to Leo's glasses?", "broke his glasses"),
    Asked("Did anybody change the battery of the smoke detector?", "new battery"),
    Asked("What is the babysitter's name?", "Jana"),
    Asked("What did the plumber fix?", "leak behind the washing machine"),
    Asked("Which train does my sister take?", "15:42"),
    Asked("What do we need to buy for the dishwasher?", "dishwasher tablets"),
    Asked("Where does Grandma's cake come from?", "Berg's bakery"),
    Asked("When is the school trip?", "Wednesday"),
    Asked("What did the cat do to the carpet?", "threw up"),
    Asked("Which day do they pick up the rubbish?", "Friday morning"),
    Asked("When was the fridge delivered?", "fridge was delivered"),
    Asked("How do I open the garage?", "5512"),
    Asked("What do we do on Wednesday with the school?", "castle"),
    Asked("Which plants need water?", "tomato plants"),
    Asked("What is the name of our dog?", None),
    Asked("Who won the football world cup?", None),
)
