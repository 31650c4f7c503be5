"""Common words, including those that are also names, and words that occur next to names."""

from aforesaid.contacts.words import words

ENGLISH = words(
    """
    a about above accept according account across act actually add address after again against age ago
    agree air airport alert all allow almost alone along already also although always am amount an and
    animal announce another answer any anybody anyone anything apparently apply appointment april are area
    arm around arrive art article as ask asked at attach august aunt austin author autumn away baby back
    bad bag baker bakery ball band bank banks bar barber base basket bath bay be beach bean bear beautiful
    became because become bed bedroom been beer before began begin behind being bell below besides best
    better between bicycle big bill billing bird birthday bishop black blue board boat body book border
    boss both bottle bottom box boy branch bread break bridge bring brook brooks brother brought brown
    brush build building burn bus bush business busy but butcher butter button buy by cake calendar call
    called came can cancel cap car card care carpenter carry case cash castle cat catch centre chair
    chance change channel charge chase cheap check cheese chef chelsea chicken child children chip chips
    christmas church circle city class clay clean clear clerk client clients cliff climb clock close
    closed cloth cloud coat code coffee cold colleague colour come confirm contact cook cool copy corn
    corner corny cost could country course court cousin cover cow create cross crowd cry cup currently
    customer customers cut daily dale damaged dance dark date daughter dawn day days dean dear december
    decide deep deer definitely deliver delivery dental dentist deposit describe desk despite detail did
    die different dinner direction discount dish dispute do doctor does dog done door double down draft
    draw dream dress drew drink drive driver drop dry due during dust each ear early earn earth east
    easter easy eat egg eight either electrician electricity eleven else email empty end enough enter
    entry equal eve even evening ever every everybody everyone everything exam example except exit expect
    explain eye fable face fact fair faith fall family famous far farm farmer fast father favourite fax
    fear february feed feel feet felt fence few field fields fifth fifty fight fill film final finally
    finch find fine finger finish fire firm first fish fisher fit five fix flat flight floor florence
    flower flowers fly fold follow food foot for force ford forest forget fork form forty forward four
    fourth fox frank free freeze fresh friday friend from front frost fruit full fun funny furniture game
    garage garden gardener gas gate gave general gentle get gift girl give glad glass glue go goal god
    going gold gone good grace graceful grand grandma grandpa grant grass gray great green greet grew grey
    ground group grow guess guest guide guitar guy had hair half hall hand hang happen happy harbor
    harbour hard hart harvest has hat hate have hawk hay hazel he head hear heart heat heather heating
    heavy held hello help helper her here hers herself hey hi hidden high hill him himself his history hit
    hold hole holiday holly holy home honest hope hopefully horse hospital hot hotel hour house how
    however huge human hundred hung hungry hunt hunter hurry hurt husband i ice idea if ill important in
    inch indeed information inn inside instead interest into invite invoice iris iron is island it item
    its ivy jack jam january jasmine jewel job join joke jordan journey joy juice july jump june just keen
    keep kept key keys kid kind king kitchen knee knew knife knight know lab lady lake lamb lamp land
    landlord landmark lane language large last late later laugh law lawn lawyer lay lead leaf learn lease
    least leather leave led left leg lemon less lesson let letter level library lie life light lights like
    lily line list listen little live lock log long look lord lose lost lot loud love low luck lunch
    machine mad made mail main make man manager many march mark marker market marketing marsh mason master
    match matter may maybe me meal mean meanwhile meat meet meeting member memory men menu message metal
    michaelmas middle might mile miles milk mill miller million mind mine minute miss mobile moment monday
    money month moon more morning most mother mountain mouse mouth move much museum music must my myself
    name narrow nature near neck need neighbour never new news newspaper next nice night nine no nobody
    noise none noon nor north nose not note nothing notice notify november now number nurse oak october
    odd of off offer office often oil old olive on once one onion only open or orange orchid order other
    others our ours out oven over own owner owns page paid paint pair palace palm paper parcel paris park
    part party pass past path patience patient pay pearl pen pence penny people pepper perhaps period
    person phone photo piano pick picture piece pierce pig pike ping pink pipe place plan plane plant
    plate play please plumber plumbing pocket point poor pope poppy port porter post pot potato pound pour
    powder power prepare present press pretty price prices priest prince print prize problem prudence pub
    public pull purple push put queen question quick quiet quite quote rain ran rather ray reach read
    ready real really reason receive recently record red reed refund regarding regards reject remark
    remember remind remove rent repair repairs reply report reports reschedule reserve rest restaurant
    return rice rich ride right ring rise river rivers road rob robin rock roll roof room rope rose
    rosemary round row ruby rule run sad safe sage said sail sailor salad sale salt same sample sand
    sandwich sandy sat saturday savannah save saw say scale schedule school sea season seat second secret
    see seed seem seen sell send sense sent september serve service set seven several shade shake shall
    shape share sharp she sheep shelf shepherd shine ship shirt shoe shop short should shout show shower
    shut sick side sign signature silver simple since sing sister sit six size skin skip skirt sky sleep
    slow small smell smile smirked smoke snow so soap soft sold soldier some somebody somehow someone
    something sometimes son song soon sorry sort sound soup south spa space speak special speed spell
    spend spoon spot spring square stage stair stamp stand star start state station stay steel step stick
    still stone stop store storm story straight strange street string strong such sudden sugar suggest
    suit summarise summarize summer sun sunday sunny sure surname sweet swim table tailor take talk tall
    tank tap tax taxi tea teach teacher team technology tell ten tenant tent term test text than thank
    thanks that the their them then there therefore these they thick thin thing things think third this
    those though thousand three through throw thursday ticket tie tile tiles till time timer tin tire
    tired title to today together told tomorrow tonight too took tool tooth top total touch towards tower
    town toy track trade traffic train travel tree trip trouble truck true trust truth try tuesday turn
    turner twelve twenty twice two type umbrella uncle under unfortunately unit until up update upload
    upon upset us use used useful usual vacation vale valley van vase very video view village violet visit
    voice wait wake walk walker wall want war ward warm warranty was wash watch water way we weak weather
    weaver wednesday week weeks welcome well wells went were west wet what wheel when where whether which
    while whisper white who whole whom whose why wide wife wild will willing willow win wind window wine
    wing winner winter wire wise wish with within without woke wolf woman women wonder wood woods wool
    word work worker world worry worse worst would write wrong yard year years yellow yes yesterday yet
    you young your yours yourself zero
    """
)

