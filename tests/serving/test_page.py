"""The page at /, in a real browser: chat, status, key, themes, phone; and what it must not do.

A little longer than files should be: all of it shares one browser.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from octavo.serving import ServerOptions
from octavo.serving.page import FILES
from tests.serving.live_server import LiveServer, live_server

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
DESK, PHONE = (1200, 800), (360, 700)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@contextmanager
def opened(
    browser: Any, server: LiveServer, size: tuple[int, int] = DESK, scheme: str = "light"
) -> Iterator[Any]:
    """The page, in a profile of its own; at the end nothing may have gone wrong in it: no error, no
    breach of the policy, no request to another host."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    page = context.new_page()
    page.set_default_timeout(30_000)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if is_fault(message) else None)
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3])))
    page.goto(server.url + "/")
    yield page
    context.close()
    assert faults == []
    assert hosts == {server.url}


def is_fault(message: Any) -> bool:
    """An answer with an error status is what some tests are about; anything else is a fault."""
    expected = "Failed to load resource: the server responded with a status of"
    return message.type in ("error", "warning") and expected not in message.text


def ready(page: Any) -> None:
    page.wait_for_selector('#phase[data-phase="ready"]')


def say(page: Any, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answer(page: Any) -> Any:
    return page.get_by_role("article", name="Answer").last


def wait_end(page: Any) -> str:
    page.get_by_role("button", name="Send").wait_for()
    text: str = answer(page).locator(".body").inner_text()
    return text


def until(reached: Callable[[], bool]) -> None:
    """Wait; the page's policy keeps Playwright from doing it inside the page."""
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def feed(page: Any, *texts: str) -> None:
    """The next chat is answered with these deltas instead of the server's."""
    chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(body=events, content_type="text/event-stream"),
    )


def test_files_are_sent_with_a_strict_policy(server: LiveServer) -> None:
    for path in ("/", *(f"/page/{name}" for name in FILES)):
        sent = server.http.get(path)
        assert sent.status_code == 200
        policy = sent.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert sent.headers["x-content-type-options"] == "nosniff"
        again = server.http.get(path, headers={"If-None-Match": sent.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        head = server.http.head(path)
        assert head.headers["content-length"] == str(len(sent.content))
    for path in ("/page/nothing.js", "/page/..%2Fpage.py", "/page/../page.py", "/page/"):
        assert server.http.get(path).status_code == 404


def test_files_hold_no_inline_script_and_name_no_other_host() -> None:
    for name, (content, _) in FILES.items():
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://(?!\[|\()[a-z]", text), name
        assert "innerHTML" not in text
        assert "insertAdjacentHTML" not in text
        assert not re.search(r"\son[a-z]+=|<script>|\sstyle=", text), name


def test_without_the_page_there_is_none(tiny_model: Path) -> None:
    options = ServerOptions(served_model_names=("tiny",), page=False)
    with live_server(tiny_model, server=options) as server:
        assert server.http.get("/").status_code in (404, 405)
        assert server.http.get("/page/app.js").status_code == 404


def test_status_says_what_the_panel_shows(server: LiveServer) -> None:
    server.complete("status", max_tokens=3)
    status = server.http.get("/status").json()
    assert (status["model"], status["phase"], status["max_model_len"]) == ("tiny", "ready", 4096)
    assert status["engine"]["running"] == 0
    assert status["engine"]["generation_tokens"] >= 3
    assert status["engine"]["blocks"] * status["engine"]["block_size"] >= 4096


@needs_browser
def test_a_message_is_answered_and_the_next_one_knows_it(browser: Any, server: LiveServer) -> None:
    with opened(browser, server) as page:
        ready(page)
        say(page, "hello")
        text = wait_end(page)
        assert text.startswith("ABCDEFGHIJ")
        note = answer(page).locator(".note").inner_text()
        assert re.search(r"63 tokens.*tokens / s.*first after \d+ ms", note.replace("\n", " "))
        with page.expect_request("**/v1/chat/completions") as caught:
            say(page, "and then?")
        roles = [message["role"] for message in caught.value.post_data_json["messages"]]
        assert roles == ["user", "assistant", "user"]
        assert caught.value.post_data_json["messages"][1]["content"].startswith("ABCDEF")
        wait_end(page)
        page.get_by_role("button", name="New chat").click()
        assert page.get_by_role("article").count() == 0
        assert page.get_by_text("A blank page.").is_visible()


@needs_browser
def test_an_answer_streams_and_stops_and_the_panel_follows(
    browser: Any, slow_server: LiveServer
) -> None:
    with opened(browser, slow_server) as page:
        ready(page)
        page.get_by_label("Longest answer").fill("1500")
        page.route("**/v1/chat/completions", endless)
        say(page, "go on for ever")
        until(lambda: len(answer(page).locator(".body").inner_text()) > 20)
        partial = answer(page).locator(".body").inner_text()
        until(lambda: page.locator("#running").inner_text() == "1")
        until(lambda: float(page.locator("#speed").inner_text()) > 0)
        assert page.locator("#kv-text").inner_text() != "–"
        assert len(answer(page).locator(".body").inner_text()) > len(partial)
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Send").wait_for()
        assert "stopped" in answer(page).locator(".note").inner_text()
        assert slow_server.wait_idle()["octavo:kv_blocks_used"] == 0
        say(page, "again")
        until(lambda: len(answer(page).locator(".body").inner_text()) > 5)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Send").wait_for()
        assert "stopped" in answer(page).locator(".note").inner_text()
    slow_server.wait_idle()


def endless(route: Any) -> None:
    """The scripted model would stop by itself after 62 tokens."""
    route.continue_(post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True}))


