"""Stop words of a few languages, including greetings and thanks."""

from treadle.domain.text import fold_words

_ENGLISH = """
a about above after again all also am an and any are as at be because been before being below
between both but by can could did do does doing done down during each few find for from further get
give go got had has have having he her here hers him his how i if in into is it its itself just know
let like may me might more most much must my need no nor not now of off on once only or other ought
our out over own please same say shall she should so some such take tell than that the their them
then there these they thing this those through to too under until up us use used very want was we
were what when where which while who whom whose why will with would yes yet you your
"""
_SMALL_TALK = """
alright bonjour bye continue danke evening fine good goodbye great hallo hello hey hi hola merci morning night
ok okay right sure thank thanks well welcome
"""
_GERMAN = """
aber als am an auch auf aus bei bin bis bist da das dass dem den der des die dies diese dieser doch
du durch ein eine einem einen einer er es für gibt habe haben hat hatte ich ihr im in ist ja kann
können mein mich mir mit nach nein nicht noch nun nur oder ohne schon sein sich sie sind so um und
uns unser vom von vor war warum was wegen wenn wer werden wie wieder wir wird wo zu zum zur über
"""
_FRENCH = """
ai au aux avec avez avons ce ces cette comme dans de des du elle en est et eux il ils je la le les
leur lui ma mais me mes moi mon ne nos notre nous on ont ou où par pas peut plus pour qu quand que
quel quelle qui sa sans se ses si son sont sur ta te tes toi ton tu un une vos votre vous
"""
_SPANISH = """
al algo como con cual cuando de del desde donde el ella ellos en entre era es esa ese eso esta este
esto fue ha hay la las le les lo los me mi mis muy más nos nuestro o para pero por porque que quien
se ser si sin sobre son su sus también te tiene tu un una uno unos y ya yo
"""
_OTHERS = """
ao che com como così da dal dalla degli dei del della delle di do dos e ed ela ele em era eu foi gli
ho il io isso lo ma mas meu na nas nei nel nella no non nos o os ou para per perché più por quando
que questa questo se sono sua suo são um uma você
"""
_ALL = " ".join((_ENGLISH, _SMALL_TALK, _GERMAN, _FRENCH, _SPANISH, _OTHERS))
STOP_WORDS = frozenset(fold_words(_ALL))
"""Folded, as words are looked for."""
