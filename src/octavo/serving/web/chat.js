// The conversation: what was said, what is being said, how to stop it.

import { streamChat } from "./api.js";
import { element, renderMarkup } from "./markup.js";

export class Chat {
  constructor(log, { settings, onBusy, onRefused }) {
    this.log = log;
    this.settings = settings;
    this.onBusy = onBusy;
    this.onRefused = onRefused;
    this.messages = [];
    this.abort = null;
  }

  get busy() {
    return this.abort !== null;
  }

  stop() {
    this.abort?.abort();
  }

  clear() {
    this.stop();
    this.messages = [];
    this.log.querySelectorAll(".turn").forEach((turn) => turn.remove());
    document.getElementById("empty").hidden = false;
  }

  async send(text) {
    document.getElementById("empty").hidden = true;
    const turn = this.add("user");
    turn.body.textContent = text;
    this.messages.push({ role: "user", content: text });
    await this.answer();
  }

  // One answer to the conversation as it stands.
  async answer() {
    const turn = this.add("assistant");
    const reply = new Reply(turn, this.log);
    const messages = this.messages;
    this.abort = new AbortController();
    this.onBusy(true);
    try {
      const { system, ...parameters } = this.settings();
      const context = system ? [{ role: "system", content: system }, ...messages] : messages;
      for await (const event of streamChat({ messages: context, ...parameters }, this.abort.signal)) {
        reply.take(event);
      }
      reply.end();
    } catch (error) {
      reply.end(error.name === "AbortError" ? "stopped" : null);
      if (error.name !== "AbortError") this.fail(turn, reply, error);
    } finally {
      this.abort = null;
      this.onBusy(false);
    }
    if (messages === this.messages && reply.text) {
      messages.push({ role: "assistant", content: reply.text });
    }
  }

  fail(turn, reply, error) {
    const fault = element("p", error.message, "fault");
    fault.setAttribute("role", "alert");
    if (error.requestId) fault.title = `Request ${error.requestId}`;
    turn.body.append(fault);
    const again = element("button", "Try again", "quiet");
    again.type = "button";
    again.addEventListener("click", () => {
      if (this.busy) return;
      turn.root.remove();
      if (reply.text) this.messages.pop();
      this.answer();
    });
    turn.note.append(again);
    if (error.status === 401) this.onRefused();
  }

  add(role) {
    const root = element("article", undefined, `turn ${role}`);
    root.setAttribute("aria-label", role === "user" ? "You" : "Answer");
    const body = element("div", undefined, "body");
    const note = element("p", undefined, "note");
    root.append(body);
    if (role !== "user") root.append(note);
    this.log.append(root);
    this.log.scrollTop = this.log.scrollHeight;
    return { root, body, note };
  }
}

// An answer that grows: draws at most once a frame, and scrolls only with those who follow.
class Reply {
  constructor(turn, log) {
    this.turn = turn;
    this.log = log;
    this.text = "";
    this.thoughts = "";
    this.tokens = 0;
    this.began = performance.now();
    this.first = 0;
    this.frame = 0;
    this.final = null;
    this.reason = "";
    turn.root.classList.add("busy");
    turn.root.setAttribute("aria-busy", "true");
  }

  take(event) {
    if (event.metrics || event.usage) this.final = { ...event.metrics, usage: event.usage };
    const choice = event.choices?.[0];
    if (!choice) return;
    this.reason = choice.finish_reason || this.reason;
    const delta = choice.delta || {};
    const thought = delta.reasoning_content || delta.reasoning;
    if (!delta.content && !thought) return;
    this.first ||= performance.now();
    this.tokens += 1;
    this.text += delta.content || "";
    this.thoughts += thought || "";
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const follow = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
    const { body, note } = this.turn;
    const parts = [renderMarkup(this.text)];
    if (this.thoughts) parts.unshift(this.drawThoughts());
    body.replaceChildren(...parts);
    const seconds = (performance.now() - this.first) / 1000;
    if (seconds > 0.3) note.textContent = `${(this.tokens / seconds).toFixed(1)} tokens / s`;
    if (follow) this.log.scrollTop = this.log.scrollHeight;
  }

  drawThoughts() {
    const before = this.turn.body.querySelector(".thoughts");
    const details = element("details", undefined, "thoughts");
    details.open = before ? before.open : false;
    details.append(element("summary", this.text ? "Thoughts" : "Thinking …"));
    details.append(element("p", this.thoughts));
    return details;
  }

  end(state) {
    cancelAnimationFrame(this.frame);
    this.draw();
    this.turn.root.classList.remove("busy");
    this.turn.root.removeAttribute("aria-busy");
    const { note } = this.turn;
    const facts = this.facts(state);
    note.replaceChildren(...facts.map((fact) => element("span", fact)));
    if (!this.text) return;
    const copy = element("button", "Copy", "quiet");
    copy.type = "button";
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(this.text);
      copy.textContent = "Copied";
    });
    note.append(copy);
  }

  facts(state) {
    const facts = state ? [state] : [];
    if (this.reason === "length") facts.push("cut at the longest answer");
    if (!this.final) return facts;
    const tokens = this.final.usage?.completion_tokens;
    if (tokens !== undefined) facts.push(`${tokens} tokens`);
    if (this.final.tokens_per_second) facts.push(`${this.final.tokens_per_second.toFixed(1)} tokens / s`);
    const first = this.final.time_to_first_token_ms;
    if (first !== undefined && first !== null) facts.push(`first after ${Math.round(first)} ms`);
    return facts;
  }
}
