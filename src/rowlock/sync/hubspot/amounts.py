"""Amounts of money: whole minor units here, decimal text at HubSpot, never a float."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

AMOUNT_MAX = 10**15  # minor units

# ISO 4217: currencies whose minor unit does not have two digits.
_NO_DIGITS = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_THREE_DIGITS = "BHD IQD JOD KWD LYD OMR TND"


def decimal_amount(minor_units: int, currency: str) -> str:
    """Format minor units as decimal text: 1230 EUR -> "12.30", 1230 JPY -> "1230", 1230 KWD -> "1.230"."""
    digits = minor_digits(currency)
    if digits == 0:
        return str(minor_units)
    whole, rest = divmod(abs(minor_units), 10**digits)
    return f"{'-' if minor_units < 0 else ''}{whole}.{rest:0{digits}d}"


def minor_digits(currency: str) -> int:
    """Return the number of decimal places of a currency: 0, 2 or 3."""
    return 0 if currency in _NO_DIGITS.split() else 3 if currency in _THREE_DIGITS.split() else 2


# ASCII letters only: "ı".upper() is "I".
Currency = Annotated[str, Field(pattern=r"^[A-Za-z]{3}$"), AfterValidator(str.upper)]
MinorUnits = Annotated[int, Field(strict=True, ge=0, le=AMOUNT_MAX)]
