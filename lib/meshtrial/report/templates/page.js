"use strict";
(() => {
  // Sort key: the cell's stored number, else the number that its text begins with, else the text.
  const keyOf = cell => {
    const stored = cell.querySelector("data");
    const text = (stored ? stored.value : cell.textContent).trim().replace(/[\u202f\u00a0]/g, "").replace(/^\u2212/, "-");
    if (text === "" || text === "\u2013") return null;
    const number = cell.classList.contains("mt-num") ? parseFloat(text) : Number(text);
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number"
    ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

  // Rows stay below the heading of their group.
  const groupsOf = body => {
    const groups = [[]];
    for (const row of body.rows) {
      if (row.classList.contains("mt-group")) groups.push([row]);
      else groups[groups.length - 1].push(row);
    }
    return groups.filter(group => group.length);
  };

  const sortable = table => {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const asWritten = [...body.rows];
    const sort = (column, direction) => {
      body.append(...asWritten);
      for (const [place, head] of heads.entries()) {
        if (place === column && direction) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      }
      if (!direction) return;
      for (const group of groupsOf(body)) {
        const rows = group.filter(row => !row.classList.contains("mt-group"));
        const keyed = rows.map(row => [keyOf(row.cells[column]), row]);
        const known = keyed.filter(([key]) => key !== null).sort(([a], [b]) => direction * compare(a, b));
        const sorted = [...known, ...keyed.filter(([key]) => key === null)].map(([, row]) => row);
        const after = group[group.length - 1].nextSibling;
        for (const row of sorted) body.insertBefore(row, after);
      }
    };
    for (const [column, head] of heads.entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "mt-sort";
      button.append(...head.childNodes);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        sort(column, now === "ascending" ? -1 : now === "descending" ? 0 : 1);
      });
      head.append(button);
    }
  };
  for (const table of document.querySelectorAll("table.mt-sortable")) sortable(table);

  // Only boxes that scroll are in the tab order. Which ones scroll depends on the window and on open folds.
  const watch = new ResizeObserver(seen => {
    for (const { target } of seen) {
      const scrolls = target.scrollWidth > target.clientWidth + 1 || target.scrollHeight > target.clientHeight + 1;
      if (scrolls) target.tabIndex = 0; else target.removeAttribute("tabindex");
    }
  });
  for (const box of document.querySelectorAll(".mt-scroll")) watch.observe(box);

  // For browsers whose style sheets cannot open folds in print.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:is(.mt-fold, .mt-check):not([open])")];
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => { for (const fold of opened) fold.open = false; });
})();
