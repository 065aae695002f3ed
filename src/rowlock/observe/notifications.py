"""Notifications: new dead letters as one message to staff, sent to every target in the settings."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any
from urllib.parse import unquote

import orjson

from rowlock.errors import NoticeFailed, RowlockError, SettingsError
from rowlock.observe import webhook
from rowlock.observe.guidance import OtherSide, about_jobs, denied
from rowlock.observe.redaction import REDACTED, Redactor
from rowlock.storage.reliability import DeadLetters

GROUPS_MAX = 20
ERROR_LENGTH_MAX = 500  # of one error in a message; the job's record has all of it
TARGETS_MAX = 20
TARGET_SECONDS_MAX = 30.0
_REMEMBERED_MAX = 100  # notifications whose reached targets are remembered, for a retry
_REASON_LENGTH_MAX = 200
_PART_LENGTH_MIN = 4
_SEPARATORS = re.compile(r"[/:@?&=,#\s]+")


@dataclass(frozen=True, slots=True)
class Notification:
    """A message: a title and a text for people, JSON for programs."""

    title: str
    text: str
    body: bytes


Deliver = Callable[[str, Notification], Awaitable[None]]


def check_targets(
    targets: Sequence[str], webhooks: Sequence[str], webhook_secret: str | None, *, allow_private: bool
) -> None:
    """Raise SettingsError if a target cannot be used; it names the setting and what it accepts, but no secret."""
    for setting, given in (("ROWLOCK_NOTIFY_TARGETS", targets), ("ROWLOCK_WEBHOOK_URLS", webhooks)):
        if len(given) > TARGETS_MAX:
            raise SettingsError(f"{setting}: names {len(given)} targets, the limit is {TARGETS_MAX}")
    for number, target in enumerate(targets, 1):
        _service(number, target)
    for number, url in enumerate(webhooks, 1):
        try:
            webhook.check_url(url, allow_private=allow_private)
        except ValueError as error:
            raise SettingsError(
                f"ROWLOCK_WEBHOOK_URLS: entry {number} {error}; allowed are https://host/path and http://host/path"
                + ("" if allow_private else ", and only hosts with public addresses")
            ) from None
    if webhook_secret:
        webhook.decode_secret(webhook_secret)
    elif webhooks:
        raise SettingsError(
            "ROWLOCK_WEBHOOK_SECRET: required to sign the messages to ROWLOCK_WEBHOOK_URLS; "
            'create one with: echo "whsec_$(openssl rand -base64 32)"'
        )


class Notifier:
    """Sends notifications; a target that fails does not affect the others."""

    def __init__(
        self,
        targets: Sequence[str],
        webhooks: Sequence[str],
        webhook_secret: str | None,
        *,
        allow_private: bool,
        redact: Redactor,
    ) -> None:
        self._targets = tuple(targets)
        self._webhooks = tuple(webhooks)
        self._secret = webhook.decode_secret(webhook_secret) if webhook_secret else b""
        self._allow_private = allow_private
        self._redact = redact
        self._reached: OrderedDict[str, set[str]] = OrderedDict()

    async def send(
        self,
        notice_id: str,
        deaths: Sequence[DeadLetters],
        queue_url: str | None = None,
        others: Mapping[str, OtherSide] | None = None,
    ) -> None:
        """Send one message about these dead letters to every target; sends nothing if there are none.

        `others` are the external systems that jobs call, by job type.

        Raises NoticeFailed if any target failed. Sent again under the same id, from the same process, it goes only to
        targets that have not accepted it; webhooks carry the id, so that a receiver can recognise a repeat.
        """
        if not deaths:
            return
        notice = compose(notice_id, deaths, self._redact, queue_url, others)
        reached = self._reached.setdefault(notice_id, set())
        while len(self._reached) > _REMEMBERED_MAX:
            self._reached.popitem(last=False)
        places = self._places()
        waiting = {name: deliver for name, deliver in places.items() if name not in reached}
        failures = await asyncio.gather(*(self._try(deliver, notice_id, notice) for deliver in waiting.values()))
        failed = []
        for name, failure in zip(waiting, failures, strict=True):
            if failure is None:
                reached.add(name)
            else:
                failed.append(f"{name}: {failure}")
        if failed:
            raise NoticeFailed(
                f"notification {notice_id} did not reach {len(failed)} of {len(places)} targets: {'; '.join(failed)}"
            )

    def _places(self) -> dict[str, Deliver]:
        """Return every target by a name that shows its setting and contains no secret."""
        places: dict[str, Deliver] = {}
        for number, target in enumerate(self._targets, 1):
            places[f"ROWLOCK_NOTIFY_TARGETS entry {number} ({_scheme(target)})"] = partial(self._message, number)
        for number, url in enumerate(self._webhooks, 1):
            places[f"ROWLOCK_WEBHOOK_URLS entry {number} ({webhook.place(url)})"] = partial(self._post, url)
        return places

    async def _post(self, url: str, notice_id: str, notice: Notification) -> None:
        await webhook.post(url, self._secret, notice_id, notice.body, allow_private=self._allow_private)

    async def _message(self, number: int, notice_id: str, notice: Notification) -> None:
        await asyncio.to_thread(_send, number, self._targets[number - 1], notice)

    async def _try(self, deliver: Deliver, notice_id: str, notice: Notification) -> str | None:
        """Deliver to one target; return None, or why it failed."""
        try:
            await deliver(notice_id, notice)
        except RowlockError as error:
            return self._redact.text(str(error))[:_REASON_LENGTH_MAX]
        except Exception as error:  # of a library; its text may contain a secret of the target
            return type(error).__name__
        return None


def compose(
    notice_id: str,
    deaths: Sequence[DeadLetters],
    redact: Redactor,
    queue_url: str | None = None,
    others: Mapping[str, OtherSide] | None = None,
) -> Notification:
    """Return one message about these dead letters: the first GROUPS_MAX groups in full, the others as a number."""
    total = sum(group.count for group in deaths)
    title = f"Rowlock: job {deaths[0].job_name} failed" if total == 1 else f"Rowlock: {total:,} jobs failed"
    shown = [_Group(group, redact, (others or {}).get(group.job_name)) for group in deaths[:GROUPS_MAX]]
    more = len(deaths) - len(shown)
    parts = [group.text() for group in shown]
    if more:
        parts.append(f"… and {more:,} more job types: rowlock dead list")
    if queue_url:
        parts.append(f"Dead letters: {queue_url}")
    text = "\n\n".join(parts)
    event = {
        "type": "jobs.dead",
        "timestamp": _moment(max(group.last_at for group in deaths)),
        "data": {
            "noticeId": notice_id,
            "count": total,
            "groups": [group.json() for group in shown],
            "moreGroups": more,
            "queueUrl": queue_url,
            "title": title,
            "text": text,
        },
    }
    return Notification(title, text, orjson.dumps(event))


class _Group:
    """The dead letters of one job type and queue, as text and as JSON."""

    def __init__(self, deaths: DeadLetters, redact: Redactor, other: OtherSide | None) -> None:
        self._deaths = deaths
        self._other = other
        error = " ".join(redact.text(deaths.reason).split())  # redacted before it is cut: half a secret is still one
        self._error = error if len(error) <= ERROR_LENGTH_MAX else f"{error[:ERROR_LENGTH_MAX]}…"

    def text(self) -> str:
        d = self._deaths
        jobs = "job" if d.count == 1 else "jobs"
        lines = [
            f"{d.job_name}: {d.count:,} {jobs} failed",
            f"  queue:      {d.queue_name}",
            f"  when:       {_moment(d.last_at)}" + (f" (first {_moment(d.first_at)})" if d.count > 1 else ""),
            f"  {'job' if len(d.job_ids) == 1 else 'last jobs'}:".ljust(14) + ", ".join(d.job_ids),
            f"  attempts:   {d.attempts}",
            f"  last error: {self._error or 'none was recorded'}",
            "  what to do:",
        ]
        return "\n".join(lines + [f"    - {line}" for line in self.guidance()])

    def guidance(self) -> list[str]:
        d = self._deaths
        return about_jobs(d.job_name, d.count, d.job_ids, d.reason, self._other)

    def json(self) -> dict[str, Any]:
        d, other = self._deaths, self._other
        return {
            "jobName": d.job_name,
            "queueName": d.queue_name,
            "count": d.count,
            "firstAt": _moment(d.first_at),
            "lastAt": _moment(d.last_at),
            "attempts": d.attempts,
            "retryCount": max(0, d.attempts - 1),
            "jobIds": list(d.job_ids),
            "lastError": self._error,
            "guidance": self.guidance(),
            "integration": other and other.name,
            "operation": other and d.job_name.removeprefix(f"{other.name}."),
            "scopesUrl": other.scopes_url if other is not None and denied(d.reason) else None,
        }


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _scheme(target: str) -> str:
    found = re.match(r"\s*([a-z][a-z0-9+.-]{0,30}):", target, re.IGNORECASE)
    return f"{found[1].lower()}://…" if found else "…"


def _send(number: int, target: str, notice: Notification) -> None:
    """Send through apprise, which blocks: not for an event loop."""
    apprise = _apprise()
    messenger = apprise.Apprise()
    messenger.add(_service(number, target))
    with messenger.notify(
        body=notice.text,
        title=notice.title,
        notify_type=apprise.NotifyType.FAILURE,
        body_format=apprise.NotifyFormat.TEXT,
        timeout=TARGET_SECONDS_MAX,
    ) as result:
        if not result:
            said = " ".join(entry.message for entry in result.logs())
            raise NoticeFailed(_without(target, said) or result.status.name.lower())


def _without(target: str, text: str) -> str:
    """Remove all parts of a target from a text: only its service knows which of them are secret."""
    parts = {part for whole in (target, unquote(target)) for part in _SEPARATORS.split(whole)}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _PART_LENGTH_MIN:
            text = text.replace(part, REDACTED)
    return text


def _service(number: int, target: str) -> Any:
    """Return apprise's service for a target; raises SettingsError, without the target, if apprise refuses it."""
    apprise = _apprise()
    asset = apprise.AppriseAsset(app_id="Rowlock", app_desc="Rowlock", app_url="")
    service = apprise.Apprise.instantiate(target, asset=asset)
    if service is None:
        raise SettingsError(
            f"ROWLOCK_NOTIFY_TARGETS: entry {number} ({_scheme(target)}) is not a target that apprise accepts; allowed "
            "are URLs such as mailtos://user:password@host?to=staff@host or slack://token/#channel, "
            "see https://appriseit.com/services/"
        )
    return service


@cache
def _apprise() -> Any:
    """Import apprise with its plugins, without the warnings that some raise about their own imports."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import apprise

            library: Any = apprise  # not all of it is typed
            library.NotificationManager().load_modules()
    except ImportError:
        raise SettingsError(
            "ROWLOCK_NOTIFY_TARGETS: messages to staff need apprise: pip install 'rowlock[notify]'"
        ) from None
    return library
