// The search of the site, a worker that the theme starts (docs/.theme/main.html).
// It ranks paragraphs by BM25, so a question in whole sentences has answers, too: few paragraphs have all of its words.
"use strict";

// Words of questions that say nothing of what is asked.
const STOP = new Set(
  ("a about all am an and any anyone are as at be been between but by can cannot could desired did do doesn doing don done for from get " +
   "got had has have how i if in into is isn it its just let like lot many me mainly my need no not of on only or our please possible " +
   "properly question questions regarding s same should so some such t than that the their them then there these they this " +
   "to too up use using via want was way we were what when where whether which while who why will with would you your").split(" "));

// Words that are no plurals.
const WHOLE = new Set(["https", "cors", "aws", "kubernetes"]);

// How much a word of a field counts, and how much less it counts in a long field.
const FIELDS = {title: {weight: 12, length: 0.6}, text: {weight: 1, length: 0.75}, path: {weight: 2.5, length: 0.3}};
const SATURATION = 3;
const COVERED = 0.7;
const NAMED = 0.4;
// A question is one of how to do things more often than of what there is, or of why.
const KINDS = {"how-to": 1.25, tutorials: 1, reference: 0.9, explanation: 0.8, "coming-from": 0.9};
const NEAR = {prefix: 0.7, typo: 0.4};
const PAGE = 10;

const plain = (html) => html.replace(/<[^>]*>/g, " ").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

// Other words for what the pages have a word for.
const SAME = {multiple: "several", multi: "several", two: "several", picture: "image", photo: "image", directory: "folder", example: "program", sklearn: "scikit",
  cpu: "core", processor: "core", warmup: "warm", restful: "rest", tune: "layout", dynamic: "adaptive", exception: "error", postman: "curl", payload: "body", entity: "body",
  p99: "percentile", p95: "percentile"};

// "Timed out", "times out" and "time-out" are forms of one word.
const WORD = /tim(?:e|es|ed|ing)[ -]outs?(?![\p{L}\p{N}])|[\p{L}\p{N}]+/giu;

/** Words of a text, with where they are: `maxBatchSize` is also max, batch and size. */
function* words(text) {
  for (const {0: found, index} of text.matchAll(WORD)) {
    const word = /[ -]/.test(found) ? "timeout" : found;
    yield {word: stem(word.toLowerCase()), start: index, end: index + found.length};
    const parts = word.match(/\p{Lu}?[\p{Ll}\p{N}]+|\p{Lu}+(?!\p{Ll})/gu) ?? [];
    if (parts.length > 1) {
      for (const part of parts) yield {word: stem(part.toLowerCase()), start: index, end: index + found.length};
    }
  }
}

const STEMS = new Map();
const same = (word) => STEMS.get(word) ?? word;

/** The word without the ending of a plural, or of a form of a verb. */
function stem(word) {
  if (word.length < 4 || WHOLE.has(word)) return word;
  let short = word.replace(/(?<=[^aeiou])ies$/, "y").replace(/(?<=(s|x|z|ch|sh))es$/, "").replace(/(?<=[^su])s$/, "");
  if (short.length > 5) short = short.replace(/(ation|ing|ed|er|ion|ly)$/, "");
  else if (short.length === 5) short = short.replace(/ed$/, "");
  return same(short.replace(/(?<=[bdfglmnprt])(.)$/, (last, _, at, all) => (all[at - 1] === last && all.length > 3 ? "" : last)).replace(/(?<=.{3})e$/, ""));
}

for (const [word, other] of Object.entries(SAME)) STEMS.set(stem(word), stem(other));

/** True if two words differ by one letter: left out, put in, another, or two that changed places. */
function isTypo(one, other) {
  if (Math.abs(one.length - other.length) > 1 || Math.min(one.length, other.length) < 5) return false;
  let start = 0;
  while (start < one.length && one[start] === other[start]) start++;
  let end = 0;
  while (end < Math.min(one.length, other.length) - start && one.at(-1 - end) === other.at(-1 - end)) end++;
  const [left, right] = [one.slice(start, one.length - end), other.slice(start, other.length - end)];
  return Math.max(left.length, right.length) <= 1 || (left.length === 2 && left === [...right].reverse().join(""));
}

/** The index of the paragraphs: by word, the paragraphs that have it, with how often it is in each of their fields. */
class Index {
  constructor(items) {
    this.items = items;
    this.places = new Map();
    this.lengths = items.map(() => ({}));
    for (const [id, item] of items.entries()) {
      for (const field of Object.keys(FIELDS)) this.add(id, field, plain([item[field]].flat().join(" ")));
    }
    this.means = Object.fromEntries(Object.keys(FIELDS).map((field) =>
      [field, this.lengths.reduce((sum, lengths) => sum + lengths[field], 0) / items.length]));
  }

