"use strict";

const AGAIN = 2000;
const placements = document.getElementById("placements");
const live = document.getElementById("live");

function say(text, lost) {
  if (live.textContent !== text) live.textContent = text;
  live.classList.toggle("lost", lost);
}

function nameOrigin() {
  for (const place of placements.querySelectorAll("[data-origin]")) {
    place.textContent = location.origin;
  }
}

// What somebody points at, has selected or has the focus in stays until they are done with it.
function inUse() {
  const selection = getSelection();
  return placements.querySelector(".chart:hover") !== null
    || placements.contains(document.activeElement)
    || (!selection.isCollapsed && placements.contains(selection.anchorNode));
}

async function refresh() {
  if (document.hidden) return;
  if (inUse()) {
    say("paused while you look", false);
    return;
  }
  try {
    const answer = await fetch("/fragment/placements", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const fragment = await answer.text();
    if (inUse()) return;
    const open = [...placements.querySelectorAll("details[open]")].map((each) => each.id);
    placements.innerHTML = fragment;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    nameOrigin();
    say("live", false);
  } catch {
    say("connection lost, trying again", true);
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

// Try it -----------------------------------------------------------------------------------

const form = document.querySelector("#trial form");
const answered = document.getElementById("answer");

const chosen = () => form.elements.placement.selectedOptions[0];

function compact(value) {
  // One line for each field; lists stay on one line.
  const lines = Object.entries(value).map(([k, v]) => `  ${JSON.stringify(k)}: ${JSON.stringify(v)}`);
  return `{\n${lines.join(",\n")}\n}`;
}

function fill() {
  if (!chosen()) return;
  const text = compact(JSON.parse(chosen().dataset.example));
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

async function post(placement, path, body) {
  const answer = await fetch(`/v1/placements/${encodeURIComponent(placement)}/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: typeof body === "string" ? body : JSON.stringify(body),
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

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  answered.replaceChildren();
  const { value, dataset } = chosen();
  try {
    show(value, await post(value, dataset.path, form.elements.request.value));
  } catch (error) {
    refuse(error);
  }
});
form.elements.placement.addEventListener("change", fill);

fill();
nameOrigin();
document.addEventListener("visibilitychange", refresh);
follow();
document.addEventListener("visibilitychange", refresh);
