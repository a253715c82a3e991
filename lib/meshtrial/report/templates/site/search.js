"use strict";
// Without this script every study is listed; with it the list is searched and filtered, and the address holds what was asked.
const fields = ["words", "study", "backend", "treatment"].map((id) => document.getElementById(id));
const studies = [...document.querySelectorAll("#studies > li[data-study]")];
const texts = studies.map((study) => study.textContent.toLowerCase());
const found = document.getElementById("found");

function matches(study, text, asked) {
  const words = asked.words.toLowerCase().split(/\s+/).filter(Boolean);
  return words.every((word) => text.includes(word))
    && (!asked.study || study.dataset.study === asked.study)
    && (!asked.backend || study.dataset.backend === asked.backend)
    && (!asked.treatment || JSON.parse(study.dataset.treatment).includes(asked.treatment));
}

function show() {
  const asked = Object.fromEntries(fields.map((field) => [field.id, field.value.trim()]));
  let count = 0;
  studies.forEach((study, place) => {
    study.hidden = !matches(study, texts[place], asked);
    count += !study.hidden;
  });
  const given = Object.entries(asked).filter(([, value]) => value);
  found.textContent = given.length
    ? `${count} of ${studies.length} studies`
    : `${studies.length} ${studies.length === 1 ? "study" : "studies"}, those that settle most first`;
  history.replaceState(null, "", "#" + new URLSearchParams(given));
}

function read() {
  const asked = new URLSearchParams(location.hash.slice(1));
  fields.forEach((field) => { field.value = asked.get(field.id) ?? ""; });
  fields.forEach((field) => { if (field.selectedIndex === -1) field.value = ""; });
}

fields.forEach((field) => field.addEventListener("input", show));
document.getElementById("all").addEventListener("click", () => {
  fields.forEach((field) => { field.value = ""; });
  show();
  fields[0].focus();
});
window.addEventListener("hashchange", () => { read(); show(); });
document.getElementById("controls").hidden = false;
read();
if (location.hash.length > 1) show();
