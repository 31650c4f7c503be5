"""Calls for retention, archives, erasure, export and redaction."""

from collections.abc import Collection
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from aforesaid.dialects.tombstones import MARK
from aforesaid.errors import InvalidInput, StoreForeign, shown
from aforesaid.model.conversations import Conversation, check_count, check_span
from aforesaid.model.ids import parse_conversation, parse_name
from aforesaid.model.lifetimes import Applied, RetentionRules
from aforesaid.model.messages import Message
from aforesaid.protocol import conversation_of, rules_document, rules_of
from aforesaid.remote.calls import Answer, Call, document_of, path_of
from aforesaid.remote.requests.base import VERSION, Calls, conversation
from aforesaid.retention.rules import AT_MOST, Expiring

if TYPE_CHECKING:
    from aforesaid.retention.receipts import Receipt
    from aforesaid.retention.repetitions import ForgetPreview, ForgetReceipt
    from aforesaid.transfer.archives import Archive
    from aforesaid.transfer.folders import Manifest

ZIP = "application/zip"


class RetentionCalls(Calls):
    """Calls for retention, archives, erasure, export and redaction."""

    def purge_expired(self) -> Call[int]:
        return self._call(
            "POST", "retention", "purge", read=lambda answer: int(answer["purged"]), repeatable=False
        )

    def retention(self) -> Call[RetentionRules]:
        return self._call("GET", "retention", read=rules_of)

    def set_retention(self, rules: RetentionRules, *, inherit: Collection[str] = ()) -> Call[int]:
        if not isinstance(rules, RetentionRules):
            raise InvalidInput(f"rules must be RetentionRules; got {shown(rules)}", field="rules")
        if isinstance(inherit, str) or not isinstance(inherit, Collection):
            raise InvalidInput(f"inherit must be a list of ids; got {shown(inherit)}", field="inherit")
        inheriting = sorted({parse_conversation(one, field="inherit") for one in inherit})
        body = {**rules_document(rules), "inherit": inheriting}
        return self._call("PUT", "retention", body=body, read=_changed)

    def apply_retention(self) -> Call[int]:
        return self._call("POST", "retention", "apply", read=_changed)

    def lifetime(self, conversation_id: str) -> Call[Applied]:
        return self._call("GET", "conversations", conversation(conversation_id), "lifetime", read=_lifetime)

    def expiring(self, within: timedelta = timedelta(0), *, limit: int = AT_MOST) -> Call[list[Expiring]]:
        if within:
            check_span(within, field="within")
        query = {"within": within.total_seconds(), "limit": check_count(limit, field="limit", least=0)}
        return self._call("GET", "retention", "expiring", query=query, read=_expiring)

    # Archives

    def archive(self, conversation_id: str) -> "Call[Archive]":
        return self._call("POST", "conversations", conversation(conversation_id), "archive", read=_archive)

    def restore(self, conversation_id: str) -> Call[Conversation]:
        return self._call(
            "POST",
            "archives",
            conversation(conversation_id),
            "restore",
            read=conversation_of,
            repeatable=False,
        )

    def archives(self) -> "Call[list[Archive]]":
        return self._call(
            "GET", "archives", read=lambda answer: [_archive(one) for one in answer["archives"]]
        )

    # Erasure and export

    def erase(self, conversation_id: str | None = None) -> "Call[Receipt]":
        """Not retried: the receipt of a second erasure would count nothing."""
        if conversation_id is None:
            return self._call("POST", "erase", read=_receipt, repeatable=False)
        return self._call(
            "POST", "conversations", conversation(conversation_id), "erase", read=_receipt, repeatable=False
        )

    def export(self, folder: str | Path) -> "Call[Manifest]":
        return Call(
            method="GET",
            path=path_of(VERSION, "export"),
            headers={**self._headers, "accept": f"{ZIP}, application/json"},
            download=True,
            read=partial(_unpack, folder=Path(folder)),
        )

    def import_(self, folder: str | Path) -> "Call[Manifest]":
        return Call(
            method="POST",
            path=path_of(VERSION, "import"),
            headers={**self._headers, "content-type": ZIP},
            upload=partial(_pack_upload, folder=Path(folder)),
            read=_manifest,
        )

    # Redaction

    def redact(
        self, conversation_id: str, message_id: str, *, mark: str = MARK, scrub: bool = False
    ) -> Call[Message]:
        body = {"message_id": parse_name(message_id, field="message_id"), "mark": mark, "scrub": scrub}
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "redactions",
            body=body,
            read=Message.from_dict,
        )

    # Forgetting everywhere

    def preview_forget(self, what: str) -> "Call[ForgetPreview]":
        return self._call("POST", "forgetting", body=_of_notes(what, preview=True), read=_preview)

    def forget_everywhere(
        self, what: str, *, keep: Collection[str] = (), scrub: bool = False
    ) -> "Call[ForgetReceipt]":
        """Not retried: the receipt of a second attempt would count nothing."""
        body = _of_notes(what, preview=False) | {"keep": sorted(keep), "scrub": scrub}
        return self._call("POST", "forgetting", body=body, read=_forgotten, repeatable=False)

    def preview_redact(self, conversation_id: str, message_id: str) -> "Call[ForgetPreview]":
        body = _of_message(conversation_id, message_id, preview=True)
        return self._call("POST", "forgetting", body=body, read=_preview)

    def redact_everywhere(
        self, conversation_id: str, message_id: str, *, keep: Collection[str] = (), scrub: bool = False
    ) -> "Call[ForgetReceipt]":
        body = _of_message(conversation_id, message_id, preview=False) | {
            "keep": sorted(keep),
            "scrub": scrub,
        }
        return self._call("POST", "forgetting", body=body, read=_forgotten, repeatable=False)


