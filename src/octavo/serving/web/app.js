// Wires the page together.

import { setKey } from "./api.js";
import { Chat } from "./chat.js";
import { refreshNow, watchStatus } from "./status.js";

const at = (id) => document.getElementById(id);
const prompt = at("prompt");

const chat = new Chat(at("log"), { settings: readSettings, onBusy: showBusy, onRefused: askForKey });

// The parameters of a request; fields that are left empty are left out.
function readSettings() {
  const settings = { system: at("system").value.trim(), model: at("model").textContent };
  settings.temperature = Number(at("temperature").value);
  settings.top_p = Number(at("top_p").value);
  if (at("max_tokens").value) settings.max_tokens = Number(at("max_tokens").value);
  if (at("seed").value) settings.seed = Number(at("seed").value);
  const stops = at("stops").value.split("\n").filter((line) => line);
  if (stops.length) settings.stop = stops;
  return settings;
}

function showBusy(busy) {
  at("send").hidden = busy;
  at("stop").hidden = !busy;
  if (!busy) prompt.focus();
}

function send() {
  const text = prompt.value.trim();
  if (!text || chat.busy) return;
  prompt.value = "";
  grow();
  chat.send(text);
}

function grow() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
prompt.addEventListener("input", grow);
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
at("stop").addEventListener("click", () => chat.stop());
at("new-chat").addEventListener("click", () => {
  chat.clear();
  prompt.focus();
});

// Settings

at("settings").addEventListener("submit", (event) => event.preventDefault());
for (const name of ["temperature", "top_p"]) {
  at(name).addEventListener("input", () => (at(`${name}-text`).textContent = at(name).value));
}

const panel = at("panel");
const toggle = at("toggle-panel");

function openPanel(open) {
  panel.classList.toggle("open", open);
  toggle.setAttribute("aria-expanded", String(open));
}

toggle.addEventListener("click", () => openPanel(!panel.classList.contains("open")));
document.addEventListener("click", (event) => {
  if (!panel.contains(event.target) && event.target !== toggle) openPanel(false);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (panel.classList.contains("open")) {
    openPanel(false);
    toggle.focus();
  } else {
    chat.stop();
  }
});

// Theme: as the system, light, dark

const THEMES = { auto: ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };

function showTheme(name) {
  const [sign, text] = THEMES[name];
  at("theme").textContent = sign;
  at("theme").setAttribute("aria-label", `Theme: ${text}`);
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("octavo-theme", name);
}

at("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const now = localStorage.getItem("octavo-theme");
  showTheme(names[(names.indexOf(now) + 1) % names.length]);
});
const stored = localStorage.getItem("octavo-theme");
showTheme(stored in THEMES ? stored : "auto");

// Key

const dialog = at("key-dialog");

function askForKey() {
  at("links").hidden = true; // a link cannot carry the key
  if (!dialog.open) dialog.showModal();
}

at("key-cancel").addEventListener("click", () => dialog.close());
at("key-form").addEventListener("submit", () => {
  setKey(at("key").value);
  at("key").value = "";
  refreshNow();
});

watchStatus(askForKey);
prompt.focus();
