// What is shown, as plain values: no document here, so that it can be tested anywhere.

export const WIDTH = 960;
export const HEIGHT = 240;
const LEFT = 64, RIGHT = 12, TOP = 12, BOTTOM = 24;

// Shapes of a ledger: one column per commit, heights upwards. What a rollback hid stays visible as an outline.
export function timelineShapes(commits) {
  if (!commits.length) return { shapes: [], low: 0, high: 0, end: LEFT };
  const heights = commits.flatMap((commit) => [commit.from, commit.to]);
  const low = Math.min(...heights), high = Math.max(...heights, low + 1);
  const step = Math.min(60, (WIDTH - LEFT - RIGHT) / commits.length);
  const y = (height) => HEIGHT - BOTTOM - ((height - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const shapes = commits.flatMap((commit, index) => {
    const x = LEFT + index * step, width = Math.max(1, step * 0.8), middle = x + width / 2;
    const label = describeCommit(commit);
    if (commit.kind === "rollback") {
      if (commit.to >= commit.from) return [];
      return [{ kind: "rollback", x: middle, y1: y(commit.from), y2: y(commit.to), label }];
    }
    if (commit.kind === "compact") return [{ kind: "compact", x: middle, y: y(commit.to), label }];
    const seenTo = commit.visibleTo ?? commit.from;
    const found = [];
    if (seenTo > commit.from) found.push(bar("seen", x, width, y(seenTo), y(commit.from), label));
    if (commit.to > seenTo) found.push(bar("hidden", x, width, y(commit.to), y(Math.max(seenTo, commit.from)), label));
    return found;
  });
  return { shapes, low, high, end: LEFT + step * commits.length };
}

function bar(kind, x, width, top, bottom, label) {
  return { kind, x, y: top, width, height: Math.max(1, bottom - top), label };
}

export function describeCommit(commit) {
  const why = commit.why ? `: ${commit.why}` : "";
  if (commit.kind === "rollback") return `seq ${commit.seq}, rollback from ${commit.from} to ${commit.to}${why}`;
  if (commit.kind === "compact") return `seq ${commit.seq}, state at ${commit.to} kept as a base${why}`;
  const seen = commit.visibleTo === null ? "nothing of it visible" : `visible to ${commit.visibleTo}`;
  return `seq ${commit.seq}, blocks ${commit.from + 1} to ${commit.to}, ${seen}`;
}

// The filter object of eth_getLogs for what stands in the fields. Trailing wildcards are left out.
export function filterOf(fields) {
  const filter = { fromBlock: blockOf(fields.from), toBlock: blockOf(fields.to) };
  const addresses = valuesOf(fields.address);
  if (addresses.length) filter.address = addresses.length === 1 ? addresses[0] : addresses;
  const topics = ["topic0", "topic1", "topic2", "topic3"].map((name) => valuesOf(fields[name]));
  while (topics.length && !topics[topics.length - 1].length) topics.pop();
  if (topics.length) filter.topics = topics.map((values) => (values.length === 0 ? null : values.length === 1 ? values[0] : values));
  return filter;
}

function valuesOf(text) {
  return (text || "").split(/[\s,]+/).filter((part) => part);
}

function blockOf(text) {
  const trimmed = (text || "").trim() || "latest";
  return /^\d+$/.test(trimmed) ? "0x" + BigInt(trimmed).toString(16) : trimmed;
}

// A plan in sentences, one per step, in the order in which it was done.
export function planSentences(plan) {
  if (!plan.plan) return ["The range holds no indexed block: nothing to look for."];
  const found = [`Plan: ${plan.plan}.`];
  if (plan.first_block !== undefined && plan.first_block !== null) {
    found.push(`Blocks ${plan.first_block} to ${plan.last_block} hold ${many(plan.log_ids, "log")}, in ${many(plan.segments, "segment")} of the index.`);
  }
  const clauses = [...(plan.clauses || [])].sort((a, b) => (a.order ?? 1e9) - (b.order ?? 1e9));
  for (const clause of clauses) {
    const expected = clause.estimate === null || clause.estimate === undefined ? "" : `, about ${clause.estimate} expected`;
    const held = clause.actual === null || clause.actual === undefined ? "" : `, ${clause.actual} found`;
    found.push(`${clause.field} (${many(clause.values, "value")})${expected}${held}: ${clause.used}.`);
  }
  if (plan.candidates !== undefined) found.push(`${many(plan.candidates, "candidate")} compared with the filter, ${plan.results} matched.`);
  const steps = Object.entries(plan.steps || {});
  const timed = steps.filter(([, spent]) => typeof spent === "number");
  if (timed.length) found.push("Time: " + timed.map(([name, spent]) => `${name} ${spent.toFixed(2)} ms`).join(", ") + ".");
  return found;
}

export function many(count, name) {
  return `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;
}

// How many logs are shown, and of how many where that is known.
export function logCount(shown, results, isCut) {
  if (!isCut) return `${many(shown, "log")}:`;
  return typeof results === "number" && results > shown ? `The first ${shown} of ${many(results, "log")}:` : `The first ${many(shown, "log")}:`;
}

// A proof of any of our trees, without knowing which: its plain values, and each list of objects in it as steps.
export function proofParts(value, name = "proof") {
  const facts = [], lists = [];
  const walk = (node, path) => {
    if (Array.isArray(node)) {
      if (node.length && node.every((item) => item !== null && typeof item === "object" && !Array.isArray(item))) {
        lists.push({ name: path, steps: node.map((item) => flat(item)) });
      } else facts.push([path, plain(node)]);
    } else if (node !== null && typeof node === "object") {
      for (const [key, below] of Object.entries(node)) walk(below, path === name ? key : `${path}.${key}`);
    } else facts.push([path, plain(node)]);
  };
  walk(value, name);
  return { facts, lists };
}

function flat(item, prefix = "") {
  return Object.entries(item).flatMap(([key, value]) => {
    const path = prefix ? `${prefix}.${key}` : key;
    return value !== null && typeof value === "object" && !Array.isArray(value) ? flat(value, path) : [[path, plain(value)]];
  });
}

function plain(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// The chains on which a stage has come to something, by name.
export function chainsOf(stages, name) {
  return stages.filter((one) => one.stage === name && one.head !== null).map((one) => one.chain);
}

// Bytes as protobuf's JSON has them, as paths take them.
export function hexOfBase64(text) {
  return "0x" + [...atob(text)].map((character) => character.charCodeAt(0).toString(16).padStart(2, "0")).join("");
}

// A path on this server, or null: nothing else is ever asked.
export function ownPath(text, origin) {
  const trimmed = (text || "").trim();
  if (!trimmed.startsWith("/")) return null;
  try {
    const url = new URL(trimmed, origin);
    return url.origin === origin ? url.pathname + url.search : null;
  } catch {
    return null;
  }
}

export function ago(iso, now) {
  if (!iso) return "";
  const seconds = Math.max(0, Math.round((now - Date.parse(iso)) / 1000));
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}
