"""The webhooks of an owner's participants. A server sends notifications to them."""

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import InvalidSetting
from aforesaid.model.participants import parse_participant_id
from aforesaid.model.webhooks import (
    WEBHOOK_OWNERS,
    WEBHOOKS,
    Webhook,
    decode_webhook,
    encode_webhook,
    new_secret,
    parse_secret,
    parse_webhook_url,
)
from aforesaid.stores.blobs import owner_key
from aforesaid.transfer.owner_scope import OwnerScope


async def set_webhook(scope: OwnerScope, participant_id: str, url: str, *, secret: str | None) -> Webhook:
    """Store a webhook, and list its owner in the journal, where servers look."""
    webhook = Webhook(
        participant_id=parse_participant_id(participant_id),
        url=parse_webhook_url(url).geturl(),
        secret=new_secret() if secret is None else parse_secret(secret),
        created_at=scope.store.now(),
    )
    journal = scope.journal
    if journal is None:
        raise InvalidSetting("webhooks need a memory that was opened by its address")
    await scope.store.put_document(WEBHOOKS, webhook.participant_id, encode_webhook(webhook))
    owner = scope.owner.encode("utf-8", "surrogatepass")
    await journal.put_document(WEBHOOK_OWNERS, owner_key(scope.owner), owner)
    return webhook


async def stored_webhooks(store: ConversationStore) -> list[Webhook]:
    """Return an owner's webhooks with their secrets."""
    return [decode_webhook(one.data) async for one in all_documents(store, WEBHOOKS)]


async def listed_webhooks(store: ConversationStore) -> list[Webhook]:
    """Return an owner's webhooks without their secrets, sorted by participant."""
    return [replace(one, secret="") for one in await stored_webhooks(store)]
