"""Rules for sentences that state a preference or a lasting fact, one table per language.

A rule matches a whole sentence of the user about the user or the household. Its subject decides which earlier
note a new one replaces.
"""

import re
from typing import NamedTuple

Rule = tuple[re.Pattern[str], str | None]


class Language(NamedTuple):
    """The rules of one language."""

    start: re.Pattern[str]
    """Words before the statement: `by the way`."""
    ordered: re.Pattern[str]
    """`remember that`: whatever follows is a note."""
    passing: re.Pattern[str]
    """Words of a passing state, a wish, a doubt, or the statement of another person."""
    secret: re.Pattern[str]
    rules: tuple[Rule, ...]
    """Patterns, and the subject of their notes."""


def _language(
    *, start: str, ordered: str, passing: str, secret: str, rules: tuple[tuple[str, str | None], ...]
) -> Language:
    def compiled(pattern: str) -> re.Pattern[str]:
        return re.compile(pattern, re.IGNORECASE)

    return Language(
        start=compiled(rf"^(?:(?:{start})\b,?\s+)+"),
        ordered=compiled(rf"^(?:{ordered})\s+"),
        passing=compiled(rf"\b(?:{passing})\b"),
        secret=compiled(rf"\b(?:{secret})\b"),
        rules=tuple((compiled(pattern), subject) for pattern, subject in rules),
    )


_ME, _WE = r"(?:i am|i'm)", r"(?:i am|i'm|we are|we're)"
_OFTEN = r"(?:really |always |usually |absolutely |also |only |generally |strongly )*"
_LIKES = r"(?:like|love|enjoy|prefer|hate|dislike|adore|can't stand|cannot stand|don't mind)"
_NOT = r"(?:do not |don't |no longer |never )?"
_DIETS = r"(?:vegetarian|vegan|pescatarian|diabetic|coeliac|celiac)s?"
_TRAITS = r"(?:left-handed|right-handed|colou?r-?blind|deaf|blind|retired)"
_HABITS = r"(?:go|get|wake|eat|drink|have|take|work|sleep|watch|listen|leave)"
_RELATIVES = (
    r"(?:wife|husband|partner|girlfriend|boyfriend|son|daughter|child|mother|father|mum|mom|dad|sister"
    r"|brother|grandmother|grandfather|dog|cat|pet|boss|doctor|neighbou?r)"
)
_FAMILY = r"(?:dogs?|cats?|child(?:ren)?|kids?|sons?|daughters?|brothers?|sisters?)"
_ATTRIBUTES = (
    r"(?:favou?rite [\w ]+?|name|nickname|birthday|anniversary|bedtime|job|profession|address|time ?zone"
    r"|language|mother tongue|diet|shoe size|size|height|weight)"
)
ENGLISH = _language(
    start=r"please|by the way|btw|also|and|but|well|so|oh|hey|hi|hello|yes|no|ok(?:ay)?",
    ordered=r"(?:remember|note|keep in mind|don't forget)\s+that|from now on,?",
    passing=(
        r"today|tonight|tomorrow|yesterday|now|currently|at the moment|if|maybe|perhaps|would|could|might"
        r"|this (?:morning|afternoon|evening|week|time|one)|wish|guess|suppose|said|says|told|asked|kidding"
        r"|\w+'d"
    ),
    secret=(
        r"pass(?:word|code|phrase)|pin|cv[vc]|iban|(?:credit )?card|account number|secret|token|api key"
        r"|social security|ssn"
    ),
    rules=(
        (rf"(?:call me|{_ME} called) (?!back|later|when)\S+.*", "my name"),
        (rf"i {_OFTEN}{_NOT}{_OFTEN}{_LIKES} (?:it when |to )?(?P<of>.+)", "opinion of {of}"),
        (rf"{_WE} (?:allergic|intolerant) to (?P<of>.+)", "allergy to {of}"),
        (rf"{_WE} (?:an? )?{_DIETS}\b.*", "my diet"),
        (rf"{_ME} (?:an? )?{_TRAITS}\b.*", None),
        (rf"(?:my|our) {_ATTRIBUTES} (?:is|are) .+", None),
        (rf"(?:my|our) {_RELATIVES}(?:'s name is| is called| is named) .+", None),
        (rf"(?:my|our) {_RELATIVES}'s {_ATTRIBUTES} is .+", None),
        (r"(?:i|we) live (?:in|at|near|on) .+", "where I live"),
        (r"(?:i|we) work (?:in|at|as|for) .+", "where I work"),
        (rf"(?:i|we) have (?:an?|one|two|three|four|\d+) [\w ]*{_FAMILY}\b.*", None),
        (rf"(?:i|we) (?:always|usually|never) {_HABITS}\b .+", None),
        (r"(?:i|we) (?:don't|do not) (?:eat|drink|smoke)\b.*", None),
        (r"(?:always|never) [a-z]+ .+", None),
        (r"we keep .+ (?:in|on|under|behind|at) .+", None),
        (r"the [\w' -]+? (?:is|are) (?:called|named|kept|connected to|controlled by) .+", None),
    ),
)

