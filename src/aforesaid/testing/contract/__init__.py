"""The store contract as tests, one module per topic."""

from aforesaid.testing.contract.branches import BranchesContract
from aforesaid.testing.contract.collaboration import CollaborationContract
from aforesaid.testing.contract.contacts import ContactsContract
from aforesaid.testing.contract.documents import DocumentsContract
from aforesaid.testing.contract.log import HistoriesContract, LogContract
from aforesaid.testing.contract.owners import NamesContract, OwnersContract, TallyContract
from aforesaid.testing.contract.participants import ParticipantsContract
from aforesaid.testing.contract.records import LifetimesContract, RecordsContract, SessionsContract
from aforesaid.testing.contract.replacing import ConcurrencyContract, ReplacingContract
from aforesaid.testing.contract.restoring import RestoringContract, SnapshotContract
from aforesaid.testing.contract.search import SearchContract

__all__ = ["SearchContract", "SnapshotContract", "StoreContract"]


class StoreContract(
    RecordsContract,
    NamesContract,
    SessionsContract,
    LogContract,
    HistoriesContract,
    LifetimesContract,
    OwnersContract,
    ConcurrencyContract,
    RestoringContract,
    ReplacingContract,
    TallyContract,
    DocumentsContract,
    ContactsContract,
    ParticipantsContract,
    CollaborationContract,
    BranchesContract,
):
    """The whole contract. Subclass it with a fixture `backend` that yields an open backend with `clock` as
    its clock.

    Every test uses its own owner, so tests may share a backend.
    """
