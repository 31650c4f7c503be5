"""Names: short forms and variants, given names by gender, common family names, titles."""

from aforesaid.contacts.words import words

SHORT_FORMS = """
robert: bob rob bobby robbie bert robbert
william: bill will billy willy liam wilhelm willem wim
richard: rick dick rich ricky richie
james: jim jimmy jamie jem
john: jack johnny jon jonny
jonathan: jon jonny nathan
michael: mike mick mickey micky mikey michel michi
christopher: chris kit topher
christine: chris chrissy tina christina christiane
christian: chris christiaan
christiane: chris
stephen: steve stevie steven
anthony: tony antony ton anton
andrew: andy drew andre
alexander: alex sandy xander sasha lex
alexandra: alex sandra sandy sasha lexi
edward: ed eddie ted ned
edmund: ed ned
theodore: ted teddy theo
thomas: tom tommy
daniel: dan danny
david: dave davy
matthew: matt matty
matthias: matti matze
joseph: joe joey jo
charles: charlie chuck chas karl carl carlos
george: georgie
henry: harry hank
harold: harry hal
gerald: gerry jerry
jeremy: jerry jez
lawrence: larry laurie lars
kenneth: ken kenny
ronald: ron ronnie
donald: don donny
douglas: doug dougie
gregory: greg
geoffrey: geoff jeff
jeffrey: jeff
benjamin: ben benny benji
samuel: sam sammy
samantha: sam sammy
nicholas: nick nicky nico klaus
nicole: nicky nikki
patrick: pat paddy rick
patricia: pat patty trish tricia
peter: pete
philip: phil pip
francis: frank fran
franklin: frank
frank: franky frankie
frederick: fred freddy freddie fritz
friedrich: fritz fred
albert: al bert bertie
alfred: al alf fred
arthur: art artie
raymond: ray
timothy: tim timmy
vincent: vince vinnie vin
walter: walt wally
zachary: zach zack
nathaniel: nate nat nathan
leonard: leo len lenny
leopold: leo poldi
bartholomew: bart
oliver: ollie olli
oscar: ossie
rupert: rupe
roderick: rod roddy
desmond: des
ezekiel: zeke
graham: gray
simon: si
dominic: dom nick
maximilian: max
abraham: abe
elizabeth: liz beth betty eliza lizzie betsy libby lisa bess elisabeth elise
margaret: maggie meg peggy marge margie greta rita madge
katherine: kate kathy katie kat kit kitty kay cathy kathi
catherine: cathy kate katie cat
kathleen: kathy kate katie
jennifer: jen jenny
jessica: jess jessie
rebecca: becky becca
deborah: deb debbie
barbara: barb babs
susan: sue susie suzy
susanne: susi sanne
victoria: vicky vicki tori
dorothy: dot dottie dolly
eleanor: ellie nell nora ella
helen: nell nellie lena
helena: lena leni
florence: flo florrie
florian: flo flori
beatrice: bea trixie
penelope: penny
caroline: carrie caro
charlotte: lottie charlie lotte
isabella: bella izzy
isabel: isa bel isabelle
abigail: abby gail
amanda: mandy
angela: angie
cassandra: cass cassie sandra
cecilia: ceci cissy
cynthia: cindy
gwendolyn: gwen
harriet: hattie
jacqueline: jackie
judith: judy
josephine: josie jo
madeleine: maddie
millicent: millie
michelle: shelly micky
natalie: nat
olivia: liv livvy
pamela: pam
sarah: sally sadie
stephanie: steph
tabitha: tabby
theresa: terry tess tessa
teresa: terry tess teresita
valerie: val
veronica: ronnie vero
virginia: ginny
winifred: winnie fred
miriam: mimi miri
matilda: tilly mattie
mathilde: tilda
hannah: hanni
johanna: hanna hanne hanneke jo
johannes: hans jo
hans: hansi
tobias: tobi
sebastian: basti seb
andreas: andi
wolfgang: wolfi
dieter: didi
juergen: juggi
jurgen: juggi
karlheinz: kalle
manfred: manni
siegfried: siggi
ulrich: uli
ulrike: uli
gisela: gisi
monika: moni
sabine: bine
petra: peti
friederike: rike frieda
anneliese: anne lisa
annegret: anne
francois: franck
jeanpierre: jp
gerard: gege
alexandre: alex
elodie: elo
mathieu: mat
jose: pepe chepe
josefina: pepa fina josefa
francisco: paco pancho curro fran
ignacio: nacho iñaki
guadalupe: lupe lupita
javier: javi
jesus: chus chuy
dolores: lola loli
consuelo: chelo
manuel: manolo lolo manu
enrique: quique kike
antonio: toni antonio
fernando: nando fer
eduardo: edu lalo
alberto: beto berto
roberto: beto berto
rafael: rafa
santiago: santi
isabella: isa
mercedes: merche
concepcion: concha conchita
pilar: pili
joaquin: quino ximo
rosario: charo
teresa: tere
hendrik: henk rik hein
pieter: piet peter
cornelis: kees cor nelis
johannes: jan joop johan
jacobus: koos jaap co
gerardus: gerard
adrianus: ad arie
wilhelmina: mina willie
elisabeth: els liesbeth betsie bep lisa lies
maria: mia ria marie mies
marieke: riek
rajesh: raj
mohammed: mo
dmitri: dima mitya
alexei: alyosha
ekaterina: katya
giovanni: gianni
alessandro: sandro ale
nikolaos: nikos
agnieszka: aga
tomasz: tomek
"""
"""Given name and its short forms."""

