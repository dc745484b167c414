// What a reader of the page meets, as JSON in the title: run by a test, never part of the page.
function channels(text) { return (text.match(/[\d.]+/g) || []).map(Number); }
function luminance(rgb) {
  const [r, g, b] = rgb.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}
function ground(element) {
  if (element.tagName === "text") {
    const rects = [...element.parentNode.children].filter(each => ["rect", "circle"].includes(each.tagName));
    if (rects.length && element.parentNode.tagName !== "svg" && element.hasAttribute("fill")) return channels(getComputedStyle(rects[0]).fill);
  }
  for (let each = element; each; each = each.parentElement) {
    const colour = channels(getComputedStyle(each).backgroundColor);
    if (colour.length === 3 || (colour.length === 4 && colour[3] > 0)) return colour;
  }
  return [255, 255, 255];
}
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length || ["title", "defs"].includes(element.tagName) || element.closest(".images svg")) continue;
    const style = getComputedStyle(element), isText = element.tagName === "text";
    const found = contrast(channels(isText ? style.fill : style.color), ground(element));
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 600);
    if (found < (large ? 3 : 4.5)) faint.push([element.textContent.trim().slice(0, 40), Math.round(found * 100) / 100]);
  }
  const lost = [...document.querySelectorAll("a")].map(each => each.getAttribute("href")).filter(
    each => !each.startsWith("#") || !document.getElementById(each.slice(1)));
  const focusable = [...document.querySelectorAll("a, summary, [tabindex]")].filter(each => each.tabIndex >= 0).length;
  const gates = document.querySelector("#gates ~ .scroll");
  top.document.title = JSON.stringify({
    width: innerWidth, wide: document.documentElement.scrollWidth, faint, lost, focusable,
    cut: gates ? gates.scrollWidth - gates.clientWidth : 0,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    sections: [...document.querySelectorAll("h2")].map(each => each.id),
    maps: [...document.querySelectorAll(".plot .wide, .plot .narrow")].filter(each => each.getClientRects().length).length,
  });
});
