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