_DE_NUMBERS = r"(?:einen?|eine|zwei|drei|vier|fünf|\d+)"
_DE_FAMILY = r"(?:hunde?|katzen?|kind(?:er)?|s(?:o|ö)hne?|t(?:o|ö)chter|br(?:u|ü)der|schwestern?)"
_DE_RELATIVES = (
    r"(?:frau|mann|partner(?:in)?|freund(?:in)?|sohn|tochter|kind|mutter|vater|mama|papa|schwester|bruder"
    r"|oma|opa|hund|katze|chef(?:in)?|arzt|ärztin|nachbar(?:in)?)"
)
_DE_ATTRIBUTES = (
    r"(?:lieblings\w+|name|spitzname|geburtstag|hochzeitstag|beruf|adresse|zeitzone|muttersprache|sprache"
    r"|schuhgröße|größe|gewicht)"
)
_DE_OFTEN = r"(?:immer|meistens|normalerweise|gewöhnlich|nie|niemals)"
GERMAN = _language(
    start=r"bitte|übrigens|außerdem|und|aber|also|ach|hey|hi|hallo|ja|nein|ok(?:ay)?",
    ordered=r"(?:merk(?:e)? dir|denk(?:e)? dran|denk(?:e)? daran|vergiss nicht),? dass|(?:ab jetzt"
    r"|von nun an),?",
    passing=(
        r"heute|morgen|gestern|jetzt|gerade|momentan|derzeit|im moment|falls|wenn|ob|vielleicht"
        r"|würden?|könnten?"
        r"|möchten?|hätten?|wären?|diesmal|sag(?:t|te|ten)|gesagt|mein(?:t|te|ten)|frag(?:t|te)"
        r"|erzähl(?:t|te)"
        r"|glaube|vermute|wünsch(?:e|te)"
    ),
    secret=r"passw(?:o|ö)rt(?:er)?|kennwort|pin|geheimzahl|tan|iban|kreditkarte|kontonummer|geheim\w*|token",
    rules=(
        (r"(?:nenn(?:e|t)? mich|ich heiße|man nennt mich) \S+.*", "mein Name"),
        (
            r"ich (?:mag|liebe|hasse|bevorzuge|genieße|verabscheue)(?: wirklich| sehr| auch| am liebsten)*"
            r"(?: kein(?:e|en|er)?)? (?P<of>.+?)(?: (?:gar |überhaupt )?nicht(?: mehr| so gern)?| sehr)?",
            "Meinung zu {of}",
        ),
        (r"(?:ich bin|wir sind) allergisch (?:gegen|auf) (?P<of>.+)", "Allergie gegen {of}"),
        (r"(?:ich vertrage|wir vertragen) kein(?:e|en|er)? (?P<of>.+)", "Allergie gegen {of}"),
        (
            r"(?:ich bin|wir sind) (?:vegetarier(?:in(?:nen)?)?|veganer(?:in(?:nen)?)?|vegetarisch|vegan"
            r"|diabetiker(?:in)?|pescetarier(?:in)?)\b.*",
            "meine Ernährung",
        ),
        (r"ich bin (?:links|rechts)händer(?:in)?|ich bin (?:farbenblind|taub|blind|rentner(?:in)?)", None),
        (rf"(?:meine?|unsere?) {_DE_ATTRIBUTES} (?:ist|sind|lautet) (?!nicht ).+", None),
        (rf"(?:meine?|unsere?) {_DE_RELATIVES} heißt .+", None),
        (r"(?:ich wohne|wir wohnen|ich lebe|wir leben) (?:in|im|bei|an|am|auf|nahe) .+", "wo ich wohne"),
        (r"(?:ich arbeite|wir arbeiten) (?:in|im|bei|beim|als|für) .+", "wo ich arbeite"),
        (rf"(?:ich habe|wir haben) {_DE_NUMBERS} [\w ]*{_DE_FAMILY}\b.*", None),
        (rf"(?:ich|wir) \w+ {_DE_OFTEN} .+", None),
        (r"(?:ich esse|ich trinke|wir essen|wir trinken) (?:kein(?:e|en)?|nie) .+|ich rauche nicht", None),
        (
            r"(?:antworte|sprich|sag|schreib|mach|schalte|dimme|nimm|verwende) (?:mir )?(?:immer"
            r"|nie|niemals) .+",
            None,
        ),
        (r"wir bewahren .+ (?:in|im|auf|unter|hinter|bei) .+ auf", None),
        (r"(?:der|die|das) [\w -]+? (?:heißt|hängt an|ist angeschlossen an) .+", None),
    ),
)