@needs_browser
def test_parameters_go_with_the_request(browser: Any, server: LiveServer) -> None:
    with opened(browser, server) as page:
        ready(page)
        page.get_by_label("Instructions").fill("  Be brief. ")
        page.get_by_label("Temperature").fill("0.35")
        page.get_by_label("Top p").fill("0.5")
        page.get_by_label("Longest answer").fill("9")
        page.get_by_label("Seed").fill("7")
        page.get_by_label("Stop at").fill("END\nF")
        with page.expect_request("**/v1/chat/completions") as caught:
            say(page, "x")
        assert wait_end(page) == "ABCDE"
        body = caught.value.post_data_json
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.35, 0.5, 9)
        assert (body["seed"], body["stop"], body["model"]) == (7, ["END", "F"], "tiny")
        page.get_by_label("Stop at").fill("")
        say(page, "y")
        wait_end(page)
        assert "cut at the longest answer" in answer(page).locator(".note").inner_text()


@needs_browser
def test_an_error_is_shown_and_can_be_tried_again(browser: Any, server: LiveServer) -> None:
    with opened(browser, server) as page:
        ready(page)
        say(page, "x" * 5000)
        alert = page.get_by_role("alert")
        alert.wait_for()
        assert "4096" in alert.inner_text().replace(",", "")
        assert page.get_by_role("button", name="Send").is_visible()
        with page.expect_request("**/v1/chat/completions"):
            page.get_by_role("button", name="Try again").click()
        alert.wait_for()
        assert page.get_by_role("article", name="Answer").count() == 1


TEXT_ELEMENTS = ("a", "blockquote", "br", "code", "em", "h3", "li", "p", "pre", "strong", "ul")
HOSTILE = (
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\n\n'
    "[click](javascript:window.hacked=1) [data](data:text/html,<script>1</script>)\n\n"
    "[fine](https://example.org/?q=1) `<b>code</b>` **bold <i>x</i>**\n\n"
    '```html\n<svg onload="window.hacked=1"></svg>\n```\n\n'
    "![pixel](https://evil.example/p.png) \x00 </div></article> {{constructor}}\n\n"
    "# <h1 onclick=alert(1)>title</h1>\n\n- <style>*{display:none}</style>\n\n> <iframe src=//e>"
)


@needs_browser
def test_hostile_output_stays_text(browser: Any, server: LiveServer) -> None:
    """What a model says, whole or cut anywhere, makes no element of its own."""
    with opened(browser, server) as page:
        ready(page)
        feed(page, *(HOSTILE[i : i + 3] for i in range(0, len(HOSTILE), 3)))
        say(page, HOSTILE)
        text = wait_end(page)
        for piece in ("<script>window.hacked=1</script>", "</div></article>", "<b>code</b>"):
            assert piece in text
        assert page.evaluate("window.hacked") is None
        made = page.evaluate(
            "[...new Set([...document.querySelectorAll('.body *')].map(e => e.localName))].sort()"
        )
        assert set(made) <= set(TEXT_ELEMENTS)
        links = page.evaluate("[...document.querySelectorAll('.body a')].map(a => a.href)")
        assert "https://example.org/?q=1" in links
        assert all(link.startswith("https://") for link in links)
        attributes = page.evaluate(
            "[...document.querySelectorAll('.body *')].flatMap(e => e.getAttributeNames())"
        )
        assert set(attributes) <= {"href", "rel", "target", "title", "tabindex"}


