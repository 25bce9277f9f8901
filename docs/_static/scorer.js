// How results of a search are ordered: a public name first, the shorter before the longer, then titles, then pages that
// contain the word.
var Scorer = {
  objNameMatch: 60,
  objPartialMatch: 40,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([, title, , , score]) => score - 3 * (title.startsWith("cmdpkit.") ? title.split(".").length : 0),
};
