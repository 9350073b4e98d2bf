// The live panel: asks once a second while the page can be seen.

import { getStatus } from "./api.js";

const SPAN = 120; // seconds that the line shows
const EVERY_MS = 1000;

const at = (id) => document.getElementById(id);
const speeds = [];
let before = null;
let timer = 0;
let onRefused = () => {};

export function watchStatus(refused) {
  onRefused = refused;
  document.addEventListener("visibilitychange", schedule);
  tick();
}

export function refreshNow() {
  before = null;
  tick();
}

function schedule() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(tick, EVERY_MS);
}

async function tick() {
  clearTimeout(timer);
  try {
    show(await getStatus());
  } catch (error) {
    const asks = error.status === 401;
    phase("trouble", asks ? "key needed" : "not reachable");
    if (asks) onRefused();
    if (asks) return; // until there is a key
  }
  schedule();
}

function show(status) {
  at("model").textContent = status.model;
  at("version").textContent = `Octavo ${status.version}`;
  document.title = `Octavo · ${status.model}`;
  const ready = status.phase === "ready";
  phase(ready ? "ready" : "trouble", ready ? "ready" : status.detail || status.phase);
  const engine = status.engine;
  if (!engine) return;
  at("max_tokens").max = status.max_model_len;
  at("running").textContent = engine.running;
  at("waiting").textContent = engine.waiting;
  at("step").textContent = engine.last_step_s ? `${(1000 * engine.last_step_s).toFixed(1)} ms` : "–";
  at("hits").textContent = `${Math.round(100 * engine.prefix_cache_hit_rate)} %`;
  const used = Math.round(1000 * engine.kv_usage) / 10;
  at("kv").value = engine.kv_usage;
  at("kv").textContent = `${used} %`;
  at("kv-text").textContent = `${used} % of ${(engine.blocks * engine.block_size).toLocaleString()} tokens`;
  speed(engine.generation_tokens, status.time_s);
}

function phase(kind, text) {
  const shown = at("phase");
  if (shown.textContent === text && shown.dataset.phase === kind) return; // no news to read out
  shown.textContent = text;
  shown.dataset.phase = kind;
  shown.title = text;
}

function speed(tokens, time) {
  if (before && time > before.time && tokens >= before.tokens) {
    speeds.push((tokens - before.tokens) / (time - before.time));
    if (speeds.length > SPAN) speeds.shift();
    const now = speeds[speeds.length - 1];
    at("speed").textContent = now < 10 && now > 0 ? now.toFixed(1) : Math.round(now);
    draw();
  }
  before = { tokens, time };
}

function draw() {
  const top = Math.max(1, ...speeds);
  const first = SPAN - speeds.length;
  const points = speeds.map((value, i) => `${first + i + 1},${(27 - (25 * value) / top).toFixed(2)}`);
  at("spark-line").setAttribute("points", points.join(" "));
  at("spark-area").setAttribute("d", `M${first + 1},28 L${points.join(" L")} L${SPAN},28 Z`);
}
