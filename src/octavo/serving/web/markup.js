// Text to DOM. A model's text is never parsed as HTML: every character ends in a text node, and
// the only elements are those made here. Links may point to http and https and nowhere else.

const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|\*(?=\S)([^*\n]*?\S)\*|\[([^\]\n]{1,500})\]\((https?:\/\/[^\s()<>"]{1,2000})\)/;
const MAX_INLINE = 4000; // characters of a paragraph that are looked at for emphasis

export function renderMarkup(text) {
  const fragment = document.createDocumentFragment();
  const lines = text.split("\n");
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) at += 1;
    else at = block(lines, at, fragment);
  }
  return fragment;
}

// One block that begins at lines[at]; returns the line behind it.
function block(lines, at, into) {
  const line = lines[at];
  const fence = /^\s{0,3}(`{3,}|~{3,})/.exec(line);
  if (fence) return code(lines, at, fence[1], into);
  const heading = /^#{1,6}\s+(.+)$/.exec(line);
  if (heading) {
    into.append(inline(element("h3"), heading[1]));
    return at + 1;
  }
  if (/^>\s?/.test(line)) return gather(lines, at, /^>\s?/, element("blockquote"), into);
  if (/^\s{0,3}[-*+]\s+/.test(line)) return list(lines, at, /^\s{0,3}[-*+]\s+/, "ul", into);
  const numbered = /^\s{0,3}(\d{1,9})[.)]\s+/.exec(line);
  if (numbered) {
    const end = list(lines, at, /^\s{0,3}\d{1,9}[.)]\s+/, "ol", into);
    into.lastElementChild.start = Number(numbered[1]);
    return end;
  }
  return paragraph(lines, at, into);
}

function code(lines, at, fence, into) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(fence)) end += 1;
  const pre = element("pre");
  pre.tabIndex = 0; // so that the keyboard can scroll it
  pre.append(element("code", lines.slice(at + 1, end).join("\n")));
  into.append(pre);
  return end + 1;
}

function gather(lines, at, prefix, into, parent) {
  const kept = [];
  while (at < lines.length && prefix.test(lines[at])) kept.push(lines[at++].replace(prefix, ""));
  inline(into, kept.join("\n"));
  parent.append(into);
  return at;
}

function list(lines, at, marker, kind, into) {
  const items = element(kind);
  while (at < lines.length && marker.test(lines[at])) {
    const words = [lines[at++].replace(marker, "")];
    while (at < lines.length && /^\s{2,}\S/.test(lines[at]) && !marker.test(lines[at])) {
      words.push(lines[at++].trim());
    }
    items.append(inline(element("li"), words.join("\n")));
  }
  into.append(items);
  return at;
}

function paragraph(lines, at, into) {
  const start = at++;
  while (at < lines.length && lines[at].trim() && !/^\s{0,3}(`{3}|~{3}|#{1,6}\s|>|[-*+]\s|\d{1,9}[.)]\s)/.test(lines[at])) at += 1;
  into.append(inline(element("p"), lines.slice(start, at).join("\n")));
  return at;
}

function inline(into, text) {
  let rest = text;
  let match;
  while (rest.length <= MAX_INLINE && (match = INLINE.exec(rest))) {
    plain(into, rest.slice(0, match.index));
    if (match[1]) into.append(element("code", match[2]));
    else if (match[3]) into.append(element("strong", match[3]));
    else if (match[4]) into.append(element("em", match[4]));
    else into.append(link(match[5], match[6]));
    rest = rest.slice(match.index + match[0].length);
  }
  plain(into, rest);
  return into;
}

function plain(into, text) {
  text.split("\n").forEach((line, place) => {
    if (place) into.append(element("br"));
    if (line) into.append(line);
  });
}

function link(text, address) {
  const anchor = element("a", text);
  anchor.href = address;
  anchor.rel = "noopener noreferrer nofollow";
  anchor.target = "_blank";
  anchor.title = address;
  return anchor;
}

export function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
