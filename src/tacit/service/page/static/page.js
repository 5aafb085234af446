"use strict";

const AGAIN = 2000;
const live = document.getElementById("live");

function say(text, lost) {
  if (live.textContent !== text) live.textContent = text;
  live.classList.toggle("lost", lost);
}

function nameOrigin() {
  for (const place of document.querySelectorAll("[data-origin]")) {
    place.textContent = location.origin;
  }
}

// What follows the traffic -----------------------------------------------------------------

const now = () => document.getElementById("now");

// What somebody points at, has selected or has the focus in stays until they are done with it.
function inUse() {
  const selection = getSelection();
  return now().querySelector(".chart:hover") !== null
    || now().contains(document.activeElement)
    || (!selection.isCollapsed && now().contains(selection.anchorNode));
}

let refreshed = 0;
let underWay = false;

async function refresh() {
  if (underWay || document.hidden || Date.now() - refreshed < 1000 * (now().dataset.every ?? 0)) return;
  if (inUse()) {
    say("paused while you look", false);
    return;
  }
  underWay = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (inUse()) return;
    const open = [...now().querySelectorAll("details[open]")].map((each) => each.id);
    now().replaceWith(page.getElementById("now"));
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    nameOrigin();
    refreshed = Date.now();
    say("live", false);
  } catch {
    say("connection lost, trying again", true);
  } finally {
    underWay = false;
  }
}

function follow() {
  const events = new EventSource("/live");
  events.addEventListener("changed", refresh);
  events.addEventListener("error", () => {
    say("connection lost, trying again", true);
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN);
  });
}

// A form asks for another page: the policy of this one lets no form be sent.
function asks(id) {
  const form = document.getElementById(id);
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    const address = new URL(location.href);
    for (const [name, value] of new FormData(form)) {
      if (value) address.searchParams.set(name, value);
      else address.searchParams.delete(name);
    }
    if (id === "span") address.searchParams.delete("range");
    location.assign(address);
  });
}

// Try it -----------------------------------------------------------------------------------

const form = document.querySelector("#trial form");
const answered = document.getElementById("answer");

function compact(value) {
  // One line for each field; lists stay on one line.
  const lines = Object.entries(value).map(([k, v]) => `  ${JSON.stringify(k)}: ${JSON.stringify(v)}`);
  return `{\n${lines.join(",\n")}\n}`;
}