def _of_notes(what: str, *, preview: bool) -> dict[str, Any]:
    if not isinstance(what, str) or not what.strip():
        raise InvalidInput(
            f"what must be an id, a subject or words; got {shown(what)}", field="what", value=what
        )
    return {"what": what, "preview": preview}


def _of_message(conversation_id: str, message_id: str, *, preview: bool) -> dict[str, Any]:
    return {
        "conversation_id": conversation(conversation_id),
        "message_id": parse_name(message_id, field="message_id"),
        "preview": preview,
    }


def _preview(document: Any) -> "ForgetPreview":
    from aforesaid.retention.repetitions import ForgetPreview

    return msgspec.convert(document, ForgetPreview)


def _forgotten(document: Any) -> "ForgetReceipt":
    from aforesaid.retention.repetitions import ForgetReceipt

    return msgspec.convert(document["receipt"], ForgetReceipt)


def _changed(document: Any) -> int:
    return int(document["changed"])


def _lifetime(document: Any) -> Applied:
    ttl = document["ttl"]
    return Applied(
        ttl=None if ttl is None else timedelta(seconds=ttl), step=document["step"], name=document["name"]
    )


def _expiring(document: Any) -> list[Expiring]:
    return msgspec.convert(document["expiring"], list[Expiring])


def _archive(document: Any) -> "Archive":
    from aforesaid.transfer.archives import Archive

    return msgspec.convert(document, Archive)


def _receipt(document: Any) -> "Receipt":
    from aforesaid.retention.receipts import Receipt

    return msgspec.convert(document, Receipt)


def _manifest(answer: Answer) -> "Manifest":
    from aforesaid.transfer.folders import Manifest

    return msgspec.convert(document_of(answer), Manifest)


def _unpack(answer: Answer, *, folder: Path) -> "Manifest":
    from aforesaid.transfer.zips import unpack_folder

    if answer.media_type != ZIP or answer.file is None:
        raise StoreForeign(
            f"the server must answer with an export; got {answer.media_type or 'no content type'}"
        )
    with answer.file.open("rb") as file:
        return unpack_folder(file, folder)


def _pack_upload(file: BinaryIO, *, folder: Path) -> None:
    from aforesaid.transfer.zips import pack_folder

    pack_folder(folder, file)
