// Text that a reader cannot read, found by layout: beyond the page's edge, cut off by a box that does not scroll, outside
// its drawing, or over other text. Returns one line a finding.
() => {
  const problems = [];
  const words = node => `"${node.textContent.trim().replace(/\s+/g, " ").slice(0, 60)}"`;
  const where = element => {
    const names = [];
    for (let at = element; at && at !== document.body && names.length < 4; at = at.parentElement) {
      names.unshift(at.tagName.toLowerCase() + (at.classList.length ? "." + [...at.classList].join(".") : ""));
    }
    return names.join(" > ");
  };
  const edge = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > edge + 1) {
    problems.push(`the page is ${document.documentElement.scrollWidth} px wide in a window of ${edge}`);
  }

  // What is left of a rectangle inside the boxes around it; a box that cuts without scrolling is a finding.
  const visible = (rect, element, text) => {
    let { left, top, right, bottom } = rect;
    for (let at = element; at && at !== document.documentElement; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.overflowX === "visible" && style.overflowY === "visible") continue;
      if (at instanceof SVGElement) continue; // judged by the drawing's frame below
      const box = at.getBoundingClientRect();
      const scrolls = [style.overflowX, style.overflowY].some(how => how === "auto" || how === "scroll");
      if (!scrolls && (left < box.left - 1 || right > box.right + 1 || top < box.top - 1 || bottom > box.bottom + 1)) {
        problems.push(`cut off by ${where(at)}: ${text}`);
      }
      left = Math.max(left, box.left); right = Math.min(right, box.right);
      top = Math.max(top, box.top); bottom = Math.min(bottom, box.bottom);
    }
    return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom } : null;
  };

  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, title, .skip, svg")) continue;
    if (!element.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      if (rect.width < 1 || rect.height < 1) continue;
      const shown = visible(rect, element, words(node));
      if (!shown) continue;
      if (shown.left < -1 || shown.right > edge + 1) problems.push(`beyond the page's edge: ${words(node)}`);
      boxes.push({ ...shown, node, element });
    }
  }
  for (const drawing of document.querySelectorAll("svg")) {
    if (!drawing.checkVisibility()) continue;
    const frame = drawing.getBoundingClientRect();
    for (const text of drawing.querySelectorAll("text")) {
      const rect = text.getBoundingClientRect();
      if (!text.textContent.trim() || rect.width < 1) continue;
      const shown = { left: rect.left, top: rect.top, right: rect.right, bottom: rect.bottom };
      if (rect.left < frame.left - 2 || rect.right > frame.right + 2 || rect.top < frame.top - 2 || rect.bottom > frame.bottom + 2) {
        problems.push(`outside its drawing (${drawing.getAttribute("aria-label").slice(0, 40)}): ${words(text)}`);
      }
      boxes.push({ ...shown, node: text, element: text });
    }
  }

  // Lines of one paragraph may touch; over one another is more than a third of the lower one's height.
  boxes.sort((a, b) => a.top - b.top);
  for (let i = 0; i < boxes.length; i++) {
    const a = boxes[i];
    for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom; j++) {
      const b = boxes[j];
      if (a.node === b.node) continue;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - b.top;
      if (wide > 2 && high > 0.35 * Math.min(a.bottom - a.top, b.bottom - b.top)) {
        problems.push(`over one another: ${words(a.node)} and ${words(b.node)} (${where(b.element)})`);
      }
    }
  }
  return problems;
}
