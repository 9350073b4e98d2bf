"""The loop of `octavo chat`: read, answer or obey, until the user leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from octavo.cli.chat.commands import run_command
from octavo.cli.chat.conversation import Conversation
from octavo.cli.chat.reader import read_message
from octavo.cli.errors import report
from octavo.cli.parts import Printer
from octavo.errors import RequestError

if TYPE_CHECKING:
    from octavo.cli.session import Session
    from octavo.decoding import SamplingParams


class Chat:
    """One conversation at a terminal. Slash commands change `params` and `conversation`."""

    def __init__(
        self,
        session: Session,
        params: SamplingParams,
        conversation: Conversation,
        ask: Callable[[str], str],
    ) -> None:
        self.session = session
        self.params = params
        self.conversation = conversation
        self._ask = ask

    def say(self, text: str) -> None:
        """Something from the program itself: to stderr, so that stdout holds answers only."""
        print(text, file=sys.stderr, flush=True)

    def run(self) -> None:
        """Until /exit or the end of input. Errors of one message do not end the loop."""
        while True:
            try:
                text = read_message(self._ask)
            except KeyboardInterrupt:
                self.say("\n(/exit or Ctrl-D leaves)")
                continue
            except EOFError:
                self.say("")
                return
            if text.strip() and not self._handle(text):
                return

    def turn(self, text: str) -> None:
        """One question and its streamed answer; a refused question leaves no trace.

        An answer stopped by Ctrl-C stays in the conversation as far as it came, without what was
        thought before it.
        """
        printer = Printer()
        self.conversation.ask(text)
        try:
            ids = self.session.chat_ids(self.conversation.messages())
            for piece in self.session.stream(ids, self.params):
                printer.show(piece)
        except BaseException:
            self.conversation.undo()
            raise
        printer.end()
        self.conversation.answer(self.session.last.written)
        if self.session.last.finish_reason == "abort":
            self.say("(stopped)")

    def _handle(self, text: str) -> bool:
        try:
            if text.startswith("/"):
                return run_command(self, text)
            self.turn(text)
        except RequestError as error:
            report(error)
        return True