SAME_NAMES = """
sean shaun shawn shane
mohammed muhammad mohamed mohammad muhammed mohamad mehmet
dmitri dimitri dmitry dimitry
stephen steven stefan stephan steffen steve
matthias mathias
katherine catherine katharine kathryn kathrin katrin catharina katharina
jon john
eric erik erich
mark marc marcus markus
philip phillip philipp filip philippe
geoffrey jeffrey
alan allan allen
ann anne anna
sarah sara
zoe zoey
rainer reiner
jorg joerg
michelle michele
niklas nicolas nicholas
olaf olav
christian kristian
christine kristine kristin christin
carl karl
rudolf rudolph
joseph josef
susanne suzanne susan
lars laars
elizabeth elisabeth
jeffrey jeffery
mick mik
iain ian
louis luis lewis
teresa theresa
igor ihor
yusuf youssef yousef
ahmed ahmad
hussein hussain husein
"""
"""Given names in several spellings."""

FEMALE = words(
    """
    aafke abigail adele agathe agnes agnieszka aisha alba alejandra alexa alexandra alice alicia alina
    alison amanda amara amelia amelie amparo amy ana andrea angela angelika anita anja ann anna anne
    annegret anneke anneliese annemiek annette annie annika antje april araceli astrid audrey aurelie
    aurore ayse barbara beate beatrice beatriz becky belen beth bettina betty birgit blanca bridget
    brigitte britta camille carla carmen carol caroline cassandra catalina catherine cecile cecilia celine
    chantal charlotte chelsea chiara chloe christa christiane christina christine cindy claire clara
    claudia clemence colette concepcion consuelo cornelia cristina dagmar daniela daphne dawn debbie
    deborah deepa delphine denise diana dolores dominique donna doris dorothy edith eleanor elena elfriede
    elisa elisabeth elise elizabeth elke ella ellen elodie els elsa emilie emily emma erika esmee
    esperanza esther eugenia eva eve evelyn faith fatima femke fernanda fiona fleur floor flora florence
    frances francesca francoise franziska frieda friederike gabriela gabriele genevieve gertrud gisela
    giulia gloria grace graciela greetje greta guadalupe gudrun gwen gwendolyn hanna hannah hanneke
    hannelore harriet heather heidi heike helen helena helene helga helma henrietta hilda hilde hildegard
    hope ida ilse imogen ineke ines inge ingrid inmaculada ioana irene iris irma isabel isabella isabelle
    ivy jacqueline jana jane janet janine jantje jasmin jean jeanne jenna jennifer jenny jessica jill joan
    joanna johanna jolanda josefina josephine josiane joy joyce juana judith judy julia julie juliette
    june jutta kaatje karen karin kate katherine kathleen kathryn kathy katie katja katrin kay keiko kelly
    kerstin kim kirsten kristin lakshmi lara laura laurence lea leila lena leonor lieke lily linda lisa
    liz loes lola lorraine lotte louise lourdes lucia lucie lucy luise luz lydia maaike macarena madeleine
    maggie manon manuela margaret margarita margaux margot maria mariana marianne marie marieke marilyn
    marina marion mariska marisol marlene marloes marta martha martina martine mary mathilde matilda
    maureen may megan melanie mercedes mia michelle mieke millicent miriam molly monica monika monique
    montserrat nadia nancy natalia natalie natasha nathalie neeltje nell nicole nienke nieves nina noelia
    nora odette olga olivia ophelia paloma pamela pascale patricia paula pauline peggy penelope pepa petra
    petronella phoebe pilar polly priya rachel raquel rebecca regina renate rita roberta rocio roos rosa
    rosario rose rosemary roswitha ruth sabine sally samantha sandra sandrine sanne sara sarah saskia
    shannon sharon sheila shirley sietske sigrid silke silvia simone siobhan sofia sol solange soledad
    sonja sooah sophia sophie stella stephanie sue susan susana susanne suzanne svetlana sylvia sylvie
    tabitha tamara tanja tanya tatiana teresa thandiwe theresa therese tina tineke trudy ursula ute
    valentina valerie vanessa vera veronica veronika veronique victoria violet virginia virginie vivian
    wendy wilhelmina wilma winifred ximena yasmin yolanda yvette yvonne zoe zsofia
    """
)

