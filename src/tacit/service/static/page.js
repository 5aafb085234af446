"use strict";

const PERIOD = 2000;
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
    placements.innerHTML = fragment;
    nameOrigin();
    say("live", false);
  } catch {
    say("connection lost, trying again", true);
  }
}

async function forever() {
  await refresh();
  setTimeout(forever, PERIOD);
}

nameOrigin();
forever();
document.addEventListener("visibilitychange", refresh);