GERMAN = words(
    """
    ab abend aber acht alle alles als also alt am an ander anders angebot anruf anrufen antwort april
    arbeit arm art arzt auch auf aufgabe auftrag auge august aus auto backer bad bahn bald ball bank bar
    bauer baum becker bei beide bein beispiel bekommen berg beruf beschwert besser best bestell bestelle
    bestellt besuch betrag bett bezahlen bezahlt bild bin bis bist bitte blau bleiben blume blumen boden
    brandt brauchen braucht braun brief bring bringen bringt brot brucke bruder buch buche buro chef da
    dach damit danach dank danke dann darf das dass dein dem den denn der des deshalb deutsch dezember
    dich dick die dienstag dieser ding dir doch donnerstag dorf dort drei du dunkel durch durfen echt ecke
    ei eigen ein eine einem einen einer eines einfach einige einmal eis eltern ende endlich engel er
    erinnere erst erste erstelle es essen etwa etwas euch euer fahren fahrt falsch familie farbe fast
    februar fehlt feld fenster ferien fertig fest feuer film finden firma fisch fischer flasche fleisch
    flur frag frage fragen frau frei freitag freund freunde freundin frisch froh fruh fruher fuchs fuhlen
    fur fuss gab ganz garten gast geben gebracht geburtstag gefragt gegen gehen geht gelb geld gemacht
    genau genug gern gesagt gestern gesund gib gibt glas gleich gluck gold gott grau gross grosse grossen
    grun grund gruppe gut guten haar haare haben hahn halb hallo hand hat hatte hatten haus heft heiss
    heissen heizung helfen hell hemd herbst herr herren herz heute hier hilfe himmel hin hinter hirsch
    hoch hof hoffen hol holen holz horen hose hund hunger ich ihm ihn ihnen ihr ihre im immer in ins ist
    ja jager jahr januar jede jeder jemand jetzt jugend juli jung junge jungen juni kaffee kaiser kalt kam
    kann karte kase kasse katze kaufen kein keine keller kennen kind kinder klar klasse klein kleinen klug
    koch kohl kollege kommen kommt konig konnen kopf kosten kostenvoranschlag krank kraus krieg kuche
    kuchen kunde kunden kundin kurz kuss lachen laden lamm lampe land lang lange lassen laufen laut leben
    lecker leer legen lehrer leicht leider leite lernen lesen letzte leute licht lieb lieber lied
    lieferung liegen links los luft lust mach mache machen macht madchen mahnung mai mal man manche mann
    markt marz maus meer mehr mein meine meinen meist mensch mich milch minute mir mit mittag mittwoch
    mochte monat mond montag morgen mude mull mullabfuhr muller mund musik muss mussen mutter nach nachbar
    nachbarn nachricht nachste nacht name nase nass natur neben nehmen nein nett neu neue neun nicht
    nichts nie niemand nimm noch nordwind november nun nur ob oben obst oder ofen offen oft ohne ohr
    oktober oma onkel opa ort paar paket papier park pfeffer pferd plane platz polizei post preis probe
    punkt rabatt rad radio ratte raum rechnung recht rechts reden regen reich reis reise reklamiert
    richter richtig ring ritter rock rose rot ruck rucken ruf rufe rufen ruhe rund sache sachen sag sage
    sagen sagt salz samstag satz sauer schafer schalte schenken schick schicke schicken schlaf schlafen
    schlecht schloss schlussel schmied schnee schneider schnell schon schrank schreib schreiben schreiber
    schreiner schuh schuld schule schulter schuster schwarz schwer schwester sechs see seele sehen sehr
    sein seine seit seite sende september setzen sich sicher sie sieben silber sind singen sitzen so sofa
    sofort sohn soll sollen sommer sonne sonntag spat spater spiel spielen sport sprache sprechen stadt
    stark stehen stein stell stelle stern still storniert strasse stuck stuhl stunde such suche suchen
    suppe suss tag tage tante tasse tee teil telefon teller termin teuer tier tisch tochter tod tor tot
    tragen traum treffen treppe trinken trocken tun tur uber uhr um und uns unser unter unterlagen
    unterschrieben urlaub vater verkaufen verschieben verstehen vertrag viel viele vielleicht vier vogel
    voll vom von vor wagen wagner wahr wald wand wann war waren warm warten warum was wasser weber weg weh
    weihnacht weil wein weiss weit welche welt wem wen wenig wenn wer werden werner wetter wie wieder
    wiese will winter wir wird wirklich wissen wo woche wohl wohnen wohnung wolf wollen wort wunder wunsch
    wurde wurst zahl zahlen zahlt zahn zehn zeig zeige zeit zeitung ziegler ziehen ziel zimmer zimmermann
    zu zucker zug zum zur zuruck zusammen zwei zwischen zwolf
    """
)