MALE = words(
    """
    aaron abdul abraham adam adrian agustin ahmed alain alan albert alberto alejandro alessandro alex
    alexander alexandre alexis alfonso alfred alfredo ali alvaro anders andre andreas andres andrew andy
    angel anthony antoine anton antonio arjun arnaud arne arnold art arthur arturo august aurelien austin
    baptiste barnaby bart bartholomew bas bastian bastien ben bence benedict benito benjamin benno benoit
    bernard bernd bernhard bert bill bjoern bjorn bob boris bram brian bruce bruno camilo carl carlos
    carsten cedric cesar charles charlie chase chidi chris christian christoph christophe christopher
    claude clement colin conrad cor cornelis craig cristobal curtis cyril daan damien dan daniel dave
    david denis dennis derek desmond detlef didier diego dieter dietmar dirk dmitri domingo dominic don
    donald douglas drew duncan dylan eberhard eddie edgar edmund eduardo edward edwin egon emil emilio
    emmanuel enrique eric erich erik ernst erwin esteban ethan etienne eugen evan evert ezekiel fabien
    fabrice felipe felix ferdinand fernando florent florian francis francisco franck franco francois frank
    frans franz fred frederic frederick freek friedrich fritz gabriel gael gary gaston gauthier gavin
    geert geoffrey georg george gerald gerard gerardo gerd gerhard gerrit gijs gilbert gilles giovanni
    glenn gonzalo gordon graham grant greg gregory guido guillaume guillermo gunter gunther gustav gustave
    gustavo guy hannes hans harald harold harry hartmut hasan hassan hector heiko hein heiner heinrich
    heinz helmut hendrik henk henri henry herbert hermann hernan herve hiroshi holger horst howard hubert
    hugh hugo hugues hussein ian ignacio igor ingo isaac ismael ivan jaap jack jacob jacques jaime jakob
    james jamie jan jason javier jay jean jeanpierre jeffrey jelle jens jeremy jeroen jerome jesse jesus
    jim joachim joan joaquin jochen joe joel joep joerg johan johann johannes john jonas jonathan joost
    jordan jorg jorge joris jose josef joseph joshua juan juergen jules julian julien julio jurgen jurre
    justin kai karl karlheinz kees keith ken kenneth kevin klaus koen konrad koos kurt kwame kyle lars
    laurent lawrence leandro lee leendert leo leon leonard leonardo leopold lex liam loic lorenzo lothar
    louis luc lucas lucien ludovic ludwig luigi luis lukas lutz luuk maarten malcolm manfred manuel marc
    marcel marcelo marco marcos marcus marijn mario mark markus martijn martin mateo mathias mathieu
    mathis matt matthew matthias maurice mauricio max maxime maximilian maximo mees mehmet michael michel
    mickael miguel mike mikko miles minjun mohammed moritz morris muhammad nathan nathaniel neil nicholas
    nick nicolas niels nigel nikos nils noah noel norbert norman octavio oliver olivier omar oscar oskar
    oswald otto owen pablo pascal pascual patrick paul pedro peer peter phil philip philipp philippe
    pierre piet pieter pim quentin rainer rajesh ralf ralph ramiro ramon raoul raphael raul ravi ray
    raymond regis remi remy rene rens ricardo rich richard rick rik rob robert roberto robin roderick
    rodolfo rodrigo roel roger roland rolf romain roman ron ronald rory ross ruben rudolf rupert russell
    ruud ryan salvador samuel sander sanjay santiago scott sean sebastian sebastien sem serge sergio shaun
    siegfried simon sjaak sjoerd stan stanley stefan stephan stephane stephen steve steven stijn stuart
    sven sylvain ted terence teun theo theodore thibault thierry thijs thomas thorsten tijn tim timothy
    tobias todd tom tomas tomasz ton tony torsten trevor tristan tyler udo ulrich uwe valentin vicente
    victor vincent vladimir volker walter wayne wei werner wessel wilfried wilhelm will willem william wim
    winfried wolfgang wouter xavier yann yannick yves zachary
    """
)