_IT_NUMBERS = r"(?:un[oa']?|due|tre|quattro|cinque|\d+)"
_IT_FAMILY = r"(?:can[ei]|gatt[oia]|figli[oa]?|figlie|bambin[oiae]|fratell[oi]|sorell[ae])"
_IT_RELATIVES = (
    r"(?:moglie|marito|compagn[oa]|fidanzat[oa]|figli[oa]|madre|padre|mamma|papà|sorella|fratello|nonn[oa]"
    r"|cane|gatt[oa]|capo|medico|vicin[oa])"
)
_IT_ATTRIBUTES = (
    r"(?:[\w ]+ preferit[oaie]|nome|soprannome|compleanno|anniversario|lavoro|professione|indirizzo"
    r"|fuso orario|lingua(?: madre)?|numero di scarpe|taglia|altezza|peso)"
)
ITALIAN = _language(
    start=r"per favore|comunque|a proposito|inoltre|e|ma|allora|beh|ehi|ciao|sì|no|ok(?:ay)?",
    ordered=r"(?:ricordati|ricorda|tieni presente|non dimenticare) che|d'ora in poi,?",
    passing=(
        r"oggi|stasera|stamattina|domani|ieri|adesso|ora|in questo momento|attualmente|se|forse"
        r"|vorrei|vorremmo"
        r"|potrei|potrebbe|sarebbe|magari|stavolta|ha detto|hanno detto|dice|dicono|diceva|chiede|chiesto"
        r"|credo|penso|suppongo"
    ),
    secret=r"password|pin|codice segreto|iban|carta di credito|numero di conto|segreto|token",
    rules=(
        (r"(?:chiamami|mi chiamo) (?!dopo|più tardi|quando)\S+.*", "il mio nome"),
        (r"(?:non )?mi (?:piace|piacciono)(?: molto| tanto| più)* (?P<of>.+)", "opinione su {of}"),
        (r"(?:non )?(?:amo|adoro|odio|detesto|preferisco|sopporto) (?P<of>.+)", "opinione su {of}"),
        (r"(?:sono|siamo) (?:allergic[oahi]+|intollerant[ei]) (?:a|al|allo|alla|all'|ai|agli"
         r"|alle) ?(?P<of>.+)",
         "allergia a {of}"),
        (r"(?:sono|siamo) (?:vegetarian[oai]|vegan[oai]|diabetic[oahi]+|celiac[oahi]+)\b.*", "la mia dieta"),
        (r"sono (?:mancin[oa]|destrors[oa]|daltonic[oa]|sord[oa]|ciec[oa]|pensionat[oa])", None),
        (rf"(?:il|la|i|le) (?:mio|mia|miei|mie|nostr[oaie]) {_IT_ATTRIBUTES} (?:è|sono) .+", None),
        (rf"(?:(?:il|la) )?(?:mio|mia|nostr[oa]) {_IT_RELATIVES} si chiama .+", None),
        (r"(?:vivo|viviamo|abito|abitiamo) (?:a|ad|in|nel|nella|vicino|con) .+", "dove vivo"),
        (r"(?:lavoro|lavoriamo) (?:a|in|come|per|da|presso|nel|nella) .+", "dove lavoro"),
        (rf"(?:ho|abbiamo) {_IT_NUMBERS} ?[\w ]*{_IT_FAMILY}\b.*", None),
        (r"(?!(?:lui|lei|loro)\b)(?:io |noi )?(?:\w+o|\w+iamo) (?:sempre|di solito|mai) .+", None),
        (r"non (?:mangio|mangiamo|bevo|beviamo|fumo|fumiamo)\b.*", None),
        (r"(?:rispondi(?:mi)?|parla(?:mi)?|scrivi(?:mi)?|usa|accendi|spegni) sempre .+", None),
        (r"(?:teniamo|conserviamo) .+ (?:in|nel|nella|nello|sul|sulla|sotto|dietro) .+", None),
        (r"(?:il|lo|la|l') ?[\w -]+? (?:si chiama|è collegat[oa] a) .+", None),
    ),
)  # fmt: skip

