// Results of the page's modules as texts, for tests against Python.

// Points of docs/conformance.json that one ledger comes to otherwise.
function disagreeing(text) {
  const { facts, points } = JSON.parse(text);
  return JSON.stringify(points.filter((point) => conformed(facts, point).join() !== point.is.join()).length);
}

// A point, in the order of the file's `of`.
function conformed(facts, point) {
  const sizes = bigs({ ...facts.sizes, ...point.sizes });
  const at = Object.fromEntries([..."BTSOIJ"].map((axis, index) => [axis, BigInt(point.step[index])]));
  const ways = facts.ways.map((way) => ledger.sized(way, sizes));
  const one = ways[0],
    cache = { bits: point.cache, block: 1n, scale: 0n };
  const way = ledger.settled(ways, at),
    masked = ledger.settled(ways, at, true);
  const bytes = ledger.products(way, at).map((each) => ledger.moved(each, storage.storage("bf16"), 16, way.experts));
  return [
    ledger.totalFlops(way, at),
    ledger.totalFlops(masked, at, true),
    ledger.parameters(one),
    einsum.sum(ledger.tensors(one).map((tensor) => tensor.count * tensor.active)),
    einsum.sum(ledger.tensors(one).map((tensor) => tensor.count * storage.storage("bf16")(tensor.stored))),
    einsum.sum(ledger.states(one, at, cache).map((state) => state.elements)),
    ledger.cacheBytes(one, at, cache),
    einsum.sum(ledger.pointwise(one, at).map((line) => line.elements)),
    einsum.sum(bytes.map((each) => each.read)),
    einsum.sum(bytes.map((each) => each.written)),
  ];
}

// Every number of a model at a point.
function counted(text) {
  const { facts, at: given, masked, dtype, cache: cacheName } = JSON.parse(text);
  const sizes = bigs(facts.sizes),
    at = bigs(given);
  const ways = facts.ways.map((way) => ledger.sized(way, sizes));
  const way = ledger.settled(ways, at, masked),
    weights = storage.storage(dtype),
    cache = storage.width(cacheName);
  return texts({
    form: way.form,
    products: ledger.products(way, at, masked).map((each) => {
      const { left, right, written } = ledger.moved(each, weights, 16, way.experts);
      const { m, k, n, times } = each.dims;
      return [each.line.path, m, k, n, times, each.forward, each.backward, left, right, written];
    }),
    tensors: ledger
      .tensors(way)
      .map((one) => [...[one.path, one.count, one.elements, one.active, one.count * weights(one.stored)]]),
    states: ledger.states(way, at, cache).map((state) => [state.line.path, state.elements, state.bytes]),
    pointwise: ledger.pointwise(way, at).map((one) => [one.line.path, one.elements]),
  });
}

// Bytes that fused attention moves, by module: those of queries and results, and those of keys and values.
function attention(text) {
  const { facts, at: given, form, cache: cacheName } = JSON.parse(text);
  const sizes = bigs(facts.sizes),
    at = bigs(given),
    way = ledger.sized(facts.ways[form], sizes);
  const unfused = ledger
    .products(way, at)
    .map((each) => ({ ...each, moved: ledger.moved(each, storage.storage("bf16"), 16, way.experts) }));
  const found = ledger.fused(unfused, storage.width(cacheName)).filter((each) => each.kernel);
  const scores = found.filter((each) => each.line.path.endsWith("scores")).map((each) => each.moved.left);
  const values = found.filter((each) => each.line.path.endsWith("values")).map((each) => each.moved.written);
  const read = found.map((each) => each.moved.right);
  return texts({ activations: einsum.sum([...scores, ...values]), keys_values: einsum.sum(read) });
}

// What bounds a context: bytes of the next token, and the longest that a budget holds.
function fitting(text) {
  const { facts, at: given, cache: cacheName, budget = 10n ** 10n, limit } = JSON.parse(text);
  const way = ledger.sized(facts.ways[0], bigs(facts.sizes)),
    at = bigs(given),
    cache = storage.width(cacheName);
  const kept = (keys) => ledger.cacheBytes(way, { ...at, S: keys }, cache);
  return texts([ledger.nextTokenBytes(way, at, cache), ledger.longestContext(way, kept, BigInt(budget), limit && BigInt(limit))]);
}

// Texts of a number; of two of them where they are a share.
function formatted(text) {
  const [value, whole] = JSON.parse(text).map(BigInt);
  const { si, people, binary, decimal, grouped, percent, decimals, change } = numbers;
  const share = [percent(value, whole), decimals(value, whole, 2), change(value, whole)];
  return JSON.stringify([si(value), people(value), binary(value), decimal(value), grouped(value), ...share]);
}

function read(text) {
  return String(numbers.readTokens(text));
}

function bigs(numbers) {
  return Object.fromEntries(Object.entries(numbers).map(([name, number]) => [name, BigInt(number)]));
}

function texts(value) {
  return JSON.stringify(value, (_, one) => (typeof one === "bigint" ? String(one) : one));
}