FAMILY = words(
    """
    adams ahmed albrecht alexander ali allen allende alonso alvarez anderson andre andrews armstrong
    arnold austen austin bach bailey baker bakker barbier barker barnes barrett bauer baumann beck becker
    beckham beethoven bell bennett berger bergmann bernard berry bertrand biden bishop black blair blanc
    blanco boer bohm bonnet bos bosch bowie boyd boyer bradley brandt braun brooks brouwer brown bruin
    brun bryant burke burns busch bush butler byrne cabrera calvo campbell campos cano carlson carmona
    caron carpenter carr carroll carter castillo castro cervantes chan chang chapman chavez chen chevalier
    clapton clark clarke clement clinton cohen cole coleman collins columbus cook cooper cortes cox craig
    crawford crespo cruz cunningham dali daniels darwin david davidson davies davis day dean dekker
    delgado denis diaz dickens dietrich diez dijkstra dixon dominguez doyle dubois dufour dumas dumont
    duncan dunn dupont duran durand duval dylan edwards einstein elliott ellis engel esteban evans eyre
    fabre faure ferguson fernandez ferrer fischer fisher fleming fletcher flores fontaine ford foster
    fournier fox francis francois frank franke franklin fraser freeman friedrich fuchs fuentes fuller
    gaillard gallego garcia gardner garner garnier garrido gates gauthier gautier george gibson gil
    gilbert gill gimenez girard goethe gomez gonzales gonzalez goodman gordon graf graham grant gray green
    greene griffin gross guerin guerrero guillaume gunther gupta gutierrez haan haas hahn hall hamilton
    hansen hanson harper harris harrison hart hartmann harvey hawkins hayes heinrich hemingway henderson
    hendriks henry hermans hernandez herrera herrero herrmann hicks hidalgo hill hoekstra hoffman hoffmann
    hofmann holland holmes horn howard howell huber hudson hughes hunt hunter ibanez iglesias jackson
    jacobs jager jagger james jansen janssen jenkins jensen jimenez jobs johnson johnston jones jong
    jordan joseph jung kafka kaiser kaur keller kelley kelly kennedy khan kim king klein knight koch
    kohler kok konig koning kramer kraus kruger kuhn kuiper kuipers kumar lacroix lambert lane lang lange
    larson lasso laurent lawrence lawson leblanc leclerc lecomte lee leeuwen lefebvre lefevre legrand
    lehmann lemaire lennon leon leroux leroy lewis li lin linden little liu long lopez lorenzo lozano
    lucas ludwig lynch lynn maas macdonald madonna maier marchand marie marin marquez marshall martens
    martin martinez mason masson mathieu matthews mayer mccarthy mccartney mccoy mcdonald medina meer
    meier meijer mendez mendoza mercier merkel meunier meyer michel miller mills mitchell molina moller
    montgomery moore mora morales moreau morel moreno morgan morin morris morrison moya mozart mulder
    muller munoz murphy murray myers navarro nelson neumann newman newton nguyen nichols nicolas nieto
    niro noel nunez obama obrien oconnor oliver olson ortega ortiz orwell otto owens palmer parker pascual
    patel patterson payne peeters pena perez perkins perrin perry peters peterson petit pfeiffer philippe
    phillips picard picasso pierce pierre pohl pol porter post powell presley price prieto prins quinn
    ramirez ramos ray reed reid renaud reyes reynolds rice richard richards richardson richter riley
    rivera riviere robert roberts robertson robin robinson roche rodriguez roger rogers rojas romero rose
    ross roth rousseau roussel roux rowling roy rubio ruiz russell ryan saez sanchez sanders santana
    santiago santos sanz sauer schafer schiller schmid schmidt schmitt schmitz schneider scholz schouten
    schreiber schroder schubert schulte schultz schulz schulze schumacher schuster schwarz scott seidel
    serrano shah shakespeare sharma shaw silva simmons simon simpson sinatra singh smeets smit smith smits
    snyder soler sommer soto spencer stanley stein stephens stevens stewart stone suarez sullivan swift
    taylor thatcher thomas thompson thomson timmermans tolkien torres trump tucker turner twain tyler
    tyson vargas vasquez vazquez veenstra vega velasco verbeek verhoeven vermeulen vicente vidal vincent
    visser vliet vogel vogt voigt vos vries vrolijk wagner walker wallace walsh walter wang ward warren
    washington watkins watson weaver webb webber weber weiss welch wells werner west wheeler white wilde
    wilkinson willems williams williamson willis wilson winkler winter wit witt wolf wolff wong wood woods
    wright wu yang young zhang ziegler zimmermann
    """
)