_ES_NUMBERS = r"(?:un|una|dos|tres|cuatro|cinco|\d+)"
_ES_FAMILY = r"(?:perr[oa]s?|gat[oa]s?|hij[oa]s?|niñ[oa]s?|herman[oa]s?)"
_ES_RELATIVES = (
    r"(?:mujer|esposa|marido|esposo|pareja|novi[oa]|hij[oa]|madre|padre|mamá|papá|herman[oa]|abuel[oa]"
    r"|perr[oa]|gat[oa]|jef[ea]|médic[oa]|vecin[oa])"
)
_ES_ATTRIBUTES = (
    r"(?:[\w ]+ (?:favorit[oa]s?|preferid[oa]s?)|nombre|apodo|cumpleaños|aniversario|trabajo|profesión"
    r"|dirección|zona horaria|lengua(?: materna)?|idioma|talla|altura|peso)"
)
SPANISH = _language(
    start=r"por favor|por cierto|además|también|y|pero|bueno|pues|oye|hola|sí|no,|vale|ok(?:ay)?",
    ordered=r"(?:recuerda|ten en cuenta|no olvides|apunta) que|(?:a partir de ahora|de ahora en adelante),?",
    passing=(
        r"hoy|esta (?:noche|tarde|mañana|vez|semana)|mañana|ayer|ahora|actualmente|en este momento|si|quizás?"
        r"|tal vez|querría|quisiera|podría|sería|gustaría|dijo|dijeron|dice|dicen|pregunt[aó]|creo|supongo"
    ),
    secret=r"contraseña|clave|pin|iban|tarjeta(?: de crédito)?|número de cuenta|secreto|token",
    rules=(
        (r"(?:llámame|me llamo) (?!luego|después|cuando)\S+.*", "mi nombre"),
        (
            r"(?:a mí )?(?:no )?me (?:gustan?|encantan?|molestan?|disgustan?)(?: mucho| más)* (?P<of>.+)",
            "opinión sobre {of}",
        ),
        (r"(?:no )?(?:yo )?(?:amo|adoro|odio|detesto|prefiero|soporto) (?P<of>.+)", "opinión sobre {of}"),
        (r"(?:soy|somos) (?:alérgic[oa]s?|intolerantes?) (?:a|al) (?P<of>.+)", "alergia a {of}"),
        (r"(?:soy|somos) (?:vegetarian[oa]s?|vegan[oa]s?|diabétic[oa]s?|celíac[oa]s?)\b.*", "mi dieta"),
        (r"(?:soy|estoy) (?:zurd[oa]|diestr[oa]|daltónic[oa]|sord[oa]|cieg[oa]|jubilad[oa])", None),
        (rf"(?:mi|mis|nuestr[oa]s?) {_ES_ATTRIBUTES} (?:es|son) .+", None),
        (rf"(?:mi|nuestr[oa]) {_ES_RELATIVES} se llama .+", None),
        (r"(?:vivo|vivimos) (?:en|cerca de|con) .+", "dónde vivo"),
        (r"(?:trabajo|trabajamos) (?:en|como|para|de|con) .+", "dónde trabajo"),
        (rf"(?:tengo|tenemos) {_ES_NUMBERS} [\w ]*{_ES_FAMILY}\b.*", None),
        (r"(?:siempre|nunca|normalmente) (?:me |nos )?(?:\w+o|\w+[aei]mos|voy|doy)\b .+", None),
        (r"no (?:como|comemos|bebo|bebemos|fumo|fumamos)\b.*", None),
        (r"(?:responde(?:me)?|habla(?:me)?|escribe(?:me)?|usa|enciende|apaga) siempre .+", None),
        (r"guardamos .+ (?:en|sobre|debajo de|detrás de) .+", None),
        (r"(?:el|la) [\w -]+? (?:se llama|está conectad[oa] a) .+", None),
    ),
)

