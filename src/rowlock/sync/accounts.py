"""The account of a service that a job uses: one for all companies, or one per company."""

from __future__ import annotations

from collections.abc import Callable

from rowlock.errors import SettingsError
from rowlock.jobs.registry import checked_name

OfCompany = Callable[[str | None], str]
"""A function of the job's company id, which may be None."""


class Accounts:
    """The accounts of one integration, with their credentials."""

    def __init__(self, integration: str, account: str | OfCompany, token: str | OfCompany | None) -> None:
        self._integration = integration
        self._account = account
        self._token = token
        if not callable(account):
            self.key(None)
        if not callable(token):
            self.token(None)
        elif not callable(account):
            raise SettingsError(
                f"integration {integration!r}: a token for each company needs an account for each: "
                "give account= as a function of the company, too"
            )

    @property
    def several(self) -> bool:
        """True if each company has its own account."""
        return callable(self._account)

    def key(self, company_id: str | None) -> str:
        """Return the account key that rate limits are counted under: "integration:account"."""
        account = self._account(company_id) if callable(self._account) else self._account
        return checked_name(f"{self._integration}:{account}", "account")

    def token(self, company_id: str | None) -> str | None:
        """Return the credential. Raises SettingsError for a malformed one; no error contains its value."""
        token = self._token(company_id) if callable(self._token) else self._token
        if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
            raise SettingsError(f"integration {self._integration!r}: its token must be printable, without spaces")
        return token
