"use strict";
(() => {
  const points = JSON.parse(document.getElementById("points").textContent);
  const marks = [...document.querySelectorAll(".point")];
  const detail = document.getElementById("detail");
  const filters = document.getElementById("filters");

  const show = (mark) => {
    const rows = Object.entries(points[Number(mark.dataset.point)].shown);
    detail.replaceChildren(...rows.map(([name, value]) => {
      const row = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
      head.scope = "row"; head.textContent = name; cell.textContent = value;
      row.append(head, cell);
      return row;
    }));
  };
  let chosen = marks.find((mark) => mark.classList.contains("winner")) ?? marks[0];
  const choose = (mark) => {
    chosen.classList.remove("chosen");
    chosen = mark;
    mark.classList.add("chosen");
    show(mark);
  };
  for (const mark of marks) {
    mark.addEventListener("mouseenter", () => show(mark));
    mark.addEventListener("mouseleave", () => show(chosen));
    mark.addEventListener("click", () => choose(mark));
    mark.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(mark); } });
  }

  const hiddenBy = {};
  const refresh = () => {
    for (const mark of marks) {
      const point = points[Number(mark.dataset.point)];
      const hidden = Object.entries(hiddenBy).some(([name, values]) => values.has(String(point.filter[name])));
      mark.classList.toggle("hidden", hidden);
    }
  };
  const names = points.length ? Object.keys(points[0].filter) : [];
  for (const name of names) {
    const values = [...new Set(points.map((point) => String(point.filter[name])))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    if (values.length < 2) continue;
    hiddenBy[name] = new Set();
    const line = document.createElement("p");
    line.append(`${name}: `);
    for (const value of values) {
      const label = document.createElement("label"), box = document.createElement("input");
      box.type = "checkbox"; box.checked = true;
      box.addEventListener("change", () => { hiddenBy[name][box.checked ? "delete" : "add"](value); refresh(); });
      label.append(box, ` ${value}`);
      line.append(label);
    }
    filters.append(line);
  }
  if (chosen) choose(chosen);
})();
