"""Error responses, in the format of HubSpot's errors."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """No: with a status, a category, and whether a proper client would never have asked (a complaint)."""

    def __init__(self, status: int, category: str, message: str, *, complaint: bool = False, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.category = category
        self.message = message
        self.complaint = complaint
        self.more = more

    def body(self, correlation_id: str) -> dict[str, Any]:
        return {
            "status": "error",
            "message": self.message,
            "correlationId": correlation_id,
            "category": self.category,
            **self.more,
        }


def malformed(message: str, **more: Any) -> Refusal:
    """A request that no proper client sends."""
    return Refusal(400, "VALIDATION_ERROR", message, complaint=True, **more)


def invalid(message: str, code: str, name: str) -> Refusal:
    """A value that the property does not take."""
    error = {"message": message, "code": code, "context": {"propertyName": [name]}}
    return Refusal(400, "VALIDATION_ERROR", f"Property values were not valid: [{message}]", errors=[error])


def limited(policy: str) -> dict[str, Any]:
    """The body of a 429, which is of a shape of its own."""
    return {
        "status": "error",
        "message": f"You have reached your {policy.lower()} limit.",
        "errorType": "RATE_LIMIT",
        "policyName": policy,
    }
