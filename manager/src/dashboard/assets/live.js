// Keeps pages fresh without loading them again. Pages work without it. No dependency, nothing evaluated.
"use strict";
(() => {
  const said = document.getElementById("said");
  const say = (words) => {
    if (said && words && said.textContent !== words) said.textContent = words;
  };

  // Puts drawn HTML in place; who was on a link or button of it stays there, opened details stay open.
  const put = (into, html) => {
    const active = into.contains(document.activeElement) ? document.activeElement : null;
    // Never under the hands of somebody who writes.
    if (active && active.matches("input, textarea, select")) return false;
    if ([...into.querySelectorAll("input, textarea")].some((f) => f.value !== f.defaultValue || f.files?.length)) return false;
    const mark = active && (active.id ? `#${CSS.escape(active.id)}` : active.getAttribute("href") && `${active.tagName.toLowerCase()}[href="${CSS.escape(active.getAttribute("href"))}"]`);
    const open = [...into.querySelectorAll("details")].map((d) => d.open);
    const graph = into.querySelector(".graph");
    const scrolled = graph ? [graph.scrollLeft, graph.scrollTop] : null;
    into.innerHTML = html;
    [...into.querySelectorAll("details")].forEach((d, i) => { if (open[i]) d.open = true; });
    if (scrolled && into.querySelector(".graph")) into.querySelector(".graph").scrollTo(...scrolled);
    if (mark) into.querySelector(mark)?.focus({ preventScroll: true });
    return true;
  };

  // Parts that the server draws anew when they have changed.
  for (const part of document.querySelectorAll("[data-live]")) {
    new EventSource(part.dataset.live).addEventListener("part", (e) => put(part, e.data));
  }

  // A goal: each event changes one ticket, in the drawing and in the list; the head is fetched now and then.
  const goal = document.querySelector("[data-goal]");
  if (!goal || !goal.dataset.after) return;
  const base = `/goals/${goal.dataset.goal}`;
  const fetched = async (path) => {
    const answer = await fetch(path, { redirect: "error" });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.text();
  };
  // At most once a second, and once more after the last call.
  const calm = (act) => {
    let waits = false, again = false;
    const run = async () => {
      waits = true;
      try { await act(); } catch { again = true; }
      setTimeout(() => { waits = false; if (again) { again = false; run(); } }, 1000);
    };
    return () => { if (waits) again = true; else run(); };
  };
  const head = goal.querySelector("[data-head]"), plan = goal.querySelector("[data-graph]");
  const ofTicket = new Map();
  const learn = () => {
    ofTicket.clear();
    for (const e of plan.querySelectorAll("[data-ticket]")) {
      const all = ofTicket.get(e.dataset.ticket);
      if (all) all.push(e); else ofTicket.set(e.dataset.ticket, [e]);
    }
  };
  learn();
  const freshPlan = calm(async () => { if (put(plan, await fetched(`${base}/graph`))) learn(); });
  const freshHead = calm(async () => {
    put(head, await fetched(`${base}/head`));
    const now = head.querySelector("[data-said]");
    say(now?.dataset.said);
    if (now && Number(now.dataset.tickets) !== ofTicket.size) freshPlan();
  });
  const word = (state) => state.replaceAll("_", " ");
  const busy = new Set(["running", "reviewing"]);
  const show = (e, state, who) => {
    e.dataset.state = state;
    e.querySelector("use")?.setAttribute("href", `#s-${state}`);
    const text = e.querySelector(".who");
    const label = who ? `${word(state)}, ${who}` : word(state);
    // In the drawing there is room for so much; its words are what a screen reader says.
    if (text) text.textContent = e.tagName !== "a" ? who : label.length > 26 ? `${label.slice(0, 25)}…` : label;
    const badge = e.querySelector(".badge");
    if (badge) { badge.dataset.state = state; badge.querySelector(".word").textContent = word(state); }
  };

  // Many events of one moment are drawn once.
  const changed = new Map();
  const draw = () => {
    for (const [id, [state, who]] of changed) for (const e of ofTicket.get(id) ?? []) show(e, state, who);
    changed.clear();
  };
  const source = new EventSource(`${base}/events?after=${goal.dataset.after}`);
  source.addEventListener("log", (message) => {
    const event = JSON.parse(message.data);
    if (event.ticket && event.to) {
      if (!ofTicket.has(event.ticket)) freshPlan();
      const who = busy.has(event.to) && (event.event === "claimed" || event.event === "review_claimed" || event.from === event.to) ? event.who : "";
      if (event.from !== event.to || who) {
        if (changed.size === 0) requestAnimationFrame(draw);
        changed.set(event.ticket, [event.to, who]);
      }
    }
    if (event.event === "linked" || event.event === "goal_sealed") freshPlan();
    if (event.event !== "progress") freshHead();
  });
  source.addEventListener("end", (message) => {
    // A manager that leaves: the browser connects again by itself.
    if (JSON.parse(message.data).state === "shutdown") return;
    source.close();
    freshHead();
    freshPlan();
    // What can be done and which files there are has changed: said, not forced.
    const note = document.createElement("p");
    const link = document.createElement("a");
    link.href = base;
    link.id = "over";
    link.textContent = "This goal is over: show its files";
    note.append(link);
    head.after(note);
  });
})();