FRENCH = words(
    """
    a abord accord achat acheter adresse affaire age agneau ai aider aime aimer air ajouter alle aller
    allume alors ami amie amis amour an ancien ange annee annuler aout appel appeler appelle apporter
    apres argent arrive arriver art assez attend attendre au aucun aujourd aujourdhui aussi autant auto
    autre autres aux avance avant avec avez avoir avons avril bain banque bas bateau beau beaucoup bebe
    belle berger besoin bien bientot bijou blanc blanche bleu bleue boire bois boite bon bonjour bonne
    bord bouche boucher boulanger bout bras brave brun bureau ca cadeau cafe camion car carte cas casser
    ce cela celle celui cent ces cet cette chaise chambre champ chanson chaque charpentier chat chateau
    chaud chef chemin chemise cher cherche chercher cheval chevalier cheveux chez chien chose ciel cinema
    cinq clair claire cle client cliente clients coeur coin combien commande comme commencer comment
    comprendre compte content contrat contre corps cote cou couleur court couteau croire cuisine dame dans
    date de debut decembre dehors deja demain demande demander demi dent depuis dernier derriere des deux
    devant devis devoir dieu difficile dimanche dire dis dit dites dix docteur doigt donc donne donner
    dont dormir dos dossier doux droit droite du dur eau ecole ecouter ecrire ecris eglise elle elles en
    encore enfant enfin ensemble ensuite entre entrer envoie envoyer envoyez erreur es est et etage etait
    ete eteins etre etude eux facile facture faim faire fait famille fatigue faut fenetre ferme fermer
    fete feu feuille fevrier fille film fils fin fini fleur fleurs fois fontaine forestier fort fou
    francais frere froid fromage garage garcon gare gateau gauche gens gentil grand grande gris gros
    guerre habiter haut herbe heure heures heureux hier histoire hiver homme hotel huit ici idee il ils
    image j jamais jambe janvier jardin jaune je jeter jeudi jeune joie joli jouer jour jours juge juillet
    juin jupe jusque l la lait lampe lapin large le leger lemaire lent lequel leroy les lettre leur leurs
    lever libre lieu lire lit livre loin long longue lors lui lumiere lundi lune m ma madame magasin mai
    main maintenant mais maison maitre mal malade maman manger marchand marche mardi mari mars
    martinpecheur matin mauvais me medecin meilleur meme mer merci mercier mercredi mere mes mesure met
    meunier midi mieux mille mince minute moi moins mois moitie mon monde monsieur montagne montrer mort
    mot moulin mouton mur musique n nager ne neige neuf nez ni noir noire nom non nord nos note notre nous
    nouveau nouvelle novembre nuit octobre oeil oeuf oiseau on onze or orange oreille ou oui ouvert ouvre
    ouvrir page paie pain paix pantalon papa papier par parc parce pardon parents parler part partir pas
    passe passer pauvre payer pays peintre pendant penser perdre pere personne petit petite peu peur peut
    photo piece pied pierre place plage plaisir plat plein pleurer pluie plume plus plusieurs poche poire
    poisson police pomme pont porte porter poser possible poste poulet pour pourquoi pouvoir premier prend
    prendre preparez pres presque pret prier prix probleme prochain professeur propre puis quand quarante
    quatre que quel quelle quelque quelques qui quinze quoi raison rappeler rappelle reponse reserve reste
    retard retour rien riviere robe roi rose rouge roux rue s sa sac saison salle salon salut samedi sang
    sans sante sauvage savoir se sel semaine sept septembre ses seul seule si siecle silence simple six
    soeur soif soir soixante soldat soleil sont sortir souhaite soupe sous souvent stylo sucre sud suis
    suite sur sympathique ta table tailleur tant tante tard tasse te tele telephone temps terre tes tete
    the toi toit tomber ton tot toujours tour tous tout toute toutes train tranquille travail tres triste
    trois trop trouver tu un une utiliser va vacances vache valet vas vendre vendredi venir vent ventre
    verre vers vert veste veut vide vie vieux vigne village ville vin vingt voici voila voir voisin
    voisine voiture voix vol vos votre voudrais vouloir vous voyage vrai vraiment y yeux
    """
)

