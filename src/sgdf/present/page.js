"use strict";

const order = (row, column) => {
  const cell = row.cells[column];
  return "order" in cell.dataset ? Number(cell.dataset.order) : cell.textContent;
};

// Numbers before text, and NaN after all others, whichever way the column is sorted.
const compare = (one, other, sign) => {
  const rank = (value) => (typeof value === "string" ? 1 : Number.isNaN(value) ? 2 : 0);
  if (rank(one) !== rank(other)) return rank(one) - rank(other);
  if (rank(one) === 2) return 0;
  if (rank(one) === 1) return sign * one.localeCompare(other, undefined, { numeric: true });
  return one === other ? 0 : sign * (one < other ? -1 : 1);
};

for (const table of document.querySelectorAll("table[id]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const rows = [...body.rows];
      const sign = ascending ? 1 : -1;
      rows.sort((one, other) => compare(order(one, column), order(other, column), sign));
      body.append(...rows);
    });
  });
}

for (const input of document.querySelectorAll(".filter")) {
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.getElementById(input.dataset.table).tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

for (const chip of document.querySelectorAll(".chip")) {
  chip.addEventListener("click", () => {
    const off = chip.getAttribute("aria-pressed") === "true";
    chip.setAttribute("aria-pressed", String(!off));
    for (const part of document.getElementsByClassName(chip.dataset.of)) {
      part.classList.toggle("off", off);
    }
  });
}

// A link to a setting opens its details.
const openTarget = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
window.addEventListener("hashchange", openTarget);
openTarget();

// A box whose content is wider than itself says so, and fades where there is more.
for (const box of document.querySelectorAll(".scroll")) {
  const hint = document.createElement("p");
  hint.className = "hint";
  hint.textContent = "Scroll sideways for more →";
  box.before(hint);
  const update = () => {
    const rest = box.scrollWidth - box.clientWidth;
    hint.hidden = rest < 2;
    box.classList.toggle("more-left", box.scrollLeft > 1);
    box.classList.toggle("more-right", box.scrollLeft < rest - 1);
  };
  box.addEventListener("scroll", update, { passive: true });
  new ResizeObserver(update).observe(box);
  update();
}

// The values of the points nearest to the pointer.
const REACH = 40;
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

const pointsOf = (group) =>
  group.dataset.points.split("\n").filter(Boolean).map((line) => {
    const [x, y, ...text] = line.split(" ");
    return { group, x: Number(x), y: Number(y), text: `${group.dataset.name}, ${text.join(" ")}` };
  });

for (const svg of document.querySelectorAll("figure svg")) {
  const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", "5");
  let points = null;
  const hide = () => {
    tip.hidden = true;
    ring.remove();
  };
  const showNearest = (event) => {
    points ??= [...svg.querySelectorAll("[data-points]")].flatMap(pointsOf);
    const at = new DOMPoint(event.clientX, event.clientY);
    const { x, y } = at.matrixTransform(svg.getScreenCTM().inverse());
    const shown = points.filter((point) => !point.group.classList.contains("off"));
    const distance = (point) => Math.hypot(point.x - x, point.y - y);
    const nearest = shown.reduce((a, b) => (a && distance(a) <= distance(b) ? a : b), null);
    if (!nearest || distance(nearest) > REACH) return hide();
    const beside = (point) => Math.hypot(point.x - nearest.x, point.y - nearest.y) < 0.5;
    tip.textContent = [...new Set(shown.filter(beside).map((point) => point.text))].join("\n");
    ring.setAttribute("cx", nearest.x);
    ring.setAttribute("cy", nearest.y);
    svg.append(ring);
    tip.hidden = false;
    const right = document.documentElement.clientWidth - tip.offsetWidth - 4;
    const above = event.clientY - tip.offsetHeight - 14;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, right))}px`;
    tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  };
  svg.addEventListener("pointermove", showNearest);
  svg.addEventListener("pointerdown", showNearest);
  svg.addEventListener("pointerleave", hide);
}
