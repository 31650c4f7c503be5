"""Clients: contacts, and who is meant when somebody is named. Below: stores. Above: the manager."""
