"""Fields that say what the answer's text must look like: OpenAI's and vLLM's, old and new."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from pydantic import Field

from octavo.decoding import Grammar
from octavo.decoding.grammar import WHITESPACE
from octavo.serving.body import StrictModel
from octavo.serving.errors import ApiError, invalid

_KINDS = ("json", "regex", "choice", "grammar", "json_object")
_LARK = re.compile(r"^\s*(%llguidance\b|start\s*:(?!:))", re.MULTILINE)


class JsonSchemaFormat(StrictModel):
    """name, description and strict change nothing: the schema is always enforced."""

    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """OpenAI's response_format."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None
    structures: Any = None
    triggers: Any = None
    format: Any = None

    def grammar(self) -> Grammar | None:
        """None for free text."""
        if self.type == "structural_tag":
            raise _unsupported("response_format", "structural_tag")
        if self.type == "json_object":
            return Grammar.json_object(param="response_format")
        if self.type == "text":
            return None
        if self.json_schema is None or self.json_schema.json_schema is None:
            raise invalid("response_format", "response_format.json_schema.schema: is missing")
        return Grammar.from_schema(self.json_schema.json_schema, param="response_format")


class StructuredOutputs(StrictModel):
    """vLLM's structured_outputs: exactly one of its kinds."""

    json_: str | dict[str, Any] | bool | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar_: str | None = Field(default=None, alias="grammar")
    json_object: bool | None = None
    structural_tag: Any = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None

    def grammar(self, param: str = "structured_outputs") -> Grammar:
        """Raises ApiError unless exactly one kind is given."""
        if self.structural_tag is not None:
            raise _unsupported(param, "structural_tag")
        values = (self.json_, self.regex, self.choice, self.grammar_, self.json_object or None)
        given = [(kind, v) for kind, v in zip(_KINDS, values, strict=True) if v is not None]
        if len(given) != 1:
            names = ", ".join(_KINDS)
            raise invalid(param, f"{param}: expected exactly one of {names}; got {len(given)}")
        return self._of_kind(*given[0], param)

    def _of_kind(self, kind: str, value: Any, param: str) -> Grammar:
        match kind:
            case "regex":
                return Grammar.from_regex(value, param=param)
            case "choice":
                return Grammar.from_choices(value, param=param)
            case "grammar":
                return free_grammar(value, param)
            case "json_object":
                return Grammar("json_object", "", self._whitespace(), param)
        if self.disable_additional_properties:
            value = closed(json.loads(value) if isinstance(value, str) else value)
        source = Grammar.from_schema(value, param=param).source
        return Grammar("json_schema", source, self._whitespace(), param)

    def _whitespace(self) -> str:
        if self.disable_any_whitespace:
            return ""
        return WHITESPACE if self.whitespace_pattern is None else self.whitespace_pattern


def free_grammar(source: str, param: str) -> Grammar:
    """Lark or GBNF, whichever it is."""
    make = Grammar.from_lark if _LARK.search(source) else Grammar.from_ebnf
    return make(source, param=param)


def closed(schema: Any) -> Any:
    """A copy of a schema whose objects have no properties besides those it lists, unless it says
    otherwise itself."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema or schema.get("type") == "object":
        copy.setdefault("additionalProperties", False)
    return copy


def _unsupported(param: str, what: str) -> ApiError:
    message = f"{param}: {what} is not supported by this server"
    return invalid(param, message, "unsupported_parameter")


class StructureFields(StrictModel):
    """Each says it alone; guided_* are vLLM's older names."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_json_object: bool | None = None
    guided_whitespace_pattern: str | None = None

    def grammar(self) -> Grammar | None:
        """None for free text. Raises ApiError naming a field that is wrong or one too many."""
        found = [(param, g) for param, g in self._grammars() if g is not None]
        if len(found) > 1:
            (first, _), (second, _), *_ = found
            raise invalid(second, f"{second}: cannot be combined with {first}")
        return found[0][1] if found else None

    def _grammars(self) -> list[tuple[str, Grammar | None]]:
        found: list[tuple[str, Grammar | None]] = []
        if self.response_format is not None:
            found.append(("response_format", self.response_format.grammar()))
        if self.structured_outputs is not None:
            found.append(("structured_outputs", self.structured_outputs.grammar()))
        for kind in _KINDS:
            param = "guided_" + kind
            value = getattr(self, param) or None if kind == "json_object" else getattr(self, param)
            if value is not None:
                old = {kind: value, "whitespace_pattern": self.guided_whitespace_pattern}
                found.append((param, StructuredOutputs(**old).grammar(param)))
        return found
