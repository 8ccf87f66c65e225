// The console's page. All that it shows comes from the admin API and is put in as text: nothing is ever read as HTML.

const main = document.getElementById("main");
const state = document.getElementById("state");
const PAGE = 50;
const PATHS = [
  "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1beta/models/gemini-2.5-flash:generateContent",
];
let token = sessionStorage.getItem("compactd-token") || "";
let turn = 0; // views that were begun: an answer for one that was left is dropped

class Denied extends Error {}

// Elements: el("td", {class: "number"}, "text", child, …). Strings become text; on… are listeners, everything else attributes.
function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

async function ask(path, options = {}) {
  const headers = { ...(options.body ? { "content-type": "application/json" } : {}) };
  if (token) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error", credentials: "omit" });
  if (answer.status === 401) throw new Denied();
  if (path === "/metrics") return answer.ok ? answer.text() : "";
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok && path !== "/readyz") {
    const detail = typeof said.detail === "string" ? said.detail : "It is not what this expects.";
    throw new Error(`${answer.status}: ${detail}`);
  }
  return said;
}

const api = (path, options) => ask(`/compactd/api${path}`, options);
const count = (number) => Number(number || 0).toLocaleString("en");
const money = (dollars) => `$${Number(dollars || 0).toFixed(dollars && dollars < 1 ? 4 : 2)}`;
const when = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString("sv") : "");
const link = (kind, id, text = id) => el("a", { href: `#/${kind}/${encodeURIComponent(id)}` }, text);
const chip = (text) => (text ? el("span", { class: "chip" }, text) : "");
const archiveOf = (address) => (/\/compactd\/archives\/([^/]+)\//.exec(address || "") || [])[1];
const empty = (text) => el("p", { class: "empty" }, text);
const heading = (text, up) => [
  up ? el("p", { class: "up" }, el("a", { href: `#/${up}` }, `← ${up}`)) : null, el("h1", {}, text),
];

function figures(pairs) {
  return el("div", { class: "figures" }, ...pairs.map(([name, value]) =>
    el("div", { class: "figure" }, el("b", {}, String(value)), el("span", {}, name))));
}

function facts(pairs, kind = null) {
  return el("dl", { class: kind }, ...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

// A table that grows by a page at a time. `columns`: [heading, cell of a row, is it a number?].
function list(kind, key, query, columns, none) {
  const body = el("tbody");
  const more = el("button", { class: "more", type: "button", hidden: true }, "Show more");
  const head = columns.map(([name, , number]) => el("th", { class: number && "number", scope: "col" }, name));
  const table = el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), body));
  const whole = el("section", {}, table, more);
  let cursor = "";
  const load = async () => {
    more.disabled = true;
    const found = await api(`/${kind}?${new URLSearchParams({ ...query, limit: PAGE, cursor })}`);
    for (const row of found[key]) {
      body.append(el("tr", {}, ...columns.map(([, cell, number]) => el("td", { class: number ? "number" : "name" }, cell(row)))));
    }
    cursor = found.cursor;
    more.hidden = !cursor;
    more.disabled = false;
    if (!body.children.length) whole.replaceChildren(empty(none));
  };
  more.addEventListener("click", () => load().catch(tell));
  return load().then(() => whole);
}

function change(row) {
  const [before, after] = [row.tokens_before, row.tokens_after];
  return el("span", {}, `${count(before)} → ${count(after)}`, el("progress", { max: Math.max(1, before), value: after }));
}

const saved = (row) => `${count(row.tokens_before - row.tokens_after)} (${
  Math.round((100 * (row.tokens_before - row.tokens_after)) / Math.max(1, row.tokens_before))} %)`;

const COMPACTIONS = [
  ["When", (row) => link("compactions", row.id, when(row.created))],
  ["Session", (row) => link("sessions", row.session)],
  ["Model", (row) => row.model],
  ["Strategy", (row) => el("span", {}, chip(row.strategy), el("span", { class: "soft" }, ` level ${row.level}`))],
  ["Tokens", change, true],
  ["Saved", saved, true],
  ["Archive", (row) => (archiveOf(row.archive) ? link("archives", archiveOf(row.archive), "read") : "")],
];

// Sums of a counter's samples in the text of /metrics, by one of its labels.
function sums(text, name, label) {
  const found = {};
  for (const line of text.split("\n")) {
    if (!line.startsWith(`compactd_${name}{`)) continue;
    const value = (new RegExp(`${label}="([^"]*)"`).exec(line) || [])[1] || "";
    found[value] = (found[value] || 0) + Number(line.slice(line.lastIndexOf(" ")));
  }
  return found;
}

