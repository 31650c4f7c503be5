"""Fake providers on this machine: real HTTP, real streams, scripted replies.

    async with FakeProvider("anthropic") as provider:
        agent = AnthropicAgent("claude", base_url=provider.url, api_key="k")
        provider.will(Says("It is raining."))

Every request is checked against the provider's rules (`aforesaid.testing.validity`) and answered with 400
if it breaks one. `provider.requests` contains all requests.
"""

from aforesaid.testing.providers.protocol import Called, Fails, Garbage, Refuses, Says, Silence
from aforesaid.testing.providers.provider import FakeProvider

__all__ = ["Called", "Fails", "FakeProvider", "Garbage", "Refuses", "Says", "Silence"]
