"""The Jinja2 environment chat templates run in: as `transformers` sets it up, and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from octavo.errors import TemplateError
from octavo.tokenizer import bounds
from octavo.tokenizer.filters import bounded_filters, bounded_tests

MAX_SOURCE_CHARS = 1 << 20


class CompiledTemplate:
    """A template ready to render. Safe to share between threads."""

    def __init__(self, template: jinja2.Template) -> None:
        self._template = template

    def render(self, values: Mapping[str, Any]) -> str:
        """The rendered text. Raises TemplateError if the template refuses, fails or overspends."""
        bounds.start()
        try:
            return "".join(self._pieces(values))
        except TemplateError:
            raise
        except Exception as error:
            raise TemplateError(f"chat template: {type(error).__name__}: {error}") from error

    def _pieces(self, values: Mapping[str, Any]) -> Iterator[str]:
        for piece in self._template.generate(values):
            bounds.charge(len(piece))
            yield piece


def compile_template(source: str) -> CompiledTemplate:
    """Compile Jinja source. Raises TemplateError naming the line."""
    if len(source) > MAX_SOURCE_CHARS:
        raise TemplateError(
            f"chat template: {len(source)} characters long, expected at most {MAX_SOURCE_CHARS}"
        )
    try:
        return CompiledTemplate(TemplateEnvironment().from_string(source))
    except TemplateError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"chat template: line {error.lineno}: {error.message}") from error
    except Exception as error:  # nested too deeply, for the parser or for Python
        raise TemplateError(f"chat template: cannot be compiled: {error}") from error


MAX_MESSAGE = 1000  # characters of what a template says when it refuses
MAX_LAYOUT = 256


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """No attribute leads out, nothing given to the template can be changed, costs are bounded."""

    intercepted_binops = frozenset(["*", "**", "+", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, loopcontrols],
            optimized=False,  # folding constants would work them out unbounded
            finalize=_weighed,
        )
        self.filters.update(bounded_filters(self.filters))
        self.tests.update(bounded_tests(self.tests))
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Bounding().visit(super()._parse(source, name, filename))
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Charge the operation, then do it."""
        bounds.check_binary(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`; hashing a nested tuple is charged."""
        if isinstance(argument, tuple):
            bounds.weigh(argument)
        return super().getitem(obj, argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Charge the call, then make it."""
        bounds.charge(bounds.CALL_COST)
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
        receiver = getattr(method, "__self__", None)
        if isinstance(receiver, str | bytes | int):
            bounds.check_counts([*args, *kwargs.values()])
        if isinstance(receiver, str | bytes):
            args = bounds.check_method(receiver, method.__name__, args)
            bounds.weigh(kwargs)
        elif isinstance(receiver, dict | list | tuple) or isinstance(__obj, type):
            bounds.weigh(args)
        result = super().call(__context, __obj, *args, **kwargs)
        bounds.charge(bounds.size_of(result))
        return result


class _Bounding(NodeTransformer):
    """Makes loops count their turns, and `~`, comparisons and dictionary keys weigh their parts."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        if node.recursive:
            raise bounds.refuse("a recursive loop")
        self.generic_visit(node)
        weight = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        node.iter = _filter(node.iter, "octavo_counted", nodes.Const(weight))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "octavo_concat")

    def visit_Operand(self, node: nodes.Operand) -> nodes.Operand:
        self.generic_visit(node)
        node.expr = _filter(node.expr, "octavo_weighed")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = _filter(node.expr, "octavo_weighed")
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Pair:
        self.generic_visit(node)
        node.key = _filter(node.key, "octavo_weighed")
        return node


def _filter(value: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    made = nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)
    made.set_environment(value.environment)  # type: ignore[arg-type]  # parsed nodes have one
    return made


class GenerationBlock(Extension):
    """{% generation %} ... {% endgeneration %} marks what the assistant wrote, for training; when
    rendering it means nothing."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it as an instance variable)

    def parse(self, parser: Parser) -> nodes.Node:
        """Render the block's body in place."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> Any:
        return caller()


@jinja2.pass_context  # also keeps Jinja from working constants out while compiling
def _weighed(context: Context, value: Any) -> Any:
    """Charge what {{ value }} will write."""
    bounds.weigh(value)
    return value


def _raise_exception(message: str) -> None:
    bounds.weigh(message)
    raise TemplateError(f"chat template: {str(message)[:MAX_MESSAGE]}")


def _strftime_now(layout: str) -> str:
    if not isinstance(layout, str) or len(layout) > MAX_LAYOUT:
        raise bounds.refuse("such a layout of a date")
    bounds.check_format(layout)  # the C library pads fields to a width
    return datetime.now().strftime(layout)