const VIEWS = {
  async sessions(id) {
    if (id) return session(id);
    const text = await ask("/metrics");
    const outcomes = sums(text, "requests_total", "outcome");
    const cost = sums(text, "estimated_cost_usd_total", "kind");
    const all = (values) => Object.values(values).reduce((a, b) => a + b, 0);
    return [
      ...heading("Sessions"),
      figures([
        ["requests since start", count(all(outcomes))],
        ["compacted or replayed", count((outcomes.compacted || 0) + (outcomes.replayed || 0))],
        ["tokens saved", count(all(sums(text, "tokens_cleared_total", "model")))],
        ["estimated savings", money(cost.saved)],
        ["spent on summaries (estimate)", money(cost.spent_on_summaries)],
      ]),
      await list("sessions", "sessions", {}, [
        ["Session", (row) => link("sessions", row.id)],
        ["Last request", (row) => when(row.updated)],
        ["Model", (row) => row.model],
        ["Format", (row) => row.format],
        ["Strategy", (row) => chip(row.strategy)],
        ["Requests", (row) => count(row.requests), true],
        ["Compactions", (row) => count(row.compactions), true],
        ["Tokens saved", (row) => count(row.tokens_cleared), true],
      ], "No session yet. A conversation appears here once it comes near its threshold."),
    ];
  },

  async compactions(id) {
    if (!id) return [...heading("Compactions"), await list("compactions", "compactions", {}, COMPACTIONS, "No compaction yet.")];
    const row = await api(`/compactions/${encodeURIComponent(id)}`);
    const archive = archiveOf(row.archive);
    return [
      ...heading(`Compaction of ${when(row.created)}`, "compactions"),
      figures([
        ["tokens before", count(row.tokens_before)], ["tokens after", count(row.tokens_after)], ["saved", saved(row)],
        ["count from", row.count_source], ["summary (estimate)", money(row.summary_cost)],
      ]),
      el("div", { class: "card" }, facts([
        ["session", link("sessions", row.session)], ["model", row.model], ["format", row.format], ["strategy", row.strategy],
        ["level", row.level === 2 ? "2 (inside a tool loop)" : String(row.level)],
        ["summary tokens in, out", `${count(row.summary_input_tokens)}, ${count(row.summary_output_tokens)}`],
        ["removed messages", archive ? link("archives", archive) : "not to be read here"],
      ])),
    ];
  },

  async archives(id) {
    const found = await api(`/archives/${encodeURIComponent(id)}`);
    const items = found.items || [];
    const shown = el("section");
    const more = el("button", { class: "more", type: "button" }, "Show more");
    const next = () => {
      const at = shown.children.length;
      shown.append(...items.slice(at, at + PAGE).map(({ index, item }) => message(index, item)));
      more.hidden = shown.children.length >= items.length;
    };
    more.addEventListener("click", next);
    next();
    return [
      ...heading(id, "compactions"),
      el("p", { class: "soft" }, `${count(items.length)} messages of session `, link("sessions", found.session),
        " that left the conversation up to then, oldest first.",
        found.unreadable ? ` What was removed before can't be shown: ${found.unreadable}.` : ""),
      shown, more,
    ];
  },

  async policies() {
    const settings = await api("/config");
    const cards = settings.policies.map((policy) => {
      const { name, match, ...rest } = policy;
      const asked = Object.entries(match).filter(([, value]) => value && (value.length || Object.keys(value).length));
      return el("section", { class: "card" }, el("h2", {}, name),
        el("p", { class: "soft" }, "for ", asked.map(([key, value]) => `${key} ${JSON.stringify(value)}`).join(", ") || "everything"),
        facts(Object.entries(rest).filter(([, value]) => value !== null)
          .map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]), "many"));
    });
    const upstreams = Object.entries(settings.upstreams).map(([name, upstream]) => [
      name, `${upstream.base_url} (${upstream.formats.join(", ")})${upstream.api_key ? ", with a key of compactd's own" : ""}`,
    ]);
    return [
      ...heading("Policies in force"), el("p", { class: "soft" }, "The first that matches a request is taken. What is not listed is not used."), ...cards,
      el("section", { class: "card" }, el("h2", {}, "Upstreams"), facts(upstreams)),
    ];
  },

  async preview() {
    const settings = await api("/config");
    const path = el("select", {}, el("option", { value: "" }, "by the body's keys"), ...PATHS.map((one) => el("option", {}, one)));
    const policy = el("select", {}, el("option", { value: "" }, "the one that matches"),
      ...settings.policies.map((one) => el("option", { value: one.name }, one.name)));
    const body = el("textarea", { spellcheck: "false", required: true, placeholder: '{"model": "…", "messages": […]}' });
    const result = el("section", { "aria-live": "polite" });
    const submit = async (event) => {
      event.preventDefault();
      const asked = { path: path.value, body: body.value, ...(policy.value ? { policy: policy.value } : {}) };
      const told = await api("/preview", { method: "POST", body: JSON.stringify(asked) });
      result.replaceChildren(...previewed(told));
    };
    return [
      ...heading("Preview"),
      el("p", { class: "soft" }, "What would be forwarded for a request body, and why. Nothing is sent or stored."),
      el("form", { onsubmit: (event) => submit(event).catch(tell) },
        el("div", { class: "row" }, el("label", {}, "Path", path), el("label", {}, "Policy", policy),
          el("button", { class: "main", type: "submit" }, "Preview")),
        el("label", {}, "Request body (JSON)", body)),
      result,
    ];
  },
};

