"""Amounts of money: whole minor units here, decimal text at HubSpot. No float ever holds one."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

AMOUNT_MAX = 10**15  # minor units

# ISO 4217: how many digits its minor unit has, where that is not two.
_NO_DIGITS = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_THREE_DIGITS = "BHD IQD JOD KWD LYD OMR TND"


def decimal_amount(minor_units: int, currency: str) -> str:
    """1230 of EUR as "12.30", 1230 of JPY as "1230", 1230 of KWD as "1.230"."""
    digits = minor_digits(currency)
    if digits == 0:
        return str(minor_units)
    whole, rest = divmod(abs(minor_units), 10**digits)
    return f"{'-' if minor_units < 0 else ''}{whole}.{rest:0{digits}d}"


def minor_digits(currency: str) -> int:
    """How many decimal places the minor unit of this currency stands for."""
    return 0 if currency in _NO_DIGITS.split() else 3 if currency in _THREE_DIGITS.split() else 2


# ASCII letters: "ı".upper() would be one.
Currency = Annotated[str, Field(pattern=r"^[A-Za-z]{3}$"), AfterValidator(str.upper)]
MinorUnits = Annotated[int, Field(strict=True, ge=0, le=AMOUNT_MAX)]
