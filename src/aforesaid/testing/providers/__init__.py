"""Providers that run on this machine: real HTTP, real streams, and replies that a test has written.

    async with FakeProvider("anthropic") as provider:
        agent = AnthropicAgent("claude", base_url=provider.url, api_key="k")
        provider.will(Says("It is raining."))

Every request is judged by the provider's rules (`aforesaid.testing.validity`) and answered with 400 when
it breaks one; `provider.requests` has them all. Below: `http`, one module for each provider.
"""

from aforesaid.testing.providers.provider import FakeProvider
from aforesaid.testing.providers.script import Called, Fails, Garbage, Refuses, Says, Silence

__all__ = ["Called", "Fails", "FakeProvider", "Garbage", "Refuses", "Says", "Silence"]