SPANISH = words(
    """
    a abajo abierto abre abril abuela abuelo adios agosto agua ahora aire al algo alguien alguno alla alli
    alma alto amarillo amiga amigo amor ano anoche antes apaga apartamento aqui arbol arriba arroz asi
    ayer ayuda azucar azul bajo banco bano barato barco barrio bastante beber bien blanco boca boda bolsa
    bonito bosque brazo bueno buenos busca buscar caballero caballo cabeza cada caer cafe caja calle calor
    cama cambiar cambio camino camion camisa campo campos cancelar cancion cansado cantar cara carne caro
    carta casa casi castillo causa cena centro cerca cerrado cerveza chica chico cielo cien cinco cine
    cita ciudad claro clienta cliente clientes coche cocina coger comer comida como compra comprar con
    conmigo conocer contigo contra contrato copia corazon correo correr cortes corto cosa creer cruz
    cuando cuanto cuarto cuatro cuchara cuenta cuerpo da dar de debajo debe deber decir dedo del delante
    delgado dentro derecha desde despues detras deuda dia dias dice dicho diciembre diente diez dificil
    diga dile dinero dios direccion doce doctor dolor dolores domingo donde dormir dos dulce durante e
    edad ejemplo el ella ellas ellos en enciende encima enero enfermo enfrente entonces entrada entrar
    entre envia enviale envio era es escribe ese eso esta estaba estacion estar este esto estrella facil
    factura falta familia fe febrero fecha feliz feo fiesta fin final firmado flor flores foto frio fruta
    fuego fuente fuera fuerte gafas ganar gato gente gracias grande gris guapo guerra guerrero gustar ha
    habitacion hablar hace hacer hacia hambre hasta hay hermana hermano hermoso herrero hidalgo hierba
    hija hijo hilo historia hoja hola hombre hora horas hoy hueso huevo idea iglesia iglesias igual
    importante invierno ir isla izquierda jamas jardin joven jueves jugar julio junio juntos la labio lado
    lago lapiz largo las leche leer lejos lengua leon libre libreria libro limpio linea llama llamame
    llamar llame llamo llave llega llegar lleno llevar llorar llover lluvia lo loco los lucha luego lugar
    luna lunes luz madera madre magos mal malo mama mamar mana manana manda mandar mano manzana mar marido
    marron martes marzo mas mayo mayor me medico medio mejor menos mercado merced mes mesa mi miedo
    mientras miercoles mil minuto mio mirar misma mismo molino momento montana monte moreno morir mucho
    muerte mujer mundo muro museo musica muy nacer nada nadie naranja navidad necesita necesitar negro ni
    nieve nina ninguno nino no noche nombre norte nos nosotros novela noviembre nube nuestro nueve nuevo
    numero nunca o ocho octubre ocupado oficina ojo oler olla once oro os oscuro otono otra otro oveja
    padre pagar pagina pais pajaro palabra pan papel paquete para pared parque parte pasado pasar paso
    pastor patata paz pedido pedir pelicula pelo pena pensar pequeno perder perdon pero perro persona
    pescado peso pez pie piedra piel pierna pilar piso plata plato playa plaza pobre poco poder policia
    pollo pon poner por porque postre precio pregunta presupuesto prima primavera primero primo prisa
    probar problema pronto pueblo puede puente puerta pues que quedar querer queso quien quiero quince
    quitar rapido rato razon recibir recuerda recuerdame reina reloj reserva rey reyes rico rio rojo ropa
    rosa roto rubio ruido sabado saber sal sala salida salir salud sangre santo se sed seguir segundo
    seguro seis semana senor senora sentir septiembre ser si sido siempre siete silla simple sin sobre sol
    solamente soldado solo son sonar soy su subir sucio suelo sueno suerte tal tambien tan tarde tarjeta
    taza te techo telefono television tiempo tienda tiene tienes tierra tio todavia todo todos tomar tonto
    toro torre torres trabajar trabajo traer tranquilo tren tres triste tu u ultimo un una uno usar usted
    ustedes va vaca vacaciones vale valle vamos vaso vecina vecino veinte velo vender venir venta ventana
    ver verano verdad verde vestido vez vida viejo viento viernes vino volar volver voz y ya yo zapato
    """
)