_HIS_TITLES = words(
    """
    dhr don heer herr herrn hr lord m meneer mister monsieur mr senor sir sr
    """
)

_HER_TITLES = words(
    """
    dona fr frau fraulein lady madam madame mademoiselle mevr mevrouw miss missus mlle mme mrs ms mw
    senora senorita sra srta
    """
)

_ANYBODYS_TITLES = words(
    """
    docteur doctor doctora doktor dr dra ing mag prof profesor professeur professor
    """
)

TITLES = {
    **dict.fromkeys(_HIS_TITLES, "m"),
    **dict.fromkeys(_HER_TITLES, "f"),
    **dict.fromkeys(_ANYBODYS_TITLES, ""),
}
"""Title → gender: m, f or "" for either."""

ONLY_WITH_POINT = words(
    """
    don fr hr ing lady lord m mag sir sr
    """
)
"""Titles that are ordinary words or letters without a period or capital."""

PARTICLES = words(
    """
    abu al bin da das de del della den der di dos du e el ibn la las le los mac mc op s st t te ten ter
    van vom von y zu zur
    """
)

SUFFIXES = words(
    """
    esq ii iii iv jr md phd sr
    """
)

LEGAL_FORMS = words(
    """
    ab ag aps as bv cie co company corp corporation cv eurl ev gbr gmbh inc incorporated kft kg limited
    llc llp ltd nv ohg oy plc pty sa sarl sas sl slu spa srl sro ug vof
    """
)

COMPANY_WORDS = words(
    """
    academy agency agentur airlines apotheke associates atelier autohaus backerei baeckerei bakery bank
    bar bau bistro boulangerie builders cafe care catering center centre centro chiropractic cleaning
    clinic clinica clinique club coaching college construction consulting daycare delivery dental design
    diner electric electrical electronics engineering farm farms figli fils finance financial fitness
    florist foods foundation freight gallery garage garden gardens gastro group gruppe gym handel hospital
    hotel immobilien industries institute insurance it kitchen klinik laundry law legal librairie libreria
    logistics logistik market marketing media medical motors museum music nursery office optik partner
    partners pharmacy pizzeria plumbing praxis productions properties pub realty records rental repair
    restaurant salon schilders school schule security services shop software solutions sons spa sport
    sports stiftung store studio studios supplies surgery systems taxi team tech technik technologies
    technology theater theatre transport travel university verein verlag werkstatt winery works yoga
    zahnarztpraxis
    """
)
"""Words in company names that are rarely family names."""
