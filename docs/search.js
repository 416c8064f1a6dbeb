// The search of the site, a worker that the theme starts (docs/.theme/main.html).
// It ranks paragraphs by BM25, so a question in whole sentences has answers, too: few paragraphs have all of its words.
"use strict";

// Words of questions that say nothing of what is asked.
const STOP = new Set(
  ("a able about after all allow allowed am amount an and any anyone are as at be been being between but by can cannot certain could currently desired did directly do doesn doing don done exactly for from get " +
   "got had has have help how i if in into is isn it its just let like lot many me mainly my need no not of on only or our over please possible problem " +
   "properly proper question questions really regarding s same see should simply so some specified specify such suddenly t than that the their them then there these they this tried trying try " +
   "to too up use using very via want was way we were what when whether which while who why will with would you your").split(" "));

// Words of questions that say little of what is asked: they count half.
const VAGUE = new Set(
  ("backend bentoml bug celery code create custom doubt error example expected fail failure feature get issue model one perform plan provide ray real request result run running seldon send serve " +
   "server service serving set support take time torchserve triton unexpected where work working").split(" "));
const LITTLE = 0.5;

// Words that are no plurals.
const WHOLE = new Set(["https", "cors", "aws", "kubernetes"]);

// How much a word of a field counts, and how much less it counts in a long field.
const FIELDS = {
  title: {weight: 12, length: 0.6}, text: {weight: 1, length: 0.75}, path: {weight: 2.5, length: 0.3}, asked: {weight: 2, length: 0.3},
};
// What the theme shows of a paragraph. `asked` (docs/asked.json) has words by which others ask for it, and is not shown.
const SHOWN = ["title", "text", "path"];
const SATURATION = 3;
const NAMED = 8;
// A question is one of how to do things more often than of what there is, or of why.
const KINDS = {"how-to": 1.25, tutorials: 1, reference: 0.9, explanation: 0.8, "coming-from": 0.6};
const NEAR = {prefix: 0.7, more: 0.35, typo: 0.4};
const PAGE = 10;

// The theme gives whole addresses; the folder of this file is the top of the site.
const TOP = typeof self === "undefined" ? "" : new URL(".", self.location).href;
const plain = (html) => html.replace(/<[^>]*>/g, " ").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

// Other words for what the pages have a word for.
const SAME = {multiple: "several", multi: "several", two: "several", picture: "image", photo: "image", directory: "folder", example: "program", sklearn: "scikit",
  cpu: "core", processor: "core", warmup: "warm", restful: "rest", tune: "layout", dynamic: "adaptive", exception: "error", postman: "curl", payload: "body", entity: "body",
  p99: "percentile", p95: "percentile", auth: "authentication", authorization: "authentication", big: "large", concurrency: "parallel", concurrent: "parallel",
  config: "configure", delete: "remove", deployment: "deploy", duplicate: "twice", endpoint: "path", failure: "fail", framework: "engine", hung: "hang", infer: "inference",
  k8s: "kubernetes", lose: "lost", loss: "lost", prioritize: "priority", ram: "memory", reply: "answer", response: "answer", revoke: "cancel", simultaneous: "parallel",
  stall: "stuck", startup: "start", env: "environment", healthcheck: "health", healthz: "health", option: "configure", parameter: "configure", redeploy: "deploy", redeployment: "deploy", setting: "configure",
  shut: "stop", shutdown: "stop", string: "text", fp16: "float16", bf16: "bfloat16", jpg: "jpeg", repo: "repository", tf: "tensorflow", terminate: "stop", termination: "stop", var: "variable"};

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
const share = (word) => (VAGUE.has(word) ? LITTLE : 1);
const same = (word) => STEMS.get(word) ?? word;

/** The word without the ending of a plural, or of a form of a verb. */
function stem(word) {
  if (word.length < 4 || WHOLE.has(word)) return word;
  let short = word.replace(/(?<=[^aeiou])ies$/, "y").replace(/(?<=(s|x|z|ch|sh))es$/, "").replace(/(?<=[^su])s$/, "");
  if (short.length > 5) short = short.replace(/(ation|(?<=.{4})ment|ing|ed|er|ion|ly)$/, "").replace(/(?<=.{5})at(?=e?$)/, "");
  else if (short.length === 5) short = short.replace(/ed$/, "");
  return same(short.replace(/(?<=[bdfglmnprt])(.)$/, (last, _, at, all) => (all[at - 1] === last && all.length > 3 ? "" : last)).replace(/(?<=.{3})e$/, ""));
}

