"""The store contract as tests, one module for each part of it."""

from aforesaid.testing.contract.changing import ChangingContract
from aforesaid.testing.contract.concurrency import ConcurrencyContract
from aforesaid.testing.contract.contacts import ContactsContract
from aforesaid.testing.contract.counting import CountingContract
from aforesaid.testing.contract.documents import DocumentsContract
from aforesaid.testing.contract.glances import SnapshotContract
from aforesaid.testing.contract.histories import HistoriesContract
from aforesaid.testing.contract.lifetimes import LifetimesContract
from aforesaid.testing.contract.log import LogContract
from aforesaid.testing.contract.moving import MovingContract
from aforesaid.testing.contract.owners import OwnersContract
from aforesaid.testing.contract.records import RecordsContract
from aforesaid.testing.contract.search import SearchContract
from aforesaid.testing.contract.sessions import SessionsContract

__all__ = ["SearchContract", "SnapshotContract", "StoreContract"]


class StoreContract(
    RecordsContract,
    SessionsContract,
    LogContract,
    HistoriesContract,
    LifetimesContract,
    OwnersContract,
    ConcurrencyContract,
    MovingContract,
    ChangingContract,
    CountingContract,
    DocumentsContract,
    ContactsContract,
):
    """All of it. Subclass it with a fixture `backend` that yields an open backend using `clock`.

    A backend that is shared by many tests is fine: every test works for an owner of its own.
    """
