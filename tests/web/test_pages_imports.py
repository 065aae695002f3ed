"""The pages of imports: upload a file, see the errors, and each bad cell is marked."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from pydantic import BaseModel, Field, SecretStr

from rowlock import Rowlock
from rowlock.storage.access import Role
from rowlock.storage.imports import ImportStatus
from web.conftest import MakeSite
from web.importing import files, half_done, imported, workbook
from web.paper import Paper
from web.site import Site

NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
HOSTILE = "</script><script>alert(1)</script><b>\"'&amp;"
GOOD = b"email,name\r\nada@example.org,Ada\r\nbob@example.org,Bob\r\n"
BAD = b"email,name\r\nada@example.org,Ada\r\nnobody,Eve\r\n,Bob\r\n"
Email = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$", description="an e-mail address")]


class Customer(BaseModel):
    email: Email
    name: str | None = Field(None, title="Full Name")


class Account(BaseModel):
    number: int
    pin: SecretStr


def declare(app: Rowlock) -> None:
    app.importer("customers", row=Customer, key=["email"], into="page_customers")
    app.importer("everyone", row=Customer, key=["email"], into="page_everyone", mode="replace")
    app.importer("strictOnes", row=Customer, key=["email"], into="strict_ones", policy="all_or_nothing")
    app.importer("accounts", row=Account, key=["number"], into="page_accounts")
    app.importer("owned", row=Customer, key=["email"], into="owned", company="company_id")


@pytest.fixture
def make_shop(make_site: MakeSite) -> Any:
    async def make(**settings: Any) -> Site:
        site = await make_site(declare, **settings)
        for name in ("acme", "globex"):
            await site.add_token(name, Role.OPERATOR, name)
        return site

    return make


@pytest.fixture
async def shop(make_shop: Any) -> Site:
    site: Site = await make_shop()
    return site


async def paper(site: Site, path: str, token: str = "operator", status: int = 200) -> Paper:
    answer = await site.get(path, token)
    assert answer.status_code == status, answer.text
    return Paper(answer)


async def send(
    site: Site, data: bytes = GOOD, name: str = "customers.csv", token: str = "operator", **fields: str
) -> httpx.Response:
    """What a browser sends: every field, those that are left empty too."""
    given = {"type": "customers", "sheetName": "", "companyId": ""} | fields
    return await site.post("/imports", token=token, files={"file": (name, data)}, data=given)


async def taken(site: Site, data: bytes = GOOD, name: str = "customers.csv", **more: str) -> str:
    """The path of the page of an import that was taken."""
    answer = await send(site, data, name, **more)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


async def done(site: Site, data: bytes = GOOD, name: str = "customers.csv", **more: str) -> str:
    """The same, when it is over."""
    path = await taken(site, data, name, **more)
    await site.app.work(drain=True)
    return path


async def post(site: Site, path: str, token: str = "operator", **fields: str) -> httpx.Response:
    return await site.ask("POST", path, token, data=fields)


async def after(site: Site, answer: httpx.Response) -> Paper:
    """The page that an answer leads to."""
    assert answer.status_code == 303, answer.text
    return Paper(await site.get(answer.headers["location"], "operator"))  # the client keeps the notice


async def record(site: Site, path: str) -> Any:
    found = await site.app.store.get_import(path.rpartition("/")[2])
    assert found is not None
    return found


# -- the form --------------------------------------------------------------------------------------


async def test_the_form_checks_first_unless_told_otherwise(shop: Site) -> None:
    page = await paper(shop, "/imports")
    assert page.form("Check first").buttons[:2] == ["Check first", "Import now"]
    text = (await shop.get("/imports", "operator")).text
    assert 'name="dryRun" value="true">Check first' in text
    assert "Nothing was imported yet" in page.text


async def test_a_file_goes_in_by_the_form(shop: Site) -> None:
    path = await taken(shop, dryRun="true")
    found = await record(shop, path)
    assert path == f"/imports/{found.id}"
    assert (found.type, found.file_name, found.company_id) == ("customers", "customers.csv", None)
    assert found.user_id == shop.records["operator"].id
    assert files(shop) == [found.path]
    page = await paper(shop, path)
    assert "Your file is being checked" in page.part("state")
    assert (await paper(shop, "/imports")).links["customers.csv"] == path


async def test_a_workbook_goes_in_by_the_same_form(shop: Site) -> None:
    assert (await record(shop, await taken(shop, workbook(), "a.xlsx"))).path.endswith("source.xlsx")


async def test_what_is_sent_may_be_larger_than_other_bodies(make_shop: Any) -> None:
    shop = await make_shop(http_body_bytes_max=1_024)
    data = GOOD + b"".join(b"%d@example.org,Somebody\r\n" % number for number in range(50_000))

    async def body() -> AsyncIterator[bytes]:
        head = b'--x\r\ncontent-disposition: form-data; name="type"\r\n\r\ncustomers\r\n'
        yield head + b'--x\r\ncontent-disposition: form-data; name="file"; filename="c.csv"\r\n\r\n'
        for at in range(0, len(data), 65_536):
            yield data[at : at + 65_536]
        yield b"\r\n--x--\r\n"

    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = await shop.post("/imports", token="operator", content=body(), headers=headers)
    assert (await record(shop, answer.headers["location"])).size_bytes == len(data)


async def test_the_type_is_that_of_the_manifest_where_none_is_chosen(shop: Site) -> None:
    Path(shop.app.settings.import_manifest).write_text('{"cust*.csv": {"type": "everyone"}}')
    assert (await record(shop, await taken(shop, type=""))).type == "everyone"
    page = await paper(shop, "/imports?file=Customers.csv&size=10")
    assert page.part("hint") == "Recognised by the file name."
    assert '<option value="everyone" selected>' in (await shop.get("/imports?file=Customers.csv&size=10")).text
    page = await paper(shop, "/imports?file=unknown.csv&size=10")
    assert page.part("hint") == "Choose what is in the file: its name does not show it."


async def test_each_type_tells_its_columns_and_gives_an_empty_file(shop: Site) -> None:
    page = await paper(shop, "/imports", "viewer")
    assert "an e-mail address" in page.part("types")
    assert "or Full Name" in page.part("types")
    assert "Strict ones" in page.part("types")
    answer = await shop.get(page.links["Download a template"], "viewer")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith("attachment")


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "name", "status", "words"),
    [
        (b"x", "holiday.jpg", 415, "Files of this kind cannot be imported."),
        (b"x", "old.xls", 415, "This is an old Excel file."),
        (workbook(), "a.csv", 415, "name it .xlsx"),
        (b"email\r\n", "a.xlsx", 415, "The file is not what its name says."),
        (b"", "a.csv", 422, "The file is empty."),
        (b"x", "", 422, "No file"),
    ],
)
async def test_a_file_that_is_refused_is_told_on_the_same_page(
    shop: Site, data: bytes, name: str, status: int, words: str
) -> None:
    answer = await send(shop, data, name)
    assert answer.status_code == status, answer.text
    page = Paper(answer)
    assert words in page.part("answer")
    assert "Check first" in page.buttons
    if name:
        assert '<option value="customers" selected>' in answer.text  # what was chosen stays
    assert files(shop) == []


async def test_a_name_or_size_that_cannot_be_is_told_before_the_file_is_sent(make_shop: Any) -> None:
    shop = await make_shop(import_csv_bytes_max=1_000)
    assert "old Excel file" in (await paper(shop, "/imports?file=a.xls&size=1")).part("answer")
    assert "too large" in (await paper(shop, "/imports?file=a.csv&size=1001")).part("answer")
    assert (await paper(shop, "/imports?file=a.csv&size=1000")).part("answer") == ""
    answer = await send(shop, GOOD * 30)
    assert answer.status_code == 413
    assert "The file is too large." in Paper(answer).part("answer")


async def test_a_file_of_which_nobody_says_what_it_is(shop: Site) -> None:
    answer = await send(shop, type="")
    assert answer.status_code == 422
    assert "What kind of data is in this file?" in Paper(answer).part("answer")
    assert "Choose the kind in the list" in Paper(answer).part("answer")
    assert files(shop) == []


async def test_a_type_that_belongs_to_companies_asks_for_one(shop: Site) -> None:
    answer = await send(shop, type="owned")
    assert answer.status_code == 422
    assert "Which company is this file for?" in Paper(answer).part("answer")
    assert (await record(shop, await taken(shop, type="owned", companyId="acme"))).company_id == "acme"


async def test_the_same_file_is_told_and_imported_again_only_on_purpose(shop: Site) -> None:
    first = await done(shop)
    answer = await send(shop, name="again.csv")
    assert answer.status_code == 409
    page = Paper(answer)
    assert "This file was imported before." in page.part("answer")
    assert page.links["see its result"] == first
    assert "Import it again" in page.buttons
    assert (await taken(shop, force="true")) != first


async def test_who_forces_a_file_twice_in_a_row_imports_it_once_and_is_led_there(shop: Site) -> None:
    await done(shop)
    forced = await taken(shop, force="true", dryRun="false")
    assert await taken(shop, force="true", dryRun="false") == forced
    page = await after(shop, await send(shop, force="true"))
    assert "The same file is already being imported" in page.text
    assert len(files(shop)) == 1
    assert await taken(shop, force="true", companyId="acme") != forced
    assert await taken(shop, force="true", type="everyone") != forced
    assert await taken(shop, force="true", dryRun="true") != forced
    await shop.app.work(drain=True)
    assert await taken(shop, force="true") != forced


async def test_a_check_under_way_is_nothing_that_a_forced_import_would_repeat(shop: Site) -> None:
    check = await taken(shop, dryRun="true")
    assert await taken(shop, force="true") != check


async def test_enter_in_a_field_of_the_form_only_checks(shop: Site) -> None:
    await done(shop)
    page = Paper(await send(shop))
    assert page.form("Import it again").buttons == ["Check first", "Import now", "Import it again", "Stop"]


async def test_what_a_broken_manifest_says_is_told(shop: Site) -> None:
    Path(shop.app.settings.import_manifest).write_text("{")
    assert "line 1" in (await paper(shop, "/imports?file=a.csv&size=1")).part("answer")
    answer = await send(shop)
    assert (answer.status_code, "line 1" in Paper(answer).part("answer")) == (422, True)


# -- who may ---------------------------------------------------------------------------------------


async def test_viewers_see_imports_and_can_change_none(shop: Site) -> None:
    path = await done(shop, BAD, dryRun="true")
    page = await paper(shop, "/imports", "viewer")
    assert set(page.buttons) <= {"Filter", "Sign out"}
    assert page.links["customers.csv"] == path
    page = await paper(shop, path, "viewer")
    assert set(page.buttons) <= {"Sign out"}
    assert "not an e-mail address" in page.part("errors")
    for each in (path + "/import", path + "/resume", path + "/cancel"):
        assert (await post(shop, each, "viewer")).status_code == 403
    assert (await send(shop, token="viewer")).status_code == 403
    assert len(files(shop)) == 1


async def test_a_companys_token_sees_and_changes_its_own_only(shop: Site) -> None:
    ours = await taken(shop, token="acme", type="owned")
    theirs = await taken(shop, name="theirs.csv", token="globex", type="owned")
    page = await paper(shop, "/imports", "acme")
    assert page.links["customers.csv"] == ours
    assert "theirs.csv" not in page.text
    await paper(shop, theirs, "acme", status=404)
    for verb in ("import", "resume", "cancel"):
        assert (await post(shop, f"{theirs}/{verb}", "acme")).status_code == 404
    assert (await record(shop, theirs)).status is ImportStatus.QUEUED
    assert (await send(shop, token="acme", companyId="globex")).status_code == 403


async def test_a_file_that_another_site_sends_in_somebodys_name_is_refused(shop: Site) -> None:
    session = {"cookie": f"rowlock_session={shop.tokens['operator']}"}
    for said in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {}):
        answer = await shop.ask("POST", "/imports", None, files={"file": ("c.csv", GOOD)}, headers=said | session)
        assert answer.status_code == 403
    assert files(shop) == []


async def test_who_brought_a_file_is_told_by_name_to_whom_it_concerns(shop: Site) -> None:
    await shop.add_token("the fleet's own operator", Role.OPERATOR)
    fleet = await taken(shop, token="the fleet's own operator", companyId="acme")
    own = await taken(shop, BAD, "own.csv", token="acme", type="owned")
    for path in (fleet, "/imports"):
        assert "the fleet's own operator" in (await paper(shop, path)).text
        assert "the fleet's own operator" not in (await paper(shop, path, "acme")).text
    assert "by acme" in (await paper(shop, own, "acme")).part("file")


# -- the list --------------------------------------------------------------------------------------


async def test_imports_are_found_by_kind_and_status(shop: Site) -> None:
    await done(shop, GOOD, "good.csv")
    await taken(shop, BAD, "waiting.csv", type="everyone")
    both = await paper(shop, "/imports?type=&status=")
    assert {"good.csv", "waiting.csv"} <= set(both.links)
    assert "waiting.csv" not in (await paper(shop, "/imports?status=SUCCEEDED")).links
    assert "good.csv" not in (await paper(shop, "/imports?type=everyone")).links
    assert "No import matches" in (await paper(shop, "/imports?type=everyone&status=FAILED")).text
    await paper(shop, "/imports?status=nonsense", status=422)
    await paper(shop, "/imports?cursor=nonsense", status=422)


async def test_the_list_has_pages(shop: Site) -> None:
    for number in range(27):
        await imported(shop, filename=f"c{number}.csv")
    first = await paper(shop, "/imports?type=customers")
    assert ("c26.csv" in first.links, "c1.csv" in first.links) == (True, False)
    rest = await paper(shop, first.links["Older"])
    assert ("c26.csv" in rest.links, "c1.csv" in rest.links) == (False, True)
    assert rest.links["First page"] == "/imports?type=customers"


async def test_where_no_importer_is_declared_nothing_can_be_sent(site: Site) -> None:
    page = await paper(site, "/imports")
    assert "No imports are declared" in page.text
    assert "Check first" not in page.buttons


# -- one import ------------------------------------------------------------------------------------


async def test_an_import_that_is_not_there_is_a_page(shop: Site) -> None:
    for nobody in (NOBODY, "nonsense"):
        assert "No import has this id" in (await paper(shop, f"/imports/{nobody}", status=404)).text


async def test_how_far_an_import_is_shows_by_phase_and_chunk(shop: Site) -> None:
    import_id = await imported(shop)
    waiting = await paper(shop, f"/imports/{import_id}")
    assert "starts as soon as a worker is free" in waiting.part("state")
    assert f'data-live="/api/v1/events?import={import_id}"' in (await shop.get(f"/imports/{import_id}")).text
    import_id = await imported(shop, filename="another.csv")
    await half_done(shop, import_id)
    page = await paper(shop, f"/imports/{import_id}")
    assert "1 of 2 chunks" in page.part("state")
    assert "Checking and loading : in progress" in page.part("state")
    assert "Cancel this import" in page.buttons
    assert "2 chunks of work" in page.part("file")


async def test_a_check_tells_what_would_happen_and_is_imported_without_being_sent_again(shop: Site) -> None:
    await done(shop, b"email,name\r\nada@example.org,Ada\r\nbob@example.org,Bob\r\n", "first.csv")
    data = b"email,name\r\nada@example.org,Ada\r\nbob@example.org,Ben\r\neve@example.org,Eve\r\nbad,Bad\r\n"
    path = await done(shop, data, "check.csv", dryRun="true")
    page = await paper(shop, path)
    assert "3 of 4 rows can be imported, 1 has errors." in page.part("state")
    assert "This was a check: nothing has changed yet." in page.part("state")
    assert "name in 1 row" in page.part("changes")
    assert "before: Bob after: Ben" in page.part("changes")
    assert page.form("Import the 3 valid rows now").action == f"{path}/import"
    answer = await post(shop, f"{path}/import")
    assert answer.status_code == 303
    real = answer.headers["location"]
    assert real != path
    await shop.app.work(drain=True)
    told = await record(shop, real)
    assert (told.status, told.user_id) == (ImportStatus.SUCCEEDED, shop.records["operator"].id)
    assert (told.counts.inserted, told.counts.updated, told.counts.unchanged, told.counts.invalid) == (1, 1, 1, 1)
    assert "3 rows were imported, 1 was not." in (await paper(shop, real)).part("state")
    # Once more is a duplicate, told where it was asked for.
    page = await after(shop, await post(shop, f"{path}/import"))
    assert "This file was imported before" in page.part("state")
    assert page.links["see its result"] == real
    assert set((await paper(shop, f"{path}?before={real[9:]}", "viewer")).buttons) <= {"Sign out"}
    answer = await post(shop, f"{path}/import", force="true")
    assert answer.headers["location"] not in (path, real)
    twice = await post(shop, f"{path}/import", force="true")
    assert twice.headers["location"] == answer.headers["location"]
    assert "is already being imported" in (await after(shop, twice)).text


async def test_what_was_imported_for_real_is_not_offered_again_whatever_the_address_says(shop: Site) -> None:
    real = await done(shop)
    assert "Import it again" not in (await paper(shop, f"{real}?before={real[9:]}")).buttons
    running = await taken(shop, BAD)
    assert "Import it again" not in (await paper(shop, f"{running}?before={real[9:]}")).buttons


async def test_a_check_whose_file_was_cleaned_offers_no_import(shop: Site) -> None:
    path = await done(shop, dryRun="true")
    assert await shop.app.store.clean_import(path[9:])
    page = await paper(shop, path)
    assert not any(label.startswith("Import") for label in page.buttons)
    assert "Upload another file" in page.links


async def test_a_check_whose_file_is_gone_says_so(shop: Site) -> None:
    path = await done(shop, dryRun="true")
    for file in files(shop):
        (Path(shop.app.settings.import_store) / file).unlink()
    page = await after(shop, await post(shop, f"{path}/import"))
    assert "upload it again" in page.text
    assert len((await shop.get("/api/v1/import-jobs")).json()["imports"]) == 1


async def test_of_all_or_nothing_a_check_offers_no_import_when_a_row_is_bad(shop: Site) -> None:
    path = await done(shop, BAD, dryRun="true", type="strictOnes")
    page = await paper(shop, path)
    assert "Nothing would be imported: 2 of 3 rows have errors." in page.part("state")
    assert not any(label.startswith("Import") for label in page.buttons)
    assert "Upload a corrected file" in page.links


async def test_errors_are_told_by_group_and_in_the_cells_of_the_sheet(shop: Site) -> None:
    path = await done(shop, BAD)
    answer = await shop.get(path, "operator")
    page = Paper(answer)
    assert "1 row was imported, 2 were not." in page.part("state")
    assert "2 errors in 2 rows" in page.part("errors")
    assert page.links["row 3"] == f"{path}?after=2#errors"
    cells = re.findall(r'<td class="cell-bad".*?</td>', answer.text, re.DOTALL)
    assert len(cells) == 2
    assert "nobody" in cells[0]
    assert "not an e-mail address" in cells[0]
    assert ">empty<" in cells[1]
    assert page.links["Download the rows with errors"] == f"/api/v1/import-jobs/{path[9:]}/errors.csv"
    assert (await shop.get(page.links["Download the rows with errors"], "viewer")).status_code == 200


async def test_rows_with_errors_have_pages(shop: Site) -> None:
    path = await done(shop, b"email,name\r\n" + b"".join(b"bad%d,N\r\n" % n for n in range(120)))
    first = await paper(shop, path)
    assert ("bad49" in first.part("errors"), "bad50" in first.part("errors")) == (True, False)
    second = await paper(shop, first.links["Next rows"].partition("#")[0])
    assert ("bad99" in second.part("errors"), "bad49" in second.part("errors")) == (True, False)
    assert second.links["First rows"].partition("#")[0] == path


async def test_a_wide_sheet_shows_the_columns_with_errors_first(shop: Site) -> None:
    names = [f"extra{n}" for n in range(12)]
    data = ",".join([*names, "email", "name"]) + "\r\n" + ",".join([*names, "nobody", "Eve"]) + "\r\n"
    path = await done(shop, data.encode(), "wide.csv")
    text = (await shop.get(path)).text
    assert ("extra5" in text.partition('id="errors"')[2].partition("</section>")[0], "Show all 14 columns" in text) == (
        False,
        True,
    )
    page = await paper(shop, f"{path}?columns=all")
    assert "extra5" in page.part("errors")
    assert "M" in page.part("errors")
    assert "Show only the columns with errors" in page.links


async def test_a_row_that_cannot_be_read_is_told_as_a_whole(shop: Site) -> None:
    path = await done(shop, b"email,name\r\nada@example.org,Ada,too,many\r\nbob@example.org,Bob\r\n")
    assert "The whole row:" in (await paper(shop, path)).part("errors")


async def test_secrets_are_on_no_page(shop: Site) -> None:
    path = await done(shop, b"number,pin\r\n1,4711\r\nx,0815\r\n", "accounts.csv", type="accounts", dryRun="true")
    text = (await shop.get(path)).text
    assert ("4711" in text, "0815" in text) == (False, False)
    assert "[redacted]" in text


async def test_whatever_is_in_a_file_is_shown_as_text(shop: Site) -> None:
    cell = HOSTILE.replace('"', '""')
    data = f'email,name,"{cell}"\r\n"{cell}","{cell}","{cell}"\r\n'.encode()
    path = await done(shop, data, "<img src=x onerror=alert(1)>.csv")
    for each in (path, "/imports"):
        answer = await shop.get(each)
        Paper(answer)
        assert "<script>alert" not in answer.text
        assert "<img" not in answer.text
    answer = await send(shop, b"x", "<img src=x>.exe")
    assert "<img" not in answer.text


async def test_a_file_without_a_column_says_which_and_what_was_found(shop: Site) -> None:
    path = await done(shop, b"E-Male,Full Name\r\nada@example.org,Ada\r\n", "list.csv")
    page = await paper(shop, path)
    assert "Columns are missing in the file." in page.part("state")
    assert "The file has no column for email." in page.part("state")
    assert "Is it your column E-Male ? Then rename it to email." in page.part("columns")
    assert "Found in row 1 of the file E-Male Full Name" in page.part("columns")
    assert "Go on where it stopped" not in page.buttons  # the same file would fail the same way
    assert page.links["Upload a corrected file"].startswith("/imports?as=customers")


async def test_an_import_is_cancelled_and_goes_on(shop: Site) -> None:
    import_id = await imported(shop)
    await half_done(shop, import_id)
    path = f"/imports/{import_id}"
    page = await after(shop, await post(shop, f"{path}/cancel"))
    assert "The import is cancelled. Rows that were loaded before remain in the table." in page.text
    assert "1 row that was loaded before remains in the table" in page.part("state")
    assert "Checking and loading : stopped here" in page.part("state")
    again = await after(shop, await post(shop, f"{path}/cancel"))
    assert "already" in again.text
    page = await after(shop, await post(shop, f"{path}/resume"))
    assert "The import continues where it stopped, 1 chunk was already loaded." in page.text
    assert (await record(shop, path)).status is ImportStatus.RUNNING
    assert "failed and cancelled" in (await after(shop, await post(shop, f"{path}/resume"))).text
