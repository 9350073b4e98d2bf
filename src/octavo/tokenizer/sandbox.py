"""The Jinja2 environment chat templates run in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo.errors import TemplateError


class CompiledTemplate:
    """A template ready to render."""

    def __init__(self, template: jinja2.Template) -> None:
        self._template = template

    def render(self, values: Mapping[str, Any]) -> str:
        """The rendered text. Raises TemplateError if the template refuses or fails."""
        try:
            return self._template.render(values)
        except TemplateError:
            raise
        except Exception as error:
            raise TemplateError(f"chat template: {type(error).__name__}: {error}") from error


def compile_template(source: str) -> CompiledTemplate:
    """Compile Jinja source. Raises TemplateError naming the line."""
    environment = _environment()
    try:
        return CompiledTemplate(environment.from_string(source))
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"chat template: line {error.lineno}: {error.message}") from error
    except RecursionError as error:
        raise TemplateError("chat template: nested too deeply to compile") from error


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class GenerationBlock(Extension):
    """{% generation %} ... {% endgeneration %} marks what the assistant wrote, for training; when
    rendering it means nothing."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it as an instance variable)

    def parse(self, parser: Parser) -> Node:
        """Render the block's body in place."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> Any:
        return caller()


def _raise_exception(message: str) -> None:
    raise TemplateError(f"chat template: {message}")


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escaping, unlike Jinja's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
