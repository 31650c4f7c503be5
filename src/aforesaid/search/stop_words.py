"""Stop words: neither indexed nor searched for.

English, and function words of German, Dutch, French, Spanish, Italian and Portuguese that are not content
words in another of these languages. A lookup uses the word without apostrophes and accents.
"""

_ENGLISH = """
a about above after again against all am an and any are aren't as at be because been before being below
between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each
few for from further had hadn't has hasn't have haven't having he he'd he'll he's her here here's hers herself
him himself his how how's i i'd i'll i'm i've if in into is isn't it it'd it'll it's its itself just let's me
more most my myself no nor not of off on once only or other our ours ourselves out over own same she she'd
she'll she's should shouldn't so some such than that that's the their theirs them themselves then there
there's these they they'd they'll they're they've this those through to too under until up very was wasn't we
we'd we'll we're we've were weren't what what's when when's where where's which while who who's whom why
why's will with won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
dont didnt doesnt isnt wasnt arent cant couldnt shouldnt wouldnt wont havent hasnt hadnt im ive youre thats
"""

_OTHERS = """
der das dem den des ein eine einen einem einer und oder aber ist sind nicht ich du er sie wir ihr mich dich
mir dir mein meine dein deine sein seine auf mit von zu zum zur im bei nach wie wo wer wann warum habe hast
het een en of maar niet ik jij hij zij wij mijn jouw zijn op met van voor naar bij hoe waar wie wanneer heb
le la les un une et ou mais est sont ne pas je tu il elle nous vous ils elles mon ma mes ton ta tes ce cette
ces dans avec pour sur que qui quand comment ai as du de au aux
el los las una unos unas y o pero es son yo ella nosotros mi mis su sus en con por para que quien cuando como
lo gli uno e ma sono non io lui lei noi voi mio mia tuo tua nel con per di da del della che chi quando come
os um uma ou mas eu ele ela nos meu minha seu sua em com por para do da dos das que quem quando como
"""

STOP_WORDS = frozenset(_ENGLISH.split()) | frozenset(_OTHERS.split())