DUTCH = words(
    """
    aan aanvraag aarde acht achter af afspraak al alle alleen alles als altijd ander andere antwoord appel
    april arm auto avond baan baby bakker bal bank bed been beer beide bel belangrijk bellen berg berger
    bestel betaald betaalt betalen beter bezig bij bijna binnen bis bitter blauw blij blijven bloem
    bloemen boek boer boom boon bos boven brand bread breed breng brengen brief broek broer brood brouwer
    bruin buiten buurman buurt buurvrouw dag dagen dak dan dank dankje dansen dat de december deel dekker
    denken deur deze dicht die dief dier dik ding dinsdag dit dochter doe doen dokter donder donker dood
    door dorp dorst dragen drie drinken droog drop druk duren duur echt een eend eens eerst eerste eet ei
    eigen eind elk elke en engel er erg ergens eten euro even familie fiets film fles fluit fout fruit
    gaan gang gans gat gebeld gebracht geel geen gegeven geld geleden geluk gemaakt gemak genoeg gerust
    gesprek gestuurd getal geven gezicht gezond glas goed goud graag graan grijs groen groep grond groot
    haan haar had halen half hallo hals ham hand hard haring hart haven heb hebben heeft heel heer heet
    heilig helpen hem hemd hemel hen herder herfst herinner het heuvel hier hij hoe hoed hoek hond honger
    hoofd hoog hooi hoop hoor horen hotel houden hout huis hulp hun huur iedereen iemand iets ijs ik in
    inkt is ja jaar jacht jager jammer januari jas je jong jongen jongens jou jouw juli jullie juni jurk
    kaart kaas kamer kan kans kant kapot kast kat keer keizer kelder kennen kerk kerst keuken kiezen
    kijken kind kinderen klaar klacht klant klanten klein kleren klok kloppen knie koe koek koffie kok
    komen komt koning kool koop koorts kop kopen kort korting kosten koud krant krijgen kuiper kunnen
    kussen kwaad kwam kwart laat laatste lachen laken lamp land lang langs langzaam laten later leeg leeuw
    leggen lekker lelijk lente leren les leuk leven lezen licht lied lief liefde liever liggen links
    lippen lopen lucht lui luisteren maak maal maan maand maandag maar maart maat machine mag maken man
    mannen markt me mee meel meer meester mei meisje melk mens mensen mes met meubel mevrouw middag mij
    mijn mild minuut mis misschien moe moeder moeilijk moet moeten molenaar mond mooi moord morgen muis
    mulder muur muziek na naam naar naast nacht nat natuurlijk neef neem negen nek nemen nergens net neus
    niemand niet niets nieuw nieuwe nog nooit noord noot november nu nummer oever of offerte oktober olie
    om oma onder ons onze oog ook oom oor oost op opa open oranje oud oude ouders over paard paars pak
    pakje pan papier park pas pen peper personeel piano plaats plan plank planken planning plant plat
    plein plezier politie poort pop post pot prachtig prijs prins probleem raam ramen recht rechts regen
    reis rekening reserveer rest riem rijden rijk rijst ring rivier rok rond rood roos rug ruim ruiter
    rust samen schaap schaar schade schapen schilder schip schoen school schoon schouder schrijven
    schrijver schuld september sinds sla slaan slaap slapen slecht sleutel slim sloot slot smal smid smit
    sneeuw snel soms soort spek spel spelen sport spreken staan stad steen stem ster sterk stil stoel stok
    stop stout straat straf straks strand stuk stuur suiker taal taart tafel tand tante tas te tegen
    telefoon ten terug thee thuis tien tijd toch toen tong tot trap trein trots trouwen tuin tussen twaalf
    twee u uit uur vaak vader vakantie vallen van vanavond vandaag vanmorgen varen vast veel veer veld ver
    verdriet vergeten verkeer verkoop verliezen vers vertel verwarming vier vijf vind vinden vinger vis
    visser vlag vlees vliegen vloer voet vogel vogels vol volgend volgende voor voorbeeld vorige vos vraag
    vraagt vragen vrede vriend vriendin vrij vrijdag vroeg vrolijk vrouw vrouwen vuil vuur waar waarom
    wachten wagen wang wanneer want warm was wat water we week weer weg wei weinig wel welk wereld werk
    werken west weten wie wij wijn wijs wil wilde willen wind winkel winter wit woensdag wolf wonen woord
    worden wordt woud zaak zaal zacht zakken zand zaterdag ze zee zeep zeer zeg zeggen zegt zeil zelf zes
    zetten zeven zich ziek zien zijn zilver zin zingen zitten zo zoeken zoekt zomer zon zondag zonder zoon
    zorgen zou zout zuid zullen zus zuster zwaar zwart zwemmen
    """
)

