"""The schema of each store equals the one pinned in `schema/`."""

from __future__ import annotations

from conformance.schema_snapshot import COMMAND, pinned, snapshot
from conformance.stores import Rig
from rowlock.clock import FakeClock


async def test_the_schema_is_the_pinned_one(rig: Rig, clock: FakeClock) -> None:
    store = await rig.make_bare(clock)
    await store.migrate(views=True)
    assert snapshot(rig) == pinned(rig.name), (
        "the schema has changed. Migrations that were released are never edited: add a new one, "
        f"see CONTRIBUTING.md; then run `{COMMAND}`"
    )


async def test_the_snapshot_notices_one_more_index(rig: Rig, clock: FakeClock) -> None:
    store = await rig.make_bare(clock)
    await store.migrate()
    before = snapshot(rig)
    async with store.transaction() as transaction:
        await transaction.execute(*rig.add_index("job_failures", "another"))
    added = [line for line in snapshot(rig).splitlines() if line not in before]
    assert len(added) == 1
    assert "another" in added[0]
