"""The bodies of requests, and the options of an import in the query of an upload."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, JsonValue, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rowlock.errors import DELAY_SECONDS_MAX
from rowlock.jobs.policy import Unique
from rowlock.management.schemas.base import EXAMPLE_ID, Cursor, Moment, Name, Reason, RequestSchema
from rowlock.settings import PRIORITY_RANGE


class UniqueRequest(RequestSchema):
    """When a job counts as a duplicate, and what is answered then."""

    policy: Literal["forever", "while_active", "window", "none"] = "forever"
    seconds: Annotated[float, Field(gt=0, le=DELAY_SECONDS_MAX)] | None = Field(
        None, description="Length of the window; required for the policy window only."
    )
    key: Name | None = Field(None, description="Compare this key instead of type and payload.")
    on_conflict: Literal["reject", "return_existing"] = Field(
        "reject", description="If the job exists: respond with 409 and its id, or with 200 and that job."
    )

    @model_validator(mode="after")
    def _seconds_of_window(self) -> UniqueRequest:
        if (self.policy == "window") != (self.seconds is not None):
            raise ValueError("seconds is required for the policy window and not allowed otherwise")
        return self

    def unique(self) -> Unique:
        chosen: dict[str, Any] = {"on_conflict": self.on_conflict, "key": self.key}
        if self.policy == "none":
            return Unique.none()
        if self.seconds is not None:
            return Unique.window(self.seconds, **chosen)
        return Unique.forever(**chosen) if self.policy == "forever" else Unique.while_active(**chosen)


class EnqueueRequest(RequestSchema):
    """A job to enqueue."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"type": "healthPing"}, {"type": "demo.sleep", "payload": {"seconds": 3}}]}
    )

    type: Name = Field(description="The job type.")
    payload: dict[str, JsonValue] = Field(default_factory=dict, description="The parameters of the handler.")
    queue: Name | None = Field(None, description="The queue; default: that of the type.")
    priority: Annotated[int, Field(ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1])] | None = Field(
        None, description="Lower runs first; default: that of the type, or 100."
    )
    delay_seconds: Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX)] = Field(
        0.0, description="Delay in seconds before it runs."
    )
    available_at: Moment | None = Field(None, description="The earliest time to run it; instead of delaySeconds.")
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] | None = Field(
        None, description="Attempts before it is a dead letter."
    )
    company_id: Name | None = Field(None, description="The company that it belongs to.")
    unique: UniqueRequest | None = Field(
        None, description="The unique policy; default: that of the type, then QUEUE_UNIQUE."
    )
    limit_key: Name | None = Field(None, description="The limit key; default: that of the type.")


class SyncRequest(RequestSchema):
    """An operation to send."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"payload": {"email": "ada@example.org"}, "priority": 3}]}
    )

    payload: dict[str, JsonValue] = Field(
        description="The fields of the operation. A body without `payload` is the payload itself."
    )
    priority: Annotated[int, Field(ge=1, le=10)] | None = Field(
        None, description="1 to 10; lower runs first; default: that of the operation, or 5."
    )
    delay_seconds: Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX)] = Field(
        0.0, description="Delay in seconds before it is sent."
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


class DeadLettersRequest(RequestSchema):
    """Which failed jobs: some ids, or all that match; `all` where nothing narrows them down."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"type": "demo.sleep", "dryRun": True}]})

    ids: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="Only these jobs."
    )
    type: Name | None = Field(None, description="Only jobs of this type; `name.*`: all types with this prefix.")
    queue: Name | None = Field(None, description="Only jobs of this queue.")
    company_id: Name | None = Field(None, description="Only jobs of this company.")
    reason: Reason | None = Field(
        None, description="Only jobs that failed for this reason, as given by `dead-letter/groups`."
    )
    all: bool = Field(False, description="Every failed job; required without other filters.")
    dry_run: bool = Field(False, description="Only count the matching jobs.")
    limit: Annotated[int, Field(ge=1, le=100_000)] = Field(10_000, description="Maximum number of jobs in one call.")
    cursor: Cursor | None = Field(None, description="The nextCursor of an earlier call.")

    @model_validator(mode="after")
    def _chosen(self) -> DeadLettersRequest:
        given = (self.ids, self.type, self.queue, self.company_id, self.reason)
        if any(each is not None for each in given) == self.all:
            raise ValueError("no jobs selected: give ids, type, queue, companyId or reason, or all: true")
        return self


class ImportOptions(RequestSchema):
    """What is said about a file; the manifest says what is left out of type and sheet."""

    type: Name | None = Field(None, description="The import type; default: from the manifest, by file name.")
    sheet_name: Annotated[Name, Field(max_length=255)] | None = Field(
        None, description="The sheet of a workbook; default: from the manifest, or the first sheet with rows."
    )
    company_id: Name | None = Field(
        None, description="The company that it belongs to; that of the token, if it has one."
    )
    project_id: Name | None = Field(None, description="The project that it belongs to.")
    force: bool = Field(False, description="Import the file even if it was imported before.")
    dry_run: bool = Field(False, description="Load nothing; report what would change.")


class ImportNamedRequest(ImportOptions):
    """A file of the import folder."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"filename": "Accounts-Payable.xlsx"}]})

    filename: Annotated[str, Field(min_length=1, max_length=255)] = Field(
        description="The name of a file in the import folder, without a path."
    )


class UploadQuery(ImportOptions):
    """The same in the query of an upload, with the name where the body is the file itself."""

    model_config = ConfigDict(extra="ignore")

    filename: Annotated[str, Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="The file name; required if the body is the file itself and not a form."
    )


class RetryRequest(RequestSchema):
    model_config = ConfigDict(json_schema_extra={"examples": [{"failureId": EXAMPLE_ID}]})

    failure_id: Annotated[str, Field(min_length=1, max_length=64, description="The id of a failed attempt.")]