@needs_browser
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text", ["`" * 8000, "** " * 4000, "[" * 9000, "- x\n" * 4000, "*a" * 6000, "`a``b```" * 900]
)
def test_awkward_output_does_not_freeze_the_page(
    browser: Any, server: LiveServer, text: str
) -> None:
    with opened(browser, server) as page:
        ready(page)
        shown = page.evaluate(
            "async text => { const { renderMarkup } = await import('/page/markup.js');"
            " return renderMarkup(text).childElementCount; }",
            text,
        )
        assert shown > 0  # in milliseconds; a regular expression gone wild takes minutes


@needs_browser
def test_markup_that_is_common_is_shown(browser: Any, server: LiveServer) -> None:
    with opened(browser, server) as page:
        ready(page)
        source = (
            "## Title\n\nA *b* **c** `d`\nnext\n\n3. one\n4. two\n   more\n\n- x\n- y\n\n"
            "> said\n\n```py\nif x:\n    y\n```\nend"
        )
        feed(page, source)
        say(page, "show")
        wait_end(page)
        html = answer(page).locator(".body").inner_html()
        assert html == (
            "<h3>Title</h3><p>A <em>b</em> <strong>c</strong> <code>d</code><br>next</p>"
            '<ol start="3"><li>one</li><li>two<br>more</li></ol><ul><li>x</li><li>y</li></ul>'
            '<blockquote>said</blockquote><pre tabindex="0"><code>if x:\n    y</code></pre>'
            "<p>end</p>"
        )


@needs_browser
def test_a_key_is_asked_for_and_kept_for_the_tab(browser: Any, tiny_model: Path) -> None:
    options = ServerOptions(served_model_names=("tiny",), api_keys=("open-sesame",))
    with live_server(tiny_model, server=options) as server, opened(browser, server) as page:
        dialog = page.get_by_role("dialog", name="This server asks for a key")
        dialog.wait_for()
        page.get_by_label("API key").fill("wrong")
        page.keyboard.press("Enter")
        dialog.wait_for()
        page.get_by_label("API key").fill("open-sesame")
        page.get_by_role("button", name="Use key").click()
        ready(page)
        say(page, "hi")
        assert wait_end(page).startswith("ABC")
        page.reload()
        ready(page)
        assert page.evaluate("JSON.stringify(localStorage)").count("sesame") == 0


@needs_browser
def test_the_keyboard_is_enough(browser: Any, server: LiveServer) -> None:
    with opened(browser, server) as page:
        ready(page)
        focused = "document.activeElement.id || document.activeElement.className"
        assert page.evaluate(focused) == "prompt"
        page.keyboard.type("a")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("b")
        assert page.locator("#prompt").input_value() == "a\nb"
        page.keyboard.press("Enter")
        wait_end(page)
        page.evaluate("document.activeElement.blur()")
        seen = []
        for _ in range(20):
            page.keyboard.press("Tab")
            seen.append(page.evaluate(focused))
        for stop in ("skip", "new-chat", "theme", "log", "prompt", "send", "temperature", "seed"):
            assert stop in seen
        nameless = page.evaluate(
            "[...document.querySelectorAll('button, input, textarea, meter')].filter(e =>"
            " !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim()))"
            ".map(e => e.id)"
        )
        assert nameless == []


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_can_be_read(browser: Any, server: LiveServer, scheme: str) -> None:
    """Every pair of colours that carries text has WCAG's contrast of 4.5 or more."""
    with opened(browser, server, scheme=scheme) as page:
        ready(page)
        pairs = [
            *(("ink", "paper"), ("ink", "sheet"), ("ink", "accent-wash"), ("ink", "code")),
            *(("soft", "paper"), ("soft", "sheet"), ("soft", "accent-wash")),
            *(("accent", "paper"), ("accent-ink", "accent"), ("warn", "warn-wash")),
        ]
        style = "getComputedStyle(document.documentElement).getPropertyValue('--' + name)"
        for front, back in pairs:
            colours = [page.evaluate(f"name => {style}", name).strip() for name in (front, back)]
            assert contrast(*colours) >= 4.5, (front, back)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper))) > 384) is (scheme == "light")
        for _ in range(2):  # from the system's to light to dark, and it stays
            page.locator("#theme").click()
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def contrast(first: str, second: str) -> float:
    """WCAG 2's contrast ratio of two colours "#rrggbb"."""
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@needs_browser
def test_a_phone_shows_it_all(browser: Any, server: LiveServer) -> None:
    with opened(browser, server, size=PHONE) as page:
        ready(page)
        feed(page, "word" * 300 + "\n\n```\n" + "x" * 500 + "\n```")
        say(page, "y" * 400)
        wait_end(page)
        wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert page.evaluate(wide) is False
        settings = page.get_by_role("button", name="Settings")
        assert page.get_by_label("Temperature").is_hidden()
        settings.click()
        page.get_by_label("Temperature").wait_for()
        assert settings.get_attribute("aria-expanded") == "true"
        page.keyboard.press("Escape")
        page.get_by_label("Temperature").wait_for(state="hidden")
        for name in ("New", "Settings", "Send"):
            box = page.get_by_role("button", name=name).first.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE[0]
            assert box["height"] >= 32


@needs_browser
def test_a_server_that_goes_away_is_said_and_found_again(browser: Any, server: LiveServer) -> None:
    with opened(browser, server) as page:
        ready(page)
        page.route("**/status", lambda route: route.fulfill(status=502, body="<h1>proxy</h1>"))
        page.wait_for_selector('#phase[data-phase="trouble"]')
        page.unroute("**/status")
        ready(page)
