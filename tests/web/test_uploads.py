"""Uploads: forms and plain bodies, streamed to disk; refused uploads leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from web.conftest import MakeSite
from web.importing import CSV, CSV_UPLOAD, XLSX_UPLOAD, declare_importers, files, form, raw, workbook
from web.site import SECONDS, Site, problem
from web.wire import chunk, head, wire


@pytest.fixture
def make_shop(make_site: MakeSite) -> Any:
    async def make(**settings: Any) -> Site:
        site = await make_site(**settings)
        declare_importers(site.app)
        return site

    return make


@pytest.fixture
async def shop(make_shop: Any) -> Site:
    site: Site = await make_shop()
    return site


async def count(shop: Site) -> int:
    return len((await shop.get("/api/v1/import-jobs")).json()["imports"])


# -- what is taken ---------------------------------------------------------------------------------


async def test_a_form_is_taken(shop: Site) -> None:
    answer = await form(shop, type="customers", projectId="p1", companyId="acme", dryRun="true")
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert told["jobId"] == told["id"]
    assert (told["status"], told["type"], told["fileName"]) == ("QUEUED", "customers", "customers.csv")
    assert (told["projectId"], told["companyId"], told["dryRun"]) == ("p1", "acme", True)
    assert (told["sha256"], told["sizeBytes"]) == (hashlib.sha256(CSV).hexdigest(), len(CSV))
    assert answer.headers["location"] == f"/api/v1/import-jobs/{told['id']}"
    assert files(shop) == [told["csvPath"]]
    assert (Path(shop.app.settings.import_store) / told["csvPath"]).read_bytes() == CSV
    job = (await shop.get(f"/api/v1/queue/{told['jobId']}")).json()
    assert (job["type"], job["queue"]) == ("rowlock.import", "imports")
    assert job["payload"] == {"kind": "parent", "importJobId": told["id"]}


async def test_a_plain_body_is_taken(shop: Site) -> None:
    answer = await raw(shop, dryRun="true", sheetName="S", filename="C:\\temp\\customers.csv")
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert (told["fileName"], told["dryRun"], told["sheetName"]) == ("customers.csv", True, "S")
    assert files(shop) == [told["csvPath"]]


async def test_a_body_of_unknown_length_is_taken(shop: Site) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(CSV), 5):
            yield CSV[at : at + 5]

    assert (await raw(shop, parts())).json()["sha256"] == hashlib.sha256(CSV).hexdigest()


async def test_a_packed_file_and_a_workbook_are_taken(shop: Site) -> None:
    told = (await raw(shop, gzip.compress(CSV), filename="customers.csv.gz")).json()
    assert told["csvPath"].endswith("/source.csv.gz")
    told = (await raw(shop, workbook(), path=XLSX_UPLOAD, filename="a.xlsx")).json()
    assert told["csvPath"].endswith("/source.xlsx")
    answer = await form(
        shop, workbook(), "b.xlsx", path=XLSX_UPLOAD, type="customers", force="true", sheetName="AP Data"
    )
    assert answer.json()["sheetName"] == "AP Data"


async def test_a_large_file_is_taken_in_many_pieces(shop: Site) -> None:
    data = b"email,name\n" + b"ada@example.org,Ada Lovelace\n" * 200_000
    for answer in (await raw(shop, data), await form(shop, data, type="everyone")):
        assert answer.status_code == 202, answer.text
        assert answer.json()["sha256"] == hashlib.sha256(data).hexdigest()


async def test_fields_of_a_form_may_come_before_or_after_the_file(shop: Site) -> None:
    text = b'--B\r\nContent-Disposition: form-data; name="type"\r\n\r\ncustomers\r\n'
    file = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n' + CSV + b"\r\n"
    headers = {"content-type": "multipart/form-data; boundary=B"}
    for body in (text + file + b"--B--\r\n", file + text + b"--B--\r\n"):
        answer = await shop.post(f"{CSV_UPLOAD}?force=true", content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        assert answer.json()["sha256"] == hashlib.sha256(CSV).hexdigest()


async def test_a_name_in_any_letters_is_kept(shop: Site) -> None:
    for answer in (
        await form(shop, name="Größen 客户.csv", type="customers"),
        await raw(shop, filename="Größen 客户.csv", force="true"),
    ):
        assert answer.json()["fileName"] == "Größen 客户.csv"


# -- the same again --------------------------------------------------------------------------------


@pytest.mark.every_store
async def test_the_same_file_again_is_a_duplicate_that_names_the_first(shop: Site) -> None:
    first = (await form(shop, type="customers")).json()
    told = problem(await raw(shop, filename="renamed.csv"), 409, "duplicate_import")
    assert told["existingImportId"] == told["existing"]["id"] == first["id"]
    assert files(shop) == [first["csvPath"]]
    assert await count(shop) == 1
    assert (await raw(shop, type="everyone")).status_code == 202  # another type is another import
    assert (await raw(shop, CSV + b"a@b.c,A\r\n")).status_code == 202  # and so are other bytes


async def test_a_duplicate_is_imported_when_it_is_forced_or_a_dry_run(shop: Site) -> None:
    first = (await form(shop, type="customers")).json()
    for more in ({"force": "true"}, {"dryRun": "true"}):
        again = await form(shop, type="customers", **more)
        assert again.status_code == 202
        assert again.json()["id"] != first["id"]
    told = problem(await form(shop, type="customers"), 409, "duplicate_import")
    assert told["existingImportId"] == first["id"]


async def test_an_idempotency_key_does_not_keep_a_file_out(shop: Site) -> None:
    """It is not looked at: the file itself tells when it comes again."""
    key = {"idempotency-key": "k", "content-type": "text/csv"}
    path = f"{CSV_UPLOAD}?filename=a.csv&type=customers"
    first = await shop.post(path, content=CSV, headers=key)
    assert first.status_code == 202
    assert problem(await shop.post(path, content=CSV, headers=key), 409, "duplicate_import")["existing"]["id"]
    assert (await shop.post(path, content=CSV + b"x", headers=key)).status_code == 202


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name", "data", "status", "code"),
    [
        (CSV_UPLOAD, "a.csv", b"", 422, "file_empty"),
        (CSV_UPLOAD, "a.csv", workbook(), 415, "file_content_mismatch"),
        (XLSX_UPLOAD, "a.xlsx", CSV, 415, "file_content_mismatch"),
        (CSV_UPLOAD, "a.xlsx", workbook(), 415, "file_type_unknown"),
        (XLSX_UPLOAD, "a.csv", CSV, 415, "file_type_unknown"),
        (XLSX_UPLOAD, "a.xls", CSV, 415, "file_old_format"),
        (CSV_UPLOAD, "a.exe", CSV, 415, "file_type_unknown"),
        (CSV_UPLOAD, "a.csv", b"%PDF-1.7", 415, "file_content_mismatch"),
        (CSV_UPLOAD, "..", CSV, 422, "file_name_bad"),
        (CSV_UPLOAD, "a\u202e.csv", CSV, 422, "file_name_bad"),
    ],
)
async def test_what_is_not_what_it_says_is_refused(
    shop: Site, path: str, name: str, data: bytes, status: int, code: str
) -> None:
    problem(await raw(shop, data, path=path, filename=name), status, code)
    problem(await form(shop, data, name, path=path, type="customers"), status, code)
    assert files(shop) == []
    assert await count(shop) == 0


@pytest.mark.parametrize("send", [raw, form])
async def test_a_file_may_be_as_large_as_the_limit_and_no_larger(make_shop: Any, send: Any) -> None:
    shop = await make_shop(import_csv_bytes_max=200_000, import_xlsx_bytes_max=200_000)
    for path, name, data in ((CSV_UPLOAD, "a.csv", CSV), (XLSX_UPLOAD, "a.xlsx", workbook())):
        fits = data.ljust(200_000, b"\n")
        assert (await send(shop, fits, path=path, type="customers", **_name(send, name))).status_code == 202
        kept = files(shop)
        answer = await send(shop, fits + b"\n", path=path, type="customers", **_name(send, name))
        assert "200,000" in problem(answer, 413, "file_too_large")["detail"]
        assert files(shop) == kept


def _name(send: Any, name: str) -> dict[str, str]:
    return {"name": name} if send is form else {"filename": name}


async def test_a_length_that_is_too_large_is_refused_before_a_byte_is_sent(make_shop: Any) -> None:
    shop = await make_shop(import_csv_bytes_max=1_000)
    async with wire(shop.port) as line:
        path = f"{CSV_UPLOAD}?filename=a.csv&type=customers"
        await line.send(
            head(shop, "POST", path, content_type="text/csv", content_length="99999999", expect="100-continue")
        )
        answer = await line.answer()
        assert answer is not None
        answer.problem("file_too_large")


async def test_a_body_that_turns_out_too_large_is_refused(make_shop: Any) -> None:
    shop = await make_shop(import_csv_bytes_max=1_000)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield CSV * 100

    async with asyncio.timeout(SECONDS):
        try:
            answer = await raw(shop, endless())
        except httpx.TransportError:
            pass  # it was cut off before it looked for the answer
        else:
            problem(answer, 413, "file_too_large")
    assert files(shop) == []


@pytest.mark.parametrize(
    ("content_type", "status", "code"),
    [
        ("application/json", 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        ("image/png", 415, "unsupported_media_type"),
        ("multipart/form-data", 422, "malformed_form"),
        ("multipart/form-data; boundary=" + "B" * 300, 422, "malformed_form"),
        ("multipart/form-data; boundary=other", 422, "malformed_form"),
    ],
)
async def test_a_body_of_another_media_type_is_refused(shop: Site, content_type: str, status: int, code: str) -> None:
    path = f"{CSV_UPLOAD}?filename=a.csv&type=customers"
    problem(await shop.post(path, content=CSV, headers={"content-type": content_type}), status, code)
    problem(
        await shop.post(path, content=CSV, headers={"content-type": "text/csv", "content-encoding": "gzip"}),
        415,
        "unsupported_media_type",
    )
    assert files(shop) == []


FILE = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\na,b\r\n'
FORMS = {
    "no end": FILE,
    "half a header": b"--B\r\nContent-Dispo",
    "no file": b'--B\r\nContent-Disposition: form-data; name="type"\r\n\r\ncustomers\r\n--B--\r\n',
    "a file without a name": b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\na,b\r\n--B--\r\n',
    "two files": FILE + FILE + b"--B--\r\n",
    "a file elsewhere": FILE.replace(b'"file"', b'"other"') + b"--B--\r\n",
    "many parts": b'--B\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n' * 30 + b"--B--\r\n",
    "a long text": b'--B\r\nContent-Disposition: form-data; name="type"\r\n\r\n' + b"x" * 9_000 + b"\r\n--B--\r\n",
    "a long header": b"--B\r\nX: " + b"x" * 50_000 + b"\r\n\r\n\r\n--B--\r\n",
    "nothing": b"",
    "only the end": b"--B--\r\n",
    "an image": FILE.replace(b"\r\n\r\n", b"\r\nContent-Type: image/png\r\n\r\n") + b"--B--\r\n",
    "a strange field": FILE + b'--B\r\nContent-Disposition: form-data; name="nonsense"\r\n\r\n1\r\n--B--\r\n',
    "no yes or no": FILE + b'--B\r\nContent-Disposition: form-data; name="force"\r\n\r\nperhaps\r\n--B--\r\n',
}


@pytest.mark.parametrize("name", FORMS)
async def test_a_form_that_is_not_as_it_should_be_is_refused(shop: Site, name: str) -> None:
    headers = {"content-type": "multipart/form-data; boundary=B"}
    answer = await shop.post(f"{CSV_UPLOAD}?type=customers", content=FORMS[name], headers=headers)
    assert answer.status_code in (415, 422), answer.text
    assert answer.json()["code"] in ("malformed_form", "validation_failed", "unsupported_media_type")
    assert files(shop) == []
    assert await count(shop) == 0


async def test_an_unknown_type_is_refused_with_the_known_ones(shop: Site) -> None:
    told = problem(await raw(shop, type="custmers"), 422, "unknown_import_type")
    assert "known types: customers, everyone; did you mean 'customers'?" in told["detail"]
    told = problem(await form(shop), 422, "unknown_import_type")
    assert "no type was given" in told["detail"]
    problem(
        await shop.post(f"{CSV_UPLOAD}?type=customers", content=CSV, headers={"content-type": "text/csv"}),
        422,
        "validation_failed",
    )
    assert files(shop) == []


async def test_only_operators_import(shop: Site) -> None:
    problem(await raw(shop, token="viewer"), 403, "forbidden")
    problem(await form(shop, token="viewer", type="customers"), 403, "forbidden")
    problem(await shop.post(CSV_UPLOAD, token=None, content=CSV), 401, "unauthorized")
    assert files(shop) == []


# -- what goes wrong -------------------------------------------------------------------------------


async def began(shop: Site, line: Any, **more: str) -> None:
    """Send the first part of a file, and wait until it is being written to the disk."""
    path = f"{CSV_UPLOAD}?filename=a.csv&type=customers"
    await line.send(head(shop, "POST", path, content_type="text/csv", transfer_encoding="chunked", **more))
    await line.send(chunk(CSV * 60_000))
    async with asyncio.timeout(SECONDS):
        while not files(shop):
            await asyncio.sleep(0.01)


async def nothing_left(shop: Site) -> None:
    async with asyncio.timeout(SECONDS):
        while files(shop):
            await asyncio.sleep(0.01)
    assert await count(shop) == 0


async def test_a_disconnect_during_an_upload_leaves_nothing(shop: Site, log: Any) -> None:
    async with wire(shop.port) as line:
        await began(shop, line)
        assert [name.split("/")[0] for name in files(shop)] == ["scratch"]
    await nothing_left(shop)
    assert log.of("http.failed") == []


async def test_an_upload_that_stalls_times_out_and_leaves_nothing(make_shop: Any) -> None:
    shop = await make_shop(http_body_seconds=0.5)
    async with wire(shop.port) as line:
        await began(shop, line)
        answer = await line.answer()
        assert answer is not None
        answer.problem("request_timeout")
    await nothing_left(shop)


async def test_a_slow_sender_is_waited_for_longer_than_other_requests_may_take(make_shop: Any) -> None:
    shop = await make_shop(http_body_seconds=60.0, http_request_seconds=2.0)
    begun = asyncio.get_running_loop().time()

    async def slow() -> AsyncIterator[bytes]:
        yield CSV
        while asyncio.get_running_loop().time() - begun < 2.5:
            await asyncio.sleep(0.05)
            yield b"a@b.c,A\r\n"

    assert (await raw(shop, slow())).status_code == 202


async def test_no_more_files_at_once_than_there_are_places(make_shop: Any) -> None:
    shop = await make_shop(http_bodies_max=1)
    async with wire(shop.port) as line:
        await began(shop, line)
        answer = await raw(shop)
        problem(answer, 429, "too_many_requests")
        assert "retry-after" in answer.headers
    await nothing_left(shop)
    assert (await raw(shop)).status_code == 202


async def test_a_store_that_fails_may_have_the_import_so_the_file_stays(shop: Site) -> None:
    shop.app.store.refuse("add_import")
    problem(await raw(shop), 503, "store_unavailable")
    (kept,) = files(shop)
    assert kept.startswith("imports/")
    assert await count(shop) == 0


async def test_a_disk_that_fails_is_told_without_where_it_is(make_shop: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"a file")
    shop = await make_shop(import_store=str(tmp_path / "taken"))
    for answer in (await raw(shop), await form(shop, type="customers")):
        told = problem(answer, 503, "store_unavailable")
        assert "ROWLOCK_IMPORT_STORE" in told["detail"]
        assert str(tmp_path) not in answer.text
    assert await count(shop) == 0


async def test_files_without_an_import_are_cleaned_after_a_day(shop: Site) -> None:
    from rowlock.imports.intake.intake import Intake

    kept = (await raw(shop)).json()["csvPath"]
    intake = Intake(shop.app)
    old = "imports/01800000-0000-7000-8000-000000000000/source.csv"
    await intake.blobs.put(old, CSV)
    recent = f"imports/{(await raw(shop, CSV + b'x')).json()['id'][:-4]}0000/source.csv"
    await intake.blobs.put(recent, CSV)
    assert old in files(shop)
    await shop.app.imports.clean_forgotten()
    assert old not in files(shop)
    assert {kept, recent} <= set(files(shop))


async def test_requests_that_no_client_would_send(shop: Site) -> None:
    """Neither a fault nor a file comes of them."""
    path = f"{CSV_UPLOAD}?filename=a.csv&type=customers"
    for data in (
        head(shop, "POST", path, content_type="text/csv", content_length="10") + b"a,b",
        head(shop, "GET", path, content_type="text/csv", content_length="3") + b"a,b",
        head(shop, "PUT", path, content_type="text/csv", content_length="3") + b"a,b",
        head(shop, "POST", path, content_type="text/csv"),
        head(shop, "POST", f"{CSV_UPLOAD}?filename=%00.csv&type=customers", content_type="text/csv", content_length="3")
        + b"a,b",
        head(shop, "POST", f"{CSV_UPLOAD}?filename=a.csv&type=%0a", content_type="text/csv", content_length="3")
        + b"a,b",
        head(shop, "POST", path, content_type="multipart/form-data; boundary=\xff", content_length="3") + b"a,b",
    ):
        async with wire(shop.port) as line:
            await line.send(data)
            with contextlib.suppress(TimeoutError):
                answer = await line.answer(0.5)
                assert answer is not None
                assert 400 <= answer.status < 500, answer
    await nothing_left(shop)
