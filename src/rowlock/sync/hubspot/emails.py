"""E-mail addresses as HubSpot stores them: the key of a contact."""

from __future__ import annotations

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field

EMAIL_LENGTH_MAX = 180  # leaves 20 of a key's 200 characters for other text; a longer key is refused at enqueue


def normal_email(address: str) -> str:
    """Return the address trimmed and in lower case, as HubSpot compares it. Raises ValueError if it is malformed."""
    text = unicodedata.normalize("NFC", address).strip().lower()
    name, at, domain = text.rpartition("@")
    if not at or not name or "." not in domain.strip(".") or "@" in name:
        raise ValueError("not an e-mail address: it needs a name, one @ and a domain")
    if len(text) > EMAIL_LENGTH_MAX or not text.isprintable() or any(mark in text for mark in ' ,;<>"'):
        raise ValueError("not an e-mail address that HubSpot takes")
    return text


Email = Annotated[str, Field(min_length=3, max_length=2 * EMAIL_LENGTH_MAX), AfterValidator(normal_email)]
