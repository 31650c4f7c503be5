"""Clients: contacts, and who is meant when somebody is named. Below: stores. Above: the manager.

Reading order: `book` (contacts), `association` (what it is for), `identifying` (how somebody is found in a
text), `naming`, `reading` and `spelling` (what that stands on), `room` and `waiting` (what keeps it off the
answer path).
"""

from recollect.clients.association import ClientAssociationService
from recollect.clients.book import ContactPage, Contacts
from recollect.clients.matches import Candidate, ClientMatch
from recollect.contacts import Contact

__all__ = ["Candidate", "ClientAssociationService", "ClientMatch", "Contact", "ContactPage", "Contacts"]
