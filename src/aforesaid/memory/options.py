"""Option values of `aforesaid.open`: what belongs together is one frozen value."""

from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields, is_path, validated
from aforesaid.contracts import ConversationStore, Embedder, NoteDetector, Summarizer, TokenCounter
from aforesaid.contracts.plugins import HistoryStore
from aforesaid.errors import InvalidSetting, shown
from aforesaid.intake.messages import ImagePolicy, check_images
from aforesaid.model.conversations import check_span
from aforesaid.model.ids import parse_name
from aforesaid.model.lifetimes import Archiving, Lifetime, RetentionRules, check_lifetimes, days
from aforesaid.retention.rules import SWEEP_EVERY
from aforesaid.settings import ConversationConfig, RetentionConfig
from aforesaid.stores.blobs import BlobBackend, BlobStore
from aforesaid.tokens import counter_for, default_counter
from aforesaid.transfer.owner_scope import OwnerScope

if TYPE_CHECKING:
    from aforesaid.contacts.resources import ContactResources

    # Slow to import, and only needed by memories that use them.
    from aforesaid.layers.options import EncryptionChoice
    from aforesaid.notes.detection import NoteDetection
    from aforesaid.search.searcher import Searcher
    from aforesaid.transfer.archives import ArchiveFolder


@validated
class Retention(CheckedFields, frozen=True, kw_only=True):
    """How long a memory keeps data, and where it archives.

    - `rules`: lifetimes by channel and tag, for owners without rules of their own.
    - `owners`: lifetimes by owner; None means forever.
    - `archiving`: the ages at which conversations are archived and archives deleted; None archives on request
      only.
    - `archives`: the archive folder, a path or an `ArchiveFolder`. It belongs to this memory alone.
    - `sweep_every`: the interval of the background sweep, which purges and archives; None disables it.
    """

    rules: RetentionRules = RetentionRules()
    owners: dict[str, Lifetime] = {}
    archiving: Archiving | None = None
    archives: str | PathLike[str] | None = None
    sweep_every: timedelta | None = SWEEP_EVERY

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lifetimes(self.owners, "owners")
        check_span(self.sweep_every, field="sweep_every")
        if self.archiving is not None and self.archives is None:
            raise InvalidSetting("archiving needs a place: archives='some/folder'", field="archives")

    def of(self, owner: str) -> RetentionRules:
        """Return the rules for one owner."""
        parse_name(owner, field="owner")
        return replace(self.rules, owner=self.owners[owner]) if owner in self.owners else self.rules


class ImageOptions(CheckedFields, frozen=True, kw_only=True):
    """How images in messages are stored.

    - `policy`: "placeholder" stores text in place of an image, "keep" stores the image in the log, "blobs"
      stores its bytes in `blobs`.
    - `blobs`: a folder that belongs to this memory alone, or a `BlobBackend`. With another policy, it only
      provides the images that were stored there before.
    """

    policy: ImagePolicy = "placeholder"
    blobs: str | Path | BlobBackend | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_images(self.policy, has_blobs=self.blobs is not None)


class Models(CheckedFields, frozen=True, kw_only=True):
    """The models that a memory counts, searches and summarizes with.

    - `tokenizer`: the name of the model for which the tokens of a stored message are counted, or a
      `TokenCounter`; None uses `o200k_base`, or an estimate where tiktoken is not installed.
    - `embedder`: the encoder for semantic search. "installed" follows the setting `encoder`, which by default
      uses that of `aforesaid[semantic]`; "universal" and "minilm" (`aforesaid[encoder]`) name one; None
      searches by words only.
    - `summarizer`: summarizes messages outside the window in the background. "extract" quotes the most
      informative sentences; one of your own may call a model. None uses the setting `summaries`, which is off
      by default.
    - `detector`: finds preferences and facts in users' messages and stores them as notes, in the background.
      "rules" knows sentences in six languages; `notes.detectors.AgentDetector` asks a model. None uses the
      setting `detect_notes`, which is off by default.
    - `preload`: load the tokenizer and the encoder in the background when the memory is opened. By default
      they are loaded in the background after the first message, which does not wait for them; a question that
      comes earlier waits for the encoder, about a second.
    """

    tokenizer: str | TokenCounter | None = None
    embedder: Embedder | Literal["installed", "universal", "minilm"] | None = "installed"
    summarizer: Summarizer | Literal["extract"] | None = None
    detector: NoteDetector | Literal["rules"] | None = None
    preload: bool = False

    def load_embedder(self, setting: str = "installed") -> Embedder | None:
        """Return the embedder, by default that of the setting, or None."""
        choice = setting if self.embedder == "installed" else self.embedder
        if not isinstance(choice, str):
            return choice
        from aforesaid.search.encoders import encoder_named

        return encoder_named(choice)

    def load_tokenizer(self) -> TokenCounter:
        """Return the token counter."""
        if self.tokenizer is None:
            return default_counter()
        return counter_for(self.tokenizer) if isinstance(self.tokenizer, str) else self.tokenizer

    def load_summarizer(self, setting: str = "off") -> Summarizer | None:
        """Return the summarizer, by default that of the setting."""
        choice = self.summarizer or (None if setting == "off" else setting)
        if not isinstance(choice, str):
            return choice
        if choice != "extract":
            raise InvalidSetting.not_in("summarizer", choice, ("extract",))
        from aforesaid.summaries.summarizers import ExtractiveSummarizer

        return ExtractiveSummarizer()

    def load_detection(self, setting: str = "off") -> "NoteDetection":
        """Return the detection of notes, by default with the detector of the setting."""
        choice = self.detector or (None if setting == "off" else setting)
        if isinstance(choice, str) and choice != "rules":
            raise InvalidSetting.not_in("detector", choice, ("rules",))
        from aforesaid.notes.detection import NoteDetection, detector_for

        return NoteDetection(detector_for(choice))


