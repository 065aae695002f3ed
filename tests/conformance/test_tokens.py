"""Tokens of the HTTP API: role, expiry and last use."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import fields, replace
from datetime import timedelta

import pytest

from rowlock.clock import FakeClock
from rowlock.control import tokens
from rowlock.errors import StoreError
from rowlock.ids import uuid7
from rowlock.jobs.worker.maintenance import prune_access
from rowlock.storage.access import NewToken, Role, TokenRecord
from rowlock.storage.contract import Store

ODD_IDS = ["nobody", "", "' OR 1=1 --", "日本", "\x00", "\udcff", "a" * 5_000, "0" * 36]


def digest_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def new_token(name: str = "deploy", role: Role = Role.OPERATOR, **changes: object) -> NewToken:
    return replace(NewToken(uuid7(), digest_of(name), name, role), **changes)  # type: ignore[arg-type]


async def only(store: Store) -> TokenRecord:
    (found,) = await tokens.listed(store)
    return found


async def test_a_token_is_found_by_its_digest(store: Store, clock: FakeClock) -> None:
    token = new_token(company_id="acme")
    made = await tokens.add(store, token)
    assert made == TokenRecord(token.id, "deploy", Role.OPERATOR, "acme", clock.now(), None, None, None)
    assert await tokens.find(store, token.digest) == made
    assert await tokens.listed(store) == [made]


@pytest.mark.parametrize("digest", ["", "x", digest_of("other"), digest_of("deploy").upper(), digest_of("deploy")[:-1]])
async def test_another_digest_is_nobodys(store: Store, digest: str) -> None:
    await tokens.add(store, new_token())
    assert await tokens.find(store, digest) is None


@pytest.mark.parametrize("role", list(Role))
async def test_a_token_has_its_role(store: Store, role: Role) -> None:
    token = new_token(role=role)
    await tokens.add(store, token)
    found = await tokens.find(store, token.digest)
    assert found is not None
    assert found.role is role


def test_a_record_does_not_hold_the_digest() -> None:
    assert "digest" not in {field.name for field in fields(TokenRecord)}


async def test_a_token_of_all_companies_has_none(store: Store) -> None:
    await tokens.add(store, new_token())
    assert (await only(store)).company_id is None


async def test_one_digest_is_one_token(store: Store) -> None:
    first = new_token()
    await tokens.add(store, first)
    with pytest.raises(StoreError):
        await tokens.add(store, new_token(name="another", digest=first.digest))
    assert (await only(store)).id == first.id


async def test_one_id_is_one_token(store: Store) -> None:
    first = new_token()
    await tokens.add(store, first)
    with pytest.raises(StoreError):
        await tokens.add(store, new_token("another", id=first.id))
    assert (await only(store)).name == "deploy"


async def test_of_tokens_with_one_digest_added_at_once_one_is_kept(store: Store, other: Store) -> None:
    asked = [tokens.add((store, other)[n % 2], new_token(name=str(n), digest=digest_of("one"))) for n in range(8)]
    made = [one for one in await asyncio.gather(*asked, return_exceptions=True) if isinstance(one, TokenRecord)]
    assert made == await tokens.listed(store)
    assert len(made) == 1


@pytest.mark.parametrize("name", ["żółw 日本", "", "a'b\"c;--", "file \udcff", "a" * 1_000])
async def test_a_token_may_have_any_name(store: Store, name: str) -> None:
    token = replace(new_token(), name=name)
    made = await tokens.add(store, token)
    assert await only(store) == made
    if "\udcff" not in name:
        assert made.name == name


async def test_a_token_ends_when_its_time_is_over(store: Store, clock: FakeClock) -> None:
    token = new_token(expires_in_seconds=60)
    made = await tokens.add(store, token)
    assert made.expires_at == clock.now() + timedelta(seconds=60)
    clock.advance(59)
    assert await tokens.find(store, token.digest) == made
    clock.advance(1)
    assert await tokens.find(store, token.digest) is None
    assert await tokens.listed(store) == [made]


async def test_a_token_without_an_end_does_not_expire(store: Store, clock: FakeClock) -> None:
    token = new_token()
    made = await tokens.add(store, token)
    clock.advance(days=10_000)
    assert await tokens.find(store, token.digest) == made


async def test_a_revoked_token_is_not_found(store: Store, other: Store, clock: FakeClock) -> None:
    token = new_token(expires_in_seconds=3_600)
    made = await tokens.add(store, token)
    clock.advance(60)
    assert await tokens.revoke(other, token.id)
    assert await tokens.find(store, token.digest) is None
    assert await tokens.listed(store) == [replace(made, revoked_at=clock.now())]


async def test_the_first_revocation_counts(store: Store, clock: FakeClock) -> None:
    token = new_token()
    await tokens.add(store, token)
    await tokens.revoke(store, token.id)
    before = await only(store)
    clock.advance(60)
    assert await tokens.revoke(store, token.id)
    assert await only(store) == before


async def test_revoking_one_token_leaves_the_others(store: Store) -> None:
    kept, gone = new_token("kept"), new_token("gone")
    await tokens.add(store, kept)
    await tokens.add(store, gone)
    await tokens.revoke(store, gone.id)
    assert await tokens.find(store, kept.digest) is not None


async def test_a_token_that_expired_may_be_revoked_still(store: Store, clock: FakeClock) -> None:
    token = new_token(expires_in_seconds=1)
    await tokens.add(store, token)
    clock.advance(60)
    assert await tokens.revoke(store, token.id)
    assert (await only(store)).revoked_at == clock.now()


@pytest.mark.parametrize("token_id", [*ODD_IDS, "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"])
async def test_an_id_that_no_token_has_revokes_nothing(store: Store, token_id: str) -> None:
    made = await tokens.add(store, new_token())
    assert not await tokens.revoke(store, token_id)
    assert await only(store) == made


async def test_an_id_in_upper_case_is_the_same_token(store: Store) -> None:
    token = new_token()
    await tokens.add(store, token)
    assert await tokens.revoke(store, token.id.upper())
    assert await tokens.find(store, token.digest) is None


async def test_tokens_are_listed_the_oldest_first(store: Store, clock: FakeClock) -> None:
    names = ["c", "a", "d", "b"]
    for name in names:
        await tokens.add(store, new_token(name))
        clock.advance(1)
    assert [one.name for one in await tokens.listed(store)] == names


async def test_an_empty_store_has_no_tokens(store: Store) -> None:
    assert await tokens.listed(store) == []
    assert await tokens.find(store, digest_of("deploy")) is None


async def test_a_token_that_was_used_says_when(store: Store, clock: FakeClock) -> None:
    used, unused = new_token("used"), new_token("unused")
    await tokens.add(store, used)
    await tokens.add(store, unused)
    for _ in range(2):
        clock.advance(60)
        await tokens.touch(store, [used.id])
        assert [one.last_used_at for one in await tokens.listed(store)] == [clock.now(), None]


async def test_many_tokens_are_touched_at_once(store: Store, clock: FakeClock) -> None:
    made = [new_token(str(number)) for number in range(20)]
    for token in made:
        await tokens.add(store, token)
    await tokens.touch(store, [token.id for token in made[:15]])
    assert [one.last_used_at for one in await tokens.listed(store)] == [clock.now()] * 15 + [None] * 5


async def test_touching_tokens_in_different_orders_does_not_deadlock(store: Store, other: Store) -> None:
    made = [new_token(str(number)) for number in range(50)]
    for token in made:
        await tokens.add(store, token)
    ids = [token.id for token in made]
    async with asyncio.timeout(30):
        await asyncio.gather(*(tokens.touch((store, other)[n % 2], ids[:: 1 if n % 4 < 2 else -1]) for n in range(12)))
    assert None not in {one.last_used_at for one in await tokens.listed(store)}


async def test_touching_nobody_does_nothing(store: Store) -> None:
    made = await tokens.add(store, new_token())
    await tokens.touch(store, [])
    await tokens.touch(store, [*ODD_IDS, uuid7()])
    assert await only(store) == made


async def test_a_revoked_token_is_pruned_after_its_days(store: Store, clock: FakeClock) -> None:
    token = new_token()
    await tokens.add(store, token)
    clock.advance(days=100)
    await tokens.revoke(store, token.id)
    clock.advance(days=90)
    assert await prune_access(store, 90, 10) == 0
    clock.advance(1)
    assert await prune_access(store, 90, 10) == 1
    assert await tokens.listed(store) == []


async def test_an_expired_token_is_pruned_after_its_days(store: Store, clock: FakeClock) -> None:
    await tokens.add(store, new_token(expires_in_seconds=3_600))
    clock.advance(days=90)
    assert await prune_access(store, 90, 10) == 0
    clock.advance(3_601)
    assert await prune_access(store, 90, 10) == 1
    assert await tokens.listed(store) == []


async def test_a_token_that_may_be_used_is_never_pruned(store: Store, clock: FakeClock) -> None:
    await tokens.add(store, new_token("for ever"))
    await tokens.add(store, new_token("for long", expires_in_seconds=20_000 * 86_400))
    clock.advance(days=10_000)
    assert await prune_access(store, 0, 10) == 0
    assert len(await tokens.listed(store)) == 2


async def test_no_more_tokens_are_pruned_than_asked(store: Store, clock: FakeClock) -> None:
    for number in range(5):
        await tokens.add(store, new_token(str(number), expires_in_seconds=1))
    clock.advance(days=2)
    assert [await prune_access(store, 1, 2) for _ in range(4)] == [2, 2, 1, 0]
