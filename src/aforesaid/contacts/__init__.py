"""Contacts, name identification in texts, and links between conversations and clients."""

from aforesaid.contacts.association import ClientAssociationService
from aforesaid.contacts.book import ContactPage, Contacts
from aforesaid.model.contacts import Candidate, ClientMatch, Contact

__all__ = ["Candidate", "ClientAssociationService", "ClientMatch", "Contact", "ContactPage", "Contacts"]