def retention_of(choice: Retention | RetentionRules | None) -> Retention:
    """Return a `Retention`; rules alone become one without archiving."""
    if isinstance(choice, Retention):
        return choice
    if choice is not None and not isinstance(choice, RetentionRules):
        raise InvalidSetting(
            f"retention must be a Retention or RetentionRules; got {shown(choice)}", field="retention"
        )
    return Retention(rules=choice or RetentionRules())


def images_of(choice: ImageOptions | ImagePolicy) -> ImageOptions:
    """Return an `ImageOptions`; a policy alone becomes one without blobs."""
    return choice if isinstance(choice, ImageOptions) else ImageOptions(policy=choice)


def archives_at(
    archives: str | PathLike[str] | None, encryption: "EncryptionChoice | None" = None
) -> "ArchiveFolder | None":
    """Return the archive folder. With encryption, archives are sealed too."""
    if archives is None:
        return None
    from aforesaid.transfer.archives import ArchiveFolder

    folder = archives if isinstance(archives, ArchiveFolder) else ArchiveFolder(_path(archives, "archives"))
    if encryption is None or folder.sealer is not None:
        return folder
    from aforesaid.encryption import ProviderSealer
    from aforesaid.layers.options import encryption_of

    return ArchiveFolder(folder.folder, sealer=ProviderSealer(encryption_of(encryption).master))


def _path(path: str | PathLike[str], field: str) -> Path:
    if not is_path(path):
        raise InvalidSetting(f"{field} must be a path; got {shown(path)}", field=field, value=path)
    return Path(path)


# From settings


def retention_in(config: RetentionConfig, *, folder: str = "") -> Retention:
    """Return the retention that the settings configure, with their archive folder or another one.

    Blocks: it reads the file with the archive key.
    """
    from aforesaid.transfer.archives import archive_folder

    folder = folder or config.archive_folder
    return Retention(
        rules=RetentionRules(channels=_lifetimes(config.ttl_channels), tags=_lifetimes(config.ttl_tags)),
        owners=_lifetimes(config.ttl_owners),
        archiving=config.archiving,
        archives=archive_folder(folder, config.archive_key_file) if folder else None,
    )


def _lifetimes(values: dict[str, int]) -> dict[str, Lifetime]:
    return {name: days(value, field=f"ttl of {name}") for name, value in values.items()}


# Parts of a manager that a program creates directly, without a memory that would share them between owners.


def own_searcher(scope: OwnerScope) -> "Searcher":
    """Return a searcher with resources of its own, for a manager without a memory."""
    from aforesaid.search.resources import SearchResources
    from aforesaid.search.searcher import Searcher

    return Searcher(scope.store, SearchResources(), scope.owner)


def own_detection(config: ConversationConfig) -> "NoteDetection":
    """Return the detection of notes for a manager without a memory."""
    return Models().load_detection(config.detect_notes)


def own_contact_resources() -> "ContactResources":
    """Return contact resources of its own, for a manager without a memory."""
    from aforesaid.contacts.resources import ContactResources

    return ContactResources()


def own_scope(store: ConversationStore | HistoryStore | None, blobs: BlobStore | None) -> OwnerScope:
    """Return a scope with the given store, or with a new in-memory store."""
    if store is not None:
        from aforesaid.stores.histories import as_store

        found = as_store(store)
        return OwnerScope(owner=found.owner, store=found, blobs=blobs)
    # Ready without `open`, so a manager in a test or a script needs no `async with`.
    from aforesaid.stores.memory import InMemoryBackend

    backend = InMemoryBackend()
    return OwnerScope(owner="default", store=backend.of("default"), backend=backend, blobs=blobs)
