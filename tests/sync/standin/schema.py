"""Properties of objects: the existing ones, which can be added, and their valid values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sync.standin.refusal import Refusal, invalid, malformed

TYPES = {"string", "number", "date", "datetime", "enumeration", "bool"}
FIELD_TYPES = {"textarea", "text", "date", "file", "number", "select", "radio", "checkbox", "booleancheckbox"}
REQUIRED = ("groupName", "name", "label", "type", "fieldType")
KNOWN = {*REQUIRED, "options", "description", "displayOrder", "hasUniqueValue", "hidden", "formField"}
READ_ONLY = {"hs_object_id", "createdate", "lastmodifieddate", "hs_lastmodifieddate"}
UNIQUE_MAX = 10
_EARLY = ["subscriber", "lead", "marketingqualifiedlead", "salesqualifiedlead", "opportunity"]
STAGES = [*_EARLY, "customer", "evangelist", "other"]
_OPEN = ["appointmentscheduled", "qualifiedtobuy", "presentationscheduled", "decisionmakerboughtin", "contractsent"]
DEAL_STAGES = [*_OPEN, "closedwon", "closedlost"]

TYPE_IDS = {"contacts": "0-1", "companies": "0-2", "deals": "0-3", "notes": "0-46"}
_GROUPS = {"contacts": "contactinformation", "companies": "companyinformation", "deals": "dealinformation"}
_STRINGS = {
    "contacts": "email firstname lastname phone company website jobtitle city",
    "companies": "name domain phone city industry",
    "deals": "dealname pipeline description",
    "notes": "hs_note_body",
}


def defaults(kind: str) -> dict[str, dict[str, Any]]:
    """The properties that every account has."""
    found = {name: _property(kind, name, "string", "text") for name in _STRINGS[kind].split()}
    found |= {name: _property(kind, name, "datetime", "date") for name in READ_ONLY}
    if kind == "contacts":
        found["lifecyclestage"] = _property(kind, "lifecyclestage", "enumeration", "radio", STAGES)
    if kind == "deals":
        found["amount"] = _property(kind, "amount", "number", "number")
        found["closedate"] = _property(kind, "closedate", "datetime", "date")
        found["dealstage"] = _property(kind, "dealstage", "enumeration", "radio", DEAL_STAGES)
    if kind == "notes":
        found["hs_timestamp"] = _property(kind, "hs_timestamp", "datetime", "date")
    return found


def _property(kind: str, name: str, type_name: str, field_type: str, options: list[str] | None = None) -> Any:
    return {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "type": type_name,
        "fieldType": field_type,
        "groupName": _GROUPS.get(kind, "engagement"),
        "description": "",
        "options": [{"label": each, "value": each, "hidden": False} for each in options or ()],
        "hasUniqueValue": False,
        "hubspotDefined": True,
    }


class Schema:
    """The properties of one kind of object."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.properties = defaults(kind)
        self.groups = {_GROUPS.get(kind, "engagement")}

    def get(self, name: str) -> dict[str, Any]:
        if name not in self.properties:
            raise Refusal(404, "OBJECT_NOT_FOUND", f"Property {name} does not exist")
        return self.properties[name]

    def add(self, told: dict[str, Any]) -> dict[str, Any]:
        """Make a property; refused when it exists."""
        if missing := [field for field in REQUIRED if not isinstance(told.get(field), str)]:
            raise malformed(f"Invalid input JSON: required fields were not set: {missing}")
        if unknown := sorted(set(told) - KNOWN):
            raise malformed(f"Invalid input JSON: unknown fields {unknown}")
        if told["type"] not in TYPES or told["fieldType"] not in FIELD_TYPES:
            raise malformed(f"no such type and fieldType: {told['type']}, {told['fieldType']}")
        if told["groupName"] not in self.groups:
            raise malformed(f"property group {told['groupName']} does not exist")
        if told["name"] in self.properties:
            raise Refusal(409, "OBJECT_ALREADY_EXISTS", f"Property named {told['name']} already exists.")
        if told["type"] == "enumeration" and not told.get("options"):
            raise malformed("an enumeration needs options")
        if told.get("hasUniqueValue") and self.kind == "contacts":
            raise malformed("contacts have no unique properties beside email")
        unique = sum(bool(each["hasUniqueValue"]) for each in self.properties.values())
        if told.get("hasUniqueValue") and unique >= UNIQUE_MAX:
            raise malformed(f"an object has at most {UNIQUE_MAX} unique properties")
        made = {"description": "", "hasUniqueValue": False, "hubspotDefined": False, **told}
        made["options"] = options(told.get("options", []))
        self.properties[told["name"]] = made
        return made

    def change(self, name: str, told: dict[str, Any]) -> dict[str, Any]:
        """Change a property: what is given is overwritten, options wholly."""
        found = self.get(name)
        if unknown := sorted(set(told) - (KNOWN - {"name", "hasUniqueValue"})):
            raise malformed(f"Invalid input JSON: these cannot be changed: {unknown}")
        if "options" in told:
            told = {**told, "options": options(told["options"])}
        found.update(told)
        return found

    def check(self, given: Any) -> dict[str, str]:
        """The properties, when the names are known and the values fit; e-mail addresses in lower case."""
        if not isinstance(given, dict):
            raise malformed("Invalid input JSON: properties must be an object")
        checked = {}
        for name, value in given.items():
            if name not in self.properties:
                error = {"message": f'Property "{name}" does not exist', "code": "PROPERTY_DOESNT_EXIST", "in": name}
                raise malformed(f'Property values were not valid: [Property "{name}" does not exist]', errors=[error])
            if name in READ_ONLY:
                raise malformed(f'"{name}" is a read only property')
            if not isinstance(value, str):
                raise malformed(f"Invalid input JSON: the value of {name} is no string: {value!r}")
            checked[name] = self._value(self.properties[name], value)
        return checked

    def _value(self, about: dict[str, Any], value: str) -> str:
        name, type_name = about["name"], about["type"]
        if value == "":
            return value
        if len(value) > 65_536:
            raise invalid(f"{name} is too long", "TOO_LONG", name)
        if type_name == "enumeration" and value not in {each["value"] for each in about["options"]}:
            raise invalid(f"{value} was not one of the allowed options", "INVALID_OPTION", name)
        if type_name == "bool" and value not in ("true", "false"):
            raise invalid(f"{value} was not true or false", "INVALID_BOOL", name)
        try:
            if type_name == "number":
                float(value)
            elif type_name in ("date", "datetime") and not value.isdigit():
                datetime.fromisoformat(value)
        except ValueError:
            raise invalid(f"{value} was not a valid {type_name}", f"INVALID_{type_name.upper()}", name) from None
        if self.kind == "contacts" and name == "email":
            if value.count("@") != 1 or " " in value:
                raise invalid(f"Email address {value} is invalid", "INVALID_EMAIL", name)
            return value.lower()
        return value


def options(told: Any) -> list[dict[str, Any]]:
    if not isinstance(told, list) or not all(
        isinstance(each, dict) and {"label", "value"} <= set(each) for each in told
    ):
        raise malformed("options need label and value")
    return [{"hidden": False, **each} for each in told]
