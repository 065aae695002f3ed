"""Redaction: what counts as a secret, in all places."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.observe.redaction import REDACTED, Redactor

CANARY = "c4n4ry-S3CRET"
redact = Redactor()


@pytest.mark.parametrize(
    "key",
    ["password", "Password", "DB_PASSWORD", "token", "accessToken", "secret", "client-secret", "key", "apiKey",
     "X-Api-Key", "authorization", "Proxy-Authorization", "passwords", "secrets", "tokens", "api_keys", "apiKeys",
     "access-token", "APIKey", "API_KEY", "apikey", "accesstoken", "secretkey", "apisecret", "dbpassword",
     "passwordHash", "userPasswordOld", "password2", "key_id", "PassWord", "tokensByUser", "клЮч_token",
     "githubtoken", "slacktoken", "hubspottoken", "csrfmiddlewaretoken", "slacksecret", "mytokens", "GITHUBTOKEN",
     "ci_slacktoken", "vaultsecretid", "djangosecretkey", "SECRETKEYBASE", "stripekey", "sendgridkey", "mailgunkey",
     "openaikey", "appsecretproof", "privatekeypem", "azurekey", "gcpkey", "kmskey", "kmskeys"],
)  # fmt: skip
def test_values_under_these_keys_are_gone_whatever_their_case_and_kind(key: str) -> None:
    for value in (CANARY, 7, None, [CANARY], {"deep": CANARY}, True):
        assert redact.value({key: value, "other": 1}) == {key: REDACTED, "other": 1}
    assert CANARY not in redact.text(f"see {key}={CANARY} and --{key} {CANARY}")


@pytest.mark.parametrize(
    "key",
    ["keyboard", "Keyboard_layout", "tokens_used", "maxTokens", "total-tokens", "monkey", "donkeyCount", "tokenizer",
     "maxtokens", "secretary", "undersecretary", "keybase", "author", "authorizer", "keynote", "turnkeys", ""],
)  # fmt: skip
def test_other_words_with_the_same_letters_are_no_secrets(key: str) -> None:
    assert redact.value({key: 7}) == {key: 7}
    assert redact.text(f"{key}: 7, and {key}=7") == f"{key}: 7, and {key}=7"


@pytest.mark.parametrize(
    "text",
    [f"line\\ntoken={CANARY}", f"?a=b%26token={CANARY}", f"ids%5Btoken={CANARY}", f"apikey={CANARY}",
     f'"key": "{CANARY * 300}"', f"--dbpassword {CANARY}", f"--token = {CANARY}", f"x://a@b,redis://:{CANARY}@h",
     f"token={CANARY * 300}", f'"{{\\"key\\": \\"a\\nb {CANARY * 300}\\"}}"', f"https://x/?u=amqp://a:{CANARY}@h"],
)  # fmt: skip
def test_secrets_in_odd_places_are_gone(text: str) -> None:
    assert "S3CRET" not in redact.text(text)


def test_it_goes_into_every_depth_and_leaves_the_rest_as_it_is() -> None:
    given: dict[str, Any] = {
        "user": "ann",
        "list": [{"password": CANARY}, ["x", {"a": {"Token": CANARY}}], (1, {"secret": CANARY})],
        "n": 1.5,
        "none": None,
        3: "number as key",
    }
    assert redact.value(given) == {
        "user": "ann",
        "list": [{"password": REDACTED}, ["x", {"a": {"Token": REDACTED}}], [1, {"secret": REDACTED}]],
        "n": 1.5,
        "none": None,
        3: "number as key",
    }
    assert given["list"][0] == {"password": CANARY}, "the original is not touched"


def test_what_is_nested_beyond_all_reason_is_hidden_as_a_whole() -> None:
    deep: Any = {"password": CANARY}
    for _ in range(5_000):
        deep = [deep]
    assert CANARY not in repr_of(redact.value(deep))


def repr_of(value: Any) -> str:
    """repr() of a nesting that may be too deep for repr() itself."""
    while isinstance(value, list) and value:
        value = value[0]
    return repr(value)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://app:{CANARY}@db.example.com:5432/main",
        f"redis://:{CANARY}@cache",
        f"amqp://user:p@{CANARY}@host/",
        f"postgresql://app:{CANARY}/more@db/main",
        f"https://{CANARY}@github.com/org/repo.git",
        f"POSTGRESQL+ASYNCPG://APP:{CANARY}@DB",
        f"(sqlite) see https://user:{CANARY}@host/path?x=1.",
        f"Authorization: Bearer {CANARY}",
        f"authorization: bearer {CANARY}",
        f"Authorization: Basic {CANARY}",
        f"Authorization: Token {CANARY}",
        f"Authorization: {CANARY}",
        f"{{'Authorization': 'Bearer {CANARY}', 'Accept': '*/*'}}",
        f"X-Api-Key: {CANARY}",
        f"https://api.example.com/?api_key={CANARY}&page=2",
        f"https://api.example.com/?page=2&access_token={CANARY}#top",
        f'{{"password": "{CANARY}"}}',
        f'{{"password":"a \\" quote {CANARY}"}}',
        f"{{'client_secret': '{CANARY}'}}",
        f'"{{\\"password\\": \\"{CANARY}\\"}}"',
        f"password={CANARY}",
        f"PASSWORD = {CANARY}",
        f"password: {CANARY}, next",
        f"password='two words {CANARY}'",
        f"the token={CANARY};path=/",
    ],
)
def test_secrets_inside_a_text_are_gone(text: str) -> None:
    cleaned = redact.text(text)
    assert "S3CRET" not in cleaned
    assert REDACTED in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain words about nothing",
        "https://example.com/a/b?page=2#part",
        "mail ann@example.com about it",
        "see http://localhost:8000/x",
        "12:30:45 done: 5 of 7",
        "RuntimeError: no such customer (attempt 5 of 5, the last)",
        "the monkey ate the donkey",
        "keyboard interrupt",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact.text(text) == text


def test_the_rest_of_the_text_can_still_be_read() -> None:
    cleaned = redact.text(f"GET https://ann:{CANARY}@example.com/v1?limit=5 with password={CANARY}, then 500")
    assert cleaned.startswith("GET https://")
    assert "@example.com/v1?limit=5 with password=[REDACTED], then 500" in cleaned


@pytest.mark.parametrize("text", [f"password={CANARY}", f"x://u:{CANARY}@h", f"Authorization: Bearer {CANARY}"])
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact.text(text)
    assert redact.text(once) == once
    assert redact.value({"a": once}) == {"a": once}


def test_the_list_of_words_can_be_extended_and_replaced() -> None:
    mine = Redactor(["password", " IBAN ", ""])
    assert mine.value({"Iban": CANARY, "token": "shown"}) == {"Iban": REDACTED, "token": "shown"}
    assert mine.text(f"iban={CANARY}") == f"iban={REDACTED}"
    assert Redactor(["a.b*"]).text("a.b*=x aXb=y") == f"a.b*={REDACTED} aXb=y"
    assert Redactor([]).value({"password": "shown", "n": "password=shown"}) == {
        "password": "shown",
        "n": "password=shown",
    }