_FR_NUMBERS = r"(?:une?|deux|trois|quatre|cinq|\d+)"
_FR_FAMILY = r"(?:chiens?|chiennes?|chats?|chattes?|enfants?|fils|filles?|frères?|sœurs?|soeurs?)"
_FR_RELATIVES = (
    r"(?:femme|mari|compagn(?:on|e)|copine?|fils|fille|enfant|mère|père|maman|papa|sœur|soeur|frère"
    r"|grand-mère|grand-père|chien(?:ne)?|chat(?:te)?|chef(?:fe)?|médecin|voisine?)"
)
_FR_ATTRIBUTES = (
    r"(?:[\w ]+ préférée?s?|nom|prénom|surnom|anniversaire|métier|profession|travail|adresse|fuseau horaire"
    r"|langue(?: maternelle)?|pointure|taille|poids)"
)
FRENCH = _language(
    start=r"s'il te plaît|s'il vous plaît|au fait|d'ailleurs|aussi|et|mais|alors|bon|hé|salut"
        r"|bonjour|oui|non|ok",
    ordered=(
        r"(?:souviens-toi|rappelle-toi|note|n'oublie pas|retiens) (?:que|qu')|(?:désormais"
        r"|à partir de maintenant),?"
    ),
    passing=(
        r"aujourd'hui|ce (?:soir|matin)|cette (?:fois|semaine|nuit)|demain|hier|maintenant|en ce moment"
        r"|actuellement|si|s'il|peut-être|voudrais|voudrait|pourrais|pourrait|aimerais|aimerait|serait|a dit"
        r"|ont dit|dit|disait|demande|crois|suppose"
    ),
    secret=r"mot de passe|code (?:pin|secret|confidentiel)|pin|iban|carte (?:bancaire|de crédit)"
        r"|secret|token",
    rules=(
        (r"(?:appelle-moi|appelez-moi|je m'appelle) (?!plus tard|quand)\S+.*", "mon nom"),
        (
            r"(?:je (?:n')?|j')(?:aime|adore|déteste|préfère|supporte)(?: vraiment| beaucoup| bien| plutôt)*"
            r"(?: pas| plus)?(?: du tout)? (?P<of>.+)",
            "avis sur {of}",
        ),
        (r"je ne supporte (?:pas|plus) (?P<of>.+)", "avis sur {of}"),
        (r"(?:je suis|nous sommes|on est) (?:allergiques?|intolérante?s?) (?:à la|à l'|à|au|aux) ?(?P<of>.+)",
         "allergie à {of}"),
        (r"(?:je suis|nous sommes|on est) (?:végétarien(?:ne)?s?|végane?s?|vegane?s?|diabétiques?"
         r"|cœliaques?)\b.*",
         "mon régime"),
        (r"je suis (?:gauch(?:er|ère)|droiti(?:er|ère)|daltonien(?:ne)?|sourde?|aveugle|retraitée?)", None),
        (rf"(?:mon|ma|mes|notre|nos) {_FR_ATTRIBUTES} (?:est|sont) .+", None),
        (rf"(?:mon|ma|notre) {_FR_RELATIVES} s'appelle .+", None),
        (r"(?:j'habite|nous habitons|on habite|je vis|nous vivons) (?:à|au|en|dans|près|chez|avec) .+",
         "où j'habite"),
        (r"(?:je travaille|nous travaillons) (?:à|au|en|dans|chez|comme|pour) .+", "où je travaille"),
        (rf"(?:j'ai|nous avons|on a) {_FR_NUMBERS} [\w ]*{_FR_FAMILY}\b.*", None),
        (r"(?:je|nous) (?:me |nous )?\w+ (?:toujours|d'habitude|généralement) .+", None),
        (r"(?:je|nous) ne (?:mange|mangeons|bois|buvons|fume|fumons) (?:pas|jamais|plus)\b.*", None),
        (r"(?:réponds(?:-moi)?|parle(?:-moi)?|écris(?:-moi)?|utilise|allume|éteins) toujours .+", None),
        (r"(?:nous gardons|nous rangeons|on range|on garde) .+ (?:dans|sur|sous|derrière|au|à la) .+", None),
        (r"(?:le|la|l') ?[\w -]+? (?:s'appelle|est connectée? à|est branchée? sur) .+", None),
    ),
)  # fmt: skip

