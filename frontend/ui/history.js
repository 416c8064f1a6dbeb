/** Milliseconds that the charts show. */
export const SPAN = 180_000;

// Slots write their totals once a second, each at its own time, so rates are means over several seconds.
const WINDOW = 5_000;

/** What the server has said of one job over time; the series of the charts are differences of that. */
export class History {
  #samples = [];

  /** Take a sample: `queue` and `stats` of a model at a time in milliseconds. */
  add(time, { queue, stats }, bounds) {
    this.bounds = bounds;
    const last = this.#samples.at(-1);
    if (last && time <= last.time) return;
    // Totals shrink when they have been deleted in Redis; they start again at zero.
    if (last && stats.requests < last.stats.requests) this.#samples = [];
    this.#samples.push({ time, queue, stats });
    const start = time - SPAN - 2 * WINDOW;
    while (this.#samples[0].time < start) this.#samples.shift();
  }

  get newest() {
    return this.#samples.at(-1);
  }

  /** Points {time, throughput, p50, p95, queue, batch}; null where there is nothing to say. */
  points() {
    let from = 0;
    return this.#samples.slice(1).map((sample, index) => {
      while (this.#samples[from + 1].time <= sample.time - WINDOW) from += 1;
      const before = this.#samples[Math.min(from, index)];
      const grown = (name) => sample.stats[name] - before.stats[name];
      const latencies = sample.stats.latency_ms.map((count, bucket) => count - before.stats.latency_ms[bucket]);
      const batches = grown("batches");
      return {
        time: sample.time,
        throughput: grown("requests") / ((sample.time - before.time) / 1000),
        p50: quantile(latencies, this.bounds, 0.5),
        p95: quantile(latencies, this.bounds, 0.95),
        queue: sample.queue,
        batch: batches ? grown("requests") / batches : null,
      };
    });
  }
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