for (const [word, other] of Object.entries(SAME)) STEMS.set(stem(word), stem(other));
for (const word of [...VAGUE]) VAGUE.add(stem(word));

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
  constructor(items, asked = {}) {
    const questions = new Map(Object.entries(asked).map(([place, phrases]) => [place.replace(".md", ".html"), phrases]));
    this.items = items.map((item) => {
      const place = item.location.startsWith(TOP) ? item.location.slice(TOP.length) : item.location;
      return {...item, place, asked: questions.get(place) ?? []};
    });
    this.names = this.items.map(({title, asked: phrases}) => [title, ...phrases].map((name) =>
      new Set([...words(plain(name))].map(({word}) => word).filter((word) => !STOP.has(word)))));
    this.places = new Map();
    this.lengths = items.map(() => ({}));
    for (const [id, item] of this.items.entries()) {
      for (const field of Object.keys(FIELDS)) this.add(id, field, plain([item[field] ?? ""].flat().join(" ")));
    }
    this.means = Object.fromEntries(Object.keys(FIELDS).map((field) =>
      [field, this.lengths.reduce((sum, lengths) => sum + lengths[field], 0) / items.length]));
  }

  add(id, field, text) {
    // A word of many questions for a paragraph counts once.
    const found = [...words(text)].map(({word}) => word);
    const counted = field === "asked" ? new Set(found) : found;
    this.lengths[id][field] = 0;
    for (const word of counted) {
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
      const weight = found.size ? NEAR.more : NEAR.prefix;
      for (const other of this.places.keys()) if (other !== word && other.startsWith(word)) found.set(other, weight);
    }
    if (!found.size) for (const other of this.places.keys()) if (isTypo(word, other)) found.set(other, NEAR.typo);
    return found;
  }

  /** How well a paragraph answers one word, and the paragraphs that have it. */
  rate(meant) {
    const ratings = new Map();
    for (const [word, weight] of meant) {
      const paragraphs = this.places.get(word);
      const rare = this.rarity(word);
      for (const [id, counts] of paragraphs) {
        let count = 0;
        for (const [field, often] of Object.entries(counts)) {
          const {weight: much, length} = FIELDS[field];
          count += (much * often) / (1 - length + (length * this.lengths[id][field]) / this.means[field]);
        }
        const rating = (weight * rare * count) / (SATURATION + count);
        ratings.set(id, Math.max(rating, ratings.get(id) ?? 0));
      }
    }
    return ratings;
  }

  /** How rare a word is among the paragraphs. */
  rarity(word) {
    const often = this.places.get(word)?.size ?? 0;
    return Math.log(1 + (this.items.length - often + 0.5) / (often + 0.5)) * share(word);
  }

  /** How alike the question and the title are, or a question for the paragraph: the largest cosine of their rare words. */
  named(id, marked, length) {
    let most = 0;
    for (const name of this.names[id]) {
      let [common, all] = [0, 0];
      for (const word of name) {
        const weight = this.rarity(word) ** 2;
        all += weight;
        common += weight * (marked.get(word) ?? 0);
      }
      if (common) most = Math.max(most, common / Math.sqrt(all * length));
    }
    return most;
  }

  find(input) {
    const all = [...words(input)].map(({word, start, end}) => ({word, raw: input.slice(start, end).toLowerCase()}))
      // Parts such as those of `FastAPI` are asked for only if the pages do not have the whole.
      .filter(({word, raw}) => word === stem(raw) || !this.places.has(stem(raw)));
    const asked = all.filter(({raw}) => !STOP.has(raw));
    const used = [...new Set((asked.length ? asked : all).map(({word}) => word))];
    const scores = new Map();
    const covered = new Map();
    const marked = new Map();
    let length = 0;
    const asking = used.reduce((sum, word) => sum + share(word), 0);
    for (const [at, word] of used.entries()) {
      const meant = this.meant(word, at === used.length - 1);
      const rare = Math.min(...[...meant.keys()].map((other) => this.rarity(other)), this.rarity(""));
      for (const [other, weight] of meant) marked.set(other, Math.max(weight, marked.get(other) ?? 0));
      length += rare ** 2;
      for (const [id, rating] of this.rate(meant)) {
        scores.set(id, (scores.get(id) ?? 0) + rating);
        covered.set(id, (covered.get(id) ?? 0) + share(word));
      }
    }
    for (const [id, score] of scores) {
      const {place} = this.items[id];
      // The beginning of a page leads to the rest of it.
      const kind = (KINDS[place.split("/")[0]] ?? 1) * (place.includes("#") ? 1 : 1.15);
      // Several of the words say more than one of them often.
      const whole = covered.get(id) / asking;
      scores.set(id, score * kind * whole * (1 + NAMED * this.named(id, marked, length)));
    }
    const ids = [...scores.keys()].sort((one, other) => scores.get(other) - scores.get(one) || one - other);
    return {ids, marked, scores};
  }

  /** What the theme shows of a paragraph: the fields with the places of the words that were found. */
  shown(id, marked) {
    const matches = SHOWN.map((field) => {
      const text = [this.items[id][field] ?? ""].flat().join("");
      const ranges = [...words(text.replace(/<[^>]*>/g, (tag) => " ".repeat(tag.length)))]
        .filter(({word}) => marked.has(word)).map(({start, end}) => ({start, end, value: end - start}));
      return {id, field, score: 0, value: {highlight: {ranges: ranges.filter(({start}, at) => start !== ranges[at - 1]?.start)}}};
    });
    return {id, matches};
  }
}

let index;
let found = {ids: [], marked: new Map()};

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
  let loaded;
  self.onmessage = async ({data: {type, data}}) => {
    if (type === 0) loaded = fetch("asked.json").then((file) => file.json()).then((asked) => (index = new Index(data.items, asked)));
    await loaded;
    if (type === 0) self.postMessage({type: 1});
    else if (type === 2) self.postMessage({type: 3, data: answer(data)});
  };
}
