// Calls to the server the page came from, and the key they carry.

let key = sessionStorage.getItem("octavo-key") || "";

export class ServerError extends Error {
  constructor(status, message, requestId) {
    super(message);
    this.status = status;
    this.requestId = requestId;
  }
}

export function setKey(value) {
  key = value.trim();
  if (key) sessionStorage.setItem("octavo-key", key);
  else sessionStorage.removeItem("octavo-key");
}

async function call(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (key) headers.Authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server cannot be reached.");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

async function refusal(answer) {
  let message = `The server answered ${answer.status}.`;
  try {
    const body = await answer.json();
    message = body.error.message || message;
  } catch {
    // not JSON: a proxy's page, perhaps
  }
  const wait = answer.headers.get("retry-after");
  if (wait && (answer.status === 429 || answer.status === 503)) message += ` Try again in ${wait} s.`;
  return new ServerError(answer.status, message, answer.headers.get("x-request-id"));
}

export async function getStatus() {
  return (await call("/status")).json();
}

// Yields the events of a streamed chat; ends with the stream.
export async function* streamChat(body, signal) {
  const answer = await call("/v1/chat/completions", {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", "X-Octavo-Timings": "1" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
  });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
      const data = JSON.parse(event.slice(6));
      if (data.error) throw new ServerError(200, data.error.message);
      yield data;
    }
  }
}