  add(id, field, text) {
    this.lengths[id][field] = 0;
    for (const {word} of words(text)) {
      this.lengths[id][field]++;
      if (!this.places.has(word)) this.places.set(word, new Map());
      const paragraphs = this.places.get(word);
      if (!paragraphs.has(id)) paragraphs.set(id, {});
      paragraphs.get(id)[field] = (paragraphs.get(id)[field] ?? 0) + 1;
    }
  }

  /** The words of the pages that a word of the question stands for: itself, else those that begin with it, else typos. */
  meant(word, isLast) {
    const found = new Map();
    if (this.places.has(word)) found.set(word, 1);
    if (word.length > 1 && (isLast || !found.size)) {
      for (const other of this.places.keys()) if (other !== word && other.startsWith(word)) found.set(other, NEAR.prefix);
    }
    if (!found.size) for (const other of this.places.keys()) if (isTypo(word, other)) found.set(other, NEAR.typo);
    return found;
  }

  /** How well a paragraph answers one word, and the paragraphs that have it. */
  rate(meant) {
    const ratings = new Map();
    for (const [word, weight] of meant) {
      const paragraphs = this.places.get(word);
      const rare = Math.log(1 + (this.items.length - paragraphs.size + 0.5) / (paragraphs.size + 0.5));
      for (const [id, counts] of paragraphs) {
        let count = 0;
        for (const [field, often] of Object.entries(counts)) {
          const {weight: share, length} = FIELDS[field];
          count += (share * often) / (1 - length + (length * this.lengths[id][field]) / this.means[field]);
        }
        const rating = (weight * rare * count) / (SATURATION + count);
        ratings.set(id, Math.max(rating, ratings.get(id) ?? 0));
      }
    }
    return ratings;
  }

  /** The share of the words of a title that the question has. */
  named(id, marked) {
    const title = [...words(plain(this.items[id].title))].filter(({word}) => !STOP.has(word));
    return title.filter(({word}) => marked.has(word)).length / Math.max(title.length, 1);
  }

  find(input) {
    const all = [...words(input)].map(({word, start, end}) => ({word, raw: input.slice(start, end).toLowerCase()}))
      // Parts such as those of `FastAPI` are asked for only if the pages do not have the whole.
      .filter(({word, raw}) => word === stem(raw) || !this.places.has(stem(raw)));
    const asked = all.filter(({raw}) => !STOP.has(raw));
    const used = [...new Set((asked.length ? asked : all).map(({word}) => word))];
    const scores = new Map();
    const covered = new Map();
    const marked = new Set();
    for (const [at, word] of used.entries()) {
      const meant = this.meant(word, at === used.length - 1);
      for (const other of meant.keys()) marked.add(other);
      for (const [id, rating] of this.rate(meant)) {
        scores.set(id, (scores.get(id) ?? 0) + rating);
        covered.set(id, (covered.get(id) ?? 0) + 1);
      }
    }
    for (const [id, score] of scores) {
      const {location} = this.items[id];
      // The beginning of a page leads to the rest of it.
      const kind = (KINDS[location.split("/")[0]] ?? 1) * (location.includes("#") ? 1 : 1.15);
      // Several of the words say more than one of them often.
      const share = (covered.get(id) / used.length) ** COVERED;
      scores.set(id, score * kind * share * (1 + NAMED * this.named(id, marked)));
    }
    const ids = [...scores.keys()].sort((one, other) => scores.get(other) - scores.get(one) || one - other);
    return {ids, marked, scores};
  }

  /** What the theme shows of a paragraph: the fields with the places of the words that were found. */
  shown(id, marked) {
    const matches = Object.keys(FIELDS).map((field) => {
      const text = [this.items[id][field] ?? ""].flat().join("");
      const ranges = [...words(text.replace(/<[^>]*>/g, (tag) => " ".repeat(tag.length)))]
        .filter(({word}) => marked.has(word)).map(({start, end}) => ({start, end, value: end - start}));
      return {id, field, score: 0, value: {highlight: {ranges: ranges.filter(({start}, at) => start !== ranges[at - 1]?.start)}}};
    });
    return {id, matches};
  }
}

let index;
let found = {ids: [], marked: new Set()};

function answer({input, page}) {
  const from = page?.from ?? 0;
  if (!page) found = index.find(typeof input === "string" ? input : "");
  const total = found.ids.length;
  return {
    items: found.ids.slice(from, from + PAGE).map((id) => index.shown(id, found.marked)),
    query: {select: {documents: [], terms: []}, values: []},
    aggregations: [],
    pagination: {
      total,
      prev: from ? {size: PAGE, from: from - PAGE} : undefined,
      next: from + PAGE < total ? {size: PAGE, from: from + PAGE} : undefined,
    },
  };
}

// 0 index, 1 ready, 2 question, 3 answer: the messages of the theme's own worker.
if (typeof self !== "undefined") {
  self.onmessage = ({data: {type, data}}) => {
    if (type === 0) {
      index = new Index(data.items);
      self.postMessage({type: 1});
    } else if (type === 2) self.postMessage({type: 3, data: answer(data)});
  };
}