async function session(id) {
  const row = await api(`/sessions/${encodeURIComponent(id)}`);
  return [
    ...heading(row.id, "sessions"),
    figures([
      ["requests", count(row.requests)], ["compactions", count(row.compactions)], ["tokens saved", count(row.tokens_cleared)],
      ["refused by the provider", count(row.rejections)], ["summaries (estimate)", money(row.summary_cost)],
    ]),
    el("p", { class: "soft" }, `${row.model}, ${row.format}; first ${when(row.created)}, last ${when(row.updated)}`),
    el("h2", {}, "Compactions"),
    await list("compactions", "compactions", { session: id }, COMPACTIONS.filter(([name]) => name !== "Session"), "None yet."),
    el("h2", {}, "Archives"),
    await list("archives", "archives", { session: id }, [
      ["Archive", (one) => link("archives", one.id)], ["When", (one) => when(one.created)],
    ], "None."),
  ];
}

function previewed(told) {
  if (told.error) return [el("p", { class: "fault" }, told.error)];
  let text = told.body;
  try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it is */ }
  return [
    el("h2", {}, `${told.outcome}: ${told.reason}`),
    figures([
      ["tokens before", count(told.tokens_before)], ["tokens after", count(told.tokens_after)], ["count from", told.count_source || "none"],
      ["trigger, tokens", count(told.trigger_tokens)], ["bytes", `${count(told.bytes_before)} → ${count(told.bytes_after)}`],
    ]),
    el("div", { class: "card" }, facts([
      ["policy", told.policy], ["upstream", told.upstream], ["format", told.format], ["strategy", told.strategy || "none"],
      ["model", `${told.model}, ${count(told.context_window)} tokens`], ...told.warnings.map((warning) => ["warning", warning]),
    ])),
    el("h2", {}, "Forwarded body"), el("div", { class: "card" }, el("pre", {}, text)),
  ];
}

// One archived item of any format: who, and its texts; what is no text is shown as JSON.
function message(index, item) {
  const object = item !== null && typeof item === "object" ? item : {};
  const content = object.content ?? object.parts ?? object.output ?? item;
  const parts = Array.isArray(content) ? content : [content];
  const texts = parts.map((part) => {
    if (typeof part === "string") return part;
    if (part && typeof part.text === "string") return part.text;
    return JSON.stringify(part, null, 2) ?? "";
  });
  if (Array.isArray(object.tool_calls)) texts.push(JSON.stringify(object.tool_calls, null, 2));
  return el("article", { class: "item" },
    el("div", { class: "who" }, chip(String(object.role || object.type || "item")), `message ${index + 1}`),
    ...texts.map((text) => el("pre", {}, text)));
}

function tell(fault) {
  if (fault instanceof Denied) return login();
  main.querySelectorAll(".fault").forEach((old) => old.remove());
  main.append(el("p", { class: "fault", role: "alert" }, fault.message));
}

function login() {
  const given = el("input", { type: "password", autocomplete: "off", required: true });
  main.replaceChildren(el("form", {
    class: "login",
    onsubmit: (event) => {
      event.preventDefault();
      token = given.value.trim();
      sessionStorage.setItem("compactd-token", token);
      show();
    },
  }, el("h1", {}, "Administration"), el("label", {}, "Admin token (admin.token)", given),
  el("button", { class: "main", type: "submit" }, "Open"), token ? el("p", { class: "fault" }, "This token was not accepted.") : null));
  given.focus();
}

async function show() {
  const mine = (turn += 1);
  const [kind, id] = location.hash.replace(/^#\//, "").split("/");
  const view = Object.hasOwn(VIEWS, kind) ? kind : "sessions";
  const tab = view === "archives" ? "compactions" : view;
  for (const one of document.querySelectorAll("nav a")) {
    if (one.hash === `#/${tab}`) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  try {
    const made = await VIEWS[view](id && decodeURIComponent(id));
    if (mine === turn) main.replaceChildren(...made.filter(Boolean));
  } catch (fault) {
    if (mine !== turn) return;
    main.replaceChildren();
    tell(fault);
  }
}

async function health() {
  const said = await ask("/readyz").catch(() => ({ status: "unreachable" }));
  state.textContent = said.store ? `${said.status}: store ${said.store}` : said.status;
  state.className = `pill ${{ ok: "good", degraded: "warn" }[said.status] || "bad"}`;
}

window.addEventListener("hashchange", () => {
  scrollTo(0, 0);
  show().then(() => main.focus({ preventScroll: true }));
});
show();
health();
setInterval(health, 15000);
