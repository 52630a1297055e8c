// The page: asks this server, and puts what it says into the document as text, never as markup.
import { HEIGHT, WIDTH, ago, chainsOf, filterOf, hexOfBase64, logCount, ownPath, planSentences, proofParts, timelineShapes } from "./view.js";

const SVG = "http://www.w3.org/2000/svg";
const POLL_MS = 2000, SHOWN_LOGS = 50;
const at = (id) => document.getElementById(id);
const heads = new Map();
let stages = [], chosen = null, drawn = "";

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function shape(name, attributes, label) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (label) made.append(Object.assign(document.createElementNS(SVG, "title"), { textContent: label }));
  return made;
}

const number = (value) => element("td", value === null || value === undefined ? "" : value.toLocaleString("en"), { class: "number" });

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error || value.message || `${path}: status ${answer.status}`);
  return value;
}

async function call(method, ...params) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  const answer = await fetch("/", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const value = await answer.json();
  if (value.error) throw new Error(value.error.message);
  return value.result;
}

// Stages

function stageRow(stage) {
  const key = `${stage.stage} ${stage.chain}`;
  const row = element("tr", null, chosen === key ? { class: "chosen", "aria-current": "true" } : {});
  const open = element("button", stage.stage, { type: "button", class: "plain", "aria-label": `ledger of ${key}` });
  open.addEventListener("click", () => showLedger(stage.stage, stage.chain));
  const first = element("td");
  first.append(open);
  const head = number(stage.head);
  if (heads.has(key) && heads.get(key) !== stage.head) head.classList.add("moved");
  heads.set(key, stage.head);
  const health = stage.reason === null ? element("td", "ok", { class: "good" }) : element("td", `degraded: ${stage.reason}`, { class: "bad long" });
  const when = element("td", ago(stage.updatedAt, Date.now()), { title: stage.updatedAt || "" });
  row.append(first, element("td", stage.chain), head, number(stage.lag), number(stage.commits), number(stage.rollbacks), health, when);
  return row;
}

async function refresh() {
  try {
    const status = await ask("/lake/status.json");
    stages = status.stages;
    listStages();
    offerExamples();
    at("left-off").textContent = status.leftOff ? `${status.leftOff} more are not shown.` : "";
    at("serving").textContent = `Version ${status.version}, serving ${status.chain === null ? "a lake without an evm chain" : `the logs of ${status.chain}`}.`;
    at("logs").closest("section").hidden = status.chain === null;
    tellHealth(status);
    if (!chosen && status.stages.length) choose(status.stages[0].stage, status.stages[0].chain);
    else if (chosen) await drawLedger();
  } catch (error) {
    tell("health", `The server does not answer: ${error.message}`, "bad");
  }
}

function listStages() {
  const focused = document.activeElement?.getAttribute("aria-label");
  at("stage-rows").replaceChildren(...stages.map(stageRow));
  if (focused) [...at("stage-rows").querySelectorAll("button")].find((one) => one.getAttribute("aria-label") === focused)?.focus({ preventScroll: true });
}

function tellHealth(status) {
  if (status.degraded) tell("health", `${status.degraded} ${status.degraded === 1 ? "stage has" : "stages have"} stopped; an operator is needed.`, "bad");
  else tell("health", "All stages are healthy.", "good");
}

function tell(id, text, kind) {
  const place = at(id);
  if (place.textContent !== text) place.textContent = text;
  place.className = kind;
}

// Ledger

let query = "";

function choose(stage, chain) {
  chosen = `${stage} ${chain}`;
  query = `/lake/ledger.json?stage=${encodeURIComponent(stage)}&chain=${encodeURIComponent(chain)}`;
  drawLedger();
}

// Chosen by a person: the picture comes into view, which in a small window is elsewhere.
function showLedger(stage, chain) {
  choose(stage, chain);
  listStages();
  at("timeline").scrollIntoView({ block: "nearest" });
}

async function drawLedger() {
  const asked = query;
  let ledger;
  try {
    ledger = await ask(asked);
  } catch (error) {
    if (asked === query) at("ledger-of").textContent = error.message;
    return;
  }
  if (asked !== query) return;  // another was chosen meanwhile
  const state = asked + JSON.stringify(ledger);
  if (state === drawn) return;
  drawn = state;
  const cut = ledger.leftOff ? `, the last ${ledger.commits.length} of ${ledger.commits.length + ledger.leftOff} commits` : "";
  at("ledger-of").textContent = `${ledger.stage} ${ledger.chain}${cut}: commits, oldest first; block heights upwards`;
  const { picture, end } = timeline(ledger);
  at("timeline").replaceChildren(picture);
  at("timeline").scrollLeft = end - at("timeline").clientWidth;  // in a narrow window: the newest
  at("ledger-rows").replaceChildren(...ledger.commits.map(ledgerRow));
}

function timeline(ledger) {
  const { shapes, low, high, end } = timelineShapes(ledger.commits);
  const backs = ledger.commits.filter((commit) => commit.kind === "rollback" && commit.to < commit.from).length;
  const label = `Ledger of ${ledger.stage} ${ledger.chain}: ${ledger.commits.length} commits, ${backs} rollbacks`;
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  svg.append(shape("line", { class: "axis", x1: 60, x2: 60, y1: 8, y2: HEIGHT - 20 }));
  svg.append(text(56, 18, high, "end"), text(56, HEIGHT - 24, low, "end"));
  for (const one of shapes) svg.append(...figure(one));
  return { picture: svg, end };
}