MONTHS = words(
    """
    abril agosto aout april august augustus avril december february january juillet juin juli julio july
    june juni junio maart maerz mai mar march mars marz may mayo mei november october september
    """
)
"""Months, of which April, May, June, August and Julio are also names."""

PLACES = words(
    """
    adelaide alexandria arlington augusta austin brooklyn carson chelsea cheyenne dakota dallas denver
    diego florence florenz florida francisco georgia hamilton helena houston india ireland israel jackson
    jordan kent kingston lincoln london lourdes madison marina melbourne memphis milan montana nevada
    odessa orlando paris phoenix raleigh roma salem savannah sevilla sofia sydney trent valencia victoria
    vienna virginia washington wei york
    """
)
"""Places that are also names of people."""

MACHINES = words(
    """
    alexa cortana google jarvis siri
    """
)
"""Voice assistants."""

BEFORE_NAME = words(
    """
    anrufen answer app appeler appelez appelle ask asked asking avisa avisale bel bellen besuche besuchen
    betaal bezahle bezoek bill billed bitte book call called calling calls charge charged client clienta
    cliente contact contacta contacte contacted contacter customer demande demander dial dile dis ecrire
    ecris email emailed emailing envia enviale envoie envoyer erinnere escribe escribele facture frag
    frage fragen fragt gave gib give guest help herinner huurder inform informed informiere invite invited
    invoice invoiced klant kunde kunden kundin llama llamale llamar llame mail mailed meet melde member
    message messaged met mieter mieterin notify offer offered owe owes paga page paid paie patient
    patientin pay payer phone phoned phoning pick pregunta preguntale previens promised quote rang
    rappeler rappelle reach recuerda recuerdale refund refunded remind reminded rencontre rencontrer ring
    ruf rufe sag sage sagen schedule schick schicke schicken schreib schreibe schreiben schrijf see send
    sent show spreek sturen stuur tell telling tenant text texted thank thanked told treffe treffen triff
    update ver visit visita visited voir voit vraag vragen zeg zeggen zeig
    """
)
"""Actions towards a client, and words for a client: a name follows."""

