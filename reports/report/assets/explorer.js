// The step explorer: a trace drawn call by call. Only the calls near the chosen one are in the document, so that length costs nothing.
(() => {
  const root = document.getElementById("explorer-root");
  if (!root) return;
  const data = JSON.parse(document.getElementById("traces").textContent);
  const requests = data.requests.map((raw) => prepare(raw, data.fields));
  const AROUND = 7; // calls shown before and after the chosen one
  const MOST_COLUMNS = 72;
  const MOST_MASK = 64;
  const FAR = 4096; // positions beyond the frontier that a cell is made for

  function prepare(raw, fields) {
    const request = { ...raw, steps: [], owner: new Map(), output: [] };
    const resolved = new Map(); // position -> token
    raw.steps.forEach((values, index) => {
      const step = Object.fromEntries(fields.map((name, i) => [name, values[i]]));
      step.verified ??= [];
      step.committed ??= [];
      step.order ??= [];
      const anyOrder = step.end !== null && step.end !== undefined;
      step.anyOrder = anyOrder;
      step.before = new Set(resolved.keys());
      step.first = resolved.size + 1; // left to right: where the output goes on
      const advance = step.advance ?? step.committed.length;
      const places = anyOrder
        ? step.order.slice(0, advance).filter((j) => j <= step.end)
        : step.committed.map((_, i) => step.first + i);
      step.places = places;
      places.forEach((j, i) => {
        resolved.set(j, step.committed[i]);
        request.owner.set(j, index);
      });
      if (anyOrder) {
        step.removed = [...resolved.keys()].filter((j) => j > step.end);
        step.removed.forEach((j) => resolved.delete(j));
      }
      request.steps.push(step);
    });
    for (const position of [...resolved.keys()].sort((a, b) => a - b)) request.output.push(resolved.get(position));
    request.positions = [...resolved.keys()].sort((a, b) => a - b);
    return request;
  }

  // position -> {top: [class, text], low: [class, text]} of one call
  function cells(request, index) {
    const step = request.steps[index];
    const found = new Map();
    const at = (position) => {
      if (!found.has(position)) found.set(position, {});
      return found.get(position);
    };
    const place = (i) => (step.anyOrder ? step.order[i] : step.first + i);
    const accepted = step.accepted ?? 0;
    step.verified.forEach((token, i) => {
      const tested = i < accepted ? "accepted" : i === accepted ? "rejected" : "untested";
      at(place(i)).top = [tested, (tested === "accepted" ? "✓" : tested === "rejected" ? "✗" : "") + token];
    });
    const committed = new Map(step.places.map((j, i) => [j, step.committed[i]]));
    const fixes = step.advance === undefined || step.advance === null || step.advance > accepted;
    if (fixes && step.committed.length) {
      const position = step.anyOrder ? step.order[accepted] : step.first + accepted;
      if (step.verified.length === 0 && step.places.length > 1) {
        step.places.forEach((j) => (at(j).top = ["fixed", "+" + committed.get(j)])); // Native takes several at once
      } else if (committed.has(position)) {
        const old = at(position).top;
        at(position).top = ["fixed", (old ? old[1] + "→" : "+") + committed.get(position)];
      }
    }
    const next = request.steps[index + 1];
    if (step.branch !== null && step.branch !== undefined) {
      const kept = step.retained ?? 0;
      if (step.anyOrder) {
        const left = step.order.filter((j) => !step.before.has(j) && !step.places.includes(j) && j <= step.end);
        step.order.slice(step.branch).forEach((j) => {
          const stays = left.includes(j);
          at(j).low = stays ? ["kept", "○"] : ["dropped", "×"];
        });
        if (next) next.verified.forEach((token, i) => { const j = next.order[i]; if (left.includes(j)) at(j).low = ["kept", "○" + token]; });
      } else {
        for (let i = 0; i < Math.min(step.discarded ?? 0, FAR); i += 1) at(step.first + step.branch + i).low = ["dropped", "×"];
        for (let i = 0; i < Math.min(kept, FAR); i += 1) {
          const token = next && next.verified[i] !== undefined ? next.verified[i] : "";
          at(step.first + step.committed.length + i).low = ["kept", "○" + token];
        }
      }
    }
    return found;
  }

  function sentence(request, index) {
    const step = request.steps[index];
    const parts = [`Call ${index + 1} of ${request.steps.length}.`];
    if (step.verified.length) parts.push(`Draft of ${step.verified.length} tested, ${step.accepted} accepted.`);
    parts.push(step.committed.length ? `Emitted ${step.committed.length}: ${step.committed.join(" ")}.` : "Emitted nothing.");
    if (step.anyOrder) parts.push(`Order ${step.order.join(" ") || "none"}; last position ${step.end}.`);
    if (step.removed && step.removed.length) parts.push(`Removed positions ${step.removed.join(" ")}.`);
    if (step.branch !== null && step.branch !== undefined) parts.push(`Branch ${step.branch}: ${step.discarded ?? "?"} proposals discarded, ${step.retained ?? "?"} kept.`);
    if (step.rows !== null && step.rows !== undefined) parts.push(`${step.rows} rows.`);
    if (step.again) parts.push(`${step.again} rows encoded again.`);
    if (step.fallback) parts.push("Correction drawn from the target law, its residual had no mass.");
    if (step.stop) parts.push(`Stops: ${step.stop}.`);
    return parts.join(" ");
  }

  function complaint(fault) {
    if (fault.finding) return `${fault.call ? `Faulty step: call ${fault.call}. ` : "No single call is at fault: "}${fault.finding}`;
    return `Faulty step: call ${fault.call}. No rule explains it; nearest is ${fault.rule}. Expected ${fault.expected}; found ${fault.found}.`;
  }

  // The paper's layout of a call: labels of its rows, and who sees whom.
  function layout(request, index) {
    const step = request.steps[index];
    const width = request.width;
    if (!width) return null;
    if (Math.max(width, step.order.length, step.verified.length) > MOST_MASK) return { labels: { length: `more than ${MOST_MASK}` }, many: true };
    const name = request.schedule.split(":")[0];
    const rows = [];
    if (step.anyOrder) {
      const order = step.order;
      if (!order.length) return null;
      const drafted = new Set(order.slice(0, step.verified.length));
      const verifies = name !== "native" && !(name === "linear" && (step.advance ?? 0) === 0);
      const branches = name === "packed" || name === "native" || (name === "linear" && !verifies) ? [0] : name === "quadratic" ? order.map((_, b) => b) : [];
      if (verifies) {
        order.forEach((j, r) => rows.push({ kind: "O", r, j, mask: !drafted.has(j) }));
        order.forEach((j, r) => rows.push({ kind: "M", r, j }));
      }
      branches.forEach((b) => order.forEach((j, r) => rows.push({ kind: "R", r, j, b })));
      const sees = (x, y) =>
        (x.kind === "O" && y.kind === "O" && (x === y || (y.r < x.r && !y.mask))) ||
        (x.kind === "M" && y.kind === "O" && y.r < x.r && !y.mask) ||
        (x.kind === "R" && y.kind === "O" && y.r < x.b && !y.mask) ||
        (x.kind !== "O" && x === y);
      return { labels: rows.map((row) => `${row.kind}${row.j}`), sees: rows.map((x) => rows.map((y) => sees(x, y))) };
    }
    const draft = step.verified.length;
    const wide = request.start === "wide" && index === 0 && (name === "packed" || name === "quadratic" || name === "branches");
    const drafts = step.branch !== null && step.branch !== undefined;
    const verifies = (step.advance ?? step.committed.length) > 0;
    if (!verifies && !drafts) return null;
    // A first call that only emits a token: start `sampled`, and Linear-SS's `wide`.
    const alone = index === 0 && (request.start === "sampled" || (request.start === "wide" && name === "linear"));
    let branches = [];
    if (wide) branches = [1];
    else if (alone) branches = [];
    else if (name === "packed" || (name === "linear" && drafts)) branches = [0];
    else if (name === "quadratic") branches = Array.from({ length: width + 1 }, (_, b) => b);
    else if (name === "branches") branches = (request.schedule.split(":")[1] ?? "").split(",").map(Number).filter((b) => Number.isInteger(b) && b >= 0 && b <= width);
    if (!verifies) branches = [0];
    const slots = name === "ar" || wide || alone ? 0 : width;
    if (verifies) for (let i = 0; i <= slots; i += 1) rows.push({ kind: "V", i, label: i === 0 ? "last" : i <= draft ? `d${i}` : "pad" });
    for (const b of branches) {
      for (let i = wide ? 1 : 0; i <= width + (wide ? 1 : 0); i += 1) rows.push({ kind: "Z", b, i, label: i === 0 ? (b === 0 ? "last" : `d${b}`) : `M${b + i}` });
    }
    const sees = (x, y) =>
      (x.kind === "V" && y.kind === "V" && y.i <= x.i) || (x.kind === "Z" && y.kind === "Z" && y.b === x.b) || (x.kind === "Z" && y.kind === "V" && y.i < x.b);
    return { labels: rows.map((row) => row.label), sees: rows.map((x) => rows.map((y) => sees(x, y))) };
  }

  function least(values, start) {
    let found = start; // a call may have more positions than a function may have arguments
    for (const value of values) found = Math.min(found, value);
    return found;
  }

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") made.className = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  class Pane {
    constructor(name, chosen, changed) {
      this.changed = changed;
      this.now = 0;
      this.select = element("select", { onchange: () => this.choose(Number(this.select.value)) });
      if (name === "B") this.select.append(element("option", { value: "-1" }, "nothing"));
      requests.forEach((request, index) => {
        const label = `${request.fault ? "FAULT · " : ""}${request.schedule}${request.width ? `, W = ${request.width}` : ""} · ${request.name}`;
        this.select.append(element("option", { value: String(index) }, label));
      });
      this.range = element("input", { type: "range", min: "1", value: "1", oninput: () => this.go(Number(this.range.value) - 1) });
      const button = (text, action) => element("button", { type: "button", onclick: action }, text);
      this.controls = element(
        "div", { class: "bar-of-controls" },
        element("label", {}, name === "A" ? "Request" : "Compare with", this.select),
        element("label", {}, "Call", this.range),
        button("Previous", () => this.go(this.now - 1)),
        button("Next", () => this.go(this.now + 1)),
      );
      this.words = element("p", { "aria-live": name === "A" ? "polite" : "off" });
      this.fault = element("div", { class: "fault", role: "note" });
      this.grid = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Calls of request ${name}` });
      this.grid.addEventListener("keydown", (event) => this.key(event));
      this.mask = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Attention mask of the chosen call of request ${name}` });
      this.root = element("div", { class: "pane" }, this.controls, this.words, this.fault, this.grid, this.mask);
      this.choose(chosen, true);
    }

    get request() { return requests[this.index]; }

    choose(index, quiet = false) {
      this.index = index;
      this.select.value = String(index);
      const request = this.request;
      this.range.max = String(request ? Math.max(1, request.steps.length) : 1);
      this.go(request && request.fault ? (request.fault.call ?? 1) - 1 : 0, quiet);
    }

    key(event) {
      const last = this.request ? this.request.steps.length - 1 : 0;
      const moves = { ArrowDown: this.now + 1, ArrowRight: this.now + 1, ArrowUp: this.now - 1, ArrowLeft: this.now - 1, Home: 0, End: last, PageDown: this.now + 10, PageUp: this.now - 10 };
      if (event.key in moves) this.go(moves[event.key]);
      else if (event.key === "d") difference();
      else if (event.key === "f" && this.request && this.request.fault && this.request.fault.call) this.go(this.request.fault.call - 1);
      else return;
      event.preventDefault();
    }

    go(call, quiet = false) {
      const request = this.request;
      if (request) this.now = Math.max(0, Math.min(request.steps.length - 1, call));
      this.range.value = String(this.now + 1);
      this.draw();
      if (!quiet) this.changed(this);
    }

    draw() {
      const request = this.request;
      this.grid.hidden = this.mask.hidden = this.words.hidden = !request || !request.steps.length;
      this.fault.hidden = !request || !request.fault;
      if (!this.fault.hidden) this.fault.textContent = complaint(request.fault);
      if (this.grid.hidden) return;
      this.words.textContent = sentence(request, this.now);
      const from = Math.max(0, this.now - AROUND);
      const to = Math.min(request.steps.length, this.now + AROUND + 1);
      const drawn = [];
      for (let index = from; index < to; index += 1) drawn.push([index, cells(request, index)]);
      const here = drawn[this.now - from][1];
      const frontier = request.steps[this.now].anyOrder ? least(here.keys(), request.steps[this.now].end || 1) : request.steps[this.now].first;
      const all = drawn.flatMap(([, found]) => [...found.keys()]);
      let low = Math.max(1, least(all, frontier - 4));
      if (frontier - low > MOST_COLUMNS / 3) low = frontier - Math.floor(MOST_COLUMNS / 3);
      const high = Math.min(low + MOST_COLUMNS - 1, all.reduce((a, b) => Math.max(a, b), frontier));
      const head = element("tr", {}, element("th", { scope: "col", class: "call" }, "call"));
      for (let position = low; position <= high; position += 1) head.append(element("th", { scope: "col" }, String(position)));
      const body = drawn.map(([index, found]) => {
        const step = request.steps[index];
        const faulty = request.fault && request.fault.call === index + 1;
        const mark = (index === this.now ? "▶ " : "") + (faulty ? "FAULT " : "");
        const row = element("tr", { class: `${index === this.now ? "now" : ""}${faulty ? " faulty" : ""}` },
          element("th", { scope: "row", class: "call", onclick: () => this.go(index) }, `${mark}${index + 1}`));
        for (let position = low; position <= high; position += 1) {
          const cell = found.get(position);
          const known = step.anyOrder ? step.before.has(position) : position < step.first;
          const made = element("td", { class: known ? "prefix" : "" });
          if (cell) {
            for (const line of ["top", "low"]) {
              const [kind, text] = cell[line] ?? ["", ""];
              made.append(element("span", { class: `${line} ${kind}` }, String(text).slice(0, 24)));
            }
          } else if (known) made.append("·");
          row.append(made);
        }
        return row;
      });
      this.grid.replaceChildren(element("table", { class: "steps" }, element("thead", {}, head), element("tbody", {}, ...body)));
      this.drawMask(request);
    }

    drawMask(request) {
      const found = layout(request, this.now);
      if (!found || !found.labels.length) { this.mask.replaceChildren(); return; }
      const caption = `Rows of this call as the paper lays them out, ${found.labels.length} with padding; a row sees the filled columns, and the cache${request.steps[this.now].anyOrder ? " with what was accepted before, whose rows are not drawn" : ""}`;
      if (found.many || found.labels.length > MOST_MASK) { this.mask.replaceChildren(element("p", {}, `${caption}: too many to draw.`)); return; }
      const head = element("tr", {}, element("td"), ...found.labels.map((label) => element("th", { scope: "col" }, label)));
      const body = found.sees.map((row, i) =>
        element("tr", {}, element("th", { scope: "row" }, found.labels[i]), ...row.map((seen) => element("td", { class: seen ? "sees" : "" }, seen ? "x" : ""))));
      this.mask.replaceChildren(element("p", {}, `${caption}.`), element("table", { class: "mask" }, element("thead", {}, head), element("tbody", {}, ...body)));
    }
  }

  // The other pane follows to the call that first reaches the same output.
  function follow(moved) {
    const other = moved === paneA ? paneB : paneA;
    if (!moved.request || !other.request || !other.request.steps.length) return;
    const reached = moved.request.steps[moved.now].before.size;
    const target = other.request.steps.findIndex((step) => step.before.size + step.places.length > reached);
    other.now = target < 0 ? other.request.steps.length - 1 : target;
    other.range.value = String(other.now + 1);
    other.draw();
  }

  function difference() {
    const [one, two] = [paneA.request, paneB.request];
    if (!one || !two) { status.textContent = "Choose a request to compare with."; return; }
    const length = Math.max(one.output.length, two.output.length);
    const at = Array.from({ length }, (_, i) => i).find((i) => one.output[i] !== two.output[i]);
    if (at !== undefined) {
      const call = (request) => request.owner.get(request.positions[at]) ?? request.steps.length - 1;
      paneA.go(call(one), true);
      paneB.go(call(two), true);
      status.textContent = `First difference: output position ${at + 1}, ${one.output[at] ?? "nothing"} against ${two.output[at] ?? "nothing"}.`;
      return;
    }
    const calls = Math.max(one.steps.length, two.steps.length);
    const differs = Array.from({ length: calls }, (_, i) => i).find(
      (i) => JSON.stringify(one.steps[i]?.committed) !== JSON.stringify(two.steps[i]?.committed));
    status.textContent = differs === undefined
      ? "Same output, call by call."
      : `Same output; the calls differ first at call ${differs + 1} (${one.steps.length} calls against ${two.steps.length}).`;
    if (differs !== undefined) { paneA.go(differs, true); paneB.go(differs, true); }
  }

  const find = (schedule, name) => requests.findIndex((request) => request.schedule === schedule && (name === undefined || request.name === name));
  const start = requests[0].fault ? 0 : Math.max(0, find("linear"));
  const same = requests.findIndex((request, i) => i !== start && request.name === requests[start].name && request.schedule !== "ar");
  const packed = find("packed", requests[start].name);
  const partner = packed >= 0 && packed !== start ? packed : same;
  const status = element("p", { "aria-live": "polite" });
  const paneA = new Pane("A", start, follow);
  const paneB = new Pane("B", partner, follow);
  const legend = [["accepted", "✓ accepted"], ["rejected", "✗ rejected"], ["fixed", "+ correction, bonus, or first token"], ["untested", "untested draft"], ["kept", "○ proposal kept"], ["dropped", "× proposal discarded"]];
  root.append(
    element("div", { class: "legend" }, ...legend.map(([kind, text]) => element("span", {}, element("span", { class: kind }, text)))),
    element("div", { class: "bar-of-controls" }, element("button", { type: "button", onclick: difference }, "First difference")),
    status,
    element("div", { class: "panes" }, paneA.root, paneB.root),
  );
  follow(paneA);
})();
