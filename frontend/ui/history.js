/** Ranges of the charts, in milliseconds, and the times over which their points are means. */
export const RANGES = {
  minutes: { span: 180_000, window: 5_000, text: "3 minutes" },
  hour: { span: 3_600_000, window: 30_000, text: "hour" },
};

// Older samples are as far from each other as those that the server keeps.
const STEP = 10_000;
const DENSE = RANGES.minutes.span + 2 * RANGES.minutes.window;
const GAP = 6 * STEP;

const NOTHING = { requests: 0, failures: 0, codes: {}, batches: 0, latency: [] };

/** What the server has said of one job over time; the series of the charts are differences of that. */
export class History {
  #samples = [];

  /** Take samples of the server, in any order: time, queue, oldest, dead, and totals by version. */
  add(samples) {
    const known = new Map(this.#samples.map((sample) => [sample.time, sample]));
    for (const sample of samples) known.set(sample.time, sample);
    const sorted = [...known.values()].sort((one, other) => one.time - other.time);
    const end = sorted.at(-1)?.time ?? 0;
    let last = -Infinity;
    this.#samples = sorted.filter(({ time }) => {
      if (time < end - RANGES.hour.span - 2 * STEP || (time < end - DENSE && time - last < 0.8 * STEP)) return false;
      last = time;
      return true;
    });
  }

  get newest() {
    return this.#samples.at(-1);
  }

  /** Names of the versions that have counted something in the last hour, in their order. */
  versions() {
    const names = new Set(this.#samples.flatMap((sample) => Object.keys(sample.versions)));
    return [...names].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  }

  /** Totals of what a range has seen, with its seconds; of all versions if none is named. */
  totals({ span }, version = "") {
    const end = this.newest;
    if (!end) return { ...NOTHING, seconds: 0 };
    const begin = this.#samples.find(({ time }) => time >= end.time - span);
    return { ...difference(end, begin, version), seconds: (end.time - begin.time) / 1000 };
  }

  /** Points {time, throughput, p50, p99, failed, queue, oldest, batch}; null where there is nothing to say. */
  points({ span, window }, bounds, version = "") {
    const start = (this.newest?.time ?? 0) - span - window;
    const samples = this.#samples.filter(({ time }) => time >= start);
    let from = 0;
    return samples.slice(1).map((sample, index) => {
      while (samples[from + 1].time <= sample.time - window) from += 1;
      // Across a time in which no server looked, nothing is known.
      if (sample.time - samples[index].time > GAP) return { time: sample.time, ...UNKNOWN };
      const before = samples[Math.min(from, index)];
      const did = difference(sample, before, version);
      const seconds = (sample.time - before.time) / 1000;
      return {
        time: sample.time,
        throughput: did.requests / seconds,
        p50: quantile(did.latency, bounds, 0.5),
        p99: quantile(did.latency, bounds, 0.99),
        failed: did.failures / seconds,
        queue: sample.queue,
        oldest: sample.oldest,
        batch: did.batches ? did.requests / did.batches : null,
      };
    });
  }
}

const UNKNOWN = { throughput: null, p50: null, p99: null, failed: null, queue: null, oldest: null, batch: null };

function difference(now, before, version) {
  const sum = { ...NOTHING, codes: {} };
  for (const name of version ? [version] : Object.keys(now.versions)) {
    const end = now.versions[name] ?? NOTHING;
    let begin = before.versions[name] ?? NOTHING;
    // Totals shrink when they have been deleted in Redis; they start again at zero.
    if (end.requests < begin.requests) begin = NOTHING;
    for (const field of ["requests", "failures", "batches"]) sum[field] += end[field] - begin[field];
    for (const [code, count] of Object.entries(end.codes)) {
      sum.codes[code] = (sum.codes[code] ?? 0) + count - (begin.codes[code] ?? 0);
    }
    sum.latency = end.latency.map((count, at) => (sum.latency[at] ?? 0) + count - (begin.latency[at] ?? 0));
  }
  return sum;
}

/** The value below which a share of the counted values lie, as if they were spread evenly between two bounds. */
export function quantile(counts, bounds, share) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return null;
  let left = share * total;
  for (let bucket = 0; bucket < bounds.length; bucket += 1) {
    if (left <= counts[bucket]) {
      const low = bucket ? bounds[bucket - 1] : 0;
      return low + (bounds[bucket] - low) * (left / counts[bucket]);
    }
    left -= counts[bucket];
  }
  return bounds.at(-1);
}