CONNECTIVES = words(
    """
    a aan about an and avec bei between bij by chez con contre de door e en entre et for from fur gegen
    like met mit neben of over par para por pour sobre tegen than to tussen uber und van vom von voor
    wegen with y zu
    """
)
"""Prepositions and conjunctions before a name."""

AFTER_NAME = words(
    """
    a accepted agreed aimerait also always appelle approved arrive arrived arrives asked asks attend avait
    belde belt bestelde bestellt bestellte bestelt betaalt bezahlt bittet booked bought bracht brachte
    braucht brauchte brengt brings bringt brought busca call called calls came can canceled cancelled
    cannot cherche comes commande complained confirmed could couldn darf debe declined demande dice did
    didn dijo disputed dit does doesn doit ecrit emailed envio envoie es est esta etait filled firmo
    forgot fragt fragte gets goes got ha haben had hadn has hasn hat hatte hebben heeft hired holt is isn
    ist just kam kan kann kommt komt left liked likes llama llamo llega llego made makes mando meint
    mentioned might missed mochte mochten moet moved muss must necesita need needed needs never ont
    ordered orders owed owes pago paid paie passed pays peut phoned picked pide pidio prefere prefers
    prefiere pregunta pregunto promised puede quiere rang received refused rejected renewed rents replied
    reported requested reservo returned rief ruft sagt sagte said says schickt schickte schreibt schrieb
    schuldet sends sent sera should signed sold soll souhaite still storniert stuurde stuurt sucht takes
    texted thinks thought tiene told took trae verlangt veut viendra viene vient visited voudrait vraagt
    wacht waits want wanted wants war wartet was wasn went wil wilde will willen wird wishes wollen wollte
    won would wrote zahlt zegt zei zieht zoekt
    """
)
"""Actions of a client: a name precedes."""

BUSINESS = words(
    """
    account accounts afspraak agreement akte angebot anzahlung apartment application appointment appointments
    auftrag bestelling bestellung betaling bill bills booking call case cita claim colis commande
    complaint compte contract contrat contrato cuenta deal delivery deposit devis documents dossier email
    estimate expediente factura facture factuur file files form haus heizung house invoice invoices job klacht
    konto lease letter lieferung loan mahnung matter meeting message offer offerte order orders package
    pago paiement papers parcel payment payments pedido policy portfolio presupuesto project projekt
    projet proposal proyecto purchase quote receipt rechnung rechnungen refund rekening rendezvous rent
    request reservation shipment site subscription termin ticket unterlagen vertrag visit wohnung zahlung
    """
)
"""Matters between a client and the speaker."""

