"""Schemas of requests, as the OpenAPI description shows them, and the field types that answers share with them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rowlock.errors import DELAY_SECONDS_MAX
from rowlock.jobs.policy import Unique
from rowlock.settings import NAME_LENGTH_MAX, PRIORITY_RANGE
from rowlock.storage.overview import REASON_LENGTH_MAX

EXAMPLE_ID = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
EXAMPLE_TIME = "2030-01-31T08:00:00.000Z"


def _no_number(given: Any) -> Any:
    """Raise ValueError for a number: whether it counts seconds or milliseconds would be a guess."""
    try:
        float(given)
    except (TypeError, ValueError):
        return given
    raise ValueError(f"write a time as {EXAMPLE_TIME}, not as a number")


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH_MAX, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Reason = Annotated[str, Field(max_length=REASON_LENGTH_MAX, pattern=r"^[^\x00]*$")]
Limit = Annotated[int, Field(ge=1, le=1_000)]
Cursor = Annotated[str, Field(min_length=1, max_length=200)]
StatusWord = Literal["queued", "processing", "succeeded", "failed", "cancelled"]
ImportWord = Literal["QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]


class Given(BaseModel):
    """What is sent: fields that are not known are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


class UniqueGiven(Given):
    """When a job counts as a duplicate, and what is answered then."""

    policy: Literal["forever", "while_active", "window", "none"] = "forever"
    seconds: Annotated[float, Field(gt=0, le=DELAY_SECONDS_MAX)] | None = Field(
        None, description="How long the window is; needed by it alone."
    )
    key: Name | None = Field(None, description="Compared instead of type and payload.")
    on_conflict: Literal["reject", "return_existing"] = Field(
        "reject", description="Answer 409 with the id of the existing job, or 200 with that job."
    )

    @model_validator(mode="after")
    def _seconds_of_window(self) -> UniqueGiven:
        if (self.policy == "window") != (self.seconds is not None):
            raise ValueError("seconds goes with the policy window, and only with it")
        return self

    def unique(self) -> Unique:
        chosen: dict[str, Any] = {"on_conflict": self.on_conflict, "key": self.key}
        if self.policy == "none":
            return Unique.none()
        if self.seconds is not None:
            return Unique.window(self.seconds, **chosen)
        return Unique.forever(**chosen) if self.policy == "forever" else Unique.while_active(**chosen)


class EnqueueGiven(Given):
    """A job to enqueue."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"type": "healthPing"}, {"type": "demo.sleep", "payload": {"seconds": 3}}]}
    )

    type: Name = Field(description="The job type, as the application names it.")
    payload: dict[str, JsonValue] = Field(default_factory=dict, description="What its handler takes.")
    queue: Name | None = Field(None, description="Another queue than the type's own.")
    priority: Annotated[int, Field(ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1])] | None = Field(
        None, description="Lower runs first. Otherwise the type's, or 100."
    )
    delay_seconds: Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX)] = Field(
        0.0, description="Run it no sooner than so many seconds from now."
    )
    available_at: Moment | None = Field(None, description="Run it no sooner; instead of a delay.")
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] | None = Field(
        None, description="Attempts before it counts as failed."
    )
    company_id: Name | None = Field(None, description="The company that it belongs to.")
    unique: UniqueGiven | None = Field(
        None, description="When it is a duplicate; otherwise as its type says, then as QUEUE_UNIQUE."
    )
    limit_key: Name | None = Field(None, description="The limit that it counts under, instead of its type's.")


class SyncGiven(Given):
    """An operation to send."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"payload": {"email": "ada@example.org"}, "priority": 3}]}
    )

    payload: dict[str, JsonValue] = Field(
        description="What the operation takes. A body without `payload` is the payload itself."
    )
    priority: Annotated[int, Field(ge=1, le=10)] | None = Field(
        None, description="1 to 10, lower goes first. Otherwise the operation's, or 5."
    )
    delay_seconds: Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX)] = Field(
        0.0, description="Send it no sooner than so many seconds from now."
    )
    company_id: Name | None = Field(None, description="The company that it belongs to.")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, given: Any) -> Any:
        return {"payload": given} if isinstance(given, dict) and "payload" not in given else given

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        whole = handler.resolve_ref_schema(handler(core))
        examples = whole.pop("examples")
        bare = {"title": "The payload itself", "type": "object", "not": {"required": ["payload"]}}
        return {"anyOf": [dict(whole), bare], "examples": [*examples, examples[0]["payload"]]}


class DeadGiven(Given):
    """Which failed jobs: some ids, or all that match; `all` where nothing narrows them down."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"type": "demo.sleep", "dryRun": True}]})

    ids: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="Only these."
    )
    type: Name | None = Field(None, description="Only jobs of this type; `name.*`: of all types that begin so.")
    queue: Name | None = Field(None, description="Only jobs of this queue.")
    company_id: Name | None = Field(None, description="Only jobs of this company.")
    reason: Reason | None = Field(None, description="Only jobs that failed for this reason, as a group says it.")
    all: bool = Field(False, description="Every failed job: needed where nothing else is said.")
    dry_run: bool = Field(False, description="Only say how many match.")
    limit: Annotated[int, Field(ge=1, le=100_000)] = Field(10_000, description="At most so many in one call.")
    cursor: Cursor | None = Field(None, description="The nextCursor of an earlier call.")

    @model_validator(mode="after")
    def _chosen(self) -> DeadGiven:
        given = (self.ids, self.type, self.queue, self.company_id, self.reason)
        if any(each is not None for each in given) == self.all:
            raise ValueError("which jobs? give ids, type, queue, companyId or reason, or else all: true")
        return self


class ImportOptions(Given):
    """What is said about a file; the manifest says what is left out of type and sheet."""

    type: Name | None = Field(None, description="The import type. Otherwise what the manifest says of the file's name.")
    sheet_name: Annotated[Name, Field(max_length=255)] | None = Field(
        None, description="The sheet of a workbook. Otherwise what the manifest says, or the first one with rows."
    )
    company_id: Name | None = Field(
        None, description="The company that it belongs to; that of the token, if it has one."
    )
    project_id: Name | None = Field(None, description="The project that it belongs to.")
    force: bool = Field(False, description="Import it although the same file was imported before.")
    dry_run: bool = Field(False, description="Load nothing; say what would change.")


class ImportNamedGiven(ImportOptions):
    """A file of the import folder."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"filename": "Accounts-Payable.xlsx"}]})

    filename: Annotated[str, Field(min_length=1, max_length=255)] = Field(
        description="The name of a file in the import folder, without folders."
    )


class UploadAsked(ImportOptions):
    """The same in the query of an upload, with the name where the body is the file itself."""

    model_config = ConfigDict(extra="ignore")

    filename: Annotated[str, Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="The file's name: needed where the body is the file itself, and not a form."
    )


class RetryGiven(Given):
    model_config = ConfigDict(json_schema_extra={"examples": [{"failureId": EXAMPLE_ID}]})

    failure_id: Annotated[str, Field(min_length=1, max_length=64, description="The id of a failed attempt.")]