function figure(one) {
  if (one.kind === "rollback") {
    const tip = `${one.x - 4},${one.y2 - 6} ${one.x + 4},${one.y2 - 6} ${one.x},${one.y2}`;
    return [shape("line", { class: "back", x1: one.x, x2: one.x, y1: one.y1, y2: one.y2 - 3 }, one.label), shape("polygon", { class: "tip", points: tip }, one.label)];
  }
  if (one.kind === "compact") {
    return [shape("polygon", { class: "base", points: `${one.x},${one.y - 5} ${one.x + 5},${one.y} ${one.x},${one.y + 5} ${one.x - 5},${one.y}` }, one.label)];
  }
  return [shape("rect", { class: one.kind, x: one.x, y: one.y, width: one.width, height: one.height }, one.label)];
}

function text(x, y, value, anchor) {
  return Object.assign(shape("text", { x, y, "text-anchor": anchor }), { textContent: String(value) });
}

function ledgerRow(commit) {
  const row = element("tr");
  const ends = [number(commit.from), number(commit.to), number(commit.visibleTo), number(commit.rows)];
  row.append(number(commit.seq), element("td", commit.kind), ...ends, element("td", commit.at.slice(0, 19).replace("T", " ")), element("td", commit.why || "", { class: "long" }));
  return row;
}

// Logs

async function find(event) {
  event.preventDefault();
  const filter = filterOf(Object.fromEntries(new FormData(at("query"))));
  const place = at("answer");
  place.replaceChildren(element("p", "Looking …", { class: "hint" }));
  try {
    const [explained, page] = await Promise.all([call("lake_explain", filter), call("lake_getLogsPage", filter, { limit: SHOWN_LOGS })]);
    const steps = element("ol", null, { class: "steps" });
    steps.append(...planSentences(explained.plan).map((line) => element("li", line)));
    const more = logCount(page.logs.length, explained.plan.results, Boolean(page.nextCursor));
    place.replaceChildren(element("h3", "How it was found"), steps, element("h3", more), logTable(page.logs));
  } catch (error) {
    place.replaceChildren(element("p", error.message, { class: "bad" }));
  }
}

function logTable(logs) {
  const table = element("table"), head = element("tr"), body = element("tbody"), top = element("thead");
  head.append(...["block", "log", "address", "topics"].map((name) => element("th", name, { scope: "col" })));
  top.append(head);
  for (const log of logs) {
    const row = element("tr");
    row.append(number(Number(log.blockNumber)), number(Number(log.logIndex)), element("td", log.address, { class: "hex" }), element("td", log.topics.join(" "), { class: "hex long" }));
    body.append(row);
  }
  table.append(top, body);
  const scroll = element("div", null, { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "logs found" });
  scroll.append(table);
  return scroll;
}

// Proofs

// Where examples are looked for, by the stage that makes what they prove.
const EXAMPLES = { "silver.shards": aStream, "silver.cage": aFact };
const examples = () => [...at("examples").querySelectorAll("button")];

function offerExamples() {
  for (const button of examples()) button.hidden = !chainsOf(stages, button.dataset.stage).length;
  at("examples").hidden = examples().every((button) => button.hidden);
}

async function aStream(chain) {
  const { streams } = await ask(`/streams?limit=1&${chain}`);
  return streams.length ? `/stream/${hexOfBase64(streams[0].streamId)}/proof?${chain}` : null;
}

async function aFact(chain) {
  for (const { token_id: token } of await ask(`/cage/tokens?limit=100&${chain}`)) {
    const [fact] = await ask(`/cage/token/${token}/facts?limit=1&${chain}`);
    if (fact) return `/cage/token/${token}/proof/${fact.key}?${chain}`;
  }
  return null;
}

async function takeExample(stage) {
  try {
    for (const chain of chainsOf(stages, stage)) {
      const path = await EXAMPLES[stage](`chain=${encodeURIComponent(chain)}`);
      if (path === null) continue;
      at("proof").elements.path.value = path;
      return await fetchProof();
    }
    at("steps").replaceChildren(element("p", "The lake holds none.", { class: "hint" }));
  } catch (error) {
    at("steps").replaceChildren(element("p", error.message, { class: "bad" }));
  }
}

async function fetchProof() {
  const path = ownPath(at("proof").elements.path.value, location.origin);
  if (path === null) {
    at("steps").replaceChildren(element("p", "Give a path on this server, beginning with /.", { class: "bad" }));
    return;
  }
  try {
    at("proof").elements.text.value = JSON.stringify(await ask(path), null, 1);
    showProof();
  } catch (error) {
    at("steps").replaceChildren(element("p", error.message, { class: "bad" }));
  }
}

function showProof() {
  let value;
  try {
    value = JSON.parse(at("proof").elements.text.value);
  } catch (error) {
    at("steps").replaceChildren(element("p", `This is not JSON: ${error.message}`, { class: "bad" }));
    return;
  }
  const { facts, lists } = proofParts(value);
  at("steps").replaceChildren(pairs(facts), ...lists.flatMap(listOfSteps));
}

function pairs(entries) {
  const list = element("dl");
  for (const [name, value] of entries) list.append(element("dt", name), element("dd", value, { class: "hex" }));
  return list;
}

function listOfSteps({ name, steps }) {
  const list = element("ol", null, { class: "steps" });
  for (const step of steps) {
    const item = element("li");
    item.append(pairs(step));
    list.append(item);
  }
  return [element("h3", `${name}: ${steps.length} ${steps.length === 1 ? "step" : "steps"}`), list];
}

at("query").addEventListener("submit", find);
at("proof").addEventListener("submit", (event) => { event.preventDefault(); fetchProof(); });
for (const button of examples()) button.addEventListener("click", () => takeExample(button.dataset.stage));
at("show-proof").addEventListener("click", showProof);
refresh();
setInterval(() => { if (!document.hidden) refresh(); }, POLL_MS);
