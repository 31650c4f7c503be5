"""The store contract as tests, one module for each part of it."""

from recollect.testing.contract.changing import ChangingContract
from recollect.testing.contract.concurrency import ConcurrencyContract
from recollect.testing.contract.contacts import ContactsContract
from recollect.testing.contract.counting import CountingContract
from recollect.testing.contract.documents import DocumentsContract
from recollect.testing.contract.glances import GlanceContract
from recollect.testing.contract.histories import HistoriesContract
from recollect.testing.contract.lifetimes import LifetimesContract
from recollect.testing.contract.log import LogContract
from recollect.testing.contract.moving import MovingContract
from recollect.testing.contract.owners import OwnersContract
from recollect.testing.contract.records import RecordsContract
from recollect.testing.contract.search import SearchContract
from recollect.testing.contract.sessions import SessionsContract

__all__ = ["GlanceContract", "SearchContract", "StoreContract"]


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
