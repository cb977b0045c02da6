"""What models cost: as configured, nothing for scripts and this machine, as listed, or unknown.

The list is data of the package `genai-prices`; nothing is fetched. Who needs no listed price does not
pay for its import.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from massgen_mcp.interfaces import AgentSpec, Price, Pricing, Rates, Tariff
from massgen_mcp.providers.catalogue import CATALOGUE, is_loopback

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, Tier, TieredPrices

FREE = Price(input=0.0, output=0.0)

LONGEST_NAME = 200
"""No model has a longer name; a server may make one up."""

_VARIANTS = ("service_tier", "speed")
"""Options that the list has other prices for."""


def price_of(spec: AgentSpec) -> Rates | None:
    """What the member's configured model costs, or None where nobody knows."""
    return pricing_of(spec)(None)


def pricing_of(spec: AgentSpec) -> Pricing:
    """What the member's calls cost, by the model that really answers.

    A model that the list does not know costs what the configured one does.
    """
    fixed = _fixed_price(spec)

    def rates(model: str | None) -> Rates | None:
        if fixed is not None:
            return fixed
        found = _listed(spec, model) if model and model != spec.model else None
        return _listed(spec, spec.model) if found is None else found

    return rates


def _fixed_price(spec: AgentSpec) -> Price | None:
    if spec.price is not None:
        return spec.price
    provider = CATALOGUE.get(spec.provider)
    is_here = spec.base_url is None and provider is not None and provider.is_local
    if spec.provider == "scripted" or is_here or is_loopback(spec.base_url):
        return FREE
    return None


def _listed(spec: AgentSpec, model: str) -> Rates | None:
    provider = CATALOGUE.get(spec.provider)
    url = spec.base_url or (None if provider is None else provider.base_url)
    if url is None or len(model) > LONGEST_NAME:
        return None
    # It takes a tenth of a second: only who has a model without a price of its own pays.
    from genai_prices import Usage, calc_price  # noqa: PLC0415

    try:
        # The address says whose price it is: many providers serve models of one name.
        found = calc_price(
            Usage(input_tokens=0, output_tokens=0),
            model.removeprefix("models/"),
            provider_api_url=url,
            genai_request_timestamp=datetime.now(UTC),
            price_context=_variant_of(spec),
        )
    except (LookupError, ValueError):
        return None
    return _rates(found.model_price)


def _variant_of(spec: AgentSpec) -> Mapping[str, str] | None:
    chosen = {key: spec.options.get(key) for key in _VARIANTS}
    return {key: value for key, value in chosen.items() if isinstance(value, str)} or None


def _rates(listed: "ModelPrice") -> Rates | None:
    """The list's entry as our own value; None where text has no price, or more than tokens have."""
    kinds = _Kinds(
        input=listed.input_mtok,
        output=listed.output_mtok,
        cached=listed.cache_read_mtok,
        cache_write=listed.cache_write_mtok,
    )
    goes_by_more = listed.requests_kcount is not None or listed.output_reasoning_mtok is not None
    price = None if goes_by_more else kinds.at(0)
    if price is None:
        return None
    steps = ((start, kinds.at(start + 1)) for start in kinds.starts())
    dearer = tuple((start, step) for start, step in steps if step is not None)
    return Tariff(price=price, steps=dearer) if dearer else price


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kinds:
    """The list's prices of the four kinds of tokens."""

    input: "Decimal | TieredPrices | None"
    output: "Decimal | TieredPrices | None"
    cached: "Decimal | TieredPrices | None"
    cache_write: "Decimal | TieredPrices | None"

    def starts(self) -> list[int]:
        """The lengths beyond which a price changes, upwards."""
        prices = (self.input, self.output, self.cached, self.cache_write)
        return sorted({tier.start for price in prices for tier in _tiers(price)})

    def at(self, read: int) -> Price | None:
        """The price of a call that reads so many tokens."""
        paid, written = _at(self.input, read), _at(self.output, read)
        if paid is None or written is None:
            return None
        return Price(
            input=paid,
            output=written,
            cached=_at(self.cached, read),
            cache_write=_at(self.cache_write, read),
        )


def _tiers(price: "Decimal | TieredPrices | None") -> "Sequence[Tier]":
    return () if price is None or isinstance(price, Decimal) else price.tiers


def _at(price: "Decimal | TieredPrices | None", read: int) -> float | None:
    if price is None or isinstance(price, Decimal):
        return None if price is None else float(price)
    beyond = [tier.price for tier in price.tiers if read > tier.start]
    return float(beyond[-1] if beyond else price.base)
