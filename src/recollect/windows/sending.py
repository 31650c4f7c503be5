"""From a context to a request that a provider takes, or a refusal. Below: dialects. Above: the manager.

A window is valid whatever the log and the policy, with one exception that no cut brings about: a
filter that nobody's words pass, or a conversation in which nobody has spoken, leaves nothing to
answer. The context is then empty but for system messages, and its report says why; to write it as
a request is an error, here, and not at the provider.
"""

from recollect.contexts import Context
from recollect.dialects import Request, write
from recollect.errors import NothingToSend


def write_request(context: Context, dialect: str) -> Request:
    """The context as a request in this dialect. Raises `NothingToSend` where there is nothing to answer."""
    if context.report.nothing_to_send is not None:
        raise NothingToSend(context.report.nothing_to_send)
    return write(context.messages, dialect)
