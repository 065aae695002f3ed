"""/api/v1/import-jobs and import-types: progress, totals, errors, resume, cancel, and company scope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rowlock.errors import CompanyMismatch
from rowlock.management import ManagementService
from rowlock.storage.access import Role
from rowlock.storage.imports import ImportStatus
from web.importing import CSV, declare_importers, declare_owned, files, form, half_done, imported, raw
from web.site import Site, problem

NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
FIELDS = {
    *(
        "id",
        "jobId",
        "type",
        "status",
        "progress",
        "message",
        "fileName",
        "csvPath",
        "sha256",
        "sizeBytes",
        "companyId",
    ),
    *(
        "projectId",
        "createdByUserId",
        "dryRun",
        "sheetName",
        "totalChunks",
        "completedChunks",
        "createdAt",
        "startedAt",
    ),
    *("finishedAt", "updatedAt", "metaJson", "resultJson", "errorJson", "summary"),
}


@pytest.fixture
async def shop(site: Site) -> Site:
    declare_importers(site.app)
    await site.add_token("acme", Role.ADMIN, "acme")
    await site.add_token("globex", Role.ADMIN, "globex")
    return site


# -- looking ---------------------------------------------------------------------------------------


@pytest.mark.every_store
async def test_an_import_shows_how_far_it_is(shop: Site) -> None:
    import_id = await imported(shop, companyId="acme", projectId="p1")
    fresh = (await shop.get(f"/api/v1/import-jobs/{import_id}", "viewer")).json()
    assert set(fresh) == FIELDS | {"chunks"}
    assert (fresh["status"], fresh["progress"], fresh["totalChunks"]) == ("QUEUED", 0, None)
    await half_done(shop, import_id)
    told = (await shop.get(f"/api/v1/import-jobs/{import_id}", "viewer")).json()
    assert (told["status"], told["totalChunks"], told["completedChunks"]) == ("RUNNING", 2, 1)
    assert 10 <= told["progress"] <= 99
    assert told["summary"] == {
        "totalRows": 3,
        "inserted": 1,
        "updated": 0,
        "unchanged": 0,
        "duplicates": 0,
        "failed": 2,
        "errorCount": 3,
        "errors": [
            {"row": 3, "column": "E-mail", "code": "email", "value": "=cmd", "reason": "not an e-mail address"},
            {"row": 4, "column": "E-mail", "code": "missing", "value": None, "reason": "is missing"},
            {"row": 4, "column": "Name", "code": "too_long", "value": "x", "reason": "too long"},
        ],
        "errorGroups": [
            {"column": "E-mail", "code": "email", "count": 1},
            {"column": "E-mail", "code": "missing", "count": 1},
            {"column": "Name", "code": "too_long", "count": 1},
        ],
    }
    chunks = [(chunk["index"], chunk["status"], chunk["totalRows"]) for chunk in told["chunks"] if chunk["index"] >= 0]
    assert chunks[0] == (0, "done", 3)
    assert chunks[1][:2] == (1, "waiting")
    assert (told["companyId"], told["projectId"]) == ("acme", "p1")
    assert told["createdByUserId"] == shop.records["operator"].id


async def test_asking_again_costs_a_line_while_nothing_has_changed(shop: Site) -> None:
    import_id = await imported(shop)
    for path in (f"/api/v1/import-jobs/{import_id}", "/api/v1/import-jobs", "/api/v1/import-types"):
        tag = (await shop.get(path)).headers["etag"]
        assert (await shop.get(path, headers={"if-none-match": tag})).status_code == 304
    await half_done(shop, import_id)
    assert (await shop.get(f"/api/v1/import-jobs/{import_id}", headers={"if-none-match": tag})).status_code == 200


@pytest.mark.every_store
async def test_imports_are_listed_filtered_and_paged(shop: Site) -> None:
    ids = [await imported(shop, companyId=company) for company in ("acme", "globex", "acme")]
    await imported(shop, type="everyone")
    await half_done(shop, ids[0])
    listed = (await shop.get("/api/v1/import-jobs?companyId=acme", "viewer")).json()
    assert [each["id"] for each in listed["imports"]] == [ids[2], ids[0]]
    assert set(listed["imports"][0]) == FIELDS
    assert listed["imports"][1]["summary"]["failed"] == 2
    assert listed["imports"][1]["summary"]["errors"] == []
    running = (await shop.get("/api/v1/import-jobs?status=RUNNING")).json()["imports"]
    assert [each["id"] for each in running] == [ids[0]]
    assert len((await shop.get("/api/v1/import-jobs?type=everyone")).json()["imports"]) == 1
    first = (await shop.get("/api/v1/import-jobs?type=customers&limit=2")).json()
    rest = (await shop.get(f"/api/v1/import-jobs?type=customers&limit=2&cursor={first['nextCursor']}")).json()
    assert [each["id"] for each in first["imports"] + rest["imports"]] == ids[::-1]
    assert rest["nextCursor"] is None
    problem(await shop.get("/api/v1/import-jobs?cursor=nonsense"), 422, "bad_cursor")
    problem(await shop.get("/api/v1/import-jobs?status=queued"), 422, "validation_failed")


@pytest.mark.every_store
async def test_errors_are_paged_by_row(shop: Site) -> None:
    import_id = await imported(shop)
    await half_done(shop, import_id)
    first = (await shop.get(f"/api/v1/import-jobs/{import_id}/errors?limit=1", "viewer")).json()
    assert [error["row"] for error in first["errors"]] == [3]
    rest = (await shop.get(f"/api/v1/import-jobs/{import_id}/errors?limit=1&afterRow={first['nextRow']}")).json()
    assert [error["column"] for error in rest["errors"]] == ["E-mail", "Name"]
    assert rest["nextRow"] is None


@pytest.mark.every_store
async def test_errors_as_csv_are_the_users_own_rows_and_safe(shop: Site) -> None:
    import_id = await imported(shop)
    await half_done(shop, import_id)
    answer = await shop.get(f"/api/v1/import-jobs/{import_id}/errors.csv", "viewer")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="errors-{import_id}.csv"'
    assert answer.content.decode("utf-8-sig").split("\r\n") == [
        '"E-mail","Name","row","column","reason"',
        '"\'=cmd","Eve","3","E-mail","not an e-mail address"',
        '"","x","4","E-mail, Name","E-mail: is missing; Name: too long"',
        "",
    ]


@pytest.mark.parametrize("rest", ["", "/errors", "/errors.csv"])
async def test_an_import_that_is_not_there(shop: Site, rest: str) -> None:
    for nobody in (NOBODY, "nonsense"):
        problem(await shop.get(f"/api/v1/import-jobs/{nobody}{rest}"), 404, "import_not_found")


async def test_import_types_tell_their_columns_and_give_a_template(shop: Site) -> None:
    types = {each["name"]: each for each in (await shop.get("/api/v1/import-types", "viewer")).json()["types"]}
    assert set(types) == {"customers", "everyone"}
    assert (types["everyone"]["mode"], types["customers"]["key"]) == ("replace", ["email"])
    columns = {column["name"]: column for column in types["customers"]["columns"]}
    assert (columns["email"]["kind"], columns["email"]["required"]) == ("text", True)
    assert columns["name"]["required"] is False
    template = await shop.get("/api/v1/import-types/customers/template.csv", "viewer")
    assert template.content == b'\xef\xbb\xbf"email","name"\r\n'
    problem(await shop.get("/api/v1/import-types/nobody/template.csv"), 404, "not_found")


# -- changing --------------------------------------------------------------------------------------


@pytest.mark.every_store
async def test_an_import_is_cancelled_and_resumed(shop: Site) -> None:
    import_id = await imported(shop)
    await half_done(shop, import_id)
    path = f"/api/v1/import-jobs/{import_id}"
    problem(await shop.post(f"{path}/resume"), 409, "import_not_resumable")
    cancelled = await shop.post(f"{path}/cancel", token="operator")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "CANCELLED")
    problem(await shop.post(f"{path}/cancel"), 409, "import_is_over")
    resumed = (await shop.post(f"{path}/resume", token="operator")).json()
    assert (resumed["status"], resumed["completedChunks"]) == ("RUNNING", 1)
    waiting = [chunk["jobId"] for chunk in resumed["chunks"] if chunk["status"] == "waiting"]
    assert len(waiting) == 1
    assert (await shop.get(f"/api/v1/queue/{waiting[0]}")).json()["status"] == "queued"


@pytest.mark.parametrize("verb", ["resume", "cancel"])
async def test_only_operators_change_imports(shop: Site, verb: str) -> None:
    import_id = await imported(shop)
    problem(await shop.post(f"/api/v1/import-jobs/{import_id}/{verb}", token="viewer"), 403, "forbidden")
    problem(await shop.post(f"/api/v1/import-jobs/{NOBODY}/{verb}"), 404, "import_not_found")


# -- by name ---------------------------------------------------------------------------------------


def furnish(shop: Site) -> Path:
    folder = Path(shop.app.settings.import_folder)
    folder.mkdir()
    (folder / "customers.csv").write_bytes(CSV)
    (folder.parent / "secret.csv").write_bytes(CSV)
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    return folder


async def named(shop: Site, filename: str, token: str = "operator", **more: Any) -> Any:
    return await shop.post("/api/v1/imports/xlsx", {"filename": filename, "type": "customers", **more}, token)


async def test_a_file_of_the_import_folder_is_imported_by_its_name(shop: Site) -> None:
    folder = furnish(shop)
    answer = await named(shop, "customers.csv", sheetName="S", projectId="p")
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert told["jobId"] == told["id"]
    assert (told["fileName"], told["sheetName"], told["projectId"]) == ("customers.csv", "S", "p")
    assert answer.headers["location"] == f"/api/v1/import-jobs/{told['id']}"
    assert (folder / "customers.csv").exists()
    problem(await named(shop, "customers.csv"), 409, "duplicate_import")
    assert (await named(shop, "customers.csv", force=True)).status_code == 202


@pytest.mark.parametrize(
    "name", ["../secret.csv", "/etc/passwd", "..", "link.csv", "folder/customers.csv", "a\0.csv", "..\\secret.csv"]
)
async def test_a_name_that_leads_out_of_the_folder_is_refused(shop: Site, name: str) -> None:
    furnish(shop)
    answer = await named(shop, name)
    assert answer.status_code in (404, 422), answer.text
    assert answer.json()["code"] in ("file_name_bad", "file_not_found", "validation_failed")
    assert files(shop) == []


async def test_the_manifest_says_which_type_and_sheet_a_name_stands_for(shop: Site) -> None:
    furnish(shop)
    Path(shop.app.settings.import_manifest).write_text('{"cust*.csv": {"type": "everyone", "sheetName": "AP Data"}}')
    told = (await named(shop, "customers.csv", type=None)).json()
    assert (told["type"], told["sheetName"]) == ("everyone", "AP Data")
    told = (await named(shop, "customers.csv")).json()
    assert (told["type"], told["sheetName"]) == ("customers", None)
    Path(shop.app.settings.import_manifest).write_text('{"cust*.csv": {"type": "custmers"}}')
    answer = problem(await named(shop, "customers.csv", type=None), 422, "unknown_import_type")
    assert "did you mean 'customers'?" in answer["detail"]
    assert "entry 'cust*.csv'" in answer["detail"]
    Path(shop.app.settings.import_manifest).write_text("{")
    assert "line 1" in problem(await named(shop, "customers.csv"), 422, "bad_setting")["detail"]


async def test_a_named_import_with_an_idempotency_key_is_made_once(shop: Site) -> None:
    furnish(shop)
    key = {"idempotency-key": "k"}
    body = {"filename": "customers.csv", "type": "customers", "force": True}
    first = await shop.post("/api/v1/imports/xlsx", body, headers=key)
    again = await shop.post("/api/v1/imports/xlsx", body, headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert len((await shop.get("/api/v1/import-jobs")).json()["imports"]) == 1


# -- companies -------------------------------------------------------------------------------------


async def test_an_import_is_its_companys_own(shop: Site) -> None:
    declare_owned(shop.app)
    ours = (await raw(shop, token="acme", type="owned")).json()
    theirs = (await raw(shop, token="globex", type="owned")).json()
    assert (ours["companyId"], theirs["companyId"]) == ("acme", "globex")
    assert [each["id"] for each in (await shop.get("/api/v1/import-jobs", "acme")).json()["imports"]] == [ours["id"]]
    assert (await shop.get("/api/v1/import-jobs?companyId=globex", "acme")).json()["imports"] == []
    for method, rest in (
        ("GET", ""),
        ("GET", "/errors"),
        ("GET", "/errors.csv"),
        ("POST", "/resume"),
        ("POST", "/cancel"),
    ):
        answer = await shop.ask(method, f"/api/v1/import-jobs/{theirs['id']}{rest}", "acme")
        problem(answer, 404, "import_not_found")
    assert (await shop.app.store.get_import(theirs["id"])).status is ImportStatus.QUEUED  # type: ignore[union-attr]


async def test_a_companys_token_cannot_import_for_another(shop: Site) -> None:
    declare_owned(shop.app)
    furnish(shop)
    problem(await raw(shop, token="acme", type="owned", companyId="globex"), 403, "company_scope")
    problem(await form(shop, token="acme", type="owned", companyId="globex"), 403, "company_scope")
    problem(await named(shop, "customers.csv", "acme", companyId="globex"), 403, "company_scope")
    assert files(shop) == []


@pytest.mark.every_store
async def test_the_same_file_of_another_company_is_no_duplicate(shop: Site) -> None:
    declare_owned(shop.app)
    assert (await raw(shop, token="acme", type="owned")).status_code == 202
    assert (await raw(shop, token="globex", type="owned")).status_code == 202
    assert (await raw(shop, token="admin", companyId="initech", type="owned")).status_code == 202
    told = problem(await raw(shop, token="admin", companyId="acme", type="owned"), 409, "duplicate_import")
    assert told["existing"]["companyId"] == "acme"


@pytest.mark.every_store
async def test_a_companys_token_cannot_change_rows_that_belong_to_no_company(shop: Site) -> None:
    """A `replace` upload would wipe the rows of all companies, and any other could change them or tell of them."""
    for type_name in ("everyone", "customers"):
        for more in ({}, {"dryRun": "true"}, {"force": "true"}):
            problem(await raw(shop, token="acme", type=type_name, **more), 403, "company_scope")
        problem(await form(shop, token="acme", type=type_name), 403, "company_scope")
    told = problem(await named(shop, "customers.csv", "acme"), 403, "company_scope")
    assert "company=" in told["detail"]
    assert files(shop) == []
    # What an operator began for the company wipes all companies' rows, too, when it is begun again.
    begun = await imported(shop, type="everyone", companyId="acme")
    assert (await shop.post(f"/api/v1/import-jobs/{begun}/cancel", token="acme")).status_code == 200
    problem(await shop.post(f"/api/v1/import-jobs/{begun}/resume", token="acme"), 403, "company_scope")
    with pytest.raises(CompanyMismatch):
        await ManagementService(shop.app, "acme").import_again(begun, force=True)
    assert (await shop.post(f"/api/v1/import-jobs/{begun}/resume")).status_code == 200


async def test_a_companys_token_reads_files_of_its_own_folder_only(shop: Site) -> None:
    declare_owned(shop.app)
    folder = furnish(shop)
    told = problem(await named(shop, "customers.csv", "acme", type="owned"), 403, "company_scope")
    assert "import folder" in told["detail"]
    for company in ("acme", "globex"):
        (folder / company).mkdir()
    (folder / "globex" / "theirs.csv").write_bytes(CSV)
    (folder / "acme" / "ours.csv").write_bytes(CSV)
    (folder / "acme" / "link.csv").symlink_to(folder / "globex" / "theirs.csv")
    for name in ("customers.csv", "theirs.csv", "link.csv"):
        problem(await named(shop, name, "acme", type="owned"), 404, "file_not_found")
    problem(await named(shop, "../globex/theirs.csv", "acme", type="owned"), 422, "file_name_bad")
    answer = await named(shop, "ours.csv", "acme", type="owned")
    assert answer.status_code == 202, answer.text
    for company in ("..", "a/b", "."):
        with pytest.raises(CompanyMismatch):
            await ManagementService(shop.app, company).import_named("customers.csv", type="owned")


@pytest.mark.every_store
async def test_a_job_of_one_company_does_no_work_on_the_import_of_another(shop: Site) -> None:
    declare_owned(shop.app)
    theirs = (await raw(shop, token="globex", type="owned")).json()["id"]
    given = {"type": "rowlock.import", "payload": {"kind": "parent", "importJobId": theirs}, "priority": 1}
    answer = await shop.post("/api/v1/queue/enqueue", given, "acme")
    assert answer.status_code in (200, 201, 202), answer.text
    await shop.app.work(drain=True)
    job = (await shop.get(f"/api/v1/queue/{answer.json()['id']}")).json()
    assert (job["status"], "does not belong to the job's company" in job["error"]) == ("failed", True)
