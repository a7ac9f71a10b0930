// Four stacked bars in the same colours: parameters, FLOPs, bytes moved and memory.

import * as einsum from "./einsum.js";
import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as storage from "./storage.js";
import * as count from "./count.js";
import * as dom from "./dom.js";

const { h } = dom;

// The tiles: the main numbers, with the exact ones below, and the ratio to the other side of a comparison.
export function tiles(counted, other, name) {
	const { model, state, flops, params, active, tokens, rule, bytes, cached, next, dtype } = counted;
	const step = { prefill: "One forward pass", decode: "One decode step", chunk: "One chunk" }[state.step];
	const thumb = active === params ? "params" : "active";
	const found = [
		tile(
			"Parameters",
			numbers.people(params),
			numbers.grouped(params),
			active === params ? null : `${numbers.people(active)} active per token`,
			params,
			other?.params,
			name,
		),
		tile(
			state.train ? "One training step" : step,
			`${numbers.si(flops)}FLOPs`,
			numbers.grouped(flops),
			null,
			flops,
			other?.flops,
			name,
		),
		tile(
			"Per new token",
			`${numbers.si(numbers.rounded(flops, tokens))}FLOPs`,
			`${numbers.decimals(flops, rule, 2)} × ${state.train ? 6 : 2}·${thumb}·tokens`,
			null,
			flops * (other?.tokens ?? 1n),
			other && other.flops * tokens,
			name,
		),
	];
	if (dtype === null) found.push(tile("Weights", "choose a dtype", "stored quantized", null));
	else
		found.push(
			tile(`Weights in ${dtype}`, numbers.binary(bytes), numbers.decimal(bytes), null, bytes, other?.bytes, name),
		);
	if (model.has_cache) {
		const share =
			dtype === null ? `${numbers.grouped(cached)} bytes` : `${numbers.percent(cached, cached + bytes)} of the memory`;
		const named = model.cache_name[0].toUpperCase() + model.cache_name.slice(1);
		found.push(tile(`${named} in ${widths(counted)}`, numbers.binary(cached), share, null, cached, other?.cached, name));
		found.push(
			tile(
				`${named} of the next token`,
				next ? numbers.binary(next) : "nothing",
				next ? `${numbers.grouped(next)} bytes` : "fixed size, or the window is full",
				null,
				next,
				other?.next,
				name,
			),
		);
	}
	return h("dl.tiles", found);
}

// Dtypes of the cache: some states have a dtype of their own.
function widths({ states, state }) {
	const found = states.map(({ line }) => storage.widthOf(line, storage.width(count.cacheDtype(state))).name);
	return [...new Set(found)].join(" and ");
}

function tile(label, text, exact, more, now, then, name) {
	const against =
		now === undefined || !then ? null : now === then ? `the same` : `${numbers.decimals(now, then, 2)} × ${name}`;
	const [number, unit] = /^[\d.,]+ /.test(text) ? text.split(" ") : ["", text];
	return h(
		"div",
		h("dt", label),
		h("dd.figure", number ? `${number} ` : "", h("small", unit)),
		h("dd", exact),
		more ? h("dd", more) : null,
		against ? h("dd.against", against) : null,
	);
}

// The panel of bars; doubled where there is something to compare with.
export function bars(counted, other, names) {
	const mine = count.shares(counted),
		theirs = other ? count.shares(other) : [];
	const seen = new Map();
	const rows = mine.flatMap((bar, index) => [
		row(bar, other ? names[0] : null, counted, seen),
		other ? row(theirs[index], names[1], other, seen) : null,
	]);
	const longest = (text, texts) => ![...texts].some(other => other !== text && other.startsWith(text));
	const entries = [...seen].map(([hue, texts]) => [hue, [...texts].filter(text => longest(text, texts)).join(", ")]);
	return dom.panel("bars", "Where it goes", null, h("div.bars", rows), dom.key(entries));
}

function row({ title, unit, parts, stored, forward }, whose, counted, seen) {
	const total = einsum.sum(parts.map(([, number]) => number));
	const unknown = (stored || forward) && counted.dtype === null;
	const text = unknown ? "choose a dtype" : `${numbers[unit](total)}${unit === "si" ? "FLOPs" : ""}`;
	const name = `${title}${forward && counted.state.train ? ", forward" : ""}`;
	return h(
		"div.bar",
		h("p", h("strong", name), whose ? ` · ${whose}` : "", h("span", text)),
		h(
			"div.stack",
			{ role: "img", "aria-label": described(name, parts, total) },
			unknown ? null : parts.map(([part, number]) => segment(part, number, total, unit, seen, counted.model.cache_name)),
		),
	);
}

function segment(part, number, total, unit, seen, cacheName) {
	const hue = paths.hue(part),
		word = part === "cache" ? cacheName : paths.words(part);
	const shown = part === "cache" ? "cache" : hue;
	if (!seen.has(shown)) seen.set(shown, new Set());
	seen.get(shown).add(word);
	const share = Number(numbers.decimals(number, total, 5));
	return h(
		`span.${shown}`,
		{ "--share": String(share), title: `${word}: ${numbers[unit](number)}, ${numbers.percent(number, total)}` },
		share >= 0.05 ? h("b", numbers.percent(number, total)) : null,
	);
}

function described(name, parts, total) {
	const words = parts.map(([part, number]) => `${paths.words(part)} ${numbers.percent(number, total || 1n)}`);
	return `${name}: ${words.join(", ")}`;
}
