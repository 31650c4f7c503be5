"""Import the histories of other programs.

formats      what a reader of a foreign file yields
chat_memory  the file of the chat memory: `conversations.json`
accounts     exports of ChatGPT, Claude, Open WebUI and LibreChat
frameworks   files of OpenAI's session, LangGraph's saver, Strands and mem0
records      what readers share: damaged JSON, trees, times, databases
runs         store what a reader yields, repeatably

A new format is one module with a `Format`, listed in `FORMATS`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from aforesaid.importers import accounts, chat_memory, frameworks
from aforesaid.importers.formats import ForeignConversation, Format, Skipped
from aforesaid.importers.runs import ImportReport, import_history

__all__ = [
    "FORMATS",
    "ForeignConversation",
    "Format",
    "ImportReport",
    "Skipped",
    "import_history",
]

# All formats by name.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {one.name: one for one in (chat_memory.FORMAT, *accounts.FORMATS, *frameworks.FORMATS)}
)
