"""A store behind a Supabase client: the views of schema `api`, through the client's own calls.

calls     run a query off the event loop, translate errors, read the owner from the token
rows      rows of the views and our values
store     one owner's store
"""

from aforesaid.stores.supabase.calls import SCHEMA, is_client
from aforesaid.stores.supabase.store import SupabaseStore

__all__ = ["SCHEMA", "SupabaseStore", "is_client"]