_NL_NUMBERS = r"(?:een|één|twee|drie|vier|vijf|\d+)"
_NL_FAMILY = r"(?:hond(?:en)?|kat(?:ten)?|kind(?:eren)?|zo(?:on|nen)|dochters?|broers?|zus(?:sen)?)"
_NL_RELATIVES = (
    r"(?:vrouw|man|partner|vriend(?:in)?|zoon|dochter|kind|moeder|vader|mama|papa|zus|broer|oma|opa|hond|kat"
    r"|baas|dokter|huisarts|buurman|buurvrouw)"
)
_NL_ATTRIBUTES = (
    r"(?:lievelings\w+|favoriete [\w ]+?|naam|bijnaam|verjaardag|trouwdag|beroep|baan|adres|tijdzone|taal"
    r"|moedertaal|schoenmaat|maat|lengte|gewicht)"
)
DUTCH = _language(
    start=r"alsjeblieft|trouwens|ook|en|maar|nou|dus|hé|hoi|hallo|ja|nee|oké|ok",
    ordered=r"(?:onthoud|vergeet niet|denk eraan) dat|(?:voortaan|vanaf nu),?",
    passing=(
        r"vandaag|vanavond|vanochtend|morgen|gisteren|nu|momenteel|op dit moment"
        r"|(?<!werk )(?<!werken )als|indien|misschien|zou(?:den)?"
        r"|kunnen|wil(?:len)? graag|deze keer|zei(?:den)?|zegt|zeggen|vroeg|vraagt|denk|geloof|vermoed|wens"
    ),
    secret=r"wachtwoord|pincode|pin|iban|creditcard|bankpas|rekeningnummer|geheim\w*|token",
    rules=(
        (r"(?:noem me|ik heet) (?!later|straks)\S+.*", "mijn naam"),
        (
            r"ik (?:haat|verafschuw|prefereer|waardeer|bewonder|hou(?:d)?)(?: echt| veel| heel erg)*"
            r"(?: niet)?(?: van)? (?P<of>.+?)(?: niet)?",
            "mening over {of}",
        ),
        (r"ik (?:vind) (?P<of>.+?) (?:niet )?(?:lekker|leuk|mooi|fijn|vreselijk|vies)", "mening over {of}"),
        (r"(?:ik ben|we zijn|wij zijn) allergisch voor (?P<of>.+)", "allergie voor {of}"),
        (r"(?:ik ben|we zijn|wij zijn) (?:vegetariërs?|veganist(?:en)?|vegetarisch|veganistisch|diabeet)\b.*",
         "mijn dieet"),
        (r"ik ben (?:linkshandig|rechtshandig|kleurenblind|doof|blind|gepensioneerd)", None),
        (rf"(?:mijn|ons|onze) {_NL_ATTRIBUTES} (?:is|zijn) .+", None),
        (rf"(?:mijn|ons|onze) {_NL_RELATIVES} heet .+", None),
        (r"(?:ik woon|we wonen|wij wonen) (?:in|op|bij|aan|vlakbij) .+", "waar ik woon"),
        (r"(?:ik werk|we werken|wij werken) (?:in|bij|als|voor|op) .+", "waar ik werk"),
        (rf"(?:ik heb|we hebben|wij hebben) {_NL_NUMBERS} [\w ]*{_NL_FAMILY}\b.*", None),
        (r"(?:ik|we|wij) \w+ (?:altijd|meestal|gewoonlijk|nooit) .+", None),
        (r"(?:ik eet|ik drink|we eten|we drinken) geen .+|ik rook niet", None),
        (r"(?:antwoord|spreek|schrijf|gebruik|dim|zet|doe) (?:altijd|nooit) .+", None),
        (r"(?:we|wij) bewaren .+ (?:in|op|onder|achter|bij) .+", None),
        (r"(?:de|het) [\w -]+? (?:heet|is aangesloten op) .+", None),
    ),
)  # fmt: skip

LANGUAGES = (ENGLISH, GERMAN, ITALIAN, SPANISH, FRENCH, DUTCH)
