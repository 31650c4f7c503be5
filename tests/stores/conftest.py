"""Servers for the store tests."""

from tests.servers.postgres import databases, postgres_admin_url, postgres_url

__all__ = ["databases", "postgres_admin_url", "postgres_url"]