KIN = words(
    """
    abuela abuelo ami amie amiga amigo aunt baby boss boyfriend broer brother bruder buddy buurman
    buurvrouw cat chat chef chien cousin cousine dad daughter dochter dog father femme fiance fiancee
    fille fils frau frere freund freundin friend gato girlfriend grandfather grandma grandmother grandpa
    hermana hermano hija hijo hond hund husband kat katze kid kollege kollegin madre mama maman man mann
    mari marido mere moeder mom mother mujer mum mutter nachbar nachbarin neef neffe neighbor neighbour
    nephew nicht nichte niece oma oncle onkel opa padre pal papa pere perro prima primo roommate schwester
    sister soeur sohn son tante teacher tia tio tochter uncle vader vater vecina vecino voisin voisine
    vriend vriendin vrouw wife zoon zus zuster
    """
)
"""Relations of the speaker who are not clients."""

OWN = words(
    """
    dein deine haar her his jouw ma mein meine meinen meiner mi mijn mon my notre nuestra nuestro ons onze
    our sa sein seine son su ta their ton tu unser unsere your zijn
    """
)

ARTICLES = words(
    """
    a an ce cette das dat de dem den der des die dit each een ein eine einem einen einer el esta este
    every het la las le les los no some that the this un una une unos
    """
)

WHEN = words(
    """
    ab after am au before bis by desde during each early en every from hasta im in last late mid next of
    on seit since sinds this till to until vanaf
    """
)

WHERE = words(
    """
    across around at aus bei bij cerca dans desde en from in naar nach near outside por rond sur through
    to vers weather
    """
)

BEING = words(
    """
    are era es est etait is ist sind son sont war waren was were zijn
    """
)

PLACE_NOUNS = words(
    """
    airport allee ave avenida avenue award bahnhof beach boulevard bridge brucke brug building calle
    center centre cheese church city county cup drive effect equilibrium gare gazelle gracht hill hospital
    hotel island laan lake lane law library mount mountain museum park place platz plaza plein pont prize
    puente rd river road rue school schule see square st station straat strasse street theorem tower town
    university weg
    """
)
"""Things and places named after people."""

AUXILIARIES = words(
    """
    a also always can cannot could couldn darf did didn does doesn es est ha had hadn has hasn hat hatte
    heeft is isn ist just kan kann might muss must never ont should soll still war was wasn will wird won
    would
    """
)
"""Verbs whose subject is often not a person."""

DAYS = words(
    """
    dienstag dimanche dinsdag domingo donderdag donnerstag freitag friday jeudi jueves lundi lunes maandag
    mardi martes mercredi miercoles mittwoch monday montag sabado samedi samstag saturday sonntag sunday
    thursday today tomorrow tuesday vendredi viernes vrijdag wednesday woensdag zaterdag zondag
    """
)

CLIENTS = words(
    """
    client clienta cliente customer guest huurder klant kunde kundin member mieter mieterin patient
    patientin tenant
    """
)
"""Words for a client, with or without an article."""

SIGNS = {
    "en": words(
        """
        and are at be did do for from has have i in is it my not of on the to was will with you
        """
    ),
    "de": words(
        """
        am auf aus bei bitte das dass dem den der die ein eine er es frau fur haben hat hatte hatten
        herr ich im ist kommt mein meine mit nicht noch ob schon sich sie sind uber und vom wann war
        wir wird zu zum zur
        """
    ),
    "fr": words(
        """
        au avec dans des du elle est et il je la le les ne pas pour qui sur un une vous
        """
    ),
    "es": words(
        """
        al con del el en es esta la las lo los mi no para por que se su un una y
        """
    ),
    "nl": words(
        """
        dat de een en heeft het hij ik in is je met mijn naar niet onze op te van voor wil
        """
    ),
}
"""Frequent words that identify a language."""