function fill() {
  const text = compact(JSON.parse(form.dataset.example));
  form.elements.request.value = text;
  // One more for the bar that scrolls sideways.
  form.elements.request.rows = text.split("\n").length + 1;
  answered.replaceChildren();
}

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function button(text, action) {
  const made = element("button", text);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

async function post(placement, path, body, key = "", method = "POST") {
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${key}`;
  const answer = await fetch(`/v1/placements/${encodeURIComponent(placement)}/${path}`, {
    method,
    headers,
    body: method === "DELETE" ? undefined
      : typeof body === "string" ? body : JSON.stringify(body),
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail ?? told.title ?? answer.statusText);
  return told;
}

function refuse(error) {
  const said = element("p", error.message);
  said.className = "state bad";
  answered.append(said);
}

async function tell(placement, path, body) {
  for (const each of answered.querySelectorAll("button")) each.disabled = true;
  try {
    const told = await post(placement, path, body);
    const became = told.outcome === "pending"
      ? "The feedback is kept until its window closes, and learned then."
      : `The feedback was ${told.outcome.replace("-", " ")}.`;
    answered.append(element("p", became));
  } catch (error) {
    refuse(error);
  }
}

function show(placement, told) {
  const id = told.decision_id;
  const chance = told.propensity ?? told.probability;
  const how = chance == null ? "" : `, chosen with probability ${chance.toPrecision(3)}`;
  const items = told.items ?? told.slate;
  const reward = (text, value) =>
    button(text, () => tell(placement, "feedback", { decision_id: id, reward: value }));
  if (items) {
    const list = element("ol");
    const clicked = new Set();
    items.forEach((item, place) => {
      if (item === null) return list.append(element("li", "empty"));
      const one = button(String(item), () => {
        if (!clicked.delete(place)) clicked.add(place);
        one.setAttribute("aria-pressed", clicked.has(place));
      });
      one.setAttribute("aria-pressed", "false");
      list.append(element("li", "", one));
    });
    const send = button("Send the clicks", () =>
      tell(placement, "clicks", { decision_id: id, clicks: [...clicked].sort((a, b) => a - b) }));
    const who = told.left === undefined ? "" : ` of ${told.left} and ${told.right}`;
    answered.replaceChildren(
      element("p", `A list${who}${how}. Click what you like, then send.`), list, send);
  } else if (told.left !== undefined) {
    answered.replaceChildren(
      element("p", `${told.left} against ${told.right}${how}.`),
      reward(`${told.left} wins`, 1), reward("Tie", 0.5), reward(`${told.right} wins`, 0));
  } else {
    answered.replaceChildren(
      element("p", "Show ", element("b", String(told.arm)), `${how}.`),
      reward("Click", 1), reward("No click", 0));
  }
}

function tries() {
  const { placement, path } = form.dataset;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    answered.replaceChildren();
    try {
      show(placement, await post(placement, path, form.elements.request.value));
    } catch (error) {
      refuse(error);
    }
  });
  fill();
}

// Controls ---------------------------------------------------------------------------------

const settings = () => document.getElementById("settings");

// What each field holds: as JSON, and in words for the question.
const READ = {
  text: (field) => [field.value, field.selectedOptions?.[0].textContent ?? field.value],
  // An empty one is none.
  day: (field) => [field.value || null, field.value || "no"],
  number: (field) => [Number(field.value), field.value],
  percent: (field) => [Number(field.value) / 100, `${field.value} %`],
  json: (field) => [JSON.parse(field.value), field.selectedOptions[0].textContent],
  one: (field) => [[JSON.parse(field.value)], field.selectedOptions[0].textContent],
  list: (field) => {
    const names = field.value.split(",").map((name) => name.trim()).filter(Boolean);
    return [names, names.join(", ")];
  },
  // So many minutes from now.
  until: (field) => [
    new Date(Date.now() + 60_000 * Number(field.value)).toISOString(),
    field.selectedOptions[0].textContent,
  ],
};

// Resolves to whether it shall be done.
function asked(title, says) {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-title").textContent = title;
  document.getElementById("confirm-says").textContent = says;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

function finished(text, bad) {
  const done = document.getElementById("done");
  done.textContent = text;
  done.classList.toggle("bad", bad);
}

// What can be chosen has changed.
async function renew() {
  // An address of its own: no page that was made before the change is shown again.
  const changed = new URL(location.href);
  changed.searchParams.set("changed", Date.now());
  const answer = await fetch(changed, { cache: "no-store" });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  settings().replaceWith(page.getElementById("settings"));
  now().replaceWith(page.getElementById("now"));
  nameOrigin();
  controls();
}

async function turn(control) {
  const body = {};
  let says = control.dataset.says ?? "";
  for (const field of control.elements) {
    if (!field.name) continue;
    const [value, words] = READ[field.dataset.as](field);
    body[field.name] = value;
    says = field.selectedOptions?.[0].dataset.says ?? says;
    says = says.replace(`{${field.name}}`, () => words);
  }
  const { act, path, method } = control.dataset;
  if (!await asked(`${act} at ${settings().dataset.placement}?`, says)) {
    finished("Nothing was changed.", false);
    return;
  }
  let told;
  finished("Under way …", false);
  try {
    const key = document.getElementById("admin")?.value ?? "";
    told = await post(settings().dataset.placement, path, body, key, method);
  } catch (error) {
    finished(error.message, true);
    return;
  }
  const roughly = told.approximate?.length ? ` Only roughly: ${told.approximate.join("; ")}.` : "";
  finished(`Done: ${act.toLowerCase()}.${roughly}`, false);
  await renew();
}

function controls() {
  for (const control of settings().querySelectorAll("form")) {
    control.addEventListener("submit", (event) => {
      event.preventDefault();
      turn(control);
    });
  }
}

for (const choice of document.querySelectorAll("#confirm button")) {
  choice.addEventListener("click", () => choice.closest("dialog").close(choice.value));
}
// The form is there for the field; it is never sent.
document.getElementById("key")?.addEventListener("submit", (event) => event.preventDefault());
if (settings()) controls();
if (form) tries();
asks("span");
asks("find");
nameOrigin();
document.addEventListener("visibilitychange", refresh);
follow();
document.addEventListener("visibilitychange", refresh);
